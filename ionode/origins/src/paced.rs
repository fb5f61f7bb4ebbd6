//! An origin whose bytes keep to a bandwidth, go by priority and are never too many under way. Knows the port and the pacer.
//!
//! The one rule: it decides when a byte may move, and never which: pieces are cut where the protocol is known. So it hands each call a pace,
//! and whoever reads or sends a piece asks that first. A wrapper that only saw bytes arrive would come too late: what has been asked for
//! fills the line, and nothing can go before it any more.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{BoxStream, Stream, StreamExt};
use stager_core::error::ApiError;
use tokio::time::Instant;

use crate::capabilities::{Allowance, Capabilities, Confirm, TakesAllowance};
use crate::pacer::{Pacer, Permit};
use crate::{Entry, Listing, Origin, Priority, Probe, Sink, Upload, Uploaded, Verified};

const ASKED_AHEAD: usize = 3;

/// How the bytes of one call may move: asked piece by piece. From a caller it is its priority; what paces the origin is added on the way in.
#[derive(Clone, Default)]
pub struct Pace {
    priority: Priority,
    pacers: Option<Pacers>,
}

#[derive(Clone)]
struct Pacers {
    /// Keeps the bandwidth, both ways together, and what is read and has not come.
    line: Arc<Pacer>,
    /// What is written and not answered.
    writes: Arc<Pacer>,
}

impl From<Priority> for Pace {
    fn from(priority: Priority) -> Self {
        Self { priority, pacers: None }
    }
}

impl Pace {
    pub fn priority(&self) -> &Priority {
        &self.priority
    }

    /// So many bytes arrived that are compared or hashed and not kept.
    pub fn was_read_back(&self, bytes: u64) {
        self.priority.was_read_back(bytes);
    }

    /// Waits until so many bytes may be asked for.
    pub async fn ask(&self, bytes: u64) -> Permit {
        self.acquire(bytes, |pacers| &pacers.line).await
    }

    /// Waits until so many bytes may be under way to the origin. The bandwidth is kept by `pass`.
    pub async fn send(&self, bytes: u64) -> Permit {
        self.acquire(bytes, |pacers| &pacers.writes).await
    }

    /// Waits until so many bytes may pass, where the bandwidth is all that matters.
    pub async fn pass(&self, bytes: u64) {
        if let Some(pacers) = &self.pacers {
            pacers.line.take(bytes, &self.priority).await;
        }
    }

    /// The pieces, each with its permit. Some wait for theirs at once: what comes free then goes to the next piece of an urgent transfer
    /// rather than to whoever else waits.
    pub fn permitted<'a>(self, pieces: impl Stream<Item = Range<u64>> + Send + 'a) -> BoxStream<'a, (Range<u64>, Permit)> {
        let permitted = move |piece: Range<u64>| {
            let pace = self.clone();
            async move {
                let permit = pace.ask(piece.end - piece.start).await;
                (piece, permit)
            }
        };
        pieces.map(permitted).buffered(ASKED_AHEAD).boxed()
    }

    /// Pieces of this size let others pass in between, and are large enough to keep the line full.
    pub fn piece_bytes(&self, least: u64, most: u64) -> u64 {
        self.pacers.as_ref().map_or(least, |pacers| pacers.line.piece_bytes(least, most))
    }

    async fn acquire(&self, bytes: u64, of: impl Fn(&Pacers) -> &Arc<Pacer>) -> Permit {
        match &self.pacers {
            Some(pacers) => of(pacers).acquire(bytes, self.priority.clone()).await,
            None => Permit::free(bytes),
        }
    }
}

pub struct Paced {
    origin: Arc<dyn Origin>,
    /// By its description.
    bytes_per_s_max: Option<u64>,
    pacers: Pacers,
}

impl Paced {
    pub fn new(origin: Arc<dyn Origin>, bytes_per_s_max: Option<u64>) -> Self {
        let pieces_max = origin.capabilities().pieces_at_once_max.unwrap_or(usize::MAX);
        let pacers = Pacers { line: Pacer::with_permits_max(bytes_per_s_max, pieces_max), writes: Pacer::new(None) };
        Self { origin, bytes_per_s_max, pacers }
    }

    fn pace(&self, pace: Pace) -> Pace {
        Pace { pacers: Some(self.pacers.clone()), ..pace }
    }
}

struct PacedSink<'a> {
    sink: &'a dyn Sink,
    by: &'a Paced,
}

#[async_trait]
impl Sink for PacedSink<'_> {
    async fn write_at(&self, offset: u64, chunk: Bytes) -> Result<(), ApiError> {
        self.sink.write_at(offset, chunk).await
    }
    fn pace(&self) -> Pace {
        self.by.pace(self.sink.pace())
    }
}

#[async_trait]
impl Origin for Paced {
    fn capabilities(&self) -> Capabilities<'_> {
        let inner = self.origin.capabilities();
        Capabilities { confirm: inner.confirm.map(|_| self as &dyn Confirm), allowance: Some(self), ..inner }
    }
    async fn stat(&self, path: &str) -> Result<Entry, ApiError> {
        self.origin.stat(path).await
    }
    async fn stat_many(&self, paths: &[String]) -> Vec<Result<Entry, ApiError>> {
        self.origin.stat_many(paths).await
    }
    async fn list(&self, prefix: &str, recursive: bool, limit: usize) -> Result<Listing, ApiError> {
        self.origin.list(prefix, recursive, limit).await
    }
    async fn fetch(&self, expected: &Entry, ranges: &[Range<u64>], sink: &dyn Sink) -> Result<(), ApiError> {
        self.origin.fetch(expected, ranges, &PacedSink { sink, by: self }).await
    }
    async fn upload(&self, upload: Upload<'_>) -> Result<Uploaded, ApiError> {
        let pace = self.pace(upload.pace.clone());
        self.origin.upload(Upload { pace, ..upload }).await
    }
    async fn make_directory(&self, path: &str) -> Result<(), ApiError> {
        self.origin.make_directory(path).await
    }
    async fn erase(&self, path: &str, token: Option<&str>) -> Result<bool, ApiError> {
        self.origin.erase(path, token).await
    }
    async fn probe(&self, path: &str, write: bool) -> Probe {
        self.origin.probe(path, write).await
    }
}

#[async_trait]
impl Confirm for Paced {
    async fn confirm(&self, entry: &Entry, blake3: blake3::Hash, sha256: &str, pace: &Pace) -> Result<Verified, ApiError> {
        let confirm = self.origin.capabilities().confirm.expect("it is offered where there is one");
        confirm.confirm(entry, blake3, sha256, &self.pace(pace.clone())).await
    }
}

impl TakesAllowance for Paced {
    fn allow(&self, allowance: Allowance) -> usize {
        let until = allowance.lease.map(|lease| Instant::now() + lease);
        self.pacers.line.set_rate(allowance.bandwidth_bytes_per_s_max.or(self.bytes_per_s_max.filter(|rate| *rate > 0)), until);
        self.origin.capabilities().allowance.map_or(0, |origin| origin.allow(allowance))
    }
}
