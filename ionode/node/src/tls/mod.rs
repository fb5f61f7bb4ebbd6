//! TLS between hosts: this node's certificate, whom it trusts, and both ends of a handshake. Knows certificates and sockets, no calls.
//!
//! The one rule: a peer is who its certificate says, never who its address says, and without a good certificate nobody is spoken to.

mod files;
pub mod forgotten;
mod handshake;
pub mod roles;
mod san;
pub mod trust;

use std::path::Path;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use stager_core::error::ApiError;
use tokio::signal::unix::{signal, SignalKind};

use crate::failure::bad_request;
use files::{Loaded, Stamps};
use forgotten::Forgotten;
pub use handshake::{Anonymous, Refused};
use roles::Role;

/// How soon a certificate that was renewed is taken up. SIGHUP asks for it at once.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The certificate of this process, in the form of now.
pub struct Tls {
    dir: std::path::PathBuf,
    loaded: RwLock<Arc<Loaded>>,
    forgotten: Arc<Forgotten>,
}

impl Tls {
    /// From `ca.pem`, `cert.pem` and `key.pem`. `node_id`: who the certificate has to be of; `None`: whoever it is of.
    pub fn open(dir: &Path, node_id: Option<&str>, forgotten: Arc<Forgotten>) -> Result<Self, ApiError> {
        let loaded = Loaded::from(dir)?;
        let expected = node_id.map(|node_id| Role::Node(node_id.to_string()));
        if let Some(expected) = expected.filter(|expected| *expected != loaded.holder.role) {
            let message = format!(
                "the certificate in {} is that of {}, and this is {expected}; use the directory that was made when this node joined",
                dir.display(),
                loaded.holder.role
            );
            return Err(bad_request(dir.display().to_string(), message));
        }
        Ok(Self { dir: dir.to_owned(), loaded: RwLock::new(Arc::new(loaded)), forgotten })
    }

    fn loaded(&self) -> Arc<Loaded> {
        self.loaded.read().expect("nobody panics here").clone()
    }

    /// Takes up certificates that were renewed, until the process ends. One that cannot be used leaves the one before in force.
    pub async fn watch(self: Arc<Self>) {
        let Ok(mut asked) = signal(SignalKind::hangup()) else { return };
        let mut told = String::new();
        let mut seen = self.loaded().stamps.clone();
        loop {
            let at_once = tokio::select! {
                _ = asked.recv() => true,
                () = tokio::time::sleep(LOOK_EVERY) => false,
            };
            let found = Stamps::of(&self.dir);
            if !at_once && found == seen {
                continue;
            }
            match self.reload() {
                Ok(()) => {
                    tracing::info!(dir = %self.dir.display(), "the certificate was read again");
                    (seen, told) = (found, String::new());
                }
                // While three files are being replaced they do not fit: that is over at the next look.
                Err(error) if told != error.message => {
                    tracing::warn!(%error, "the new certificate cannot be used; the one before stays in force");
                    told = error.message;
                }
                Err(_) => {}
            }
        }
    }

    fn reload(&self) -> Result<(), ApiError> {
        let fresh = Loaded::from(&self.dir)?;
        let before = self.loaded();
        if fresh.holder != before.holder {
            let message =
                format!(
                "the certificate in {} is now that of {} in cluster {}, and was that of {} in cluster {}; start the node again for that",
                self.dir.display(), fresh.holder.role, fresh.holder.cluster, before.holder.role, before.holder.cluster
            );
            return Err(bad_request(self.dir.display().to_string(), message));
        }
        *self.loaded.write().expect("nobody panics here") = Arc::new(fresh);
        Ok(())
    }
}
