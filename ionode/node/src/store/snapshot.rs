//! How the files of a replica look to the file system. Knows names, sizes and times, never content.
//!
//! The one rule: equal snapshots mean that nobody wrote in between, other than who sets times back, and the kernel's time shows that one.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use stager_core::error::ApiError;
use stager_core::replica::{Replica, ReplicaKind};

use super::tree::Manifest;
use super::Store;
use crate::failure::at;

/// What the file system says of the files of a replica, without reading them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Inode, size, and when the content was changed, which whoever may write can set back.
    pub content: String,
    /// When the file was changed in any way, by the kernel: a new name, a lost one and new rights count, too.
    pub changed: String,
}

impl Snapshot {
    pub fn of_file(found: &Metadata) -> Self {
        Self {
            content: format!("{}:{}:{}.{:09};", found.ino(), found.size(), found.mtime(), found.mtime_nsec()),
            changed: format!("{}.{:09};", found.ctime(), found.ctime_nsec()),
        }
    }

    /// `members`: in the manifest's order.
    pub fn of_tree(members: &[Snapshot]) -> Self {
        let together = |part: &dyn Fn(&Snapshot) -> &str| {
            let mut hasher = blake3::Hasher::new();
            for member in members {
                hasher.update(part(member).as_bytes());
            }
            hasher.finalize().to_hex().to_string()
        };
        Self { content: together(&|one| &one.content), changed: together(&|one| &one.changed) }
    }
}

/// Of a replica's files; of one in the log, which write of it.
pub fn snapshot(store: &Store, replica: &Replica) -> Result<Snapshot, ApiError> {
    let key = replica.key();
    if let Some(version) = store.version_in_log(&key)? {
        return Ok(Snapshot { content: format!("log:{version}"), changed: String::new() });
    }
    let top = store.data_path(&key);
    if replica.kind == ReplicaKind::File {
        return one(&top);
    }
    let members = Manifest::read(&store.manifest_path(&key))?.members;
    let snapshots = members.iter().map(|member| one(&top.join(&member.path)));
    Ok(Snapshot::of_tree(&snapshots.collect::<Result<Vec<Snapshot>, _>>()?))
}

fn one(path: &Path) -> Result<Snapshot, ApiError> {
    Ok(Snapshot::of_file(&path.symlink_metadata().map_err(at("stat of", path))?))
}
