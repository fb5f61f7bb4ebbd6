//! Reading back what an upload writes, while the rest of it is on its way. Knows open files.
//!
//! The one rule: a byte is asked for when the server has confirmed the writes of it and of all before it, and through another handle than it
//! was written by.
//!
//! A line carries as much each way at once: what is read back after the last byte takes as long again.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Mutex;

use futures::stream::BoxStream;
use futures::{stream, StreamExt};
use tokio::sync::watch;

use super::opened::Opened;
use super::read::hash_of;
use super::site::Site;
use crate::Pace;

/// Of one file that is being written.
pub struct ReadBack {
    /// By where they begin: how long those are that were written and have a gap before them.
    apart: Mutex<BTreeMap<u64, u64>>,
    written: watch::Sender<u64>,
    has_begun: AtomicBool,
    bytes_read: AtomicU64,
}

impl ReadBack {
    pub fn new() -> Self {
        Self { apart: Mutex::default(), written: watch::Sender::new(0), has_begun: AtomicBool::new(false), bytes_read: AtomicU64::new(0) }
    }

    /// The server has confirmed this piece.
    pub fn piece_written(&self, offset: u64, length: u64) {
        let mut apart = self.apart.lock().expect("no holder panics");
        apart.insert(offset, length);
        self.written.send_if_modified(|end| {
            let before = *end;
            while let Some(length) = apart.remove(end) {
                *end += length;
            }
            *end > before
        });
    }

    /// All of it, behind the writes. None: the server does not let it be read meanwhile.
    pub async fn hash(&self, site: &Site, opened: &Opened, path: &str, size_bytes: u64, pace: &Pace) -> Option<blake3::Hash> {
        self.has_begun.store(true, Ordering::Relaxed);
        let came = |bytes: u64| {
            self.bytes_read.fetch_add(bytes, Ordering::Relaxed);
        };
        hash_of(site, opened, path, size_bytes, pace, self.starts(opened.link.read_bytes, size_bytes), came).await.ok()
    }

    pub fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::Relaxed)
    }

    /// As far as it has come.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }

    /// Where each piece begins, when it may be read.
    fn starts(&self, step_bytes: u64, size_bytes: u64) -> BoxStream<'_, u64> {
        let step = move |(start, mut written): (u64, watch::Receiver<u64>)| async move {
            if start == size_bytes {
                return None;
            }
            let end = (start + step_bytes).min(size_bytes);
            written.wait_for(|until| *until >= end).await.ok()?;
            Some((start, (end, written)))
        };
        stream::unfold((0, self.written.subscribe()), step).boxed()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn a_piece_is_asked_for_when_all_up_to_its_end_is_written() {
        let back = ReadBack::new();
        let mut starts = back.starts(10, 25);
        let mut next = || starts.next().now_or_never();
        assert_eq!(next(), None);
        back.piece_written(8, 8);
        assert_eq!(next(), None, "there is a gap before it");
        back.piece_written(0, 8);
        assert_eq!((next(), next()), (Some(Some(0)), None), "the second piece ends at 20");
        back.piece_written(16, 9);
        assert_eq!((next(), next(), next()), (Some(Some(10)), Some(Some(20)), Some(None)));
    }
}
