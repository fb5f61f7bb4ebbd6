//! What every answer carries: an id, and for an error all that S3 says of one.
//!
//! The one rule: no error without a code, a message and the id by which the node's log has it.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::LazyLock;

use hyper::header::{HeaderName, HeaderValue, CONTENT_RANGE, CONTENT_TYPE, ETAG, LAST_MODIFIED};
use hyper::{HeaderMap, Response, StatusCode};
use s3s::dto::TimestampFormat;
use s3s::{Body, S3Error};
use stager_objects::Object;

use crate::attributes::timestamp;
use crate::xml::writable;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-amz-request-id");
const HOST_ID: HeaderName = HeaderName::from_static("x-amz-id-2");
/// From where an error is made to where its answer is: the library's errors have headers, but no more elements.
const CONDITION: HeaderName = HeaderName::from_static("x-stager-condition");

/// Which condition of a request did not hold.
pub fn with_condition(mut error: S3Error, condition: &'static str) -> S3Error {
    error.set_headers(HeaderMap::from_iter([(CONDITION, HeaderValue::from_static(condition))]));
    error
}

/// What a client keeps of an object that has not changed.
pub fn with_validators(mut error: S3Error, object: &Object) -> S3Error {
    let mut modified = Vec::new();
    let _ = timestamp(object.modified_ms).format(TimestampFormat::HttpDate, &mut modified);
    let said = [(ETAG, format!("\"{}\"", object.etag).into_bytes()), (LAST_MODIFIED, modified)];
    let headers = said.into_iter().filter_map(|(name, value)| Some((name, HeaderValue::from_bytes(&value).ok()?)));
    error.set_headers(headers.collect());
    error
}

/// How long the object is of which more was asked for.
pub fn with_size(mut error: S3Error, size_bytes: u64) -> S3Error {
    let size = HeaderValue::from_str(&format!("bytes */{size_bytes}")).ok();
    error.set_headers(size.into_iter().map(|size| (CONTENT_RANGE, size)).collect());
    error
}

/// Told apart from those of every other run of a node, too.
pub fn new_id() -> String {
    static SEED: LazyLock<std::hash::RandomState> = LazyLock::new(std::hash::RandomState::new);
    static COUNT: AtomicU64 = AtomicU64::new(0);
    format!("{:016X}", SEED.hash_one(COUNT.fetch_add(1, Ordering::Relaxed)))
}

fn message(code: &str) -> String {
    let said = match code {
        "SignatureDoesNotMatch" => {
            "the signature is not what this node computes for the request; compare the secret key, the address and the headers that are signed"
        }
        "MalformedXML" => "the document of the request is not XML, or not of the kind this operation takes; nothing was done",
        "MissingContentLength" => "say how long the body is: Content-Length or x-amz-decoded-content-length",
        "IncompleteBody" => "the body did not come whole; nothing was done, send it again",
        "InvalidBucketName" => "a bucket has 3 to 63 lower-case letters, digits, dots and hyphens",
        "KeyTooLongError" => "a name has at most 1024 bytes",
        "InvalidURI" => "the address of the request cannot be read",
        "InvalidRange" => "the object has none of the bytes that are asked for",
        "MaxMessageLengthExceeded" => "the document of the request is too long",
        "MethodNotAllowed" => "this method is not for this address",
        "NotImplemented" => "this operation is not offered here",
        "InternalError" => "the node could not answer; its log says why",
        _ => return format!("the request was refused: {code}"),
    };
    said.to_string()
}

fn between<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, behind) = text.split_once(&format!("<{name}>"))?;
    behind.split_once(&format!("</{name}>")).map(|(inside, _)| inside)
}

fn escaped(text: &str) -> String {
    writable(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The error as S3 has it, made of the library's.
fn document(text: &str, condition: Option<&str>, resource: &str, id: &str) -> String {
    let code = between(text, "Code").unwrap_or("InternalError");
    let message = between(text, "Message").map_or_else(|| escaped(&message(code)), str::to_string);
    let condition = condition.map(|condition| format!("<Condition>{condition}</Condition>")).unwrap_or_default();
    let resource = escaped(resource);
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>{code}</Code><Message>{message}</Message>{condition}\
         <Resource>{resource}</Resource><RequestId>{id}</RequestId><HostId>{id}</HostId></Error>"
    )
}

pub fn finished(answer: Response<Body>, resource: &str, id: &str) -> Response<Body> {
    let (mut head, mut body) = answer.into_parts();
    let condition = head.headers.remove(CONDITION);
    // The library knows it of GET only.
    if head.status == StatusCode::OK && head.headers.contains_key(CONTENT_RANGE) {
        head.status = StatusCode::PARTIAL_CONTENT;
    }
    if head.status == StatusCode::NOT_MODIFIED {
        body = Body::empty();
        head.headers.remove(CONTENT_TYPE);
    } else if head.status.is_client_error() || head.status.is_server_error() {
        let text = body.bytes().map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
        body = Body::from(document(&text, condition.as_ref().and_then(|value| value.to_str().ok()), resource, id));
        head.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    }
    if head.status.is_server_error() {
        tracing::warn!(request = id, resource, status = head.status.as_u16(), "an S3 request failed");
    }
    for name in [REQUEST_ID, HOST_ID] {
        head.headers.extend(HeaderValue::from_str(id).ok().map(|id| (name, id)));
    }
    Response::from_parts(head, body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_all_that_s3_says() {
        let plain = S3Error::new(s3s::S3ErrorCode::SignatureDoesNotMatch).to_http_response().unwrap();
        let answer = finished(plain, "/b/<k>\u{1}", "7");
        assert_eq!((answer.status(), answer.headers()["x-amz-request-id"].as_bytes()), (StatusCode::FORBIDDEN, &b"7"[..]));
        let text = String::from_utf8(answer.body().bytes().unwrap().to_vec()).unwrap();
        assert!(between(&text, "Message").unwrap().contains("secret key"), "{text}");
        assert_eq!(between(&text, "Resource"), Some("/b/&lt;k&gt;\u{fffd}"));
        assert_eq!((between(&text, "RequestId"), between(&text, "Condition")), (Some("7"), None));
    }

    #[test]
    fn a_condition_and_a_message_stay() {
        let error = S3Error::with_message(s3s::S3ErrorCode::PreconditionFailed, "a & b");
        let answer = finished(with_condition(error, "If-None-Match").to_http_response().unwrap(), "/b/k", "7");
        let text = String::from_utf8(answer.body().bytes().unwrap().to_vec()).unwrap();
        assert_eq!((between(&text, "Message"), between(&text, "Condition")), (Some("a &amp; b"), Some("If-None-Match")));
        assert!(!answer.headers().contains_key(CONDITION) && answer.headers()[CONTENT_TYPE] == "application/xml");
    }

    #[test]
    fn no_two_requests_have_one_id() {
        let ids: std::collections::HashSet<_> = (0..1000).map(|_| new_id()).collect();
        assert_eq!(ids.len(), 1000);
    }
}
