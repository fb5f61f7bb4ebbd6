//! The opening of an attempt on another host: what it may read and write, and the ticket that says so.
//!
//! The one rule: all or nothing; an attempt that could not be opened holds no lease.

use std::sync::Arc;

use stager_core::error::{ApiError, Code};
use stager_core::ids::check_id;
use stager_core::replica::ReplicaKey;

use super::super::stage_in::check_inputs;
use super::super::stage_out::check_outputs;
use super::super::table::{boot_id, Attempts};
use super::table::{closed, save, Remote};
use super::{body, tickets};
use crate::blocking::blocking;
use crate::context::Cause;
use crate::failure::bad_request;
use crate::wire::{AttemptState, InputContent, OpenAnswer, OpenRequest, StageInRequest};

/// The same again gets the same answer; after a restart of the node it tells the brief again.
pub async fn open(attempts: Arc<Attempts>, cause: Cause, attempt_id: String, request: OpenRequest) -> Result<OpenAnswer, ApiError> {
    attempts.context.refuse_if_draining(&attempt_id)?;
    check(&attempt_id, &request)?;
    let lock = attempts.lock_of(&attempt_id);
    let _locked = lock.lock().await;
    let token = attempts.context.store.token();
    let asked = tickets::digest_of_request(token, &serde_json::to_vec(&request).expect("plain values"));
    let remote = match attempts.remotes.get(&attempt_id) {
        Some(known) => Remote { brief: Some(Arc::new(request.brief)), ..same(&attempt_id, known, &asked)? },
        None => fresh(&attempts, &cause, &attempt_id, request, asked).await?,
    };
    let answer = OpenAnswer { ticket: tickets::ticket(token, &attempt_id, &remote.nonce), inputs: remote.inputs.clone() };
    attempts.remotes.remember(&attempt_id, remote);
    Ok(answer)
}

fn check(attempt_id: &str, request: &OpenRequest) -> Result<(), ApiError> {
    if let Some(direct) = request.direct.first() {
        let message = format!("{} cannot be read directly at its origin from another host; have it fetched to the node", direct.path);
        return Err(ApiError::new(Code::Unsupported, &direct.path, message));
    }
    check_id("reservation id", &request.reservation_id)?;
    check_inputs(&StageInRequest { sandbox_dir: String::new(), inputs: request.inputs.clone(), direct: Vec::new(), reservation: None })?;
    check_outputs(&body(&request.outputs, &request.reservation_id, false))?;
    match request.reservation.as_ref().is_some_and(|reservation| reservation.id != request.reservation_id) {
        true => Err(bad_request(attempt_id, "the reservation has another id than reservation_id says; give both the same")),
        false => Ok(()),
    }
}

fn same(attempt_id: &str, known: Remote, asked: &str) -> Result<Remote, ApiError> {
    match (known.state, known.asked == asked) {
        (AttemptState::Closed, _) => Err(closed(attempt_id)),
        (_, true) => Ok(known),
        (_, false) => {
            let message = format!("the attempt {attempt_id} was opened before with another content; close it first or use a new id");
            Err(bad_request(attempt_id, message))
        }
    }
}

async fn fresh(attempts: &Attempts, cause: &Cause, attempt_id: &str, request: OpenRequest, asked: String) -> Result<Remote, ApiError> {
    if attempts.get(attempt_id).is_some() {
        return Err(bad_request(attempt_id, format!("the attempt {attempt_id} is staged in on this host; use a new id")));
    }
    if let Some(reservation) = &request.reservation {
        attempts.context.set_reservation(&reservation.id, reservation.bytes)?;
    }
    let mut leased: Vec<ReplicaKey> = request.inputs.iter().map(|input| ReplicaKey::new(&input.file_id, &input.generation)).collect();
    leased.sort();
    leased.dedup();
    attempts.context.accounting().index.lease(attempt_id, &leased)?;
    let opened = async {
        attempts.fingerprints.require_sound(cause, &leased).await?;
        let remote = recorded(attempts, cause, request, asked)?;
        let (path, record) = (attempts.context.store.remote_path(attempt_id), remote.clone());
        blocking(move || save(&path, &record)).await?;
        Ok(remote)
    };
    let outcome = opened.await;
    if outcome.is_err() {
        attempts.context.accounting().index.end_lease(attempt_id);
    }
    outcome
}

fn recorded(attempts: &Attempts, cause: &Cause, request: OpenRequest, asked: String) -> Result<Remote, ApiError> {
    let inputs = request.inputs.into_iter().map(|input| {
        let key = ReplicaKey::new(&input.file_id, &input.generation);
        let replica = crate::replicas::whole(attempts.context.accounting().index.readable(&key)?.clone())?;
        Ok(InputContent {
            file_id: replica.file_id,
            generation: replica.generation,
            path: input.path,
            kind: replica.kind,
            size_bytes: replica.size_bytes,
            blake3: replica.blake3,
            executable: replica.executable,
        })
    });
    Ok(Remote {
        boot_id: boot_id(),
        nonce: rand::random::<[u8; 16]>().iter().map(|byte| format!("{byte:02x}")).collect(),
        asked,
        epoch: cause.epoch,
        inputs: inputs.collect::<Result<Vec<InputContent>, ApiError>>()?,
        outputs: request.outputs,
        reservation_id: request.reservation_id,
        reservation: request.reservation,
        state: AttemptState::Open,
        answer: None,
        closed_at_s: None,
        brief: Some(Arc::new(request.brief)),
        sent: None,
    })
}
