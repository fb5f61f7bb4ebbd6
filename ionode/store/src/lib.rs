//! The store's log: keys with a little metadata and, where they are small, their values, in an append-only log of segments with an index.
//! Knows tables and keys, not what they mean; large values lie elsewhere, named by the metadata.
//!
//! The one rule: the log is the only truth. What was acknowledged is in it, on disk; all else (index, sums) can be built from it.

pub mod at_hand;
pub mod bench;
pub mod failure;
pub mod format;
pub mod fsck;
mod index;
mod list;
mod reclaim;
mod recovery;
mod segments;
mod writer;
mod writer_lease;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use stager_core::error::{ApiError, Code};
use tokio::sync::oneshot;

pub use index::{Stat, Totals};
pub use list::{Listed, Page};
pub use recovery::{Broken, Recovered};

use at_hand::Buffer;
use index::{Applied, Index, IndexCounters};
use segments::{Segment, Segments};
use writer::{Answer, Message, Submission, Writer};
use writer_lease::WriterLeases;

/// When an acknowledged write is on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// Before it is acknowledged: neither a killed process nor a power cut loses any.
    Always,
    /// At most so much later: a power cut loses what was acknowledged since; a killed process nothing.
    Within(Duration),
    /// When the system likes: a power cut may lose any amount; a killed process nothing.
    Never,
}

#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub sync: Sync,
    pub segment_bytes: u64,
    pub index_cache_bytes: u64,
    /// Whether garbage is collected in the background; tests call `reclaim` themselves.
    pub reclaim: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { sync: Sync::Always, segment_bytes: 256 << 20, index_cache_bytes: 64 << 20, reclaim: true }
    }
}

/// What must be true of the key for an operation to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    Any,
    Absent,
    Present,
    /// Exactly this state of it.
    Version(u64),
}

#[derive(Clone, Debug)]
pub enum Op {
    Put {
        table: u8,
        key: Vec<u8>,
        meta: Vec<u8>,
        value: Bytes,
        weight_bytes: u64,
        when: When,
    },
    Delete {
        table: u8,
        key: Vec<u8>,
        when: When,
    },
    /// Its value is not what was put: reads are refused until it is put again or deleted.
    Quarantine {
        table: u8,
        key: Vec<u8>,
        when: When,
    },
}

/// How an operation went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    Put {
        version: u64,
        before: Option<Stat>,
    },
    Deleted {
        before: Option<Stat>,
    },
    Quarantined,
    /// The condition does not hold; nothing was changed.
    NotMet {
        found: Option<Stat>,
    },
    /// The table would be larger than its limit; nothing was changed.
    NoSpace {
        free_bytes: u64,
    },
}

impl Done {
    pub fn is_done(&self) -> bool {
        !matches!(self, Self::NotMet { .. } | Self::NoSpace { .. })
    }
}

/// How the log does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    Ready,
    /// The last write found the disk full; the next one tries again.
    Full,
    /// Nothing can be written until the disk is back; it is tried again every second.
    Failing(String),
}

/// Counts since the start, for metrics and benchmarks.
#[derive(Debug, Default)]
pub struct Counters {
    pub frames: AtomicU64,
    pub entries: AtomicU64,
    pub log_bytes: AtomicU64,
    pub syncs: AtomicU64,
    pub sync_ns: AtomicU64,
    pub moved_bytes: AtomicU64,
    pub segments_dropped: AtomicU64,
}

struct Shared {
    directory: PathBuf,
    options: Options,
    segments: Segments,
    /// `None` while it cannot be opened.
    index: RwLock<Option<Arc<Index>>>,
    /// The one that was given up: while somebody reads it, no other can be opened.
    index_before: Mutex<Weak<Index>>,
    index_counters: Mutex<IndexCounters>,
    limits: Mutex<[Option<u64>; 256]>,
    health: Mutex<Health>,
    counters: Counters,
    salt: u64,
}

impl Shared {
    fn index(&self) -> Result<Arc<Index>, ApiError> {
        self.index
            .read()
            .expect("nobody panics here")
            .clone()
            .ok_or_else(|| ApiError::new(Code::IoError, "index", "the index is being built anew; ask again in a few seconds"))
    }

    fn give_up_index(&self) {
        if let Some(index) = self.index.write().expect("nobody panics here").take() {
            *self.index_before.lock().expect("nobody panics here") = Arc::downgrade(&index);
        }
    }

    fn set_health(&self, health: Health) {
        let mut now = self.health.lock().expect("nobody panics here");
        if *now != health {
            tracing::warn!(before = ?now, now = ?health, "the state of the log changed");
            *now = health;
        }
    }
}

/// Not `Clone`: the last holder's drop ends the writer, synced.
pub struct Log {
    shared: Arc<Shared>,
    leases: Arc<WriterLeases>,
    threads: Vec<std::thread::JoinHandle<()>>,
    stopping: Arc<reclaim::Stopping>,
}

impl Log {
    /// Opens what lies in `directory` (made if need be), or says what is wrong with it. One process at a time: the caller holds a lock.
    pub fn open(directory: &Path, options: Options) -> Result<(Self, Recovered), ApiError> {
        Self::open_knowing(directory, options, None)
    }

    fn open_knowing(directory: &Path, options: Options, acknowledged: Option<Applied>) -> Result<(Self, Recovered), ApiError> {
        let (shared, position, recovered) = recovery::open(directory, options, acknowledged)?;
        let shared = Arc::new(shared);
        let (leases, thread) = writer_lease::start(Writer::new(shared.clone(), position))?;
        let mut threads = vec![thread];
        let stopping = Arc::new(reclaim::Stopping::default());
        if options.reclaim {
            threads.push(reclaim::start(shared.clone(), leases.clone(), stopping.clone())?);
        }
        Ok((Self { shared, leases, threads, stopping }, recovered))
    }

    /// The store's own random number: made with its first segment, and the same for as long as the store lives.
    pub fn salt(&self) -> u64 {
        self.shared.salt
    }

    /// All in one frame; each operation is done or not by its own condition. Returns when they are acknowledged as `Options::sync` says.
    pub async fn write(&self, ops: Vec<Op>) -> Result<Vec<Done>, ApiError> {
        self.submit(ops, false, Vec::new())?.await.map_err(|_| writer::gone())?
    }

    /// As `write`, but all operations are done or none: nothing is if one condition does not hold.
    pub async fn write_all(&self, ops: Vec<Op>) -> Result<Vec<Done>, ApiError> {
        self.write_all_after(Vec::new(), ops).await
    }

    /// As `write_all`, after these directories, in which files that the operations name were made, were synced.
    pub async fn write_all_after(&self, directories: Vec<PathBuf>, ops: Vec<Op>) -> Result<Vec<Done>, ApiError> {
        self.submit(ops, true, directories)?.await.map_err(|_| writer::gone())?
    }

    /// As `write_all`, from a thread that may wait.
    pub fn write_all_blocking(&self, ops: Vec<Op>) -> Result<Vec<Done>, ApiError> {
        self.submit(ops, true, Vec::new())?.blocking_recv().map_err(|_| writer::gone())?
    }

    fn submit(&self, ops: Vec<Op>, whole: bool, directories: Vec<PathBuf>) -> Result<oneshot::Receiver<Answer>, ApiError> {
        writer::check(&ops)?;
        let (answer, answered) = oneshot::channel();
        self.leases.write(Submission { ops, whole, directories, answer })?;
        Ok(answered)
    }

    pub fn stat(&self, table: u8, key: &[u8]) -> Result<Option<Stat>, ApiError> {
        self.shared.index()?.get(table, key)
    }

    /// The value with its state, its checksum compared; `Corrupt` where it differs or was found wrong before.
    pub fn get(&self, table: u8, key: &[u8]) -> Result<Option<(Stat, Bytes)>, ApiError> {
        self.get_by(table, key, Segment::read_value)
    }

    /// As `get`, but `None` too where the value would have to come from the disk. The index is asked either way: mostly it lies in memory.
    pub fn get_at_hand(&self, table: u8, key: &[u8]) -> Result<Option<(Stat, Bytes)>, ApiError> {
        self.get_by(table, key, Segment::read_at_hand)
    }

    fn get_by(
        &self,
        table: u8,
        key: &[u8],
        read: impl Fn(&Segment, u64, usize) -> Result<Option<Buffer>, ApiError>,
    ) -> Result<Option<(Stat, Bytes)>, ApiError> {
        // A segment may be collected between the look at the index and the reading: its values have moved then.
        for _ in 0..100 {
            let Some(stat) = self.stat(table, key)? else { return Ok(None) };
            let Some(segment) = self.shared.segments.get(stat.segment) else { continue };
            let subject = || String::from_utf8_lossy(key).into_owned();
            if stat.quarantined {
                let message = format!("{} is quarantined; put it again or delete it", subject());
                return Err(ApiError::new(Code::ChecksumMismatch, subject(), message));
            }
            let Some(value) = read(&segment, stat.offset, stat.value_bytes as usize)? else { return Ok(None) };
            if crc_fast::crc64_nvme(&value) != stat.value_crc {
                let message = format!("{} is damaged on the node's disk ({}); it was not given out", subject(), segment.path.display());
                return Err(ApiError::new(Code::ChecksumMismatch, subject(), message));
            }
            return Ok(Some((stat, value.freeze())));
        }
        Err(ApiError::new(Code::IoError, String::from_utf8_lossy(key), "the segment of this key is never found; look at the node's log"))
    }

    /// From `start` on, with it, in the order of the keys' bytes.
    pub fn scan(&self, table: u8, start: &[u8]) -> Result<impl Iterator<Item = Result<(Vec<u8>, Stat), ApiError>>, ApiError> {
        Ok(self.shared.index()?.scan(table, start))
    }

    /// One page of the keys that begin with `prefix`, those that share a part up to `delimiter` as one.
    pub fn list(&self, table: u8, prefix: &[u8], delimiter: Option<&[u8]>, after: &[u8], limit: usize) -> Result<Page, ApiError> {
        list::page(&*self.shared.index()?, table, prefix, delimiter, after, limit)
    }

    pub fn totals(&self, table: u8) -> Totals {
        self.shared.index_counters.lock().expect("nobody panics here").totals.get(&table).copied().unwrap_or_default()
    }

    /// The weights of a table's keys together stay below it; `None`: no limit.
    pub fn set_limit(&self, table: u8, weight_bytes_max: Option<u64>) {
        self.shared.limits.lock().expect("nobody panics here")[usize::from(table)] = weight_bytes_max;
    }

    pub fn health(&self) -> Health {
        self.shared.health.lock().expect("nobody panics here").clone()
    }
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// Of the segments and of the index.
    pub fn disk_bytes(&self) -> (u64, u64) {
        let index = self.shared.index().map(|index| index.disk_bytes()).unwrap_or(0);
        (self.shared.segments.disk_bytes(), index)
    }

    /// Bytes of the segments that hold something, newest states and marks.
    pub fn live_bytes(&self) -> u64 {
        self.shared.index_counters.lock().expect("nobody panics here").uses.values().map(|used| used.live_bytes + used.mark_bytes).sum()
    }

    /// One round of collecting garbage now; the number of segments it gave back.
    pub fn reclaim(&self) -> Result<usize, ApiError> {
        let before = self.shared.counters.segments_dropped.load(Ordering::Relaxed);
        reclaim::round(&self.shared, &self.leases, &self.stopping)?;
        Ok((self.shared.counters.segments_dropped.load(Ordering::Relaxed) - before) as usize)
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.stopping.stop();
        // The writer may be gone after a panic; its thread's end tells that.
        let _ = self.leases.send(Message::Stop);
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the log ended by a panic");
            }
        }
        recovery::close(&self.shared);
    }
}
