//! The labels and where their values come from. May know the words of docs/glossary.md.
//!
//! The one rule: what comes from outside becomes a value only through a list that has an end.

use std::collections::BTreeSet;
use std::sync::Mutex;

use prometheus_client::encoding::EncodeLabelSet;
use serde_json::Value;

/// Whoever describes thousands of origins gets sums beyond these.
const ORIGINS_MAX: usize = 64;
const ORIGIN_BYTES_MAX: usize = 100;
pub const OTHER: &str = "other";

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct TransferEnd {
    pub kind: &'static str,
    pub outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct Failure {
    pub kind: &'static str,
    /// Of docs/formats/ionode-api.md.
    pub code: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct OfKind {
    pub kind: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct Moved {
    pub origin: String,
    /// in: to the node; out: to the origin.
    pub direction: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct Finding {
    /// sound, corrupt or unreadable.
    pub result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct Call {
    pub method: &'static str,
    pub route: &'static str,
    pub status: u16,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct OfRoute {
    pub route: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct OfListener {
    pub listener: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct OfState {
    pub state: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct OfKindAndState {
    pub kind: &'static str,
    pub state: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct OfOrigin {
    pub origin: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct OfOriginAndState {
    pub origin: String,
    pub state: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct OfReason {
    pub reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct Build {
    pub version: &'static str,
    pub store_format: String,
}

/// By kind and host, or bucket: ids of origins are made anew by each scheduler, and the rest of a description is nobody's here.
pub fn origin(description: &Value) -> String {
    static KNOWN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut known = KNOWN.lock().expect("nobody panics here");
    let name = origin_name(description);
    if known.contains(&name) || known.len() < ORIGINS_MAX {
        known.insert(name.clone());
        return name;
    }
    OTHER.to_string()
}

fn origin_name(description: &Value) -> String {
    let text = |key: &str| description[key].as_str().unwrap_or("");
    let name = match text("kind") {
        "file" => "file".to_string(),
        "s3" => match text("endpoint").split_once("://").map(|(_, host)| host.split('/').next().unwrap_or("")) {
            // Where credentials stand in an endpoint's URL, which is refused elsewhere, they stand before an @.
            Some(host) => format!("s3://{}/{}", host.rsplit('@').next().unwrap_or(""), text("bucket")),
            None => format!("s3://{}", text("bucket")),
        },
        "http" => {
            let (scheme, rest) = text("base_url").split_once("://").unwrap_or(("http", ""));
            format!("{scheme}://{}", rest.split(['/', '?', '#']).next().unwrap_or("").rsplit('@').next().unwrap_or(""))
        }
        kind => format!("{kind}://{}:{}", text("host"), description["port"].as_u64().unwrap_or(22)),
    };
    name.chars().filter(|c| !c.is_control()).take(ORIGIN_BYTES_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_origins_name_holds_its_host_and_nothing_else() {
        let ssh = json!({"kind": "sftp", "host": "lab.example.org", "port": 2222, "user": "ada", "base_path": "/home/ada/secret"});
        assert_eq!(origin_name(&ssh), "sftp://lab.example.org:2222");
        let endpoint = "https://key:word@s3.example.org:9000/deep";
        let s3 = json!({"kind": "s3", "bucket": "lab", "prefix": "ada/x", "endpoint": endpoint, "secret_access_key": "s"});
        assert_eq!(origin_name(&s3), "s3://s3.example.org:9000/lab");
        assert_eq!(origin_name(&json!({"kind": "s3", "bucket": "lab", "endpoint": null})), "s3://lab");
        let web = json!({"kind": "http", "base_url": "https://key:word@archive.example.org:8443/deep/er", "password": "p"});
        assert_eq!(origin_name(&web), "https://archive.example.org:8443");
        assert_eq!(origin_name(&json!({"kind": "file", "base_path": "/home/ada"})), "file");
    }

    #[test]
    fn names_of_origins_have_an_end() {
        let names: BTreeSet<String> = (0..1000).map(|n| origin(&json!({"kind": "sftp", "host": format!("h{n}"), "port": 22}))).collect();
        assert!(names.len() <= ORIGINS_MAX + 1 && names.contains(OTHER), "{}", names.len());
    }
}
