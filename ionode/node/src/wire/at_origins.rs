//! What is asked about files at an origin, without moving their bytes.
//!
//! The one rule: a path is relative to the base of its origin.

use serde::{Deserialize, Serialize};
use stager_core::error::ApiError;
use stager_origins::Entry;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StatRequest {
    pub paths: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum StatEntry {
    Found(Entry),
    Failed { path: String, error: ApiError },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StatAnswer {
    pub entries: Vec<StatEntry>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListRequest {
    pub prefix: String,
    pub recursive: bool,
    pub limit: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProbeRequest {
    pub path: String,
    pub write: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadyRequest {
    pub files: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AllowanceRequest {
    pub bandwidth_bytes_per_s_max: Option<u64>,
    pub connections_max: Option<usize>,
    pub lease_s: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct AllowanceAnswer {
    pub connections: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EraseRequest {
    pub path: String,
    pub token: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct EraseAnswer {
    pub erased: bool,
}
