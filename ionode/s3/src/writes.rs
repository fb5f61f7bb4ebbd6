//! PutObject, and how any body comes in.
//!
//! The one rule: a body that has no space is refused before its first byte is asked for, or in its middle where others were faster; one that
//! does not come whole leaves nothing.

use futures::StreamExt;
use hyper::HeaderMap;
use s3s::dto::{PutObjectInput, PutObjectOutput, StreamingBlob};
use s3s::{s3_error, S3Request, S3Response, S3Result};
use stager_objects::{Content, Described, Incoming};

use crate::bodies::{CHUNK_TOO_LARGE, TOO_MUCH_HELD, TOO_SLOW};
use crate::checksums::{kind, set_checksum, Fields, Given};
use crate::conditions::{of_write, outcome};
use crate::errors::to_s3;
use crate::reads::etag;
use crate::{attributes, checksums, tags, Face};

const PUT_BYTES_MAX: u64 = 5 << 30;

pub fn announced_bytes(length: Option<i64>) -> S3Result<u64> {
    let length = length
        .ok_or_else(|| s3_error!(MissingContentLength, "say how long the body is: Content-Length or x-amz-decoded-content-length"))?;
    match u64::try_from(length) {
        Ok(length) if length <= PUT_BYTES_MAX => Ok(length),
        Ok(_) => Err(s3_error!(EntityTooLarge, "a single body has at most 5 GiB; upload it in parts")),
        Err(_) => Err(s3_error!(InvalidArgument, "a length below zero")),
    }
}

/// Of a body that came in chunks, the library tells no length.
pub fn decoded_bytes(headers: &HeaderMap) -> Option<i64> {
    headers.get("x-amz-decoded-content-length")?.to_str().ok()?.parse().ok()
}

pub fn check_key(key: &str) -> S3Result<()> {
    match key.len() {
        1..=stager_objects::KEY_BYTES_MAX => Ok(()),
        0 => Err(s3_error!(InvalidRequest, "an object has a name")),
        _ => Err(s3_error!(KeyTooLongError, "a name has at most 1024 bytes")),
    }
}

/// The whole body, compared with what the request says of it.
pub async fn take_in(mut incoming: Incoming, body: Option<StreamingBlob>, given: Given) -> S3Result<Content> {
    if let Some(mut body) = body {
        while let Some(next) = body.next().await {
            let bytes = next.map_err(|error| broken(&error.to_string()))?;
            incoming.write(bytes).await.map_err(to_s3)?;
        }
    }
    let content = incoming.finish().await.map_err(to_s3)?;
    given.compare(&content.digests)?;
    Ok(content)
}

/// The kinds of the signed streams' errors are not public: they are told apart by what they say.
fn broken(error: &str) -> s3s::S3Error {
    if error.contains(TOO_SLOW) {
        return s3_error!(RequestTimeout, "{TOO_SLOW}; nothing was stored, send it again");
    }
    if error.contains(TOO_MUCH_HELD) {
        return s3_error!(SlowDown, "{TOO_MUCH_HELD}; nothing was stored, send fewer at once, or smaller chunks");
    }
    if error.contains(CHUNK_TOO_LARGE) {
        return s3_error!(EntityTooLarge, "{CHUNK_TOO_LARGE}; nothing was stored, sign smaller ones");
    }
    if error.contains("SignatureMismatch") {
        return s3_error!(SignatureDoesNotMatch, "a chunk of the body does not have its signature; nothing was stored");
    }
    if error.contains("Sha256Mismatch") {
        let mut answer = s3_error!(BadDigest, "the body does not have the SHA-256 that was signed; nothing was stored");
        answer.set_code(s3s::S3ErrorCode::Custom("XAmzContentSHA256Mismatch".into()));
        answer.set_status_code(hyper::StatusCode::BAD_REQUEST);
        return answer;
    }
    s3_error!(IncompleteBody, "the body did not come whole ({error}); nothing was stored, send it again")
}

impl Face {
    pub async fn put(&self, request: S3Request<PutObjectInput>) -> S3Result<S3Response<PutObjectOutput>> {
        let S3Request { input, headers, trailing_headers, .. } = request;
        attributes::check_put(&input)?;
        check_key(&input.key)?;
        let described = Described { attributes: attributes::of_put(&input)?, tags: tags::in_header(input.tagging.as_deref())? };
        let given = Given::new(&headers, trailing_headers, input.checksum_algorithm.as_ref())?;
        let size_bytes = announced_bytes(input.content_length.or_else(|| decoded_bytes(&headers)))?;
        let condition = of_write(input.if_match, input.if_none_match)?;
        let name = self.name(&input.bucket, input.key)?;
        self.objects.bucket(&name.bucket).map_err(to_s3)?;
        let incoming = self.objects.receive(&name, size_bytes, given.algorithm).await.map_err(to_s3)?;
        let content = take_in(incoming, input.body, given).await?;
        let object = outcome(self.objects.put(&name, content, described, condition.clone()).await, &condition)?;
        let mut output = PutObjectOutput { e_tag: Some(etag(&object)), ..PutObjectOutput::default() };
        set_checksum!(output, Fields::of(&object.checksum));
        output.checksum_type = Some(kind(object.checksum.of_parts));
        Ok(S3Response::with_headers(output, checksums::as_header(object.checksum.algorithm, &object.checksum.value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use s3s::S3ErrorCode;

    #[test]
    fn limits_are_where_they_are_said_to_be() {
        assert!(check_key("k").is_ok() && check_key(&"k".repeat(1024)).is_ok());
        assert_eq!(*check_key(&"k".repeat(1025)).unwrap_err().code(), S3ErrorCode::KeyTooLongError);
        // Bytes count, not letters.
        assert_eq!(*check_key(&"é".repeat(513)).unwrap_err().code(), S3ErrorCode::KeyTooLongError);
        assert_eq!(*check_key("").unwrap_err().code(), S3ErrorCode::InvalidRequest);
        assert_eq!((announced_bytes(Some(0)).unwrap(), announced_bytes(Some(5 << 30)).unwrap()), (0, 5 << 30));
        assert_eq!(*announced_bytes(Some((5 << 30) + 1)).unwrap_err().code(), S3ErrorCode::EntityTooLarge);
        assert_eq!(*announced_bytes(Some(-1)).unwrap_err().code(), S3ErrorCode::InvalidArgument);
        assert_eq!(*announced_bytes(None).unwrap_err().code(), S3ErrorCode::MissingContentLength);
    }
}
