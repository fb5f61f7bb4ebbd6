//! A job's stay on this host: its sandbox, what it reads by link, what it leaves. Knows the store and sandboxes, no network.
//!
//! The one rule: an attempt is remembered in a file of its own, so leases outlive the node's process, as the job does.

mod direct;
mod release;
mod stage_in;
mod stage_out;

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};
use stager_core::error::ApiError;
use stager_core::replica::ReplicaKey;

pub use release::release;
pub use stage_in::stage_in;

use crate::failure::{at, Failure};
use crate::node::{Cause, Node};
use crate::packs;
use crate::transfers::chain;
use crate::wire::{Ack, StageInAnswer, StageInRequest, StageOutAnswer, StageOutRequest};

/// With the copies and the release that follow, if they were asked for. What is committed stays committed: a release that fails is left to a call of its own.
pub async fn stage_out(node: Arc<Node>, cause: Cause, attempt_id: String, mut request: StageOutRequest) -> Result<StageOutAnswer, Failure> {
    let follows = request.release.take();
    let wanted = request.replicas.take();
    chain::check(&node, wanted.as_ref().map_or(&[], |wanted| wanted.chain.as_slice()))?;
    let mut answer = stage_out::stage_out(node.clone(), attempt_id.clone(), request).await?;
    if let Some(wanted) = wanted.filter(|wanted| !wanted.chain.is_empty()) {
        let told = packs::chain::replicate(&node, &cause, &attempt_id, &answer.outputs, &wanted).await;
        answer.replication = Some(told).filter(|_| wanted.ack == Ack::Sync);
    }
    if let Some(request) = follows {
        let released = release(node, cause, attempt_id.clone(), request).await;
        answer.released = released.map_err(|error| tracing::warn!(attempt_id, %error, "an attempt is not released yet")).ok();
    }
    Ok(answer)
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Attempt {
    /// A job does not survive its host: leases from another boot are over.
    boot_id: String,
    request: StageInRequest,
    answer: StageInAnswer,
    links: Vec<Link>,
}

/// A replica that the job sees itself, not a copy of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Link {
    key: ReplicaKey,
    /// How it looked at stage-in: this changes when someone writes through the link.
    fingerprint: String,
    /// And this also where the times were set back, or its rights changed. None: staged in by a version that did not note it.
    #[serde(default)]
    changed: Option<String>,
}

impl Attempt {
    fn leased(&self) -> Vec<ReplicaKey> {
        keys(&self.request)
    }
}

fn keys(request: &StageInRequest) -> Vec<ReplicaKey> {
    let mut keys: Vec<ReplicaKey> = request.inputs.iter().map(|input| ReplicaKey::new(&input.file_id, &input.generation)).collect();
    keys.sort();
    keys.dedup();
    keys
}

#[derive(Default)]
pub struct Attempts {
    known: Mutex<HashMap<String, Attempt>>,
    /// One call at a time for each attempt: a repeated call waits for the first and finds its work done.
    locks: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

impl Attempts {
    fn lock_of(&self, attempt_id: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut locks = self.locks.lock().expect("nobody panics here");
        locks.retain(|_, lock| Arc::strong_count(lock) > 1);
        locks.entry(attempt_id.to_string()).or_default().clone()
    }

    fn get(&self, attempt_id: &str) -> Option<Attempt> {
        self.known.lock().expect("nobody panics here").get(attempt_id).cloned()
    }
    fn remember(&self, attempt_id: &str, attempt: Attempt) {
        self.known.lock().expect("nobody panics here").insert(attempt_id.to_string(), attempt);
    }
    fn forget(&self, attempt_id: &str) {
        self.known.lock().expect("nobody panics here").remove(attempt_id);
    }
}

fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|text| text.trim().to_string()).unwrap_or_default()
}

/// Not synced: it has to survive the process, and after a power loss there is no job.
fn save(path: &Path, attempt: &Attempt) -> Result<(), ApiError> {
    let bytes = serde_json::to_vec(attempt).expect("an attempt is plain values");
    crate::store::recovery::write_whole(path, &bytes, crate::store::durability::Durability(false))
}

/// At the start of the node: whose jobs may still be running.
pub fn adopt(node: &Node) -> Result<(), ApiError> {
    let directory = node.store.root().join("attempts");
    for entry in crate::store::recovery::list(&directory)? {
        let path = directory.join(&entry);
        let attempt = std::fs::read(&path).ok().and_then(|bytes| serde_json::from_slice::<Attempt>(&bytes).ok());
        match (entry.strip_suffix(".json"), attempt.filter(|attempt| attempt.boot_id == boot_id())) {
            (Some(attempt_id), Some(attempt)) => {
                node.accounting().index.adopt_lease(attempt_id, &attempt.leased());
                node.attempts.remember(attempt_id, attempt);
            }
            _ => std::fs::remove_file(&path).map_err(at("removing", &path))?,
        }
    }
    Ok(())
}
