//! Files behind ssh: SFTP version 3 with OpenSSH's extensions. Also serves sshfs origins, whose bytes never pass through the mount.
//!
//! The one rule: the host key is checked against the given files before anything is said, and there is no way around it.

mod checksum;
mod credentials;
mod known;
mod link;
mod pool;
mod publish;
mod read;
mod session;
mod walk;

use std::collections::HashSet;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use futures::{stream, StreamExt};
use russh_sftp::extensions::Statvfs;
use russh_sftp::protocol::{FileAttributes, FileType};
use stager_core::error::{ApiError, Code};

use crate::capabilities::{Capabilities, Confirm, GetReady};
use crate::config::SftpConfig;
use crate::failure;
use crate::newer::seconds_of;
use crate::path::{checked, checked_file, split};
use crate::path_locks::PathLocks;
use crate::waves::Waves;
use crate::{Entry, EntryKind, Listing, Origin, Pace, Probe, Sink, Upload, Uploaded, Verified};
use link::Link;
use pool::{Pool, Work};

const STATS_IN_FLIGHT: usize = 256;
/// Another connection is worth a login for so many more small files.
const FILES_A_CONNECTION: usize = 64;
/// Modification times come in whole seconds, so two seconds of age need three of difference.
const SETTLED_AFTER_S: i64 = 3;
/// SSH_FXE_STATVFS_ST_RDONLY of statvfs@openssh.com.
const READ_ONLY: u64 = 1;

/// How long to wait for what; the defaults suit a slow WAN.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    pub connect_s: u64,
    pub request_s: u64,
    pub keepalive_s: u64,
    /// After a further connection was refused (MaxStartups, a firewall).
    pub grow_again: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self { connect_s: 30, request_s: 60, keepalive_s: 10, grow_again: Duration::from_secs(30) }
    }
}

pub struct SftpOrigin {
    site: Arc<Site>,
    locks: PathLocks,
    verify_source: bool,
}

/// What all calls share.
struct Site {
    pool: Arc<Pool>,
    place: Arc<str>,
    base: String,
    /// The server's clock minus ours, as seen on a file just written; zero until then.
    clock_ahead_s: AtomicI64,
    /// Whether a remote checksum may still be tried.
    shell: AtomicBool,
    /// By directory: making it, and having its names put on the server's disk.
    makings: Arc<Waves<Result<(), ApiError>>>,
    /// Directories that we made and whose names are not known to be on the server's disk.
    made: Mutex<HashSet<String>>,
    /// Whether it was, and whether the line was still there then.
    syncs: Arc<Waves<(bool, bool)>>,
}

impl SftpOrigin {
    pub fn new(config: &SftpConfig) -> Result<Self, ApiError> {
        Self::with_timing(config, Timing::default())
    }

    pub fn with_timing(config: &SftpConfig, timing: Timing) -> Result<Self, ApiError> {
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
        let site = Site {
            pool: Arc::new(Pool::new(config.clone(), place.clone(), timing)),
            place,
            base,
            clock_ahead_s: AtomicI64::new(0),
            shell: AtomicBool::new(config.shell_checksum),
            makings: Arc::default(),
            made: Mutex::default(),
            syncs: Arc::default(),
        };
        Ok(Self { site: Arc::new(site), locks: PathLocks::default(), verify_source: config.verify_source })
    }
}

/// Relative to the login directory unless absolute; a tilde says the same.
fn base_of(base_path: &str) -> String {
    let relative = base_path.strip_prefix("~/").unwrap_or(if base_path == "~" { "" } else { base_path });
    match relative.trim_end_matches('/') {
        "" if base_path.starts_with('/') => "/".to_owned(),
        trimmed => trimmed.to_owned(),
    }
}

impl Site {
    /// The name for the server; `path` has been checked.
    fn remote(&self, path: &str) -> String {
        match (self.base.as_str(), path) {
            ("", "") => ".".to_owned(),
            ("", path) => path.to_owned(),
            (base, "") => base.to_owned(),
            ("/", path) => format!("/{path}"),
            (base, path) => format!("{base}/{path}"),
        }
    }

    async fn stat_on(&self, link: &Link, path: &str) -> Result<Entry, ApiError> {
        let attributes = link.sftp.stat(self.remote(path)).await.map_err(|error| link.failure(error, path))?;
        self.entry(path, &attributes.attrs).ok_or_else(|| {
            let message = format!("{path:?} at {} is neither a file nor a directory; only those are moved.", self.place);
            ApiError::new(Code::Unsupported, path, message)
        })
    }

    async fn stat(&self, path: &str) -> Result<Entry, ApiError> {
        let clean = checked(path)?;
        let lease = self.pool.lease(Work::Metadata).await?;
        let found = self.stat_on(&lease.link, &clean).await?;
        Ok(Entry { path: path.to_owned(), ..found })
    }

    fn entry(&self, path: &str, attributes: &FileAttributes) -> Option<Entry> {
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
    fn now_s(&self) -> i64 {
        local_now_s() + self.clock_ahead_s.load(Ordering::Relaxed)
    }

    fn same_token(&self, expected: &Entry, found: &Entry) -> Result<(), ApiError> {
        if found.kind != EntryKind::File {
            return Err(failure::is_directory(&expected.path, &self.place));
        }
        if found.token != expected.token {
            return Err(failure::source_changed(&expected.path, &self.place, &expected.token, &found.token));
        }
        Ok(())
    }

    /// From the time stamp of a file written this instant. A second either way is rounding, not a wrong clock.
    fn learn_clock(&self, attributes: &FileAttributes) {
        let Some(mtime_s) = attributes.mtime else { return };
        let ahead_s = i64::from(mtime_s) - local_now_s();
        self.clock_ahead_s.store(if ahead_s.abs() <= 2 { 0 } else { ahead_s }, Ordering::Relaxed);
    }

    async fn erase(&self, path: &str, token: Option<&str>) -> Result<bool, ApiError> {
        let clean = checked_file(path)?;
        let lease = self.pool.lease(Work::Metadata).await?;
        let entry = match self.stat_on(&lease.link, &clean).await {
            Ok(entry) => entry,
            Err(error) if error.code == Code::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        if entry.kind == EntryKind::Directory {
            return Err(failure::is_directory(path, &self.place));
        }
        if let Some(token) = token.filter(|token| *token != entry.token) {
            return Err(failure::source_changed(path, &self.place, token, &entry.token));
        }
        match lease.link.sftp.remove(self.remote(&clean)).await.map_err(|error| lease.link.failure(error, path)) {
            Ok(_) => Ok(true),
            Err(error) if error.code == Code::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Makes `directory` and what is missing above it, below the base: once for all uploads that need it.
    async fn make_directories(self: &Arc<Self>, link: &Arc<Link>, directory: &str) -> Result<(), ApiError> {
        let (site, link, missing) = (self.clone(), link.clone(), directory.to_owned());
        self.makings.join_while(directory, async move { site.make_missing(&link, &missing).await }, std::future::ready).await
    }

    /// Mostly one directory is missing, and one request makes it. Their names are put on the disk by `sync_made`, before anything in them
    /// counts as durable: nobody waits for that before the first byte.
    async fn make_missing(&self, link: &Arc<Link>, directory: &str) -> Result<(), ApiError> {
        if !directory.is_empty() && self.make_one(link, directory).await.is_ok() {
            return Ok(());
        }
        let mut missing = Vec::new();
        let mut here = directory;
        loop {
            match self.stat_on(link, here).await {
                Ok(entry) if entry.kind == EntryKind::Directory => break,
                Ok(_) => return Err(failure::denied(directory, &self.place, &format!("{here:?} is a file where a directory is needed"))),
                Err(error) if error.code == Code::NotFound && here.is_empty() => return Err(failure::no_base(directory, &self.place)),
                Err(error) if error.code == Code::NotFound => missing.push(here),
                Err(error) => return Err(error),
            }
            here = split(here).0;
        }
        for directory in missing.into_iter().rev() {
            if let Err(error) = self.make_one(link, directory).await {
                // Another upload may have made it meanwhile.
                let there = self.stat_on(link, directory).await.is_ok_and(|entry| entry.kind == EntryKind::Directory);
                if !there {
                    return Err(self.or_full(link, error, 1).await);
                }
            }
        }
        Ok(())
    }

    async fn make_one(&self, link: &Link, directory: &str) -> Result<(), ApiError> {
        let made = link.sftp.mkdir(self.remote(directory), FileAttributes::empty()).await;
        made.map_err(|error| link.failure(error, directory))?;
        if link.offers.fsync {
            self.made().insert(directory.to_owned());
        }
        Ok(())
    }

    fn made(&self) -> MutexGuard<'_, HashSet<String>> {
        self.made.lock().expect("no holder panics")
    }

    /// A shell that gave no answer is not asked again. A line that broke says nothing of the shell behind it.
    async fn sha256(&self, link: &Link, remote: &str, size_bytes: u64) -> Option<[u8; 32]> {
        let found = checksum::sha256(link, remote, size_bytes).await;
        if found.is_none() && link.is_alive() {
            self.shell.store(false, Ordering::Relaxed);
        }
        found
    }

    async fn file_system(&self, link: &Link, directory: &str) -> Option<Statvfs> {
        if !link.offers.statvfs {
            return None;
        }
        link.sftp.statvfs(self.remote(directory)).await.ok()
    }

    /// SFTP says "Failure" to a full or frozen disk as to much else: the file system is asked which it was.
    async fn or_full(&self, link: &Link, error: ApiError, needed_bytes: u64) -> ApiError {
        if error.code != Code::IoError {
            return error;
        }
        let said = ["space", "quota"].iter().any(|word| error.message.to_lowercase().contains(word));
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

fn free_bytes(vfs: &Statvfs) -> u64 {
    vfs.blocks_avail.saturating_mul(vfs.fragment_size)
}

fn local_now_s() -> i64 {
    seconds_of(SystemTime::now())
}

#[async_trait]
impl Origin for SftpOrigin {
    /// Small uploads share a few connections, and take about seven round trips each.
    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities {
            small_uploads_at_once: 1024,
            get_ready: Some(self),
            confirm: self.verify_source.then_some(self as &dyn Confirm),
            ..Capabilities::PLAIN
        }
    }

    async fn stat(&self, path: &str) -> Result<Entry, ApiError> {
        self.site.stat(path).await
    }

    async fn stat_many(&self, paths: &[String]) -> Vec<Result<Entry, ApiError>> {
        let site = &self.site;
        stream::iter(paths.to_vec()).map(|path| async move { site.stat(&path).await }).buffered(STATS_IN_FLIGHT).collect().await
    }

    async fn list(&self, prefix: &str, recursive: bool, limit: usize) -> Result<Listing, ApiError> {
        walk::list(&self.site, prefix, recursive, limit).await
    }

    async fn fetch(&self, expected: &Entry, ranges: &[Range<u64>], sink: &dyn Sink) -> Result<(), ApiError> {
        read::fetch(&self.site, expected, ranges, sink).await
    }

    async fn upload(&self, upload: Upload<'_>) -> Result<Uploaded, ApiError> {
        let clean = checked_file(upload.path)?;
        let guard = self.locks.lock(&clean).await;
        publish::upload(&self.site, guard, &upload, clean).await
    }

    async fn make_directory(&self, path: &str) -> Result<(), ApiError> {
        let clean = checked(path)?;
        let lease = self.site.pool.lease(Work::Metadata).await?;
        self.site.make_directories(&lease.link, &clean).await?;
        publish::put_names_on_disk(&self.site, &lease.link, &clean).await;
        Ok(())
    }

    async fn erase(&self, path: &str, token: Option<&str>) -> Result<bool, ApiError> {
        self.site.erase(path, token).await
    }

    async fn probe(&self, path: &str, write: bool) -> Probe {
        walk::probe(&self.site, path, write).await
    }
}

#[async_trait]
impl GetReady for SftpOrigin {
    /// Logs in, which takes ten round trips and more, and starts what computes checksums.
    async fn get_ready(&self, files: usize) {
        let start = |link: &Link| {
            if self.site.shell.load(Ordering::Relaxed) {
                link.sums.start();
            }
        };
        self.site.pool.get_ready(1 + files / FILES_A_CONNECTION, &start).await;
    }
}

#[async_trait]
impl Confirm for SftpOrigin {
    async fn confirm(&self, entry: &Entry, blake3: blake3::Hash, sha256: &str, pace: &Pace) -> Result<Verified, ApiError> {
        read::confirm(&self.site, entry, blake3, sha256, pace).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_clock_is_what_counts() {
        let config = serde_json::json!({ "host": "h", "user": "u", "base_path": "", "known_hosts": [] });
        let site = SftpOrigin::new(&serde_json::from_value(config).unwrap()).unwrap().site;
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
