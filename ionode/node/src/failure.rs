//! Faults of this host's disk as API errors, and errors that name more than a sentence can.
//!
//! The one rule: an error says what happened to which file and what to do; a full disk is never called anything else.

use serde_json::{Map, Value};
use stager_core::error::{ApiError, Code};
use stager_core::space::NoSpace;

pub use stager_store::failure::{at, disk};

/// An error with what goes beside it in the answer.
#[derive(Clone, Debug)]
pub struct Failure {
    pub error: ApiError,
    pub detail: Map<String, Value>,
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        Self { error, detail: Map::new() }
    }
}

impl Failure {
    pub fn with(error: ApiError, key: &str, value: impl Into<Value>) -> Self {
        let mut detail = Map::new();
        detail.insert(key.to_string(), value.into());
        Self { error, detail }
    }
}

pub fn no_space(node_id: &str, subject: &str, short: NoSpace) -> ApiError {
    let message = format!(
        "the node {node_id} has {} bytes left and {subject} needs {} more; delete replicas or raise the capacity",
        short.free_bytes, short.needed_bytes
    );
    ApiError::new(Code::NoSpaceNode, subject, message)
}

pub fn bad_request(subject: impl Into<String>, message: impl Into<String>) -> ApiError {
    ApiError::new(Code::BadRequest, subject, message)
}
