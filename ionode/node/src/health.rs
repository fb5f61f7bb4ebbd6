//! Whether this node can take new work, and why not. Knows the disk under the store, the commit log's state and the drain.
//!
//! The one rule: a reason is one word, the same in `/readyz`, in the metrics and in the documents.

use std::path::Path;

use crate::node::Node;

pub const DISK_FULL: &str = "disk_full";
pub const DRAINING: &str = "draining";
pub const JOURNAL_BROKEN: &str = "journal_broken";
pub const REASONS: [&str; 3] = [DISK_FULL, DRAINING, JOURNAL_BROKEN];

/// With less than this free the commit log may not take the next record, not even that of a delete.
const DISK_ROOM_BYTES_MIN: u64 = 16 << 20;

/// Empty: ready.
pub fn unready(node: &Node) -> Vec<&'static str> {
    let full = disk_available_bytes(node.store.root()).is_some_and(|available| available < DISK_ROOM_BYTES_MIN);
    let held = [(DISK_FULL, full), (DRAINING, node.is_draining()), (JOURNAL_BROKEN, node.store.is_broken())];
    held.into_iter().filter(|(_, holds)| *holds).map(|(reason, _)| reason).collect()
}

/// To this process, on the file system of the store.
pub fn disk_available_bytes(root: &Path) -> Option<u64> {
    let found = nix::sys::statvfs::statvfs(root).ok()?;
    Some(found.blocks_available() as u64 * found.fragment_size() as u64)
}
