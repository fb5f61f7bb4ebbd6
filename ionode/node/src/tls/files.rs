//! A directory of PEM files as what a handshake needs of it.
//!
//! The one rule: a key that others can read is not used, and neither is a certificate that no peer would accept.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use rustls::crypto::{aws_lc_rs, CryptoProvider};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::TLS13;
use rustls::{RootCertStore, ServerConfig};
use stager_core::error::ApiError;

use super::roles::Holder;
use super::trust;
use crate::failure::bad_request;

pub const CA: &str = "ca.pem";
pub const CERTIFICATE: &str = "cert.pem";
pub const KEY: &str = "key.pem";

/// What tells a file that was replaced.
#[derive(Clone, PartialEq)]
pub struct Stamps([Option<(SystemTime, u64)>; 3]);

impl Stamps {
    pub fn of(dir: &Path) -> Self {
        Self([CA, CERTIFICATE, KEY].map(|name| {
            let about = std::fs::metadata(dir.join(name)).ok()?;
            Some((about.modified().ok()?, about.len()))
        }))
    }
}

pub struct Loaded {
    pub holder: Holder,
    pub provider: Arc<CryptoProvider>,
    pub roots: Arc<RootCertStore>,
    pub own: Arc<SingleCertAndKey>,
    pub server: Arc<ServerConfig>,
    pub stamps: Stamps,
}

impl Loaded {
    pub fn from(dir: &Path) -> Result<Self, ApiError> {
        let stamps = Stamps::of(dir);
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut roots = RootCertStore::empty();
        for authority in certificates(dir, CA)? {
            roots.add(authority).map_err(|error| unusable(dir, CA, &error.to_string()))?;
        }
        let roots = Arc::new(roots);
        let chain = certificates(dir, CERTIFICATE)?;
        let holder = Holder::of_certificate(&chain[0])
            .ok_or_else(|| unusable(dir, CERTIFICATE, "it names no role: it has no single URI stager://CLUSTER/ROLE"))?;
        trust::check_chain(&provider, &roots, &chain[0], &chain[1..], UnixTime::now())
            .map_err(|error| unusable(dir, CERTIFICATE, &trust::why(&error)))?;
        let own = CertifiedKey::from_der(chain, key(dir)?, &provider).map_err(|error| unusable(dir, KEY, &error.to_string()))?;
        let own = Arc::new(SingleCertAndKey::from(own));
        let wrong = |error: &dyn std::fmt::Display| unusable(dir, CA, &error.to_string());
        // Whoever shows none needs a ticket for every call.
        let callers = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone())
            .allow_unauthenticated()
            .build()
            .map_err(|error| wrong(&error))?;
        let mut server = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| wrong(&error))?
            .with_client_cert_verifier(callers)
            .with_cert_resolver(own.clone());
        // Each connection shows its certificate: one that has expired since opens none.
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        Ok(Self { holder, provider, roots, own, server: Arc::new(server), stamps })
    }
}

fn unusable(dir: &Path, name: &str, why: &str) -> ApiError {
    let path = dir.join(name).display().to_string();
    bad_request(&path, format!("{path} cannot be used: {why}; join the cluster again, or name another --tls-dir"))
}

fn certificates(dir: &Path, name: &str) -> Result<Vec<CertificateDer<'static>>, ApiError> {
    let read = CertificateDer::pem_file_iter(dir.join(name)).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = read.map_err(|error| unusable(dir, name, &error.to_string()))?;
    match found.is_empty() {
        true => Err(unusable(dir, name, "it holds no certificate")),
        false => Ok(found),
    }
}

fn key(dir: &Path) -> Result<PrivateKeyDer<'static>, ApiError> {
    let path = dir.join(KEY);
    let about = std::fs::metadata(&path).map_err(|error| unusable(dir, KEY, &error.to_string()))?;
    let mode = about.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        let path = path.display().to_string();
        let message = format!("{path} has mode {mode:04o}, so others can read the node's key; make it 0600: chmod 600 {path}");
        return Err(bad_request(&path, message));
    }
    PrivateKeyDer::from_pem_file(&path).map_err(|error| unusable(dir, KEY, &error.to_string()))
}
