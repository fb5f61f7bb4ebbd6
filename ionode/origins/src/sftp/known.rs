//! Is this host key the one the user knows? Reads known_hosts files as OpenSSH does: hashed names, `[host]:port`, patterns, `@revoked`.
//!
//! The one rule: a key is accepted only when a file says so; nothing is learned, asked or assumed.

use std::path::PathBuf;

use hmac::{Hmac, KeyInit, Mac};
use russh::keys::ssh_key::known_hosts::{Entry, HostPatterns, Marker};
use russh::keys::ssh_key::{Algorithm, HashAlg, PublicKey};
use sha1::Sha1;
use stager_core::error::{ApiError, Code};

/// The lines of all known_hosts files that speak of one host.
pub struct KnownKeys {
    host: String,
    port: u16,
    alias: Option<String>,
    files: Vec<PathBuf>,
    entries: Vec<Entry>,
    /// Said of the bare host name: what `[host]:port` falls back to, as in OpenSSH, and only to accept.
    portless: Vec<Entry>,
}

impl KnownKeys {
    /// A file that cannot be read knows nothing.
    pub fn load(host: &str, port: u16, alias: Option<&str>, files: &[PathBuf]) -> Self {
        let lines: Vec<Entry> =
            files.iter().filter_map(|file| std::fs::read_to_string(file).ok()).flat_map(|text| entries_of(&text)).collect();
        let bare = host.to_lowercase();
        let name = match alias {
            Some(alias) => alias.to_lowercase(),
            None if port == 22 => bare.clone(),
            None => format!("[{bare}]:{port}"),
        };
        let about = |name: &str| lines.iter().filter(|entry| speaks_of(entry.host_patterns(), name)).cloned().collect::<Vec<_>>();
        let portless = if alias.is_none() && port != 22 { about(&bare) } else { Vec::new() };
        Self { host: host.to_owned(), port, alias: alias.map(str::to_owned), files: files.to_vec(), entries: about(&name), portless }
    }

    /// Key types to ask the server for first, so that it shows a key that can be compared.
    pub fn algorithms(&self) -> Vec<Algorithm> {
        let trusted = self.entries.iter().chain(&self.portless).filter(|entry| entry.marker().is_none());
        trusted.map(|entry| entry.public_key().algorithm()).collect()
    }

    pub fn check(&self, key: &PublicKey) -> Result<(), ApiError> {
        let both = || self.entries.iter().chain(&self.portless);
        if both().any(|entry| entry.marker() == Some(&Marker::Revoked) && same(entry, key)) {
            return Err(self.revoked(key));
        }
        if both().any(|entry| entry.marker().is_none() && same(entry, key)) {
            return Ok(());
        }
        let same_type = |entry: &&Entry| entry.marker().is_none() && entry.public_key().algorithm() == key.algorithm();
        match self.entries.iter().find(same_type) {
            Some(known) => Err(self.changed(key, known.public_key())),
            None => Err(self.unknown(key)),
        }
    }

    fn subject(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    fn file(&self) -> String {
        self.files.first().map_or("~/.ssh/known_hosts".to_owned(), |file| file.display().to_string())
    }

    fn unknown(&self, key: &PublicKey) -> ApiError {
        let (kind, print) = (key.algorithm(), key.fingerprint(HashAlg::Sha256));
        let authority = self.entries.iter().any(|entry| entry.marker() == Some(&Marker::CertAuthority));
        let why = if authority { " (certificate authorities in known_hosts are not supported)" } else { "" };
        let renamed = self.alias.as_ref().map_or(String::new(), |alias| format!(" | sed 's/^[^ ]*/{alias}/'"));
        let message = format!(
            "The host key {print} ({kind}) of {} is in none of the known_hosts files {:?}{why}. Compare it with what the \
             host's administrator says, then add it: \
             ssh-keyscan -p {} {}{renamed} >> {}",
            self.subject(),
            self.files,
            self.port,
            self.host,
            self.file()
        );
        ApiError::new(Code::HostKeyUnknown, self.subject(), message)
    }

    fn changed(&self, key: &PublicKey, known: &PublicKey) -> ApiError {
        let name =
            self.alias
                .clone()
                .unwrap_or_else(|| if self.port == 22 { self.host.clone() } else { format!("[{}]:{}", self.host, self.port) });
        let message = format!(
            "The host key of {} is {} but {} is on file: either the host was set up anew or somebody sits in between. \
             Ask its administrator; if it is right, \
             remove the old key (ssh-keygen -f {} -R '{name}') and add the new one.",
            self.subject(),
            key.fingerprint(HashAlg::Sha256),
            known.fingerprint(HashAlg::Sha256),
            self.file()
        );
        ApiError::new(Code::HostKeyChanged, self.subject(), message)
    }

    fn revoked(&self, key: &PublicKey) -> ApiError {
        let print = key.fingerprint(HashAlg::Sha256);
        let message = format!("The host key {print} of {} is marked @revoked in known_hosts; nothing is sent there.", self.subject());
        ApiError::new(Code::HostKeyChanged, self.subject(), message)
    }
}

fn same(entry: &Entry, key: &PublicKey) -> bool {
    entry.public_key().key_data() == key.key_data()
}

/// Lines that are not understood are passed over, as OpenSSH does: they can only make a host unknown.
fn entries_of(text: &str) -> Vec<Entry> {
    let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    lines.filter(|line| !line.starts_with('#')).filter_map(|line| line.parse().ok()).collect()
}

fn speaks_of(patterns: &HostPatterns, name: &str) -> bool {
    match patterns {
        HostPatterns::HashedName { salt, hash } => {
            let Ok(mac) = Hmac::<Sha1>::new_from_slice(salt) else { return false };
            mac.chain_update(name).verify_slice(hash).is_ok()
        }
        HostPatterns::Patterns(patterns) => {
            let (refused, named): (Vec<&String>, Vec<&String>) = patterns.iter().partition(|pattern| pattern.starts_with('!'));
            let matches = |pattern: &str| wildcard(pattern.to_lowercase().as_bytes(), name.as_bytes());
            named.iter().any(|pattern| matches(pattern)) && !refused.iter().any(|pattern| matches(&pattern[1..]))
        }
    }
}

/// `*` and `?`; linear in practice, because each `*` is tried from the last one only.
fn wildcard(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        if p < pattern.len() && pattern[p] == b'*' {
            star = Some((p, n));
            p += 1;
        } else if p < pattern.len() && (pattern[p] == b'?' || pattern[p] == name[n]) {
            p += 1;
            n += 1;
        } else if let Some((at, from)) = star {
            p = at + 1;
            n = from + 1;
            star = Some((at, from + 1));
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ";
    const OTHER: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA6rWI3G1sz07DnfFlrouTcysQlj2P+jpNSOEWD9OJ3X";
    /// example.com, hashed by ssh-keygen -H, from russh's own tests.
    const HASHED: &str = "|1|O33ESRMWPVkMYIwJ1Uw+n877jTo=|nuuC5vEqXlEZ/8BXQR7m619W6Ak= ssh-ed25519 \
                          AAAAC3NzaC1lZDI1NTE5AAAAILIG2T/B0l0gaqj3puu510tu9N1OkQ4znY3LYuEm5zCF";

    fn outcome(text: &str, host: &str, port: u16, alias: Option<&str>, key: &str) -> String {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("known_hosts");
        std::fs::write(&file, text).unwrap();
        let key: PublicKey = key.parse().unwrap();
        KnownKeys::load(host, port, alias, &[file]).check(&key).map_or_else(|error| error.code.to_string(), |()| "accepted".to_owned())
    }

    #[test]
    fn keys_are_accepted_only_when_a_line_says_so() {
        let cases = [
            (format!("host {KEY}"), "host", 22, "accepted"),
            (format!("HOST,other {KEY}"), "Host", 22, "accepted"),
            (format!("host {OTHER}"), "host", 22, "host_key_changed"),
            (format!("host {OTHER}\nhost {KEY}"), "host", 22, "accepted"),
            (format!("elsewhere {KEY}"), "host", 22, "host_key_unknown"),
            (format!("# host {KEY}"), "host", 22, "host_key_unknown"),
            (format!("[host]:2222 {KEY}"), "host", 2222, "accepted"),
            (format!("[host]:2222 {KEY}"), "host", 22, "host_key_unknown"),
            (format!("host {KEY}"), "host", 2222, "accepted"),
            (format!("host {OTHER}"), "host", 2222, "host_key_unknown"),
            (format!("@revoked host {KEY}\nhost {KEY}"), "host", 22, "host_key_changed"),
            (format!("@cert-authority host {KEY}"), "host", 22, "host_key_unknown"),
            (format!("*.lab.org,!bad.lab.org {KEY}"), "good.lab.org", 22, "accepted"),
            (format!("*.lab.org,!bad.lab.org {KEY}"), "bad.lab.org", 22, "host_key_unknown"),
            (format!("nonsense\nhost\t{KEY} a comment"), "host", 22, "accepted"),
            (String::new(), "host", 22, "host_key_unknown"),
        ];
        for (text, host, port, expected) in cases {
            assert_eq!(outcome(&text, host, port, None, KEY), expected, "{text} for {host}:{port}");
        }
    }

    #[test]
    fn hashed_names_and_aliases_are_found() {
        let key = HASHED.split_once(' ').unwrap().1;
        assert_eq!(outcome(HASHED, "example.com", 22, None, key), "accepted");
        assert_eq!(outcome(HASHED, "example.com", 22, None, KEY), "host_key_changed");
        assert_eq!(outcome(HASHED, "example.org", 22, None, key), "host_key_unknown");
        assert_eq!(outcome(HASHED, "10.0.0.1", 2222, Some("example.com"), key), "accepted");
    }

    #[test]
    fn an_unknown_key_is_named_with_the_way_to_add_it() {
        let key: PublicKey = KEY.parse().unwrap();
        let error = KnownKeys::load("host", 2222, None, &["/kh".into()]).check(&key).unwrap_err();
        assert!(error.message.contains("ssh-keyscan -p 2222 host >> /kh"), "{}", error.message);
        assert!(error.message.contains(&key.fingerprint(HashAlg::Sha256).to_string()));
    }
}
