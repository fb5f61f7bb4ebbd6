//! What an S3 server's refusals mean in the contract's words. Knows object_store's errors and S3's error codes.
//!
//! The one rule: a request that might have worked is transient; only what the server clearly refused is final.

use std::error::Error as StdError;

use object_store::client::{HttpError, HttpErrorKind};
use object_store::Error;
use stager_core::error::{ApiError, Code};

use crate::failure;

/// Codes that say who we are is wrong, not what we may do; the last is versitygw's.
const CREDENTIAL_CODES: [&str; 9] = [
    "SignatureDoesNotMatch",
    "InvalidAccessKeyId",
    "ExpiredToken",
    "InvalidToken",
    "RequestTimeTooSkewed",
    "AuthorizationHeaderMalformed",
    "TokenRefreshRequired",
    "InvalidClientTokenId",
    "XAdminUserNotFound",
];

pub fn failure_of(error: &Error, path: &str, place: &str) -> ApiError {
    let named = failure::shown(path);
    let said = chain(error);
    let code = s3_code(&said);
    if CREDENTIAL_CODES.contains(&code) {
        return auth_failed(code, place);
    }
    if let Some(known) = by_code(code, path, place) {
        return known;
    }
    match error {
        Error::NotFound { .. } => failure::not_found(path, place),
        Error::PermissionDenied { .. } => failure::denied(path, place, if code.is_empty() { "the server answers 403" } else { code }),
        Error::Unauthenticated { .. } => auth_failed("the server answers 401", place),
        Error::Precondition { .. } | Error::NotModified { .. } => ApiError::new(
            Code::SourceChanged,
            path,
            format!("{named} at {place} changed while it was read; plan again with the new content."),
        ),
        Error::InvalidPath { .. } => {
            ApiError::new(Code::BadRequest, path, format!("{place} cannot hold the name {named} (control characters are not allowed)."))
        }
        Error::NotImplemented { .. } | Error::NotSupported { .. } => {
            ApiError::new(Code::Unsupported, path, format!("{place} does not support what {named} needs ({said})."))
        }
        other => by_transport(other, &said, path, place),
    }
}

fn auth_failed(why: &str, place: &str) -> ApiError {
    let advice = match why {
        "RequestTimeTooSkewed" => "set this host's clock",
        "ExpiredToken" | "InvalidToken" | "TokenRefreshRequired" => "get a new session token",
        "AuthorizationHeaderMalformed" => "correct the region",
        _ => "check access_key_id, secret_access_key and region",
    };
    ApiError::new(Code::AuthFailed, place, format!("{place} does not accept the credentials ({why}); {advice}."))
}

fn by_code(code: &str, path: &str, place: &str) -> Option<ApiError> {
    let named = failure::shown(path);
    Some(match code {
        "NoSuchBucket" => ApiError::new(
            Code::NotFound,
            path,
            format!("The bucket of {place} does not exist; create it or correct its name and endpoint."),
        ),
        "SlowDown" | "ServiceUnavailable" | "RequestLimitExceeded" => {
            let message = format!("{place} asks for fewer calls; stager retries {named} later.");
            ApiError { retry_after_s: Some(5.0), ..ApiError::new(Code::IoError, path, message) }
        }
        "BadDigest" | "XAmzContentSHA256Mismatch" | "InvalidDigest" => failure::written_differs(path, place),
        "EntityTooLarge" | "QuotaExceeded" | "InsufficientStorage" => failure::no_space(path, place),
        "KeyTooLongError" | "InvalidObjectName" | "InvalidURI" => {
            ApiError::new(Code::BadRequest, path, format!("{place} cannot hold the name {named} ({code})."))
        }
        _ => return None,
    })
}

fn by_transport(error: &Error, said: &str, path: &str, place: &str) -> ApiError {
    let named = failure::shown(path);
    let message = format!("{named} at {place} failed: {}.", shown(said));
    if said.contains("redirect") {
        return ApiError::new(Code::BadRequest, path, format!("{place} is elsewhere: the region or the endpoint is wrong."));
    }
    match http_kind(error) {
        Some(HttpErrorKind::Connect) => {
            let message = format!("{place} cannot be reached; check the endpoint and the network.");
            ApiError::new(Code::OriginUnreachable, path, message)
        }
        Some(HttpErrorKind::Timeout) => ApiError::new(Code::Timeout, path, format!("{place} did not answer in time for {named}.")),
        Some(HttpErrorKind::Request | HttpErrorKind::Interrupted | HttpErrorKind::Decode) => {
            ApiError::new(Code::ConnectionLost, path, format!("The connection to {place} was lost while working on {named}."))
        }
        _ if said.contains("501 ") => ApiError::new(Code::Unsupported, path, message),
        _ if said.contains("507 ") => failure::no_space(path, place),
        _ => ApiError::new(Code::IoError, path, message),
    }
}

fn http_kind(error: &Error) -> Option<HttpErrorKind> {
    let mut source: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(error) = source {
        if let Some(http) = error.downcast_ref::<HttpError>() {
            return Some(http.kind());
        }
        source = error.source();
    }
    None
}

/// The whole chain in one line. S3's error bodies hold ids and names, and signing secrets never travel.
fn chain(error: &Error) -> String {
    let mut said = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let more = error.to_string();
        if !said.contains(&more) {
            said = format!("{said}: {more}");
        }
        source = error.source();
    }
    said
}

fn s3_code(said: &str) -> &str {
    between(said, "<Code>", "</Code>").unwrap_or("")
}

fn between<'a>(said: &'a str, open: &str, close: &str) -> Option<&'a str> {
    said.split_once(open).and_then(|(_, rest)| rest.split_once(close)).map(|(inside, _)| inside)
}

/// The server's own sentence where it sent one.
fn shown(said: &str) -> String {
    match between(said, "<Message>", "</Message>") {
        Some(message) => format!("the server says {}: {message}", s3_code(said)),
        None => said.chars().take(400).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generic(text: &str) -> Error {
        Error::Generic { store: "S3", source: text.to_owned().into() }
    }

    #[test]
    fn codes_are_told_apart() {
        let cases = [
            ("403: <Error><Code>SignatureDoesNotMatch</Code></Error>", "auth_failed"),
            ("400: <Error><Code>ExpiredToken</Code></Error>", "auth_failed"),
            ("503: <Error><Code>SlowDown</Code></Error>", "io_error"),
            ("400: <Error><Code>XAmzContentSHA256Mismatch</Code></Error>", "checksum_mismatch"),
            ("Received redirect without LOCATION", "bad_request"),
            ("status code: 501 Not Implemented", "unsupported"),
            ("status code: 500 Internal", "io_error"),
        ];
        for (text, code) in cases {
            assert_eq!(failure_of(&generic(text), "p", "place").code.as_str(), code, "{text}");
        }
        let denied = Error::PermissionDenied { path: "p".into(), source: "<Code>AccessDenied</Code>".into() };
        assert_eq!(failure_of(&denied, "p", "place").code.as_str(), "denied");
    }
}
