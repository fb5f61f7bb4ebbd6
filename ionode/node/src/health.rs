//! Whether this node can take new work, and why not. Knows the disk under the store, the log's state and the drain.
//!
//! The one rule: a reason is one word, the same in `/readyz`, in the metrics and in the documents.

use std::path::Path;

use stager_store::Health;

use crate::context::NodeContext;

pub const DISK_FULL: &str = "disk_full";
pub const DRAINING: &str = "draining";
pub const LOG_FAILING: &str = "log_failing";
pub const REASONS: [&str; 3] = [DISK_FULL, DRAINING, LOG_FAILING];

/// With less than this free the log may not take the next record, not even that of a delete.
const DISK_FREE_BYTES_MIN: u64 = 16 << 20;

/// Empty: ready.
pub fn unready(context: &NodeContext) -> Vec<&'static str> {
    let full = disk_available_bytes(context.store.root()).is_some_and(|available| available < DISK_FREE_BYTES_MIN);
    let log = context.store.log.health();
    let held =
        [(DISK_FULL, full || log == Health::Full), (DRAINING, context.is_draining()), (LOG_FAILING, matches!(log, Health::Failing(_)))];
    held.into_iter().filter(|(_, holds)| *holds).map(|(reason, _)| reason).collect()
}

/// To this process, on the file system of the store.
pub fn disk_available_bytes(root: &Path) -> Option<u64> {
    let found = nix::sys::statvfs::statvfs(root).ok()?;
    Some(found.blocks_available() as u64 * found.fragment_size() as u64)
}
