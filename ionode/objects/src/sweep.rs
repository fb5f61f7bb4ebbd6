//! Removing files that no record names: what writes left that never ended, and what a crash kept from being removed.
//!
//! The one rule: only files that were there before anything else was done can be garbage, and parts are looked at before objects: a file
//! moves from a part to an object, never back.

use std::collections::HashSet;
use std::path::PathBuf;

use stager_core::error::ApiError;
use stager_store::failure::at;

use crate::file;
use crate::ids::FileId;
use crate::meta::{self, Object};
use crate::uploads::Part;
use crate::{tables, Objects};

/// Files that may be garbage.
pub struct Swept {
    found: HashSet<FileId>,
}

impl Objects {
    /// To be called before the first write.
    pub fn find_garbage(&self) -> Result<Swept, ApiError> {
        let mut found = HashSet::new();
        for shard in entries(self.inner.directory.clone())? {
            for path in entries(shard)? {
                // Nothing of ours has another name; what somebody else put here stays.
                found.extend(path.file_name().and_then(|name| name.to_str()).and_then(FileId::parse));
            }
        }
        Ok(Swept { found })
    }

    /// Takes a while where there are many objects; may run beside everything else. Returns the number of files it removed.
    pub fn remove_garbage(&self, swept: Swept) -> Result<usize, ApiError> {
        let mut found = swept.found;
        if found.is_empty() {
            return Ok(0);
        }
        for part in self.log().scan(tables::PARTS, b"")? {
            let part: Part = meta::parse("part", &part?.1.meta)?;
            found.remove(&part.file.id);
        }
        for object in self.log().scan(tables::OBJECTS, b"")? {
            let (key, stat) = object?;
            let object: Object = meta::parse(&String::from_utf8_lossy(&key), &stat.meta)?;
            for file in object.stored.files() {
                found.remove(&file.id);
            }
        }
        found.iter().for_each(|id| file::remove(&self.inner.directory, *id));
        if !found.is_empty() {
            tracing::info!(removed = found.len(), "removed content files that no object names");
        }
        Ok(found.len())
    }
}

fn entries(directory: PathBuf) -> Result<Vec<PathBuf>, ApiError> {
    let listed = std::fs::read_dir(&directory).and_then(|entries| entries.map(|entry| entry.map(|entry| entry.path())).collect());
    listed.map_err(at("listing", &directory))
}
