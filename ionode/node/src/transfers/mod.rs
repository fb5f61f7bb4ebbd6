//! Transfers: what is queued, runs or has ended, until its end is acknowledged. Knows origins by their port only.
//!
//! The one rule: every transfer that was accepted ends in exactly one event, and gives back what it held.

mod arrival;
mod fetch;
mod intake;
mod run;
mod small;
mod upload;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use stager_core::error::ApiError;
use stager_core::ids::{check_id, check_relative_path};
use stager_core::index::Index;
use stager_core::queue::{Queue, DEMAND_BELOW};
use stager_core::record::{Partial, Source};
use stager_core::replica::ReplicaKey;
use stager_core::space::Holder;
use stager_origins::Urgency;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::failure::bad_request;
use crate::node::{Cause, Node};
use crate::wire::{
    Event, FetchRequest, Place, TransferAnswer, TransferKind, TransferRequest, TransferState, TransferStatus, UploadRequest,
};

pub struct Transfers {
    desk: Mutex<Desk>,
    tracker: TaskTracker,
    /// What the queue's times count from.
    begun: Instant,
}

impl Default for Transfers {
    fn default() -> Self {
        Self { desk: Mutex::default(), tracker: TaskTracker::default(), begun: Instant::now() }
    }
}

#[derive(Default)]
struct Desk {
    queue: Queue,
    table: HashMap<String, Transfer>,
    /// What fetches that are not over are to make.
    fetching: HashSet<ReplicaKey>,
}

struct Transfer {
    request: TransferRequest,
    cause: Cause,
    state: TransferStatus,
    bytes_total: u64,
    progress: Arc<AtomicU64>,
    urgency: Urgency,
    started: Option<Instant>,
    cancel: CancellationToken,
    event: Option<Event>,
    /// Claimed when the transfer was accepted, taken by the fetch when it starts.
    partial: Option<Partial>,
}

impl TransferRequest {
    pub fn kind(&self) -> TransferKind {
        match self {
            Self::Fetch(_) => TransferKind::Fetch,
            Self::Upload(_) => TransferKind::Upload,
        }
    }

    pub fn key(&self) -> ReplicaKey {
        match self {
            Self::Fetch(fetch) => ReplicaKey::new(&fetch.file_id, &fetch.generation),
            Self::Upload(upload) => ReplicaKey::new(&upload.file_id, &upload.generation),
        }
    }

    pub fn place(&self) -> &Place {
        match self {
            Self::Fetch(fetch) => &fetch.source,
            Self::Upload(upload) => &upload.destination,
        }
    }

    fn priority(&self) -> i64 {
        match self {
            Self::Fetch(fetch) => fetch.priority,
            Self::Upload(upload) => upload.priority,
        }
    }
}

impl TransferKind {
    pub fn word(self) -> &'static str {
        match self {
            Self::Fetch => "fetch",
            Self::Upload => "upload",
        }
    }
}

impl TransferStatus {
    pub fn word(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

impl Transfer {
    fn new(request: TransferRequest, cause: Cause, bytes_total: u64) -> Self {
        Self {
            request,
            cause,
            bytes_total,
            state: TransferStatus::Queued,
            progress: Arc::default(),
            urgency: Urgency::default(),
            started: None,
            cancel: CancellationToken::new(),
            event: None,
            partial: None,
        }
    }

    fn answer(&self) -> TransferAnswer {
        TransferAnswer { state: self.state, event: self.event.clone() }
    }

    fn is_over(&self) -> bool {
        matches!(self.state, TransferStatus::Done | TransferStatus::Failed | TransferStatus::Cancelled)
    }

    fn telemetry(&self, transfer_id: &str) -> TransferState {
        let key = self.request.key();
        TransferState {
            transfer_id: transfer_id.to_string(),
            kind: self.request.kind(),
            state: self.state,
            bytes_done: self.progress.load(Ordering::Relaxed),
            bytes_total: self.bytes_total,
            file_id: key.file_id,
            generation: key.generation,
            origin_id: self.request.place().origin_id.clone(),
            started_s_ago: self.started.map(|started| started.elapsed().as_secs_f64()),
            event: self.event.clone(),
        }
    }
}

impl Transfers {
    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(|_| crate::node::give_up("the transfers"))
    }

    pub fn list(&self) -> Vec<TransferState> {
        let mut states: Vec<TransferState> = self.desk().table.iter().map(|(id, transfer)| transfer.telemetry(id)).collect();
        states.sort_by(|a, b| a.transfer_id.cmp(&b.transfer_id));
        states
    }

    pub fn forget_through(&self, seq: u64) {
        self.desk().table.retain(|_, transfer| transfer.event.as_ref().is_none_or(|event| event.seq > seq));
    }

    pub fn is_idle(&self) -> bool {
        self.desk().table.values().all(Transfer::is_over)
    }

    /// By kind and state, those that nobody has acknowledged yet included.
    pub fn census(&self) -> BTreeMap<(&'static str, &'static str), usize> {
        let kinds = [TransferKind::Fetch, TransferKind::Upload];
        let states = ["queued", "running", "done", "failed", "cancelled"];
        let mut census: BTreeMap<_, usize> =
            kinds.iter().flat_map(|kind| states.iter().map(|state| ((kind.word(), *state), 0))).collect();
        for transfer in self.desk().table.values() {
            *census.entry((transfer.request.kind().word(), transfer.state.word())).or_default() += 1;
        }
        census
    }

    /// Id of the origin, running, waiting, limit.
    pub fn lanes(&self) -> Vec<(String, usize, usize, f64)> {
        self.desk().queue.lanes().map(|lane| (lane.origin_id.to_string(), lane.running, lane.waiting, lane.limit)).collect()
    }

    pub fn any_runs(&self) -> bool {
        self.desk().queue.running() > 0
    }

    /// Until all that run have ended.
    pub async fn join(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }
}

/// Accepts a transfer; the same id again only changes the priority.
pub fn put(node: &Arc<Node>, cause: Cause, transfer_id: &str, request: TransferRequest) -> Result<TransferAnswer, ApiError> {
    let key = request.key();
    check_id("file_id", &key.file_id)?;
    check_id("generation", &key.generation)?;
    check_relative_path(&request.place().path)?;
    let mut desk = node.transfers.desk();
    if let Some(known) = desk.table.get(transfer_id) {
        let answer = known.answer();
        known.urgency.set(request.priority() < DEMAND_BELOW);
        desk.queue.set_priority(transfer_id, request.priority());
        return Ok(answer);
    }
    node.refuse_if_draining(transfer_id)?;
    node.origin(&request.place().origin_id)?;
    let transfer = match &request {
        TransferRequest::Fetch(fetch) => accept_fetch(node, &desk, &cause, transfer_id, fetch)?,
        TransferRequest::Upload(upload) => accept_upload(node, &cause, transfer_id, upload)?,
    };
    transfer.urgency.set(request.priority() < DEMAND_BELOW);
    let answer = transfer.answer();
    if transfer.state == TransferStatus::Queued {
        desk.queue.push(&request.place().origin_id, transfer_id, request.priority());
        if request.kind() == TransferKind::Fetch {
            desk.fetching.insert(key);
        }
    }
    desk.table.insert(transfer_id.to_string(), transfer);
    drop(desk);
    run::start_waiting(node);
    Ok(answer)
}

fn accept_fetch(node: &Node, desk: &Desk, cause: &Cause, transfer_id: &str, fetch: &FetchRequest) -> Result<Transfer, ApiError> {
    let request = TransferRequest::Fetch(fetch.clone());
    let key = request.key();
    let mut transfer = Transfer::new(request, cause.clone(), fetch.expected.size_bytes);
    let here = {
        let books = node.books();
        books.index.readable(&key).cloned().ok()
    };
    if let Some(replica) = here {
        let done = run::fact_done(transfer_id, TransferKind::Fetch, &replica, 0, 0.0, None);
        transfer.event = Some(node.emit(cause, done));
        transfer.state = TransferStatus::Done;
        return Ok(transfer);
    }
    let taken = node.books().index.replica(&key).is_some() || node.books().index.is_leaving(&key);
    if taken || desk.fetching.contains(&key) {
        let message = format!("replica {key} is being made, deleted or quarantined on this node; fetch it under a new generation");
        return Err(ApiError::refused("replica_busy", &key.file_id, message));
    }
    let origin = node.origin(&fetch.source.origin_id)?;
    let source = fetch.expected.token.clone().map(|token| Source { origin: origin.identity, path: fetch.source.path.clone(), token });
    let holder = Holder::Transfer(transfer_id.to_string());
    let size_bytes = fetch.expected.size_bytes;
    // Claimed before the space is asked for: an earlier try's bytes must not be given up for going on with them.
    transfer.partial = node.reserve_with(holder, &key.file_id, size_bytes, |index| {
        source.and_then(|source| claim(index, &fetch.file_id, &source, size_bytes))
    })?;
    Ok(transfer)
}

fn claim(index: &mut Index, file_id: &str, source: &Source, size_bytes: u64) -> Option<Partial> {
    let key = index.idle_partial(file_id, source, size_bytes)?.key.clone();
    index.claim_partial(&key)
}

fn accept_upload(node: &Node, cause: &Cause, transfer_id: &str, upload: &UploadRequest) -> Result<Transfer, ApiError> {
    let request = TransferRequest::Upload(upload.clone());
    let mut books = node.books();
    books.index.lease(&lease_name(transfer_id), &[request.key()])?;
    let size_bytes = books.index.readable(&request.key())?.size_bytes;
    Ok(Transfer::new(request, cause.clone(), size_bytes))
}

/// Not in the alphabet of attempt ids, so it can never be one.
fn lease_name(transfer_id: &str) -> String {
    format!("transfer:{transfer_id}")
}

/// The node ends: what has not begun is for another node, or for this one when it is back.
pub fn hand_back_waiting(node: &Arc<Node>) {
    let waiting = node.transfers.desk().queue.clear();
    for transfer_id in waiting {
        let message = format!("the node {} ends before it began with the transfer {transfer_id}; ask for it again", node.node_id);
        let error = ApiError::transient("draining", &transfer_id, message);
        run::end_unstarted(node, &transfer_id, Some(error));
    }
}

pub fn cancel(node: &Arc<Node>, transfer_id: &str) -> Result<TransferAnswer, ApiError> {
    let mut desk = node.transfers.desk();
    let Some(transfer) = desk.table.get_mut(transfer_id) else {
        return Err(bad_request(
            transfer_id,
            format!("there is no transfer {transfer_id} on this node; it ended and was acknowledged, or was never asked for"),
        ));
    };
    transfer.cancel.cancel();
    let mut answer = transfer.answer();
    if desk.queue.remove(transfer_id) {
        drop(desk);
        run::end_unstarted(node, transfer_id, None);
        let desk = node.transfers.desk();
        if let Some(transfer) = desk.table.get(transfer_id) {
            answer = transfer.answer();
        }
    }
    Ok(answer)
}
