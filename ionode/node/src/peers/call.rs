//! What this node asks of another, by name: messages of docs/formats/ionode-api.md and who sends them.
//!
//! The one rule: a call repeats its scheduler's epoch, so a peer obeys no scheduler through another node that it would not obey itself.

use std::time::Duration;

use bytes::Bytes;
use stager_core::error::ApiError;
use stager_core::replica::{Replica, ReplicaKey};

use super::link::{Body, Call, Link, Term, ANSWER_WITHIN};
use crate::blocks::MEDIA_TYPE;
use crate::wire::{CopyRequest, Empty, MatchAnswer, PushAnswer, PushRequest, SourceAnswer, TransferAnswer, TransferRequest};

const WAIT_S: u64 = 20;
const VERIFY_WITHIN: Duration = Duration::from_secs(600);

impl Link {
    /// With `wait`: once all of it was checked, or after a while.
    pub async fn source(&self, term: Term, key: &ReplicaKey, wait: bool) -> Result<SourceAnswer, ApiError> {
        let wait_s = if wait { WAIT_S } else { 0 };
        let path = format!("/v1/replicas/{}/{}/source?wait_s={wait_s}", key.file_id, key.generation);
        self.json("GET", &path, term, None::<&Empty>, ANSWER_WITHIN + Duration::from_secs(wait_s)).await
    }

    pub async fn replica(&self, term: Term, key: &ReplicaKey) -> Result<Replica, ApiError> {
        self.json("GET", &format!("/v1/replicas/{}/{}", key.file_id, key.generation), term, None::<&Empty>, ANSWER_WITHIN).await
    }

    /// Of a directory replica, as it lies there.
    pub async fn manifest(&self, term: Term, key: &ReplicaKey) -> Result<Bytes, ApiError> {
        self.bytes("GET", &format!("/v1/replicas/{}/{}/manifest", key.file_id, key.generation), term, ANSWER_WITHIN).await
    }

    /// It reads all of its own, and quarantines what is not as it was committed.
    pub async fn ask_verify(&self, term: Term, key: &ReplicaKey) -> Result<MatchAnswer, ApiError> {
        let path = format!("/v1/replicas/{}/{}/verify", key.file_id, key.generation);
        self.json("POST", &path, term, None::<&Empty>, VERIFY_WITHIN).await
    }

    pub async fn ask_copy(&self, term: Term, transfer_id: &str, request: &CopyRequest) -> Result<TransferAnswer, ApiError> {
        let body = TransferRequest::Copy(request.clone());
        self.json("PUT", &format!("/v1/transfers/{transfer_id}"), term, Some(&body), ANSWER_WITHIN).await
    }

    pub async fn ask_push(&self, transfer_id: &str, request: &PushRequest) -> Result<TransferAnswer, ApiError> {
        let body = TransferRequest::Push(request.clone());
        self.json("PUT", &format!("/v1/transfers/{transfer_id}"), Term::Its, Some(&body), ANSWER_WITHIN).await
    }

    /// From where on a push is to be sent, or nothing where it ended first.
    pub async fn push_from(&self, transfer_id: &str) -> Result<PushAnswer, ApiError> {
        let path = format!("/v1/transfers/{transfer_id}/content?wait_s={WAIT_S}");
        self.json("GET", &path, Term::Its, None::<&Empty>, ANSWER_WITHIN + Duration::from_secs(WAIT_S)).await
    }

    pub async fn send_content(&self, transfer_id: &str, body: Body) -> Result<(), ApiError> {
        let path = format!("/v1/transfers/{transfer_id}/content");
        let headers = vec![("content-type", MEDIA_TYPE.to_string())];
        self.send(Call { method: "PUT", path, headers, body, term: Term::Its }).await.map(drop)
    }

    pub async fn call_off(&self, term: Term, transfer_id: &str) -> Result<TransferAnswer, ApiError> {
        self.json("DELETE", &format!("/v1/transfers/{transfer_id}"), term, None::<&Empty>, ANSWER_WITHIN).await
    }

    /// How a transfer stands; with `wait` when it has ended, or after a while.
    pub async fn transfer(&self, term: Term, transfer_id: &str, wait: bool) -> Result<TransferAnswer, ApiError> {
        let wait_s = if wait { WAIT_S } else { 0 };
        let path = format!("/v1/transfers/{transfer_id}?wait_s={wait_s}");
        self.json("GET", &path, term, None::<&Empty>, ANSWER_WITHIN + Duration::from_secs(wait_s)).await
    }
}
