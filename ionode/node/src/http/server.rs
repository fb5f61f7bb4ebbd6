//! What every request passes first: health and metrics are answered here, everything is counted. Knows routes by their pattern only.
//!
//! The one rule: health needs no token or role and tells nothing but the state; a scrape is no call, so it keeps no idle node alive.

use std::sync::{Arc, LazyLock};
use std::time::Instant;

use hyper::body::Incoming;
use hyper::header::{HeaderValue, ACCEPT, CONTENT_TYPE};
use hyper::{Method, Request, StatusCode};
use serde_json::json;
use stager_s3::connections::Caller;

use super::answer::{self, Answer};
use super::{auth, routes};
use crate::blocking::blocking;
use crate::metrics::{self, format, Call, OfListener, OfRoute, OTHER};
use crate::node::Node;
use crate::{exposition, health};

/// All of docs/formats/ionode-api.md; `*` is an id.
const PATTERNS: &[&str] = &[
    "/healthz",
    "/metrics",
    "/readyz",
    "/v1/attempts/*/release",
    "/v1/attempts/*/stage-in",
    "/v1/attempts/*/stage-out",
    "/v1/capacity",
    "/v1/events",
    "/v1/events/ack",
    "/v1/mounts",
    "/v1/mounts/*",
    "/v1/node",
    "/v1/origins/*",
    "/v1/origins/*/erase",
    "/v1/origins/*/list",
    "/v1/origins/*/probe",
    "/v1/origins/*/ready",
    "/v1/origins/*/stat",
    "/v1/origins/*/verify",
    "/v1/packs",
    "/v1/peers/*",
    "/v1/replicas/*/*",
    "/v1/replicas/*/*/content",
    "/v1/replicas/*/*/manifest",
    "/v1/replicas/*/*/source",
    "/v1/replicas/*/*/verify",
    "/v1/reservations/*",
    "/v1/shutdown",
    "/v1/state",
    "/v1/transfers",
    "/v1/transfers/*",
    "/v1/transfers/*/content",
];

/// Of the longest pattern, with the nothing in front of its first slash.
const SEGMENTS_MAX: usize = 6;

pub async fn answer(node: Arc<Node>, request: Request<Incoming>) -> Answer {
    let started = Instant::now();
    let (method, route) = (method_word(request.method()), route(request.uri().path()));
    if let Some(caller) = request.extensions().get::<Arc<Caller>>().filter(|_| auth::check_token(&node, request.headers()).is_ok()) {
        caller.is_known();
    }
    let answer = match (request.method(), route) {
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

/// The pattern a path has; whatever has none shares one word.
pub(super) fn route(path: &str) -> &'static str {
    static SPLIT: LazyLock<Vec<Vec<&str>>> = LazyLock::new(|| PATTERNS.iter().map(|pattern| pattern.split('/').collect()).collect());
    let mut segments = [""; SEGMENTS_MAX + 1];
    let count = path.split('/').zip(&mut segments).map(|(found, segment)| *segment = found).count();
    let fits = |wanted: &Vec<&str>| {
        let same = |(wanted, found): (&&str, &&str)| if *wanted == "*" { !found.is_empty() } else { wanted == found };
        wanted.len() == count && wanted.iter().zip(&segments).all(same)
    };
    SPLIT.iter().position(fits).map_or(OTHER, |at| PATTERNS[at])
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
    fn every_documented_call_has_a_pattern() {
        let text = include_str!("../../../../docs/formats/ionode-api.md");
        let mut seen = 0;
        for words in text.split('`').filter(|words| ["GET /", "PUT /", "POST /", "DELETE /"].iter().any(|verb| words.starts_with(verb))) {
            let path = words.split_once(' ').unwrap().1.split('?').next().unwrap();
            assert_ne!(route(path), OTHER, "{words} is documented and would be counted as {OTHER}");
            seen += 1;
        }
        assert!(seen > 15, "only {seen} calls were found: is the document written otherwise now?");
    }

    #[test]
    fn ids_are_not_told_apart_and_unknown_paths_share_a_word() {
        assert_eq!(route("/v1/transfers/t1"), "/v1/transfers/*");
        assert_eq!(route("/v1/replicas/f/g/content"), "/v1/replicas/*/*/content");
        for other in ["/", "/v1/transfers/", "/v1/transfers/a/b", "/v1/nonsense", "/metrics/x", "/v1/replicas/a"] {
            assert_eq!(route(other), OTHER, "{other}");
        }
        assert_eq!((method_word(&Method::PUT), method_word(&Method::TRACE)), ("PUT", OTHER));
    }
}
