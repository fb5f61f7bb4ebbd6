//! One transfer while it runs: what it counts, and how long it may go on. Knows the table it was taken from, not what moves its bytes.
//!
//! The one rule: work of an origin goes on under `watched` only, so a cancel, the node's end and a silence end it.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use prometheus_client::metrics::counter::Counter;
use stager_core::error::{ApiError, Code};
use stager_core::record::Partial;
use stager_core::replica::Replica;
use stager_origins::{stalled_by, Priority, Synced, Verified};
use tokio_util::sync::CancellationToken;

use super::chain::Chain;
use super::table::{Transfer, TransferTable};
use crate::context::{Cause, NodeContext};
use crate::metrics::{self, Moved as Bytes, OTHER};
use crate::wire::{TransferRequest, TransferStatus};

/// One transfer while it runs.
#[derive(Clone)]
pub(super) struct Job {
    pub id: String,
    pub cause: Cause,
    pub progress: Arc<AtomicU64>,
    pub priority: Priority,
    pub cancel: CancellationToken,
    pub asked: Instant,
    shutdown: CancellationToken,
    /// It has a place in its lane.
    pub in_lane: bool,
    pub lane: String,
    /// Of bytes that no origin moves: an origin's own meter counts those that it moves.
    arrived: Option<Counter>,
}

impl Job {
    fn new(context: &NodeContext, id: String, transfer: &Transfer, in_lane: bool) -> Self {
        let between_nodes = || metrics::counts().moved.get_or_create_owned(&Bytes { origin: OTHER.to_string(), direction: "in" });
        let (cause, progress, cancel) = (transfer.cause.clone(), transfer.progress.clone(), transfer.cancel.clone());
        Self {
            id,
            cause,
            progress,
            priority: transfer.priority.clone(),
            cancel,
            shutdown: context.shutdown.clone(),
            asked: transfer.asked,
            in_lane,
            lane: transfer.request.lane(transfer.bytes_total),
            arrived: transfer.request.place().is_none().then(between_nodes),
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

    pub fn arrived(&self, bytes: u64) {
        if let Some(arrived) = &self.arrived {
            arrived.inc_by(bytes);
        }
    }

    /// A piece of an upload was taken.
    pub fn sent(&self, bytes: u64) {
        self.progress.fetch_add(bytes, Ordering::Relaxed);
    }

    /// What was moved, and what was only read to be compared or verified.
    fn signs_of_life(&self) -> u64 {
        self.progress.load(Ordering::Relaxed) + self.priority.read_back_bytes()
    }

    /// Runs work of an origin until it is done, cancelled, the node ends, or nothing has moved for `stall`.
    pub async fn watched<T>(&self, subject: &str, stall: Duration, work: impl Future<Output = Result<T, ApiError>>) -> Result<T, ApiError> {
        tokio::select! {
            outcome = work => outcome,
            () = self.cancel.cancelled() => {
                Err(ApiError::new(Code::Cancelled, subject, format!("the transfer {} of {subject} was cancelled", self.id)))
            }
            () = self.shutdown.cancelled() => {
                let message = format!("the node stopped while it transferred {subject}; a new transfer goes on where this one stopped");
                Err(ApiError::new(Code::Draining, subject, message))
            }
            () = stalled_by(|| self.signs_of_life(), stall) => {
                let waited_s = stall.as_secs();
                let message = format!("no byte of {subject} moved for {waited_s} s; look at the origin and its network, a new try resumes");
                Err(ApiError::new(Code::Timeout, subject, message))
            }
        }
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
pub(super) fn begin(context: &NodeContext, table: &mut TransferTable, id: String, in_lane: bool) -> Begun {
    let transfer = table.by_id.get_mut(&id).expect("a queued transfer is in the table");
    transfer.state = TransferStatus::Running;
    transfer.started = Some(Instant::now());
    let job = Job::new(context, id, transfer, in_lane);
    Begun { job, request: transfer.request.clone(), partial: transfer.partial.take(), bytes_total: transfer.bytes_total }
}

#[cfg(test)]
mod tests {
    use stager_origins::{open, verify_content, FileConfig, OriginConfig};

    use super::*;

    /// Over a line that is slow, but not silent.
    #[tokio::test]
    async fn a_job_that_reads_content_again_is_not_taken_for_dead() {
        const SIZE_BYTES: u64 = 20 << 20;
        let base = tempfile::tempdir().unwrap();
        let content = vec![7; SIZE_BYTES as usize];
        std::fs::write(base.path().join("f"), &content).unwrap();
        let config = FileConfig { base_path: base.path().to_owned(), bandwidth_bytes_per_s_max: Some(4 << 20) };
        let origin = open(&OriginConfig::File(config)).unwrap();
        let job = Job {
            id: "t".to_string(),
            cause: Cause::default(),
            progress: Arc::default(),
            priority: Priority::default(),
            cancel: CancellationToken::new(),
            asked: Instant::now(),
            shutdown: CancellationToken::new(),
            in_lane: true,
            lane: "o".to_string(),
            arrived: None,
        };
        let (hash, pace) = (blake3::hash(&content).to_hex(), job.priority.clone().into());
        let reading = verify_content(origin.as_ref(), "f", SIZE_BYTES, &hash, &pace);
        let answer = job.watched("f", Duration::from_secs(2), reading).await.unwrap();
        assert!(answer.matches && job.asked.elapsed() > Duration::from_secs(4), "it takes twice as long as nothing may move");
        assert_eq!(job.progress.load(Ordering::Relaxed), 0, "nothing of it is told as moved");
        let silent = job.watched("f", Duration::from_millis(50), std::future::pending::<Result<(), ApiError>>());
        assert_eq!(silent.await.unwrap_err().code, Code::Timeout);
    }
}
