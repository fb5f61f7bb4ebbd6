//! Fingerprints: inode, size and times of change of the files of a replica when their content was last hashed and right.
//!
//! The one rule: who has just hashed the content sets its fingerprint, from a snapshot taken before that; without it the content is
//! hashed before a job may read it. So what was changed on the disk, or could have been while no node watched, is found before a job sees
//! it.

use std::collections::HashMap;
use std::fs::File;
use std::sync::{Arc, Mutex, MutexGuard};

use stager_core::error::{ApiError, Class, Code};
use stager_core::replica::{Replica, ReplicaKey};

use crate::blocking::blocking;
use crate::clock::now_s;
use crate::context::{Cause, NodeContext};
use crate::failure::disk;
use crate::store::digest::{self, Digests, Reader};
use crate::store::snapshot::{snapshot, Snapshot};
use crate::store::{recovery, tree, Place};

/// Read again before every job: costs less than the sandbox does.
const READ_ALWAYS_BYTES_MAX: u64 = 256 << 10;

struct Fingerprint {
    /// None: hashed before this incarnation, when nobody watched the files.
    snapshot: Option<Snapshot>,
    hashed_at_s: u64,
}

pub struct Fingerprints {
    pub context: Arc<NodeContext>,
    known: Mutex<HashMap<ReplicaKey, Fingerprint>>,
    /// One reader at a time: the others of the same replica then find its fingerprint, and the disk has one stream.
    reading: Mutex<()>,
}

impl Fingerprints {
    pub fn new(context: Arc<NodeContext>) -> Self {
        Self { context, known: Mutex::default(), reading: Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<ReplicaKey, Fingerprint>> {
        self.known.lock().expect("nobody panics here")
    }

    /// To be called by who has just hashed it, with the snapshot taken before that.
    pub fn set(&self, key: &ReplicaKey, snapshot: Snapshot) {
        self.known().insert(key.clone(), Fingerprint { snapshot: Some(snapshot), hashed_at_s: now_s() });
    }
    pub fn forget(&self, key: &ReplicaKey) {
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

    /// Each of these can be read by a job. What cannot is quarantined, and told.
    pub async fn require_sound(self: &Arc<Self>, cause: &Cause, keys: &[ReplicaKey]) -> Result<(), ApiError> {
        let (worker, asked) = (self.clone(), keys.to_vec());
        // One task for all: of many small files each would wait longer for a thread than for the disk.
        let unsound = blocking(move || {
            for key in asked {
                let replica = worker.context.accounting().index.readable(&key)?.clone();
                if !worker.is_sound(&replica)? {
                    return Ok(Some(key));
                }
            }
            Ok(None)
        });
        let Some(key) = unsound.await? else { return Ok(()) };
        if self.context.accounting().index.readable(&key).is_ok() {
            self.context.quarantine(cause, &key, "does not have the content it was committed with").await?;
        }
        let message = format!("replica {key} is damaged on the node's disk; no job has read it, stager makes it again");
        Err(ApiError::new(Code::ChecksumMismatch, &key.file_id, message))
    }

    fn is_sound(&self, replica: &Replica) -> Result<bool, ApiError> {
        let key = replica.key();
        if self.context.store.version_in_log(&key)?.is_some() {
            return self.in_log_is_sound(replica);
        }
        if !self.is_there(replica)? {
            return Ok(false);
        }
        let is_unchanged = || Ok::<bool, ApiError>(self.holds(&key, &snapshot(&self.context.store, replica)?));
        if replica.size_bytes > READ_ALWAYS_BYTES_MAX && is_unchanged()? {
            return Ok(true);
        }
        let _locked = self.reading.lock().expect("nobody panics here");
        if replica.size_bytes > READ_ALWAYS_BYTES_MAX && is_unchanged()? {
            return Ok(true);
        }
        self.matches_now(replica)
    }

    /// The log compares its own checksum at every reading: the one that copies it for the job compares it once more.
    fn in_log_is_sound(&self, replica: &Replica) -> Result<bool, ApiError> {
        match self.context.store.content(replica) {
            Ok(Place::InLog(content)) => Ok(content.len() as u64 == replica.size_bytes),
            Ok(_) => self.is_there(replica),
            Err(error) if error.class == Class::Corrupt => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Reads all of it; a mismatch quarantines.
    pub async fn verify(self: &Arc<Self>, cause: &Cause, key: &ReplicaKey) -> Result<bool, ApiError> {
        let replica = self.context.replica(key)?;
        let worker = self.clone();
        let subject = replica.clone();
        let matches = blocking(move || worker.matches_now(&subject)).await?;
        if !matches && self.context.accounting().index.readable(key).is_ok() {
            self.context.quarantine(cause, key, "does not have the content it was committed with").await?;
        }
        Ok(matches)
    }

    /// Reads all of it; what is right gets a fingerprint.
    pub fn matches_now(&self, replica: &Replica) -> Result<bool, ApiError> {
        self.matches_by(replica, &mut |file, path| digest::of_file(file, path, false))
    }

    /// As `matches_now`, each file read by `digests`.
    pub fn matches_by(&self, replica: &Replica, digests: &mut Reader<'_>) -> Result<bool, ApiError> {
        let key = replica.key();
        let snapshot = snapshot(&self.context.store, replica);
        let found = match digests_now(&self.context, replica, digests) {
            Ok(found) => found,
            Err(error) if error.class == Class::Corrupt => None,
            Err(error) => return Err(error),
        };
        let matches = found.is_some_and(|found| {
            (found.size_bytes, &found.blake3, &found.crc64nvme) == (replica.size_bytes, &replica.blake3, &replica.crc64nvme)
        });
        match snapshot {
            Ok(snapshot) if matches => self.set(&key, snapshot),
            _ => self.forget(&key),
        }
        Ok(matches)
    }

    /// By size where its content lies in files; what lies in the log is looked at by reading it.
    pub fn is_there(&self, replica: &Replica) -> Result<bool, ApiError> {
        Ok(self.context.store.version_in_log(&replica.key())?.is_some() || recovery::is_there(self.context.store.root(), replica))
    }
}

/// Of the content as it is now; `None` where a file of it is missing.
fn digests_now(context: &NodeContext, replica: &Replica, digests: &mut Reader<'_>) -> Result<Option<Digests>, ApiError> {
    match context.store.content(replica)? {
        Place::InLog(bytes) => Ok(Some(digest::of_bytes(&bytes, false))),
        Place::File(path) => match File::open(&path) {
            Ok(file) => digests(&file, &path).map(Some),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(disk("opening", &path, &error)),
        },
        Place::Tree { top, manifest } => tree::verify(&top, &manifest, digests),
    }
}
