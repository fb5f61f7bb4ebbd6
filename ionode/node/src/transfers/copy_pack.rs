//! Small copies that wait for the same peer, in one pack: its contents come in one answer and are committed in one write.
//!
//! The one rule: a pack is a shorter way to what a copy is. What it does not bring whole and right goes the way of every copy.

use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::stream::{self, StreamExt};
use stager_core::error::{ApiError, Code};
use stager_core::replica::{Replica, ReplicaKey, ReplicaKind, ReplicaState};
use stager_core::space::Holder;
use tracing::Instrument;

use super::chain::Chain;
use super::copy;
use super::run::{begin, end, Begun, Job, Moved};
use super::{Transfer, TransferTable};
use crate::node::Node;
use crate::packs::ask::fitting;
use crate::packs::format::{About, Ask, Said, CONTENT_BYTES_MAX};
use crate::peers::link::Term;
use crate::replicas::blocking;
use crate::store::digest;
use crate::wire::{CopyRequest, TransferRequest, TransferStatus};

/// For a whole pack: what takes longer is asked for one by one.
const WITHIN: Duration = Duration::from_secs(60);
const ONE_BY_ONE_AT_ONCE: usize = 4;

/// Whether it may come in a pack: small, and the last of its chain.
pub(super) fn fits(node: &Node, transfer: &Transfer) -> bool {
    let TransferRequest::Copy(copy) = &transfer.request else { return false };
    let last = copy.replicas.as_ref().is_none_or(|replicas| replicas.chain.is_empty());
    last && transfer.partial.is_none() && copy.expected.size_bytes <= node.store.inline_bytes_max.min(CONTENT_BYTES_MAX as u64)
}

/// Takes those out of the queue that go with the one that starts.
pub(super) fn along(table: &mut TransferTable, node: &Node, first: &Begun) -> Vec<Begun> {
    let (lane, epoch) = (first.job.lane.clone(), first.job.cause.epoch);
    let Some(waiting) = table.small.remove(&lane) else { return Vec::new() };
    // Those that started, were cancelled or have ended stand in the list for no longer than this.
    let waits = |id: &String| table.by_id.get(id).is_some_and(|transfer| transfer.state == TransferStatus::Queued);
    let same = |id: &String| table.by_id[id].cause.epoch == epoch;
    let (mut waiting, other): (Vec<String>, Vec<String>) = waiting.into_iter().filter(waits).partition(same);
    let sizes: Vec<u64> = waiting.iter().map(|id| table.by_id[id].bytes_total).collect();
    let left = waiting.split_off(fitting(std::iter::once(first.bytes_total).chain(sizes)).saturating_sub(1).min(waiting.len()));
    let left: Vec<String> = other.into_iter().chain(left).collect();
    if !left.is_empty() {
        table.small.insert(lane, left);
    }
    let taken: Vec<String> = waiting.into_iter().filter(|id| table.queue.remove(id)).collect();
    taken.into_iter().map(|id| begin(node, table, id, false)).collect()
}

/// The first one has the place in the lane, so it ends last.
pub(super) async fn run(node: Arc<Node>, first: Begun, along: Vec<Begun>) {
    let started = Instant::now();
    let mut group: Vec<Begun> = along;
    group.push(first);
    let mut came = match packed(&node, &group).await {
        Ok(came) => came,
        Err(error) => {
            tracing::warn!(%error, copies = group.len(), "a pack of copies failed; they are made one by one");
            group.iter().map(|_| None).collect()
        }
    };
    let last = group.pop().zip(came.pop());
    let others = stream::iter(group.into_iter().zip(came));
    let one = |(begun, replica): (Begun, Option<Replica>)| {
        let node = node.clone();
        async move {
            let span = begun.job.span(&begun.request);
            settle(&node, begun, replica, started).instrument(span).await;
        }
    };
    others.map(one).buffer_unordered(ONE_BY_ONE_AT_ONCE).collect::<Vec<()>>().await;
    if let Some(last) = last {
        one(last).await;
    }
}

async fn settle(node: &Arc<Node>, begun: Begun, replica: Option<Replica>, started: Instant) {
    let Begun { job, request, partial, .. } = begun;
    let outcome = match (replica, &request) {
        (Some(replica), _) => {
            let chain = Chain::of(node, &job, &replica.key(), None);
            Ok(Moved { bytes_moved: replica.size_bytes, replica, verified: None, synced: None, chain })
        }
        (None, TransferRequest::Copy(copy)) => copy::copy(node, &job, copy, partial).await,
        (None, _) => unreachable!("only copies come in packs"),
    };
    end(node, &job, &request, outcome, started).await;
}

fn copy_of(begun: &Begun) -> &CopyRequest {
    match &begun.request {
        TransferRequest::Copy(copy) => copy,
        _ => unreachable!("only copies come in packs"),
    }
}

/// Those that came whole and right, committed; `None` for the others.
async fn packed(node: &Arc<Node>, group: &[Begun]) -> Result<Vec<Option<Replica>>, ApiError> {
    let first = copy_of(group.last().expect("a group has a first"));
    let source = &first.sources[0];
    let link = node.peers.get(&source.node_id)?;
    let asks: Vec<Ask> =
        group.iter().map(|begun| Ask::Get(ReplicaKey::new(&copy_of(begun).file_id, &copy_of(begun).sources[0].generation))).collect();
    let content_bytes = group.iter().map(|begun| copy_of(begun).expected.size_bytes).sum();
    let term = Term::Of(group[0].job.cause.epoch);
    let answers = tokio::select! {
        answers = tokio::time::timeout(WITHIN, link.pack(term, &asks, content_bytes)) => answers.map_err(|_| link.lost("a pack took too long"))??,
        () = node.shutdown.cancelled() => return Err(ApiError::new(Code::Draining, "pack", "the node ends")),
    };
    let wanted: Vec<CopyRequest> = group.iter().map(|begun| copy_of(begun).clone()).collect();
    let made = blocking(move || Ok(wanted.iter().zip(answers).map(|(wanted, answer)| judged(wanted, answer)).collect::<Vec<_>>())).await?;
    // What was cancelled meanwhile, or is here already, is told the usual way.
    let made: Vec<Option<(Replica, Bytes)>> = {
        let accounting = node.accounting();
        let kept = |(begun, made): (&Begun, Option<(Replica, Bytes)>)| {
            made.filter(|(replica, _)| !begun.job.cancel.is_cancelled() && accounting.index.replica(&replica.key()).is_none())
        };
        group.iter().zip(made).map(kept).collect()
    };
    node.store.commit(made.iter().flatten().map(|(replica, content)| (replica, Some(content.clone()))), &[], Vec::new()).await?;
    let mut accounting = node.accounting();
    for (begun, (replica, _)) in group.iter().zip(&made).filter_map(|(begun, made)| made.as_ref().map(|made| (begun, made))) {
        accounting.index.commit(&Holder::Transfer(begun.job.id.clone()), std::slice::from_ref(replica));
        arrived(&begun.job, replica.size_bytes);
    }
    drop(accounting);
    Ok(made.into_iter().map(|made| made.map(|(replica, _)| replica)).collect())
}

fn arrived(job: &Job, bytes: u64) {
    job.progress.store(bytes, Ordering::Relaxed);
    job.arrived(bytes);
}

fn judged(wanted: &CopyRequest, answer: Result<Said, ApiError>) -> Option<(Replica, Bytes)> {
    let Ok(Said::Got(about, content)) = answer else { return None };
    let digests = digest::of_bytes(&content, about.sha256.is_some());
    let expected = wanted.expected.blake3.as_deref().map_or(about.blake3_hex(), str::to_ascii_lowercase);
    let right = digests.blake3 == expected && digests.size_bytes == wanted.expected.size_bytes && about.kind == ReplicaKind::File;
    let About { executable, token, .. } = about;
    let replica = Replica {
        file_id: wanted.file_id.clone(),
        generation: wanted.generation.clone(),
        kind: ReplicaKind::File,
        size_bytes: digests.size_bytes,
        blake3: digests.blake3,
        crc64nvme: digests.crc64nvme,
        sha256: digests.sha256,
        executable,
        members: None,
        token,
        state: ReplicaState::Present,
        stripes: None,
    };
    right.then_some((replica, content))
}
