//! Connections of the S3 endpoint. Knows sockets and requests, not operations.
//!
//! The one rule: a connection that misbehaves ends alone, and one that says nothing, or nothing good, ends soon.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use hyper::header::{HeaderValue, CONNECTION, EXPECT};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::StatusCode;
use hyper_util::rt::{TokioIo, TokioTimer};
use s3s::config::{S3Config, StaticConfigProvider};
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{s3_error, Body, S3Error, StdError};
use stager_objects::{Objects, UPLOADS_EXPIRE_AFTER};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::bodies::Sent;
use crate::connections::{Caller, Connections, HEAD_BYTES_MAX};
use crate::credentials::Credentials;
use crate::service::Door;
use crate::{answers, documents, readable, signed};

const LAST_ANSWERS_WITHIN: Duration = Duration::from_secs(5);
/// Between two requests of a connection, too.
const NEXT_HEADERS_WITHIN: Duration = Duration::from_secs(60);
/// All together; who comes then waits until one ends.
const CONNECTIONS_MAX: usize = 4096;
/// Of a body that is a document: lists of parts and of names to delete are the longest.
const DOCUMENT_BYTES_MAX: usize = 4 << 20;
const EXPIRE_EVERY: Duration = Duration::from_secs(3600);
/// How much is taken in, and for how long, of a body for which there is no space: who still sends it would find a broken line, not the answer.
const REFUSED_BYTES_MAX: u64 = 256 << 20;
const REFUSED_WITHIN: Duration = Duration::from_secs(20);

/// Held for as long as a request is answered.
pub type Guard = Box<dyn Send + Sync>;

pub struct EndpointSettings {
    pub objects: Objects,
    pub credentials: Credentials,
    /// Called for every request; `None`: the node takes no new work.
    pub guard: Arc<dyn Fn() -> Option<Guard> + Send + Sync>,
}

/// Serves until `shutdown`; then answers what was asked and returns.
pub async fn serve(settings: EndpointSettings, listener: TcpListener, shutdown: CancellationToken) {
    let objects = settings.objects.clone();
    let mut builder = S3ServiceBuilder::new(Door { objects: settings.objects, credentials: settings.credentials.clone() });
    builder.set_access(settings.credentials.clone());
    builder.set_auth(settings.credentials.clone());
    let mut limits = S3Config::default();
    limits.xml_max_body_size = DOCUMENT_BYTES_MAX;
    builder.set_config(Arc::new(StaticConfigProvider::new(Arc::new(limits))));
    let service = Service { s3: builder.build(), credentials: settings.credentials };
    let answering = Answering { service, guard: settings.guard, shutdown: shutdown.clone() };
    let (tasks, connections, places) = (TaskTracker::new(), Connections::default(), Arc::new(Semaphore::new(CONNECTIONS_MAX)));
    let expiring = tokio::spawn(expire(objects));
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &places) => accepted,
            () = shutdown.cancelled() => break,
        };
        match accepted {
            Ok((stream, place)) => {
                tasks.spawn(connection(answering.clone(), stream, connections.accepted(), place));
            }
            Err(error) => {
                // Too many open files, mostly: it passes when a connection ends.
                tracing::warn!(%error, "an S3 connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    expiring.abort();
    tasks.close();
    let _ = tokio::time::timeout(LAST_ANSWERS_WITHIN, tasks.wait()).await;
}

async fn accept(listener: &TcpListener, places: &Arc<Semaphore>) -> std::io::Result<(TcpStream, OwnedSemaphorePermit)> {
    let place = places.clone().acquire_owned().await.map_err(std::io::Error::other)?;
    listener.accept().await.map(|(stream, _)| (stream, place))
}

/// What every connection has.
#[derive(Clone)]
struct Answering {
    service: Service,
    guard: Arc<dyn Fn() -> Option<Guard> + Send + Sync>,
    shutdown: CancellationToken,
}

/// The library's, and what goes before it.
#[derive(Clone)]
struct Service {
    s3: S3Service,
    credentials: Credentials,
}

impl Service {
    async fn call(&self, request: hyper::Request<Sent>) -> Result<hyper::Response<Body>, S3Error> {
        signed::check(&request)?;
        let (mut head, body) = request.into_parts();
        readable::make(&mut head, &self.credentials).await;
        signed::move_to_headers(&mut head)?;
        let request = documents::hashed(hyper::Request::from_parts(head, body));
        self.s3.call(request.map(Body::http_body)).await.map_err(|error| {
            tracing::error!(error = %StdError::from(error), "an S3 request could not be answered");
            S3Error::new(s3s::S3ErrorCode::InternalError)
        })
    }
}

async fn expire(objects: Objects) {
    let mut rounds = tokio::time::interval(EXPIRE_EVERY);
    loop {
        rounds.tick().await;
        if let Err(error) = objects.expire_uploads(UPLOADS_EXPIRE_AFTER).await {
            tracing::warn!(%error, "old uploads could not be aborted; the next round tries again");
        }
    }
}

async fn connection(answering: Answering, stream: TcpStream, caller: Arc<Caller>, _place: OwnedSemaphorePermit) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "an S3 connection was gone before it began");
        return;
    }
    let Answering { service, guard, shutdown } = answering;
    let known = caller.clone();
    let answering = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(known.clone());
        let (service, guard) = (service.clone(), guard());
        async move { Ok::<_, Infallible>(answer(service, request, guard).await) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(NEXT_HEADERS_WITHIN).max_header_size(HEAD_BYTES_MAX);
    let serving = builder.serve_connection(TokioIo::new(stream), answering);
    tokio::pin!(serving);
    let outcome = tokio::select! {
        outcome = &mut serving => outcome,
        () = caller.overstayed() => return,
        () = shutdown.cancelled() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = outcome {
        tracing::debug!(%error, "an S3 connection broke");
    }
}

async fn answer(service: Service, request: hyper::Request<Incoming>, guard: Option<Guard>) -> hyper::Response<Guarded> {
    let (expects, empty) = (request.headers().contains_key(EXPECT), request.body().is_end_stream());
    let (head, incoming) = request.into_parts();
    let resource = head.uri.path().to_string();
    let sent = Sent::new(&head, incoming);
    let request = hyper::Request::from_parts(head, sent.clone());
    let answer = match guard {
        None => Err(s3_error!(ServiceUnavailable, "the node is ending and takes no new work; start it again")),
        Some(_) => service.call(request).await,
    };
    let answer = answer.or_else(S3Error::to_http_response).unwrap_or_else(|_| {
        let mut plain = hyper::Response::new(Body::empty());
        *plain.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        plain
    });
    let mut answer = answers::finished(answer, &resource, &answers::new_id());
    let waits = expects && !sent.was_asked_for();
    if expects && (empty || (waits && !answer.status().is_success())) {
        // Without 100 Continue a client may keep its body and send the next request, whose first bytes would be taken for that body;
        // and aws of version 1, which got the end at once for an empty body, misreads the next answer on the connection, for ever.
        answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    // Only who has a key is told of it.
    if answer.status() == StatusCode::INSUFFICIENT_STORAGE && !waits && !sent.is_end_stream() {
        tokio::spawn(tokio::time::timeout(REFUSED_WITHIN, sent.spill(REFUSED_BYTES_MAX)));
    }
    answer.map(|body| Guarded { body, _guard: guard })
}

/// A body that holds its request's guard.
struct Guarded {
    body: Body,
    _guard: Option<Guard>,
}

impl hyper::body::Body for Guarded {
    type Data = Bytes;
    type Error = StdError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, StdError>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }
    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
