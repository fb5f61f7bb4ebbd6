//! Push: what a client sends becomes a replica. The transfer waits for the content, which comes by a call of its own.
//!
//! The one rule: what is committed has the BLAKE3 that the client named before it sent a byte.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use stager_core::error::{ApiError, Code};
use stager_core::record::{Partial, Source};
use stager_core::replica::{Replica, ReplicaKey, ReplicaKind, ReplicaState};
use stager_origins::Sink;
use tokio::sync::{oneshot, watch};

use super::chain::{Chain, PEERS};
use super::feed::{Feed, ORIGIN_STALL};
use super::partial::{adopt, arrive, leave, publish, Order};
use super::run::{Job, Moved};
use crate::blocks::{Decoder, Piece};
use crate::failure::bad_request;
use crate::in_flight::How;
use crate::node::Node;
use crate::store::digest::Also;
use crate::wire::{PushAnswer, PushRequest};

/// Transfers that wait for their content.
#[derive(Default)]
pub struct Pushes {
    waiting: Mutex<HashMap<String, Waiting>>,
    changed: watch::Sender<()>,
}

struct Waiting {
    from_bytes: u64,
    deliver: oneshot::Sender<Delivery>,
}

pub struct Delivery {
    body: Incoming,
    taken: oneshot::Sender<Result<(), ApiError>>,
}

impl Pushes {
    fn wait_for(&self, transfer_id: &str, from_bytes: u64) -> oneshot::Receiver<Delivery> {
        let (deliver, delivered) = oneshot::channel();
        self.waiting.lock().expect("nobody panics here").insert(transfer_id.to_string(), Waiting { from_bytes, deliver });
        self.changed.send_replace(());
        delivered
    }

    fn forget(&self, transfer_id: &str) {
        self.waiting.lock().expect("nobody panics here").remove(transfer_id);
    }

    fn begins_at(&self, transfer_id: &str) -> Option<u64> {
        self.waiting.lock().expect("nobody panics here").get(transfer_id).map(|waiting| waiting.from_bytes)
    }
}

/// Where to begin, once the content is waited for; nothing where the transfer ended first.
pub async fn from_bytes(node: &Node, transfer_id: &str, wait: Duration) -> Result<PushAnswer, ApiError> {
    let mut changed = node.transfers.pushes.changed.subscribe();
    let asked = async {
        while node.transfers.pushes.begins_at(transfer_id).is_none() {
            if changed.changed().await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = asked => {}
        ended = super::wait(node, transfer_id, wait) => { ended?; }
    }
    Ok(PushAnswer { from_bytes: node.transfers.pushes.begins_at(transfer_id) })
}

/// Returns when all of the body was taken, or why not.
pub async fn deliver(node: &Node, transfer_id: &str, body: Incoming) -> Result<(), ApiError> {
    let waiting = node.transfers.pushes.waiting.lock().expect("nobody panics here").remove(transfer_id);
    let not_waited =
        || bad_request(transfer_id, format!("the transfer {transfer_id} does not wait for content; ask from where on it does"));
    let (taken, outcome) = oneshot::channel();
    waiting.ok_or_else(not_waited)?.deliver.send(Delivery { body, taken }).map_err(|_| not_waited())?;
    outcome.await.unwrap_or_else(|_| {
        let message = format!("the transfer {transfer_id} ended while its content came; ask how it ended");
        Err(ApiError::new(Code::ConnectionLost, transfer_id, message))
    })
}

pub(super) fn place(request: &PushRequest) -> Source {
    let token = format!("blake3:{}", request.expected.blake3.to_ascii_lowercase());
    Source { origin: PEERS.into(), path: request.file_id.clone(), token }
}

pub(super) async fn push(node: &Arc<Node>, job: &Job, request: &PushRequest, claimed: Option<Partial>) -> Result<Moved, ApiError> {
    let key = ReplicaKey::new(&request.file_id, &request.generation);
    let mut chain = Chain::of(node, job, &key, request.replicas.as_ref());
    let here = node.accounting().index.readable(&key).cloned().ok();
    if let Some(replica) = here {
        if !replica.blake3.eq_ignore_ascii_case(&request.expected.blake3) {
            let message = format!("replica {key} is on this node with another content; push under a new generation");
            return Err(ApiError::new(Code::ReplicaBusy, &key.file_id, message));
        }
        chain.tell_of(&replica, None).await?;
        return Ok(Moved { replica, bytes_moved: 0, verified: None, synced: None, chain });
    }
    let partial = adopt(node, &key, &place(request), request.expected.size_bytes, claimed).await?;
    let feed = PushFeed { node: node.clone(), transfer_id: job.id.clone(), file_id: request.file_id.clone() };
    let how = How { executable: request.executable, stripes: None };
    let order = Order { subject: &request.file_id, also: Also::default(), how };
    let arrived = arrive(node, job, &order, &feed, partial, &mut chain).await;
    node.transfers.pushes.forget(&job.id);
    let arrived = match arrived {
        Ok(arrived) => arrived,
        Err((error, reached)) => {
            leave(node, job, &key, reached, &error).await;
            return Err(error);
        }
    };
    let digests = arrived.digests;
    if !digests.blake3.eq_ignore_ascii_case(&request.expected.blake3) {
        let message =
            format!("what was pushed as {} has another BLAKE3 than was named; its bytes were deleted, push it again", request.file_id);
        let error = ApiError::new(Code::ChecksumMismatch, &request.file_id, message);
        leave(node, job, &key, None, &error).await;
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
    match publish(node, job, arrived.file, replica, arrived.in_flight).await {
        Ok(replica) => Ok(Moved { replica, bytes_moved: arrived.bytes_moved, verified: None, synced: None, chain }),
        Err(error) => {
            leave(node, job, &key, Some(arrived.reached), &error).await;
            Err(error)
        }
    }
}

struct PushFeed {
    node: Arc<Node>,
    transfer_id: String,
    file_id: String,
}

#[async_trait]
impl Feed for PushFeed {
    async fn feed(&self, range: Range<u64>, sink: &dyn Sink) -> Result<(), ApiError> {
        let delivered = self.node.transfers.pushes.wait_for(&self.transfer_id, range.start);
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
