//! Does an origin hold this content? The `verify` call of the API, for any origin, through the port alone.
//!
//! The one rule: the answer describes bytes that were read for it, never a cached or declared checksum.

use std::ops::Range;
use std::sync::Mutex;

use async_trait::async_trait;
use bytes::Bytes;
use stager_core::error::ApiError;

use crate::{Entry, EntryKind, Origin, Pace, Sink, Verified};

const WINDOW_BYTES: u64 = 32 << 20;

#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct VerifyAnswer {
    pub matches: bool,
    pub size_bytes: u64,
    pub blake3: String,
    pub token: String,
    pub method: Verified,
}

struct Window {
    start: u64,
    bytes: Mutex<Vec<u8>>,
    pace: Pace,
}

#[async_trait]
impl Sink for Window {
    async fn write_at(&self, offset: u64, chunk: Bytes) -> Result<(), ApiError> {
        let at = (offset - self.start) as usize;
        self.bytes.lock().expect("no holder panics")[at..at + chunk.len()].copy_from_slice(&chunk);
        self.pace.was_read_back(chunk.len() as u64);
        Ok(())
    }

    fn pace(&self) -> Pace {
        self.pace.clone()
    }
}

/// The BLAKE3 of the content that has the entry's token.
pub async fn content_blake3(origin: &dyn Origin, entry: &Entry, pace: &Pace) -> Result<blake3::Hash, ApiError> {
    let mut hasher = blake3::Hasher::new();
    let mut start = 0;
    while start < entry.size_bytes {
        let range: Range<u64> = start..(start + WINDOW_BYTES).min(entry.size_bytes);
        start = range.end;
        hasher.update(&content_of(origin, entry, range, pace).await?);
    }
    Ok(hasher.finalize())
}

/// A part of the content that has the entry's token, held in memory.
pub async fn content_of(origin: &dyn Origin, entry: &Entry, range: Range<u64>, pace: &Pace) -> Result<Bytes, ApiError> {
    let bytes = Mutex::new(vec![0; (range.end - range.start) as usize]);
    let window = Window { start: range.start, bytes, pace: pace.clone() };
    origin.fetch(entry, &[range], &window).await?;
    Ok(window.bytes.into_inner().expect("no holder panics").into())
}

pub async fn verify_content(origin: &dyn Origin, path: &str, size_bytes: u64, blake3: &str, pace: &Pace) -> Result<VerifyAnswer, ApiError> {
    let entry = origin.stat(path).await?;
    if entry.kind != EntryKind::File {
        return Err(crate::failure::is_directory(path, "the origin"));
    }
    let found = content_blake3(origin, &entry, pace).await?.to_hex().to_string();
    Ok(VerifyAnswer {
        matches: entry.size_bytes == size_bytes && found.eq_ignore_ascii_case(blake3),
        size_bytes: entry.size_bytes,
        blake3: found,
        token: entry.token,
        method: Verified::Readback,
    })
}
