//! Small copies that wait for the same peer, in one pack: its contents come in one answer and are committed in one write.
//!
//! The one rule: a pack is a shorter way to what a copy is. What it does not bring whole and right goes the way of every copy.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use stager_core::error::{ApiError, Code};
use stager_core::replica::{Replica, ReplicaKey, ReplicaKind, ReplicaState};
use stager_core::space::Holder;

use super::job::{begin, Begun, Job};
use super::table::{Transfer, TransferTable, Transfers};
use crate::blocking::blocking;
use crate::context::NodeContext;
use crate::pack_format::{About, Answered, Ask, CONTENT_BYTES_MAX};
use crate::peers::link::Term;
use crate::peers::pack::fitting;
use crate::store::digest;
use crate::wire::{CopyRequest, TransferRequest, TransferStatus};

/// For a whole pack: what takes longer is asked for one by one.
const WITHIN: Duration = Duration::from_secs(60);

/// Whether it may come in a pack: small, and the last of its chain.
pub(super) fn fits(context: &NodeContext, transfer: &Transfer) -> bool {
    let TransferRequest::Copy(copy) = &transfer.request else { return false };
    let last = copy.replicas.as_ref().is_none_or(|replicas| replicas.chain.is_empty());
    last && transfer.partial.is_none() && copy.expected.size_bytes <= context.store.inline_bytes_max.min(CONTENT_BYTES_MAX as u64)
}

/// Takes those out of the queue that go with the one that starts.
pub(super) fn along(table: &mut TransferTable, context: &NodeContext, first: &Begun) -> Vec<Begun> {
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
    taken.into_iter().map(|id| begin(context, table, id, false)).collect()
}

fn copy_of(begun: &Begun) -> &CopyRequest {
    match &begun.request {
        TransferRequest::Copy(copy) => copy,
        _ => unreachable!("only copies come in packs"),
    }
}

/// Those that came whole and right, committed; `None` for the others.
pub(super) async fn packed(transfers: &Transfers, group: &[Begun]) -> Result<Vec<Option<Replica>>, ApiError> {
    let first = copy_of(group.last().expect("a group has a first"));
    let source = &first.sources[0];
    let link = transfers.peers.get(&source.node_id)?;
    let asks: Vec<Ask> =
        group.iter().map(|begun| Ask::Get(ReplicaKey::new(&copy_of(begun).file_id, &copy_of(begun).sources[0].generation))).collect();
    let content_bytes = group.iter().map(|begun| copy_of(begun).expected.size_bytes).sum();
    let term = Term::Of(group[0].job.cause.epoch);
    let answers = tokio::select! {
        answers = tokio::time::timeout(WITHIN, link.pack(term, &asks, content_bytes)) => answers.map_err(|_| link.lost("a pack took too long"))??,
        () = transfers.context.shutdown.cancelled() => return Err(ApiError::new(Code::Draining, "pack", "the node ends")),
    };
    let wanted: Vec<CopyRequest> = group.iter().map(|begun| copy_of(begun).clone()).collect();
    let made = blocking(move || Ok(wanted.iter().zip(answers).map(|(wanted, answer)| judged(wanted, answer)).collect::<Vec<_>>())).await?;
    // What was cancelled meanwhile, or is here already, is told the usual way.
    let made: Vec<Option<(Replica, Bytes)>> = {
        let accounting = transfers.context.accounting();
        let kept = |(begun, made): (&Begun, Option<(Replica, Bytes)>)| {
            made.filter(|(replica, _)| !begun.job.cancel.is_cancelled() && accounting.index.replica(&replica.key()).is_none())
        };
        group.iter().zip(made).map(kept).collect()
    };
    transfers
        .context
        .store
        .commit(made.iter().flatten().map(|(replica, content)| (replica, Some(content.clone()))), &[], Vec::new())
        .await?;
    let mut accounting = transfers.context.accounting();
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

fn judged(wanted: &CopyRequest, answer: Result<Answered, ApiError>) -> Option<(Replica, Bytes)> {
    let Ok(Answered::Got(about, content)) = answer else { return None };
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
