//! Reading a replica over HTTP, in ranges, in bounded memory.
//!
//! The one rule: a body that cannot be read to its end, or is not what was committed, breaks the connection; it never ends as if it were
//! whole. A reader that checks `x-stager-crc64nvme` knows the same of the way to it.

use std::fs::File;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use crc_fast::{CrcAlgorithm, Digest};
use futures::stream;
use hyper::body::Frame;
use hyper::header::{
    HeaderMap, HeaderName, HeaderValue, ACCEPT, ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, RANGE, TE, TRAILER,
};
use hyper::{Response, StatusCode};
use stager_core::replica::ReplicaKey;
use stager_store::at_hand;

use super::answer::{self, Answer};
use super::framed;
use super::range::{self, Asked};
use crate::blocking::blocking;
use crate::calls::OpenCall;
use crate::context::Cause;
use crate::failure::{at, Failure};
use crate::node::Node;
use crate::replicas::{self, open_content, read_manifest, Content};

const CHUNK_BYTES: u64 = 1 << 20;
/// Of the whole body, whatever range it is; 16 hex digits. In front where it is known by then, else behind the body.
const CRC64NVME: HeaderName = HeaderName::from_static("x-stager-crc64nvme");

/// Who asks, and for what.
pub struct Asker {
    pub node: Arc<Node>,
    pub cause: Cause,
    pub headers: HeaderMap,
    pub open: OpenCall,
}

pub async fn content(asker: Asker, key: ReplicaKey, member: Option<String>) -> Result<Answer, Failure> {
    let (node, subject) = (asker.node.clone(), key.clone());
    let blocks = asker.headers.get(ACCEPT).is_some_and(|value| value.as_bytes() == crate::blocks::MEDIA_TYPE.as_bytes());
    if member.is_none() && !blocks {
        if let Some((bytes, committed)) = replicas::at_hand(&node.context, &key) {
            return Ok(at_once(&asker.headers, bytes, committed));
        }
    }
    let content = blocking(move || open_content(&node.context, &subject, member.as_deref())).await?;
    let size_bytes = content.size_bytes;
    let Some((status, Range { start, end })) = asked(&asker.headers, size_bytes) else { return Ok(unsatisfiable(size_bytes)) };
    if blocks || content.in_flight.is_some() || content.stripes.is_some() {
        return framed::answer(asker, &key, content, start..end, status, blocks);
    }
    let trailers = asker.headers.get(TE).and_then(|value| value.to_str().ok()).is_some_and(|te| te.contains("trailers"));
    let mut answer = match (end - start == size_bytes, end - start <= CHUNK_BYTES) {
        (true, _) => Sending::new(asker, key, content, start..end).whole(),
        (false, true) => {
            let read = at_hand::read(&content.file, start, (end - start) as usize, 0).await;
            piece(read.map_err(at("reading", &content.path))?.freeze())
        }
        (false, false) => Sending::new(asker, key, content, start..end).part(trailers),
    };
    describe(&mut answer, status, start..end, size_bytes);
    Ok(answer)
}

/// With 200 or 206; `None`: nothing of the content is in the range.
fn asked(headers: &HeaderMap, size_bytes: u64) -> Option<(StatusCode, Range<u64>)> {
    match headers.get(RANGE).and_then(|value| value.to_str().ok()).map(|text| range::parse(text, size_bytes)) {
        Some(Asked::Part(start, end)) => Some((StatusCode::PARTIAL_CONTENT, start..end)),
        Some(Asked::Unsatisfiable) => None,
        Some(Asked::Ignored) | None => Some((StatusCode::OK, 0..size_bytes)),
    }
}

fn describe(answer: &mut Answer, status: StatusCode, sent: Range<u64>, size_bytes: u64) {
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    // A trailer needs a body in chunks, which says its length by its end.
    if !headers.contains_key(TRAILER) {
        headers.insert(CONTENT_LENGTH, (sent.end - sent.start).into());
    }
    if status == StatusCode::PARTIAL_CONTENT {
        headers.insert(CONTENT_RANGE, text(format!("bytes {}-{}/{size_bytes}", sent.start, sent.end - 1)));
    }
}

/// From memory, without a change of threads: most calls are for small files.
fn at_once(headers: &HeaderMap, content: Bytes, committed: String) -> Answer {
    let size_bytes = content.len() as u64;
    let Some((status, sent)) = asked(headers, size_bytes) else { return unsatisfiable(size_bytes) };
    let whole = sent.end - sent.start == size_bytes;
    let bytes = content.slice(sent.start as usize..sent.end as usize);
    let mut answer = if whole { summed(bytes, committed) } else { piece(bytes) };
    describe(&mut answer, status, sent, size_bytes);
    answer
}

/// As it lies on disk: its hash is the identity of the directory.
pub async fn manifest(node: &Arc<Node>, key: &ReplicaKey) -> Result<Answer, Failure> {
    let (worker, asked) = (node.clone(), key.clone());
    let bytes = blocking(move || read_manifest(&worker.context, &asked)).await?;
    let mut answer = answer::bytes(bytes.into());
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(answer)
}

fn text(value: String) -> HeaderValue {
    HeaderValue::from_str(&value).expect("digits are plain text")
}

fn crc64nvme() -> Digest {
    Digest::new(CrcAlgorithm::Crc64Nvme)
}

/// Small enough to be read before the answer begins.
fn piece(bytes: Bytes) -> Answer {
    let mut crc = crc64nvme();
    crc.update(&bytes);
    summed(bytes, format!("{:016x}", crc.finalize()))
}

fn summed(bytes: Bytes, crc: String) -> Answer {
    let mut answer = answer::bytes(bytes);
    answer.headers_mut().insert(CRC64NVME, text(crc));
    answer
}

/// A body on its way.
struct Sending {
    asker: Asker,
    key: ReplicaKey,
    file: Arc<File>,
    path: PathBuf,
    offset: u64,
    end: u64,
    crc: Digest,
    /// Of the whole content, as it was committed.
    committed: String,
    then: Then,
}

/// What stands at the end of a body.
#[derive(Clone, Copy, PartialEq)]
enum Then {
    /// Before the last chunk: is it what was committed?
    Compare,
    Trailer,
    Nothing,
}

impl Sending {
    fn new(asker: Asker, key: ReplicaKey, content: Content, range: Range<u64>) -> Self {
        let Content { file, path, crc64nvme: committed, .. } = content;
        let committed = committed.unwrap_or_default();
        let asker = Asker { open: asker.open.works(), ..asker };
        let (offset, end) = (range.start, range.end);
        Self { asker, key, file, path, offset, end, crc: crc64nvme(), committed, then: Then::Nothing }
    }

    fn whole(mut self) -> Answer {
        self.then = Then::Compare;
        let crc = text(self.committed.clone());
        let mut answer = self.streamed();
        answer.headers_mut().insert(CRC64NVME, crc);
        answer
    }

    fn part(mut self, trailers: bool) -> Answer {
        self.then = if trailers { Then::Trailer } else { Then::Nothing };
        let mut answer = self.streamed();
        if trailers {
            answer.headers_mut().insert(TRAILER, CRC64NVME.into());
        }
        answer
    }

    fn streamed(self) -> Answer {
        Response::new(answer::frames(stream::try_unfold(self, Self::next)))
    }

    async fn next(mut self) -> Result<Option<(Frame<Bytes>, Self)>, std::io::Error> {
        if self.offset == self.end {
            if self.then != Then::Trailer {
                return Ok(None);
            }
            self.then = Then::Nothing;
            let trailers = HeaderMap::from_iter([(CRC64NVME, text(format!("{:016x}", self.crc.finalize())))]);
            return Ok(Some((Frame::trailers(trailers), self)));
        }
        let (file, offset, length) = (self.file.clone(), self.offset, CHUNK_BYTES.min(self.end - self.offset) as usize);
        let buffer = match at_hand::read(&file, offset, length, 0).await {
            Ok(buffer) => buffer,
            Err(error) => return Err(self.unreadable(error).await),
        };
        if self.then != Then::Nothing {
            self.crc.update(&buffer);
        }
        self.offset += length as u64;
        if self.offset == self.end && self.then == Then::Compare && format!("{:016x}", self.crc.finalize()) != self.committed {
            return Err(self.damaged("was read for a caller and is not what was committed").await);
        }
        Ok(Some((Frame::data(buffer.freeze()), self)))
    }

    async fn unreadable(&self, error: std::io::Error) -> std::io::Error {
        tracing::warn!(replica = %self.key, path = %self.path.display(), %error, "a replica could not be read to its end");
        match error.kind() {
            std::io::ErrorKind::UnexpectedEof => self.damaged("is shorter than it was committed").await,
            _ => error,
        }
    }

    async fn damaged(&self, what: &str) -> std::io::Error {
        let node = &self.asker.node;
        let there = node.context.accounting().index.readable(&self.key).is_ok();
        if there {
            if let Err(error) = node.context.quarantine(&self.asker.cause, &self.key, what).await {
                tracing::error!(replica = %self.key, %error, "a damaged replica could not be quarantined");
            }
        }
        std::io::Error::new(std::io::ErrorKind::InvalidData, what.to_string())
    }
}

fn unsatisfiable(size_bytes: u64) -> Answer {
    let mut answer = answer::empty();
    *answer.status_mut() = StatusCode::RANGE_NOT_SATISFIABLE;
    answer.headers_mut().insert(CONTENT_RANGE, HeaderValue::from_str(&format!("bytes */{size_bytes}")).expect("digits are plain text"));
    answer
}
