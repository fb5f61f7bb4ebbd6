//! The calls whose bodies are the contents of outputs, from a host that shares no files with this one: one file, or a pack of small ones.
//!
//! The one rule: not a byte is read before the ticket was found right, and a body that stands still is given up.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use hyper::header::CONTENT_TYPE;
use hyper::{Method, Request};
use stager_core::error::{ApiError, Code};
use stager_core::ids::check_id;

use super::answer::{self, Answer};
use super::{auth, narrow, packs};
use crate::attempts::remote::{put_small, Arriving};
use crate::blocks::{Decoder, Piece};
use crate::failure::Failure;
use crate::node::Node;
use crate::pack_format::{MEDIA_TYPE, PACK_BYTES_MAX};

/// As long as the other side waits for a byte to be taken.
const STALL: Duration = Duration::from_secs(60);
const PACK_WITHIN: Duration = Duration::from_secs(300);

pub struct Sent {
    attempt_id: String,
    /// `None`: a pack.
    number: Option<String>,
}

pub fn of(request: &Request<Incoming>) -> Option<Sent> {
    let (attempt_id, rest) = request.uri().path().strip_prefix("/v1/attempts/")?.split_once('/')?;
    let attempt_id = attempt_id.to_string();
    match (request.method(), rest) {
        (&Method::POST, "outputs") => Some(Sent { attempt_id, number: None }),
        (&Method::PUT, rest) => Some(Sent { attempt_id, number: Some(rest.strip_prefix("outputs/")?.to_string()) }),
        _ => None,
    }
}

pub async fn take(node: Arc<Node>, sent: Sent, request: Request<Incoming>) -> Result<Answer, Failure> {
    let (parts, body) = request.into_parts();
    let cause = auth::admit(&node, &parts, false).await?;
    check_id("attempt id", &sent.attempt_id)?;
    narrow::to_its_attempt(auth::role_of(&parts.extensions), &sent.attempt_id)?;
    let open = node.calls.open(true);
    let Some(number) = sent.number else {
        let is_pack = parts.headers.get(CONTENT_TYPE).is_some_and(|value| value.as_bytes() == MEDIA_TYPE.as_bytes());
        if !is_pack {
            let message = format!("small outputs come as {MEDIA_TYPE}; announce them by PUT, then send them so");
            return Err(ApiError::new(Code::BadRequest, &sent.attempt_id, message).into());
        }
        let length = body.size_hint().exact().map_or(PACK_BYTES_MAX, |length| length as usize);
        let memory = node.packs.memory(length, 0).await;
        let received = tokio::time::timeout(PACK_WITHIN, packs::receive(body)).await.map_err(|_| stalled(&sent.attempt_id))?;
        let outcomes = put_small(node.attempts.clone(), sent.attempt_id, received?).await;
        drop(memory);
        return Ok(packs::sending(node, cause, open, outcomes));
    };
    let arriving = Arriving::begin(node.attempts.clone(), sent.attempt_id, number).await?;
    receive(arriving, body).await?;
    drop(open);
    Ok(answer::empty())
}

fn stalled(subject: &str) -> ApiError {
    let message = format!("no byte of an output of {subject} came for {} s; send it again", STALL.as_secs());
    ApiError::new(Code::Timeout, subject, message)
}

async fn receive(mut arriving: Arriving, mut body: Incoming) -> Result<(), ApiError> {
    let mut decoder = Decoder::default();
    let wrong = |what: String| {
        ApiError::new(Code::ChecksumMismatch, "output", format!("an output was not sent as it should be: {what}; send it again"))
    };
    loop {
        while let Some(piece) = decoder.take().map_err(|broken| wrong(broken.to_string()))? {
            match piece {
                Piece::Block { offset, payload } => {
                    let next = arriving.offset;
                    if offset != next || payload.len() as u64 > arriving.size_bytes - next {
                        return Err(wrong(format!("a block came for byte {offset} where {next} of {} was next", arriving.size_bytes)));
                    }
                    arriving.take(payload).await?;
                }
                Piece::End { offset } if offset == arriving.size_bytes && offset == arriving.offset => {}
                Piece::End { offset } => return Err(wrong(format!("it ends at byte {offset} of {}", arriving.size_bytes))),
            }
        }
        match tokio::time::timeout(STALL, body.frame()).await {
            Err(_) => return Err(stalled("an attempt")),
            Ok(Some(Ok(frame))) => frame.data_ref().into_iter().for_each(|bytes| decoder.push(bytes)),
            Ok(None) if decoder.is_whole() => return arriving.end().await,
            Ok(_) => {
                let message = format!("the connection broke at byte {} of an output; send it again", arriving.offset);
                return Err(ApiError::new(Code::ConnectionLost, "output", message));
            }
        }
    }
}
