//! One file of an origin into a new file here. What breaks off is gone on with, of the same content only.
//!
//! The one rule: what the origin says of the content is compared with what lies on the disk here.

use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use stager_core::error::{ApiError, Class, Code};
use stager_origins::{Entry, EntryKind, Origin, Pace, Sink};

use super::{Moved, STALL, VERIFY_BYTES_PER_S_MIN};
use crate::blocking::blocking;
use crate::failure::at;
use crate::origin_checksums::{also, verify_by_origin};
use crate::stall::stalled;
use crate::store::digest::{Also, Digests, Hasher};
use crate::wire::Expected;

/// A line that breaks again and again without a byte in between is not mended by another try here.
const TRIES_WITHOUT_A_BYTE: u32 = 3;
const PAUSE: Duration = Duration::from_millis(500);

struct Arriving {
    file: Arc<File>,
    to: PathBuf,
    /// What is there, in order, none touching the next.
    there: Mutex<Vec<Range<u64>>>,
    came: AtomicU64,
}

#[async_trait]
impl Sink for Arriving {
    async fn write_at(&self, offset: u64, chunk: Bytes) -> Result<(), ApiError> {
        let (file, to, length) = (self.file.clone(), self.to.clone(), chunk.len() as u64);
        blocking(move || file.write_all_at(&chunk, offset).map_err(at("writing", &to))).await?;
        add(&mut self.there.lock().expect("nobody panics here"), offset..offset + length);
        self.came.fetch_add(length, Ordering::Relaxed);
        Ok(())
    }
}

pub(super) async fn get(origin: &dyn Origin, path: &str, to: PathBuf) -> Result<Moved, ApiError> {
    let entry = origin.stat(path).await?;
    if entry.kind != EntryKind::File {
        return Err(ApiError::new(Code::Unsupported, path, format!("{path} is a directory at its origin; only files are transferred")));
    }
    let place = to.clone();
    let file =
        blocking(move || OpenOptions::new().create_new(true).read(true).write(true).open(&place).map_err(at("making", &place))).await?;
    let arriving = Arriving { file: Arc::new(file), to, there: Mutex::default(), came: AtomicU64::new(0) };
    fill(origin, &entry, &arriving).await?;
    let reported = origin.capabilities().reported_checksum(&entry);
    let expected = Expected { size_bytes: entry.size_bytes, token: None, blake3: None, sha256: None };
    let also = Also { sha256: true, ..also(origin, &reported, &expected) };
    let (file, place) = (arriving.file.clone(), arriving.to.clone());
    let digests = blocking(move || hashed(&file, &place, also)).await?;
    if digests.size_bytes != entry.size_bytes {
        let message = format!("{path} has {} bytes, {} came; it is fetched again", entry.size_bytes, digests.size_bytes);
        return Err(ApiError::new(Code::ShortRead, path, message));
    }
    let (verified, _) = verify_by_origin(origin, &entry, &reported, &digests, &Pace::default()).await?;
    Ok(Moved { size_bytes: digests.size_bytes, sha256: digests.sha256.expect("asked for"), verified })
}

async fn fill(origin: &dyn Origin, entry: &Entry, arriving: &Arriving) -> Result<(), ApiError> {
    let mut idle_tries = 0;
    loop {
        let missing = missing(&arriving.there.lock().expect("nobody panics here"), entry.size_bytes);
        if missing.is_empty() {
            return Ok(());
        }
        let before = arriving.came.load(Ordering::Relaxed);
        let stall = STALL + Duration::from_secs(entry.size_bytes / VERIFY_BYTES_PER_S_MIN);
        let outcome = tokio::select! {
            outcome = origin.fetch(entry, &missing, arriving) => outcome,
            () = stalled(&arriving.came, stall) => {
                let message = format!("no byte of {} came for {} s; look at the origin and its network", entry.path, stall.as_secs());
                Err(ApiError::new(Code::Timeout, &entry.path, message))
            }
        };
        let moved = arriving.came.load(Ordering::Relaxed) > before;
        idle_tries = if moved { 0 } else { idle_tries + 1 };
        match outcome {
            Err(error) if error.class != Class::Transient || idle_tries >= TRIES_WITHOUT_A_BYTE => return Err(error),
            Err(_) if !origin.capabilities().resumes(&entry.path) => arriving.there.lock().expect("nobody panics here").clear(),
            Ok(()) if !moved => {
                return Err(ApiError::new(Code::ShortRead, &entry.path, format!("not all of {} came; it is fetched again", entry.path)))
            }
            _ => {}
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn add(there: &mut Vec<Range<u64>>, came: Range<u64>) {
    let from = there.partition_point(|range| range.end < came.start);
    let to = there.partition_point(|range| range.start <= came.end);
    let start = there.get(from).filter(|_| from < to).map_or(came.start, |range| range.start.min(came.start));
    let end = there[from..to].last().map_or(came.end, |range| range.end.max(came.end));
    there.splice(from..to, std::iter::once(start..end));
}

fn missing(there: &[Range<u64>], size_bytes: u64) -> Vec<Range<u64>> {
    let ends = std::iter::once(0).chain(there.iter().map(|range| range.end));
    let starts = there.iter().map(|range| range.start).chain(std::iter::once(size_bytes));
    ends.zip(starts).filter(|(end, start)| end < start).map(|(end, start)| end..start).collect()
}

fn hashed(file: &File, place: &std::path::Path, also: Also) -> Result<Digests, ApiError> {
    let size_bytes = file.metadata().map_err(at("stat of", place))?.len();
    let mut hasher = Hasher::with(also);
    hasher.read_up_to(file, place, size_bytes)?;
    Ok(hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_in_any_order_is_known_exactly() {
        let mut there = Vec::new();
        assert_eq!(missing(&there, 10), vec![0..10]);
        for came in [4..6, 8..9, 0..2] {
            add(&mut there, came);
        }
        assert_eq!((there.clone(), missing(&there, 10)), (vec![0..2, 4..6, 8..9], vec![2..4, 6..8, 9..10]));
        add(&mut there, 2..4);
        assert_eq!(there, vec![0..6, 8..9]);
        add(&mut there, 5..10);
        assert_eq!((there.as_slice(), missing(&there, 10)), (std::slice::from_ref(&(0..10)), vec![]));
        assert_eq!(missing(&[], 0), Vec::<Range<u64>>::new());
    }
}
