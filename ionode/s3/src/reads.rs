//! GetObject and HeadObject.
//!
//! The one rule: the first block is read and compared before the answer begins: a damaged small object is an error, not a broken answer.

use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::Stream;
use hyper::header::HeaderName;
use hyper::HeaderMap;
use s3s::dto::{self, GetObjectInput, GetObjectOutput, HeadObjectInput, HeadObjectOutput, StreamingBlob};
use s3s::stream::{ByteStream, RemainingLength};
use s3s::{s3_error, S3Error, S3Request, S3Response, S3Result, StdError};
use stager_objects::{Object, Reader};
use tokio::sync::mpsc;

use crate::answers::with_size;
use crate::attributes::{fill_get, fill_head, timestamp};
use crate::checksums::{self, kind, set_checksum, Fields};
use crate::conditions::{range_holds, Wanted};
use crate::errors::to_s3;
use crate::{tags, Face};

const TAGGING_COUNT: HeaderName = HeaderName::from_static("x-amz-tagging-count");
/// Read ahead of what the client has taken.
const BLOCKS_AHEAD: usize = 2;

pub fn etag(object: &Object) -> dto::ETag {
    dto::ETag::Strong(object.etag.to_string())
}

/// There is one version of each object: the one without a name.
pub fn check_version(version: Option<&str>) -> S3Result<()> {
    match version {
        None | Some("" | "null") => Ok(()),
        Some(_) => Err(s3_error!(NoSuchVersion, "objects here have no versions")),
    }
}

/// What of the object is asked for, and whether that is said in the answer.
fn chosen(object: &Object, range: Option<dto::Range>, part: Option<i32>) -> S3Result<(Range<u64>, bool)> {
    match (range, part) {
        (Some(_), Some(_)) => Err(s3_error!(InvalidRequest, "a request has a range or a part number, not both")),
        (Some(range), None) => {
            let range = range.check(object.size_bytes);
            range.map(|range| (range, true)).map_err(|error| with_size(S3Error::from(error), object.size_bytes))
        }
        (None, Some(number)) => {
            let sizes = object.part_sizes_bytes();
            let at = usize::try_from(number).ok().and_then(|number| number.checked_sub(1));
            match at {
                Some(0) if sizes.is_empty() => Ok((0..object.size_bytes, false)),
                Some(at) if at < sizes.len() => {
                    let start = sizes[..at].iter().sum();
                    Ok((start..start + sizes[at], sizes[at] > 0))
                }
                _ => Err(s3_error!(InvalidRange, "the object has no part of this number")),
            }
        }
        (None, None) => Ok((0..object.size_bytes, false)),
    }
}

fn content_range(range: &Range<u64>, size_bytes: u64) -> String {
    format!("bytes {}-{}/{size_bytes}", range.start, range.end.saturating_sub(1))
}

macro_rules! describe {
    ($output:expr, $object:expr, $range:expr, $partial:expr, $part_asked:expr, $checksum_asked:expr) => {{
        let (object, range): (&Object, &Range<u64>) = ($object, $range);
        $output.accept_ranges = Some("bytes".to_string());
        $output.content_length = Some((range.end - range.start) as i64);
        $output.content_range = $partial.then(|| content_range(range, object.size_bytes));
        $output.e_tag = Some(etag(object));
        $output.last_modified = Some(timestamp(object.modified_ms));
        let whole = range.end - range.start == object.size_bytes;
        if $checksum_asked && whole {
            set_checksum!($output, Fields::of(&object.checksum));
            $output.checksum_type = Some(kind(object.checksum.of_parts));
        }
        if $part_asked && object.etag.parts > 0 {
            $output.parts_count = Some(object.etag.parts as i32);
        }
    }};
}

impl Face {
    pub async fn get(&self, request: S3Request<GetObjectInput>) -> S3Result<S3Response<GetObjectOutput>> {
        let S3Request { input, headers, .. } = request;
        check_version(input.version_id.as_deref())?;
        let found = self.objects.find(&self.name(&input.bucket, input.key)?).await.map_err(to_s3)?;
        let object = found.object().clone();
        let wanted = Wanted {
            if_match: input.if_match,
            if_none_match: input.if_none_match,
            if_modified_since: input.if_modified_since,
            if_unmodified_since: input.if_unmodified_since,
        };
        wanted.check_read(&object)?;
        let asked = input.range.filter(|_| range_holds(&headers, &object));
        let (range, partial) = chosen(&object, asked, input.part_number)?;
        let length = range.end - range.start;
        let mut reader = found.read(range.clone());
        let first = reader.next().await.map_err(to_s3)?;
        let mut output = GetObjectOutput { body: Some(body(first, reader, length)), ..GetObjectOutput::default() };
        fill_get(&mut output, &object.attributes);
        output.tag_count = tags::count(&object.tags);
        describe!(output, &object, &range, partial, input.part_number.is_some(), asks(input.checksum_mode.as_ref()));
        let more = more_headers(&object, &range, asks(input.checksum_mode.as_ref()));
        Ok(S3Response::with_headers(output, more))
    }

    pub fn head(&self, request: S3Request<HeadObjectInput>) -> S3Result<S3Response<HeadObjectOutput>> {
        let S3Request { input, headers, .. } = request;
        check_version(input.version_id.as_deref())?;
        let object = self.objects.head(&self.name(&input.bucket, input.key)?).map_err(to_s3)?;
        let wanted = Wanted {
            if_match: input.if_match,
            if_none_match: input.if_none_match,
            if_modified_since: input.if_modified_since,
            if_unmodified_since: input.if_unmodified_since,
        };
        wanted.check_read(&object)?;
        let asked = input.range.filter(|_| range_holds(&headers, &object));
        let (range, partial) = chosen(&object, asked, input.part_number)?;
        let mut output = HeadObjectOutput::default();
        fill_head(&mut output, &object.attributes);
        describe!(output, &object, &range, partial, input.part_number.is_some(), asks(input.checksum_mode.as_ref()));
        let mut more = more_headers(&object, &range, asks(input.checksum_mode.as_ref()));
        // The library has no field for it.
        more.extend(tags::count(&object.tags).map(|count| (TAGGING_COUNT, count.into())));
        Ok(S3Response::with_headers(output, more))
    }
}

fn more_headers(object: &Object, range: &Range<u64>, checksum_asked: bool) -> HeaderMap {
    let whole = range.end - range.start == object.size_bytes;
    if !(checksum_asked && whole) {
        return HeaderMap::new();
    }
    checksums::as_header(object.checksum.algorithm, &object.checksum.value)
}

fn asks(mode: Option<&dto::ChecksumMode>) -> bool {
    mode.is_some_and(|mode| mode.as_str() == dto::ChecksumMode::ENABLED)
}

type Block = Result<Bytes, StdError>;

/// What the first block leaves is read by a task of its own, a little ahead of the client.
fn body(first: Option<Bytes>, mut reader: Reader, length: u64) -> StreamingBlob {
    let first_bytes = first.as_ref().map_or(0, Bytes::len) as u64;
    if first_bytes == length {
        return StreamingBlob::from(s3s::Body::from(first.unwrap_or_default()));
    }
    let (sender, blocks) = mpsc::channel::<Block>(BLOCKS_AHEAD);
    tokio::spawn(async move {
        loop {
            let next = match reader.next().await {
                Ok(Some(bytes)) => Ok(bytes),
                Ok(None) => break,
                Err(error) => Err(StdError::from(error)),
            };
            // An error ends the stream too; a client that is gone ends the reading.
            if sender.send(next).await.is_err() {
                break;
            }
        }
    });
    StreamingBlob::new(Blocks { first, blocks, left: length })
}

struct Blocks {
    first: Option<Bytes>,
    blocks: mpsc::Receiver<Block>,
    left: u64,
}

impl Stream for Blocks {
    type Item = Block;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Block>> {
        let next = match self.first.take() {
            Some(first) => Poll::Ready(Some(Ok(first))),
            None => self.blocks.poll_recv(context),
        };
        if let Poll::Ready(Some(Ok(bytes))) = &next {
            self.left -= bytes.len() as u64;
        }
        next
    }
}

impl ByteStream for Blocks {
    fn remaining_length(&self) -> RemainingLength {
        RemainingLength::new_exact(self.left as usize)
    }
}
