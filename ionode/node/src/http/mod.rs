//! HTTP over a Unix socket and, where asked, loopback TCP. Knows connections and calls, not work.
//!
//! The one rule: a connection that misbehaves ends alone; and on TCP one that shows no token ends soon.

pub mod answer;
mod auth;
mod content;
mod framed;
mod mounts;
mod origins;
mod packs;
mod push;
pub mod range;
mod routes;
mod server;
mod whole;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::Request;
use hyper_util::rt::TokioIo;
use stager_s3::connections::{Caller, Connections, HEAD_BYTES_MAX};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio_util::task::TaskTracker;

use crate::node::Node;

const LAST_ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// Serves until the node ends; then answers what was asked and returns.
pub async fn serve(node: Arc<Node>, socket: UnixListener, tcp: Option<TcpListener>) {
    let (tasks, connections) = (TaskTracker::new(), Connections::default());
    loop {
        let accepted = tokio::select! {
            accepted = socket.accept() => accepted.map(|(stream, _)| { tasks.spawn(connection(node.clone(), "unix", stream, None)); }),
            accepted = accept_tcp(tcp.as_ref()) => accepted.map(|stream| {
                tasks.spawn(connection(node.clone(), "tcp", stream, Some(connections.accepted())));
            }),
            () = node.context.shutdown.cancelled() => break,
        };
        if let Err(error) = accepted {
            // Too many open files, mostly: it passes when a connection ends.
            tracing::warn!(%error, "a connection could not be accepted");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    tasks.close();
    let _ = tokio::time::timeout(LAST_ANSWERS_WITHIN, tasks.wait()).await;
}

async fn accept_tcp(tcp: Option<&TcpListener>) -> std::io::Result<tokio::net::TcpStream> {
    match tcp {
        Some(listener) => {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            Ok(stream)
        }
        None => std::future::pending().await,
    }
}

/// `caller`: who is still to show a token. The socket's file has shown whose it is.
async fn connection(
    node: Arc<Node>,
    listener: &'static str,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    caller: Option<Arc<Caller>>,
) {
    let _connected = server::Connected::by(listener);
    let shutdown = node.context.shutdown.clone();
    let known = caller.clone();
    let service = service_fn(move |mut request: Request<Incoming>| {
        let node = node.clone();
        if let Some(caller) = known.clone() {
            request.extensions_mut().insert(caller);
        }
        async move { Ok::<_, Infallible>(server::answer(node, request).await) }
    });
    // No time limit for headers: it would end connections that wait for their next call, too.
    let serving = http1::Builder::new().keep_alive(true).max_header_size(HEAD_BYTES_MAX).serve_connection(TokioIo::new(stream), service);
    tokio::pin!(serving);
    let outcome = tokio::select! {
        outcome = &mut serving => outcome,
        () = overstayed(caller.as_deref()) => return,
        () = shutdown.cancelled() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = outcome {
        tracing::debug!(%error, "a connection broke");
    }
}

async fn overstayed(caller: Option<&Caller>) {
    match caller {
        Some(caller) => caller.overstayed().await,
        None => std::future::pending().await,
    }
}
