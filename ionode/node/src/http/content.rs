//! Reading a replica over HTTP, in ranges, in bounded memory.
//!
//! The one rule: a body that cannot be read to its end breaks the connection; it never ends early as if it were whole.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{self, StreamExt};
use hyper::header::{HeaderMap, HeaderValue, ACCEPT, ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, RANGE};
use hyper::{Response, StatusCode};
use stager_core::error::ApiError;
use stager_core::replica::ReplicaKey;

use super::answer::{self, Answer};
use crate::blocks;
use crate::failure::Failure;
use crate::node::Node;
use crate::replicas::{blocking, open_content, read_manifest, Opened};

const CHUNK_BYTES: u64 = blocks::BLOCK_BYTES as u64;

pub async fn content(node: Arc<Node>, key: ReplicaKey, member: Option<String>, headers: HeaderMap) -> Result<Answer, Failure> {
    let asked = key.clone();
    let content = blocking(move || open_content(&node, &asked, member.as_deref())).await?;
    let size_bytes = content.size_bytes;
    let asked = headers.get(RANGE).and_then(|value| value.to_str().ok()).map(|text| range(text, size_bytes));
    let (status, start, end) = match asked {
        Some(Asked::Part(start, end)) => (StatusCode::PARTIAL_CONTENT, start, end),
        Some(Asked::Unsatisfiable) => return Ok(unsatisfiable(size_bytes)),
        Some(Asked::Ignored) | None => (StatusCode::OK, 0, size_bytes),
    };
    let shift = shift(&content, &key, start, end)?;
    let framed = headers.get(ACCEPT).is_some_and(|value| value.as_bytes() == blocks::MEDIA_TYPE.as_bytes());
    let (media_type, length) = match framed {
        true => (blocks::MEDIA_TYPE, blocks::framed_bytes(end - start)),
        false => ("application/octet-stream", end - start),
    };
    let mut answer = Response::new(answer::stream(chunks(content, start, end, shift, framed)));
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
fn shift(content: &Opened, key: &ReplicaKey, start: u64, end: u64) -> Result<u64, Failure> {
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
            Err(Failure::with(ApiError::refused("stripe_not_here", &key.file_id, message), "stripes", serde_json::json!(layout)))
        }
    }
}

/// As it lies on disk: its hash is the identity of the directory.
pub async fn manifest(node: &Arc<Node>, key: &ReplicaKey) -> Result<Answer, Failure> {
    let (worker, asked) = (node.clone(), key.clone());
    let bytes = blocking(move || read_manifest(&worker, &asked)).await?;
    let length = bytes.len();
    let mut answer = Response::new(answer::stream(stream::once(async move { Ok(Bytes::from(bytes)) })));
    answer.headers_mut().insert(CONTENT_LENGTH, length.into());
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(answer)
}

fn unsatisfiable(size_bytes: u64) -> Answer {
    let mut answer = answer::empty();
    *answer.status_mut() = StatusCode::RANGE_NOT_SATISFIABLE;
    answer.headers_mut().insert(CONTENT_RANGE, HeaderValue::from_str(&format!("bytes */{size_bytes}")).expect("digits are plain text"));
    answer
}

#[derive(Debug, PartialEq)]
enum Asked {
    Part(u64, u64),
    Unsatisfiable,
    Ignored,
}

/// One range; several or unreadable ones are ignored, as HTTP allows.
fn range(text: &str, size_bytes: u64) -> Asked {
    let Some((first, last)) = text.strip_prefix("bytes=").filter(|text| !text.contains(',')).and_then(|text| text.trim().split_once('-'))
    else {
        return Asked::Ignored;
    };
    let number = |text: &str| if text.is_empty() { Some(None) } else { text.parse::<u64>().ok().map(Some) };
    match (number(first), number(last)) {
        (Some(Some(first)), Some(last)) if last.is_none_or(|last| last >= first) => match first < size_bytes {
            true => Asked::Part(first, last.map_or(size_bytes, |last| last.saturating_add(1).min(size_bytes))),
            false => Asked::Unsatisfiable,
        },
        (Some(None), Some(Some(0))) => Asked::Unsatisfiable,
        (Some(None), Some(Some(_))) if size_bytes == 0 => Asked::Unsatisfiable,
        (Some(None), Some(Some(suffix))) => Asked::Part(size_bytes.saturating_sub(suffix), size_bytes),
        _ => Asked::Ignored,
    }
}

/// `framed`: as blocks, with their end mark.
fn chunks(
    content: Opened,
    start: u64,
    end: u64,
    shift: u64,
    framed: bool,
) -> impl futures::Stream<Item = Result<Bytes, std::io::Error>> + Send {
    let Opened { file, path, growth, .. } = content;
    let body = stream::try_unfold(start, move |offset| {
        let (file, path, mut followed) = (file.clone(), path.clone(), growth.clone());
        async move {
            if offset >= end {
                return Ok(None);
            }
            let length = CHUNK_BYTES.min(end - offset);
            if let Some(growth) = &mut followed {
                let gone = || std::io::Error::other("the replica is not made any further");
                growth.reach(offset + length - shift).await.ok_or_else(gone)?;
            }
            let read = tokio::task::spawn_blocking(move || read_chunk(&file, offset, shift, length as usize, framed));
            match read.await.map_err(std::io::Error::other).and_then(|read| read) {
                Ok(chunk) => Ok(Some((chunk, offset + length))),
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "a replica could not be read to its end");
                    Err(error)
                }
            }
        }
    });
    body.chain(stream::iter(framed.then(|| Ok(blocks::end(end)))))
}

fn read_chunk(file: &File, offset: u64, shift: u64, length: usize, framed: bool) -> std::io::Result<Bytes> {
    let lead = if framed { blocks::HEADER_BYTES } else { 0 };
    let mut buffer = vec![0; lead + length];
    file.read_exact_at(&mut buffer[lead..], offset - shift)?;
    if framed {
        let header = blocks::header(offset, &buffer[lead..]);
        buffer[..lead].copy_from_slice(&header);
    }
    Ok(Bytes::from(buffer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_as_http_has_them() {
        assert_eq!(range("bytes=0-9", 100), Asked::Part(0, 10));
        assert_eq!(range("bytes=90-", 100), Asked::Part(90, 100));
        assert_eq!(range("bytes=90-1000", 100), Asked::Part(90, 100));
        assert_eq!(range("bytes=-10", 100), Asked::Part(90, 100));
        assert_eq!(range("bytes=-1000", 100), Asked::Part(0, 100));
        for bad in ["bytes=100-", "bytes=-0"] {
            assert_eq!(range(bad, 100), Asked::Unsatisfiable, "{bad}");
        }
        for odd in ["bytes=9-0", "bytes=a-b", "bytes=0-1,3-4", "lines=1-2", "bytes=-"] {
            assert_eq!(range(odd, 100), Asked::Ignored, "{odd}");
        }
        assert_eq!(range("bytes=-5", 0), Asked::Unsatisfiable);
        assert_eq!(range("bytes=18446744073709551615-18446744073709551615", 100), Asked::Unsatisfiable);
    }
}
