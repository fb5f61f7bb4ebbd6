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

/// How object_store begins what a server answered. Its type for that is private.
const STATUS: &str = "Server returned non-2xx status code: ";
const ERROR_UNDER_200: &str = "Server returned error response: ";
const REDIRECTED: [&str; 2] = ["Received redirect without LOCATION", "error following redirect"];

pub fn failure_of(error: &Error, path: &str, place: &str) -> ApiError {
    let named = failure::shown(path);
    let said = chain(error);
    let answer = Answer::of(error);
    let code = answer.code();
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
        other => by_transport(other, &answer, &said, path, place),
    }
}

/// What the server itself said.
#[derive(Default)]
struct Answer {
    status: Option<u16>,
    body: String,
}

impl Answer {
    /// From the one link of the chain that begins with it: the others hold the URL, and a key may be called anything.
    fn of(error: &Error) -> Self {
        let found = links(error).find_map(|link| {
            let text = link.to_string();
            if let Some(body) = text.strip_prefix(ERROR_UNDER_200) {
                return Some(Self { status: None, body: body.to_owned() });
            }
            let rest = text.strip_prefix(STATUS)?;
            let (status, body) = rest.split_once(": ").unwrap_or((rest, ""));
            Some(Self { status: status.get(..3).and_then(|digits| digits.parse().ok()), body: body.to_owned() })
        });
        found.unwrap_or_default()
    }

    fn code(&self) -> &str {
        between(&self.body, "<Code>", "</Code>").unwrap_or("")
    }

    /// Its own sentence, where it sent one.
    fn message(&self) -> Option<&str> {
        between(&self.body, "<Message>", "</Message>")
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
        // It was ended and the answer lost, or a rule of the bucket removed it: the next try looks, and begins one of its own.
        "NoSuchUpload" => {
            let message =
                format!("{place} no longer knows the upload of {named}; stager looks whether it is there and sends it again if not.");
            ApiError::new(Code::IoError, path, message)
        }
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

fn by_transport(error: &Error, answer: &Answer, said: &str, path: &str, place: &str) -> ApiError {
    let named = failure::shown(path);
    let why = match answer.message() {
        Some(message) => format!("the server says {}: {message}", answer.code()),
        None => said.chars().take(400).collect(),
    };
    let message = format!("{named} at {place} failed: {why}.");
    if links(error).any(|link| REDIRECTED.iter().any(|said| link.to_string().starts_with(said))) {
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
        _ if answer.status == Some(501) => ApiError::new(Code::Unsupported, path, message),
        _ if answer.status == Some(507) => failure::no_space(path, place),
        _ => ApiError::new(Code::IoError, path, message),
    }
}

/// The error and its causes.
fn links(error: &Error) -> impl Iterator<Item = &(dyn StdError + 'static)> {
    std::iter::successors(Some(error as &(dyn StdError + 'static)), |&link| link.source())
}

fn http_kind(error: &Error) -> Option<HttpErrorKind> {
    links(error).find_map(|link| link.downcast_ref::<HttpError>()).map(HttpError::kind)
}

/// The whole chain in one line. S3's error bodies hold ids and names, and signing secrets never travel.
fn chain(error: &Error) -> String {
    links(error).map(ToString::to_string).fold(String::new(), |said, more| match said.is_empty() {
        true => more,
        false if said.contains(&more) => said,
        false => format!("{said}: {more}"),
    })
}

fn between<'a>(said: &'a str, open: &str, close: &str) -> Option<&'a str> {
    said.split_once(open).and_then(|(_, rest)| rest.split_once(close)).map(|(inside, _)| inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generic(text: &str) -> Error {
        Error::Generic { store: "S3", source: text.to_owned().into() }
    }

    /// As object_store wraps what a server answered: with the URL before it.
    #[derive(Debug)]
    struct Performing(String, Box<dyn StdError + Send + Sync>);

    impl std::fmt::Display for Performing {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            let Self(uri, why) = self;
            write!(f, "Error performing PUT {uri} in 1.5s, after 3 retries, max_retries: 3, retry_timeout: 60s  - {why}")
        }
    }

    impl StdError for Performing {
        fn source(&self) -> Option<&(dyn StdError + 'static)> {
            Some(&*self.1)
        }
    }

    fn performing(uri: &str, text: &str) -> Error {
        Error::Generic { store: "S3", source: Box::new(Performing(uri.to_owned(), text.to_owned().into())) }
    }

    #[test]
    fn codes_are_told_apart() {
        let cases = [
            ("403 Forbidden: <Error><Code>SignatureDoesNotMatch</Code></Error>", "auth_failed"),
            ("400 Bad Request: <Error><Code>ExpiredToken</Code></Error>", "auth_failed"),
            ("503 Service Unavailable: <Error><Code>SlowDown</Code></Error>", "io_error"),
            ("400 Bad Request: <Error><Code>XAmzContentSHA256Mismatch</Code></Error>", "checksum_mismatch"),
            ("501 Not Implemented: ", "unsupported"),
            ("500 Internal Server Error: ", "io_error"),
            ("507 Insufficient Storage: ", "no_space_origin"),
            ("599 <unknown status code>: ", "io_error"),
        ];
        for (text, code) in cases {
            assert_eq!(failure_of(&generic(&format!("{STATUS}{text}")), "p", "place").code.as_str(), code, "{text}");
        }
        let slow = generic(&format!("{ERROR_UNDER_200}<Error><Code>SlowDown</Code></Error>"));
        assert_eq!(failure_of(&slow, "p", "place").retry_after_s, Some(5.0));
        let denied =
            Error::PermissionDenied { path: "p".into(), source: format!("{STATUS}403 Forbidden: <Code>AccessDenied</Code>").into() };
        let denied = failure_of(&denied, "p", "place");
        assert!(denied.code.as_str() == "denied" && denied.message.contains("AccessDenied"), "{denied:?}");
        // Of a lost answer, or of a rule of the bucket: the next try looks what is there.
        let ended = format!("{STATUS}404 Not Found: <Error><Code>NoSuchUpload</Code><Message>gone</Message></Error>");
        let ended = Error::NotFound { path: "p".into(), source: ended.into() };
        assert_eq!(failure_of(&ended, "p", "place").class, stager_core::error::Class::Transient);
    }

    #[test]
    fn what_a_key_is_called_says_nothing() {
        let odd = ["redirects.csv", "run 501 ", "run/501", "507", " - Received redirect without LOCATION", "é <Code>NoSuchBucket</Code>"];
        for key in odd.into_iter().chain([STATUS, "Server returned non-2xx status code: 501 Not Implemented: x"]) {
            let uri = format!("http://h/b/{key}");
            let of = |text: &str| failure_of(&performing(&uri, text), key, "place").code.to_string();
            assert_eq!(of("Server returned non-2xx status code: 500 Internal Server Error: "), "io_error", "{key}");
            assert_eq!(of("Server returned non-2xx status code: 501 Not Implemented: "), "unsupported", "{key}");
            assert_eq!(of("Server returned non-2xx status code: 507 Insufficient Storage: "), "no_space_origin", "{key}");
            assert_eq!(of("Received redirect without LOCATION, this normally indicates"), "bad_request", "{key}");
            assert_eq!(of("something else"), "io_error", "{key}");
            let gone = Error::NotFound { path: key.into(), source: format!("{STATUS}404 Not Found: ").into() };
            assert!(failure_of(&gone, key, "place").message == failure::not_found(key, "place").message, "{key}");
        }
    }
}
