//! The attempts that are staged in here, each remembered in a file of its own. Knows what was asked and given, not how it is furnished.
//!
//! The one rule: what is in a file is in the table, so leases outlive the node's process, as the job does.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};
use stager_core::error::ApiError;
use stager_core::replica::ReplicaKey;
use stager_mounts::Mounts;

use super::remote::Remotes;
use crate::context::NodeContext;
use crate::failure::at;
use crate::fingerprints::Fingerprints;
use crate::packs::Packs;
use crate::store::durability::Durability;
use crate::store::files::{list, write_whole};
use crate::transfers::Transfers;
use crate::wire::{StageInAnswer, StageInRequest};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Attempt {
    /// A job does not survive its host: leases from another boot are over.
    pub boot_id: String,
    pub request: StageInRequest,
    pub answer: StageInAnswer,
    pub links: Vec<Link>,
}

/// A replica that the job sees itself, not a copy of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Link {
    pub key: ReplicaKey,
    /// How it looked at stage-in: this changes when someone writes through the link.
    pub fingerprint: String,
    /// And this also where the times were set back, or its rights changed. None: staged in by a version that did not note it.
    #[serde(default)]
    pub changed: Option<String>,
}

impl Attempt {
    pub(super) fn leased(&self) -> Vec<ReplicaKey> {
        keys(&self.request)
    }
}

pub(super) fn keys(request: &StageInRequest) -> Vec<ReplicaKey> {
    let mut keys: Vec<ReplicaKey> = request.inputs.iter().map(|input| ReplicaKey::new(&input.file_id, &input.generation)).collect();
    keys.sort();
    keys.dedup();
    keys
}

pub struct Attempts {
    pub(super) context: Arc<NodeContext>,
    pub(super) fingerprints: Arc<Fingerprints>,
    pub(super) transfers: Arc<Transfers>,
    pub(super) packs: Arc<Packs>,
    pub(super) mounts: Arc<Mounts>,
    /// Those whose hosts share no files with this one.
    pub remotes: Remotes,
    known: Mutex<HashMap<String, Attempt>>,
    /// One call at a time for each attempt: a repeated call waits for the first and finds its work done.
    locks: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

impl Attempts {
    pub fn new(
        context: Arc<NodeContext>,
        fingerprints: Arc<Fingerprints>,
        transfers: Arc<Transfers>,
        packs: Arc<Packs>,
        mounts: Arc<Mounts>,
    ) -> Self {
        Self {
            context,
            fingerprints,
            transfers,
            packs,
            mounts,
            remotes: Remotes::default(),
            known: Mutex::default(),
            locks: Mutex::default(),
        }
    }

    pub(super) fn lock_of(&self, attempt_id: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut locks = self.locks.lock().expect("nobody panics here");
        locks.retain(|_, lock| Arc::strong_count(lock) > 1);
        locks.entry(attempt_id.to_string()).or_default().clone()
    }

    pub(super) fn get(&self, attempt_id: &str) -> Option<Attempt> {
        self.known.lock().expect("nobody panics here").get(attempt_id).cloned()
    }

    pub(super) fn remember(&self, attempt_id: &str, attempt: Attempt) {
        self.known.lock().expect("nobody panics here").insert(attempt_id.to_string(), attempt);
    }

    pub(super) fn forget(&self, attempt_id: &str) {
        self.known.lock().expect("nobody panics here").remove(attempt_id);
    }

    /// At the start of the node: whose jobs may still be running.
    pub fn adopt(&self) -> Result<(), ApiError> {
        let directory = self.context.store.root().join("attempts");
        for entry in list(&directory)? {
            let path = directory.join(&entry);
            let attempt = std::fs::read(&path).ok().and_then(|bytes| serde_json::from_slice::<Attempt>(&bytes).ok());
            match (entry.strip_suffix(".json"), attempt.filter(|attempt| attempt.boot_id == boot_id())) {
                (Some(attempt_id), Some(attempt)) => {
                    self.context.accounting().index.adopt_lease(attempt_id, &attempt.leased());
                    self.remember(attempt_id, attempt);
                }
                _ => std::fs::remove_file(&path).map_err(at("removing", &path))?,
            }
        }
        self.remotes.adopt(&self.context)
    }
}

pub(super) fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|text| text.trim().to_string()).unwrap_or_default()
}

/// Not synced: it has to survive the process, and after a power loss there is no job.
pub(super) fn save(path: &Path, attempt: &Attempt) -> Result<(), ApiError> {
    let bytes = serde_json::to_vec(attempt).expect("an attempt is plain values");
    write_whole(path, &bytes, Durability(false))
}
