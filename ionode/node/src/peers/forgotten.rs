//! Which other nodes the scheduler has forgotten, as it told last: kept in the store, so it holds over a restart of this node.
//!
//! The one rule: the list is on the disk before the scheduler hears that it was taken.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};
use stager_core::error::ApiError;
use stager_core::ids::check_id;

use crate::failure::{at, bad_request};
use crate::store::durability::Durability;
use crate::store::files::write_whole;
use crate::tls::forgotten::{Forgotten, ForgottenNode};
use crate::tls::roles::Role;

const FILE: &str = "forgotten.json";
const DIGEST_CHARS: usize = 64;

/// The body of `PUT /v1/forgotten`, and the file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForgottenRequest {
    pub nodes: Vec<ForgottenNode>,
}

pub struct Kept {
    path: PathBuf,
    durability: Durability,
    forgotten: Arc<Forgotten>,
    /// One list after the other, on the disk as in memory.
    replacing: Mutex<()>,
}

impl Kept {
    /// In the store at `root`. `forgotten` holds from now on what the process before was told.
    pub fn open(root: &Path, durability: Durability, forgotten: Arc<Forgotten>) -> Result<Self, ApiError> {
        let path = root.join(FILE);
        match std::fs::read(&path) {
            Ok(bytes) => {
                let wrong = |error| bad_request(path.display().to_string(), format!("{} cannot be read: {error}", path.display()));
                let told: ForgottenRequest = serde_json::from_slice(&bytes).map_err(wrong)?;
                forgotten.replace(told.nodes.into_iter().collect());
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(at("reading", &path)(error)),
        }
        Ok(Self { path, durability, forgotten, replacing: Mutex::default() })
    }

    pub fn require(&self, role: &Role, key_sha256: &str) -> Result<(), ApiError> {
        self.forgotten.require(role, key_sha256)
    }

    /// These, and no others.
    pub fn replace(&self, told: ForgottenRequest) -> Result<(), ApiError> {
        for node in &told.nodes {
            check_id("node id", &node.node_id)?;
            let is_digest =
                node.key_sha256.len() == DIGEST_CHARS && node.key_sha256.bytes().all(|byte| b"0123456789abcdef".contains(&byte));
            if !is_digest {
                return Err(bad_request(&node.node_id, format!("key_sha256 of the node {} is no SHA-256 in base 16", node.node_id)));
            }
        }
        let _replacing = self.replacing.lock().expect("nobody panics here");
        write_whole(&self.path, &serde_json::to_vec(&told).expect("plain values"), self.durability)?;
        for node in self.forgotten.replace(told.nodes.into_iter().collect::<HashSet<_>>()) {
            tracing::info!(peer = node.node_id, "a node was forgotten: its certificate counts no more");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use stager_core::error::Code;

    use super::*;

    fn told(nodes: &[(&str, &str)]) -> ForgottenRequest {
        let nodes = nodes.iter().map(|(id, key)| ForgottenNode { node_id: (*id).into(), key_sha256: (*key).into() });
        ForgottenRequest { nodes: nodes.collect() }
    }

    fn opened(place: &tempfile::TempDir) -> (Kept, Arc<Forgotten>) {
        let forgotten = Arc::new(Forgotten::default());
        (Kept::open(place.path(), Durability(false), forgotten.clone()).unwrap(), forgotten)
    }

    #[test]
    fn a_node_is_forgotten_under_its_key_over_a_restart_until_another_list_comes() {
        let place = tempfile::tempdir().unwrap();
        let (first, second) = ("a".repeat(64), "b".repeat(64));
        let node = |id: &str| Role::Node(id.to_string());
        let (kept, before) = opened(&place);
        kept.replace(told(&[("io1", &first)])).unwrap();
        let (kept, after) = opened(&place);
        for forgotten in [&before, &after] {
            let refused = forgotten.require(&node("io1"), &first).unwrap_err();
            assert_eq!(refused.code, Code::RoleRefused);
            assert!(refused.message.contains("io1"), "{}", refused.message);
            for (role, key) in [(node("io1"), &second), (node("io2"), &first), (Role::Scheduler, &first)] {
                assert!(forgotten.require(&role, key).is_ok());
            }
        }
        kept.replace(told(&[])).unwrap();
        assert!(after.require(&node("io1"), &first).is_ok());
        assert!(opened(&place).1.require(&node("io1"), &first).is_ok());
    }

    #[test]
    fn a_list_that_is_wrong_changes_nothing() {
        let place = tempfile::tempdir().unwrap();
        let (kept, forgotten) = opened(&place);
        let key = "a".repeat(64);
        kept.replace(told(&[("io1", &key)])).unwrap();
        for (id, wrong) in [("io1", "A".repeat(64)), ("io1", "a".repeat(63)), ("a/b", key.clone())] {
            assert!(kept.replace(told(&[(id, &wrong)])).is_err());
        }
        assert!(forgotten.require(&Role::Node("io1".into()), &key).is_err());
    }
}
