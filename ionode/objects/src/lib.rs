//! Buckets and objects by name: small contents in the store's log, large ones in files that the log names. Knows no HTTP, no signatures.
//!
//! The one rule: a record in the log makes an object; what was written before it is garbage until then, what it replaced is garbage after.

mod buckets;
mod digest;
mod file;
mod ids;
mod incoming;
mod leases;
mod list;
mod meta;
mod names;
mod put;
mod read;
mod share;
mod sweep;
mod tables;
mod tags;
mod uploads;
mod verify;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use stager_core::error::{ApiError, Code};
use stager_store::Log;
use tokio::sync::RwLock;

pub use buckets::Bucket;
pub use digest::{Algorithm, Digests, Hasher};
pub use file::BLOCK_BYTES;
pub use ids::UploadId;
pub use incoming::{Content, Incoming};
pub use list::{Listing, Uploading};
pub use meta::{Attributes, Checksum, Described, ETag, Object, Tags};
pub use names::{BucketName, Name, Owner};
pub use put::Condition;
pub use read::{Found, Reader};
pub use sweep::Swept;
pub use uploads::{CompletedPart, Part, Upload, Whole, PART_NUMBER_MAX};
pub use verify::{quarantine, scan, Care, Damaged, Verdict};

/// An upload that nobody completed or aborted for so long is aborted.
pub const UPLOADS_EXPIRE_AFTER: Duration = Duration::from_secs(7 * 24 * 3600);
/// Contents of one block lie in the log: a file of their own costs them more, in syncs and in processor time, than they cost the log.
pub const INLINE_BYTES_MAX: u64 = BLOCK_BYTES;
pub const KEY_BYTES_MAX: usize = 1024;
const UPLOAD_LOCKS: usize = 64;

#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// What all objects, uploads and writes under way may take together.
    pub share_bytes: u64,
    pub fsync: bool,
    /// Contents up to this size lie in the log, larger ones in files of their own.
    pub inline_bytes_max: u64,
}

/// Counts since the start, for metrics.
#[derive(Debug, Default)]
pub struct Counters {
    pub objects_written: AtomicU64,
    pub written_bytes: AtomicU64,
    pub objects_read: AtomicU64,
    pub read_bytes: AtomicU64,
    pub objects_deleted: AtomicU64,
    pub objects_corrupt: AtomicU64,
    pub refused_full: AtomicU64,
}

/// Cheap to clone: all clones are the same objects.
#[derive(Clone)]
pub struct Objects {
    inner: Arc<Inner>,
}

struct Inner {
    log: Arc<Log>,
    directory: PathBuf,
    options: Options,
    share: Arc<share::Share>,
    leases: Arc<leases::Leases>,
    counters: Counters,
    /// Held shared while something is put into a bucket, alone while a bucket goes.
    buckets_lock: RwLock<()>,
    /// By upload: held shared while a part is put, alone while the upload ends.
    upload_locks: Vec<RwLock<()>>,
}

impl Objects {
    /// `root` is the store's directory, `log` its log. Files that no record names are removed in the background from here on.
    pub fn open(log: Arc<Log>, root: &Path, options: Options) -> Result<Self, ApiError> {
        let directory = root.join("objects");
        file::make_shard_directories(&directory, options.fsync)?;
        let share = share::Share::new(log.clone(), options.share_bytes);
        let inner = Inner {
            leases: leases::Leases::new(directory.clone()),
            log,
            directory,
            options,
            share,
            counters: Counters::default(),
            buckets_lock: RwLock::default(),
            upload_locks: (0..UPLOAD_LOCKS).map(|_| RwLock::default()).collect(),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    pub fn counters(&self) -> &Counters {
        &self.inner.counters
    }
    /// What counts against the share now, writes under way included.
    pub fn used_bytes(&self) -> u64 {
        self.inner.share.used_bytes()
    }
    pub fn share_bytes(&self) -> u64 {
        self.inner.options.share_bytes
    }
    /// How many there are, in all buckets.
    pub fn count(&self) -> u64 {
        self.log().totals(tables::OBJECTS).entries
    }

    fn log(&self) -> &Log {
        &self.inner.log
    }
    fn fsync(&self) -> bool {
        self.inner.options.fsync
    }
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

/// For work that must come to its end even if whoever asked for it is gone.
async fn to_the_end<T: Send + 'static>(
    work: impl std::future::Future<Output = Result<T, ApiError>> + Send + 'static,
) -> Result<T, ApiError> {
    tokio::spawn(work).await.map_err(broke_off)?
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, ApiError> + Send + 'static) -> Result<T, ApiError> {
    tokio::task::spawn_blocking(work).await.map_err(broke_off)?
}

fn broke_off(error: tokio::task::JoinError) -> ApiError {
    ApiError::new(Code::Internal, "objects", format!("the work on an object broke off ({error}); try it again"))
}
