//! Copies that are held for a transfer of the node before them in their chain. Knows whom to ask, not what is copied.
//!
//! The one rule: a copy is held no longer than the transfer it is held for goes on: a holder that died calls nothing off.

use std::sync::Arc;
use std::time::{Duration, Instant};

use stager_core::error::{ApiError, Class};

use super::chain::LOST_WITHIN;
use super::completion::end_unstarted;
use super::table::Transfers;
use crate::peers::link::Term;
use crate::wire::{TransferAnswer, TransferRequest};

/// For how long a node may make those behind it in a chain wait.
const HELD_MAX: Duration = Duration::from_secs(3600);
/// Most are let go before it is looked for the first time.
const LOOK_EVERY: Duration = Duration::from_secs(5);

pub(super) fn watch(transfers: &Arc<Transfers>, transfer_id: &str) {
    let (transfers, transfer_id) = (transfers.clone(), transfer_id.to_string());
    tokio::spawn(async move {
        let why = tokio::select! {
            why = tokio::time::timeout(HELD_MAX, forsaken(&transfers, &transfer_id)) => {
                why.unwrap_or_else(|_| "it was held for too long".into())
            }
            () = transfers.context.shutdown.cancelled() => return,
        };
        let held = transfers.table().by_id.get_mut(&transfer_id).is_some_and(|transfer| std::mem::take(&mut transfer.held));
        if held {
            tracing::warn!(transfer_id, why, "a copy that was held for the node before it in its chain is given up");
            end_unstarted(&transfers, &transfer_id, None);
        }
    });
}

/// Returns when it is held no more, or nobody is left who would let it go.
async fn forsaken(transfers: &Transfers, transfer_id: &str) -> String {
    let mut lost_since: Option<Instant> = None;
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        match ask(transfers, transfer_id).await {
            Some(Ok(answer)) if !answer.state.is_over() => lost_since = None,
            Some(Ok(_)) => return "the copy that it waited for is over".into(),
            Some(Err(error)) if error.class != Class::Transient => return error.message,
            Some(Err(error)) if lost_since.get_or_insert_with(Instant::now).elapsed() >= LOST_WITHIN => return error.message,
            Some(Err(_)) => {}
            None => return String::new(),
        }
    }
}

/// How that stands which it is held for; nothing where it is not held.
async fn ask(transfers: &Transfers, transfer_id: &str) -> Option<Result<TransferAnswer, ApiError>> {
    let (holder, held_for, epoch) = {
        let table = transfers.table();
        let transfer = table.by_id.get(transfer_id).filter(|transfer| transfer.held)?;
        let TransferRequest::Copy(copy) = &transfer.request else { return None };
        (copy.sources.first()?.node_id.clone(), copy.held_for.clone(), transfer.cause.epoch)
    };
    // Who did not say what for is waited for until it is too long.
    let Some(held_for) = held_for else { return std::future::pending().await };
    Some(match transfers.peers.get(&holder) {
        Ok(link) => link.transfer(Term::Of(epoch), &held_for, false).await,
        Err(error) => Err(error),
    })
}
