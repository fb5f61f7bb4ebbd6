//! What an origin is made from: the body of `PUT /v1/origins/{id}`, exactly. Knows the formats, and no implementation.
//!
//! The one rule: a secret can be read by the code that signs with it and by nothing that prints.

use std::fmt;
use std::path::PathBuf;

use serde::Deserialize;

/// A string that never shows itself.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "\"\"" } else { "\"***\"" })
    }
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum OriginConfig {
    File(FileConfig),
    Sftp(SftpConfig),
    Sshfs(SshfsConfig),
    S3(S3Config),
    Http(HttpConfig),
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileConfig {
    pub base_path: PathBuf,
    pub bandwidth_bytes_per_s_max: Option<u64>,
}

fn ssh_port() -> u16 {
    22
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SftpConfig {
    pub host: String,
    #[serde(default = "ssh_port")]
    pub port: u16,
    pub user: String,
    pub base_path: String,
    pub known_hosts: Vec<PathBuf>,
    pub host_key_alias: Option<String>,
    #[serde(default)]
    pub identity_files: Vec<PathBuf>,
    #[serde(default)]
    pub identities_only: bool,
    pub agent_socket: Option<PathBuf>,
    pub connections_max: Option<usize>,
    #[serde(default)]
    pub shell_checksum: bool,
    /// What was fetched is compared with what the server holds, by its shell or by reading it again.
    #[serde(default)]
    pub verify_source: bool,
    pub bandwidth_bytes_per_s_max: Option<u64>,
}

/// As `SftpConfig`, spelled out because a flattened struct would accept unknown fields.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SshfsConfig {
    pub host: String,
    #[serde(default = "ssh_port")]
    pub port: u16,
    pub user: String,
    pub base_path: String,
    pub known_hosts: Vec<PathBuf>,
    pub host_key_alias: Option<String>,
    #[serde(default)]
    pub identity_files: Vec<PathBuf>,
    #[serde(default)]
    pub identities_only: bool,
    pub agent_socket: Option<PathBuf>,
    pub connections_max: Option<usize>,
    #[serde(default)]
    pub shell_checksum: bool,
    /// What was fetched is compared with what the server holds, by its shell or by reading it again.
    #[serde(default)]
    pub verify_source: bool,
    pub bandwidth_bytes_per_s_max: Option<u64>,
    /// Where a watched read-only mount serves direct reads; bytes of transfers never pass through it.
    pub mount_point: Option<PathBuf>,
}

impl SshfsConfig {
    pub fn sftp(&self) -> SftpConfig {
        SftpConfig {
            host: self.host.clone(),
            port: self.port,
            user: self.user.clone(),
            base_path: self.base_path.clone(),
            known_hosts: self.known_hosts.clone(),
            host_key_alias: self.host_key_alias.clone(),
            identity_files: self.identity_files.clone(),
            identities_only: self.identities_only,
            agent_socket: self.agent_socket.clone(),
            connections_max: self.connections_max,
            shell_checksum: self.shell_checksum,
            verify_source: self.verify_source,
            bandwidth_bytes_per_s_max: self.bandwidth_bytes_per_s_max,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Addressing {
    #[default]
    Path,
    Virtual,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct S3Config {
    pub bucket: String,
    #[serde(default)]
    pub prefix: String,
    pub region: String,
    pub endpoint: Option<String>,
    #[serde(default)]
    pub addressing: Addressing,
    /// Empty: requests are not signed (a public bucket). Nothing is ever taken from the environment.
    #[serde(default)]
    pub access_key_id: String,
    #[serde(default)]
    pub secret_access_key: Secret,
    pub session_token: Option<Secret>,
    #[serde(default)]
    pub allow_http: bool,
    pub bandwidth_bytes_per_s_max: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpConfig {
    /// Without credentials, query or fragment.
    pub base_url: String,
    pub bearer_token: Option<Secret>,
    pub user: Option<String>,
    pub password: Option<Secret>,
    /// Authorities to trust besides those of the system.
    pub ca_file: Option<PathBuf>,
    /// Credentials may go over plain http.
    #[serde(default)]
    pub allow_http: bool,
    /// What follows a `?` in a path is a query, and no part of a name.
    #[serde(default)]
    pub queries: bool,
    /// Only addresses of the public internet are gone to, whatever a name or a redirect says.
    #[serde(default)]
    pub public_only: bool,
    pub connections_max: Option<usize>,
    pub bandwidth_bytes_per_s_max: Option<u64>,
}

impl OriginConfig {
    /// What a mount of it is made from, where it can be mounted.
    pub fn mountable(&self) -> Option<SftpConfig> {
        match self {
            Self::Sshfs(c) => Some(c.sftp()),
            _ => None,
        }
    }

    pub fn bandwidth_bytes_per_s_max(&self) -> Option<u64> {
        match self {
            Self::File(c) => c.bandwidth_bytes_per_s_max,
            Self::Sftp(c) => c.bandwidth_bytes_per_s_max,
            Self::Sshfs(c) => c.bandwidth_bytes_per_s_max,
            Self::S3(c) => c.bandwidth_bytes_per_s_max,
            Self::Http(c) => c.bandwidth_bytes_per_s_max,
        }
    }
}
