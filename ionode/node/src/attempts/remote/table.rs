//! The attempts of other hosts, each in a directory of its own. Knows what was opened and sent, not what is done with it.
//!
//! The one rule: what is in a record is in the table, so an attempt outlives the node's process, and also its host; its brief does not.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use stager_core::error::{ApiError, Code};
use stager_core::replica::{Replica, ReplicaKey};
use stager_core::space::Holder;

use super::super::table::boot_id;
use super::tickets;
use crate::context::NodeContext;
use crate::failure::at;
use crate::store::durability::Durability;
use crate::store::files::{list, make_directory, write_whole};
use crate::store::REMOTE;
use crate::wire::{AttemptState, InputContent, OpenAttempt, Output, OutputsRequest, Reservation, StageOutAnswer};

/// Committed attempts that were closed are known so long that a repeated close hears of their commit.
const CLOSED_MAX: usize = 1000;

#[derive(Clone, Serialize, Deserialize)]
pub struct Remote {
    pub boot_id: String,
    pub nonce: String,
    /// The keyed hash of the request that opened it.
    pub asked: String,
    pub epoch: u64,
    pub inputs: Vec<InputContent>,
    pub outputs: Vec<Output>,
    pub reservation_id: String,
    pub reservation: Option<Reservation>,
    pub state: AttemptState,
    pub answer: Option<StageOutAnswer>,
    pub closed_at_s: Option<u64>,
    #[serde(skip)]
    pub brief: Option<Arc<Value>>,
    #[serde(skip)]
    pub sent: Option<Arc<OutputsRequest>>,
}

impl Remote {
    pub fn keys(&self) -> Vec<ReplicaKey> {
        let mut keys: Vec<ReplicaKey> = self.inputs.iter().map(|input| ReplicaKey::new(&input.file_id, &input.generation)).collect();
        keys.sort();
        keys.dedup();
        keys
    }
}

#[derive(Default)]
pub struct Remotes {
    known: Mutex<HashMap<String, Remote>>,
}

impl Remotes {
    pub fn get(&self, attempt_id: &str) -> Option<Remote> {
        self.known.lock().expect("nobody panics here").get(attempt_id).cloned()
    }

    pub fn remember(&self, attempt_id: &str, remote: Remote) {
        self.known.lock().expect("nobody panics here").insert(attempt_id.to_string(), remote);
    }

    pub fn forget(&self, attempt_id: &str) {
        self.known.lock().expect("nobody panics here").remove(attempt_id);
    }

    /// Those that nobody closed.
    pub fn open(&self) -> Vec<OpenAttempt> {
        let known = self.known.lock().expect("nobody panics here");
        let open = known.iter().filter(|(_, remote)| remote.state != AttemptState::Closed);
        let mut open: Vec<OpenAttempt> =
            open.map(|(id, remote)| OpenAttempt { attempt_id: id.clone(), epoch: remote.epoch, state: remote.state }).collect();
        open.sort_by(|a, b| a.attempt_id.cmp(&b.attempt_id));
        open
    }

    /// Whose ticket it is; `None`: it is none.
    pub fn holder(&self, token: &str, shown: &[u8]) -> Option<Result<String, ApiError>> {
        let found = match tickets::parsed(shown)? {
            Ok(found) => found,
            Err(error) => return Some(Err(error)),
        };
        let (attempt_id, secret) = (found.0, found.1);
        let known = self.known.lock().expect("nobody panics here");
        Some(match known.get(attempt_id) {
            None => Err(closed(attempt_id)),
            Some(remote) if !tickets::is_of(secret, token, attempt_id, &remote.nonce) => Err(tickets::wrong(attempt_id)),
            Some(remote) if remote.state == AttemptState::Closed => Err(closed(attempt_id)),
            Some(_) => Ok(attempt_id.to_string()),
        })
    }

    /// A call under an older epoch than the attempt was opened under comes from a scheduler that did not open it.
    pub fn check_epoch(&self, attempt_id: &str, epoch: u64) -> Result<(), ApiError> {
        let opened = self.known.lock().expect("nobody panics here").get(attempt_id).map_or(0, |remote| remote.epoch);
        if epoch >= opened {
            return Ok(());
        }
        let message =
            format!("the attempt {attempt_id} was opened in epoch {opened} and the call came from epoch {epoch}; it is not the one");
        Err(ApiError::new(Code::StaleEpoch, epoch.to_string(), message))
    }

    pub fn may_read(&self, attempt_id: &str, key: &ReplicaKey) -> bool {
        let known = self.known.lock().expect("nobody panics here");
        let open = known.get(attempt_id).filter(|remote| matches!(remote.state, AttemptState::Open | AttemptState::Committed));
        open.is_some_and(|remote| remote.inputs.iter().any(|input| (&input.file_id, &input.generation) == (&key.file_id, &key.generation)))
    }

    /// The oldest ones that are more than are kept.
    pub fn overdue(&self) -> Vec<String> {
        let known = self.known.lock().expect("nobody panics here");
        let mut closed: Vec<(u64, &String)> = known.iter().filter_map(|(id, remote)| Some((remote.closed_at_s?, id))).collect();
        closed.sort();
        let over = closed.len().saturating_sub(CLOSED_MAX);
        closed.into_iter().take(over).map(|(_, id)| id.clone()).collect()
    }

    /// At the start of the node. The power of the node's host may have gone meanwhile, and with it what was not synced.
    pub fn adopt(&self, context: &NodeContext) -> Result<(), ApiError> {
        let directory = context.store.root().join("remote");
        for entry in list(&directory)? {
            let path = directory.join(&entry);
            let read = std::fs::read(path.join(RECORD)).ok().and_then(|bytes| serde_json::from_slice::<Remote>(&bytes).ok());
            let (Some(attempt_id), Some(mut remote)) = (entry.strip_prefix(REMOTE), read) else {
                std::fs::remove_dir_all(&path).map_err(at("removing", &path))?;
                continue;
            };
            if remote.answer.is_none() {
                remote.answer = committed(context, &remote.outputs);
                remote.state = if remote.answer.is_some() { AttemptState::Committed } else { remote.state };
            }
            if remote.boot_id != boot_id() {
                drop_sent(&path)?;
                remote.boot_id = boot_id();
                save(&path, &remote)?;
            }
            let sent = std::fs::read(path.join(SENT)).ok();
            remote.sent = sent.and_then(|bytes| serde_json::from_slice(&bytes).ok()).map(Arc::new);
            if matches!(remote.state, AttemptState::Open | AttemptState::Committed) {
                context.accounting().index.adopt_lease(attempt_id, &remote.keys());
            }
            if let (AttemptState::Open, Some(held)) = (remote.state, &remote.reservation) {
                if let Err(error) = context.reserve(Holder::Named(held.id.clone()), attempt_id, held.bytes) {
                    tracing::warn!(attempt_id, %error, "the space of an attempt on another host is not free any more");
                }
            }
            self.remember(attempt_id, remote);
        }
        Ok(())
    }
}

/// What a record that was not written any more would have said. All outputs are in one record of the log, so one shows all.
fn committed(context: &NodeContext, outputs: &[Output]) -> Option<StageOutAnswer> {
    let accounting = context.accounting();
    let replica = |output: &Output| accounting.index.replica(&ReplicaKey::new(&output.file_id, &output.generation)).cloned();
    let outputs: Vec<Replica> = outputs.iter().filter_map(replica).collect();
    let answer = StageOutAnswer { outputs, undeclared: Vec::new(), undeclared_count: 0, released: None, replication: None };
    (!answer.outputs.is_empty()).then_some(answer)
}

const RECORD: &str = "record.json";
const SENT: &str = "sent.json";
/// Where the files of outputs are as the job's sandbox had them.
pub const TREE: &str = "tree";
/// Where they are until all of one has come.
pub const PART: &str = "part";

/// Synced: the job goes on when the node's host loses its power.
pub fn save(path: &Path, remote: &Remote) -> Result<(), ApiError> {
    make_directory(path)?;
    write_whole(&path.join(RECORD), &serde_json::to_vec(remote).expect("plain values"), Durability(true))
}

pub fn save_sent(path: &Path, sent: &OutputsRequest) -> Result<(), ApiError> {
    write_whole(&path.join(SENT), &serde_json::to_vec(sent).expect("plain values"), Durability(false))
}

/// What came of its outputs.
pub fn drop_sent(path: &Path) -> Result<(), ApiError> {
    for name in [TREE, PART] {
        remove(&path.join(name), |path| std::fs::remove_dir_all(path))?;
    }
    remove(&path.join(SENT), |path| std::fs::remove_file(path))
}

pub fn remove(path: &Path, how: impl Fn(&Path) -> std::io::Result<()>) -> Result<(), ApiError> {
    match how(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(at::<std::io::Error>("removing", path)(error)),
        _ => Ok(()),
    }
}

pub fn closed(attempt_id: &str) -> ApiError {
    let message = format!("the attempt {attempt_id} is not open at this node, so nothing of it is taken; end the job");
    ApiError::new(Code::TicketClosed, attempt_id, message)
}

pub fn is_each_once(numbers: impl Iterator<Item = (usize, String)>) -> bool {
    let mut seen = HashSet::new();
    numbers.into_iter().all(|entry| seen.insert(entry))
}
