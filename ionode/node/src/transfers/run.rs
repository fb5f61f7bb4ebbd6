//! From queued to ended: starts what may start, watches it, tells how it ended.
//!
//! The one rule: whatever way a transfer ends, its reservation, its lease and its place in the lane are free afterwards.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use futures::future::{BoxFuture, FutureExt};
use futures::stream::{self, StreamExt};
use stager_core::error::{causes, ApiError, Class, Code};
use stager_core::learn::{End, Outcome};
use stager_core::replica::Replica;
use tracing::Instrument;

use super::chain::{judged, tell_end, Chain};
use super::completion::{call_off_chain, fact_done, give_back, settle};
use super::job::{begin, Begun, Job, Moved};
use super::partial::discard;
use super::table::Transfers;
use super::{copy, copy_pack, fetch, push, upload};
use crate::metrics::{self, OfKind};
use crate::wire::{Ack, Fact, Replication, TransferDone, TransferKind, TransferRequest, TransferStatus};

const ONE_BY_ONE_AT_ONCE: usize = 4;

pub fn start_waiting(transfers: &Arc<Transfers>) {
    let mut table = transfers.table();
    for id in table.queue.start() {
        let fits = table.by_id.get(&id).is_some_and(|transfer| copy_pack::fits(&transfers.context, transfer));
        let first = begin(&transfers.context, &mut table, id, true);
        let along = if fits { copy_pack::along(&mut table, &transfers.context, &first) } else { Vec::new() };
        let span = first.job.span(&first.request);
        match along.is_empty() {
            true => transfers.tracker.spawn(run_one(transfers.clone(), first).instrument(span)),
            false => transfers.tracker.spawn(run_pack(transfers.clone(), first, along)),
        };
    }
}

async fn run_one(transfers: Arc<Transfers>, begun: Begun) {
    let Begun { job, request, partial, .. } = begun;
    let started = Instant::now();
    let work = async {
        let outcome = match &request {
            TransferRequest::Fetch(request) => fetch::fetch(&transfers, &job, request, partial).await,
            TransferRequest::Copy(request) => copy::copy(&transfers, &job, request, partial).await,
            TransferRequest::Push(request) => push::push(&transfers, &job, request, partial).await,
            TransferRequest::Upload(request) => upload::upload(&transfers, &job, request).await,
        };
        if matches!(&outcome, Err(error) if error.class == Class::Corrupt && request.kind() == TransferKind::Upload) {
            check_source(&transfers, &job, &request).await;
        }
        outcome
    };
    let outcome = caught(&transfers, &request, work.boxed()).await;
    end(&transfers, &job, &request, outcome, started).await;
}

/// A bug in what moves bytes ends this transfer, and no other. In a box: what is moved through frame by frame is as large as all that a
/// transfer may do, and would not fit on the stack of a thread.
async fn caught(transfers: &Transfers, request: &TransferRequest, work: BoxFuture<'_, Result<Moved, ApiError>>) -> Result<Moved, ApiError> {
    match AssertUnwindSafe(work).catch_unwind().await {
        Ok(outcome) => outcome,
        Err(panic) => {
            if request.kind() != TransferKind::Upload {
                discard(&transfers.context, &request.key()).await;
            }
            Err(broke_off(&request.key().file_id, &*panic))
        }
    }
}

fn broke_off(subject: &str, panic: &(dyn Any + Send)) -> ApiError {
    let said = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let said = said.unwrap_or("it said nothing");
    tracing::error!(subject, said, "a bug broke a transfer off");
    ApiError::new(
        Code::Internal,
        subject,
        format!("a bug of the node broke the transfer of {subject} off ({said}); report what its log says"),
    )
}

/// The first one has the place in the lane, so it ends last.
async fn run_pack(transfers: Arc<Transfers>, first: Begun, along: Vec<Begun>) {
    let started = Instant::now();
    let mut group: Vec<Begun> = along;
    group.push(first);
    let packed = AssertUnwindSafe(copy_pack::packed(&transfers, &group).boxed()).catch_unwind().await;
    let mut came = match packed.unwrap_or_else(|panic| Err(broke_off("pack", &*panic))) {
        Ok(came) => came,
        Err(error) => {
            tracing::warn!(%error, copies = group.len(), "a pack of copies failed; the node makes them one by one");
            group.iter().map(|_| None).collect()
        }
    };
    let last = group.pop().zip(came.pop());
    let others = stream::iter(group.into_iter().zip(came));
    let one = |(begun, replica): (Begun, Option<Replica>)| {
        let transfers = transfers.clone();
        async move {
            let span = begun.job.span(&begun.request);
            end_packed(&transfers, begun, replica, started).instrument(span).await;
        }
    };
    others.map(one).buffer_unordered(ONE_BY_ONE_AT_ONCE).collect::<Vec<()>>().await;
    if let Some(last) = last {
        one(last).await;
    }
}

async fn end_packed(transfers: &Arc<Transfers>, begun: Begun, replica: Option<Replica>, started: Instant) {
    let Begun { job, request, partial, .. } = begun;
    let outcome = match (replica, &request) {
        (Some(replica), _) => {
            let chain = Chain::for_maker(transfers, &job.cause, &job.id, &replica.key(), None);
            Ok(Moved { bytes_moved: replica.size_bytes, replica, verified: None, synced: None, chain })
        }
        (None, TransferRequest::Copy(copy)) => caught(transfers, &request, copy::copy(transfers, &job, copy, partial).boxed()).await,
        (None, _) => unreachable!("only copies come in packs"),
    };
    end(transfers, &job, &request, outcome, started).await;
}

/// An upload that found wrong content: was it ours?
async fn check_source(transfers: &Transfers, job: &Job, request: &TransferRequest) {
    if let Err(error) = transfers.fingerprints.verify(&job.cause, &request.key()).await {
        tracing::warn!(%error, "the replica of a failed upload could not be verified");
    }
}

/// The place in the lane is free before the chain is waited for: peers may wait for what is queued behind this.
async fn end(transfers: &Arc<Transfers>, job: &Job, request: &TransferRequest, outcome: Result<Moved, ApiError>, started: Instant) {
    give_back(&transfers.context, &job.id, request);
    let load = match &outcome {
        Ok(_) => Outcome::Success,
        Err(error) if error.class == Class::Transient && !job.cancel.is_cancelled() => Outcome::Overload,
        Err(_) => Outcome::Neutral,
    };
    if job.in_lane {
        let bytes = outcome.as_ref().map_or(0, |moved| moved.bytes_moved);
        let done = End { outcome: load, bytes, at: transfers.begun.elapsed() };
        transfers.table().queue.finished(&job.lane, done);
    }
    start_waiting(transfers);
    if outcome.is_err() {
        call_off_chain(transfers, &job.id, &job.cause, request);
    }
    let (outcome, replication) = match outcome {
        Ok(moved) if moved.chain.ack() == Some(Ack::Sync) => {
            let answered = AssertUnwindSafe(answered_by_all(transfers, job, moved).boxed()).catch_unwind().await;
            answered.unwrap_or_else(|panic| (Err(broke_off(&request.key().file_id, &*panic)), None))
        }
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
    settle(transfers, &job.id, &job.cause, state, fact);
    if let Ok(Moved { replica, chain, .. }) = outcome {
        if chain.ack() == Some(Ack::Async) {
            transfers.follow(tell_end(transfers.context.clone(), job.cause.clone(), replica, chain));
        }
    }
}

/// With `sync`: done when every node of the chain holds it, failed with the names of those that do when one does not.
async fn answered_by_all(transfers: &Transfers, job: &Job, moved: Moved) -> (Result<Moved, ApiError>, Option<Replication>) {
    let key = moved.replica.key();
    let stopped =
        |error: ApiError| (Err(error), Some(Replication { held_by: vec![transfers.context.node_id.clone()], missing: Vec::new() }));
    tokio::select! {
        replication = moved.chain.outcome(&moved.replica) => (judged(&key, &replication).map(|()| moved), Some(replication)),
        () = job.cancel.cancelled() => {
            let message = format!("the transfer {} was cancelled while other nodes received {key}; this node holds it", job.id);
            stopped(ApiError::new(Code::Cancelled, &key.file_id, message))
        }
        () = transfers.context.shutdown.cancelled() => {
            let message = format!("the node stopped while other nodes received {key}; this node holds it, ask again to go on with them");
            stopped(ApiError::new(Code::Draining, &key.file_id, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::time::Duration;

    use async_trait::async_trait;
    use serde_json::json;
    use stager_origins::{Capabilities, Entry, HttpConfig, Listing, Origin, OriginConfig, Probe, Sink, Upload, Uploaded};

    use super::*;
    use crate::context::{Cause, NodeContext, OpenOrigin};
    use crate::fingerprints::Fingerprints;
    use crate::peers::forgotten::Kept;
    use crate::peers::Peers;
    use crate::store::durability::Durability;
    use crate::store::{recovery, StoreSettings};
    use crate::transfers::put;

    /// Whatever it is asked, it has a bug.
    struct Buggy;

    #[async_trait]
    impl Origin for Buggy {
        fn capabilities(&self) -> Capabilities<'_> {
            Capabilities::PLAIN
        }
        async fn stat(&self, _path: &str) -> Result<Entry, ApiError> {
            panic!("a bug")
        }
        async fn stat_many(&self, _paths: &[String]) -> Vec<Result<Entry, ApiError>> {
            panic!("a bug")
        }
        async fn list(&self, _prefix: &str, _recursive: bool, _limit: usize) -> Result<Listing, ApiError> {
            panic!("a bug")
        }
        async fn fetch(&self, _expected: &Entry, _ranges: &[Range<u64>], _sink: &dyn Sink) -> Result<(), ApiError> {
            panic!("a bug of {}", 7)
        }
        async fn upload(&self, _upload: Upload<'_>) -> Result<Uploaded, ApiError> {
            panic!("a bug")
        }
        async fn make_directory(&self, _path: &str) -> Result<(), ApiError> {
            panic!("a bug")
        }
        async fn erase(&self, _path: &str, _token: Option<&str>) -> Result<bool, ApiError> {
            panic!("a bug")
        }
        async fn probe(&self, _path: &str, _write: bool) -> Probe {
            panic!("a bug")
        }
    }

    fn transfers(root: &std::path::Path) -> Arc<Transfers> {
        let settings = StoreSettings { durability: Durability(false), inline_bytes_max: 1000 };
        let opened = recovery::open(root, 1 << 20, settings).unwrap_or_else(|_| panic!("the store does not open"));
        let kept = Kept::open(opened.store.root(), opened.store.durability, Arc::default()).unwrap();
        let context = Arc::new(NodeContext::new("n1".into(), opened));
        let (config, identity, label) = (OriginConfig::Http(HttpConfig::default()), "i".into(), "o1".into());
        context.put_origin("o1", OpenOrigin { origin: Arc::new(Buggy), config, identity, label, mountable: None });
        let fingerprints = Arc::new(Fingerprints::new(context.clone()));
        Arc::new(Transfers::new(context, fingerprints, Arc::new(Peers::new(None, kept))))
    }

    /// In the stat, in a fetch into memory, and in one into a file.
    #[test]
    fn a_bug_ends_its_transfer_and_nothing_is_held_after_it() {
        let root = tempfile::tempdir().unwrap();
        // The store opens before there is a runtime, as at the start of a node.
        let transfers = transfers(root.path());
        let runtime = tokio::runtime::Runtime::new().unwrap();
        for (id, size_bytes, token) in [("t1", 5, json!(null)), ("t2", 5, json!("etag:x;s=5")), ("t3", 5000, json!("etag:x;s=5000"))] {
            let expected = json!({"size_bytes": size_bytes, "token": token, "blake3": null, "sha256": null});
            let request = json!({"file_id": "f", "generation": id, "source": {"origin_id": "o1", "path": "p"}, "expected": expected,
                "priority": 0, "executable": false});
            let request = TransferRequest::Fetch(serde_json::from_value(request).unwrap());
            let answer = runtime.block_on(async {
                put(&transfers, Cause::default(), id, request).await.unwrap();
                transfers.wait(id, Duration::from_secs(20)).await.unwrap()
            });
            assert_eq!(answer.state, TransferStatus::Failed, "{id}");
            let told = serde_json::to_value(answer.event).unwrap();
            assert_eq!(told["error"]["code"], "internal", "{told}");
            assert!(told["error"]["message"].as_str().unwrap().contains("a bug"), "{told}");
            assert!(transfers.is_idle() && !transfers.any_runs() && transfers.being_made().is_empty(), "{id}");
            let space = &transfers.context.accounting().index.space;
            assert_eq!((space.reserved_bytes(), space.used_bytes(), space.idle_bytes()), (0, 0, 0), "{id}");
            assert_eq!(std::fs::read_dir(root.path().join("partial")).unwrap().count(), 0, "{id}");
        }
    }
}
