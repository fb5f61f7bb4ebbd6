//! Calls to another node: HTTP/1.1 over TLS, TCP or a Unix socket, on connections that are used again. Knows no call's meaning.
//!
//! The one rule: a node is asked who it is before it is believed, and once more after it could not be reached.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{HeaderMap, HeaderName, HeaderValue, AUTHORIZATION, HOST};
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use serde::Serialize;
use stager_core::error::{ApiError, Code};
use stager_origins::Secret;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use crate::failure::{bad_request, Failure};
use crate::lines;
use crate::tls::{trust, Anonymous, Refused, Tls};
use crate::wire::{ErrorAnswer, NodeStatus};

pub type Body = UnsyncBoxBody<Bytes, std::io::Error>;

const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// A call that only looks and answers.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(30);
const ANSWER_BYTES_MAX: usize = 64 << 20;
const IDLE_MAX: usize = 16;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    Tcp(String),
    Unix(PathBuf),
}

impl Address {
    /// `host:port`, or the absolute path of a Unix socket.
    pub fn parse(text: &str) -> Result<Self, ApiError> {
        if text.starts_with('/') {
            return Ok(Self::Unix(PathBuf::from(text)));
        }
        let good = text.rsplit_once(':').is_some_and(|(host, port)| {
            let plain = host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_[]:".contains(&byte));
            !host.is_empty() && plain && port.parse::<u16>().is_ok_and(|port| port > 0)
        });
        match good {
            true => Ok(Self::Tcp(text.to_string())),
            false => {
                Err(bad_request(text, format!("{text:?} is no address of a node; write host:port or the absolute path of its socket")))
            }
        }
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(address) => f.write_str(address),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// What a node said of itself.
#[derive(Clone, Debug)]
pub struct Identity {
    pub node_id: String,
    pub incarnation: String,
    pub epoch: u64,
}

/// A connection of either kind.
pub trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Duplex for T {}

/// What every call to it carries, and what a call in a term of its own differs by.
struct Known {
    identity: Identity,
    headers: HeaderMap,
}

/// In whose name a call is made: a scheduler's term, or the one that the node itself obeys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Term {
    Of(u64),
    Its,
}

pub struct Link {
    /// `None`: whoever answers there.
    expected: Option<String>,
    pub address: Address,
    /// Where a certificate shows who calls, nothing is to be told by a token.
    token: Option<Secret>,
    tls: Option<Arc<Tls>>,
    /// Instead of `tls`, for who has a ticket and no certificate.
    anonymous: Option<Arc<Anonymous>>,
    /// What is said to a node that is not asked who it is: a ticket does not allow that.
    fixed: Option<Arc<Known>>,
    known: Mutex<Option<Arc<Known>>>,
    idle: Mutex<Vec<SendRequest<Body>>>,
}

/// A call as it is sent.
pub struct Call<'a> {
    pub method: &'a str,
    pub path: String,
    pub headers: Vec<(&'static str, String)>,
    pub body: Body,
    pub term: Term,
}

pub fn bytes_body(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// An answer whose body has not been read; its connection is used again if it is read to its end.
pub struct Reply<'a> {
    pub response: Response<Incoming>,
    link: &'a Link,
    sender: SendRequest<Body>,
}

impl Reply<'_> {
    pub fn status(&self) -> StatusCode {
        self.response.status()
    }

    pub async fn next(&mut self) -> Option<Result<Bytes, hyper::Error>> {
        loop {
            match self.response.body_mut().frame().await? {
                Ok(frame) => match frame.into_data() {
                    Ok(bytes) => return Some(Ok(bytes)),
                    Err(_) => continue,
                },
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// To be called when the body was read to its end.
    pub fn done(self) {
        let mut idle = self.link.idle.lock().expect("nobody panics here");
        if idle.len() < IDLE_MAX {
            idle.push(self.sender);
        }
    }

    async fn collect(self) -> Result<(StatusCode, Bytes), ApiError> {
        let Self { response, link, sender } = self;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        let bytes = body.map_err(|_| link.lost("its answer broke off"))?.to_bytes();
        let mut idle = link.idle.lock().expect("nobody panics here");
        if idle.len() < IDLE_MAX {
            idle.push(sender);
        }
        Ok((status, bytes))
    }
}

/// The node is another than when it was asked who it is: restarted, or, for who has no term of his own, under another scheduler.
pub fn is_outdated(error: &ApiError, term: Term) -> bool {
    error.code == Code::StaleIncarnation || (error.code == Code::StaleEpoch && matches!(term, Term::Its))
}

impl Link {
    pub fn new(expected: Option<String>, address: Address, token: Option<Secret>) -> Self {
        Self { expected, address, token, tls: None, anonymous: None, fixed: None, known: Mutex::new(None), idle: Mutex::new(Vec::new()) }
    }

    /// Over TCP it speaks TLS from now on, and nothing else.
    pub fn with_tls(self, tls: Option<Arc<Tls>>) -> Self {
        Self { tls, ..self }
    }

    /// In the name of an attempt; `epoch`: the one it was opened under. Without `anonymous` over plain TCP.
    pub fn by_ticket(address: Address, ticket: &str, epoch: u64, expected: Option<String>, anonymous: Option<Arc<Anonymous>>) -> Self {
        let identity = Identity { node_id: expected.clone().unwrap_or_default(), incarnation: String::new(), epoch };
        let link = Self { anonymous, ..Self::new(expected, address, Some(Secret::new(ticket))) };
        let mut headers = link.headers();
        headers.insert("x-stager-epoch", epoch.into());
        Self { fixed: Some(Arc::new(Known { identity, headers })), ..link }
    }

    /// How sentences call it.
    pub fn name(&self) -> String {
        let known = self.known.lock().expect("nobody panics here").as_ref().map(|known| known.identity.node_id.clone());
        match self.expected.clone().or(known) {
            Some(node_id) => format!("the node {node_id}"),
            None => format!("the node at {}", self.address),
        }
    }

    pub fn lost(&self, why: &str) -> ApiError {
        ApiError::new(Code::ConnectionLost, self.address.to_string(), format!("{}: {why}; stager retries", self.name()))
    }

    fn unreachable(&self, why: &str) -> ApiError {
        let message = format!("{} does not answer at {} ({why}); check that it runs and has this address", self.name(), self.address);
        ApiError::new(Code::PeerUnreachable, self.address.to_string(), message)
    }

    fn refused(&self, why: &str) -> ApiError {
        let message = format!("{} is not spoken to at {}: {why}", self.name(), self.address);
        ApiError::new(Code::PeerRefused, self.address.to_string(), message)
    }

    /// Who answers there; asked once for each connection that had to be made anew.
    pub async fn identity(&self) -> Result<Identity, ApiError> {
        self.known().await.map(|known| known.identity.clone())
    }

    async fn known(&self) -> Result<Arc<Known>, ApiError> {
        if let Some(fixed) = &self.fixed {
            return Ok(fixed.clone());
        }
        if let Some(known) = self.known.lock().expect("nobody panics here").clone() {
            return Ok(known);
        }
        let mut request = Request::new(bytes_body(Bytes::new()));
        *request.uri_mut() = Uri::from_static("/v1/node");
        *request.headers_mut() = self.headers();
        let (status, bytes) = self.within(ANSWER_WITHIN, async { self.exchange(request).await?.collect().await }).await?;
        let said: NodeStatus = self.parsed(status, &bytes)?;
        if self.expected.as_ref().is_some_and(|expected| *expected != said.node_id) {
            let message = format!("the node {} answers at {}, and not {}; give its right address", said.node_id, self.address, self.name());
            return Err(ApiError::new(Code::PeerUnknown, &said.node_id, message));
        }
        let identity = Identity { node_id: said.node_id, incarnation: said.incarnation, epoch: said.epoch };
        let mut headers = self.headers();
        headers.insert("x-stager-epoch", identity.epoch.into());
        headers.insert("x-stager-incarnation", plain(&identity.incarnation));
        let known = Arc::new(Known { identity, headers });
        *self.known.lock().expect("nobody panics here") = Some(known.clone());
        Ok(known)
    }

    fn forget_identity(&self) {
        *self.known.lock().expect("nobody panics here") = None;
        self.idle.lock().expect("nobody panics here").clear();
    }

    fn headers(&self) -> HeaderMap {
        let host = match &self.address {
            Address::Tcp(address) => address.as_str(),
            Address::Unix(_) => "node",
        };
        let mut headers = HeaderMap::new();
        headers.insert(HOST, plain(host));
        if let Some(token) = &self.token {
            headers.insert(AUTHORIZATION, plain(&format!("Bearer {}", token.reveal())));
        }
        headers.insert("x-stager-api", crate::wire::API.into());
        headers
    }

    /// The answer of the node's incarnation of now; an error answer is an error.
    pub async fn send(&self, call: Call<'_>) -> Result<Reply<'_>, ApiError> {
        let known = self.known().await?;
        let term = call.term;
        let reply = self.exchange(self.request(&known, call)).await?;
        if reply.status().is_success() {
            return Ok(reply);
        }
        let (status, bytes) = reply.collect().await?;
        let error = self.error_of(status, &bytes);
        if is_outdated(&error, term) {
            self.forget_identity();
        }
        Err(error)
    }

    fn request(&self, known: &Known, call: Call<'_>) -> Request<Body> {
        let mut request = Request::new(call.body);
        *request.method_mut() = Method::from_bytes(call.method.as_bytes()).expect("methods are plain words");
        *request.uri_mut() = call.path.parse().expect("ids and numbers make plain paths");
        let headers = request.headers_mut();
        *headers = known.headers.clone();
        if let Term::Of(epoch) = call.term {
            headers.insert("x-stager-epoch", epoch.into());
        }
        for (name, value) in call.headers {
            headers.append(HeaderName::from_static(name), HeaderValue::try_from(value).expect("ids and numbers make plain headers"));
        }
        request
    }

    /// A JSON call. One that finds another incarnation than before, or an old connection closed, is made once more.
    pub async fn json<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        term: Term,
        body: Option<&impl Serialize>,
        within: Duration,
    ) -> Result<T, ApiError> {
        let bytes = body.map(|body| serde_json::to_vec(body).expect("requests are plain values")).unwrap_or_default();
        let (status, bytes) = self.asked(method, path, term, bytes.into(), within).await?;
        self.parsed(status, &bytes)
    }

    /// As `json`; the answer as it is.
    pub async fn bytes(&self, method: &str, path: &str, term: Term, within: Duration) -> Result<Bytes, ApiError> {
        self.asked(method, path, term, Bytes::new(), within).await.map(|(_, bytes)| bytes)
    }

    /// As `json`, made once, with what the node says beside an error.
    pub async fn detailed<T: DeserializeOwned>(&self, method: &str, path: &str, body: Bytes, within: Duration) -> Result<T, Failure> {
        let call = Call { method, path: path.to_string(), headers: Vec::new(), body: bytes_body(body), term: Term::Its };
        let known = self.known().await?;
        let request = self.request(&known, call);
        let (status, bytes) = self.within(within, async { self.exchange(request).await?.collect().await }).await?;
        match self.parsed(status, &bytes) {
            Err(error) => {
                let detail = serde_json::from_slice::<ErrorAnswer>(&bytes).map(|answer| answer.detail).unwrap_or_default();
                Err(Failure { error, detail })
            }
            answer => Ok(answer?),
        }
    }

    async fn asked(&self, method: &str, path: &str, term: Term, body: Bytes, within: Duration) -> Result<(StatusCode, Bytes), ApiError> {
        let mut again = true;
        loop {
            let call = Call { method, path: path.to_string(), headers: Vec::new(), body: bytes_body(body.clone()), term };
            match self.within(within, async { self.send(call).await?.collect().await }).await {
                Err(error) if again && (is_outdated(&error, term) || error.code == Code::ConnectionLost) => again = false,
                outcome => return outcome,
            }
        }
    }

    pub async fn within<T>(&self, within: Duration, work: impl std::future::Future<Output = Result<T, ApiError>>) -> Result<T, ApiError> {
        match tokio::time::timeout(within, work).await {
            Ok(outcome) => outcome,
            Err(_) => {
                self.forget_identity();
                let message = format!("{} did not answer within {} s; stager retries", self.name(), within.as_secs());
                Err(ApiError::new(Code::Timeout, self.address.to_string(), message))
            }
        }
    }

    fn parsed<T: DeserializeOwned>(&self, status: StatusCode, bytes: &[u8]) -> Result<T, ApiError> {
        if !status.is_success() {
            return Err(self.error_of(status, bytes));
        }
        serde_json::from_slice(bytes).map_err(|error| {
            let message = format!("the answer of {} is not understood ({error}); use stager-ionode of one release everywhere", self.name());
            ApiError::new(Code::IoError, self.address.to_string(), message)
        })
    }

    pub fn error_of(&self, status: StatusCode, bytes: &[u8]) -> ApiError {
        match serde_json::from_slice::<ErrorAnswer>(bytes) {
            Ok(answer) => ApiError { message: format!("{}: {}", self.name(), answer.error.message), ..answer.error },
            Err(_) => {
                let message = format!("{} answered {status} and no reason; look at its log", self.name());
                ApiError::new(Code::IoError, self.address.to_string(), message)
            }
        }
    }

    async fn exchange(&self, request: Request<Body>) -> Result<Reply<'_>, ApiError> {
        let mut sender = match self.pooled() {
            Some(sender) => sender,
            None => self.connect().await?,
        };
        let outcome = async {
            sender.ready().await?;
            sender.send_request(request).await
        };
        match outcome.await {
            Ok(response) => Ok(Reply { response, link: self, sender }),
            Err(error) => {
                self.forget_identity();
                // The other side looks at this one's certificate when this one has done with its own.
                Err(match trust::within(&error) {
                    Some(found) => self.refused(&trust::why(found)),
                    None => self.lost(&format!("the connection broke ({error})")),
                })
            }
        }
    }

    fn pooled(&self) -> Option<SendRequest<Body>> {
        let mut idle = self.idle.lock().expect("nobody panics here");
        while let Some(sender) = idle.pop() {
            if !sender.is_closed() {
                return Some(sender);
            }
        }
        None
    }

    async fn connect(&self) -> Result<SendRequest<Body>, ApiError> {
        let stream = self.stream().await?;
        open(stream).await.map_err(|error| self.unreachable(&error.to_string()))
    }

    /// What each request of this kind begins with, up to the length of its body: for who speaks HTTP by itself.
    pub async fn head(&self, method: &str, path: &str, media_type: &str) -> Result<String, ApiError> {
        let known = self.known().await?;
        let mut head = format!("{method} {path} HTTP/1.1\r\ncontent-type: {media_type}\r\n");
        for (name, value) in &known.headers {
            head.push_str(&format!("{name}: {}\r\n", value.to_str().expect("ids and numbers are plain text")));
        }
        Ok(head)
    }

    /// A connection of one's own, without a word said on it.
    pub async fn stream(&self) -> Result<Box<dyn Duplex>, ApiError> {
        let connected = tokio::time::timeout(CONNECT_WITHIN, async {
            Ok::<Box<dyn Duplex>, Refused>(match (&self.address, &self.tls) {
                (Address::Tcp(address), tls) => {
                    let stream = TcpStream::connect(address).await?;
                    stream.set_nodelay(true)?;
                    lines::watch(&stream)?;
                    match (tls, &self.anonymous) {
                        (Some(tls), _) => Box::new(tls.connect(stream, self.expected.as_deref()).await?),
                        (None, Some(anonymous)) => Box::new(anonymous.connect(stream, self.expected.as_deref()).await?),
                        (None, None) => Box::new(stream),
                    }
                }
                (Address::Unix(path), _) => Box::new(UnixStream::connect(path).await?),
            })
        });
        let outcome = connected.await.map_err(|_| self.unreachable("no connection in time")).and_then(|outcome| {
            outcome.map_err(|refused| match refused {
                Refused::Io(error) => self.unreachable(&error.to_string()),
                Refused::ByTls(why) => self.refused(&why),
            })
        });
        if outcome.is_err() {
            self.forget_identity();
        }
        outcome
    }
}

fn plain(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).expect("ids and numbers make plain headers")
}

async fn open(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> std::io::Result<SendRequest<Body>> {
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(std::io::Error::other)?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to a peer broke");
        }
    });
    Ok(sender)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_a_port_of_a_host_or_a_socket() {
        assert_eq!(Address::parse("/run/x.sock").unwrap(), Address::Unix("/run/x.sock".into()));
        for good in ["node1:7000", "10.0.0.1:1", "[::1]:65535", "a-b.c:80"] {
            assert!(Address::parse(good).is_ok(), "{good}");
        }
        for bad in ["", "node1", ":7000", "node1:", "node1:0", "node1:70000", "no de:1", "run/x.sock", "a\r\nb:1"] {
            assert!(Address::parse(bad).is_err(), "{bad}");
        }
    }
}
