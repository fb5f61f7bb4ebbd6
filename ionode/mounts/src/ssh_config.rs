//! What sshfs is told: an ssh configuration of its own, so that nobody's own settings and no option in a path have a say. Pure.
//!
//! The one rule: host keys are always checked, nothing is ever asked, and no value can become a second setting.

use std::path::Path;
use std::time::Duration;

use stager_core::error::{ApiError, Code};
use stager_origins::SftpConfig;

/// By this name, so that no host name is ever an argument.
pub const HOST: &str = "origin";
const ALIVE_MAX: u32 = 3;
const CONNECT_TIMEOUT_S: u32 = 15;

pub fn text(config: &SftpConfig, alive_every: Duration) -> Result<String, ApiError> {
    let known: Result<Vec<String>, ApiError> = config.known_hosts.iter().map(|path| path_value(path)).collect();
    let mut lines = vec![
        format!("Host {HOST}"),
        format!("HostName {}", value(&config.host)?),
        format!("Port {}", config.port),
        format!("User {}", value(&config.user)?),
        format!("UserKnownHostsFile {}", known.map(|known| if known.is_empty() { "/dev/null".to_owned() } else { known.join(" ") })?),
        "GlobalKnownHostsFile /dev/null".to_owned(),
        "StrictHostKeyChecking yes".to_owned(),
        "BatchMode yes".to_owned(),
        "ForwardAgent no".to_owned(),
        "ForwardX11 no".to_owned(),
        "ControlPath none".to_owned(),
        format!("ConnectTimeout {CONNECT_TIMEOUT_S}"),
        format!("ServerAliveInterval {}", alive_every.as_secs().max(1)),
        format!("ServerAliveCountMax {ALIVE_MAX}"),
        format!("IdentitiesOnly {}", if config.identities_only { "yes" } else { "no" }),
        match &config.agent_socket {
            Some(socket) => format!("IdentityAgent {}", path_value(socket)?),
            None => "IdentityAgent none".to_owned(),
        },
    ];
    if let Some(alias) = &config.host_key_alias {
        lines.push(format!("HostKeyAlias {}", value(alias)?));
    }
    for identity in &config.identity_files {
        lines.push(format!("IdentityFile {}", path_value(identity)?));
    }
    Ok(lines.join("\n") + "\n")
}

fn path_value(path: &Path) -> Result<String, ApiError> {
    match path.to_str() {
        Some(path) => value(path),
        None => Err(refused(&path.display().to_string())),
    }
}

/// Quoted; `%` begins a token there and `${` a variable.
fn value(text: &str) -> Result<String, ApiError> {
    if text.is_empty() || text.contains(['"', '\\']) || text.contains("${") || text.chars().any(char::is_control) {
        return Err(refused(text));
    }
    Ok(format!("\"{}\"", text.replace('%', "%%")))
}

fn refused(text: &str) -> ApiError {
    let message =
        format!("ssh, which serves mounts, takes no quotes, backslashes, \"${{\" or control characters; choose another name than {text:?}");
    ApiError::new(Code::Unsupported, text, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(user: &str, key: &str) -> SftpConfig {
        SftpConfig {
            host: "lab.example.org".into(),
            port: 2022,
            user: user.into(),
            base_path: "/d".into(),
            known_hosts: vec!["/home/a b/known".into(), "/etc/100%".into()],
            host_key_alias: None,
            identity_files: vec![key.into()],
            identities_only: true,
            agent_socket: None,
            connections_max: None,
            shell_checksum: false,
            verify_source: false,
            bandwidth_bytes_per_s_max: None,
        }
    }

    #[test]
    fn values_stay_values() {
        let said = text(&config("ana", "/k"), Duration::from_secs(5)).unwrap();
        assert!(said.contains("UserKnownHostsFile \"/home/a b/known\" \"/etc/100%%\"\n") && said.contains("StrictHostKeyChecking yes\n"));
        for bad in ["a\nProxyCommand id", "a\" b", "${HOME}", ""] {
            assert_eq!(text(&config(bad, "/k"), Duration::from_secs(5)).unwrap_err().code.as_str(), "unsupported", "{bad:?}");
            assert!(text(&config("ana", bad), Duration::from_secs(5)).is_err());
        }
    }
}
