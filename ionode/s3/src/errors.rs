//! What went wrong, in S3's words.
//!
//! The one rule: an error that a repetition cannot cure has a status that SDKs do not repeat.

use hyper::StatusCode;
use s3s::{S3Error, S3ErrorCode};
use stager_core::error::{ApiError, Class, Code};

use crate::xml::writable;

pub fn to_s3(error: ApiError) -> S3Error {
    let (code, status) = match error.code {
        Code::BucketUnknown => (S3ErrorCode::NoSuchBucket, None),
        Code::BucketExists => (S3ErrorCode::BucketAlreadyOwnedByYou, None),
        Code::BucketNotEmpty => (S3ErrorCode::BucketNotEmpty, None),
        Code::ObjectUnknown => (S3ErrorCode::NoSuchKey, None),
        Code::UploadUnknown => (S3ErrorCode::NoSuchUpload, None),
        Code::PartWrong => (S3ErrorCode::InvalidPart, None),
        Code::PartOrder => (S3ErrorCode::InvalidPartOrder, None),
        Code::PartSmall => (S3ErrorCode::EntityTooSmall, None),
        Code::PreconditionFailed => (S3ErrorCode::PreconditionFailed, None),
        Code::ChecksumWrong => (S3ErrorCode::BadDigest, None),
        Code::ChecksumTypeWrong | Code::SizeWrong => (S3ErrorCode::InvalidRequest, None),
        Code::IncompleteBody => (S3ErrorCode::IncompleteBody, None),
        Code::ShareFull | Code::NoSpaceNode => (custom("InsufficientStorage"), Some(StatusCode::INSUFFICIENT_STORAGE)),
        Code::ObjectCorrupt | Code::ChecksumMismatch => (custom("ObjectCorrupt"), Some(StatusCode::UNPROCESSABLE_ENTITY)),
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
