//! A job's stay on this host: its sandbox, what it reads by link, what it leaves. Knows the store and sandboxes, no network.
//!
//! The one rule: an attempt is remembered in a file of its own, so leases outlive the node's process, as the job does.

mod direct;
mod release;
pub mod remote;
mod stage_in;
mod stage_out;
mod table;

use std::sync::Arc;

pub use release::release;
pub use stage_in::stage_in;
pub use table::Attempts;

use crate::context::Cause;
use crate::failure::Failure;
use crate::packs;
use crate::transfers::chain;
use crate::wire::{Ack, StageOutAnswer, StageOutRequest};

/// With the copies and the release that follow, if they were asked for. What is committed stays committed: a release that fails is left to a call of its own.
pub async fn stage_out(
    attempts: Arc<Attempts>,
    cause: Cause,
    attempt_id: String,
    mut request: StageOutRequest,
) -> Result<StageOutAnswer, Failure> {
    let follows = request.release.take();
    let wanted = request.replicas.take();
    chain::check(&attempts.transfers, wanted.as_ref().map_or(&[], |wanted| wanted.chain.as_slice()))?;
    let mut answer = stage_out::stage_out(attempts.clone(), attempt_id.clone(), request).await?;
    if let Some(wanted) = wanted.filter(|wanted| !wanted.chain.is_empty()) {
        let told = packs::chain::replicate(&attempts.packs, &cause, &attempt_id, &answer.outputs, &wanted).await;
        answer.replication = Some(told).filter(|_| wanted.ack == Ack::Sync);
    }
    if let Some(request) = follows {
        let released = release(attempts, cause, attempt_id.clone(), request).await;
        answer.released = released.map_err(|error| tracing::warn!(attempt_id, %error, "an attempt is not released yet")).ok();
    }
    Ok(answer)
}
