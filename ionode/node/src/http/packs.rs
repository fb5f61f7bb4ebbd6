//! The call for packs: its body read within its limits, its answer sent as it is read from the disk.
//!
//! The one rule: memory is asked for before a body is read, and a content is read when its turn comes to be sent.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{self, TryStreamExt};
use http_body_util::BodyExt;
use hyper::body::{Body as _, Frame, Incoming};
use hyper::header::{HeaderValue, CONTENT_TYPE};
use hyper::{Method, Request, Response};
use stager_core::error::{ApiError, Class, Code};
use stager_core::replica::Replica;

use super::answer::{self, Answer};
use super::whole::to_its_end;
use super::{auth, narrow};
use crate::blocking::blocking;
use crate::calls::OpenCall;
use crate::context::Cause;
use crate::failure::Failure;
use crate::node::Node;
use crate::pack_format::{self, About, Answered, Ask, NoPack, Reader, Writer, ENTRIES_MAX, MEDIA_TYPE, PACK_BYTES_MAX};
use crate::packs::{self, chain, Outcome};

/// What is read ahead of the connection.
const CHUNK_BYTES: usize = 1 << 20;
/// About what an entry takes beside its content.
const ENTRY_BYTES: usize = 128;
/// So much of a body that is too large is passed over, so that its sender hears why it is refused.
const PASSED_OVER_BYTES_MAX: usize = 256 << 20;

pub fn is_pack(request: &Request<Incoming>) -> bool {
    request.method() == Method::POST && request.uri().path() == "/v1/packs"
}

pub async fn pack(node: Arc<Node>, request: Request<Incoming>) -> Result<Answer, Failure> {
    let (parts, body) = request.into_parts();
    let cause = auth::admit(&node, &parts, false).await?;
    let open = node.calls.open(true);
    let length = body.size_hint().exact().map_or(PACK_BYTES_MAX, |length| length as usize);
    let replicas = chain::wanted(&node.packs, &parts.headers)?;
    let memory = node.packs.memory(length, replicas.as_ref().map_or(0, |wanted| wanted.chain.len())).await;
    let asked = narrow::of_pack(auth::role_of(&parts.extensions), &node.attempts, receive(body).await?);
    let worker = node.packs.clone();
    let working = to_its_end(async move {
        let outcomes = match replicas {
            Some(replicas) => chain::perform(&worker, &cause, asked, replicas, memory).await,
            None => {
                let outcomes = packs::perform(&worker, &cause, asked).await;
                drop(memory);
                outcomes
            }
        };
        (outcomes, cause, open)
    });
    let early = |_| ApiError::new(Code::IoError, "node", "the call ended early by a bug; look at the node's log");
    let (outcomes, cause, open) = working.await.map_err(early)?;
    Ok(sending(node, cause, open, outcomes))
}

pub(super) async fn receive(mut body: Incoming) -> Result<Vec<Result<Ask, ApiError>>, ApiError> {
    let mut reader = Reader::new(PACK_BYTES_MAX);
    let mut refused = None;
    let mut passed_over = 0;
    while let Some(frame) = body.frame().await {
        let broke = |error| ApiError::new(Code::ConnectionLost, "pack", format!("the pack broke off ({error}); send it again"));
        let Ok(bytes) = frame.map_err(broke)?.into_data() else { continue };
        if refused.is_some() {
            passed_over += bytes.len();
            if passed_over > PASSED_OVER_BYTES_MAX {
                break;
            }
        } else {
            refused = reader.push(&bytes).err();
        }
    }
    let entries = match refused {
        None => reader.finish(),
        Some(no_pack) => Err(no_pack),
    };
    let entries = entries.map_err(no_pack)?;
    Ok(entries
        .into_iter()
        .enumerate()
        .map(|(number, entry)| entry.ok_or_else(|| damaged(number)).and_then(|entry| pack_format::ask(&entry)))
        .collect())
}

fn no_pack(no_pack: NoPack) -> ApiError {
    match no_pack {
        NoPack::TooLarge => {
            let message = format!("a pack has at most {ENTRIES_MAX} entries and {PACK_BYTES_MAX} bytes; send this one as several");
            ApiError::new(Code::TooLarge, "pack", message)
        }
        broken => {
            let message = format!("the pack was not sent as it should be: {broken}; nothing of it was done, send it again");
            ApiError::new(Code::ChecksumMismatch, "pack", message)
        }
    }
}

fn damaged(number: usize) -> ApiError {
    let message = format!("entry {number} of the pack was damaged on its way; nothing of it was done, send it again");
    ApiError::new(Code::ChecksumMismatch, "pack", message)
}

struct Sending {
    node: Arc<Node>,
    cause: Cause,
    /// An ordered end waits for who reads.
    _open: OpenCall,
    left: VecDeque<Outcome>,
    sent: usize,
    ended: bool,
}

pub(super) fn sending(node: Arc<Node>, cause: Cause, open: OpenCall, outcomes: Vec<Outcome>) -> Answer {
    let reads = outcomes.iter().any(|outcome| matches!(outcome, Outcome::Read(_)));
    let mut answer = match reads {
        false => answer::bytes(written(&node, outcomes, 0, true).0),
        true => {
            let sending = Sending { node, cause, _open: open, left: outcomes.into(), sent: 0, ended: false };
            let chunks = stream::try_unfold(sending, |mut sending| async move {
                if sending.ended {
                    return Ok(None);
                }
                let chunk = sending.chunk().await.map_err(std::io::Error::other)?;
                Ok::<_, std::io::Error>(Some((Frame::data(chunk), sending)))
            });
            Response::new(answer::frames(chunks.into_stream()))
        }
    };
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
    answer
}

impl Sending {
    async fn chunk(&mut self) -> Result<Bytes, ApiError> {
        let mut bytes = 0;
        let mut chunk = Vec::new();
        while let Some(next) = self.left.pop_front() {
            bytes += if let Outcome::Read(replica) = &next { replica.size_bytes as usize } else { 0 } + ENTRY_BYTES;
            chunk.push(next);
            if bytes >= CHUNK_BYTES {
                break;
            }
        }
        let (worker, sent, last) = (self.node.clone(), self.sent, self.left.is_empty());
        self.sent += chunk.len();
        self.ended = last;
        let (bytes, damaged) = blocking(move || Ok(written(&worker, chunk, sent, last))).await?;
        for replica in damaged {
            let key = replica.key();
            if self.node.context.accounting().index.readable(&key).is_ok() {
                let what = "does not have the content it was committed with";
                if let Err(error) = self.node.context.quarantine(&self.cause, &key, what).await {
                    tracing::warn!(replica = %key, %error, "a damaged replica could not be quarantined");
                }
            }
        }
        Ok(bytes)
    }
}

/// The entries from number `sent` on, and the replicas that were found damaged.
fn written(node: &Node, chunk: Vec<Outcome>, sent: usize, last: bool) -> (Bytes, Vec<Replica>) {
    let mut writer = Writer::from(sent);
    let mut damaged = Vec::new();
    for outcome in chunk {
        let replica = match outcome {
            Outcome::Answered(said) => {
                writer.say(&said);
                continue;
            }
            Outcome::Failed(error) => {
                writer.fail(&error);
                continue;
            }
            Outcome::Read(replica) => replica,
        };
        match packs::read(&node.context, &replica) {
            Ok(content) => writer.say(&Answered::Got(About::of(&replica), content)),
            Err(error) => {
                // Deleted since it was looked for: that is what is told.
                let gone = node.context.accounting().index.readable(&replica.key()).err();
                writer.fail(gone.as_ref().unwrap_or(&error));
                if error.class == Class::Corrupt {
                    damaged.push(replica);
                }
            }
        }
    }
    (if last { writer.whole() } else { writer.part() }, damaged)
}
