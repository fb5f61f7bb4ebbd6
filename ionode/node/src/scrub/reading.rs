//! Reading a file slowly: at a rate, in small steps, with the page cache left as it was. Knows files, not replicas.
//!
//! The one rule: whoever waits for the disk goes first.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stager_core::error::{ApiError, Code};
use stager_core::replica::ReplicaKey;
use stager_objects::Care;
use tokio::runtime::Handle;

use super::{cache, Manner};
use crate::failure::disk;
use crate::store::digest::{Digests, Hasher};
use crate::transfers::Transfers;

const STEP_BYTES_MAX: u64 = 1 << 20;
const STEP_BYTES_MIN: u64 = 64 << 10;
/// A small file costs the disk more than its bytes.
const FILE_COSTS_BYTES: u64 = 64 << 10;
/// While transfers run, this much slower.
const BUSY_FACTOR: u64 = 4;
/// What the medium or the file system says of itself, not this process's limits.
const FAULTS_OF_DISK: [i32; 3] = [libc::EIO, libc::EBADMSG, libc::EUCLEAN];

pub struct Reading {
    transfers: Arc<Transfers>,
    runtime: Handle,
    manner: Manner,
    /// When all that was read so far is paid for.
    paid_until: Instant,
    buffer: Vec<u8>,
    /// Whose content it is; `None`: an object's.
    key: Option<ReplicaKey>,
    /// Pages of the block that is read now that were in the cache before.
    resident: Vec<bool>,
    disk_failed: bool,
    read_files: bool,
}

impl Reading {
    pub fn new(transfers: Arc<Transfers>, runtime: Handle, manner: Manner) -> Self {
        // Eight steps a second, so that a slow rate is not one long read and a long pause.
        let step_bytes = (manner.bytes_per_s / 8).clamp(STEP_BYTES_MIN, STEP_BYTES_MAX) / cache::PAGE_BYTES * cache::PAGE_BYTES;
        let (buffer, paid_until) = (vec![0; step_bytes as usize], Instant::now());
        Self { transfers, runtime, manner, paid_until, buffer, key: None, resident: Vec::new(), disk_failed: false, read_files: false }
    }

    pub fn begin(&mut self, key: Option<&ReplicaKey>) {
        self.key = key.cloned();
        (self.disk_failed, self.read_files) = (false, false);
    }

    /// Content that came without a file (it lies in the log) is paid for afterwards: it is small.
    pub fn settle(&mut self, size_bytes: u64) -> Result<(), ApiError> {
        if self.read_files {
            return Ok(());
        }
        crate::metrics::counts().scrub_read.inc_by(size_bytes);
        self.pay(size_bytes.max(FILE_COSTS_BYTES))
    }

    pub fn disk_failed(&self) -> bool {
        self.disk_failed
    }

    pub fn digests(&mut self, file: &File, path: &Path) -> Result<Digests, ApiError> {
        self.read_files = true;
        cache::no_read_ahead(file);
        self.pay(FILE_COSTS_BYTES)?;
        let mut hasher = Hasher::new(false);
        loop {
            let offset = hasher.size_bytes();
            let resident = cache::resident(file, offset, self.buffer.len());
            let read = match file.read_at(&mut self.buffer, offset) {
                Ok(0) => return Ok(hasher.finish()),
                Ok(read) => read,
                Err(error) => {
                    self.disk_failed = error.raw_os_error().is_some_and(|errno| FAULTS_OF_DISK.contains(&errno));
                    return Err(disk("reading", path, &error));
                }
            };
            hasher.update(&self.buffer[..read]);
            cache::let_go(file, offset, read, &resident);
            crate::metrics::counts().scrub_read.inc_by(read as u64);
            self.pay((read as u64).saturating_sub(if offset == 0 { FILE_COSTS_BYTES } else { 0 }))?;
        }
    }

    /// Waits until these bytes fit the rate. An error: nobody wants to know any more.
    fn pay(&mut self, bytes: u64) -> Result<(), ApiError> {
        let factor = if self.transfers.any_runs() { BUSY_FACTOR } else { 1 };
        let cost = Duration::from_secs_f64((bytes * factor) as f64 / self.manner.bytes_per_s as f64);
        self.paid_until = self.paid_until.max(Instant::now()) + cost;
        let wait = self.paid_until.saturating_duration_since(Instant::now());
        let ended = self.runtime.block_on(async { tokio::time::timeout(wait, self.transfers.context.shutdown.cancelled()).await }).is_ok();
        let unwanted = self.key.as_ref().is_some_and(|key| self.transfers.context.accounting().index.readable(key).is_err());
        if ended || unwanted {
            let subject = self.key.as_ref().map_or("objects", |key| &key.file_id);
            return Err(ApiError::new(Code::Cancelled, subject, format!("{subject} need not be verified any more")));
        }
        Ok(())
    }
}

impl Care for Reading {
    fn before(&mut self, file: Option<&File>, offset: u64, length: usize) -> Result<(), ApiError> {
        if let Some(file) = file {
            cache::no_read_ahead(file);
            self.resident = cache::resident(file, offset, length);
        }
        crate::metrics::counts().scrub_read.inc_by(length as u64);
        self.pay((length as u64).max(if offset == 0 { FILE_COSTS_BYTES } else { 0 }))
    }

    fn after(&mut self, file: &File, offset: u64, length: usize) {
        cache::let_go(file, offset, length, &self.resident);
    }
}

/// This thread gets the disk when nobody else wants it, and less of the processors.
pub fn be_humble() {
    const WHO_PROCESS: libc::c_int = 1;
    const CLASS_IDLE: libc::c_int = 3 << 13;
    const NICE: libc::c_int = 10;
    // SAFETY: both take numbers only; 0 is this thread, for Linux also where it says process.
    let (slow, nice) =
        unsafe { (libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, CLASS_IDLE), libc::setpriority(libc::PRIO_PROCESS, 0, NICE)) };
    if slow != 0 || nice != 0 {
        tracing::info!("the scrubber runs at the node's own priority: the system does not let it go lower");
    }
}
