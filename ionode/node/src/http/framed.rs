//! Content for peers: as blocks with a checksum each, of stripes, of files that are still being made.
//!
//! The one rule: a byte is sent when it is in the file, and a body that will not be whole breaks the connection.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use hyper::body::Frame;
use hyper::header::{HeaderValue, ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE};
use hyper::{Response, StatusCode};
use stager_core::error::{ApiError, Code};
use stager_core::replica::ReplicaKey;
use stager_store::at_hand;

use super::answer::{self, Answer};
use super::content::Asker;
use crate::blocks;
use crate::failure::Failure;
use crate::replicas::Content;

const CHUNK_BYTES: u64 = blocks::BLOCK_BYTES as u64;

/// `framed`: as blocks, with their end mark; else the plain bytes.
pub fn answer(
    asker: Asker,
    key: &ReplicaKey,
    content: Content,
    range: Range<u64>,
    status: StatusCode,
    framed: bool,
) -> Result<Answer, Failure> {
    let Range { start, end } = range;
    let shift = shift(&content, key, start, end)?;
    let size_bytes = content.size_bytes;
    let (media_type, length) = match framed {
        true => (blocks::MEDIA_TYPE, blocks::framed_bytes(end - start)),
        false => ("application/octet-stream", end - start),
    };
    let mut answer = Response::new(answer::frames(chunks(asker, content, start, end, shift, framed).map_ok(Frame::data)));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(CONTENT_LENGTH, length.into());
    if status == StatusCode::PARTIAL_CONTENT {
        let value = format!("bytes {start}-{}/{size_bytes}", end - 1);
        headers.insert(CONTENT_RANGE, HeaderValue::from_str(&value).expect("digits are plain text"));
    }
    Ok(answer)
}

/// How far before its place in the content the file holds a range. Of stripes: one of those that are here.
fn shift(content: &Content, key: &ReplicaKey, start: u64, end: u64) -> Result<u64, Failure> {
    let Some(layout) = content.stripes.filter(|layout| layout.count > 1) else { return Ok(0) };
    let one_stripe = start / layout.stripe_bytes == end.saturating_sub(1).max(start) / layout.stripe_bytes;
    match layout.position(start).filter(|_| one_stripe && start < end) {
        Some(position) => Ok(start - position),
        None => {
            let here = format!("every {}. from {} of {}", layout.count, layout.index, layout.total());
            let message = format!(
                "bytes {start} to {end} of replica {key} are not in one stripe of this node: of stripes of {} bytes it holds {here}; \
                 ask for one of those, and the other nodes for theirs",
                layout.stripe_bytes
            );
            Err(Failure::with(ApiError::new(Code::StripeNotHere, &key.file_id, message), "stripes", serde_json::json!(layout)))
        }
    }
}

fn chunks(
    asker: Asker,
    content: Content,
    start: u64,
    end: u64,
    shift: u64,
    framed: bool,
) -> impl futures::Stream<Item = Result<Bytes, std::io::Error>> + Send {
    let Content { file, path, in_flight, .. } = content;
    let open = Arc::new(asker.open.works());
    let body = stream::try_unfold(start, move |offset| {
        let (file, path, open, mut followed) = (file.clone(), path.clone(), open.clone(), in_flight.clone());
        async move {
            // An ordered end waits for who reads.
            let _open = open;
            if offset >= end {
                return Ok(None);
            }
            let length = CHUNK_BYTES.min(end - offset);
            if let Some(in_flight) = &mut followed {
                let gone = || std::io::Error::other("the node stopped making the replica");
                in_flight.reach(offset + length - shift).await.ok_or_else(gone)?;
            }
            let lead = if framed { blocks::HEADER_BYTES } else { 0 };
            match at_hand::read(&file, offset - shift, length as usize, lead).await {
                Ok(mut chunk) => {
                    let header = framed.then(|| blocks::header(offset, &chunk[lead..]));
                    chunk[..lead].copy_from_slice(header.as_ref().map_or(&[], |header| &header[..]));
                    Ok(Some((chunk.freeze(), offset + length)))
                }
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "a replica could not be read to its end");
                    Err(error)
                }
            }
        }
    });
    body.chain(stream::iter(framed.then(|| Ok(blocks::end(end)))))
}
