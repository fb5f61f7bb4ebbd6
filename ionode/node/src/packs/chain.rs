//! Packs on their way through a chain: what this node has on disk goes to the next one in a pack, with the rest of the chain.
//!
//! The one rule: a node is counted as holding an entry only when it said so itself, of the BLAKE3 that came with the entry.

use std::sync::Arc;
use std::time::Instant;

use futures::stream::{self, StreamExt};
use hyper::header::HeaderMap;
use stager_core::error::{ApiError, Class};
use stager_core::replica::{Replica, ReplicaKey, ReplicaKind};
use tokio::sync::OwnedSemaphorePermit;

use super::{Outcome, Packs};
use crate::blocking::blocking;
use crate::context::{Cause, NodeContext};
use crate::failure::bad_request;
use crate::pack_format::{Answered, Ask, CONTENT_BYTES_MAX, NODES_MAX};
use crate::peers::link::Term;
use crate::peers::pack::{fitting, Answers, REPLICAS};
use crate::stripes::from_hex;
use crate::transfers::chain::{self, ASK_AGAIN_AFTER, LOST_WITHIN};
use crate::wire::{Ack, Fact, NotHeld, OutputReplication, ReplicasWanted, Replication};

/// Packs of one stage-out that are on their way at once.
const PACKS_AT_ONCE: usize = 2;

pub fn wanted(packs: &Packs, headers: &HeaderMap) -> Result<Option<ReplicasWanted>, ApiError> {
    let Some(value) = headers.get(REPLICAS) else { return Ok(None) };
    let wanted: ReplicasWanted = serde_json::from_slice(value.as_bytes()).map_err(|error| {
        bad_request(REPLICAS, format!("the header {REPLICAS} is not understood ({error}); send {{\"chain\": [node ids], \"ack\": ...}}"))
    })?;
    chain::check(&packs.transfers, &wanted.chain)?;
    if wanted.chain.len() > NODES_MAX {
        let message = format!("the chain of a pack has at most {NODES_MAX} nodes; push files one by one through a longer chain");
        return Err(bad_request(REPLICAS, message));
    }
    Ok(Some(wanted).filter(|wanted| !wanted.chain.is_empty()))
}

/// A pack of puts for this node and those behind it. `memory`: what it takes of it, held until the chain has it.
pub async fn perform(
    packs: &Arc<Packs>,
    cause: &Cause,
    asked: Vec<Result<Ask, ApiError>>,
    wanted: ReplicasWanted,
    memory: OwnedSemaphorePermit,
) -> Vec<Outcome> {
    let only_puts = |asked: Result<Ask, ApiError>| match asked {
        Ok(Ask::Get(key) | Ask::Stat(key) | Ask::Delete(key)) => {
            Err(bad_request(&key.file_id, "a chain takes puts only; ask each node for the rest"))
        }
        asked => asked,
    };
    let asked: Vec<Result<Ask, ApiError>> = asked.into_iter().map(only_puts).collect();
    let all: Vec<Option<Ask>> = asked.iter().map(|ask| ask.as_ref().ok().cloned()).collect();
    let mut outcomes = super::perform(packs, cause, asked).await;
    let here = |(number, outcome): (usize, &Outcome)| matches!(outcome, Outcome::Answered(Answered::Put { .. })).then_some(number);
    let numbers: Vec<usize> = outcomes.iter().enumerate().filter_map(here).collect();
    let puts: Vec<Ask> = numbers.iter().filter_map(|number| all[*number].clone()).collect();
    if wanted.ack == Ack::Sync {
        for (number, not_held) in numbers.into_iter().zip(relay(packs, cause, &puts, &wanted).await) {
            if let Outcome::Answered(Answered::Put { missing, .. }) = &mut outcomes[number] {
                *missing = not_held;
            }
        }
    } else {
        let (worker, asker) = (packs.clone(), cause.clone());
        packs.transfers.follow(async move {
            tell(&worker, &asker, &puts, &wanted).await;
            drop(memory);
        });
    }
    outcomes
}

/// The chain's end as events, one for each entry: of an `async` chain.
async fn tell(packs: &Arc<Packs>, cause: &Cause, puts: &[Ask], wanted: &ReplicasWanted) {
    let ends = tokio::select! {
        ends = relay(packs, cause, puts, wanted) => ends,
        () = packs.context.shutdown.cancelled() => return,
    };
    if wanted.ack == Ack::Async {
        for (put, missing) in puts.iter().zip(ends) {
            let ReplicaKey { file_id, generation } = put.key().clone();
            packs.context.emit(cause, Fact::Replicated { file_id, generation, replication: replication(&packs.context, wanted, missing) });
        }
    }
}

fn replication(context: &NodeContext, wanted: &ReplicasWanted, missing: Vec<NotHeld>) -> Replication {
    let lacks = |node_id: &&String| missing.iter().any(|missing| missing.node_id == **node_id);
    let behind = wanted.chain.iter().filter(|node_id| !lacks(node_id)).cloned();
    Replication { held_by: std::iter::once(context.node_id.clone()).chain(behind).collect(), missing }
}

/// Those of the chain that do not hold it, of each put; no more than one pack of them.
async fn relay(packs: &Arc<Packs>, cause: &Cause, puts: &[Ask], wanted: &ReplicasWanted) -> Vec<Vec<NotHeld>> {
    if puts.is_empty() {
        return Vec::new();
    }
    let (first, behind) = wanted.next_node();
    match sent(packs, cause, puts, first, behind.as_ref()).await {
        Ok(answers) => {
            let one = |answer: Result<Answered, ApiError>| match answer {
                Ok(Answered::Put { missing, .. }) => missing,
                Ok(_) => unreachable!("the link compares what was said with what was asked"),
                Err(error) => wanted.held_by_nobody(&error),
            };
            answers.into_iter().map(one).collect()
        }
        Err(error) => puts.iter().map(|_| wanted.held_by_nobody(&error)).collect(),
    }
}

/// A peer that does not answer is asked again for a while: what it has done already is done.
async fn sent(packs: &Arc<Packs>, cause: &Cause, puts: &[Ask], to: &str, behind: Option<&ReplicasWanted>) -> Result<Answers, ApiError> {
    let link = packs.peers.get(to)?;
    let since = Instant::now();
    loop {
        match link.puts(Term::Of(cause.epoch), puts, behind).await {
            Err(error) if error.class == Class::Transient && since.elapsed() < LOST_WITHIN => tokio::time::sleep(ASK_AGAIN_AFTER).await,
            answered => return answered,
        }
    }
}

/// Of outputs that this node has just committed: small ones in packs, others each by its own chain. Told of where the chain is waited for.
pub async fn replicate(
    packs: &Arc<Packs>,
    cause: &Cause,
    made_by: &str,
    outputs: &[Replica],
    wanted: &ReplicasWanted,
) -> Vec<OutputReplication> {
    let small = |replica: &&Replica| {
        wanted.chain.len() <= NODES_MAX
            && replica.kind == ReplicaKind::File
            && replica.size_bytes <= packs.context.store.inline_bytes_max.min(CONTENT_BYTES_MAX as u64)
    };
    let (small, large): (Vec<&Replica>, Vec<&Replica>) = outputs.iter().partition(small);
    let mut groups = Vec::new();
    let mut rest = &small[..];
    while !rest.is_empty() {
        let (group, left) = rest.split_at(fitting(rest.iter().map(|replica| replica.size_bytes)));
        groups.push(group.iter().map(|replica| (*replica).clone()).collect::<Vec<Replica>>());
        rest = left;
    }
    let in_packs =
        stream::iter(groups).map(|group| in_a_pack(packs, cause, made_by, group, wanted)).buffered(PACKS_AT_ONCE).collect::<Vec<_>>();
    let alone =
        futures::future::join_all(large.into_iter().map(|replica| chain::replicate(&packs.transfers, cause, made_by, replica, wanted)));
    let (in_packs, alone) = futures::future::join(in_packs, alone).await;
    in_packs.into_iter().flatten().chain(alone.into_iter().flatten()).collect()
}

async fn in_a_pack(
    packs: &Arc<Packs>,
    cause: &Cause,
    made_by: &str,
    group: Vec<Replica>,
    wanted: &ReplicasWanted,
) -> Vec<OutputReplication> {
    let bytes = group.iter().map(|replica| replica.size_bytes as usize).sum();
    let memory = packs.memory(bytes, wanted.chain.len()).await;
    let (worker, replicas) = (packs.clone(), group.clone());
    let read = blocking(move || replicas.iter().map(|replica| put(&worker.context, replica)).collect::<Result<Vec<Ask>, _>>()).await;
    let Ok(puts) = read else {
        // What cannot be read goes the way of every copy, which says what is wrong with it.
        let one_by_one = group.iter().map(|replica| chain::replicate(&packs.transfers, cause, made_by, replica, wanted));
        return futures::future::join_all(one_by_one).await.into_iter().flatten().collect();
    };
    if wanted.ack != Ack::Sync {
        let (worker, asker, wanted) = (packs.clone(), cause.clone(), wanted.clone());
        packs.transfers.follow(async move {
            tell(&worker, &asker, &puts, &wanted).await;
            drop(memory);
        });
        return Vec::new();
    }
    let ends = relay(packs, cause, &puts, wanted).await;
    let told = |(replica, missing): (Replica, Vec<NotHeld>)| OutputReplication {
        replication: replication(&packs.context, wanted, missing),
        file_id: replica.file_id,
        generation: replica.generation,
    };
    group.into_iter().zip(ends).map(told).collect()
}

fn put(context: &NodeContext, replica: &Replica) -> Result<Ask, ApiError> {
    let blake3 = from_hex(&replica.blake3).expect("our own digest");
    Ok(Ask::Put { key: replica.key(), executable: replica.executable, blake3, content: super::read(context, replica)? })
}
