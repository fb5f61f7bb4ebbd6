//! From queued to ended: starts what may start, watches it, tells how it ended.
//!
//! The one rule: whatever way a transfer ends, its reservation, its lease and its place in the lane are free afterwards.

use std::sync::Arc;
use std::time::Instant;

use futures::stream::{self, StreamExt};
use stager_core::error::{causes, ApiError, Class, Code};
use stager_core::learn::{End, Outcome};
use stager_core::replica::Replica;
use tracing::Instrument;

use super::chain::{judged, tell_end, Chain};
use super::completion::{call_off_chain, fact_done, give_back, settle};
use super::job::{begin, Begun, Job, Moved};
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
    let outcome = match &request {
        TransferRequest::Fetch(request) => fetch::fetch(&transfers, &job, request, partial).await,
        TransferRequest::Copy(request) => copy::copy(&transfers, &job, request, partial).await,
        TransferRequest::Push(request) => push::push(&transfers, &job, request, partial).await,
        TransferRequest::Upload(request) => upload::upload(&transfers, &job, request).await,
    };
    if matches!(&outcome, Err(error) if error.class == Class::Corrupt && request.kind() == TransferKind::Upload) {
        check_source(&transfers, &job, &request).await;
    }
    end(&transfers, &job, &request, outcome, started).await;
}

/// The first one has the place in the lane, so it ends last.
async fn run_pack(transfers: Arc<Transfers>, first: Begun, along: Vec<Begun>) {
    let started = Instant::now();
    let mut group: Vec<Begun> = along;
    group.push(first);
    let mut came = match copy_pack::packed(&transfers, &group).await {
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
        (None, TransferRequest::Copy(copy)) => copy::copy(transfers, &job, copy, partial).await,
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
        Ok(moved) if moved.chain.ack() == Some(Ack::Sync) => answered_by_all(transfers, job, moved).await,
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
