//! What a client says of an object, there and back; and the things S3 lets it say that we refuse.
//!
//! The one rule: nothing a client says is dropped in silence: it is kept, or the request is refused.

use s3s::dto::{
    CopyObjectInput, CreateMultipartUploadInput, GetObjectOutput, HeadObjectOutput, Metadata, PutObjectInput, Timestamp, TimestampFormat,
};
use s3s::{s3_error, S3Result};
use stager_objects::Attributes;

const USER_METADATA_BYTES_MAX: usize = 2 << 10;
const ATTRIBUTE_BYTES_MAX: usize = 8 << 10;

macro_rules! attributes_of {
    ($input:expr) => {{
        let input = $input;
        let mut user: Vec<(String, String)> = input.metadata.iter().flatten().map(|(name, value)| (name.clone(), value.clone())).collect();
        user.sort();
        let attributes = Attributes {
            content_type: input.content_type.clone(),
            cache_control: input.cache_control.clone(),
            content_disposition: input.content_disposition.clone(),
            // aws-chunked is how the body travelled, not what it is.
            content_encoding: input.content_encoding.as_deref().and_then(without_chunked),
            content_language: input.content_language.clone(),
            expires_s: input.expires.clone().map(seconds),
            user,
        };
        check_size(&attributes).map(|()| attributes)
    }};
}

macro_rules! refuse_what_is_not_here {
    ($input:expr) => {{
        let input = $input;
        let acl = input.acl.as_ref().map(|acl| acl.as_str());
        if acl.is_some_and(|acl| !matches!(acl, "private" | "bucket-owner-full-control")) {
            return Err(s3_error!(NotImplemented, "access lists are not offered here: every object is private"));
        }
        let grants = [&input.grant_full_control, &input.grant_read, &input.grant_read_acp, &input.grant_write_acp];
        if grants.iter().any(|grant| grant.is_some()) {
            return Err(s3_error!(NotImplemented, "grants are not offered here: every object is private"));
        }
        if input.server_side_encryption.is_some() || input.sse_customer_algorithm.is_some() || input.ssekms_key_id.is_some() {
            return Err(s3_error!(NotImplemented, "encryption by the server is not offered here; encrypt before sending"));
        }
        if input.object_lock_mode.is_some() || input.object_lock_legal_hold_status.is_some() {
            return Err(s3_error!(NotImplemented, "object locks are not offered here"));
        }
        if input.website_redirect_location.is_some() {
            return Err(s3_error!(NotImplemented, "redirects are not offered here"));
        }
        if input.storage_class.as_ref().is_some_and(|class| class.as_str() != "STANDARD") {
            return Err(s3_error!(InvalidStorageClass, "the only storage class here is STANDARD"));
        }
        Ok(())
    }};
}

pub fn of_put(input: &PutObjectInput) -> S3Result<Attributes> {
    attributes_of!(input)
}
pub fn of_copy(input: &CopyObjectInput) -> S3Result<Attributes> {
    attributes_of!(input)
}
pub fn of_upload(input: &CreateMultipartUploadInput) -> S3Result<Attributes> {
    attributes_of!(input)
}

pub fn check_put(input: &PutObjectInput) -> S3Result<()> {
    if input.write_offset_bytes.is_some() {
        return Err(s3_error!(NotImplemented, "appending to an object is not offered here"));
    }
    refuse_what_is_not_here!(input)
}
pub fn check_copy(input: &CopyObjectInput) -> S3Result<()> {
    refuse_what_is_not_here!(input)
}
pub fn check_upload(input: &CreateMultipartUploadInput) -> S3Result<()> {
    refuse_what_is_not_here!(input)
}

fn check_size(attributes: &Attributes) -> S3Result<()> {
    let user: usize = attributes.user.iter().map(|(name, value)| name.len() + value.len()).sum();
    let named = [
        &attributes.content_type,
        &attributes.cache_control,
        &attributes.content_disposition,
        &attributes.content_encoding,
        &attributes.content_language,
    ];
    if user > USER_METADATA_BYTES_MAX || named.iter().any(|value| value.as_ref().is_some_and(|value| value.len() > ATTRIBUTE_BYTES_MAX)) {
        return Err(s3_error!(MetadataTooLarge, "metadata of more than {USER_METADATA_BYTES_MAX} bytes cannot be kept"));
    }
    Ok(())
}

fn without_chunked(encoding: &str) -> Option<String> {
    let parts: Vec<&str> = encoding.split(',').map(str::trim).collect();
    if !parts.contains(&"aws-chunked") {
        return Some(encoding.to_string()).filter(|encoding| !encoding.is_empty());
    }
    let kept: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty() && *part != "aws-chunked").collect();
    (!kept.is_empty()).then(|| kept.join(", "))
}

fn user(attributes: &Attributes) -> Option<Metadata> {
    (!attributes.user.is_empty()).then(|| attributes.user.iter().cloned().collect())
}

macro_rules! fill {
    ($output:expr, $attributes:expr) => {{
        let (output, attributes) = ($output, $attributes);
        output.content_type = Some(attributes.content_type.clone().unwrap_or_else(|| "binary/octet-stream".to_string()));
        output.cache_control = attributes.cache_control.clone();
        output.content_disposition = attributes.content_disposition.clone();
        output.content_encoding = attributes.content_encoding.clone();
        output.content_language = attributes.content_language.clone();
        output.expires = attributes.expires_s.and_then(from_seconds);
        output.metadata = user(attributes);
    }};
}

pub fn fill_get(output: &mut GetObjectOutput, attributes: &Attributes) {
    fill!(output, attributes);
}
pub fn fill_head(output: &mut HeadObjectOutput, attributes: &Attributes) {
    fill!(output, attributes);
}

pub fn timestamp(at_ms: u64) -> Timestamp {
    Timestamp::from(std::time::UNIX_EPOCH + std::time::Duration::from_millis(at_ms))
}

/// Since 1970, rounded down: as HTTP dates have it.
pub fn seconds(timestamp: Timestamp) -> i64 {
    let mut text = Vec::new();
    // Whole seconds, a point, the rest.
    match timestamp.format(TimestampFormat::EpochSeconds, &mut text) {
        Ok(()) => String::from_utf8_lossy(&text).split('.').next().and_then(|whole| whole.parse().ok()).unwrap_or_default(),
        Err(_) => 0,
    }
}

fn from_seconds(at_s: i64) -> Option<Timestamp> {
    Timestamp::parse(TimestampFormat::EpochSeconds, &at_s.to_string()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_there_and_back() {
        assert_eq!(from_seconds(1_700_000_000).map(seconds), Some(1_700_000_000));
        assert_eq!(seconds(timestamp(1_700_000_000_999)), 1_700_000_000);
    }

    #[test]
    fn how_it_travelled_is_not_kept() {
        assert_eq!(without_chunked("aws-chunked"), None);
        assert_eq!(without_chunked("aws-chunked, gzip").as_deref(), Some("gzip"));
        assert_eq!(without_chunked("deflate, aws-chunked,gzip").as_deref(), Some("deflate, gzip"));
        assert_eq!(without_chunked("deflate, gzip").as_deref(), Some("deflate, gzip"));
    }
}
