//! Origins: where data lives. One trait, one conformance suite; an implementation knows its protocol and nothing of the store, the
//! scheduler or other origins.
//!
//! The one rule: nothing is reported as there, or as durable, that was not seen there by this module after it was written.

use std::ops::Range;
use std::path::Path;

use async_trait::async_trait;
use bytes::Bytes;

use stager_core::error::ApiError;

mod cli;
mod coalescing_buffer;
mod config;
pub mod conformance;
mod failure;
mod file;
mod http;
mod local;
mod newer;
mod pacer;
mod path;
mod path_locks;
mod ranges;
pub mod rights;
mod s3;
mod sftp;
mod verify;
mod waves;
mod window;

pub use cli::cli;
pub use config::{open, Addressing, FileConfig, HttpConfig, OriginConfig, S3Config, Secret, SftpConfig, SshfsConfig};
pub use http::{HttpOrigin, Timeouts};
pub use newer::Made;
pub use pacer::Priority;
pub use s3::S3Origin;
pub use sftp::{SftpOrigin, Timing};
pub use verify::{content_blake3, verify_content, VerifyAnswer};

/// One file or directory at an origin. `token` tells two contents at one path apart.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Entry {
    pub path: String,
    pub size_bytes: u64,
    pub token: String,
    pub mtime_ns: Option<i64>,
    pub kind: EntryKind,
    pub settled: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    File,
    Directory,
}

/// What a listing saw and cannot give as a file.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LeftOut {
    /// With the replacement character where the name is no UTF-8.
    pub path: String,
    pub why: Why,
    /// Files may lie below it; none of those was looked at.
    pub directory: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    LinkLeadsOut,
    LinkLeadsNowhere,
    LinkToDirectory,
    LinkDenied,
    LinkNotFollowed,
    NotUtf8,
    SpecialFile,
}

/// Checksums of one whole content by its origin's word: what differs from them is not that content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReportedChecksum {
    pub crc64nvme: Option<u64>,
    pub sha256: Option<[u8; 32]>,
    pub crc32c: Option<u32>,
    pub crc32: Option<u32>,
    pub md5: Option<[u8; 16]>,
    /// Only by its looks: it may be none. Told where there is nothing better.
    pub tag_md5: Option<[u8; 16]>,
}

/// Both lists are sorted by path.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Listing {
    pub entries: Vec<Entry>,
    pub left_out: Vec<LeftOut>,
    pub truncated: bool,
}

impl Listing {
    fn cut(mut entries: Vec<Entry>, mut left_out: Vec<LeftOut>, limit: usize) -> Self {
        let truncated = entries.len() + left_out.len() > limit;
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        left_out.sort_by(|a, b| a.path.cmp(&b.path));
        entries.truncate(limit);
        left_out.truncate(limit - entries.len());
        Self { entries, left_out, truncated }
    }
}

/// Where fetched bytes go. Chunks may arrive in any order, from several tasks; each byte of the range exactly once.
#[async_trait]
pub trait Sink: Send + Sync {
    async fn write_at(&self, offset: u64, chunk: Bytes) -> Result<(), ApiError>;
    /// Urgent bytes go before others on the way from the same origin.
    fn priority(&self) -> Priority {
        Priority::default()
    }
}

/// A local file to be uploaded, with what its content must be.
pub struct Upload<'a> {
    pub local: &'a Path,
    pub path: &'a str,
    pub size_bytes: u64,
    pub blake3: [u8; 32],
    pub crc64nvme: u64,
    pub replace: bool,
    /// Where it may replace: what was changed there since then stays (`destination_newer`).
    pub made: Option<Made>,
    pub executable: bool,
    /// Unique for this content's way to this path, the same for every transfer that tries it: part of the temporary name.
    pub transfer_id: &'a str,
    /// Urgent bytes go before others on the way to the same origin, and on the way back when they are read to be verified.
    pub priority: Priority,
    /// Told of each piece the origin has taken: its bytes, not their sum.
    pub progress: &'a (dyn Fn(u64) + Send + Sync),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uploaded {
    pub token: String,
    pub verified: Verified,
    pub synced: Synced,
    /// Over the link, both ways: what was sent and what was read back.
    pub bytes_moved: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verified {
    Readback,
    RemoteChecksum,
    OriginChecksum,
    Adopted,
    Size,
}

/// What of an upload its origin was told to put on its disk, and said it had: the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Synced {
    /// It cannot be told to.
    Nothing,
    /// Not the directory that names it.
    Content,
    ContentAndName,
    /// That it has it is what its answer means.
    ByServer,
}

#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Probe {
    pub reachable: bool,
    pub writable: Option<bool>,
    pub free_bytes: Option<u64>,
    /// Which file system of its host has these free bytes: two probes that name the same one tell of the same space.
    #[serde(default)]
    pub file_system: Option<String>,
    pub findings: Vec<ApiError>,
}

/// The port. Errors are permanent or transient by their code (docs/formats/ionode-api.md). Every method may be cancelled by dropping its
/// future and must leave nothing
/// behind but a temporary name that the next try of the same transfer takes over or removes. Paths are relative, checked by the caller.
#[async_trait]
pub trait Origin: Send + Sync {
    async fn stat(&self, path: &str) -> Result<Entry, ApiError>;
    /// In the order asked; batched and parallel inside.
    async fn stat_many(&self, paths: &[String]) -> Vec<Result<Entry, ApiError>>;
    /// Files (and, if not recursive, directories) and what else is there, at most `limit` of all. `truncated`: more are there; which of
    /// them are given then is the origin's choice. A prefix that names a file gives that file; one that names nothing is `not_found`.
    async fn list(&self, prefix: &str, recursive: bool, limit: usize) -> Result<Listing, ApiError>;
    /// Reads `ranges` of the content that has `expected.token` into the sink. A changed token is `source_changed`; fewer bytes than asked
    /// is `short_read`.
    async fn fetch(&self, expected: &Entry, ranges: &[Range<u64>], sink: &dyn Sink) -> Result<(), ApiError>;
    /// Whether a stat before a fetch says more than its token and the fetch itself do: the checksums that a server keeps, for one. `whole`:
    /// all of the file will be fetched by one call, and `reported_checksum` is asked after it.
    fn needs_stat(&self, _expected: &Entry, _whole: bool) -> bool {
        true
    }
    /// Appears atomically and verified, or not at all. Same content there already: adopted.
    async fn upload(&self, upload: Upload<'_>) -> Result<Uploaded, ApiError>;
    /// Makes a directory (for empty directories of a directory final). Object stores do nothing.
    async fn make_directory(&self, path: &str) -> Result<(), ApiError>;
    /// Removes one file; with a token only if it still matches. `false`: was not there.
    async fn erase(&self, path: &str, token: Option<&str>) -> Result<bool, ApiError>;
    async fn probe(&self, path: &str, write: bool) -> Probe;
    /// So many small uploads at once are begun with: round trips are what they cost, and fewer would not fill any line.
    fn small_uploads_at_once(&self) -> usize {
        128
    }
    /// So many files will come soon: what takes long and needs none of them may be done now. What fails says so when they come.
    async fn get_ready(&self, _files: usize) {}
    /// What the origin says of the content with the token of `entry`, which was looked at just before: the only witness of what was
    /// sent, over a line that checks nothing itself.
    fn reported_checksum(&self, _entry: &Entry) -> ReportedChecksum {
        ReportedChecksum::default()
    }
    /// Whether `confirm` looks again.
    fn confirms(&self) -> bool {
        false
    }
    /// Where it was asked for: what the origin holds, looked at once more after it was fetched. An error where it is another content.
    async fn confirm(
        &self,
        _entry: &Entry,
        _blake3: blake3::Hash,
        _sha256: &str,
        _priority: &Priority,
    ) -> Result<Option<Verified>, ApiError> {
        Ok(None)
    }
    /// What its tokens say turned out to be no MD5 (an encrypted bucket's): no more of it.
    fn distrust_md5(&self) {}
    /// Whether a part of this file can be asked for, as far as is known: bytes kept of what cannot are of no use.
    fn resumes(&self, _path: &str) -> bool {
        true
    }
}
