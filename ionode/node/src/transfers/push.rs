//! Push: what a client sends becomes a replica. The transfer waits for the content, which comes by a call of its own.
//!
//! The one rule: what is committed has the BLAKE3 that the client named before it sent a byte.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use stager_core::error::{ApiError, Code};
use stager_core::record::{Partial, Source};
use stager_core::replica::{Replica, ReplicaKey, ReplicaKind, ReplicaState};
use stager_origins::Sink;
use tokio::sync::oneshot;

use super::chain::{Chain, PEERS};
use super::feed::{Feed, ORIGIN_STALL};
use super::job::{Job, Moved};
use super::partial::{adopt, arrive, leave, publish, Order};
use super::pushes::Delivery;
use super::table::Transfers;
use crate::blocks::{Decoder, Piece};
use crate::failure::bad_request;
use crate::in_flight::How;
use crate::store::digest::Also;
use crate::wire::{PushAnswer, PushRequest};

/// Where to begin, once the content is waited for; nothing where the transfer ended first.
pub async fn from_bytes(transfers: &Transfers, transfer_id: &str, wait: Duration) -> Result<PushAnswer, ApiError> {
    let mut changed = transfers.pushes.changes();
    let asked = async {
        while transfers.pushes.begins_at(transfer_id).is_none() {
            if changed.changed().await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = asked => {}
        ended = transfers.wait(transfer_id, wait) => { ended?; }
    }
    Ok(PushAnswer { from_bytes: transfers.pushes.begins_at(transfer_id) })
}

/// Returns when all of the body was taken, or why not.
pub async fn deliver(transfers: &Transfers, transfer_id: &str, body: Incoming) -> Result<(), ApiError> {
    let (taken, outcome) = oneshot::channel();
    if !transfers.pushes.hand_over(transfer_id, Delivery { body, taken }) {
        let message = format!("the transfer {transfer_id} does not wait for content; ask from where on it does");
        return Err(bad_request(transfer_id, message));
    }
    outcome.await.unwrap_or_else(|_| {
        let message = format!("the transfer {transfer_id} ended while its content came; ask how it ended");
        Err(ApiError::new(Code::ConnectionLost, transfer_id, message))
    })
}

pub(super) fn place(request: &PushRequest) -> Source {
    let token = format!("blake3:{}", request.expected.blake3.to_ascii_lowercase());
    Source { origin: PEERS.into(), path: request.file_id.clone(), token }
}

pub(super) async fn push(
    transfers: &Arc<Transfers>,
    job: &Job,
    request: &PushRequest,
    claimed: Option<Partial>,
) -> Result<Moved, ApiError> {
    let key = ReplicaKey::new(&request.file_id, &request.generation);
    let mut chain = Chain::for_maker(transfers, &job.cause, &job.id, &key, request.replicas.as_ref());
    let here = transfers.context.accounting().index.readable(&key).cloned().ok();
    if let Some(replica) = here {
        if !replica.blake3.eq_ignore_ascii_case(&request.expected.blake3) {
            let message = format!("replica {key} is on this node with another content; push under a new generation");
            return Err(ApiError::new(Code::ReplicaBusy, &key.file_id, message));
        }
        chain.tell_of(&replica, None).await?;
        return Ok(Moved { replica, bytes_moved: 0, verified: None, synced: None, chain });
    }
    let partial = adopt(&transfers.context, &key, &place(request), request.expected.size_bytes, claimed).await?;
    let feed = PushFeed { transfers: transfers.clone(), transfer_id: job.id.clone(), file_id: request.file_id.clone() };
    let how = How { executable: request.executable, stripes: None };
    let order = Order { subject: &request.file_id, also: Also::default(), how };
    let arrived = arrive(&transfers.context, job, &order, &feed, partial, &mut chain).await;
    transfers.pushes.forget(&job.id);
    let arrived = match arrived {
        Ok(arrived) => arrived,
        Err((error, reached)) => {
            leave(&transfers.context, job, &key, reached, &error).await;
            return Err(error);
        }
    };
    let digests = arrived.digests;
    if !digests.blake3.eq_ignore_ascii_case(&request.expected.blake3) {
        let error = another_content(&request.file_id);
        leave(&transfers.context, job, &key, None, &error).await;
        return Err(error);
    }
    let replica = Replica {
        file_id: key.file_id.clone(),
        generation: key.generation.clone(),
        kind: ReplicaKind::File,
        size_bytes: digests.size_bytes,
        blake3: digests.blake3,
        crc64nvme: digests.crc64nvme,
        sha256: None,
        executable: request.executable,
        members: None,
        token: None,
        state: ReplicaState::Present,
        stripes: None,
    };
    match publish(&transfers.fingerprints, job, arrived.file, replica, arrived.in_flight).await {
        Ok(replica) => Ok(Moved { replica, bytes_moved: arrived.bytes_moved, verified: None, synced: None, chain }),
        Err(error) => {
            leave(&transfers.context, job, &key, Some(arrived.reached), &error).await;
            Err(error)
        }
    }
}

fn another_content(file_id: &str) -> ApiError {
    let message = format!("the content pushed as {file_id} has another BLAKE3 than the push names; its bytes were deleted, push it again");
    ApiError::new(Code::ChecksumMismatch, file_id, message)
}

struct PushFeed {
    transfers: Arc<Transfers>,
    transfer_id: String,
    file_id: String,
}

#[async_trait]
impl Feed for PushFeed {
    async fn feed(&self, range: Range<u64>, sink: &dyn Sink) -> Result<(), ApiError> {
        let delivered = self.transfers.pushes.wait_for(&self.transfer_id, range.start);
        let never = || ApiError::new(Code::ConnectionLost, &self.file_id, format!("the content of {} never came", self.file_id));
        let Delivery { body, taken } = delivered.await.map_err(|_| never())?;
        let outcome = self.take(body, range, sink).await;
        // A client that hung up does not hear it; the transfer's event tells it.
        let _ = taken.send(outcome.clone());
        outcome
    }

    fn stall(&self) -> Duration {
        ORIGIN_STALL
    }
}

impl PushFeed {
    async fn take(&self, mut body: Incoming, mut rest: Range<u64>, sink: &dyn Sink) -> Result<(), ApiError> {
        let mut decoder = Decoder::default();
        let wrong = |what: &str| {
            let message =
                format!("the content of {} was not sent as it should be: {what}; nothing of that was kept, push it again", self.file_id);
            ApiError::new(Code::ChecksumMismatch, &self.file_id, message)
        };
        loop {
            while let Some(piece) = decoder.take().map_err(|broken| wrong(&broken.to_string()))? {
                match piece {
                    Piece::Block { offset, payload } => {
                        let end = offset.checked_add(payload.len() as u64).filter(|end| *end <= rest.end && offset == rest.start);
                        let end = end.ok_or_else(|| wrong(&format!("a block came for byte {offset} where {} was next", rest.start)))?;
                        sink.write_at(offset, payload).await?;
                        rest.start = end;
                    }
                    Piece::End { offset } if offset == rest.end && rest.is_empty() => {}
                    Piece::End { offset } => return Err(wrong(&format!("it ends at byte {offset} of {}", rest.end))),
                }
            }
            match body.frame().await {
                Some(Ok(frame)) => frame.data_ref().into_iter().for_each(|bytes| decoder.push(bytes)),
                None if decoder.is_whole() => return Ok(()),
                _ => {
                    let message = format!("the connection broke at byte {} of {}; push it again to go on", rest.start, self.file_id);
                    return Err(ApiError::new(Code::ConnectionLost, &self.file_id, message));
                }
            }
        }
    }
}
