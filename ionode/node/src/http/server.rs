//! What every request passes first: health and metrics are answered here, everything is counted. Knows routes by their pattern only.
//!
//! The one rule: health needs no token or role and tells nothing but the state; a scrape is no call, so it keeps no idle node alive.

use std::sync::Arc;
use std::time::Instant;

use hyper::body::Incoming;
use hyper::header::{HeaderValue, ACCEPT, CONTENT_TYPE};
use hyper::{Method, Request, StatusCode};
use serde_json::json;
use stager_s3::connections::Caller;

use super::answer::{self, Answer};
use super::patterns::route;
use super::{auth, routes};
use crate::blocking::blocking;
use crate::metrics::{self, format, Call, OfListener, OfRoute, OTHER};
use crate::node::Node;
use crate::tls::roles::Role;
use crate::{exposition, health};

pub async fn answer(node: Arc<Node>, mut request: Request<Incoming>) -> Answer {
    let started = Instant::now();
    let (method, route) = (method_word(request.method()), route(request.uri().path()));
    let ticket = auth::ticket(&node, request.headers());
    let known =
        ticket.as_ref().map_or_else(|| auth::check_token(&node, request.headers(), request.extensions()).is_ok(), |holder| holder.is_ok());
    if let Some(caller) = request.extensions().get::<Arc<Caller>>().filter(|_| known) {
        caller.is_known();
    }
    let refused = match ticket {
        Some(Ok(attempt_id)) => {
            request.extensions_mut().insert(Arc::new(Role::Ticket(attempt_id)));
            None
        }
        Some(Err(error)) => Some(error),
        None => None,
    };
    let answer = match (request.method(), route) {
        _ if refused.is_some() => answer::failure(refused.expect("just looked").into()),
        (&Method::GET, "/healthz") => answer::ok(&json!({"state": "alive"})),
        (&Method::GET, "/readyz") => ready(&node).await,
        (&Method::GET, "/metrics") => exposition(&node, &request),
        _ => routes::answer(node, request).await,
    };
    let counts = metrics::counts();
    counts.calls.get_or_create(&Call { method, route, status: answer.status().as_u16() }).inc();
    counts.call_duration.get_or_create(&OfRoute { route }).observe(started.elapsed().as_secs_f64());
    answer
}

async fn ready(node: &Arc<Node>) -> Answer {
    let worker = node.context.clone();
    // A disk that hangs must not take the runtime's threads with it.
    match blocking(move || Ok(health::unready(&worker))).await {
        Ok(reasons) if reasons.is_empty() => answer::ok(&json!({"state": "ready"})),
        Ok(reasons) => answer::json(StatusCode::SERVICE_UNAVAILABLE, &json!({"state": "not_ready", "because": reasons})),
        Err(error) => answer::failure(error.into()),
    }
}

fn exposition(node: &Arc<Node>, request: &Request<Incoming>) -> Answer {
    if let Err(error) = auth::check_caller(node, request.method(), request.uri().path(), request.headers(), request.extensions()) {
        return answer::failure(error.into());
    }
    let accept = request.headers().get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("");
    let open = exposition::exposition(node);
    let (text, content_type) = if format::wants_open(accept) { (open, format::OPEN) } else { (format::classic(&open), format::CLASSIC) };
    let mut answer = answer::bytes(text.into());
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}

fn method_word(method: &Method) -> &'static str {
    ["GET", "PUT", "POST", "DELETE", "HEAD"].into_iter().find(|word| *word == method.as_str()).unwrap_or(OTHER)
}

/// An open connection, for as long as it lives.
pub struct Connected(&'static str);

impl Connected {
    pub fn by(listener: &'static str) -> Self {
        metrics::counts().connections.get_or_create(&OfListener { listener }).inc();
        Self(listener)
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        metrics::counts().connections.get_or_create(&OfListener { listener: self.0 }).dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_that_are_not_counted_share_a_word() {
        assert_eq!((method_word(&Method::PUT), method_word(&Method::TRACE)), ("PUT", OTHER));
    }
}
