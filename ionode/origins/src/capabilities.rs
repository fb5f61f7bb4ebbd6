//! What an origin can do besides what all can, and what it is worth. Knows the words of the port.
//!
//! The one rule: what is not here cannot be called, so nobody has to try it to find out.

use std::time::Duration;

use async_trait::async_trait;
use stager_core::error::ApiError;

use crate::{Entry, Pace, Verified};

/// Known when an origin is opened. A wrapper passes on what it does not change.
#[derive(Clone, Copy)]
pub struct Capabilities<'a> {
    /// `list` gives what is there.
    pub lists: bool,
    /// `upload`, `make_directory` and `erase` change what is there.
    pub writes: bool,
    pub stat_before_fetch: StatBeforeFetch,
    /// So many small uploads at once are begun with.
    pub small_uploads_at_once: usize,
    /// Each piece that is read takes a connection of its own, and there are so many.
    pub pieces_at_once_max: Option<usize>,
    pub get_ready: Option<&'a dyn GetReady>,
    pub checksums: Option<&'a dyn ReportsChecksums>,
    pub tags_as_md5: Option<&'a dyn TakesTagsForMd5>,
    pub confirm: Option<&'a dyn Confirm>,
    pub whole_only: Option<&'a dyn WholeOnly>,
    pub allowance: Option<&'a dyn TakesAllowance>,
}

impl Capabilities<'_> {
    /// Reads and writes files, and nothing else. Round trips are what small uploads cost, and fewer at once would not fill any line.
    pub const PLAIN: Self = Self {
        lists: true,
        writes: true,
        stat_before_fetch: StatBeforeFetch::Never,
        small_uploads_at_once: 128,
        pieces_at_once_max: None,
        get_ready: None,
        checksums: None,
        tags_as_md5: None,
        confirm: None,
        whole_only: None,
        allowance: None,
    };

    /// `whole`: all of the file will be fetched by one call, and `reported_checksum` is asked after it.
    pub fn needs_stat(&self, expected: &Entry, whole: bool) -> bool {
        match self.stat_before_fetch {
            StatBeforeFetch::Never => false,
            StatBeforeFetch::UnlessOneAnswer { bytes_max } => !whole || expected.size_bytes > bytes_max,
        }
    }

    /// What the origin says of the content with the token of `entry`, which was looked at just before: the only witness of what was
    /// sent, over a line that checks nothing itself.
    pub fn reported_checksum(&self, entry: &Entry) -> ReportedChecksum {
        self.checksums.map_or_else(ReportedChecksum::default, |checksums| checksums.reported(entry))
    }

    /// What its tokens say turned out to be no MD5 (an encrypted bucket's): no more of it.
    pub fn distrust_md5(&self) {
        if let Some(tags) = self.tags_as_md5 {
            tags.distrust();
        }
    }

    /// Whether a part of this file can be asked for, as far as is known: bytes kept of what cannot are of no use.
    pub fn resumes(&self, path: &str) -> bool {
        !self.whole_only.is_some_and(|known| known.is_whole_only(path))
    }
}

/// Whether a stat before a fetch says more than its token and the fetch itself do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatBeforeFetch {
    Never,
    /// It says the checksums that a server keeps. The answer about a whole file of up to so many bytes says them too.
    UnlessOneAnswer {
        bytes_max: u64,
    },
}

/// What takes long and needs no file may be done before the files come.
#[async_trait]
pub trait GetReady: Send + Sync {
    /// So many will come soon. What fails says so when they come.
    async fn get_ready(&self, files: usize);
}

pub trait ReportsChecksums: Send + Sync {
    fn reported(&self, entry: &Entry) -> ReportedChecksum;
}

/// Reports `ReportedChecksum::tag_md5` until it is known to be none.
pub trait TakesTagsForMd5: Send + Sync {
    fn distrust(&self);
}

/// Where it was asked for: what the origin holds, looked at once more after it was fetched.
#[async_trait]
pub trait Confirm: Send + Sync {
    /// An error where it is another content.
    async fn confirm(&self, entry: &Entry, blake3: blake3::Hash, sha256: &str, pace: &Pace) -> Result<Verified, ApiError>;
}

/// A server that may give some files as a whole only.
pub trait WholeOnly: Send + Sync {
    fn is_whole_only(&self, path: &str) -> bool;
}

/// What one node may have of an origin that several nodes use. None: as its description says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Allowance {
    /// 0: no byte is asked for.
    pub bandwidth_bytes_per_s_max: Option<u64>,
    /// 0: nothing is asked.
    pub connections_max: Option<usize>,
    /// It ends then, and there is none before the next. None: it does not end.
    pub lease: Option<Duration>,
}

/// What is under way goes on, and what would be more than it is not begun. At the end of the lease connections are closed.
pub trait TakesAllowance: Send + Sync {
    /// The connections that there are still.
    fn allow(&self, allowance: Allowance) -> usize;
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
