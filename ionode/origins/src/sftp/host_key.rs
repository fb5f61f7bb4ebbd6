//! The host key is judged while a connection is made. Knows what russh calls meanwhile.
//!
//! The one rule: the error of a judgement is the one that the caller sees.

use russh::client;
use russh::keys::PublicKeyOrCertificate;
use stager_core::error::ApiError;

use super::known::KnownKeys;

/// Judges the host key.
pub struct Client {
    pub known: KnownKeys,
}

#[derive(Debug)]
pub enum LinkError {
    Judged(ApiError),
    Ssh(russh::Error),
}

impl From<russh::Error> for LinkError {
    fn from(error: russh::Error) -> Self {
        Self::Ssh(error)
    }
}

impl client::Handler for Client {
    type Error = LinkError;

    async fn check_server_key(&mut self, presented: &PublicKeyOrCertificate) -> Result<bool, LinkError> {
        self.known.check(&presented.public_key()).map(|()| true).map_err(LinkError::Judged)
    }
}
