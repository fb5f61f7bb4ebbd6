//! How transfers end: what they held is given back, and their end is told. Knows the table and the accounting.
//!
//! The one rule: an acknowledgement never overtakes the result that it is for.

use std::time::{Duration, Instant};

use stager_core::error::ApiError;
use stager_core::replica::Replica;
use stager_core::space::Holder;
use stager_origins::Verified;

use super::chain::Chain;
use super::table::{Transfer, Transfers};
use crate::context::{Cause, NodeContext};
use crate::metrics::{self, Failure, TransferEnd};
use crate::wire::{Fact, TransferDone, TransferKind, TransferRequest, TransferStatus};

/// How a push ended is kept so long for who pushed, whoever acknowledges its event.
const CLIENTS_ASK_WITHIN: Duration = Duration::from_secs(60);

/// A transfer cancelled while it waited, or failed.
pub fn end_unstarted(transfers: &Transfers, transfer_id: &str, error: Option<ApiError>) {
    let taken = {
        transfers
            .table()
            .by_id
            .get_mut(transfer_id)
            .map(|transfer| (transfer.request.clone(), transfer.cause.clone(), transfer.partial.take()))
    };
    let Some((request, cause, partial)) = taken else { return };
    if let Some(partial) = partial {
        transfers.context.accounting().index.put_partial(partial, false);
    }
    give_back(&transfers.context, transfer_id, &request);
    call_off_chain(transfers, transfer_id, &cause, &request);
    let transfer_id = transfer_id.to_string();
    let (state, fact) = match error {
        Some(error) => {
            let transfer_kind = request.kind();
            (TransferStatus::Failed, Fact::TransferFailed { transfer_id: transfer_id.clone(), transfer_kind, error, replication: None })
        }
        None => (TransferStatus::Cancelled, Fact::TransferCancelled { transfer_id: transfer_id.clone() }),
    };
    settle(transfers, &transfer_id, &cause, state, fact);
}

/// One whose chain refused it: it was never accepted.
pub fn take_back(transfers: &Transfers, transfer_id: &str) {
    let Some(transfer) = transfers.table().take_out(transfer_id) else { return };
    if let Some(partial) = transfer.partial {
        transfers.context.accounting().index.put_partial(partial, false);
    }
    give_back(&transfers.context, transfer_id, &transfer.request);
}

pub fn call_off_chain(transfers: &Transfers, transfer_id: &str, cause: &Cause, request: &TransferRequest) {
    Chain::for_maker(transfers, cause, transfer_id, &request.key(), request.replicas()).call_off();
}

pub fn give_back(context: &NodeContext, transfer_id: &str, request: &TransferRequest) {
    let mut accounting = context.accounting();
    match request.kind() {
        TransferKind::Fetch | TransferKind::Copy | TransferKind::Push => {
            accounting.index.space.release(&Holder::Transfer(transfer_id.to_string()));
        }
        TransferKind::Upload => accounting.index.end_lease(&lease_name(transfer_id)),
    }
}

pub fn settle(transfers: &Transfers, transfer_id: &str, cause: &Cause, state: TransferStatus, fact: Fact) {
    // The table is held over the event, so that an acknowledgement never overtakes the result it is for.
    let mut table = transfers.table();
    count_end(state, &fact, table.by_id.get(transfer_id));
    let event = transfers.context.emit(cause, fact);
    let Some(transfer) = table.by_id.get_mut(transfer_id) else { return };
    transfer.state = state;
    transfer.event = Some(event);
    transfer.told_by = (transfer.request.kind() == TransferKind::Push).then(|| Instant::now() + CLIENTS_ASK_WITHIN);
    let request = transfer.request.clone();
    table.came(&request);
}

fn count_end(state: TransferStatus, fact: &Fact, transfer: Option<&Transfer>) {
    let Some(kind) = transfer.map(|transfer| transfer.request.kind().word()) else { return };
    let counts = metrics::counts();
    counts.transfers_ended.get_or_create(&TransferEnd { kind, outcome: state.word() }).inc();
    if let Fact::TransferFailed { error, .. } = fact {
        counts.transfers_failed.get_or_create(&Failure { kind, code: error.code.to_string() }).inc();
    }
}

pub fn fact_done(
    transfer_id: &str,
    kind: TransferKind,
    replica: &Replica,
    bytes_moved: u64,
    duration_s: f64,
    verified: Option<Verified>,
) -> TransferDone {
    TransferDone {
        transfer_id: transfer_id.to_string(),
        file_id: replica.file_id.clone(),
        generation: replica.generation.clone(),
        transfer_kind: kind,
        size_bytes: replica.size_bytes,
        blake3: replica.blake3.clone(),
        crc64nvme: replica.crc64nvme.clone(),
        sha256: replica.sha256.clone(),
        token: replica.token.clone(),
        bytes_moved,
        duration_s,
        verified,
        synced: None,
        replication: None,
    }
}

/// Not in the alphabet of attempt ids, so it can never be one.
pub fn lease_name(transfer_id: &str) -> String {
    format!("transfer:{transfer_id}")
}
