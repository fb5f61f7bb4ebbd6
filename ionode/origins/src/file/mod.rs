//! Files below a directory of this host: local disks, NFS, Lustre. Knows the file system only.
//!
//! The one rule: every call stays below the base, and blocking calls run on blocking threads.

mod beneath;
mod publish;
mod walk;

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{stream, StreamExt, TryStreamExt};
use nix::errno::Errno;
use nix::sys::stat::FileStat;
use nix::unistd::UnlinkatFlags;
use stager_core::error::{ApiError, Code};

use crate::config::FileConfig;
use crate::path::{checked, checked_file, split};
use crate::path_locks::PathLocks;
use crate::ranges::pieces;
use crate::waves::Waves;
use crate::{failure, into_new};
use crate::{Capabilities, Entry, EntryKind, Listing, Origin, Probe, Sink, Synced, Upload, Uploaded};
use beneath::Base;

const READ_BYTES: u64 = 1 << 20;
const READS_IN_FLIGHT: usize = 4;
const STATS_PER_TASK: usize = 256;
const SETTLED_AFTER_NS: i64 = 2_000_000_000;

pub struct FileOrigin {
    site: Arc<Site>,
    locks: PathLocks,
}

/// The base and how sentences call it; shared with blocking threads.
struct Site {
    base_path: PathBuf,
    place: String,
    /// By directory: having its names put on the disk.
    syncs: Arc<Waves<Result<Synced, Errno>>>,
}

impl FileOrigin {
    pub fn new(config: &FileConfig) -> Result<Self, ApiError> {
        let base_path = config.base_path.clone();
        if !base_path.is_absolute() {
            let shown = base_path.display().to_string();
            return Err(ApiError::new(Code::BadRequest, &shown, format!("The base_path {shown:?} of a file origin must be absolute.")));
        }
        let place = format!("file origin {}", base_path.display());
        Ok(Self { site: Arc::new(Site { base_path, place, syncs: Arc::default() }), locks: PathLocks::default() })
    }
}

impl Site {
    fn base(&self, path: &str) -> Result<Base, ApiError> {
        Base::open(&self.base_path).map_err(|errno| match errno {
            Errno::ENOENT | Errno::ENOTDIR => failure::no_base(path, &self.place),
            other => self.failure(other, path),
        })
    }

    fn failure(&self, errno: Errno, path: &str) -> ApiError {
        failure::from_errno(errno, path, &self.place)
    }

    /// Of walking to, or making, the directory something is written into. The kernel says ENOTDIR of a link that it may not follow.
    fn parent_failure(&self, errno: Errno, path: &str) -> ApiError {
        if !matches!(errno, Errno::ENOTDIR | Errno::ELOOP) {
            return self.failure(errno, path);
        }
        match self.base(path).ok().as_ref().and_then(|base| base.first_link(path)) {
            Some(link) => failure::link_not_followed(path, link, &self.place),
            None => failure::denied(path, &self.place, "one of its parents is a file where a directory is needed"),
        }
    }

    fn entry(&self, path: &str, stat: &FileStat) -> Result<Entry, ApiError> {
        entry_of(path, stat).ok_or_else(|| {
            let message = format!("{path:?} at {} is neither a file nor a directory; only those are moved.", self.place);
            ApiError::new(Code::Unsupported, path, message)
        })
    }

    fn stat(&self, path: &str) -> Result<Entry, ApiError> {
        let clean = checked(path)?;
        let stat = self.base(path)?.stat(&clean).map_err(|errno| self.failure(errno, path))?;
        self.entry(path, &stat)
    }

    /// Opened, and still what was planned with.
    fn open_expected(&self, expected: &Entry) -> Result<OwnedFd, ApiError> {
        let path = expected.path.as_str();
        let handle = self.base(path)?.open_to_read(&checked_file(path)?).map_err(|errno| self.failure(errno, path))?;
        let stat = nix::sys::stat::fstat(&handle).map_err(|errno| self.failure(errno, path))?;
        self.same_token(expected, &self.entry(path, &stat)?)?;
        Ok(handle)
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

    fn read(&self, handle: &OwnedFd, path: &str, range: Range<u64>) -> Result<Bytes, ApiError> {
        let length = (range.end - range.start) as usize;
        let failed = |errno: rustix::io::Errno| self.failure(Errno::from_raw(errno.raw_os_error()), path);
        let read = into_new::read(handle, range.start, length).map_err(failed)?;
        if read.len() < length {
            return Err(failure::short_read(path, &self.place, range.start + read.len() as u64));
        }
        Ok(Bytes::from(read))
    }

    fn erase(&self, path: &str, token: Option<&str>) -> Result<bool, ApiError> {
        let clean = checked_file(path)?;
        let entry = match self.stat(&clean) {
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
        let (directory, name) = split(&clean);
        let directory = self.base(path)?.directory_without_links(directory, false).map_err(|errno| self.parent_failure(errno, &clean))?;
        match nix::unistd::unlinkat(&directory, name, UnlinkatFlags::NoRemoveDir) {
            Err(Errno::ENOENT) => return Ok(false),
            other => other.map_err(|errno| self.failure(errno, path))?,
        }
        beneath::sync_directory(&directory).map_err(|errno| self.failure(errno, path))?;
        Ok(true)
    }
}

fn entry_of(path: &str, stat: &FileStat) -> Option<Entry> {
    let kind = match stat {
        _ if beneath::is_file(stat) => EntryKind::File,
        _ if beneath::is_directory(stat) => EntryKind::Directory,
        _ => return None,
    };
    let size_bytes = if kind == EntryKind::File { stat.st_size as u64 } else { 0 };
    let mtime_ns = stat.st_mtime * 1_000_000_000 + stat.st_mtime_nsec;
    let now_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i64);
    Some(Entry {
        path: path.to_owned(),
        size_bytes,
        token: format!("m={mtime_ns};s={size_bytes}"),
        mtime_ns: Some(mtime_ns),
        kind,
        settled: now_ns - mtime_ns >= SETTLED_AFTER_NS,
    })
}

/// Runs on a blocking thread; a panic there is a bug and goes on here.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.expect("blocking work does not panic")
}

#[async_trait]
impl Origin for FileOrigin {
    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities::PLAIN
    }

    async fn stat(&self, path: &str) -> Result<Entry, ApiError> {
        let (site, path) = (self.site.clone(), path.to_owned());
        blocking(move || site.stat(&path)).await
    }

    async fn stat_many(&self, paths: &[String]) -> Vec<Result<Entry, ApiError>> {
        let batches: Vec<Vec<String>> = paths.chunks(STATS_PER_TASK).map(<[String]>::to_vec).collect();
        stream::iter(batches)
            .map(|batch| {
                let site = self.site.clone();
                blocking(move || batch.iter().map(|path| site.stat(path)).collect::<Vec<_>>())
            })
            .buffered(READS_IN_FLIGHT)
            .flat_map(stream::iter)
            .collect()
            .await
    }

    async fn list(&self, prefix: &str, recursive: bool, limit: usize) -> Result<Listing, ApiError> {
        let (site, prefix) = (self.site.clone(), prefix.to_owned());
        blocking(move || walk::list(&site, &prefix, recursive, limit)).await
    }

    async fn fetch(&self, expected: &Entry, ranges: &[Range<u64>], sink: &dyn Sink) -> Result<(), ApiError> {
        let pieces = pieces(expected, ranges, READ_BYTES)?;
        let (site, wanted) = (self.site.clone(), expected.clone());
        let handle = Arc::new(blocking(move || site.open_expected(&wanted)).await?);
        let read = stream::iter(pieces)
            .map(|piece| {
                let (site, handle, path, offset) = (self.site.clone(), handle.clone(), expected.path.clone(), piece.start);
                async move {
                    sink.pace().pass(piece.end - piece.start).await;
                    let chunk = blocking(move || site.read(&handle, &path, piece)).await?;
                    sink.write_at(offset, chunk).await
                }
            })
            .buffer_unordered(READS_IN_FLIGHT)
            .try_collect::<Vec<()>>()
            .await;
        // By name, not by handle: a file renamed over the old one leaves the handle as it was. A changed file explains a short read, so it
        // is named first.
        match self.stat(&expected.path).await {
            Ok(found) => self.site.same_token(expected, &found)?,
            Err(error) => return Err(read.err().unwrap_or(error)),
        }
        read.map(|_| ())
    }

    async fn upload(&self, upload: Upload<'_>) -> Result<Uploaded, ApiError> {
        let clean = checked_file(upload.path)?;
        let guard = self.locks.lock(&clean).await;
        publish::upload(&self.site, guard, &upload, clean).await
    }

    async fn make_directory(&self, path: &str) -> Result<(), ApiError> {
        let (site, path) = (self.site.clone(), path.to_owned());
        blocking(move || {
            let clean = checked(&path)?;
            site.base(&path)?.directory_without_links(&clean, true).map(|_| ()).map_err(|errno| site.parent_failure(errno, &clean))
        })
        .await
    }

    async fn erase(&self, path: &str, token: Option<&str>) -> Result<bool, ApiError> {
        let (site, path, token) = (self.site.clone(), path.to_owned(), token.map(str::to_owned));
        blocking(move || site.erase(&path, token.as_deref())).await
    }

    async fn probe(&self, path: &str, write: bool) -> Probe {
        let (site, path) = (self.site.clone(), path.to_owned());
        blocking(move || walk::probe(&site, &path, write)).await
    }
}
