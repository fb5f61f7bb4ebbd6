//! Fingerprints: inode, size and times of change of the files of a replica when their content was last hashed and right.
//!
//! The one rule: who has just hashed the content sets its fingerprint, from a snapshot taken before that; without it the content is
//! hashed before a job may read it. So what was changed on the disk, or could have been while no node watched, is found before a job sees
//! it.

use std::collections::HashMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use stager_core::error::{ApiError, Class, Code};
use stager_core::replica::{Replica, ReplicaKey, ReplicaKind};

use crate::failure::at;
use crate::node::{Cause, Node};
use crate::replicas::{self, blocking};
use crate::scrub::now_s;
use crate::store::tree::Manifest;
use crate::store::{Place, Store};

/// Read again before every job: costs less than the sandbox does.
const READ_ALWAYS_BYTES_MAX: u64 = 256 << 10;

/// What the file system says of the files of a replica, without reading them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Inode, size, and when the content was changed, which whoever may write can set back.
    pub content: String,
    /// When the file was changed in any way, by the kernel: a new name, a lost one and new rights count, too.
    pub changed: String,
}

struct Fingerprint {
    /// None: hashed before this incarnation, when nobody watched the files.
    snapshot: Option<Snapshot>,
    hashed_at_s: u64,
}

#[derive(Default)]
pub struct Fingerprints {
    known: Mutex<HashMap<ReplicaKey, Fingerprint>>,
    /// One reader at a time: the others of the same replica then find its fingerprint, and the disk has one stream.
    reading: Mutex<()>,
}

impl Fingerprints {
    fn known(&self) -> MutexGuard<'_, HashMap<ReplicaKey, Fingerprint>> {
        self.known.lock().expect("nobody panics here")
    }

    /// To be called by who has just hashed it, with the snapshot taken before that.
    pub fn set(&self, key: &ReplicaKey, snapshot: Snapshot) {
        self.known().insert(key.clone(), Fingerprint { snapshot: Some(snapshot), hashed_at_s: now_s() });
    }
    pub fn drop(&self, key: &ReplicaKey) {
        self.known().remove(key);
    }
    fn holds(&self, key: &ReplicaKey, snapshot: &Snapshot) -> bool {
        self.known().get(key).is_some_and(|known| known.snapshot.as_ref() == Some(snapshot))
    }

    /// Since the epoch; None: nobody knows.
    pub fn hashed_at_s(&self, key: &ReplicaKey) -> Option<u64> {
        self.known().get(key).map(|known| known.hashed_at_s)
    }
    pub fn times(&self) -> Vec<(ReplicaKey, u64)> {
        self.known().iter().map(|(key, known)| (key.clone(), known.hashed_at_s)).collect()
    }
    /// What an earlier incarnation knew: when, but no snapshot, so a job does not read by it.
    pub fn recall(&self, times: impl Iterator<Item = (ReplicaKey, u64)>) {
        let mut known = self.known();
        for (key, hashed_at_s) in times {
            known.entry(key).or_insert(Fingerprint { snapshot: None, hashed_at_s });
        }
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

/// Each of these can be read by a job. What cannot is quarantined, and told.
pub async fn require_sound(node: &Arc<Node>, cause: &Cause, keys: &[ReplicaKey]) -> Result<(), ApiError> {
    let (worker, asked) = (node.clone(), keys.to_vec());
    // One task for all: of many small files each would wait longer for a thread than for the disk.
    let unsound = blocking(move || {
        for key in asked {
            let replica = worker.accounting().index.readable(&key)?.clone();
            if !is_sound(&worker, &replica)? {
                return Ok(Some(key));
            }
        }
        Ok(None)
    });
    let Some(key) = unsound.await? else { return Ok(()) };
    if node.accounting().index.readable(&key).is_ok() {
        node.quarantine(cause, &key, "does not have the content it was committed with").await?;
    }
    let message = format!("replica {key} is damaged on the node's disk; no job has read it, it is made again");
    Err(ApiError::new(Code::ChecksumMismatch, &key.file_id, message))
}

fn is_sound(node: &Node, replica: &Replica) -> Result<bool, ApiError> {
    let key = replica.key();
    if node.store.version_in_log(&key)?.is_some() {
        return in_log_is_sound(node, replica);
    }
    if !replicas::is_there(node, replica)? {
        return Ok(false);
    }
    let is_unchanged = |node: &Node| Ok::<bool, ApiError>(node.fingerprints.holds(&key, &snapshot(&node.store, replica)?));
    if replica.size_bytes > READ_ALWAYS_BYTES_MAX && is_unchanged(node)? {
        return Ok(true);
    }
    let _locked = node.fingerprints.reading.lock().expect("nobody panics here");
    if replica.size_bytes > READ_ALWAYS_BYTES_MAX && is_unchanged(node)? {
        return Ok(true);
    }
    replicas::matches_now(node, replica)
}

/// The log compares its own checksum at every reading: the one that copies it for the job compares it once more.
fn in_log_is_sound(node: &Node, replica: &Replica) -> Result<bool, ApiError> {
    match node.store.content(replica) {
        Ok(Place::InLog(content)) => Ok(content.len() as u64 == replica.size_bytes),
        Ok(_) => replicas::is_there(node, replica),
        Err(error) if error.class == Class::Corrupt => Ok(false),
        Err(error) => Err(error),
    }
}
