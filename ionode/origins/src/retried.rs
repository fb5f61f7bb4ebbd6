//! An origin whose fetches go on where a line broke. Knows the port and the clock.
//!
//! The one rule: what came is not asked for again, and the content is looked at once more before it counts as fetched.
//!
//! Requests that a server turns away are asked again where its protocol is known, in `http` and by object_store in `s3`: one of eight ranges
//! that are read at once waits there, and the other seven go on.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use stager_core::error::{ApiError, Class, Code};

use crate::capabilities::Capabilities;
use crate::stall::stalled;
use crate::{Entry, Listing, Origin, Pace, Probe, Sink, Upload, Uploaded};

/// When a fetch is tried again.
#[derive(Clone, Copy, Debug)]
pub struct Retries {
    /// A line that breaks again and again without a byte in between is not mended by another try.
    pub without_a_byte_max: u32,
    pub pause: Duration,
    /// No byte for so long: that try has failed. A file gets time by its size on top.
    pub stall: Duration,
    pub stall_bytes_per_s: u64,
}

pub struct Retried {
    origin: Arc<dyn Origin>,
    retries: Retries,
}

impl Retried {
    /// Where an origin gives a file as a whole only, `fetch` gives its sink all of it again.
    pub fn new(origin: Arc<dyn Origin>, retries: Retries) -> Self {
        Self { origin, retries }
    }

    /// One try, and whether a byte came of it.
    async fn attempt(&self, expected: &Entry, missing: &[Range<u64>], sink: &TrackingSink<'_>) -> (Result<(), ApiError>, bool) {
        let before = sink.came.load(Ordering::Relaxed);
        let stall = self.retries.stall + Duration::from_secs(expected.size_bytes / self.retries.stall_bytes_per_s);
        let outcome = tokio::select! {
            outcome = self.origin.fetch(expected, missing, sink) => outcome,
            () = stalled(&sink.came, stall) => {
                let message = format!("no byte of {} came for {} s; look at the origin and its network", expected.path, stall.as_secs());
                Err(ApiError::new(Code::Timeout, &expected.path, message))
            }
        };
        (outcome, sink.came.load(Ordering::Relaxed) > before)
    }
}

/// Notes which bytes have come.
struct TrackingSink<'a> {
    sink: &'a dyn Sink,
    /// In order, none touching the next.
    there: Mutex<Vec<Range<u64>>>,
    came: AtomicU64,
}

impl TrackingSink<'_> {
    fn there(&self) -> MutexGuard<'_, Vec<Range<u64>>> {
        self.there.lock().expect("no holder panics")
    }

    fn missing(&self, ranges: &[Range<u64>]) -> Vec<Range<u64>> {
        let there = self.there();
        ranges.iter().flat_map(|range| missing(&there, range)).collect()
    }
}

fn short(path: &str) -> ApiError {
    ApiError::new(Code::ShortRead, path, format!("not all of {path} came; fetch it again"))
}

#[async_trait]
impl Sink for TrackingSink<'_> {
    async fn write_at(&self, offset: u64, chunk: Bytes) -> Result<(), ApiError> {
        let length = chunk.len() as u64;
        self.sink.write_at(offset, chunk).await?;
        add(&mut self.there(), offset..offset + length);
        self.came.fetch_add(length, Ordering::Relaxed);
        Ok(())
    }
    fn pace(&self) -> Pace {
        self.sink.pace()
    }
}

fn add(there: &mut Vec<Range<u64>>, came: Range<u64>) {
    let from = there.partition_point(|range| range.end < came.start);
    let to = there.partition_point(|range| range.start <= came.end);
    let start = there.get(from).filter(|_| from < to).map_or(came.start, |range| range.start.min(came.start));
    let end = there[from..to].last().map_or(came.end, |range| range.end.max(came.end));
    there.splice(from..to, std::iter::once(start..end));
}

/// What of `wanted` is not there.
fn missing(there: &[Range<u64>], wanted: &Range<u64>) -> Vec<Range<u64>> {
    let ends = std::iter::once(0).chain(there.iter().map(|range| range.end));
    let starts = there.iter().map(|range| range.start).chain(std::iter::once(u64::MAX));
    let gaps = ends.zip(starts).map(|(end, start)| end.max(wanted.start)..start.min(wanted.end));
    gaps.filter(|gap| gap.start < gap.end).collect()
}

#[async_trait]
impl Origin for Retried {
    fn capabilities(&self) -> Capabilities<'_> {
        self.origin.capabilities()
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
        let tracking = TrackingSink { sink, there: Mutex::default(), came: AtomicU64::new(0) };
        let (mut left, mut tries_without_a_byte) = (ranges.to_vec(), 0);
        loop {
            let (outcome, moved) = self.attempt(expected, &left, &tracking).await;
            tries_without_a_byte = if moved { 0 } else { tries_without_a_byte + 1 };
            if !self.capabilities().resumes(&expected.path) && outcome.is_err() {
                tracking.there().clear();
            }
            left = tracking.missing(ranges);
            let broken = match outcome {
                Ok(()) if left.is_empty() => return Ok(()),
                // It says that this is all, and another try would give as little.
                Ok(()) if !moved => return Err(short(&expected.path)),
                Ok(()) => short(&expected.path),
                Err(error) => error,
            };
            if broken.class != Class::Transient || tries_without_a_byte >= self.retries.without_a_byte_max {
                return Err(broken);
            }
            tokio::time::sleep(self.retries.pause).await;
        }
    }
    async fn upload(&self, upload: Upload<'_>) -> Result<Uploaded, ApiError> {
        self.origin.upload(upload).await
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_in_any_order_is_known_exactly() {
        let mut there = Vec::new();
        assert_eq!(missing(&there, &(0..10)), vec![0..10]);
        for came in [4..6, 8..9, 0..2] {
            add(&mut there, came);
        }
        assert_eq!((there.clone(), missing(&there, &(0..10))), (vec![0..2, 4..6, 8..9], vec![2..4, 6..8, 9..10]));
        assert_eq!((missing(&there, &(1..7)), missing(&there, &(4..6))), (vec![2..4, 6..7], vec![]));
        add(&mut there, 2..4);
        assert_eq!(there, vec![0..6, 8..9]);
        add(&mut there, 5..10);
        assert_eq!((there.as_slice(), missing(&there, &(0..10))), (std::slice::from_ref(&(0..10)), vec![]));
        assert_eq!(missing(&[], &(0..0)), Vec::<Range<u64>>::new());
    }
}
