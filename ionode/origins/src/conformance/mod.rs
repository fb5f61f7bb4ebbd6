//! What every origin must do, as code that any implementation's tests can run: `conformance::all(&place).await` panics at the first
//! promise not kept; `conformance::reads` is the half of it that an origin keeps which cannot be written.
//!
//! The one rule: the suite speaks to an origin through the port and looks at the far side through `Place`, so a lie of the origin cannot
//! hide itself.

mod capabilities;
mod content;
mod names;

pub use content::bandwidth_is_kept;
pub use names::denied_is_said;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use stager_core::error::ApiError;

use crate::{Entry, Made, Origin, Pace, Sink, Upload, Uploaded};

/// An origin under test, and the far side of it.
#[async_trait]
pub trait Place: Send + Sync {
    fn origin(&self) -> Arc<dyn Origin>;
    /// A local directory for what is uploaded.
    fn scratch(&self) -> &Path;
    /// Every name of a file at the far side, temporary ones included, relative to the base.
    fn raw_names(&self) -> Vec<String>;
    /// The mode bits at the far side, where there are any.
    fn mode(&self, path: &str) -> Option<u32>;
    /// Writes a file without the origin's knowing.
    async fn write_behind(&self, path: &str, content: &[u8]);
    /// The same at once, from within a progress call; false where that cannot be done.
    fn write_at_once(&self, path: &str, content: &[u8]) -> bool;
    /// Flips a byte in what is being written; false where that cannot be reached.
    fn corrupt_unfinished(&self) -> bool;
    /// A directory that the origin may not read or write; None where the tests may do everything.
    fn denied_directory(&self) -> Option<String>;
    /// The base as a directory of this host, where links and pipes can be made; None for object stores.
    fn far_directory(&self) -> Option<&Path>;
    /// Object stores have none.
    fn has_directories(&self) -> bool;
    fn allows_newlines(&self) -> bool;
    /// Of an origin that cannot be written, listed or tidied: what it is to read lies there already.
    fn is_read_only(&self) -> bool {
        false
    }
}

/// Runs the whole suite; each promise works in a directory of its own.
pub async fn all(place: &dyn Place) {
    capabilities::what_it_says_it_does_it_does(place).await;
    capabilities::what_it_reports_is_true(place).await;
    content::round_trips(place).await;
    content::what_is_there_comes_back(place).await;
    content::ranges_are_exact(place).await;
    content::nothing_is_clobbered(place).await;
    content::replacing_is_allowed_when_asked(place).await;
    content::what_is_replaced_is_read_only_until_it_differs(place).await;
    content::what_is_newer_stays(place).await;
    content::equal_content_is_adopted(place).await;
    content::a_late_rival_is_not_clobbered(place).await;
    content::what_was_written_is_read_back(place).await;
    content::damaged_local_content_is_refused(place).await;
    content::a_changed_source_is_noticed(place).await;
    content::a_source_changed_meanwhile_is_noticed(place).await;
    content::a_cancelled_upload_is_taken_over(place).await;
    content::many_uploads_at_once(place).await;
    content::one_content_goes_to_two_names_at_once(place).await;
    content::many_fetches_at_once(place).await;
    content::what_is_read_back_is_told(place).await;
    content::executables_stay_so(place).await;
    names::odd_names_are_only_names(place).await;
    names::paths_stay_inside(place).await;
    names::missing_files_are_named(place).await;
    names::many_stats_keep_their_order(place).await;
    names::lists_are_sorted_and_limited(place).await;
    names::what_is_left_out_is_said(place).await;
    names::the_base_itself_is_named(place).await;
    names::erasing_minds_the_token(place).await;
    names::probing_leaves_nothing(place).await;
    names::directories_are_no_files(place).await;
    names::denied_is_said(place).await;
    nothing_but_finals(place);
}

/// What is promised of an origin that can only be read.
pub async fn reads(place: &dyn Place) {
    capabilities::what_it_says_it_does_it_does(place).await;
    capabilities::what_it_reports_is_true(place).await;
    content::what_is_there_comes_back(place).await;
    content::ranges_are_exact(place).await;
    content::a_changed_source_is_noticed(place).await;
    content::a_source_changed_meanwhile_is_noticed(place).await;
    content::many_fetches_at_once(place).await;
    names::odd_names_are_only_names(place).await;
    names::paths_stay_inside(place).await;
    names::missing_files_are_named(place).await;
    names::many_stats_keep_their_order(place).await;
    names::denied_is_said(place).await;
    names::only_reading_is_said(place).await;
    nothing_but_finals(place);
}

fn nothing_but_finals(place: &dyn Place) {
    let left: Vec<String> = place.raw_names().into_iter().filter(|name| name.contains(".stager-")).collect();
    assert!(left.is_empty(), "temporary names are left behind: {left:?}");
}

/// Bytes that differ from file to file and repeat nowhere near.
pub fn content(seed: u64, size_bytes: usize) -> Vec<u8> {
    let mut bytes = vec![0; size_bytes];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}

/// A local file with what must be known of it to upload it.
pub struct Local {
    pub path: PathBuf,
    pub size_bytes: u64,
    pub blake3: [u8; 32],
    pub crc64nvme: u64,
}

static SERIAL: AtomicU64 = AtomicU64::new(0);

pub fn local(place: &dyn Place, content: &[u8]) -> Local {
    let path = place.scratch().join(format!("local-{}", SERIAL.fetch_add(1, Ordering::Relaxed)));
    std::fs::write(&path, content).expect("the scratch directory is writable");
    let crc64nvme = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, content);
    Local { path, size_bytes: content.len() as u64, blake3: *blake3::hash(content).as_bytes(), crc64nvme }
}

pub fn transfer_id() -> String {
    format!("t{}", SERIAL.fetch_add(1, Ordering::Relaxed))
}

#[derive(Clone, Copy, Default)]
pub struct How {
    pub replace: bool,
    /// Seconds ago.
    pub made: Option<u64>,
    pub executable: bool,
}

pub async fn upload(place: &dyn Place, local: &Local, path: &str, how: How) -> Result<Uploaded, ApiError> {
    upload_as(&*place.origin(), local, path, how, &transfer_id(), &|_| {}).await
}

pub async fn upload_as(
    origin: &dyn Origin,
    local: &Local,
    path: &str,
    how: How,
    transfer_id: &str,
    progress: &(dyn Fn(u64) + Send + Sync),
) -> Result<Uploaded, ApiError> {
    upload_at(origin, local, path, how, transfer_id, Pace::default(), progress).await
}

async fn upload_at(
    origin: &dyn Origin,
    local: &Local,
    path: &str,
    how: How,
    transfer_id: &str,
    pace: Pace,
    progress: &(dyn Fn(u64) + Send + Sync),
) -> Result<Uploaded, ApiError> {
    let upload = Upload {
        local: &local.path,
        path,
        size_bytes: local.size_bytes,
        blake3: local.blake3,
        crc64nvme: local.crc64nvme,
        replace: how.replace,
        made: how.made.map(|ago_s| Made { ago: Duration::from_secs(ago_s), told: Instant::now() }),
        executable: how.executable,
        transfer_id,
        pace,
        progress,
    };
    origin.upload(upload).await
}

pub async fn put(place: &dyn Place, path: &str, content: &[u8]) -> Uploaded {
    upload(place, &local(place, content), path, How::default()).await.unwrap_or_else(|error| panic!("{path:?} cannot be put: {error:?}"))
}

/// A file to be read: uploaded where that can be done, else put there by another way.
async fn there(place: &dyn Place, path: &str, content: &[u8]) {
    if place.is_read_only() {
        place.write_behind(path, content).await;
    } else {
        put(place, path, content).await;
    }
}

/// Collects a file in memory and refuses a byte that comes twice.
pub struct Memory {
    bytes: Mutex<Vec<u8>>,
    seen: Mutex<Vec<bool>>,
}

impl Memory {
    pub fn new(size_bytes: u64) -> Self {
        Self { bytes: Mutex::new(vec![0; size_bytes as usize]), seen: Mutex::new(vec![false; size_bytes as usize]) }
    }

    /// The bytes of a range that was written in full.
    pub fn range(&self, range: std::ops::Range<u64>) -> Vec<u8> {
        let (start, end) = (range.start as usize, range.end as usize);
        assert!(self.seen.lock().unwrap()[start..end].iter().all(|seen| *seen), "bytes of {start}..{end} never came");
        self.bytes.lock().unwrap()[start..end].to_vec()
    }

    pub fn count(&self) -> usize {
        self.seen.lock().unwrap().iter().filter(|seen| **seen).count()
    }
}

#[async_trait]
impl Sink for Memory {
    async fn write_at(&self, offset: u64, chunk: Bytes) -> Result<(), ApiError> {
        let start = offset as usize;
        let mut seen = self.seen.lock().unwrap();
        assert!(seen[start..start + chunk.len()].iter().all(|seen| !seen), "a byte came twice at {start}");
        seen[start..start + chunk.len()].fill(true);
        self.bytes.lock().unwrap()[start..start + chunk.len()].copy_from_slice(&chunk);
        Ok(())
    }
}

pub async fn get(origin: &dyn Origin, entry: &Entry) -> Result<Vec<u8>, ApiError> {
    let whole = 0..entry.size_bytes;
    let memory = Memory::new(entry.size_bytes);
    origin.fetch(entry, std::slice::from_ref(&whole), &memory).await?;
    Ok(memory.range(whole))
}

fn code<T: std::fmt::Debug>(result: Result<T, ApiError>) -> String {
    match result {
        Ok(value) => format!("no error but {value:?}"),
        Err(error) => error.code.to_string(),
    }
}
