//! Answers: JSON, or a stream of bytes, or the uniform error. Knows HTTP, not what calls mean.
//!
//! The one rule: every error leaves as the same JSON, with the status its code asks for.

use bytes::Bytes;
use futures::stream::Stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use hyper::header::{CONTENT_TYPE, RETRY_AFTER};
use hyper::{Response, StatusCode};
use serde::Serialize;
use stager_core::error::{ApiError, Class, Code};

use crate::failure::Failure;
use crate::wire::ErrorAnswer;

pub type Body = UnsyncBoxBody<Bytes, std::io::Error>;
pub type Answer = Response<Body>;

pub fn json(status: StatusCode, value: &impl Serialize) -> Answer {
    let bytes = serde_json::to_vec(value).expect("answers are plain values");
    let mut answer = Response::new(full(bytes.into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static("application/json"));
    answer
}

pub fn ok(value: &impl Serialize) -> Answer {
    json(StatusCode::OK, value)
}
pub fn accepted(value: &impl Serialize) -> Answer {
    json(StatusCode::ACCEPTED, value)
}
pub fn empty() -> Answer {
    ok(&crate::wire::Empty {})
}

fn full(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

pub fn bytes(bytes: Bytes) -> Answer {
    Response::new(full(bytes))
}

pub fn frames(frames: impl Stream<Item = Result<Frame<Bytes>, std::io::Error>> + Send + 'static) -> Body {
    StreamBody::new(frames).boxed_unsync()
}

pub fn failure(failure: Failure) -> Answer {
    let status = status(&failure.error);
    let retry_after_s = failure.error.retry_after_s;
    let mut answer = json(status, &ErrorAnswer { error: failure.error, detail: failure.detail });
    if let Some(seconds) = retry_after_s {
        answer.headers_mut().insert(RETRY_AFTER, (seconds.ceil() as u64).into());
    }
    answer
}

fn status(error: &ApiError) -> StatusCode {
    match (error.code, error.class) {
        (Code::ReplicaUnknown | Code::NotFound, _) => StatusCode::NOT_FOUND,
        (Code::NoSpaceNode, _) => StatusCode::INSUFFICIENT_STORAGE,
        (Code::OutputsMissing | Code::OutputEscapes, _) => StatusCode::UNPROCESSABLE_ENTITY,
        (_, Class::InvalidInput) => StatusCode::BAD_REQUEST,
        (_, Class::Refused) => StatusCode::CONFLICT,
        (_, Class::Transient) => StatusCode::SERVICE_UNAVAILABLE,
        (_, Class::Corrupt) => StatusCode::INTERNAL_SERVER_ERROR,
        (_, Class::Denied) => StatusCode::FORBIDDEN,
    }
}
