//! The messages of docs/formats/ionode-api.md as types. May know nothing of what is done with them.
//!
//! The one rule: every message here has a golden file in tests/conformance/wire that it parses and writes back unchanged.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use stager_core::error::ApiError;
use stager_core::replica::{Replica, ReplicaKey, ReplicaKind};
use stager_core::stripes::Share;
use stager_origins::{Synced, Verified};

mod asked;
mod at_origins;
mod copies;
mod remote;

pub use asked::*;
pub use at_origins::*;
pub use copies::*;
pub use remote::*;

pub const API: u32 = 1;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeStatus {
    pub api: u32,
    pub node_id: String,
    pub incarnation: String,
    pub epoch: u64,
    pub version: String,
    pub store_format: u32,
    pub store_id: String,
    pub pid: u32,
    pub capacity_bytes: u64,
    pub used_bytes: u64,
    pub reserved_bytes: u64,
    pub can_link: bool,
    pub can_reflink: bool,
    /// It makes a file of parts that several nodes fetch.
    #[serde(default)]
    pub can_assemble: bool,
    pub draining: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CapacityRequest {
    pub capacity_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpaceAnswer {
    pub capacity_bytes: u64,
    pub used_bytes: u64,
    pub reserved_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StateAnswer {
    pub incarnation: String,
    pub next_seq: u64,
    pub replicas: Vec<Replica>,
    pub transfers: Vec<TransferState>,
    pub reservations: Vec<Reservation>,
    pub leases: Vec<LeaseAnswer>,
    /// Those of other hosts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<OpenAttempt>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeaseAnswer {
    pub attempt_id: String,
    pub replicas: Vec<ReplicaKey>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShutdownRequest {
    pub drain_s: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Empty {}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VerifyRequest {
    pub path: String,
    pub size_bytes: u64,
    pub blake3: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum TransferRequest {
    Fetch(FetchRequest),
    Copy(CopyRequest),
    Push(PushRequest),
    Upload(UploadRequest),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FetchRequest {
    pub file_id: String,
    pub generation: String,
    pub source: Place,
    pub expected: Expected,
    pub priority: i64,
    pub executable: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<ReplicasWanted>,
    /// Only these of its stripes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stripe: Option<Share>,
    /// Its bytes are taken from these, and from the origin only what they do not give.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<Parts>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UploadRequest {
    pub file_id: String,
    pub generation: String,
    pub destination: Place,
    pub on_exists: OnExists,
    pub verify: VerifyMode,
    pub priority: i64,
    pub make_executable: bool,
    /// Of a file: what is at its destination and was changed since is not replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_s_ago: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    pub origin_id: String,
    pub path: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expected {
    pub size_bytes: u64,
    pub token: Option<String>,
    pub blake3: Option<String>,
    pub sha256: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnExists {
    Fail,
    Replace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VerifyMode {
    Auto,
    Readback,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TransferKind {
    Fetch,
    Copy,
    Push,
    Upload,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TransferStatus {
    Queued,
    Running,
    Done,
    Failed,
    Cancelled,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TransferAnswer {
    pub state: TransferStatus,
    pub event: Option<Event>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TransferState {
    pub transfer_id: String,
    pub kind: TransferKind,
    pub state: TransferStatus,
    pub bytes_done: u64,
    pub bytes_total: u64,
    pub file_id: String,
    pub generation: String,
    pub origin_id: String,
    pub started_s_ago: Option<f64>,
    pub event: Option<Event>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TransfersAnswer {
    pub transfers: Vec<TransferState>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    pub seq: u64,
    pub epoch: u64,
    pub command_id: Option<String>,
    #[serde(flatten)]
    pub fact: Fact,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Fact {
    TransferDone(TransferDone),
    TransferFailed {
        transfer_id: String,
        transfer_kind: TransferKind,
        error: ApiError,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        replication: Option<Replication>,
    },
    Replicated {
        file_id: String,
        generation: String,
        #[serde(flatten)]
        replication: Replication,
    },
    TransferCancelled {
        transfer_id: String,
    },
    ReplicaDeleted(ReplicaKey),
    ReplicaCorrupt {
        file_id: String,
        generation: String,
        error: ApiError,
    },
    Space(SpaceAnswer),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TransferDone {
    pub transfer_id: String,
    pub file_id: String,
    pub generation: String,
    pub transfer_kind: TransferKind,
    pub size_bytes: u64,
    pub blake3: String,
    pub crc64nvme: String,
    pub sha256: Option<String>,
    pub token: Option<String>,
    pub bytes_moved: u64,
    pub duration_s: f64,
    pub verified: Option<Verified>,
    /// Of an upload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub synced: Option<Synced>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replication: Option<Replication>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EventsAnswer {
    pub incarnation: String,
    pub events: Vec<Event>,
    pub next_seq: u64,
    pub gap: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AckRequest {
    pub seq: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MatchAnswer {
    pub matches: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReservationRequest {
    pub bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reservation {
    pub id: String,
    pub bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StageInRequest {
    pub sandbox_dir: String,
    pub inputs: Vec<Input>,
    /// Read in place at their origin.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub direct: Vec<DirectInput>,
    /// For what the job will write: set before anything else is done.
    #[serde(default)]
    pub reservation: Option<Reservation>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InputAccess {
    Link,
    Copy,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Input {
    pub file_id: String,
    pub generation: String,
    pub path: String,
    pub access: InputAccess,
}

/// A file of an origin that is mounted; it must be the one that size and token say.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DirectInput {
    pub path: String,
    pub origin_id: String,
    pub origin_path: String,
    pub size_bytes: u64,
    pub token: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DirectState {
    Same,
    Changed,
    /// Its origin cannot be asked now.
    Unknown,
}

/// How a file that was read in place looks afterwards.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DirectSeen {
    pub path: String,
    pub state: DirectState,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MountAnswer {
    pub origin_id: String,
    pub mount_path: String,
    pub state: String,
    /// Why it is away.
    pub message: Option<String>,
}

impl From<stager_mounts::Mount> for MountAnswer {
    fn from(mount: stager_mounts::Mount) -> Self {
        Self {
            origin_id: mount.origin_id,
            mount_path: mount.path.display().to_string(),
            state: mount.state.word().to_string(),
            message: mount.message,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MountsAnswer {
    pub mounts: Vec<MountAnswer>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MountOrder {
    pub source: String,
    pub target: String,
    pub directory: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StageInAnswer {
    pub mounts: Vec<MountOrder>,
    pub copied_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StageOutRequest {
    pub sandbox_dir: String,
    pub reservation_id: String,
    pub outputs: Vec<Output>,
    pub mounts: Vec<String>,
    pub keep: Vec<String>,
    pub want_sha256: bool,
    /// To be done once the outputs are committed.
    #[serde(default)]
    pub release: Option<ReleaseRequest>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<ReplicasWanted>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Output {
    pub file_id: String,
    pub generation: String,
    pub path: String,
    pub kind: ReplicaKind,
    pub optional: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StageOutAnswer {
    pub outputs: Vec<Replica>,
    pub undeclared: Vec<String>,
    pub undeclared_count: u64,
    pub released: Option<ReleaseAnswer>,
    /// One for each output, where a chain was waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replication: Option<Vec<OutputReplication>>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReleaseRequest {
    pub sandbox_dir: Option<String>,
    pub remove_sandbox: bool,
    #[serde(default)]
    pub reservation_id: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReleaseAnswer {
    pub changed: Vec<ReplicaKey>,
    /// Of inputs that were read in place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub direct: Vec<DirectSeen>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ErrorAnswer {
    pub error: ApiError,
    /// `needed_bytes` or `paths`, where a code has them.
    #[serde(flatten)]
    pub detail: serde_json::Map<String, Value>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rendezvous {
    pub api: u32,
    pub node_id: String,
    pub incarnation: String,
    pub pid: u32,
    pub socket: String,
    pub tcp: Option<String>,
    pub token_file: String,
    /// Where there is an S3 endpoint.
    #[serde(default)]
    pub s3: Option<S3Place>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct S3Place {
    pub address: String,
    pub share_bytes: u64,
}
