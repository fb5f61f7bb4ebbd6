//! Attempts whose host shares no files with the node. May know nothing of what is done with them.
//!
//! The one rule: a brief is carried and never looked at.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use stager_core::replica::{Replica, ReplicaKind};

use super::{DirectInput, Input, Output, Reservation};

/// The body of `PUT /v1/attempts/{attempt_id}`. `access` of its inputs makes no difference: they are copied.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenRequest {
    pub inputs: Vec<Input>,
    /// Refused by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub direct: Vec<DirectInput>,
    pub outputs: Vec<Output>,
    /// What the outputs are taken from.
    pub reservation_id: String,
    /// Set before anything else is done.
    #[serde(default)]
    pub reservation: Option<Reservation>,
    pub brief: Value,
}

/// Holds a secret: it is written into answers only.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct OpenAnswer {
    pub ticket: String,
    pub inputs: Vec<InputContent>,
}

/// An input, and which content it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InputContent {
    pub file_id: String,
    pub generation: String,
    pub path: String,
    pub kind: ReplicaKind,
    pub size_bytes: u64,
    pub blake3: String,
    pub executable: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptState {
    Open,
    Committed,
    Released,
    Closed,
}

/// The answer of `GET /v1/attempts/{attempt_id}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttemptAnswer {
    pub state: AttemptState,
    pub inputs: Vec<InputContent>,
    pub outputs: Vec<Output>,
}

#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct BriefAnswer {
    pub brief: Value,
}

/// What the job left of its outputs. Files are called by their number here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutputsRequest {
    pub files: Vec<OutputFile>,
    pub folders: Vec<OutputFolder>,
}

/// `output`: the number of the output; `path`: below it, empty for an output that is a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutputFile {
    pub output: usize,
    pub path: String,
    pub size_bytes: u64,
    pub blake3: String,
    pub executable: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutputFolder {
    pub output: usize,
    pub path: String,
}

/// The numbers of the files that are not here yet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutputsAnswer {
    pub wanted: Vec<usize>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommitRequest {
    pub want_sha256: bool,
    /// To be done once the outputs are committed.
    #[serde(default)]
    pub release: Option<RemoteRelease>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoteRelease {
    /// The attempt's own, to be freed.
    #[serde(default)]
    pub reservation_id: Option<String>,
}

/// `committed`: the outputs were committed first, and stay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CloseAnswer {
    pub state: AttemptState,
    pub outputs: Vec<Replica>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OpenAttempt {
    pub attempt_id: String,
    pub epoch: u64,
    pub state: AttemptState,
}
