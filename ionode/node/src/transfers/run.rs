//! From queued to ended: starts what may start, watches it, tells how it ended.
//!
//! The one rule: whatever way a transfer ends, its reservation, its lease and its place in the lane are free afterwards.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use stager_core::error::{ApiError, Class};
use stager_core::queue::Outcome;
use stager_core::replica::Replica;
use stager_core::space::Holder;
use stager_origins::Verified;
use tokio_util::sync::CancellationToken;

use super::{fetch, lease_name, upload};
use crate::node::{Cause, Node};
use crate::wire::{Fact, TransferDone, TransferKind, TransferRequest, TransferStatus};

const STALL_LOOK: Duration = Duration::from_secs(1);

/// One transfer while it runs.
#[derive(Clone)]
pub(super) struct Job {
    pub id: String,
    pub cause: Cause,
    pub progress: Arc<AtomicU64>,
    pub cancel: CancellationToken,
}

impl Job {
    /// A piece of an upload was taken.
    pub fn sent(&self, bytes: u64) {
        self.progress.fetch_add(bytes, Ordering::Relaxed);
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
        let job = Job { id, cause: transfer.cause.clone(), progress: transfer.progress.clone(), cancel: transfer.cancel.clone() };
        let (request, partial) = (transfer.request.clone(), transfer.partial.take());
        let node_of_task = node.clone();
        node.transfers.tracker.spawn(async move {
            let started = Instant::now();
            let outcome = match &request {
                TransferRequest::Fetch(request) => fetch::fetch(&node_of_task, &job, request, partial).await,
                TransferRequest::Upload(request) => upload::upload(&node_of_task, &job, request).await,
            };
            if matches!(&outcome, Err(error) if error.class == Class::Corrupt && request.kind() == TransferKind::Upload) {
                look_at_source(&node_of_task, &job, &request).await;
            }
            end(&node_of_task, &job, &request, outcome, started.elapsed());
        });
    }
}

/// An upload that found wrong content: was it ours?
async fn look_at_source(node: &Arc<Node>, job: &Job, request: &TransferRequest) {
    if let Err(error) = crate::replicas::verify(node, &job.cause, &request.key()).await {
        tracing::warn!(transfer_id = job.id, %error, "the replica of a failed upload could not be verified");
    }
}

fn end(node: &Arc<Node>, job: &Job, request: &TransferRequest, outcome: Result<Moved, ApiError>, took: Duration) {
    give_back(node, &job.id, request);
    let load = match &outcome {
        Ok(_) => Outcome::Success,
        Err(error) if error.class == Class::Transient && !job.cancel.is_cancelled() => Outcome::Overload,
        Err(_) => Outcome::Neutral,
    };
    let (state, fact) = match outcome {
        Ok(moved) => (
            TransferStatus::Done,
            fact_done(&job.id, request.kind(), &moved.replica, moved.bytes_moved, took.as_secs_f64(), moved.verified),
        ),
        Err(_) if job.cancel.is_cancelled() => (TransferStatus::Cancelled, Fact::TransferCancelled { transfer_id: job.id.clone() }),
        Err(error) => {
            tracing::warn!(transfer_id = job.id, code = error.code, error = %error, "a transfer failed");
            (TransferStatus::Failed, Fact::TransferFailed { transfer_id: job.id.clone(), transfer_kind: request.kind(), error })
        }
    };
    node.transfers.desk().queue.finished(&request.place().origin_id, load);
    settle(node, &job.id, &job.cause, state, fact);
    start_waiting(node);
}

/// A transfer cancelled while it waited.
pub fn end_unstarted(node: &Arc<Node>, transfer_id: &str) {
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
    settle(node, transfer_id, &cause, TransferStatus::Cancelled, Fact::TransferCancelled { transfer_id: transfer_id.to_string() });
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
    let event = node.emit(cause, fact);
    if let Some(transfer) = desk.table.get_mut(transfer_id) {
        transfer.state = state;
        transfer.event = Some(event);
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
