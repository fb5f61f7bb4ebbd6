//! What an http server's refusals, and the lack of an answer, mean in the contract's words. Knows status codes and reqwest's errors.
//!
//! The one rule: a request that might have worked is transient; only what the server clearly refused is final. No URL is shown: one that a
//! redirect led to may hold a signature.

use std::error::Error as StdError;
use std::time::{Duration, SystemTime};

use reqwest::header::{HeaderMap, CONTENT_LENGTH, RETRY_AFTER};
use reqwest::{Response, StatusCode};
use stager_core::error::{ApiError, Code};

use super::client::Barred;
use crate::failure;

/// What a server may ask us to wait at most.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(3600);
const CERTIFICATE: &str = "invalid peer certificate: ";

/// None where the answer is good.
pub fn refusal(response: &Response, path: &str, place: &str) -> Option<ApiError> {
    let status = response.status();
    if matches!(status, StatusCode::OK | StatusCode::PARTIAL_CONTENT) {
        return None;
    }
    let named = failure::shown(path);
    let said = format!("the server answers {status}");
    Some(match status.as_u16() {
        401 | 407 => {
            ApiError::new(Code::AuthFailed, place, format!("{place} wants other credentials ({said}); check those of this origin."))
        }
        403 | 451 => failure::denied(path, place, &said),
        404 | 410 => failure::not_found(path, place),
        408 => ApiError::new(Code::Timeout, path, format!("{place} did not get the request for {named} in time ({said}).")),
        412 | 416 => {
            let message = format!("{named} at {place} changed while it was read ({said}); plan again with the new content.");
            ApiError::new(Code::SourceChanged, path, message)
        }
        429 | 502..=504 => {
            let message = format!("{place} asks for a later call ({said}); stager retries {named}.");
            let retry_after_s = retry_after(response.headers(), SystemTime::now()).map(|wait| wait.as_secs_f64());
            ApiError { retry_after_s, ..ApiError::new(Code::OriginUnreachable, path, message) }
        }
        500 | 506..=599 => ApiError::new(Code::IoError, path, format!("{named} at {place} failed ({said}).")),
        200..=299 => failure::protocol_broken(path, place, &format!("to a request for bytes {said}")),
        _ => ApiError::new(Code::BadRequest, path, format!("{place} does not take the request for {named} ({said}); check the URL.")),
    })
}

/// In seconds or as a date.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => httpdate::parse_http_date(text).ok()?.duration_since(now).unwrap_or_default(),
    };
    Some(wait.min(RETRY_AFTER_MAX))
}

pub fn failure_of(error: &reqwest::Error, path: &str, place: &str) -> ApiError {
    let named = failure::shown(path);
    if let Some(barred) = barred(error) {
        let message = format!("{named} at {place} cannot be fetched: {barred}; where the file lies at another place, name that place.");
        return ApiError::new(Code::Denied, path, message);
    }
    let said = chain(error);
    if let Some((_, why)) = said.split_once(CERTIFICATE) {
        let message =
            format!("The certificate of {place} is not accepted ({why}); mend it there, or name the authority that signed it in ca_file.");
        return ApiError::new(Code::CertificateRefused, path, message);
    }
    if error.is_connect() {
        let message = if error.is_timeout() {
            format!("{place} cannot be reached: no connection in time; check the URL and the network.")
        } else {
            format!("{place} cannot be reached ({}); check the URL and the network.", last(error))
        };
        return ApiError::new(Code::OriginUnreachable, path, message);
    }
    if error.is_timeout() {
        return ApiError::new(Code::Timeout, path, format!("{place} did not answer in time for {named}."));
    }
    let message = format!("The connection to {place} was lost while working on {named} ({}).", last(error));
    ApiError::new(Code::ConnectionLost, path, message)
}

pub fn unsized_answer(path: &str, place: &str) -> ApiError {
    let named = failure::shown(path);
    let message = format!("{place} does not say how large {named} is (no {CONTENT_LENGTH}); put it where the server says so.");
    ApiError::new(Code::Unsupported, path, message)
}

pub fn encoded_answer(path: &str, place: &str, encoding: &str) -> ApiError {
    let named = failure::shown(path);
    let message = format!(
        "{place} sends {named} coded as {encoding:?} though it was asked for the bytes as they are; have the server send it uncoded."
    );
    ApiError::new(Code::Unsupported, path, message)
}

pub fn read_only(path: &str, place: &str) -> ApiError {
    let named = failure::shown(path);
    let message = format!("{named} cannot be written: {place} is an http origin, which can only be read; name a file, sftp or s3 origin.");
    ApiError::new(Code::Unsupported, path, message)
}

pub fn no_listing(path: &str, place: &str) -> ApiError {
    let named = failure::shown(path);
    let message = format!("{named} cannot be listed: {place} is an http origin, and http knows no listings; name the files one by one.");
    ApiError::new(Code::Unsupported, path, message)
}

fn barred(error: &reqwest::Error) -> Option<Barred> {
    let mut source: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(error) = source {
        if let Some(barred) = error.downcast_ref() {
            return Some(*barred);
        }
        source = error.source();
    }
    None
}

/// All but the first, which names the URL.
pub fn chain(error: &reqwest::Error) -> String {
    let mut said: Vec<String> = Vec::new();
    let mut source = error.source();
    while let Some(error) = source {
        said.push(error.to_string());
        source = error.source();
    }
    said.join(": ")
}

/// The root of it says most.
fn last(error: &reqwest::Error) -> String {
    let said = chain(error);
    said.rsplit(": ").next().filter(|said| !said.is_empty()).unwrap_or("no reason was given").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_read_and_bounded() {
        let now = httpdate::parse_http_date("Sat, 01 Jan 2000 00:00:00 GMT").unwrap();
        let of = |text: &str| retry_after(&HeaderMap::from_iter([(RETRY_AFTER, text.parse().unwrap())]), now).map(|wait| wait.as_secs());
        assert_eq!(of("7"), Some(7));
        assert_eq!(of("Sat, 01 Jan 2000 00:00:09 GMT"), Some(9));
        assert_eq!(of("Fri, 31 Dec 1999 00:00:00 GMT"), Some(0));
        assert_eq!(of("999999999"), Some(3600));
        assert_eq!((of("soon"), of("-1")), (None, None));
    }
}
