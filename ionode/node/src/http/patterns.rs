//! The paths of all calls, as patterns: what metrics count by, and what roles are allowed.
//!
//! The one rule: what is documented has a pattern; whatever has none shares one word, and only the scheduler's role has that.

use std::sync::LazyLock;

use crate::metrics::OTHER;

/// All of docs/formats/ionode-api.md; `*` is an id.
const PATTERNS: &[&str] = &[
    "/healthz",
    "/metrics",
    "/readyz",
    "/v1/attempts/*",
    "/v1/attempts/*/brief",
    "/v1/attempts/*/commit",
    "/v1/attempts/*/outputs",
    "/v1/attempts/*/outputs/*",
    "/v1/attempts/*/release",
    "/v1/attempts/*/stage-in",
    "/v1/attempts/*/stage-out",
    "/v1/capacity",
    "/v1/events",
    "/v1/events/ack",
    "/v1/forgotten",
    "/v1/mounts",
    "/v1/mounts/*",
    "/v1/node",
    "/v1/origins/*",
    "/v1/origins/*/allowance",
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
    "/v1/replicas/delete",
    "/v1/reservations/*",
    "/v1/shutdown",
    "/v1/state",
    "/v1/transfers",
    "/v1/transfers/*",
    "/v1/transfers/*/content",
];

/// Of the longest pattern, with the nothing in front of its first slash.
const SEGMENTS_MAX: usize = 6;

/// The pattern a path has; whatever has none shares one word.
pub fn route(path: &str) -> &'static str {
    static SPLIT: LazyLock<Vec<Vec<&str>>> = LazyLock::new(|| PATTERNS.iter().map(|pattern| pattern.split('/').collect()).collect());
    let mut segments = [""; SEGMENTS_MAX + 1];
    let count = path.split('/').zip(&mut segments).map(|(found, segment)| *segment = found).count();
    let fits = |wanted: &Vec<&str>| {
        let same = |(wanted, found): (&&str, &&str)| if *wanted == "*" { !found.is_empty() } else { wanted == found };
        wanted.len() == count && wanted.iter().zip(&segments).all(same)
    };
    SPLIT.iter().position(fits).map_or(OTHER, |at| PATTERNS[at])
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
    }
}
