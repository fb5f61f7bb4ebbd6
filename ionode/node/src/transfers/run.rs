//! From queued to ended: starts what may start, watches it, tells how it ended.
//!
//! The one rule: whatever way a transfer ends, its reservation, its lease and its place in the lane are free afterwards.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use prometheus_client::metrics::counter::Counter;
use stager_core::error::{causes, ApiError, Class, Code};
use stager_core::learn::{End, Outcome};
use stager_core::record::Partial;
use stager_core::replica::Replica;
use stager_core::space::Holder;
use stager_origins::{Priority, Synced, Verified};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::chain::{judged, Chain};
use super::{copy, copy_pack, fetch, lease_name, push, upload, Transfer, TransferTable};
use crate::metrics::{self, Failure, Moved as Bytes, OfKind, TransferEnd, OTHER};
use crate::node::{Cause, Node};
use crate::wire::{Ack, Fact, Replication, TransferDone, TransferKind, TransferRequest, TransferStatus};

/// How a push ended is kept so long for who pushed, whoever acknowledges its event.
const CLIENTS_ASK_WITHIN: Duration = Duration::from_secs(60);
const STALL_CHECK: Duration = Duration::from_secs(1);

/// One transfer while it runs.
#[derive(Clone)]
pub(super) struct Job {
    pub id: String,
    pub cause: Cause,
    pub progress: Arc<AtomicU64>,
    pub priority: Priority,
    pub cancel: CancellationToken,
    pub asked: Instant,
    /// It has a place in its lane.
    in_lane: bool,
    pub(super) lane: String,
    arrived: Counter,
    sent: Counter,
}

impl Job {
    fn new(node: &Node, id: String, transfer: &Transfer, in_lane: bool) -> Self {
        let place = transfer.request.place();
        let origin = place.and_then(|place| node.origin(&place.origin_id).ok()).map_or(OTHER.to_string(), |open| open.label);
        let moved = |direction| metrics::counts().moved.get_or_create_owned(&Bytes { origin: origin.clone(), direction });
        let (cause, progress, cancel) = (transfer.cause.clone(), transfer.progress.clone(), transfer.cancel.clone());
        Self {
            id,
            cause,
            progress,
            priority: transfer.priority.clone(),
            cancel,
            asked: transfer.asked,
            in_lane,
            lane: transfer.request.lane(transfer.bytes_total),
            arrived: moved("in"),
            sent: moved("out"),
        }
    }

    /// What each line says that is written while it runs.
    pub fn span(&self, request: &TransferRequest) -> tracing::Span {
        let key = request.key();
        tracing::info_span!(
            "transfer",
            transfer_id = self.id,
            command_id = self.cause.command_id,
            epoch = self.cause.epoch,
            file_id = key.file_id,
            generation = key.generation,
            origin_id = request.other_side()
        )
    }

    /// From the origin; those of a fetch are also its progress.
    pub fn arrived(&self, bytes: u64) {
        self.arrived.inc_by(bytes);
    }

    /// A piece of an upload was taken.
    pub fn sent(&self, bytes: u64) {
        self.progress.fetch_add(bytes, Ordering::Relaxed);
        self.sent.inc_by(bytes);
    }
}

/// What a transfer that ended well has to tell.
pub(super) struct Moved {
    pub replica: Replica,
    pub bytes_moved: u64,
    pub verified: Option<Verified>,
    pub synced: Option<Synced>,
    pub chain: Chain,
}

/// A transfer that has just been taken out of the queue.
pub(super) struct Begun {
    pub job: Job,
    pub request: TransferRequest,
    pub partial: Option<Partial>,
    pub bytes_total: u64,
}

/// `in_lane`: it has a place there, to be given back when it ends.
pub(super) fn begin(node: &Node, table: &mut TransferTable, id: String, in_lane: bool) -> Begun {
    let transfer = table.by_id.get_mut(&id).expect("a queued transfer is in the table");
    transfer.state = TransferStatus::Running;
    transfer.started = Some(Instant::now());
    let job = Job::new(node, id, transfer, in_lane);
    Begun { job, request: transfer.request.clone(), partial: transfer.partial.take(), bytes_total: transfer.bytes_total }
}

pub fn start_waiting(node: &Arc<Node>) {
    let mut table = node.transfers.table();
    for id in table.queue.start() {
        let fits = table.by_id.get(&id).is_some_and(|transfer| copy_pack::fits(node, transfer));
        let first = begin(node, &mut table, id, true);
        let along = if fits { copy_pack::along(&mut table, node, &first) } else { Vec::new() };
        let span = first.job.span(&first.request);
        match along.is_empty() {
            true => node.transfers.tracker.spawn(run_one(node.clone(), first).instrument(span)),
            false => node.transfers.tracker.spawn(copy_pack::run(node.clone(), first, along)),
        };
    }
}

async fn run_one(node: Arc<Node>, begun: Begun) {
    let Begun { job, request, partial, .. } = begun;
    let started = Instant::now();
    let outcome = match &request {
        TransferRequest::Fetch(request) => fetch::fetch(&node, &job, request, partial).await,
        TransferRequest::Copy(request) => copy::copy(&node, &job, request, partial).await,
        TransferRequest::Push(request) => push::push(&node, &job, request, partial).await,
        TransferRequest::Upload(request) => upload::upload(&node, &job, request).await,
    };
    if matches!(&outcome, Err(error) if error.class == Class::Corrupt && request.kind() == TransferKind::Upload) {
        look_at_source(&node, &job, &request).await;
    }
    end(&node, &job, &request, outcome, started).await;
}

/// An upload that found wrong content: was it ours?
async fn look_at_source(node: &Arc<Node>, job: &Job, request: &TransferRequest) {
    if let Err(error) = crate::replicas::verify(node, &job.cause, &request.key()).await {
        tracing::warn!(%error, "the replica of a failed upload could not be verified");
    }
}

/// The place in the lane is free before the chain is waited for: peers may wait for what is queued behind this.
pub(super) async fn end(node: &Arc<Node>, job: &Job, request: &TransferRequest, outcome: Result<Moved, ApiError>, started: Instant) {
    give_back(node, &job.id, request);
    let load = match &outcome {
        Ok(_) => Outcome::Success,
        Err(error) if error.class == Class::Transient && !job.cancel.is_cancelled() => Outcome::Overload,
        Err(_) => Outcome::Neutral,
    };
    if job.in_lane {
        let bytes = outcome.as_ref().map_or(0, |moved| moved.bytes_moved);
        let done = End { outcome: load, bytes, at: node.transfers.begun.elapsed() };
        node.transfers.table().queue.finished(&job.lane, done);
    }
    start_waiting(node);
    if outcome.is_err() {
        call_off_chain(node, &job.id, &job.cause, request);
    }
    let (outcome, replication) = match outcome {
        Ok(moved) if moved.chain.ack() == Some(Ack::Sync) => answered_by_all(node, job, moved).await,
        outcome => (outcome, None),
    };
    let (state, fact) = match &outcome {
        Ok(moved) => {
            let took_s = started.elapsed().as_secs_f64();
            let done = fact_done(&job.id, request.kind(), &moved.replica, moved.bytes_moved, took_s, moved.verified);
            (TransferStatus::Done, Fact::TransferDone(TransferDone { replication, synced: moved.synced, ..done }))
        }
        Err(_) if job.cancel.is_cancelled() && replication.is_none() => {
            (TransferStatus::Cancelled, Fact::TransferCancelled { transfer_id: job.id.clone() })
        }
        Err(error) => {
            tracing::warn!(code = error.code.as_str(), error = %error, causes = causes(error), "a transfer failed");
            let (transfer_id, error) = (job.id.clone(), error.clone());
            (TransferStatus::Failed, Fact::TransferFailed { transfer_id, transfer_kind: request.kind(), error, replication })
        }
    };
    metrics::counts().transfer_duration.get_or_create(&OfKind { kind: request.kind().word() }).observe(started.elapsed().as_secs_f64());
    settle(node, &job.id, &job.cause, state, fact);
    if let Ok(Moved { replica, chain, .. }) = outcome {
        if chain.ack() == Some(Ack::Async) {
            node.transfers.follow(tell_end(node.clone(), job.cause.clone(), replica, chain));
        }
    }
}

/// With `sync`: done when every node of the chain holds it, failed with the names of those that do when one does not.
async fn answered_by_all(node: &Arc<Node>, job: &Job, moved: Moved) -> (Result<Moved, ApiError>, Option<Replication>) {
    let key = moved.replica.key();
    let stopped = |error: ApiError| (Err(error), Some(Replication { held_by: vec![node.node_id.clone()], missing: Vec::new() }));
    tokio::select! {
        replication = moved.chain.outcome(&moved.replica) => (judged(&key, &replication).map(|()| moved), Some(replication)),
        () = job.cancel.cancelled() => {
            let message = format!("the transfer {} was cancelled while other nodes received {key}; this node holds it", job.id);
            stopped(ApiError::new(Code::Cancelled, &key.file_id, message))
        }
        () = node.shutdown.cancelled() => {
            let message = format!("the node ended while other nodes received {key}; it holds it, ask again to go on with them");
            stopped(ApiError::new(Code::Draining, &key.file_id, message))
        }
    }
}

/// The chain's end as an event: of an `async` chain.
pub async fn tell_end(node: Arc<Node>, cause: Cause, replica: Replica, chain: Chain) {
    let replication = tokio::select! {
        replication = chain.outcome(&replica) => replication,
        () = node.shutdown.cancelled() => return,
    };
    node.emit(&cause, Fact::Replicated { file_id: replica.file_id, generation: replica.generation, replication });
}

/// A transfer cancelled while it waited, or failed.
pub fn end_unstarted(node: &Arc<Node>, transfer_id: &str, error: Option<ApiError>) {
    let taken = {
        node.transfers
            .table()
            .by_id
            .get_mut(transfer_id)
            .map(|transfer| (transfer.request.clone(), transfer.cause.clone(), transfer.partial.take()))
    };
    let Some((request, cause, partial)) = taken else { return };
    if let Some(partial) = partial {
        node.accounting().index.put_partial(partial, false);
    }
    give_back(node, transfer_id, &request);
    call_off_chain(node, transfer_id, &cause, &request);
    let transfer_id = transfer_id.to_string();
    let (state, fact) = match error {
        Some(error) => {
            let transfer_kind = request.kind();
            (TransferStatus::Failed, Fact::TransferFailed { transfer_id: transfer_id.clone(), transfer_kind, error, replication: None })
        }
        None => (TransferStatus::Cancelled, Fact::TransferCancelled { transfer_id: transfer_id.clone() }),
    };
    settle(node, &transfer_id, &cause, state, fact);
}

/// One whose chain refused it: it was never accepted.
pub fn take_back(node: &Arc<Node>, transfer_id: &str) {
    let Some(transfer) = node.transfers.table().take_out(transfer_id) else { return };
    if let Some(partial) = transfer.partial {
        node.accounting().index.put_partial(partial, false);
    }
    give_back(node, transfer_id, &transfer.request);
}

fn call_off_chain(node: &Arc<Node>, transfer_id: &str, cause: &Cause, request: &TransferRequest) {
    Chain::for_maker(node, cause, transfer_id, &request.key(), request.replicas()).call_off();
}

fn give_back(node: &Node, transfer_id: &str, request: &TransferRequest) {
    let mut accounting = node.accounting();
    match request.kind() {
        TransferKind::Fetch | TransferKind::Copy | TransferKind::Push => {
            accounting.index.space.release(&Holder::Transfer(transfer_id.to_string()));
        }
        TransferKind::Upload => accounting.index.end_lease(&lease_name(transfer_id)),
    }
}

fn settle(node: &Node, transfer_id: &str, cause: &Cause, state: TransferStatus, fact: Fact) {
    // The table is held over the event, so that an acknowledgement never overtakes the result it is for.
    let mut table = node.transfers.table();
    count_end(state, &fact, table.by_id.get(transfer_id));
    let event = node.emit(cause, fact);
    let Some(transfer) = table.by_id.get_mut(transfer_id) else { return };
    transfer.state = state;
    transfer.event = Some(event);
    transfer.told_by = (transfer.request.kind() == TransferKind::Push).then(|| Instant::now() + CLIENTS_ASK_WITHIN);
    let request = transfer.request.clone();
    table.came(&request);
}

fn count_end(state: TransferStatus, fact: &Fact, transfer: Option<&Transfer>) {
    let Some(kind) = transfer.map(|transfer| transfer.request.kind().word()) else { return };
    let counts = metrics::counts();
    counts.transfers_ended.get_or_create(&TransferEnd { kind, outcome: state.word() }).inc();
    if let Fact::TransferFailed { error, .. } = fact {
        counts.transfers_failed.get_or_create(&Failure { kind, code: error.code.to_string() }).inc();
    }
}

pub fn fact_done(
    transfer_id: &str,
    kind: TransferKind,
    replica: &Replica,
    bytes_moved: u64,
    duration_s: f64,
    verified: Option<Verified>,
) -> TransferDone {
    TransferDone {
        transfer_id: transfer_id.to_string(),
        file_id: replica.file_id.clone(),
        generation: replica.generation.clone(),
        transfer_kind: kind,
        size_bytes: replica.size_bytes,
        blake3: replica.blake3.clone(),
        crc64nvme: replica.crc64nvme.clone(),
        sha256: replica.sha256.clone(),
        token: replica.token.clone(),
        bytes_moved,
        duration_s,
        verified,
        synced: None,
        replication: None,
    }
}

/// Runs work of an origin until it is done, cancelled, the node ends, or nothing has moved for `stall`.
pub(super) async fn watched<T>(
    node: &Node,
    job: &Job,
    subject: &str,
    stall: Duration,
    work: impl Future<Output = Result<T, ApiError>>,
) -> Result<T, ApiError> {
    tokio::select! {
        outcome = work => outcome,
        () = job.cancel.cancelled() => {
            Err(ApiError::new(Code::Cancelled, subject, format!("the transfer {} of {subject} was cancelled", job.id)))
        }
        () = node.shutdown.cancelled() => {
            let message = format!("the node ended while {subject} was transferred; it goes on where it stopped when asked again");
            Err(ApiError::new(Code::Draining, subject, message))
        }
        () = stalled(&job.progress, stall) => {
            let waited_s = stall.as_secs();
            let message = format!("no byte of {subject} moved for {waited_s} s; look at the origin and its network, a new try resumes");
            Err(ApiError::new(Code::Timeout, subject, message))
        }
    }
}

/// Returns when the count has not changed for so long.
pub async fn stalled(progress: &AtomicU64, stall: Duration) {
    let (mut seen, mut since) = (progress.load(Ordering::Relaxed), Instant::now());
    let mut ticks = tokio::time::interval(STALL_CHECK.min(stall));
    loop {
        ticks.tick().await;
        let now = progress.load(Ordering::Relaxed);
        if now != seen {
            (seen, since) = (now, Instant::now());
        }
        if since.elapsed() >= stall {
            return;
        }
    }
}
