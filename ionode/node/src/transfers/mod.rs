//! Transfers: what is queued, runs or has ended, until its end is acknowledged. Knows origins by their port only.
//!
//! The one rule: every transfer that was accepted ends in exactly one event, and gives back what it held.

mod arrival;
mod assembly;
pub mod chain;
mod completion;
mod copy;
mod copy_pack;
mod copy_tree;
mod feed;
mod fetch;
mod group_commit;
mod held;
mod incoming_data;
mod job;
mod part;
mod partial;
pub mod push;
mod pushes;
mod request;
mod run;
mod small;
mod table;
mod upload;

use std::sync::Arc;
use std::time::Duration;

use stager_core::error::{ApiError, Code};
use stager_core::ids::{check_id, check_relative_path};
use stager_core::learn::START;
use stager_core::queue::DEMAND_BELOW;
use stager_core::record::Source;
use stager_core::replica::ReplicaKey;
use stager_core::space::Holder;

pub use table::Transfers;

use chain::Chain;
use completion::{end_unstarted, fact_done, lease_name, take_back};
use partial::claim;
use table::{Transfer, TransferTable};

use crate::context::Cause;
use crate::failure::bad_request;
use crate::replicas;
use crate::wire::{
    AskedAnswer, AskedAnswers, AskedTransfer, Fact, SourceAnswer, TransferAnswer, TransferKind, TransferRequest, TransferStatus,
    TransfersRequest, UploadRequest,
};

/// Accepts a transfer; the same id again only changes the priority, and lets go of one that is held.
pub async fn put(
    transfers: &Arc<Transfers>,
    cause: Cause,
    transfer_id: &str,
    request: TransferRequest,
) -> Result<TransferAnswer, ApiError> {
    let hold = matches!(&request, TransferRequest::Copy(copy) if copy.hold);
    let (answer, fresh) = accept(transfers, &cause, transfer_id, &request)?;
    if let (true, TransferRequest::Copy(copy)) = (fresh, &request) {
        let mut chain = Chain::for_maker(transfers, &cause, transfer_id, &request.key(), copy.replicas.as_ref());
        if let Err(error) = chain.hold(&copy.expected).await {
            take_back(transfers, transfer_id);
            return Err(error);
        }
    }
    match hold {
        true if fresh => held::watch(transfers, transfer_id),
        true => {}
        false => let_go(transfers, transfer_id),
    }
    Ok(answer)
}

/// Each as by `put`, and refused for itself. They come into the queue in this order, and none waits for the chain of another.
pub async fn put_all(transfers: &Arc<Transfers>, cause: &Cause, asked: TransfersRequest) -> AskedAnswers {
    let one = |asked: AskedTransfer| async move {
        check_id("transfer id", &asked.transfer_id)?;
        asked.command_id.as_deref().map_or(Ok(()), |command_id| check_id("command id", command_id))?;
        let cause = Cause { command_id: asked.command_id, ..cause.clone() };
        put(transfers, cause, &asked.transfer_id, asked.request).await
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
fn let_go(transfers: &Arc<Transfers>, transfer_id: &str) {
    let mut table = transfers.table();
    let Some(transfer) = table.by_id.get_mut(transfer_id).filter(|transfer| transfer.held) else { return };
    transfer.held = false;
    let (lane, priority) = (transfer.request.lane(transfer.bytes_total), transfer.request.priority());
    let small = copy_pack::fits(&transfers.context, transfer);
    if small {
        table.small.entry(lane.clone()).or_default().push(transfer_id.to_string());
    }
    let at_once = match request::is_small(&lane) {
        true => transfers.context.origin(request::origin_of(&lane)).map_or(START, |open| open.origin.capabilities().small_uploads_at_once),
        false => START,
    };
    table.queue.push(&lane, transfer_id, priority, at_once);
    drop(table);
    run::start_waiting(transfers);
}

/// `true`: it is new here, and held.
fn accept(transfers: &Transfers, cause: &Cause, transfer_id: &str, request: &TransferRequest) -> Result<(TransferAnswer, bool), ApiError> {
    let key = request.key();
    check_id("file_id", &key.file_id)?;
    check_id("generation", &key.generation)?;
    request.place().map_or(Ok(()), |place| check_relative_path(&place.path))?;
    let mut table = transfers.table();
    if let Some(known) = table.by_id.get(transfer_id) {
        let answer = known.answer();
        known.priority.set(request.priority() < DEMAND_BELOW);
        table.queue.set_priority(transfer_id, request.priority());
        return Ok((answer, false));
    }
    transfers.context.refuse_if_draining(transfer_id)?;
    check_nodes(transfers, request)?;
    request.place().map_or(Ok(()), |place| transfers.context.origin(&place.origin_id).map(drop))?;
    let mut transfer = match request {
        TransferRequest::Fetch(fetch) => {
            let origin = transfers.context.origin(&fetch.source.origin_id)?.identity;
            let source = fetch.expected.token.as_ref().map(|token| fetch::source(fetch, &origin, token));
            accept_incoming(transfers, &table, cause, transfer_id, request, fetch::held_bytes(fetch)?, source)?
        }
        TransferRequest::Copy(copy) => {
            accept_incoming(transfers, &table, cause, transfer_id, request, copy.expected.size_bytes, Some(copy::place(copy)))?
        }
        TransferRequest::Push(push) => {
            accept_incoming(transfers, &table, cause, transfer_id, request, push.expected.size_bytes, Some(push::place(push)))?
        }
        TransferRequest::Upload(upload) => accept_upload(transfers, cause, transfer_id, upload)?,
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

fn check_nodes(transfers: &Transfers, request: &TransferRequest) -> Result<(), ApiError> {
    if let TransferRequest::Fetch(fetch) = request {
        fetch.parts.as_ref().map_or(Ok(()), |parts| assembly::check(transfers, fetch, parts))?;
    }
    if let TransferRequest::Copy(copy) = request {
        if copy.sources.is_empty() || (copy.expected.blake3.is_none() && copy.expected.identity.is_none()) {
            return Err(bad_request(&copy.file_id, "a copy names its sources, and the BLAKE3 or the identity of the content; name them"));
        }
        copy.sources.iter().try_for_each(|source| check_id("generation", &source.generation))?;
        copy.held_for.iter().try_for_each(|transfer_id| check_id("transfer id", transfer_id))?;
        copy.sources.iter().try_for_each(|source| transfers.peers.get(&source.node_id).map(drop))?;
    }
    chain::check(transfers, request.replicas().map_or(&[], |replicas| replicas.chain.as_slice()))
}

fn accept_incoming(
    transfers: &Transfers,
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
    let here = transfers.context.accounting().index.readable(&key).cloned().ok().filter(|replica| replica.stripes == wanted);
    if let Some(replica) = here {
        if request.replicas().is_some_and(|replicas| !replicas.chain.is_empty()) || request.kind() != TransferKind::Fetch {
            return Ok(transfer);
        }
        let done = fact_done(transfer_id, request.kind(), &replica, 0, 0.0, None);
        transfer.event = Some(transfers.context.emit(cause, Fact::TransferDone(done)));
        transfer.state = TransferStatus::Done;
        return Ok(transfer);
    }
    let taken = transfers.context.accounting().index.replica(&key).is_some() || transfers.context.accounting().index.is_leaving(&key);
    if taken || table.incoming.contains_key(&key) || transfers.packed.is_making(&key) || transfers.context.in_flight.get(&key).is_some() {
        let message = format!("replica {key} is being made, deleted or quarantined on this node; fetch it under a new generation");
        return Err(ApiError::new(Code::ReplicaBusy, &key.file_id, message));
    }
    let holder = Holder::Transfer(transfer_id.to_string());
    // Claimed before the space is asked for: an earlier try's bytes must not be given up for going on with them.
    transfer.partial = transfers.context.reserve_with(holder, &key.file_id, size_bytes, |index| {
        source.and_then(|source| claim(index, &key.file_id, &source, size_bytes))
    })?;
    Ok(transfer)
}

fn accept_upload(transfers: &Transfers, cause: &Cause, transfer_id: &str, upload: &UploadRequest) -> Result<Transfer, ApiError> {
    let request = TransferRequest::Upload(upload.clone());
    let mut accounting = transfers.context.accounting();
    accounting.index.lease(&lease_name(transfer_id), &[request.key()])?;
    let size_bytes = accounting.index.readable(&request.key())?.size_bytes;
    Ok(Transfer::new(request, cause.clone(), size_bytes))
}

/// What a peer asks before it reads a replica; of one that has to wait for its turn to come here, that it has.
pub async fn source(transfers: &Transfers, key: &ReplicaKey, wait: Duration) -> Result<SourceAnswer, ApiError> {
    match replicas::source(&transfers.context, key, wait).await {
        Err(error) if error.code == Code::ReplicaUnknown && transfers.table().incoming.contains_key(key) => {
            let message = format!("replica {key} waits for its turn to come to this node; ask again");
            Err(ApiError::new(Code::ReplicaBusy, &key.file_id, message))
        }
        outcome => outcome,
    }
}

/// The node ends: what has not begun is for another node, or for this one when it is back.
pub fn hand_back_waiting(transfers: &Transfers) {
    let waiting = {
        let mut table = transfers.table();
        let held = table.by_id.iter_mut().filter_map(|(id, transfer)| std::mem::take(&mut transfer.held).then(|| id.clone()));
        let held: Vec<String> = held.collect();
        held.into_iter().chain(table.queue.clear()).collect::<Vec<_>>()
    };
    for transfer_id in waiting {
        let message =
            format!("the node {} stopped before it began the transfer {transfer_id}; ask for it again", transfers.context.node_id);
        let error = ApiError::new(Code::Draining, &transfer_id, message);
        end_unstarted(transfers, &transfer_id, Some(error));
    }
}

pub fn cancel(transfers: &Transfers, transfer_id: &str) -> Result<TransferAnswer, ApiError> {
    let mut table = transfers.table();
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
        end_unstarted(transfers, transfer_id, None);
        let table = transfers.table();
        if let Some(transfer) = table.by_id.get(transfer_id) {
            answer = transfer.answer();
        }
    }
    Ok(answer)
}
