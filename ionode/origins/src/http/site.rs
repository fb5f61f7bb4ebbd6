//! One http server as an origin asks it: a bounded number of connections, short waits where it asks for them, one way to put a request.
//!
//! The one rule: what is asked again was answered with nothing that anybody has seen.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Mutex;
use std::time::Duration;

use reqwest::header::{HeaderValue, IF_MATCH, IF_UNMODIFIED_SINCE, RANGE};
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode};
use stager_core::error::{ApiError, Code};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::address::Base;
use super::answer;
use super::client::{client, Timeouts};
use super::identity::{self, Condition, Identity};
use super::limiter::{Limiter, Place};
use crate::config::HttpConfig;
use crate::failure;
use crate::Entry;

/// Many only for many small files at once; a large one takes a few.
const CONNECTIONS_USUAL: usize = 32;
/// Short hiccups are ours; longer ones are the caller's to wait for.
const PAUSES: [Duration; 2] = [Duration::from_millis(300), Duration::from_millis(1500)];
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// Beyond this all is forgotten: a resume is then tried once in vain.
const WHOLE_ONLY_MAX: usize = 10_000;

pub struct Site {
    client: Client,
    base: Base,
    pub place: String,
    pub connections_max: usize,
    pub requests: Limiter,
    /// Most of them, for those who stat many files: whoever reads one does not wait behind all of these.
    pub stats: Semaphore,
    /// Nothing is asked before: the server said so.
    not_before: Mutex<Instant>,
    /// Paths that came whole when a range was asked for.
    whole_only: Mutex<HashSet<String>>,
}

/// An answer whose body is still to be read; the connection counts until then.
pub struct Answer {
    pub response: Response,
    pub span: Span,
    /// By what its head says.
    pub immutable: bool,
    _connection: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    From(u64),
    Whole,
}

impl Site {
    pub fn new(config: &HttpConfig, timeouts: Timeouts) -> Result<Self, ApiError> {
        let base = Base::new(&config.base_url, config.queries)?;
        let connections_max = config.connections_max.unwrap_or(CONNECTIONS_USUAL).max(1);
        Ok(Self {
            client: client(config, &base, timeouts)?,
            place: base.shown().to_owned(),
            base,
            connections_max,
            requests: Limiter::new(connections_max),
            stats: Semaphore::new((connections_max * 3 / 4).max(1)),
            not_before: Mutex::new(Instant::now()),
            whole_only: Mutex::default(),
        })
    }

    pub async fn head(&self, path: &str) -> Result<Entry, ApiError> {
        let (sent, connection) = self.send(Method::HEAD, path, |request| request).await?;
        match sent.status() {
            StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED | StatusCode::FORBIDDEN => {}
            _ => {
                if let Some(error) = answer::refusal(&sent, path, &self.place) {
                    return Err(error);
                }
                self.check_coding(&sent, path)?;
                if let Some(size_bytes) = identity::length(sent.headers()) {
                    return Ok(Identity::of(sent.headers(), size_bytes, true).entry(path, size_bytes));
                }
            }
        }
        drop(connection);
        self.first_byte(path).await
    }

    /// For servers that refuse HEAD, or answer it without a length.
    async fn first_byte(&self, path: &str) -> Result<Entry, ApiError> {
        let (sent, _connection) = self.send(Method::GET, path, |request| request.header(RANGE, "bytes=0-0")).await?;
        let size_bytes = match sent.status() {
            StatusCode::RANGE_NOT_SATISFIABLE => identity::length_unmet(sent.headers()),
            _ => {
                if let Some(error) = answer::refusal(&sent, path, &self.place) {
                    return Err(error);
                }
                self.check_coding(&sent, path)?;
                match sent.status() {
                    StatusCode::PARTIAL_CONTENT => identity::range(sent.headers()).and_then(|(_, _, total)| total),
                    _ => identity::length(sent.headers()),
                }
            }
        };
        let size_bytes = size_bytes.ok_or_else(|| answer::unsized_answer(path, &self.place))?;
        Ok(Identity::of(sent.headers(), size_bytes, sent.status() == StatusCode::OK).entry(path, size_bytes))
    }

    /// Anything at all at the base: an answer of whatever kind is one.
    pub async fn reach(&self) -> Result<Option<ApiError>, ApiError> {
        let (sent, _connection) = self.send(Method::HEAD, "", |request| request).await?;
        Ok(answer::refusal(&sent, "", &self.place))
    }

    /// Bytes of the content that has the expected token, from where the range starts or, by a server without ranges, all of them.
    pub async fn bytes(&self, expected: &Entry, range: Range<u64>) -> Result<Answer, ApiError> {
        let path = expected.path.as_str();
        let asked = |request: RequestBuilder| {
            let request = request.header(RANGE, format!("bytes={}-{}", range.start, range.end - 1));
            match identity::condition(&expected.token) {
                Condition::Match(tag) => match HeaderValue::from_str(tag) {
                    Ok(tag) => request.header(IF_MATCH, tag),
                    Err(_) => request,
                },
                Condition::Unmodified(since) => request.header(IF_UNMODIFIED_SINCE, httpdate::fmt_http_date(since)),
                Condition::None => request,
            }
        };
        let (response, connection) = self.send(Method::GET, path, asked).await?;
        if let Some(error) = answer::refusal(&response, path, &self.place) {
            return Err(error);
        }
        self.check_coding(&response, path)?;
        let headers = response.headers();
        let (span, size_bytes) = if response.status() == StatusCode::PARTIAL_CONTENT {
            let broken = || failure::protocol_broken(path, &self.place, "it sent another range than was asked for");
            let (start, end, total) = identity::range(headers).ok_or_else(broken)?;
            if start != range.start || end > range.end || end <= start {
                return Err(broken());
            }
            (Span::From(start), total)
        } else {
            self.note_whole(path);
            (Span::Whole, identity::length(headers))
        };
        // Servers that do not know the condition answer with what they have.
        let found = Identity::of(headers, size_bytes.unwrap_or(expected.size_bytes), false);
        if !found.is_core_of(&expected.token) {
            return Err(failure::source_changed(path, &self.place, &expected.token, found.shown()));
        }
        Ok(Answer { immutable: found.is_immutable(), response, span, _connection: connection })
    }

    pub fn is_whole_only(&self, path: &str) -> bool {
        self.whole_only.lock().expect("no holder panics").contains(path)
    }

    fn note_whole(&self, path: &str) {
        let mut known = self.whole_only.lock().expect("no holder panics");
        if known.len() >= WHOLE_ONLY_MAX {
            known.clear();
        }
        if known.insert(path.to_owned()) {
            tracing::info!(
                path,
                place = self.place,
                "the server gives no ranges: one connection reads the file, and a new try starts over"
            );
        }
    }

    fn check_coding(&self, response: &Response, path: &str) -> Result<(), ApiError> {
        identity::encoding(response.headers()).map_or(Ok(()), |coding| Err(answer::encoded_answer(path, &self.place, coding)))
    }

    /// What the server cannot do just now is asked for again a little later, while that is soon.
    async fn send(
        &self,
        method: Method,
        path: &str,
        with: impl Fn(RequestBuilder) -> RequestBuilder,
    ) -> Result<(Response, Place), ApiError> {
        let mut pauses = PAUSES.into_iter();
        loop {
            let connection = self.requests.place().await;
            self.wait_if_told(path).await?;
            let (error, passing) = match with(self.client.request(method.clone(), self.base.of(path))).send().await {
                Ok(response) => match answer::refusal(&response, path, &self.place).filter(|_| is_passing(response.status())) {
                    Some(error) => (self.heed(error, response.status()), true),
                    None => return Ok((response, connection)),
                },
                Err(error) => {
                    let error = answer::failure_of(&error, path, &self.place);
                    let passing = error.code == Code::ConnectionLost;
                    (error, passing)
                }
            };
            let asked_for = error.retry_after_s.map(Duration::from_secs_f64);
            match pauses.next() {
                Some(pause) if passing && asked_for.unwrap_or_default() <= PAUSE_MAX => {
                    drop(connection);
                    tokio::time::sleep(asked_for.unwrap_or(pause)).await;
                }
                _ => return Err(error),
            }
        }
    }

    /// 429 is about us and not about one file: all requests wait.
    fn heed(&self, error: ApiError, status: StatusCode) -> ApiError {
        if let Some(wait) = error.retry_after_s.filter(|_| status == StatusCode::TOO_MANY_REQUESTS) {
            let until = Instant::now() + Duration::from_secs_f64(wait);
            let mut not_before = self.not_before.lock().expect("no holder panics");
            *not_before = (*not_before).max(until);
        }
        error
    }

    async fn wait_if_told(&self, path: &str) -> Result<(), ApiError> {
        let not_before = *self.not_before.lock().expect("no holder panics");
        let left = not_before.saturating_duration_since(Instant::now());
        if left > PAUSE_MAX {
            let message =
                format!("{} asked for no more calls within {:.0} s; stager retries {path:?} then.", self.place, left.as_secs_f64());
            let error = ApiError::new(Code::OriginUnreachable, path, message);
            return Err(ApiError { retry_after_s: Some(left.as_secs_f64()), ..error });
        }
        tokio::time::sleep(left).await;
        Ok(())
    }
}

fn is_passing(status: StatusCode) -> bool {
    matches!(status.as_u16(), 429 | 500 | 502..=504)
}
