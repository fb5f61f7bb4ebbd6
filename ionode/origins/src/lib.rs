//! Origins: where data lives. One trait, one conformance suite; an implementation knows its protocol and nothing of the store, the
//! scheduler or other origins.
//!
//! The one rule: nothing is reported as there, or as durable, that was not seen there by this module after it was written.

use std::ops::Range;
use std::path::Path;

use async_trait::async_trait;
use bytes::Bytes;

use stager_core::error::ApiError;

mod capabilities;
mod cli;
mod coalescing_buffer;
mod compared;
mod config;
pub mod conformance;
mod failure;
mod file;
mod http;
mod into_new;
mod local;
mod metered;
mod newer;
mod open;
mod paced;
mod pacer;
mod path;
mod path_locks;
mod ranges;
mod retried;
pub mod rights;
mod s3;
mod sftp;
mod stall;
mod verify;
mod waves;
mod window;

pub use capabilities::{
    Allowance, Capabilities, Confirm, GetReady, ReportedChecksum, ReportsChecksums, StatBeforeFetch, TakesAllowance, TakesTagsForMd5,
    WholeOnly,
};
pub use cli::cli;
pub use config::{Addressing, FileConfig, HttpConfig, OriginConfig, S3Config, Secret, SftpConfig, SshfsConfig};
pub use http::{HttpOrigin, Timeouts};
pub use metered::{Meter, Metered};
pub use newer::Made;
pub use open::open;
pub use paced::{Pace, Paced};
pub use pacer::Priority;
pub use retried::{Retried, Retries};
pub use s3::S3Origin;
pub use sftp::{SftpOrigin, Timing};
pub use stall::{stalled, stalled_by};
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
    /// How its bytes may be asked for: whoever reads a piece asks first.
    fn pace(&self) -> Pace {
        Pace::default()
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
    /// Of this content, the same for every transfer that brings it to this path: part of the temporary name, beside the path's hash.
    pub transfer_id: &'a str,
    /// How its bytes may move to the origin, and back when they are read to be verified.
    pub pace: Pace,
    /// Told of each piece the origin has taken: its bytes, not their sum.
    pub progress: &'a (dyn Fn(u64) + Send + Sync),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uploaded {
    pub token: String,
    pub verified: Verified,
    pub synced: Synced,
    /// Over the link, both ways: what was sent, what was read back, and what was read of a file that was there before.
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
/// future and must leave nothing behind but a temporary name that the next try of the same transfer takes over or removes. Paths are
/// relative, checked by the caller.
#[async_trait]
pub trait Origin: Send + Sync {
    /// What it can do besides what follows, and what it is worth.
    fn capabilities(&self) -> Capabilities<'_>;
    async fn stat(&self, path: &str) -> Result<Entry, ApiError>;
    /// In the order asked; batched and parallel inside.
    async fn stat_many(&self, paths: &[String]) -> Vec<Result<Entry, ApiError>>;
    /// Files (and, if not recursive, directories) and what else is there, at most `limit` of all. `truncated`: more are there; which of
    /// them are given then is the origin's choice. A prefix that names a file gives that file; one that names nothing is `not_found`.
    async fn list(&self, prefix: &str, recursive: bool, limit: usize) -> Result<Listing, ApiError>;
    /// Reads `ranges` of the content that has `expected.token` into the sink. A changed token is `source_changed`; fewer bytes than asked
    /// is `short_read`.
    async fn fetch(&self, expected: &Entry, ranges: &[Range<u64>], sink: &dyn Sink) -> Result<(), ApiError>;
    /// Appears atomically and verified, or not at all. Same content there already: adopted.
    async fn upload(&self, upload: Upload<'_>) -> Result<Uploaded, ApiError>;
    /// Makes a directory (for empty directories of a directory final). Object stores do nothing.
    async fn make_directory(&self, path: &str) -> Result<(), ApiError>;
    /// Removes one file; with a token only if it still matches. `false`: was not there.
    async fn erase(&self, path: &str, token: Option<&str>) -> Result<bool, ApiError>;
    async fn probe(&self, path: &str, write: bool) -> Probe;
}
