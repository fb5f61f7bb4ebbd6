//! A replica: one content on this node, as it goes over the wire and into the log. May know nothing of where it lies.
//!
//! The one rule: a replica is named by file id and generation together, never by one of them.

use serde::{Deserialize, Serialize};

use crate::stripes::Layout;

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplicaKey {
    pub file_id: String,
    pub generation: String,
}

impl ReplicaKey {
    pub fn new(file_id: impl Into<String>, generation: impl Into<String>) -> Self {
        Self { file_id: file_id.into(), generation: generation.into() }
    }
}

impl std::fmt::Display for ReplicaKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.file_id, self.generation)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplicaKind {
    File,
    Directory,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplicaState {
    Present,
    Quarantined,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replica {
    pub file_id: String,
    pub generation: String,
    pub kind: ReplicaKind,
    pub size_bytes: u64,
    pub blake3: String,
    pub crc64nvme: String,
    pub sha256: Option<String>,
    pub executable: bool,
    pub members: Option<u64>,
    pub token: Option<String>,
    pub state: ReplicaState,
    /// Only these stripes of a file are here, back to back: size and digests are theirs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stripes: Option<Layout>,
}

impl Replica {
    pub fn key(&self) -> ReplicaKey {
        ReplicaKey::new(&self.file_id, &self.generation)
    }
}
