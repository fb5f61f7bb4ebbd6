//! Who may call: the certificate's role or the token, then the api version, the epoch and the incarnation.
//!
//! The one rule: nothing of a call is looked at, except its path where its role decides, before its caller was found right.

use std::sync::Arc;

use hyper::header::{HeaderMap, HeaderName, AUTHORIZATION};
use hyper::http::request::Parts;
use hyper::http::Extensions;
use hyper::Method;
use stager_core::error::{ApiError, Code};
use stager_core::ids::check_id;

use super::patterns::route;
use crate::context::Cause;
use crate::failure::bad_request;
use crate::node::Node;
use crate::tls::roles::Role;
use crate::wire::API;

static API_VERSION: HeaderName = HeaderName::from_static("x-stager-api");
static COMMAND: HeaderName = HeaderName::from_static("x-stager-command");
static EPOCH: HeaderName = HeaderName::from_static("x-stager-epoch");
static INCARNATION: HeaderName = HeaderName::from_static("x-stager-incarnation");

/// `first_contact`: the one call that may leave epoch and incarnation out.
pub async fn admit(node: &Node, parts: &Parts, first_contact: bool) -> Result<Cause, ApiError> {
    let headers = &parts.headers;
    check_caller(node, &parts.method, parts.uri.path(), headers, &parts.extensions)?;
    check_api(headers)?;
    let ticket = match role_of(&parts.extensions) {
        Some(Role::Ticket(attempt_id)) => Some(attempt_id),
        _ => None,
    };
    // A ticket is good over a restart of the node: its holder knows of no incarnation.
    let incarnation = text(headers, &INCARNATION)?.filter(|_| ticket.is_none());
    match incarnation {
        Some(theirs) if theirs != node.context.incarnation => {
            let message = format!(
                "the call is for incarnation {theirs} and this node is {}; read GET /v1/node and what it still knows",
                node.context.incarnation
            );
            return Err(ApiError::new(Code::StaleIncarnation, theirs, message));
        }
        None if !first_contact && ticket.is_none() => return Err(missing("X-Stager-Incarnation")),
        _ => {}
    }
    let epoch = match text(headers, &EPOCH)? {
        Some(epoch) => {
            epoch.parse().map_err(|_| bad_request(epoch, "the header X-Stager-Epoch is not a number; send the scheduler's epoch"))?
        }
        None if first_contact => return Ok(Cause::default()),
        None => return Err(missing("X-Stager-Epoch")),
    };
    let command_id = text(headers, &COMMAND)?.map(str::to_string);
    if let Some(command_id) = &command_id {
        check_id("command id", command_id)?;
    }
    match role_of(&parts.extensions) {
        Some(Role::Ticket(attempt_id)) => node.attempts.remotes.check_epoch(attempt_id, epoch)?,
        // Only a scheduler begins a term: a node that did could lock the scheduler out of all others.
        Some(Role::Node(_) | Role::Pool(_) | Role::Metrics(_) | Role::Nobody) => drop(node.context.refuse_stale_epoch(epoch)?),
        Some(Role::Scheduler) | None => node.context.obey_epoch(epoch).await?,
    }
    Ok(Cause { epoch, command_id })
}

fn missing(header: &str) -> ApiError {
    bad_request(header, format!("the header {header} is missing; every call carries it"))
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, ApiError> {
    let refused = |_| bad_request(name.as_str(), format!("the header {name} is not plain text"));
    headers.get(name).map(|value| value.to_str().map_err(refused)).transpose()
}

/// Others can read what goes over the connection of a request.
#[derive(Clone, Copy)]
pub struct Exposed;

/// The digest of the public key in the caller's certificate. Its connection may be older than what was forgotten since.
#[derive(Clone)]
pub struct Shown(pub Arc<str>);

/// Of a caller that showed a certificate.
pub fn role_of(extensions: &Extensions) -> Option<&Role> {
    extensions.get::<Arc<Role>>().map(Arc::as_ref)
}

/// The role of its certificate; where it showed none, the token.
pub fn check_caller(node: &Node, method: &Method, path: &str, headers: &HeaderMap, extensions: &Extensions) -> Result<(), ApiError> {
    match role_of(extensions) {
        Some(role) => {
            if let Some(Shown(key_sha256)) = extensions.get() {
                node.peers.forgotten.require(role, key_sha256)?;
            }
            role.require(method, route(path))
        }
        None => check_token(node, headers, extensions),
    }
}

fn bearer(headers: &HeaderMap) -> &[u8] {
    headers.get(AUTHORIZATION).and_then(|value| value.as_bytes().strip_prefix(b"Bearer ")).unwrap_or_default()
}

/// The attempt whose ticket a call shows, or why that is none of this node; `None`: it shows no ticket.
pub fn ticket(node: &Node, headers: &HeaderMap) -> Option<Result<String, ApiError>> {
    node.attempts.remotes.holder(node.context.store.token(), bearer(headers))
}

/// All that a scraper has to show. Over TLS it is worth nothing.
pub fn check_token(node: &Node, headers: &HeaderMap, extensions: &Extensions) -> Result<(), ApiError> {
    let by_tls = role_of(extensions).is_some();
    if !by_tls && equal_in_constant_time(bearer(headers), node.context.store.token().as_bytes()) {
        return Ok(());
    }
    Err(ApiError::new(
        Code::TokenWrong,
        "Authorization",
        "the bearer token is not this node's; read it from the token file its rendezvous names",
    ))
}

/// Its time depends on the lengths only.
fn equal_in_constant_time(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && std::hint::black_box(a.iter().zip(b).fold(0, |differs, (a, b)| differs | (a ^ b))) == 0
}

fn check_api(headers: &HeaderMap) -> Result<(), ApiError> {
    let asked = text(headers, &API_VERSION)?.ok_or_else(|| missing("X-Stager-Api"))?;
    if asked.parse() == Ok(API) {
        return Ok(());
    }
    Err(ApiError::new(
        Code::ApiVersion,
        asked,
        format!("the call speaks api version {asked} and this node speaks {API}; use a stager and a stager-ionode of one release"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_equal_only_when_they_are() {
        assert!(equal_in_constant_time(b"abc", b"abc"));
        for other in [&b"abd"[..], b"ab", b"", b"abcd"] {
            assert!(!equal_in_constant_time(other, b"abc"));
        }
    }
}
