//! The messages about replicas on several nodes: copies, pushes, chains, stripes.
//!
//! The one rule: that of the messages above; a field that only these have is left out where it says nothing.

use serde::{Deserialize, Serialize};

use stager_core::error::{ApiError, Code};
use stager_core::replica::ReplicaKind;
use stager_core::stripes::Layout;

/// A replica of another node becomes one of this node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CopyRequest {
    pub file_id: String,
    pub generation: String,
    /// Asked in this order.
    pub sources: Vec<PeerReplica>,
    pub expected: ExpectedCopy,
    pub priority: i64,
    /// Space is reserved and nothing begins before the same is asked without it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hold: bool,
    /// The transfer of its first source that lets it go: what is held for one that is over, or gone, is given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_for: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<ReplicasWanted>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerReplica {
    pub node_id: String,
    pub generation: String,
}

/// A file in stripes on several nodes: the one with the number `n` has the stripes of index `n`, of as many as there are nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parts {
    pub stripe_bytes: u64,
    pub held_by: Vec<PeerReplica>,
}

/// What a client holds becomes a replica; it sends the content by a call of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PushRequest {
    pub file_id: String,
    pub generation: String,
    pub expected: ExpectedPush,
    pub priority: i64,
    pub executable: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<ReplicasWanted>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectedPush {
    pub size_bytes: u64,
    pub blake3: String,
}

/// From where on a push is to be sent; null when its content is not waited for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PushAnswer {
    pub from_bytes: Option<u64>,
}

/// Of what is still being made nobody knows the BLAKE3: `identity` then tells one content from another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectedCopy {
    pub size_bytes: u64,
    pub blake3: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
}

/// Other nodes that are to hold the same, each getting it from the one before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplicasWanted {
    pub chain: Vec<String>,
    pub ack: Ack,
}

impl ReplicasWanted {
    /// The node that comes next and what is wanted of it: the rest of the chain, which it waits for where anyone does.
    pub fn next_node(&self) -> (&String, Option<Self>) {
        let (first, rest) = self.chain.split_first().expect("a chain has a first node");
        let ack = if self.ack == Ack::Local { Ack::Local } else { Ack::Sync };
        (first, (!rest.is_empty()).then(|| Self { chain: rest.to_vec(), ack }))
    }

    /// The whole chain without it, since the next node did not get it.
    pub fn held_by_nobody(&self, error: &ApiError) -> Vec<NotHeld> {
        let why = |n: usize| if n == 0 { error.clone() } else { not_asked(&self.chain[n - 1]) };
        self.chain.iter().enumerate().map(|(n, node_id)| NotHeld { node_id: node_id.clone(), error: why(n) }).collect()
    }
}

pub fn not_asked(before: &str) -> ApiError {
    ApiError::new(Code::ReplicationFailed, before, format!("it gets its copy from {before}, which has none"))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ack {
    Local,
    Async,
    Sync,
}

/// Which nodes hold it on disk, verified, and which of those wanted do not.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Replication {
    pub held_by: Vec<String>,
    pub missing: Vec<NotHeld>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NotHeld {
    pub node_id: String,
    pub error: ApiError,
}

/// What a peer asks before it copies: `blake3` is null while the replica is being made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SourceAnswer {
    pub kind: ReplicaKind,
    pub size_bytes: u64,
    pub blake3: Option<String>,
    pub sha256: Option<String>,
    pub token: Option<String>,
    pub executable: bool,
    /// Only these are there, or will be; the digests are theirs, the size is that of the whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stripes: Option<Layout>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutputReplication {
    pub file_id: String,
    pub generation: String,
    #[serde(flatten)]
    pub replication: Replication,
}
