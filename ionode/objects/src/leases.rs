//! Who reads which object's files: files that are replaced or deleted while somebody reads them go when the last reader is done.
//!
//! The one rule: files are removed only when no record names them and nobody reads them.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::file;
use crate::ids::FileId;
use crate::meta::FilePart;

/// By an object's first file: all of its files come and go together.
pub struct Leases {
    directory: PathBuf,
    held: Mutex<HashMap<FileId, Held>>,
}

#[derive(Default)]
struct Held {
    readers: usize,
    doomed: Vec<FileId>,
}

pub struct Lease {
    leases: Arc<Leases>,
    id: FileId,
}

impl Leases {
    pub fn new(directory: PathBuf) -> Arc<Self> {
        Arc::new(Self { directory, held: Mutex::default() })
    }

    fn held(&self) -> MutexGuard<'_, HashMap<FileId, Held>> {
        self.held.lock().expect("nobody panics here")
    }

    /// To be followed by a look whether the record still names the files: they may have gone before.
    pub fn take(self: &Arc<Self>, files: &[FilePart]) -> Option<Lease> {
        let id = files.first()?.id;
        self.held().entry(id).or_default().readers += 1;
        Some(Lease { leases: self.clone(), id })
    }

    /// Of an object that no record names any more. Blocks for as long as the disk takes.
    pub fn remove(&self, files: &[FilePart]) {
        let Some(first) = files.first() else { return };
        let ids = files.iter().map(|file| file.id);
        if let Some(held) = self.held().get_mut(&first.id) {
            held.doomed.extend(ids);
            return;
        }
        ids.for_each(|id| file::remove(&self.directory, id));
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let doomed = {
            let mut all = self.leases.held();
            let Some(held) = all.get_mut(&self.id) else { return };
            held.readers -= 1;
            if held.readers > 0 {
                return;
            }
            all.remove(&self.id).map(|held| held.doomed).unwrap_or_default()
        };
        doomed.into_iter().for_each(|id| file::remove(&self.leases.directory, id));
    }
}
