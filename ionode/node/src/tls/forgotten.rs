//! Nodes whose certificates count for nothing any more, though they have not expired: the scheduler has forgotten them.
//!
//! The one rule: a node is forgotten under its key, so the host that joins under its name with another key is let in.

use std::collections::HashSet;
use std::sync::RwLock;

use rustls::pki_types::CertificateDer;
use rustls::server::ParsedCertificate;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use stager_core::error::{ApiError, Code};

use super::roles::Role;

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForgottenNode {
    pub node_id: String,
    /// The digest of the public key in its certificate, in base 16.
    pub key_sha256: String,
}

#[derive(Default)]
pub struct Forgotten {
    nodes: RwLock<HashSet<ForgottenNode>>,
}

impl Forgotten {
    /// These from now on, and no others. Returns those that are new.
    pub fn replace(&self, nodes: HashSet<ForgottenNode>) -> Vec<ForgottenNode> {
        let before = std::mem::replace(&mut *self.nodes.write().expect("nobody panics here"), nodes.clone());
        nodes.difference(&before).cloned().collect()
    }

    /// What is said of a certificate of this role that shows this key, where it counts for nothing.
    pub fn why_not(&self, role: &Role, key_sha256: &str) -> Option<String> {
        let Role::Node(id) = role else { return None };
        let shown = ForgottenNode { node_id: id.clone(), key_sha256: key_sha256.to_string() };
        let found = self.nodes.read().expect("nobody panics here").contains(&shown);
        found.then(|| format!("its certificate is that of the node {id}, which the scheduler has forgotten"))
    }

    pub fn require(&self, role: &Role, key_sha256: &str) -> Result<(), ApiError> {
        match self.why_not(role, key_sha256) {
            None => Ok(()),
            Some(why) => Err(ApiError::new(Code::RoleRefused, "certificate", format!("{why}; join with a new invite"))),
        }
    }
}

/// Of a certificate's public key, in base 16. Empty where it cannot be read: no such certificate passes the other checks.
pub fn key_of(certificate: &CertificateDer<'_>) -> String {
    let Ok(parsed) = ParsedCertificate::try_from(certificate) else { return String::new() };
    Sha256::digest(parsed.subject_public_key_info()).iter().map(|byte| format!("{byte:02x}")).collect()
}
