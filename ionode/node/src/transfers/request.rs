//! What a request for a transfer says of itself: what it makes, from where, in which queue. Knows the wire, not how transfers run.
//!
//! The one rule: whoever tells kinds of transfers apart asks here.

use stager_core::replica::ReplicaKey;

use crate::wire::{FetchRequest, Place, ReplicasWanted, TransferKind, TransferRequest, UploadRequest};

const SMALL_UPLOAD_BYTES: u64 = 256 << 10;
const SMALL_LANE: &str = "small:";

/// Whose lane it is.
pub fn origin_of(lane: &str) -> &str {
    lane.strip_prefix(SMALL_LANE).unwrap_or(lane)
}

pub(super) fn is_small(lane: &str) -> bool {
    lane.starts_with(SMALL_LANE)
}

impl TransferRequest {
    pub fn kind(&self) -> TransferKind {
        match self {
            Self::Fetch(_) => TransferKind::Fetch,
            Self::Copy(_) => TransferKind::Copy,
            Self::Push(_) => TransferKind::Push,
            Self::Upload(_) => TransferKind::Upload,
        }
    }

    pub fn key(&self) -> ReplicaKey {
        match self {
            Self::Fetch(fetch) => ReplicaKey::new(&fetch.file_id, &fetch.generation),
            Self::Copy(copy) => ReplicaKey::new(&copy.file_id, &copy.generation),
            Self::Push(push) => ReplicaKey::new(&push.file_id, &push.generation),
            Self::Upload(upload) => ReplicaKey::new(&upload.file_id, &upload.generation),
        }
    }

    /// Where the bytes come from or go to, if it is an origin.
    pub(super) fn place(&self) -> Option<&Place> {
        match self {
            Self::Fetch(fetch) => Some(&fetch.source),
            Self::Copy(_) | Self::Push(_) => None,
            Self::Upload(upload) => Some(&upload.destination),
        }
    }

    /// The other side: an origin's id, of a copy the id of the node that is asked first, of a push nothing.
    pub(super) fn other_side(&self) -> &str {
        match self {
            Self::Push(_) => "",
            Self::Copy(copy) => copy.sources.first().map_or("", |source| source.node_id.as_str()),
            Self::Fetch(FetchRequest { source: place, .. }) | Self::Upload(UploadRequest { destination: place, .. }) => &place.origin_id,
        }
    }

    /// What it queues with. A node's name is never an origin's: `:` is in no id. Small files that go home wait behind no large ones, nor
    /// those behind them.
    pub(super) fn lane(&self, size_bytes: u64) -> String {
        match self {
            Self::Copy(_) => format!("node:{}", self.other_side()),
            // The part that this node fetches must never wait for what is made of it.
            Self::Fetch(FetchRequest { parts: Some(_), .. }) => format!("parts:{}", self.other_side()),
            Self::Upload(_) if size_bytes <= SMALL_UPLOAD_BYTES => format!("{SMALL_LANE}{}", self.other_side()),
            Self::Push(_) => "push:".to_string(),
            _ => self.other_side().to_string(),
        }
    }

    pub fn replicas(&self) -> Option<&ReplicasWanted> {
        match self {
            Self::Fetch(fetch) => fetch.replicas.as_ref(),
            Self::Copy(copy) => copy.replicas.as_ref(),
            Self::Push(push) => push.replicas.as_ref(),
            Self::Upload(_) => None,
        }
    }

    pub(super) fn priority(&self) -> i64 {
        match self {
            Self::Fetch(fetch) => fetch.priority,
            Self::Copy(copy) => copy.priority,
            Self::Push(push) => push.priority,
            Self::Upload(upload) => upload.priority,
        }
    }
}
