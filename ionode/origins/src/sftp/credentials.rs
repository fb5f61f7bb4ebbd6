//! Proving who we are: the agent's keys, then identity files. Knows keys and the authentication exchange.
//!
//! The one rule: never a prompt and never a password; what was tried is named when nothing worked.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use russh::client::{AuthResult, Handle};
use russh::keys::agent::client::AgentClient;
use russh::keys::agent::AgentIdentity;
use russh::keys::{load_openssh_certificate, load_public_key, load_secret_key, HashAlg, PrivateKey, PrivateKeyWithHashAlg, PublicKey};
use stager_core::error::{ApiError, Code};

use super::host_key::Client;
use crate::config::SftpConfig;

/// A stock sshd closes the connection after six refused keys.
const TRIES_MAX: usize = 6;

struct Identity {
    path: PathBuf,
    secret: Option<Arc<PrivateKey>>,
    /// Readable even where the secret half is encrypted; tells which of the agent's keys it is.
    public: Option<PublicKey>,
}

struct Attempt<'a> {
    ssh: &'a mut Handle<Client>,
    config: &'a SftpConfig,
    rsa_hash: Option<Option<HashAlg>>,
    tried: usize,
    refused: usize,
    /// The connection ended before an answer came.
    lost: bool,
    notes: Vec<String>,
}

pub async fn authenticate(ssh: &mut Handle<Client>, config: &SftpConfig) -> Result<(), ApiError> {
    let files = config.identity_files.clone();
    let (identities, mut notes) = tokio::task::spawn_blocking(move || load(&files)).await.expect("reading keys does not panic");
    if config.identity_files.is_empty() && config.agent_socket.is_none() {
        notes.push("neither an agent nor an identity file is configured".to_owned());
    }
    let mut attempt = Attempt { ssh, config, rsa_hash: None, tried: 0, refused: 0, lost: false, notes };
    if attempt.by_agent(&identities).await || attempt.by_files(&identities).await {
        return Ok(());
    }
    let subject = format!("{}@{}", config.user, config.host);
    // A server that has refused enough keys hangs up; one that has refused none was cut off, or is too busy.
    if attempt.lost && attempt.refused == 0 {
        let message = format!("the connection to {subject} was lost during the login; stager retries.");
        return Err(ApiError::new(Code::OriginUnreachable, subject, message));
    }
    let message = format!(
        "{subject} refused to log in with the keys at hand ({}). Add the public key to authorized_keys \
         there, or load the right key (ssh-add).",
        if attempt.notes.is_empty() { "none were offered".to_owned() } else { attempt.notes.join("; ") }
    );
    Err(ApiError::new(Code::AuthFailed, subject, message))
}

/// `ssh -G` prints paths with a tilde.
pub fn expanded(path: &Path) -> PathBuf {
    match (path.strip_prefix("~"), std::env::var_os("HOME")) {
        (Ok(rest), Some(home)) => Path::new(&home).join(rest),
        _ => path.to_owned(),
    }
}

fn load(files: &[PathBuf]) -> (Vec<Identity>, Vec<String>) {
    let mut notes = Vec::new();
    let mut identities = Vec::new();
    for file in files {
        let path = expanded(file);
        let beside = load_public_key(with_suffix(&path, ".pub")).ok();
        match load_secret_key(&path, None) {
            Ok(key) => {
                let public = Some(key.public_key().clone());
                identities.push(Identity { path, secret: Some(Arc::new(key)), public });
            }
            Err(russh::keys::Error::IO(error)) => {
                notes.push(format!("{} cannot be read: {error}", path.display()));
                identities.extend(beside.map(|public| Identity { path, secret: None, public: Some(public) }));
            }
            Err(error) => {
                let public = beside.or_else(|| PrivateKey::read_openssh_file(&path).ok().map(|key| key.public_key().clone()));
                let hint =
                    if is_encrypted(&path, &error) { "is encrypted, so only an agent can use it (ssh-add)" } else { "is not a usable key" };
                notes.push(format!("{} {hint}", path.display()));
                identities.push(Identity { path, secret: None, public });
            }
        }
    }
    (identities, notes)
}

fn is_encrypted(path: &Path, error: &russh::keys::Error) -> bool {
    matches!(error, russh::keys::Error::KeyIsEncrypted) || PrivateKey::read_openssh_file(path).is_ok_and(|key| key.is_encrypted())
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

impl Attempt<'_> {
    /// The agent's keys, those of our identity files first.
    async fn by_agent(&mut self, identities: &[Identity]) -> bool {
        let Some(socket) = self.config.agent_socket.as_deref().map(expanded) else { return false };
        let keys = match AgentClient::connect_uds(&socket).await {
            Ok(mut agent) => agent.request_identities().await.map(|keys| (agent, keys)),
            Err(error) => Err(error),
        };
        let (mut agent, mut keys) = match keys {
            Ok(found) => found,
            Err(error) => {
                self.notes.push(format!("the agent at {} does not answer: {error}", socket.display()));
                return false;
            }
        };
        let ours = |key: &AgentIdentity| {
            identities.iter().any(|id| id.public.as_ref().is_some_and(|public| public.key_data() == key.public_key().key_data()))
        };
        if self.config.identities_only {
            keys.retain(ours);
        }
        keys.sort_by_key(|key| !ours(key));
        if keys.is_empty() {
            self.notes.push(format!("the agent at {} holds no key for this host", socket.display()));
        }
        for key in keys {
            let name = key.comment().to_owned();
            if self.exhausted() {
                return false;
            }
            let hash = self.hash_for(&key.public_key()).await;
            let user = self.config.user.clone();
            let answer = match key {
                AgentIdentity::PublicKey { key, .. } => self.ssh.authenticate_publickey_with(user, key, hash, &mut agent).await,
                AgentIdentity::Certificate { certificate, .. } => {
                    self.ssh.authenticate_certificate_with(user, certificate, hash, &mut agent).await
                }
            };
            if self.accepted(answer.map_err(|error| error.to_string()), &format!("agent key {name}")) {
                return true;
            }
        }
        false
    }

    async fn by_files(&mut self, identities: &[Identity]) -> bool {
        for identity in identities {
            let Some(secret) = &identity.secret else { continue };
            if self.exhausted() {
                return false;
            }
            let user = self.config.user.clone();
            if let Ok(certificate) = load_openssh_certificate(with_suffix(&identity.path, "-cert.pub")) {
                let answer = self.ssh.authenticate_openssh_cert(user.clone(), secret.clone(), certificate).await;
                if self.accepted(answer.map_err(|error| error.to_string()), &format!("{}-cert.pub", identity.path.display())) {
                    return true;
                }
            }
            let hash = self.hash_for(secret.public_key()).await;
            let answer = self.ssh.authenticate_publickey(user, PrivateKeyWithHashAlg::new(secret.clone(), hash)).await;
            if self.accepted(answer.map_err(|error| error.to_string()), &identity.path.display().to_string()) {
                return true;
            }
        }
        false
    }

    fn exhausted(&mut self) -> bool {
        if self.tried >= TRIES_MAX {
            self.notes.push(format!("the server allows no more than {TRIES_MAX} keys; set identities_only and name the right one"));
        }
        self.tried += 1;
        self.lost || self.tried > TRIES_MAX
    }

    /// Only RSA keys have a choice, and asking the server may take a second.
    async fn hash_for(&mut self, key: &PublicKey) -> Option<HashAlg> {
        if !key.algorithm().is_rsa() {
            return None;
        }
        if self.rsa_hash.is_none() {
            self.rsa_hash = Some(self.ssh.best_supported_rsa_hash().await.ok().flatten().unwrap_or(Some(HashAlg::Sha256)));
        }
        self.rsa_hash.flatten()
    }

    fn accepted(&mut self, answer: Result<AuthResult, String>, name: &str) -> bool {
        match answer {
            Ok(AuthResult::Success) => return true,
            Ok(AuthResult::Failure { partial_success: true, .. }) => {
                self.refused += 1;
                self.notes.push(format!("{name} was accepted, but the server asks for a second factor"))
            }
            // What russh says when the connection ends; a server names at least the method it refuses.
            Ok(AuthResult::Failure { remaining_methods, .. }) if remaining_methods.is_empty() => self.lose(name, "the connection ended"),
            Ok(AuthResult::Failure { .. }) => {
                self.refused += 1;
                self.notes.push(format!("{name} was refused"))
            }
            Err(error) if self.ssh.is_closed() => self.lose(name, &error),
            Err(error) => self.notes.push(format!("{name} failed: {error}")),
        }
        false
    }

    fn lose(&mut self, name: &str, why: &str) {
        self.lost = true;
        self.notes.push(format!("{name} was not answered: {why}"));
    }
}
