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

/// Both kinds behind ssh have the same fields. serde does not support `flatten` beside `deny_unknown_fields`.
macro_rules! behind_ssh {
    ($($(#[$attribute:meta])* pub $field:ident: $kind:ty,)*) => {
        #[derive(Clone, Debug, PartialEq, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct SftpConfig {
            $($(#[$attribute])* pub $field: $kind,)*
        }

        #[derive(Clone, Debug, PartialEq, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct SshfsConfig {
            $($(#[$attribute])* pub $field: $kind,)*
            /// Where the user has it mounted. It is not used: bytes never pass through a mount that the node did not make.
            pub mount_point: Option<PathBuf>,
        }

        impl SshfsConfig {
            pub fn sftp(&self) -> SftpConfig {
                SftpConfig { $($field: self.$field.clone(),)* }
            }
        }
    };
}

behind_ssh! {
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

    /// Something that must not be sent where others can read it.
    pub fn has_secret(&self) -> bool {
        let shown = |secret: &Option<Secret>| secret.as_ref().is_some_and(|secret| !secret.reveal().is_empty());
        match self {
            Self::File(_) | Self::Sftp(_) | Self::Sshfs(_) => false,
            Self::S3(c) => !c.secret_access_key.reveal().is_empty() || shown(&c.session_token),
            Self::Http(c) => shown(&c.bearer_token) || shown(&c.password),
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

#[cfg(test)]
mod tests {
    use serde_json::{json, Value};

    use super::*;

    fn behind_ssh(kind: &str, field: &str, value: Value) -> Result<OriginConfig, String> {
        let mut config = json!({ "kind": kind, "host": "h", "user": "u", "base_path": "b", "known_hosts": ["k"] });
        config[field] = value;
        serde_json::from_value(config).map_err(|error| error.to_string())
    }

    #[test]
    fn an_unknown_field_is_refused_and_the_known_ones_are_named() {
        let known = "`host`, `port`, `user`, `base_path`, `known_hosts`, `host_key_alias`, `identity_files`, `identities_only`, \
                     `agent_socket`, `connections_max`, `shell_checksum`, `verify_source`, `bandwidth_bytes_per_s_max`";
        let refusal = |field: &str, more: &str| Err(format!("unknown field `{field}`, expected one of {known}{more}"));
        assert_eq!(behind_ssh("sftp", "surprise", json!(1)), refusal("surprise", ""));
        assert_eq!(behind_ssh("sftp", "mount_point", json!(null)), refusal("mount_point", ""));
        assert_eq!(behind_ssh("sshfs", "surprise", json!(1)), refusal("surprise", ", `mount_point`"));
    }

    #[test]
    fn a_configuration_knows_that_it_holds_a_secret() {
        let has = |text: &str| serde_json::from_str::<OriginConfig>(text).unwrap().has_secret();
        let package = std::env::var("CARGO_MANIFEST_DIR").expect("run by cargo");
        for kind in ["s3", "http", "sftp", "file", "sshfs"] {
            let path = format!("{package}/../../tests/conformance/wire/origin.{kind}.request.json");
            assert_eq!(has(&std::fs::read_to_string(path).unwrap()), ["s3", "http"].contains(&kind), "{kind}");
        }
        assert!(!has(r#"{"kind": "s3", "bucket": "b", "region": "r"}"#));
        assert!(has(r#"{"kind": "s3", "bucket": "b", "region": "r", "session_token": "t"}"#));
        assert!(has(r#"{"kind": "http", "base_url": "https://h", "bearer_token": "t"}"#));
    }

    #[test]
    fn sshfs_is_sftp_with_a_mount_point() {
        let (sftp, sshfs) = (behind_ssh("sftp", "port", json!(2222)).unwrap(), behind_ssh("sshfs", "port", json!(2222)).unwrap());
        let OriginConfig::Sftp(sftp) = sftp else { panic!("{sftp:?}") };
        assert_eq!((sshfs.mountable(), sftp.port, sftp.host.as_str()), (Some(sftp.clone()), 2222, "h"));
        assert!(behind_ssh("sshfs", "mount_point", json!("/mnt")).is_ok());
    }
}
