//! An origin that counts what moves to and from it, for whoever shows it. Knows the port.
//!
//! The one rule: each byte is counted when it has moved, once, whatever becomes of the call that it was of.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use stager_core::error::ApiError;

use crate::capabilities::{Capabilities, Confirm};
use crate::{Entry, Listing, Origin, Pace, Probe, Sink, Upload, Uploaded, Verified};

pub trait Meter: Send + Sync {
    /// From the origin, what is read back to be verified included.
    fn arrived(&self, bytes: u64);
    fn sent(&self, bytes: u64);
}

pub struct Metered {
    origin: Arc<dyn Origin>,
    meter: Arc<dyn Meter>,
}

impl Metered {
    pub fn new(origin: Arc<dyn Origin>, meter: Arc<dyn Meter>) -> Self {
        Self { origin, meter }
    }
}

struct MeteredSink<'a> {
    sink: &'a dyn Sink,
    meter: &'a dyn Meter,
}

#[async_trait]
impl Sink for MeteredSink<'_> {
    async fn write_at(&self, offset: u64, chunk: Bytes) -> Result<(), ApiError> {
        let bytes = chunk.len() as u64;
        self.sink.write_at(offset, chunk).await?;
        self.meter.arrived(bytes);
        Ok(())
    }
    fn pace(&self) -> Pace {
        self.sink.pace()
    }
}

#[async_trait]
impl Origin for Metered {
    fn capabilities(&self) -> Capabilities<'_> {
        let inner = self.origin.capabilities();
        Capabilities { confirm: inner.confirm.map(|_| self as &dyn Confirm), ..inner }
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
        self.origin.fetch(expected, ranges, &MeteredSink { sink, meter: self.meter.as_ref() }).await
    }
    async fn upload(&self, upload: Upload<'_>) -> Result<Uploaded, ApiError> {
        let (told, size_bytes) = (upload.progress, upload.size_bytes);
        let progress = |bytes| {
            self.meter.sent(bytes);
            told(bytes);
        };
        let uploaded = self.origin.upload(Upload { progress: &progress, ..upload }).await?;
        // What was adopted was read and not sent.
        let sent = if uploaded.verified == Verified::Adopted { 0 } else { size_bytes };
        self.meter.arrived(uploaded.bytes_moved.saturating_sub(sent));
        Ok(uploaded)
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
impl Confirm for Metered {
    async fn confirm(&self, entry: &Entry, blake3: blake3::Hash, sha256: &str, pace: &Pace) -> Result<Verified, ApiError> {
        let confirm = self.origin.capabilities().confirm.expect("it is offered where there is one");
        let verified = confirm.confirm(entry, blake3, sha256, pace).await?;
        if verified == Verified::Readback {
            self.meter.arrived(entry.size_bytes);
        }
        Ok(verified)
    }
}
