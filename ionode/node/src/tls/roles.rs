//! Who a certificate says its holder is, and what such a one may call (docs/formats/ionode-api.md, "Roles").
//!
//! The one rule: what is not on the list of a role is refused, so a call that is new is the scheduler's alone until it is put there.

use std::fmt;

use hyper::Method;
use stager_core::error::{ApiError, Code};
use stager_core::ids::check_id;

use super::san;

const SCHEME: &str = "stager://";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    Scheduler,
    Node(String),
    Pool(String),
    /// Somebody who reads metrics.
    Metrics(String),
    /// Who shows the ticket of an attempt, whatever certificate.
    Ticket(String),
    /// By TLS and without a certificate.
    Nobody,
}

/// What a certificate's URI `stager://CLUSTER/ROLE` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    pub cluster: String,
    pub role: Role,
}

/// Of another node, by method and pattern. What it may name in a copy or a pack is narrower still: `http/narrow.rs`.
const OF_NODES: &[(&str, &str)] = &[
    ("GET", "/v1/node"),
    ("GET", "/v1/replicas/*/*"),
    ("GET", "/v1/replicas/*/*/content"),
    ("GET", "/v1/replicas/*/*/manifest"),
    ("GET", "/v1/replicas/*/*/source"),
    ("POST", "/v1/replicas/*/*/verify"),
    ("POST", "/v1/packs"),
    ("PUT", "/v1/transfers/*"),
    ("GET", "/v1/transfers/*"),
    ("DELETE", "/v1/transfers/*"),
];

const OF_METRICS: &[(&str, &str)] = &[("GET", "/metrics")];

/// Of an attempt on another host: only its own ones, and only its inputs (`http/narrow.rs`).
const OF_TICKETS: &[(&str, &str)] = &[
    ("GET", "/v1/attempts/*"),
    ("GET", "/v1/attempts/*/brief"),
    ("PUT", "/v1/attempts/*/outputs"),
    ("POST", "/v1/attempts/*/outputs"),
    ("PUT", "/v1/attempts/*/outputs/*"),
    ("POST", "/v1/attempts/*/commit"),
    ("POST", "/v1/attempts/*/release"),
    ("GET", "/v1/replicas/*/*/content"),
    ("GET", "/v1/replicas/*/*/manifest"),
    ("POST", "/v1/packs"),
];

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scheduler => f.write_str("the scheduler"),
            Self::Node(id) => write!(f, "the node {id}"),
            Self::Pool(name) => write!(f, "the pool {name}"),
            Self::Metrics(name) => write!(f, "the reader of metrics {name}"),
            Self::Ticket(id) => write!(f, "the ticket of the attempt {id}"),
            Self::Nobody => f.write_str("a caller without a certificate"),
        }
    }
}

impl Holder {
    fn parse(uri: &str) -> Option<Self> {
        let (cluster, role) = uri.strip_prefix(SCHEME)?.split_once('/')?;
        check_id("cluster", cluster).ok()?;
        let role = match role.split_once('/') {
            None if role == "scheduler" => Role::Scheduler,
            Some(("node", id)) if check_id("node id", id).is_ok() => Role::Node(id.to_string()),
            Some(("pool", name)) if check_id("pool", name).is_ok() => Role::Pool(name.to_string()),
            Some(("metrics", name)) if check_id("reader of metrics", name).is_ok() => Role::Metrics(name.to_string()),
            _ => return None,
        };
        Some(Self { cluster: cluster.to_string(), role })
    }

    /// `None`: the certificate names no role, or more than one.
    pub fn of_certificate(certificate: &[u8]) -> Option<Self> {
        let uris = san::uris(certificate);
        let mut ours = uris.iter().filter(|uri| uri.starts_with(SCHEME));
        let first = ours.next()?;
        ours.next().is_none().then(|| Self::parse(first)).flatten()
    }
}

impl Role {
    /// `route`: the pattern of the path.
    pub fn require(&self, method: &Method, route: &str) -> Result<(), ApiError> {
        let allowed = match self {
            Self::Scheduler => true,
            Self::Node(_) => OF_NODES.contains(&(method.as_str(), route)),
            Self::Metrics(_) => OF_METRICS.contains(&(method.as_str(), route)),
            Self::Ticket(_) => OF_TICKETS.contains(&(method.as_str(), route)),
            Self::Pool(_) | Self::Nobody => false,
        };
        match allowed {
            true => Ok(()),
            false => Err(self.refused(&format!("{method} {route}"))),
        }
    }

    pub fn refused(&self, what: &str) -> ApiError {
        let message = match self {
            Self::Ticket(_) => format!("the call shows {self}, which does not allow that ({what}); call as the scheduler"),
            Self::Nobody => format!("the caller shows neither a certificate nor a ticket, and may not do that ({what}); call with one"),
            _ => format!("the certificate of the caller is that of {self}, which may not do that ({what}); call as the scheduler"),
        };
        ApiError::new(Code::RoleRefused, self.to_string(), message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_is_read_from_its_uri_and_from_nothing_like_it() {
        let holder = |uri| Holder::parse(uri).map(|holder| (holder.cluster, holder.role));
        assert_eq!(holder("stager://c1/scheduler"), Some(("c1".into(), Role::Scheduler)));
        assert_eq!(holder("stager://c1/node/io-1"), Some(("c1".into(), Role::Node("io-1".into()))));
        assert_eq!(holder("stager://c1/pool/alice"), Some(("c1".into(), Role::Pool("alice".into()))));
        assert_eq!(holder("stager://c1/metrics/prometheus"), Some(("c1".into(), Role::Metrics("prometheus".into()))));
        for bad in [
            "stager://c1",
            "stager:///scheduler",
            "stager://c1/scheduler/",
            "stager://c1/Scheduler",
            "stager://c1/node/",
            "stager://c1/node",
            "stager://c1/node/a/b",
            "stager://c1/node/..%2f",
            "https://c1/scheduler",
            "stager://c 1/scheduler",
            "stager://c1/root/x",
            "stager://c1/metrics",
        ] {
            assert_eq!(holder(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_lists_of_roles_are_those_of_the_contract() {
        let (_, section) = include_str!("../../../../docs/formats/ionode-api.md").split_once("\n## Roles").unwrap();
        let section = section.split("\n## ").next().unwrap();
        for (name, calls) in [("\n| `node/ID`", OF_NODES), ("\n| `metrics/NAME`", OF_METRICS), ("\n| a ticket", OF_TICKETS)] {
            let (_, row) = section.split_once(name).expect("the table has a row for it");
            let row = row.lines().next().unwrap();
            let listed: Vec<&str> = row.split('`').filter(|words| words.contains(" /")).collect();
            let known: Vec<String> = calls.iter().map(|(method, route)| format!("{method} {route}")).collect();
            assert_eq!(listed, known, "docs/formats/ionode-api.md (left) and the list of the role (right)");
        }
    }

    #[test]
    fn a_pool_may_call_nothing_yet_and_a_node_nothing_that_changes_another() {
        let node = Role::Node("a".into());
        assert!(Role::Scheduler.require(&Method::DELETE, "/v1/replicas/*/*").is_ok());
        assert!(node.require(&Method::GET, "/v1/replicas/*/*/content").is_ok());
        for (method, route) in
            [(Method::DELETE, "/v1/replicas/*/*"), (Method::PUT, "/v1/origins/*"), (Method::GET, "/v1/state"), (Method::GET, "/metrics")]
        {
            assert_eq!(node.require(&method, route).unwrap_err().code, Code::RoleRefused, "{method} {route}");
        }
        let metrics = Role::Metrics("m".into());
        assert!(metrics.require(&Method::GET, "/metrics").is_ok());
        for role in [metrics, Role::Pool("p".into()), Role::Nobody, Role::Ticket("a".into())] {
            assert_eq!(role.require(&Method::GET, "/v1/node").unwrap_err().code, Code::RoleRefused);
            assert_eq!(role.require(&Method::PUT, "/v1/attempts/*").unwrap_err().code, Code::RoleRefused);
        }
    }
}
