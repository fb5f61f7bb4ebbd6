//! Several transfers, or deletes, in one call. May know nothing of what is done with them.
//!
//! The one rule: answers come in the order of what was asked.

use serde::{Deserialize, Serialize};
use stager_core::error::ApiError;

use super::{TransferAnswer, TransferRequest};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransfersRequest {
    pub transfers: Vec<AskedTransfer>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AskedTransfer {
    pub transfer_id: String,
    pub command_id: Option<String>,
    pub request: TransferRequest,
}

/// In the order they were asked for in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AskedAnswers {
    pub answers: Vec<AskedAnswer>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum AskedAnswer {
    Accepted(Box<TransferAnswer>),
    Refused { error: ApiError },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeletesRequest {
    pub replicas: Vec<AskedDelete>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AskedDelete {
    pub file_id: String,
    pub generation: String,
    pub command_id: Option<String>,
}

/// In the order they were asked for in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeletedAnswers {
    pub answers: Vec<DeletedAnswer>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeletedAnswer {
    pub error: Option<ApiError>,
}
