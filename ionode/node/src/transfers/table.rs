//! All transfers that are queued, run or have ended without an acknowledgement. Knows their requests, not how they are carried out.
//!
//! The one rule: the table is locked for bookkeeping only, never over an await.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bytes::Bytes;
use stager_core::error::{ApiError, Code};
use stager_core::queue::Queue;
use stager_core::record::Partial;
use stager_core::replica::{Replica, ReplicaKey};
use stager_origins::Priority;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::group_commit::GroupCommit;
use super::pushes::Pushes;
use super::request;
use crate::claims::PackedKeys;
use crate::context::{give_up, Cause, NodeContext};
use crate::fingerprints::Fingerprints;
use crate::peers::Peers;
use crate::wire::{Event, TransferAnswer, TransferKind, TransferRequest, TransferState, TransferStatus};

pub struct Transfers {
    pub context: Arc<NodeContext>,
    pub fingerprints: Arc<Fingerprints>,
    pub peers: Arc<Peers>,
    /// What packs put meanwhile: no transfer makes it too.
    pub packed: PackedKeys,
    pub(super) tracker: TaskTracker,
    pub(super) pushes: Pushes,
    table: Mutex<TransferTable>,
    group_commit: Arc<GroupCommit>,
    /// What the queue's times count from.
    pub(super) begun: Instant,
}

#[derive(Default)]
pub(super) struct TransferTable {
    pub queue: Queue,
    pub by_id: HashMap<String, Transfer>,
    /// What is to be made here by transfers that are not over, and by how many of them.
    pub incoming: HashMap<ReplicaKey, usize>,
    /// By lane, small copies in the order they came, for as long as they may wait in the queue: what starts takes them along.
    pub small: HashMap<String, Vec<String>>,
}

impl TransferTable {
    pub fn comes(&mut self, request: &TransferRequest) {
        if request.kind() != TransferKind::Upload {
            *self.incoming.entry(request.key()).or_default() += 1;
        }
    }

    pub fn take_out(&mut self, transfer_id: &str) -> Option<Transfer> {
        let transfer = self.by_id.remove(transfer_id)?;
        self.came(&transfer.request);
        Some(transfer)
    }

    pub fn came(&mut self, request: &TransferRequest) {
        if request.kind() == TransferKind::Upload {
            return;
        }
        if let Entry::Occupied(mut known) = self.incoming.entry(request.key()) {
            *known.get_mut() -= 1;
            if *known.get() == 0 {
                known.remove();
            }
        }
    }
}

pub(super) struct Transfer {
    pub request: TransferRequest,
    pub cause: Cause,
    pub state: TransferStatus,
    pub bytes_total: u64,
    pub progress: Arc<AtomicU64>,
    pub priority: Priority,
    pub asked: Instant,
    pub started: Option<Instant>,
    pub cancel: CancellationToken,
    pub event: Option<Event>,
    /// A client waits to hear how it ended; others may have acknowledged its event before.
    pub told_by: Option<Instant>,
    /// Claimed when the transfer was accepted, taken by the fetch when it starts.
    pub partial: Option<Partial>,
    /// Not in the queue yet: the chain behind it, or who asked for it, is not ready.
    pub held: bool,
}

impl TransferKind {
    pub fn word(self) -> &'static str {
        match self {
            Self::Fetch => "fetch",
            Self::Copy => "copy",
            Self::Push => "push",
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
    pub fn new(request: TransferRequest, cause: Cause, bytes_total: u64) -> Self {
        Self {
            request,
            cause,
            bytes_total,
            state: TransferStatus::Queued,
            progress: Arc::default(),
            priority: Priority::default(),
            asked: Instant::now(),
            started: None,
            cancel: CancellationToken::new(),
            event: None,
            told_by: None,
            partial: None,
            held: false,
        }
    }

    /// An ended one has told who asked.
    pub fn tell(&mut self) -> TransferAnswer {
        if self.is_over() {
            self.told_by = None;
        }
        self.answer()
    }

    pub fn answer(&self) -> TransferAnswer {
        TransferAnswer { state: self.state, event: self.event.clone() }
    }

    pub fn is_over(&self) -> bool {
        matches!(self.state, TransferStatus::Done | TransferStatus::Failed | TransferStatus::Cancelled)
    }

    pub fn telemetry(&self, transfer_id: &str) -> TransferState {
        let key = self.request.key();
        TransferState {
            transfer_id: transfer_id.to_string(),
            kind: self.request.kind(),
            state: self.state,
            bytes_done: self.progress.load(Ordering::Relaxed),
            bytes_total: self.bytes_total,
            file_id: key.file_id,
            generation: key.generation,
            origin_id: self.request.other_side().to_string(),
            started_s_ago: self.started.map(|started| started.elapsed().as_secs_f64()),
            event: self.event.clone(),
        }
    }
}

impl Transfers {
    pub fn new(context: Arc<NodeContext>, fingerprints: Arc<Fingerprints>, peers: Arc<Peers>) -> Self {
        let tracker = TaskTracker::new();
        Self {
            fingerprints,
            peers,
            packed: PackedKeys::default(),
            group_commit: Arc::new(GroupCommit::new(context.clone(), tracker.clone())),
            context,
            tracker,
            pushes: Pushes::default(),
            table: Mutex::default(),
            begun: Instant::now(),
        }
    }

    pub(super) fn table(&self) -> MutexGuard<'_, TransferTable> {
        self.table.lock().unwrap_or_else(|_| give_up("the transfers"))
    }

    pub fn list(&self) -> Vec<TransferState> {
        let mut states: Vec<TransferState> = self.table().by_id.iter().map(|(id, transfer)| transfer.telemetry(id)).collect();
        states.sort_by(|a, b| a.transfer_id.cmp(&b.transfer_id));
        states
    }

    pub fn forget_through(&self, seq: u64) {
        let now = Instant::now();
        let kept = |transfer: &Transfer| transfer.event.as_ref().is_none_or(|event| event.seq > seq) || transfer.told_by > Some(now);
        self.table().by_id.retain(|_, transfer| kept(transfer));
    }

    pub fn is_idle(&self) -> bool {
        self.table().by_id.values().all(Transfer::is_over)
    }

    /// The replicas that transfers are to make here and have not.
    pub fn being_made(&self) -> HashSet<ReplicaKey> {
        let table = self.table();
        let makes = |transfer: &&Transfer| !transfer.is_over() && transfer.request.kind() != TransferKind::Upload;
        table.by_id.values().filter(makes).map(|transfer| transfer.request.key()).collect()
    }

    /// Work behind a transfer that has ended: to be waited for at the node's end.
    pub fn follow(&self, work: impl std::future::Future<Output = ()> + Send + 'static) {
        self.tracker.spawn(work);
    }

    /// By kind and state, those that nobody has acknowledged yet included.
    pub fn census(&self) -> BTreeMap<(&'static str, &'static str), usize> {
        let kinds = [TransferKind::Fetch, TransferKind::Copy, TransferKind::Push, TransferKind::Upload];
        let states = ["queued", "running", "done", "failed", "cancelled"];
        let mut census: BTreeMap<_, usize> = kinds.iter().flat_map(|kind| states.iter().map(|state| ((kind.word(), *state), 0))).collect();
        for transfer in self.table().by_id.values() {
            *census.entry((transfer.request.kind().word(), transfer.state.word())).or_default() += 1;
        }
        census
    }

    /// Id of the origin, running, waiting, limit.
    pub fn lanes(&self) -> Vec<(String, usize, usize, f64)> {
        self.table()
            .queue
            .lanes()
            .map(|lane| (request::origin_of(lane.origin_id).to_string(), lane.running, lane.waiting, lane.limit))
            .collect()
    }

    /// Into the log, with others that come about now.
    pub(super) async fn commit_small(&self, replica: &Replica, content: Bytes) -> Result<(), ApiError> {
        let running = self.table().queue.running();
        self.group_commit.commit(replica, content, running).await
    }

    pub fn any_runs(&self) -> bool {
        self.table().queue.running() > 0
    }

    /// Until all that run have ended.
    pub async fn join(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }

    pub fn request(&self, transfer_id: &str) -> Option<TransferRequest> {
        self.table().by_id.get(transfer_id).map(|transfer| transfer.request.clone())
    }

    /// How it stands, once it has ended or after `wait`.
    pub async fn wait(&self, transfer_id: &str, wait: Duration) -> Result<TransferAnswer, ApiError> {
        let until = Instant::now() + wait;
        loop {
            let seen = self.context.newest_event();
            let answer = self.table().by_id.get_mut(transfer_id).map(Transfer::tell).ok_or_else(|| {
                let message =
                    format!("there is no transfer {transfer_id} on this node; it ended and was acknowledged, or was never asked for");
                ApiError::new(Code::NotFound, transfer_id, message)
            })?;
            let rest = until.saturating_duration_since(Instant::now());
            if answer.state.is_over() || rest.is_zero() || self.context.shutdown.is_cancelled() {
                return Ok(answer);
            }
            self.context.event_after(seen, rest).await;
        }
    }
}
