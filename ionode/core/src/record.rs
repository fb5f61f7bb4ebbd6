//! What the log says of replicas: each record is one fact about the store. May know nothing of framing or files.
//!
//! The one rule: the fold of all records in order is the index; nothing else is true about the store.

use serde::{Deserialize, Serialize};

use crate::replica::{Replica, ReplicaKey};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    Commit { replicas: Vec<Replica> },
    Delete { key: ReplicaKey },
    Quarantine { key: ReplicaKey },
    Epoch { epoch: u64 },
    Partial(Partial),
    PartialGone { key: ReplicaKey },
}

/// A fetch that has not ended: its first `watermark_bytes` are on disk and have this BLAKE3.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partial {
    pub key: ReplicaKey,
    pub source: Source,
    pub size_bytes: u64,
    pub watermark_bytes: u64,
    pub prefix_blake3: String,
}

/// Which content at which place the bytes came from. Only equal sources may be joined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// The identity of the origin (kind, host, base), not its id: ids may be given anew, places stay.
    pub origin: String,
    pub path: String,
    pub token: String,
}
