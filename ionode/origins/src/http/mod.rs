//! Files of a web server, read only. Knows HTTP; each file is known by its name, since HTTP has no listing.
//!
//! The one rule: every read names the content it expects, and every answer is looked at before its bytes count.

mod address;
mod answer;
mod client;
mod egress_filter;
mod identity;
mod limiter;
mod read;
mod site;

use std::ops::Range;

use async_trait::async_trait;
use futures::{stream, StreamExt};
use stager_core::error::{ApiError, Code};

use crate::capabilities::{Allowance, Capabilities, ReportedChecksum, ReportsChecksums, TakesAllowance, WholeOnly};
use crate::config::HttpConfig;
use crate::path::{checked, checked_file};
use crate::{Entry, EntryKind, Listing, Origin, Probe, Sink, Upload, Uploaded};
pub use client::Timeouts;
use site::Site;

pub struct HttpOrigin {
    site: Site,
}

impl HttpOrigin {
    pub fn new(config: &HttpConfig) -> Result<Self, ApiError> {
        Self::with_timeouts(config, Timeouts::default())
    }

    pub fn with_timeouts(config: &HttpConfig, timeouts: Timeouts) -> Result<Self, ApiError> {
        Ok(Self { site: Site::new(config, timeouts)? })
    }
}

fn base_itself(path: &str) -> Entry {
    Entry { path: path.to_owned(), size_bytes: 0, token: "s=0".to_owned(), mtime_ns: None, kind: EntryKind::Directory, settled: true }
}

#[async_trait]
impl Origin for HttpOrigin {
    /// No stat before a fetch: each answer names the content that it is of.
    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities {
            lists: false,
            writes: false,
            pieces_at_once_max: Some(self.site.connections_max),
            checksums: Some(self),
            whole_only: Some(self),
            allowance: Some(self),
            ..Capabilities::PLAIN
        }
    }

    async fn stat(&self, path: &str) -> Result<Entry, ApiError> {
        let clean = checked(path)?;
        if clean.is_empty() {
            return Ok(base_itself(path));
        }
        match self.site.head(&clean).await {
            Ok(entry) => Ok(Entry { path: path.to_owned(), ..entry }),
            Err(error) if error.subject == clean => Err(ApiError { subject: path.to_owned(), ..error }),
            Err(error) => Err(error),
        }
    }

    async fn stat_many(&self, paths: &[String]) -> Vec<Result<Entry, ApiError>> {
        let asked = stream::iter(paths.to_vec()).map(|path| async move {
            let _permit = self.site.stats.acquire().await.expect("it is never closed");
            self.stat(&path).await
        });
        asked.buffered(self.site.connections_max).collect().await
    }

    async fn list(&self, prefix: &str, _recursive: bool, _limit: usize) -> Result<Listing, ApiError> {
        Err(answer::no_listing(&checked(prefix)?, &self.site.place))
    }

    async fn fetch(&self, expected: &Entry, ranges: &[Range<u64>], sink: &dyn Sink) -> Result<(), ApiError> {
        read::fetch(&self.site, expected, ranges, sink).await
    }

    async fn upload(&self, upload: Upload<'_>) -> Result<Uploaded, ApiError> {
        Err(answer::read_only(&checked_file(upload.path)?, &self.site.place))
    }

    async fn make_directory(&self, path: &str) -> Result<(), ApiError> {
        Err(answer::read_only(&checked(path)?, &self.site.place))
    }

    async fn erase(&self, path: &str, _token: Option<&str>) -> Result<bool, ApiError> {
        Err(answer::read_only(&checked_file(path)?, &self.site.place))
    }

    /// The base itself is seldom there for a web server; that it answers is what counts, and that it knows us.
    async fn probe(&self, path: &str, write: bool) -> Probe {
        let mut probe = Probe { writable: write.then_some(false), ..Probe::default() };
        let clean = match checked(path) {
            Ok(clean) => clean,
            Err(error) => return Probe { findings: vec![error], ..probe },
        };
        match self.site.reach().await {
            Ok(refused) => {
                probe.reachable = true;
                probe.findings.extend(refused.filter(|error| error.code == Code::AuthFailed));
            }
            Err(error) => probe.findings.push(error),
        }
        if write {
            probe.findings.push(answer::read_only(&clean, &self.site.place));
        }
        probe
    }
}

/// What a server says of a content is in its token.
impl ReportsChecksums for HttpOrigin {
    fn reported(&self, entry: &Entry) -> ReportedChecksum {
        identity::reported_checksum(&entry.token)
    }
}

impl WholeOnly for HttpOrigin {
    fn is_whole_only(&self, path: &str) -> bool {
        self.site.is_whole_only(path)
    }
}

impl TakesAllowance for HttpOrigin {
    fn allow(&self, allowance: Allowance) -> usize {
        self.site.requests.allow(allowance.connections_max.unwrap_or(self.site.connections_max))
    }
}
