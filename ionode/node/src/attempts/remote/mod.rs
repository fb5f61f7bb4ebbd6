//! A job's stay on a host that shares no files with the node: opened, its outputs sent, committed, released, closed.
//!
//! The one rule: what was sent counts for nothing before its commit, and after its close there is no commit.

mod open;
mod provisional;
mod table;
mod tickets;

use std::sync::Arc;

use serde_json::Value;
use stager_core::error::{ApiError, Code};
use stager_core::space::Holder;

pub use open::open;
pub use provisional::{announce, put_small, Arriving};
pub use table::Remotes;
use table::{closed, drop_sent, remove, save, Remote, TREE};

use super::stage_out;
use super::table::Attempts;
use crate::blocking::blocking;
use crate::clock::now_s;
use crate::failure::{bad_request, Failure};
use crate::wire::{
    AttemptAnswer, AttemptState, BriefAnswer, CloseAnswer, CommitRequest, Output, ReleaseAnswer, RemoteRelease, StageOutAnswer,
    StageOutRequest,
};

/// What a stage-out of them would be asked, but for the sandbox.
fn body(outputs: &[Output], reservation_id: &str, want_sha256: bool) -> StageOutRequest {
    StageOutRequest {
        sandbox_dir: String::new(),
        reservation_id: reservation_id.to_string(),
        outputs: outputs.to_vec(),
        mounts: Vec::new(),
        keep: Vec::new(),
        want_sha256,
        release: None,
        replicas: None,
    }
}

pub fn about(attempts: &Attempts, attempt_id: &str) -> Result<AttemptAnswer, ApiError> {
    let known = attempts.remotes.get(attempt_id).ok_or_else(|| closed(attempt_id))?;
    Ok(AttemptAnswer { state: known.state, inputs: known.inputs, outputs: known.outputs })
}

pub fn brief(attempts: &Attempts, attempt_id: &str) -> Result<BriefAnswer, ApiError> {
    let known = attempts.remotes.get(attempt_id).ok_or_else(|| closed(attempt_id))?;
    match known.brief {
        Some(brief) => Ok(BriefAnswer { brief: Value::clone(&brief) }),
        None => {
            let message = format!("the node was started anew and was not told the brief of {attempt_id} again; call again when it was");
            Err(ApiError::new(Code::BriefUnknown, attempt_id, message))
        }
    }
}

/// All outputs in one record, or none. The same again gets the same answer.
pub async fn commit(attempts: Arc<Attempts>, attempt_id: String, request: CommitRequest) -> Result<StageOutAnswer, Failure> {
    let lock = attempts.lock_of(&attempt_id);
    let _locked = lock.lock().await;
    let mut known = open_or_committed(&attempts, &attempt_id)?;
    let mut answer = match known.answer.clone() {
        Some(answer) => answer,
        None => {
            let tree = attempts.context.store.remote_path(&attempt_id).join(TREE);
            provisional::require_all(&attempts, &attempt_id, &known)?;
            let body = body(&known.outputs, &known.reservation_id, request.want_sha256);
            let answer = stage_out::take(attempts.clone(), attempt_id.clone(), body, tree).await?;
            known.answer = Some(answer.clone());
            known.state = AttemptState::Committed;
            keep(&attempts, &attempt_id, &known).await?;
            answer
        }
    };
    if let Some(request) = request.release {
        answer.released = Some(let_go(&attempts, &attempt_id, known, request).await?);
    }
    Ok(answer)
}

fn open_or_committed(attempts: &Attempts, attempt_id: &str) -> Result<Remote, ApiError> {
    let known = attempts.remotes.get(attempt_id).filter(|known| known.state != AttemptState::Closed);
    known.filter(|known| known.state != AttemptState::Released || known.answer.is_some()).ok_or_else(|| closed(attempt_id))
}

/// In the record, then in the table. What was sent has no more use.
async fn keep(attempts: &Attempts, attempt_id: &str, known: &Remote) -> Result<(), ApiError> {
    let (path, record) = (attempts.context.store.remote_path(attempt_id), known.clone());
    blocking(move || {
        save(&path, &record)?;
        drop_sent(&path)
    })
    .await?;
    attempts.remotes.remember(attempt_id, Remote { sent: None, ..known.clone() });
    Ok(())
}

/// Leases end, what was sent and not committed goes.
pub async fn release(attempts: Arc<Attempts>, attempt_id: String, request: RemoteRelease) -> Result<ReleaseAnswer, ApiError> {
    let lock = attempts.lock_of(&attempt_id);
    let _locked = lock.lock().await;
    let known = attempts.remotes.get(&attempt_id).ok_or_else(|| closed(&attempt_id))?;
    let_go(&attempts, &attempt_id, known, request).await
}

async fn let_go(attempts: &Attempts, attempt_id: &str, mut known: Remote, request: RemoteRelease) -> Result<ReleaseAnswer, ApiError> {
    if let Some(other) = request.reservation_id.as_ref().filter(|id| **id != known.reservation_id) {
        return Err(bad_request(other, format!("{other} is not the reservation of the attempt {attempt_id}; name its own")));
    }
    if known.state != AttemptState::Released {
        known.state = AttemptState::Released;
        keep(attempts, attempt_id, &known).await?;
    }
    let mut accounting = attempts.context.accounting();
    accounting.index.end_lease(attempt_id);
    if let Some(reservation_id) = request.reservation_id {
        accounting.index.space.release(&Holder::Named(reservation_id));
    }
    Ok(ReleaseAnswer { changed: Vec::new(), direct: Vec::new() })
}

/// From here on nothing of it is taken. A commit that came first stays, and is told as often as it is asked.
pub async fn close(attempts: Arc<Attempts>, attempt_id: String) -> Result<CloseAnswer, ApiError> {
    let lock = attempts.lock_of(&attempt_id);
    let _locked = lock.lock().await;
    let Some(mut known) = attempts.remotes.get(&attempt_id) else {
        return match attempts.get(&attempt_id) {
            Some(_) => Err(bad_request(&attempt_id, format!("the attempt {attempt_id} is staged in on this host; release it"))),
            None => Ok(CloseAnswer { state: AttemptState::Closed, outputs: Vec::new() }),
        };
    };
    {
        let mut accounting = attempts.context.accounting();
        accounting.index.end_lease(&attempt_id);
        if let Some(reservation) = known.reservation.take() {
            accounting.index.space.release(&Holder::Named(reservation.id));
        }
    }
    let Some(answer) = known.answer.clone() else {
        forget(&attempts, &attempt_id).await?;
        return Ok(CloseAnswer { state: AttemptState::Closed, outputs: Vec::new() });
    };
    if known.state != AttemptState::Closed {
        known.state = AttemptState::Closed;
        known.closed_at_s = Some(now_s());
        known.brief = None;
        keep(&attempts, &attempt_id, &known).await?;
        for overdue in attempts.remotes.overdue() {
            forget(&attempts, &overdue).await?;
        }
    }
    Ok(CloseAnswer { state: AttemptState::Committed, outputs: answer.outputs })
}

async fn forget(attempts: &Attempts, attempt_id: &str) -> Result<(), ApiError> {
    let path = attempts.context.store.remote_path(attempt_id);
    attempts.remotes.forget(attempt_id);
    blocking(move || remove(&path, |path| std::fs::remove_dir_all(path))).await
}
