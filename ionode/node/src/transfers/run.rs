//! From queued to ended: starts what may start, watches it, tells how it ended.
//!
//! The one rule: whatever way a transfer ends, its reservation, its lease and its place in the lane are free afterwards.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use prometheus_client::metrics::counter::Counter;
use stager_core::error::{ApiError, Class};
use stager_core::learn::{End, Outcome};
use stager_core::replica::Replica;
use stager_core::space::Holder;
use stager_origins::{Urgency, Verified};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::{fetch, lease_name, upload, Transfer};
use crate::metrics::{self, Failure, Moved as Bytes, OfKind, TransferEnd, OTHER};
use crate::node::{Cause, Node};
use crate::wire::{Fact, TransferDone, TransferKind, TransferRequest, TransferStatus};

const STALL_LOOK: Duration = Duration::from_secs(1);

/// One transfer while it runs.
#[derive(Clone)]
pub(super) struct Job {
    pub id: String,
    pub cause: Cause,
    pub progress: Arc<AtomicU64>,
    pub urgency: Urgency,
    pub cancel: CancellationToken,
    arrived: Counter,
    sent: Counter,
}

impl Job {
    fn new(node: &Node, id: String, transfer: &Transfer) -> Self {
        let origin = node.origin(&transfer.request.place().origin_id).map_or(OTHER.to_string(), |open| open.label);
        let moved = |direction| metrics::counts().moved.get_or_create_owned(&Bytes { origin: origin.clone(), direction });
        let (cause, progress, cancel) = (transfer.cause.clone(), transfer.progress.clone(), transfer.cancel.clone());
        Self { id, cause, progress, urgency: transfer.urgency.clone(), cancel, arrived: moved("in"), sent: moved("out") }
    }

    /// What each line says that is written while it runs.
    fn span(&self, request: &TransferRequest) -> tracing::Span {
        let (key, place) = (request.key(), request.place());
        tracing::info_span!(
            "transfer",
            transfer_id = self.id,
            command_id = self.cause.command_id,
            epoch = self.cause.epoch,
            file_id = key.file_id,
            generation = key.generation,
            origin_id = place.origin_id
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
}

pub fn start_waiting(node: &Arc<Node>) {
    let mut desk = node.transfers.desk();
    for id in desk.queue.start() {
        let transfer = desk.table.get_mut(&id).expect("a queued transfer is in the table");
        transfer.state = TransferStatus::Running;
        transfer.started = Some(Instant::now());
        let job = Job::new(node, id, transfer);
        let (request, partial) = (transfer.request.clone(), transfer.partial.take());
        let node_of_task = node.clone();
        let span = job.span(&request);
        let running = async move {
            let started = Instant::now();
            let outcome = match &request {
                TransferRequest::Fetch(request) => fetch::fetch(&node_of_task, &job, request, partial).await,
                TransferRequest::Upload(request) => upload::upload(&node_of_task, &job, request).await,
            };
            if matches!(&outcome, Err(error) if error.class == Class::Corrupt && request.kind() == TransferKind::Upload) {
                look_at_source(&node_of_task, &job, &request).await;
            }
            end(&node_of_task, &job, &request, outcome, started.elapsed());
        };
        node.transfers.tracker.spawn(running.instrument(span));
    }
}

/// An upload that found wrong content: was it ours?
async fn look_at_source(node: &Arc<Node>, job: &Job, request: &TransferRequest) {
    if let Err(error) = crate::replicas::verify(node, &job.cause, &request.key()).await {
        tracing::warn!(%error, "the replica of a failed upload could not be verified");
    }
}

fn end(node: &Arc<Node>, job: &Job, request: &TransferRequest, outcome: Result<Moved, ApiError>, took: Duration) {
    give_back(node, &job.id, request);
    let load = match &outcome {
        Ok(_) => Outcome::Success,
        Err(error) if error.class == Class::Transient && !job.cancel.is_cancelled() => Outcome::Overload,
        Err(_) => Outcome::Neutral,
    };
    let bytes = outcome.as_ref().map_or(0, |moved| moved.bytes_moved);
    let (state, fact) = match outcome {
        Ok(moved) => (
            TransferStatus::Done,
            fact_done(&job.id, request.kind(), &moved.replica, moved.bytes_moved, took.as_secs_f64(), moved.verified),
        ),
        Err(_) if job.cancel.is_cancelled() => (TransferStatus::Cancelled, Fact::TransferCancelled { transfer_id: job.id.clone() }),
        Err(error) => {
            tracing::warn!(code = error.code, error = %error, "a transfer failed");
            (TransferStatus::Failed, Fact::TransferFailed { transfer_id: job.id.clone(), transfer_kind: request.kind(), error })
        }
    };
    metrics::counts().transfer_duration.get_or_create(&OfKind { kind: request.kind().word() }).observe(took.as_secs_f64());
    let done = End { outcome: load, bytes, at: node.transfers.begun.elapsed() };
    node.transfers.desk().queue.finished(&request.place().origin_id, done);
    settle(node, &job.id, &job.cause, state, fact);
    start_waiting(node);
}

/// A transfer cancelled while it waited, or failed.
pub fn end_unstarted(node: &Arc<Node>, transfer_id: &str, error: Option<ApiError>) {
    let taken = {
        node.transfers
            .desk()
            .table
            .get_mut(transfer_id)
            .map(|transfer| (transfer.request.clone(), transfer.cause.clone(), transfer.partial.take()))
    };
    let Some((request, cause, partial)) = taken else { return };
    if let Some(partial) = partial {
        node.books().index.put_partial(partial, false);
    }
    give_back(node, transfer_id, &request);
    let transfer_id = transfer_id.to_string();
    let (state, fact) = match error {
        Some(error) => {
            let transfer_kind = request.kind();
            (TransferStatus::Failed, Fact::TransferFailed { transfer_id: transfer_id.clone(), transfer_kind, error })
        }
        None => (TransferStatus::Cancelled, Fact::TransferCancelled { transfer_id: transfer_id.clone() }),
    };
    settle(node, &transfer_id, &cause, state, fact);
}

fn give_back(node: &Node, transfer_id: &str, request: &TransferRequest) {
    let mut books = node.books();
    match request.kind() {
        TransferKind::Fetch => {
            books.index.space.release(&Holder::Transfer(transfer_id.to_string()));
        }
        TransferKind::Upload => books.index.end_lease(&lease_name(transfer_id)),
    }
}

fn settle(node: &Node, transfer_id: &str, cause: &Cause, state: TransferStatus, fact: Fact) {
    // The desk is held over the event, so that an acknowledgement never overtakes the result it is for.
    let mut desk = node.transfers.desk();
    count_end(state, &fact, desk.table.get(transfer_id));
    let event = node.emit(cause, fact);
    if let Some(transfer) = desk.table.get_mut(transfer_id) {
        transfer.state = state;
        transfer.event = Some(event);
        if transfer.request.kind() == TransferKind::Fetch {
            let key = transfer.request.key();
            desk.fetching.remove(&key);
        }
    }
}

fn count_end(state: TransferStatus, fact: &Fact, transfer: Option<&Transfer>) {
    let Some(kind) = transfer.map(|transfer| transfer.request.kind().word()) else { return };
    let counts = metrics::counts();
    counts.transfers_ended.get_or_create(&TransferEnd { kind, outcome: state.word() }).inc();
    if let Fact::TransferFailed { error, .. } = fact {
        counts.transfers_failed.get_or_create(&Failure { kind, code: error.code.clone() }).inc();
    }
}

pub fn fact_done(
    transfer_id: &str,
    kind: TransferKind,
    replica: &Replica,
    bytes_moved: u64,
    duration_s: f64,
    verified: Option<Verified>,
) -> Fact {
    Fact::TransferDone(TransferDone {
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
    })
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
            Err(ApiError::refused("cancelled", subject, format!("the transfer {} of {subject} was cancelled", job.id)))
        }
        () = node.ending.cancelled() => {
            let message = format!("the node ended while {subject} was transferred; it goes on where it stopped when asked again");
            Err(ApiError::transient("draining", subject, message))
        }
        () = stalled(&job.progress, stall) => {
            let waited_s = stall.as_secs();
            let message = format!("no byte of {subject} moved for {waited_s} s; look at the origin and its network, a new try resumes");
            Err(ApiError::transient("timeout", subject, message))
        }
    }
}

async fn stalled(progress: &AtomicU64, stall: Duration) {
    let (mut seen, mut since) = (progress.load(Ordering::Relaxed), Instant::now());
    let mut looks = tokio::time::interval(STALL_LOOK.min(stall));
    loop {
        looks.tick().await;
        let now = progress.load(Ordering::Relaxed);
        if now != seen {
            (seen, since) = (now, Instant::now());
        }
        if since.elapsed() >= stall {
            return;
        }
    }
}
