//! Files behind ssh: SFTP version 3 with OpenSSH's extensions. Also serves sshfs origins, whose bytes never pass through the mount.
//!
//! The one rule: the host key is checked against the given files before anything is said, and there is no way around it.

mod checksum;
mod credentials;
mod directories;
mod host_key;
mod known;
mod link;
mod links;
mod login;
mod opened;
mod places;
mod pool;
mod publish;
mod range_sums;
mod read;
mod read_back;
mod session;
mod shell;
mod site;
mod walk;

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use futures::{stream, StreamExt};
use stager_core::error::{ApiError, Code};

use crate::capabilities::{Allowance, Capabilities, Confirm, GetReady, TakesAllowance};
use crate::config::SftpConfig;
use crate::failure;
use crate::path::{checked, checked_file};
use crate::{Entry, EntryKind, Listing, Origin, Pace, Probe, Sink, Upload, Uploaded, Verified};
use directories::Directories;
pub use login::Timing;
use pool::{Pool, Work};
use publish::Uploads;
use shell::Shell;
use site::Site;

const STATS_IN_FLIGHT: usize = 256;

pub struct SftpOrigin {
    site: Arc<Site>,
    pool: Arc<Pool>,
    shell: Arc<Shell>,
    directories: Arc<Directories>,
    uploads: Uploads,
    verify_source: bool,
}

impl SftpOrigin {
    pub fn new(config: &SftpConfig) -> Result<Self, ApiError> {
        Self::with_timing(config, Timing::default())
    }

    pub fn with_timing(config: &SftpConfig, timing: Timing) -> Result<Self, ApiError> {
        let site = Arc::new(Site::new(config)?);
        let shell = Arc::new(Shell::new(config.shell_checksum));
        let pool = Arc::new(Pool::new(config.clone(), site.place.clone(), timing, shell.clone()));
        let directories = Directories::new(site.clone());
        let uploads = Uploads::new(site.clone(), pool.clone(), shell.clone(), directories.clone());
        Ok(Self { site, pool, shell, directories, uploads, verify_source: config.verify_source })
    }
}

#[async_trait]
impl Origin for SftpOrigin {
    /// Small uploads share a few connections, and take about seven round trips each.
    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities {
            small_uploads_at_once: 1024,
            get_ready: Some(self),
            confirm: self.verify_source.then_some(self as &dyn Confirm),
            allowance: Some(self),
            ..Capabilities::PLAIN
        }
    }

    async fn stat(&self, path: &str) -> Result<Entry, ApiError> {
        let clean = checked(path)?;
        let lease = self.pool.lease(Work::Metadata).await?;
        let found = self.site.stat_on(&lease.link, &clean).await?;
        Ok(Entry { path: path.to_owned(), ..found })
    }

    async fn stat_many(&self, paths: &[String]) -> Vec<Result<Entry, ApiError>> {
        stream::iter(paths.to_vec()).map(|path| async move { self.stat(&path).await }).buffered(STATS_IN_FLIGHT).collect().await
    }

    async fn list(&self, prefix: &str, recursive: bool, limit: usize) -> Result<Listing, ApiError> {
        let clean = checked(prefix)?;
        let lease = self.pool.lease(Work::Metadata).await?;
        walk::list(&self.site, &lease.link, clean, recursive, limit).await
    }

    async fn fetch(&self, expected: &Entry, ranges: &[Range<u64>], sink: &dyn Sink) -> Result<(), ApiError> {
        read::fetch(&self.pool, &self.site, expected, ranges, sink).await
    }

    async fn upload(&self, upload: Upload<'_>) -> Result<Uploaded, ApiError> {
        self.uploads.upload(&upload).await
    }

    async fn make_directory(&self, path: &str) -> Result<(), ApiError> {
        let clean = checked(path)?;
        let lease = self.pool.lease(Work::Metadata).await?;
        self.directories.make(&lease.link, &clean).await?;
        self.directories.put_names_on_disk(&lease.link, &clean).await;
        Ok(())
    }

    async fn erase(&self, path: &str, token: Option<&str>) -> Result<bool, ApiError> {
        let clean = checked_file(path)?;
        let lease = self.pool.lease(Work::Metadata).await?;
        let (site, link) = (&self.site, &lease.link);
        let entry = match site.stat_on(link, &clean).await {
            Ok(entry) => entry,
            Err(error) if error.code == Code::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        if entry.kind == EntryKind::Directory {
            return Err(failure::is_directory(path, &site.place));
        }
        if let Some(token) = token.filter(|token| *token != entry.token) {
            return Err(failure::source_changed(path, &site.place, token, &entry.token));
        }
        match link.sftp.remove(site.remote(&clean)).await.map_err(|error| link.failure(error, path)) {
            Ok(_) => Ok(true),
            Err(error) if error.code == Code::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn probe(&self, path: &str, write: bool) -> Probe {
        walk::probe(&self.pool, &self.site, path, write).await
    }
}

#[async_trait]
impl GetReady for SftpOrigin {
    /// Logs in, which takes ten round trips and more, and starts what computes checksums.
    async fn get_ready(&self, files: usize) {
        self.pool.get_ready(files).await;
    }
}

#[async_trait]
impl Confirm for SftpOrigin {
    /// By the server's shell where that proves it, else by reading everything a second time.
    async fn confirm(&self, entry: &Entry, blake3: blake3::Hash, sha256: &str, pace: &Pace) -> Result<Verified, ApiError> {
        let lease = self.pool.lease(Work::Bulk).await?;
        let (site, link) = (&self.site, &lease.link);
        let remote = site.remote(&checked_file(&entry.path)?);
        if self.shell.is_usable() {
            let found = self.shell.sha256(link, &remote, entry.size_bytes).await;
            if found.is_some_and(|found| found.iter().map(|byte| format!("{byte:02x}")).collect::<String>() == sha256) {
                return Ok(Verified::RemoteChecksum);
            }
        }
        if read::content_hash(site, link, entry, &remote, pace).await? == blake3 {
            return Ok(Verified::Readback);
        }
        let message = format!("{:?} at {} arrived with other content than it has there; stager fetches it again.", entry.path, site.place);
        Err(ApiError::new(Code::ChecksumMismatch, &entry.path, message))
    }
}

impl TakesAllowance for SftpOrigin {
    fn allow(&self, allowance: Allowance) -> usize {
        self.pool.allow(allowance)
    }
}
