//! HTTP over a Unix socket and, where asked, TCP with or without TLS. Knows connections and calls, not work.
//!
//! The one rule: a connection that misbehaves ends alone; and on TCP one that shows no token and no certificate ends soon.

pub mod answer;
mod auth;
mod content;
mod framed;
mod mounts;
mod narrow;
mod origins;
mod outputs;
mod packs;
mod patterns;
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
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio_util::task::TaskTracker;

use crate::node::Node;
use crate::tls::roles::Role;
use crate::tls::Tls;

const LAST_ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// Serves until the node ends; then answers what was asked and returns.
pub async fn serve(node: Arc<Node>, socket: UnixListener, tcp: Option<TcpListener>, tls: Option<Arc<Tls>>) {
    let (tasks, connections) = (TaskTracker::new(), Connections::default());
    loop {
        let accepted = tokio::select! {
            accepted = socket.accept() => accepted.map(|(stream, _)| { tasks.spawn(connection(node.clone(), "unix", stream, Seen::default())); }),
            accepted = accept_tcp(tcp.as_ref()) => accepted.map(|stream| {
                let caller = connections.accepted();
                match tls.clone() {
                    Some(tls) => tasks.spawn(by_tls(node.clone(), tls, stream, caller)),
                    None => {
                        let exposed = !stream.local_addr().is_ok_and(|address| address.ip().to_canonical().is_loopback());
                        tasks.spawn(connection(node.clone(), "tcp", stream, Seen { caller: Some(caller), exposed, ..Seen::default() }))
                    }
                };
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

async fn accept_tcp(tcp: Option<&TcpListener>) -> std::io::Result<TcpStream> {
    match tcp {
        Some(listener) => {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            Ok(stream)
        }
        None => std::future::pending().await,
    }
}

/// What is known of the other end before it makes a call.
#[derive(Clone, Default)]
struct Seen {
    /// Who is still to show a token. The socket's file has shown whose it is, and a certificate shows it.
    caller: Option<Arc<Caller>>,
    exposed: bool,
    role: Option<Arc<Role>>,
    shown: Option<auth::Shown>,
}

async fn by_tls(node: Arc<Node>, tls: Arc<Tls>, stream: TcpStream, caller: Arc<Caller>) {
    let address = stream.peer_addr().map_or_else(|_| "?".to_string(), |address| address.to_string());
    let accepted = tokio::select! {
        accepted = tls.accept(stream) => accepted,
        () = caller.overstayed() => return,
        () = node.context.shutdown.cancelled() => return,
    };
    match accepted {
        Ok((stream, role, key_sha256)) => {
            // Whoever shows no certificate has to show a ticket soon, and so has one whose certificate counts no more.
            let why_not = node.peers.forgotten.require(&role, &key_sha256).err();
            if let Some(error) = &why_not {
                tracing::warn!(address, because = error.message, "the calls of a caller are refused");
            }
            let caller = if role == Role::Nobody || why_not.is_some() {
                Some(caller)
            } else {
                caller.is_known();
                None
            };
            let shown = Some(auth::Shown(key_sha256.into()));
            connection(node, "tls", stream, Seen { caller, exposed: false, role: Some(Arc::new(role)), shown }).await;
        }
        Err(refused) => tracing::warn!(address, because = %refused, "a caller was refused"),
    }
}

async fn connection(node: Arc<Node>, listener: &'static str, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, seen: Seen) {
    let _connected = server::Connected::by(listener);
    let shutdown = node.context.shutdown.clone();
    let caller = seen.caller.clone();
    let service = service_fn(move |mut request: Request<Incoming>| {
        let (node, seen) = (node.clone(), seen.clone());
        let extensions = request.extensions_mut();
        seen.caller.map(|caller| extensions.insert(caller));
        seen.role.map(|role| extensions.insert(role));
        seen.shown.map(|shown| extensions.insert(shown));
        if seen.exposed {
            extensions.insert(auth::Exposed);
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
