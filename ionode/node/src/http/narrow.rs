//! What another node, or a ticket, may ask within the calls that its role allows: of copies, of packs, of attempts.
//!
//! The one rule: a node may offer its own contents and take others', and may neither delete nor learn what was asked by somebody else; a
//! ticket is of one attempt.

use stager_core::error::ApiError;
use stager_core::replica::ReplicaKey;

use crate::attempts::Attempts;
use crate::pack_format::Ask;
use crate::tls::roles::Role;
use crate::transfers::Transfers;
use crate::wire::TransferRequest;

fn node_of(role: Option<&Role>) -> Option<&str> {
    match role {
        Some(Role::Node(id)) => Some(id),
        _ => None,
    }
}

/// It gives the content, or is to get it.
fn concerns(node_id: &str, request: &TransferRequest) -> bool {
    gives(node_id, request) || request.replicas().is_some_and(|wanted| wanted.chain.iter().any(|id| id == node_id))
}

fn gives(node_id: &str, request: &TransferRequest) -> bool {
    matches!(request, TransferRequest::Copy(copy) if copy.sources.iter().all(|source| source.node_id == node_id))
}

pub fn to_copies_from_itself(role: Option<&Role>, request: &TransferRequest) -> Result<(), ApiError> {
    match (role, node_of(role)) {
        (Some(role), Some(node_id)) if !gives(node_id, request) => Err(role.refused("a transfer that is no copy from itself")),
        _ => Ok(()),
    }
}

/// A transfer that nobody knows has nobody's secrets: the answer to that is the call's own.
pub fn to_its_own(role: Option<&Role>, transfers: &Transfers, transfer_id: &str) -> Result<(), ApiError> {
    let (Some(role), Some(node_id)) = (role, node_of(role)) else { return Ok(()) };
    match transfers.request(transfer_id) {
        Some(request) if !concerns(node_id, &request) => Err(role.refused("asking about a transfer of others")),
        _ => Ok(()),
    }
}

/// A ticket is of one attempt.
pub fn to_its_attempt(role: Option<&Role>, attempt_id: &str) -> Result<(), ApiError> {
    match role {
        Some(role @ Role::Ticket(own)) if own != attempt_id => Err(role.refused("a call of another attempt")),
        _ => Ok(()),
    }
}

/// And allows to read the inputs of that one.
pub fn to_its_inputs(role: Option<&Role>, attempts: &Attempts, key: &ReplicaKey) -> Result<(), ApiError> {
    match role {
        Some(role @ Role::Ticket(own)) if !attempts.remotes.may_read(own, key) => Err(role.refused("reading what is not its input")),
        _ => Ok(()),
    }
}

pub fn of_pack(role: Option<&Role>, attempts: &Attempts, asked: Vec<Result<Ask, ApiError>>) -> Vec<Result<Ask, ApiError>> {
    let Some(role) = role.filter(|role| matches!(role, Role::Node(_) | Role::Ticket(_))) else { return asked };
    let narrowed = |ask: Ask| match (ask, role) {
        (Ask::Delete(_), _) => Err(role.refused("deleting a replica")),
        (Ask::Put { .. }, Role::Ticket(_)) => Err(role.refused("making a replica")),
        (ask, _) => to_its_inputs(Some(role), attempts, ask.key()).map(|()| ask),
    };
    asked.into_iter().map(|ask| ask.and_then(narrowed)).collect()
}
