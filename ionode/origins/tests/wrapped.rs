//! What wraps an origin keeps every promise of what it wraps, and does its own work.

mod place;

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use place::DirectoryPlace;
use stager_core::error::{ApiError, Code};
use stager_origins::conformance::{self, content, get, local, upload, How};
use stager_origins::{
    open, Capabilities, Entry, FileConfig, Listing, Meter, Metered, Origin, OriginConfig, Probe, Retried, Retries, Sink, Upload, Uploaded,
};

const RETRIES: Retries =
    Retries { without_a_byte_max: 3, pause: Duration::from_millis(1), stall: Duration::from_secs(60), stall_bytes_per_s: 1 << 20 };

fn files(base: &Path) -> Arc<dyn Origin> {
    open(&OriginConfig::File(FileConfig { base_path: base.to_owned(), bandwidth_bytes_per_s_max: None })).unwrap()
}

#[derive(Default)]
struct Count {
    arrived: AtomicU64,
    sent: AtomicU64,
}

impl Meter for Count {
    fn arrived(&self, bytes: u64) {
        self.arrived.fetch_add(bytes, Ordering::Relaxed);
    }
    fn sent(&self, bytes: u64) {
        self.sent.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Count {
    /// Since it was asked last: (arrived, sent).
    fn taken(&self) -> (u64, u64) {
        (self.arrived.swap(0, Ordering::Relaxed), self.sent.swap(0, Ordering::Relaxed))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_of_them_together_keep_every_promise() {
    let base = tempfile::tempdir().unwrap();
    let wrapped = Metered::new(Arc::new(Retried::new(files(base.path()), RETRIES)), Arc::new(Count::default()));
    conformance::all(&DirectoryPlace::new(Arc::new(wrapped), base.path())).await;
}

#[tokio::test]
async fn each_byte_that_moves_is_counted_once() {
    let (base, count) = (tempfile::tempdir().unwrap(), Arc::new(Count::default()));
    let place = DirectoryPlace::new(Arc::new(Metered::new(files(base.path()), count.clone())), base.path());
    let size_bytes = 3 << 20;
    let file = local(&place, &content(1, size_bytes as usize));
    upload(&place, &file, "f", How::default()).await.unwrap();
    assert_eq!(count.taken(), (size_bytes, size_bytes), "it is sent, and read back");
    upload(&place, &file, "f", How::default()).await.unwrap();
    assert_eq!(count.taken(), (size_bytes, 0), "what is adopted is only read");
    get(&*place.origin, &place.origin.stat("f").await.unwrap()).await.unwrap();
    assert_eq!(count.taken(), (size_bytes, 0));
}

/// Breaks each fetch after so many writes, as long as it is to; what it gave until then has come.
struct Breaking {
    origin: Arc<dyn Origin>,
    /// None: it loses the rest and says that this was all.
    code: Option<Code>,
    breaks: AtomicUsize,
    writes_until: usize,
    fetches: AtomicUsize,
}

struct BreakingSink<'a> {
    sink: &'a dyn Sink,
    by: &'a Breaking,
    writes: AtomicUsize,
    breaks: bool,
}

#[async_trait]
impl Sink for BreakingSink<'_> {
    async fn write_at(&self, offset: u64, chunk: Bytes) -> Result<(), ApiError> {
        if self.breaks && self.writes.fetch_add(1, Ordering::Relaxed) >= self.by.writes_until {
            return self.by.code.map_or(Ok(()), |code| Err(ApiError::new(code, "f", "the line broke")));
        }
        self.sink.write_at(offset, chunk).await
    }
}

#[async_trait]
impl Origin for Breaking {
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
        self.fetches.fetch_add(1, Ordering::Relaxed);
        let breaks = self.breaks.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
        let sink = BreakingSink { sink, by: self, writes: AtomicUsize::new(0), breaks };
        self.origin.fetch(expected, ranges, &sink).await
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

/// What a fetch of 20 MiB came to, and how often it was tried.
async fn fetched(code: impl Into<Option<Code>>, breaks: usize, writes_until: usize) -> (Result<(), String>, usize) {
    let base = tempfile::tempdir().unwrap();
    let bytes = content(2, 20 << 20);
    std::fs::write(base.path().join("f"), &bytes).unwrap();
    let (breaks, fetches) = (AtomicUsize::new(breaks), AtomicUsize::new(0));
    let breaking = Arc::new(Breaking { origin: files(base.path()), code: code.into(), breaks, writes_until, fetches });
    let origin = Retried::new(breaking.clone(), RETRIES);
    let entry = origin.stat("f").await.unwrap();
    // It refuses a byte that comes twice.
    let outcome = get(&origin, &entry).await.map(|came| assert!(came == bytes)).map_err(|error| error.code.to_string());
    (outcome, breaking.fetches.load(Ordering::Relaxed))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fetch_goes_on_where_its_line_broke_and_gives_no_byte_twice() {
    assert_eq!(fetched(Code::ConnectionLost, 4, 1).await, (Ok(()), 5));
    assert_eq!(fetched(Code::ConnectionLost, 2, 0).await, (Ok(()), 3));
    assert_eq!(fetched(Code::ConnectionLost, 9, 0).await, (Err("connection_lost".to_owned()), 3), "no byte came of three tries");
    assert_eq!(fetched(Code::SourceChanged, 1, 1).await, (Err("source_changed".to_owned()), 1), "no try can mend that");
    assert_eq!(fetched(None, 1, 1).await, (Ok(()), 2), "the rest is fetched");
    assert_eq!(fetched(None, 9, 0).await, (Err("short_read".to_owned()), 1), "an origin that gives nothing has nothing to give");
}

#[tokio::test]
async fn a_fetch_that_does_not_break_does_not_pause() {
    let base = tempfile::tempdir().unwrap();
    std::fs::write(base.path().join("f"), b"all of it").unwrap();
    let origin = Retried::new(files(base.path()), Retries { pause: Duration::from_secs(3600), ..RETRIES });
    let entry = origin.stat("f").await.unwrap();
    let fetched = tokio::time::timeout(Duration::from_secs(60), get(&origin, &entry)).await;
    assert_eq!(fetched.expect("it paused").unwrap(), b"all of it");
}
