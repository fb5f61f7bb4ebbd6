//! How an origin's files are named at its server, and what the server's answers say of them. Knows links.
//!
//! The one rule: a file is the one that was asked for only while its token is the same.

use std::error::Error;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::Arc;
use std::time::SystemTime;

use russh_sftp::client::error::Error as SftpError;
use russh_sftp::extensions::Statvfs;
use russh_sftp::protocol::{FileAttributes, FileType};
use stager_core::error::{ApiError, Code};

use super::link::Link;
use crate::config::SftpConfig;
use crate::failure;
use crate::newer::seconds_of;
use crate::{Entry, EntryKind};

/// Modification times come in whole seconds, so two seconds of age need three of difference.
const SETTLED_AFTER_S: i64 = 3;
/// SSH_FXE_STATVFS_ST_RDONLY of statvfs@openssh.com.
const READ_ONLY: u64 = 1;

pub struct Site {
    pub place: Arc<str>,
    base: String,
    /// The server's clock minus ours, as seen on a file just written; zero until then.
    clock_ahead_s: AtomicI64,
}

impl Site {
    pub fn new(config: &SftpConfig) -> Result<Self, ApiError> {
        let base = base_of(&config.base_path);
        let shown = if base.starts_with('/') { base.clone() } else { format!("/~/{base}") };
        let place: Arc<str> = format!("sftp://{}@{}:{}{shown}", config.user, config.host, config.port).into();
        if config.host.is_empty() || config.user.is_empty() || config.base_path.contains('\0') {
            return Err(ApiError::new(
                Code::BadRequest,
                &*place,
                format!("The origin {place} needs a host, a user and a base_path without NUL."),
            ));
        }
        Ok(Self { place, base, clock_ahead_s: AtomicI64::new(0) })
    }

    /// The name for the server; `path` has been checked.
    pub fn remote(&self, path: &str) -> String {
        match (self.base.as_str(), path) {
            ("", "") => ".".to_owned(),
            ("", path) => path.to_owned(),
            (base, "") => base.to_owned(),
            ("/", path) => format!("/{path}"),
            (base, path) => format!("{base}/{path}"),
        }
    }

    pub async fn stat_on(&self, link: &Link, path: &str) -> Result<Entry, ApiError> {
        let attributes = link.sftp.stat(self.remote(path)).await.map_err(|error| link.failure(error, path))?;
        self.entry(path, &attributes.attrs).ok_or_else(|| {
            let message = format!("{path:?} at {} is neither a file nor a directory; only those are moved.", self.place);
            ApiError::new(Code::Unsupported, path, message)
        })
    }

    pub fn entry(&self, path: &str, attributes: &FileAttributes) -> Option<Entry> {
        let kind = match attributes.file_type() {
            FileType::Dir => EntryKind::Directory,
            FileType::File => EntryKind::File,
            _ => return None,
        };
        let size_bytes = if kind == EntryKind::File { attributes.size.unwrap_or(0) } else { 0 };
        let mtime_s = i64::from(attributes.mtime.unwrap_or(0));
        let now_s = self.now_s();
        Some(Entry {
            path: path.to_owned(),
            size_bytes,
            token: format!("m={mtime_s};s={size_bytes}"),
            mtime_ns: Some(mtime_s * 1_000_000_000),
            kind,
            settled: now_s - mtime_s >= SETTLED_AFTER_S,
        })
    }

    /// By the server's clock, as far as it is known.
    pub fn now_s(&self) -> i64 {
        local_now_s() + self.clock_ahead_s.load(Ordering::Relaxed)
    }

    pub fn same_token(&self, expected: &Entry, found: &Entry) -> Result<(), ApiError> {
        if found.kind != EntryKind::File {
            return Err(failure::is_directory(&expected.path, &self.place));
        }
        if found.token != expected.token {
            return Err(failure::source_changed(&expected.path, &self.place, &expected.token, &found.token));
        }
        Ok(())
    }

    /// From the time stamp of a file written this instant. A second either way is rounding, not a wrong clock.
    pub fn learn_clock(&self, attributes: &FileAttributes) {
        let Some(mtime_s) = attributes.mtime else { return };
        let ahead_s = i64::from(mtime_s) - local_now_s();
        self.clock_ahead_s.store(if ahead_s.abs() <= 2 { 0 } else { ahead_s }, Ordering::Relaxed);
    }

    pub async fn file_system(&self, link: &Link, directory: &str) -> Option<Statvfs> {
        if !link.offers.statvfs {
            return None;
        }
        link.sftp.statvfs(self.remote(directory)).await.ok()
    }

    /// SFTP says "Failure" to a full or frozen disk as to much else: the file system is asked which it was.
    pub async fn or_full(&self, link: &Link, error: ApiError, needed_bytes: u64) -> ApiError {
        if error.code != Code::IoError {
            return error;
        }
        let said = says_full(&error);
        let file_system = self.file_system(link, "").await;
        if file_system.as_ref().is_some_and(|vfs| vfs.flags & READ_ONLY != 0) {
            return failure::denied(&error.subject, &self.place, "it is mounted read-only");
        }
        if said || file_system.is_some_and(|vfs| free_bytes(&vfs) < needed_bytes.max(1)) {
            failure::no_space(&error.subject, &self.place)
        } else {
            error
        }
    }
}

/// Whether the server's own words do. Our message names the path and the place besides, and some servers name the path in theirs: what
/// has a slash in it is none of those words.
fn says_full(error: &ApiError) -> bool {
    let Some(SftpError::Status(status)) = error.source().and_then(|cause| cause.downcast_ref()) else { return false };
    let (said, path) = (&status.error_message, error.subject.as_str());
    let said = if path.contains(char::is_whitespace) { said.replace(path, "/") } else { said.clone() };
    let words = said.split_whitespace().filter(|word| !word.contains('/'));
    let mut words = words.map(|word| word.trim_matches(|letter: char| !letter.is_alphanumeric())).filter(|word| *word != path);
    words.any(|word| matches!(word.to_lowercase().as_str(), "space" | "diskspace" | "quota"))
}

/// Relative to the login directory unless absolute; a tilde says the same.
fn base_of(base_path: &str) -> String {
    let relative = base_path.strip_prefix("~/").unwrap_or(if base_path == "~" { "" } else { base_path });
    match relative.trim_end_matches('/') {
        "" if base_path.starts_with('/') => "/".to_owned(),
        trimmed => trimmed.to_owned(),
    }
}

pub fn free_bytes(vfs: &Statvfs) -> u64 {
    vfs.blocks_avail.saturating_mul(vfs.fragment_size)
}

fn local_now_s() -> i64 {
    seconds_of(SystemTime::now())
}

#[cfg(test)]
mod tests {
    use russh_sftp::protocol::{Status, StatusCode};

    use super::super::link::failure_of;
    use super::*;

    #[test]
    fn only_the_servers_own_words_tell_of_a_full_disk() {
        let full = |words: &str, path: &str, place: &str| {
            let (id, status_code, language_tag) = (1, StatusCode::Failure, String::new());
            let status = Status { id, status_code, error_message: words.to_owned(), language_tag };
            says_full(&failure_of(SftpError::Status(status), path, place))
        };
        for words in ["No space left on device", "write: no space left.", "Disk quota exceeded", "Insufficient diskspace!", "QUOTA"] {
            for path in ["f", "a", "", "a b"] {
                assert!(full(words, path, "sftp://u@h:22/b"), "{words} {path}");
            }
        }
        for (words, path, place) in [
            ("Failure", "f", "sftp://u@h:22/workspace"),
            ("Failure", "f", "sftp://u@quota.example:22/b"),
            ("Failure", "my space/f", "sftp://u@h:22/b"),
            ("open /data/space/f: too many open files", "space/f", "sftp://u@h:22/data"),
            ("cannot open my space (busy)", "my space", "sftp://u@h:22/b"),
            ("open space: too many open files", "space", "sftp://u@h:22/~/"),
            ("the workspace is frozen", "f", "sftp://u@h:22/b"),
        ] {
            assert!(!full(words, path, place), "{words} {path} {place}");
        }
    }

    #[test]
    fn the_servers_clock_is_what_counts() {
        let config = serde_json::json!({ "host": "h", "user": "u", "base_path": "", "known_hosts": [] });
        let site = Site::new(&serde_json::from_value(config).unwrap()).unwrap();
        let touched = |ago_s: i64, ahead_s: i64| FileAttributes {
            permissions: Some(0o100644),
            mtime: Some((local_now_s() + ahead_s - ago_s) as u32),
            ..FileAttributes::empty()
        };
        let settled = |ago_s, ahead_s| site.entry("f", &touched(ago_s, ahead_s)).unwrap().settled;
        assert!(settled(10, 0) && !settled(1, 0));
        assert!(!settled(10, 3600), "a server ahead of us is not known to be so yet");
        site.learn_clock(&touched(0, 3600));
        assert!(settled(10, 3600) && !settled(1, 3600));
        site.learn_clock(&touched(0, 1));
        assert!(settled(10, 0) && !settled(1, 0), "a second of difference is rounding");
    }

    #[test]
    fn bases_are_relative_to_the_login_directory_unless_absolute() {
        for (given, expected) in
            [("", ""), ("~", ""), ("~/data/", "data"), ("data", "data"), ("/", "/"), ("/srv//", "/srv"), ("./x", "./x")]
        {
            assert_eq!(base_of(given), expected, "{given:?}");
        }
    }
}
