//! What went wrong, in S3's words.
//!
//! The one rule: an error that a repetition cannot cure has a status that SDKs do not repeat.

use hyper::StatusCode;
use s3s::{S3Error, S3ErrorCode};
use stager_core::error::{ApiError, Class};

use crate::lists::writable;

pub fn to_s3(error: ApiError) -> S3Error {
    let (code, status) = match error.code.as_str() {
        "bucket_unknown" => (S3ErrorCode::NoSuchBucket, None),
        "bucket_exists" => (S3ErrorCode::BucketAlreadyOwnedByYou, None),
        "bucket_not_empty" => (S3ErrorCode::BucketNotEmpty, None),
        "object_unknown" => (S3ErrorCode::NoSuchKey, None),
        "upload_unknown" => (S3ErrorCode::NoSuchUpload, None),
        "part_wrong" => (S3ErrorCode::InvalidPart, None),
        "part_order" => (S3ErrorCode::InvalidPartOrder, None),
        "part_small" => (S3ErrorCode::EntityTooSmall, None),
        "precondition_failed" => (S3ErrorCode::PreconditionFailed, None),
        "checksum_wrong" => (S3ErrorCode::BadDigest, None),
        "checksum_type_wrong" | "size_wrong" => (S3ErrorCode::InvalidRequest, None),
        "incomplete_body" => (S3ErrorCode::IncompleteBody, None),
        "share_full" | "no_space_node" => (custom("InsufficientStorage"), Some(StatusCode::INSUFFICIENT_STORAGE)),
        "object_corrupt" | "checksum_mismatch" => (custom("ObjectCorrupt"), Some(StatusCode::UNPROCESSABLE_ENTITY)),
        _ => match error.class {
            Class::Transient => (S3ErrorCode::ServiceUnavailable, None),
            Class::Denied => (S3ErrorCode::AccessDenied, None),
            Class::InvalidInput | Class::Refused => (S3ErrorCode::InvalidRequest, None),
            Class::Corrupt => (S3ErrorCode::InternalError, None),
        },
    };
    let mut answer = S3Error::with_message(code, writable(&error.message));
    if let Some(status) = status {
        answer.set_status_code(status);
    }
    answer
}

fn custom(name: &'static str) -> S3ErrorCode {
    S3ErrorCode::Custom(name.into())
}
