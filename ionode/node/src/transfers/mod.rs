//! Transfers: what is queued, runs or has ended, until its end is acknowledged. Knows origins by their port only.
//!
//! The one rule: every transfer that was accepted ends in exactly one event, and gives back what it held.

pub mod arrival;
pub mod chain;
mod copy;
mod copy_pack;
mod copy_tree;
mod feed;
mod fetch;
mod group_commit;
mod held;
mod incoming_data;
mod partial;
pub mod push;
mod request;
pub mod run;
mod small;
mod upload;

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use stager_core::error::{ApiError, Code};
use stager_core::ids::{check_id, check_relative_path};
use stager_core::index::Index;
use stager_core::learn::START;
use stager_core::queue::{Queue, DEMAND_BELOW};
use stager_core::record::{Partial, Source};
use stager_core::replica::ReplicaKey;
use stager_core::space::Holder;
use stager_origins::Priority;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use chain::Chain;

use crate::failure::bad_request;
use crate::node::{Cause, Node};
use crate::wire::{
    AskedAnswer, AskedAnswers, AskedTransfer, Event, Fact, TransferAnswer, TransferKind, TransferRequest, TransferState, TransferStatus,
    TransfersRequest, UploadRequest,
};

pub struct Transfers {
    table: Mutex<TransferTable>,
    tracker: TaskTracker,
    pushes: push::Pushes,
    group_commit: group_commit::GroupCommit,
    /// What the queue's times count from.
    begun: Instant,
}

impl Default for Transfers {
    fn default() -> Self {
        let (pushes, group_commit) = (push::Pushes::default(), group_commit::GroupCommit::default());
        Self { table: Mutex::default(), tracker: TaskTracker::default(), pushes, group_commit, begun: Instant::now() }
    }
}

#[derive(Default)]
struct TransferTable {
    queue: Queue,
    by_id: HashMap<String, Transfer>,
    /// What is to be made here by transfers that are not over, and by how many of them.
    incoming: HashMap<ReplicaKey, usize>,
    /// By lane, small copies in the order they came, for as long as they may wait in the queue: what starts takes them along.
    small: HashMap<String, Vec<String>>,
}

impl TransferTable {
    fn comes(&mut self, request: &TransferRequest) {
        if request.kind() != TransferKind::Upload {
            *self.incoming.entry(request.key()).or_default() += 1;
        }
    }

    fn take_out(&mut self, transfer_id: &str) -> Option<Transfer> {
        let transfer = self.by_id.remove(transfer_id)?;
        self.came(&transfer.request);
        Some(transfer)
    }

    fn came(&mut self, request: &TransferRequest) {
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

struct Transfer {
    request: TransferRequest,
    cause: Cause,
    state: TransferStatus,
    bytes_total: u64,
    progress: Arc<AtomicU64>,
    priority: Priority,
    asked: Instant,
    started: Option<Instant>,
    cancel: CancellationToken,
    event: Option<Event>,
    /// A client waits to hear how it ended; others may have acknowledged its event before.
    told_by: Option<Instant>,
    /// Claimed when the transfer was accepted, taken by the fetch when it starts.
    partial: Option<Partial>,
    /// Not in the queue yet: the chain behind it, or who asked for it, is not ready.
    held: bool,
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
    fn new(request: TransferRequest, cause: Cause, bytes_total: u64) -> Self {
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
    fn tell(&mut self) -> TransferAnswer {
        if self.is_over() {
            self.told_by = None;
        }
        self.answer()
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
            origin_id: self.request.other_side().to_string(),
            started_s_ago: self.started.map(|started| started.elapsed().as_secs_f64()),
            event: self.event.clone(),
        }
    }
}

impl Transfers {
    fn table(&self) -> MutexGuard<'_, TransferTable> {
        self.table.lock().unwrap_or_else(|_| crate::node::give_up("the transfers"))
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

    pub fn any_runs(&self) -> bool {
        self.table().queue.running() > 0
    }

    /// Until all that run have ended.
    pub async fn join(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }
}

/// Accepts a transfer; the same id again only changes the priority, and lets go of one that is held.
pub async fn put(node: &Arc<Node>, cause: Cause, transfer_id: &str, request: TransferRequest) -> Result<TransferAnswer, ApiError> {
    let hold = matches!(&request, TransferRequest::Copy(copy) if copy.hold);
    let (answer, fresh) = accept(node, &cause, transfer_id, &request)?;
    if let (true, TransferRequest::Copy(copy)) = (fresh, &request) {
        let mut chain = Chain::for_maker(node, &cause, transfer_id, &request.key(), copy.replicas.as_ref());
        if let Err(error) = chain.hold(&copy.expected).await {
            run::take_back(node, transfer_id);
            return Err(error);
        }
    }
    match hold {
        true if fresh => held::watch(node, transfer_id),
        true => {}
        false => let_go(node, transfer_id),
    }
    Ok(answer)
}

/// Each as by `put`, and refused for itself. They come into the queue in this order, and none waits for the chain of another.
pub async fn put_all(node: &Arc<Node>, cause: &Cause, asked: TransfersRequest) -> AskedAnswers {
    let one = |asked: AskedTransfer| async move {
        check_id("transfer id", &asked.transfer_id)?;
        asked.command_id.as_deref().map_or(Ok(()), |command_id| check_id("command id", command_id))?;
        let cause = Cause { command_id: asked.command_id, ..cause.clone() };
        put(node, cause, &asked.transfer_id, asked.request).await
    };
    let answers = futures::future::join_all(asked.transfers.into_iter().map(one)).await;
    AskedAnswers {
        answers: answers
            .into_iter()
            .map(|answer: Result<TransferAnswer, ApiError>| match answer {
                Ok(answer) => AskedAnswer::Accepted(Box::new(answer)),
                Err(error) => AskedAnswer::Refused { error },
            })
            .collect(),
    }
}

/// It may start when its turn comes.
fn let_go(node: &Arc<Node>, transfer_id: &str) {
    let mut table = node.transfers.table();
    let Some(transfer) = table.by_id.get_mut(transfer_id).filter(|transfer| transfer.held) else { return };
    transfer.held = false;
    let (lane, priority) = (transfer.request.lane(transfer.bytes_total), transfer.request.priority());
    let small = copy_pack::fits(node, transfer);
    if small {
        table.small.entry(lane.clone()).or_default().push(transfer_id.to_string());
    }
    let at_once = match request::is_small(&lane) {
        true => node.origin(request::origin_of(&lane)).map_or(START, |open| open.origin.small_uploads_at_once()),
        false => START,
    };
    table.queue.push(&lane, transfer_id, priority, at_once);
    drop(table);
    run::start_waiting(node);
}

/// `true`: it is new here, and held.
fn accept(node: &Arc<Node>, cause: &Cause, transfer_id: &str, request: &TransferRequest) -> Result<(TransferAnswer, bool), ApiError> {
    let key = request.key();
    check_id("file_id", &key.file_id)?;
    check_id("generation", &key.generation)?;
    request.place().map_or(Ok(()), |place| check_relative_path(&place.path))?;
    let mut table = node.transfers.table();
    if let Some(known) = table.by_id.get(transfer_id) {
        let answer = known.answer();
        known.priority.set(request.priority() < DEMAND_BELOW);
        table.queue.set_priority(transfer_id, request.priority());
        return Ok((answer, false));
    }
    node.refuse_if_draining(transfer_id)?;
    check_nodes(node, request)?;
    request.place().map_or(Ok(()), |place| node.origin(&place.origin_id).map(drop))?;
    let mut transfer = match request {
        TransferRequest::Fetch(fetch) => {
            let origin = node.origin(&fetch.source.origin_id)?.identity;
            let source = fetch.expected.token.as_ref().map(|token| fetch::source(fetch, &origin, token));
            accept_incoming(node, &table, cause, transfer_id, request, fetch::held_bytes(fetch)?, source)?
        }
        TransferRequest::Copy(copy) => {
            accept_incoming(node, &table, cause, transfer_id, request, copy.expected.size_bytes, Some(copy::place(copy)))?
        }
        TransferRequest::Push(push) => {
            accept_incoming(node, &table, cause, transfer_id, request, push.expected.size_bytes, Some(push::place(push)))?
        }
        TransferRequest::Upload(upload) => accept_upload(node, cause, transfer_id, upload)?,
    };
    transfer.priority.set(request.priority() < DEMAND_BELOW);
    transfer.held = transfer.state == TransferStatus::Queued;
    let (answer, fresh) = (transfer.answer(), transfer.held);
    if fresh {
        table.comes(request);
    }
    table.by_id.insert(transfer_id.to_string(), transfer);
    Ok((answer, fresh))
}

fn check_nodes(node: &Node, request: &TransferRequest) -> Result<(), ApiError> {
    if let TransferRequest::Copy(copy) = request {
        if copy.sources.is_empty() || (copy.expected.blake3.is_none() && copy.expected.identity.is_none()) {
            return Err(bad_request(&copy.file_id, "a copy names its sources, and the BLAKE3 or the identity of the content; name them"));
        }
        copy.sources.iter().try_for_each(|source| check_id("generation", &source.generation))?;
        copy.held_for.iter().try_for_each(|transfer_id| check_id("transfer id", transfer_id))?;
        copy.sources.iter().try_for_each(|source| node.peers.get(&source.node_id).map(drop))?;
    }
    chain::check(node, request.replicas().map_or(&[], |replicas| replicas.chain.as_slice()))
}

fn accept_incoming(
    node: &Node,
    table: &TransferTable,
    cause: &Cause,
    transfer_id: &str,
    request: &TransferRequest,
    size_bytes: u64,
    source: Option<Source>,
) -> Result<Transfer, ApiError> {
    let key = request.key();
    let mut transfer = Transfer::new(request.clone(), cause.clone(), size_bytes);
    let wanted = match request {
        TransferRequest::Fetch(fetch) => fetch::layout(fetch)?,
        _ => None,
    };
    let here = node.accounting().index.readable(&key).cloned().ok().filter(|replica| replica.stripes == wanted);
    if let Some(replica) = here {
        if request.replicas().is_some_and(|replicas| !replicas.chain.is_empty()) || request.kind() != TransferKind::Fetch {
            return Ok(transfer);
        }
        let done = run::fact_done(transfer_id, request.kind(), &replica, 0, 0.0, None);
        transfer.event = Some(node.emit(cause, Fact::TransferDone(done)));
        transfer.state = TransferStatus::Done;
        return Ok(transfer);
    }
    let taken = node.accounting().index.replica(&key).is_some() || node.accounting().index.is_leaving(&key);
    if taken || table.incoming.contains_key(&key) || node.packs.is_making(&key) || node.in_flight.get(&key).is_some() {
        let message = format!("replica {key} is being made, deleted or quarantined on this node; fetch it under a new generation");
        return Err(ApiError::new(Code::ReplicaBusy, &key.file_id, message));
    }
    let holder = Holder::Transfer(transfer_id.to_string());
    // Claimed before the space is asked for: an earlier try's bytes must not be given up for going on with them.
    transfer.partial = node.reserve_with(holder, &key.file_id, size_bytes, |index| {
        source.and_then(|source| claim(index, &key.file_id, &source, size_bytes))
    })?;
    Ok(transfer)
}

fn claim(index: &mut Index, file_id: &str, source: &Source, size_bytes: u64) -> Option<Partial> {
    let key = index.idle_partial(file_id, source, size_bytes)?.key.clone();
    index.claim_partial(&key)
}

fn accept_upload(node: &Node, cause: &Cause, transfer_id: &str, upload: &UploadRequest) -> Result<Transfer, ApiError> {
    let request = TransferRequest::Upload(upload.clone());
    let mut accounting = node.accounting();
    accounting.index.lease(&lease_name(transfer_id), &[request.key()])?;
    let size_bytes = accounting.index.readable(&request.key())?.size_bytes;
    Ok(Transfer::new(request, cause.clone(), size_bytes))
}

/// Not in the alphabet of attempt ids, so it can never be one.
fn lease_name(transfer_id: &str) -> String {
    format!("transfer:{transfer_id}")
}

/// How it stands, once it has ended or after `wait`.
pub async fn wait(node: &Node, transfer_id: &str, wait: Duration) -> Result<TransferAnswer, ApiError> {
    let until = Instant::now() + wait;
    loop {
        let seen = node.newest_event();
        let answer = node.transfers.table().by_id.get_mut(transfer_id).map(Transfer::tell).ok_or_else(|| {
            let message = format!("there is no transfer {transfer_id} on this node; it ended and was acknowledged, or was never asked for");
            ApiError::new(Code::NotFound, transfer_id, message)
        })?;
        let rest = until.saturating_duration_since(Instant::now());
        if answer.state.is_over() || rest.is_zero() || node.shutdown.is_cancelled() {
            return Ok(answer);
        }
        node.event_after(seen, rest).await;
    }
}

/// The node ends: what has not begun is for another node, or for this one when it is back.
pub fn hand_back_waiting(node: &Arc<Node>) {
    let waiting = {
        let mut table = node.transfers.table();
        let held = table.by_id.iter_mut().filter_map(|(id, transfer)| std::mem::take(&mut transfer.held).then(|| id.clone()));
        let held: Vec<String> = held.collect();
        held.into_iter().chain(table.queue.clear()).collect::<Vec<_>>()
    };
    for transfer_id in waiting {
        let message = format!("the node {} ends before it began with the transfer {transfer_id}; ask for it again", node.node_id);
        let error = ApiError::new(Code::Draining, &transfer_id, message);
        run::end_unstarted(node, &transfer_id, Some(error));
    }
}

pub fn cancel(node: &Arc<Node>, transfer_id: &str) -> Result<TransferAnswer, ApiError> {
    let mut table = node.transfers.table();
    let Some(transfer) = table.by_id.get_mut(transfer_id) else {
        return Err(bad_request(
            transfer_id,
            format!("there is no transfer {transfer_id} on this node; it ended and was acknowledged, or was never asked for"),
        ));
    };
    transfer.cancel.cancel();
    let mut answer = transfer.answer();
    let held = std::mem::take(&mut transfer.held);
    if table.queue.remove(transfer_id) || held {
        drop(table);
        run::end_unstarted(node, transfer_id, None);
        let table = node.transfers.table();
        if let Some(transfer) = table.by_id.get(transfer_id) {
            answer = transfer.answer();
        }
    }
    Ok(answer)
}
