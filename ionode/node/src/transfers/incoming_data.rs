//! Where fetched bytes go: a partial file, hashed behind the contiguous watermark while they arrive, with checkpoints to resume from.
//!
//! The one rule: what a checkpoint names is on disk and has the hash that it names.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{mpsc, Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use stager_core::error::{ApiError, Code};
use stager_core::record::{Partial, Record};
use stager_core::watermark::Watermark;
use stager_origins::{Pace, Sink};
use tokio::sync::watch;

use super::feed::misplaced;
use super::job::Job;
use crate::blocking::blocking;
use crate::context::NodeContext;
use crate::failure::at;
use crate::store::digest::Hasher;

/// How far hashing may lag: what waits is still in the page cache then, and memory stays bounded.
const LAG_BYTES_MAX: u64 = 64 << 20;
const CHECKPOINT_BYTES: u64 = 64 << 20;
const CHECKPOINT_EARLY_BYTES: u64 = 4 << 20;
const CHECKPOINT_EARLY_AFTER: Duration = Duration::from_secs(3);

pub struct IncomingData {
    file: Arc<File>,
    path: PathBuf,
    subject: String,
    size_bytes: u64,
    mark: Mutex<Watermark>,
    arrived: mpsc::Sender<u64>,
    hashed: watch::Receiver<u64>,
    job: Job,
    /// Who follows the file while it arrives.
    arrived_bytes: Arc<watch::Sender<u64>>,
}

/// The hashing side; ends when the incoming data is dropped.
pub struct Hashing(tokio::task::JoinHandle<Result<Hasher, ApiError>>);

impl Hashing {
    pub async fn finish(self) -> Result<Hasher, ApiError> {
        match self.0.await {
            Ok(outcome) => outcome,
            Err(error) => Err(ApiError::new(Code::IoError, "hashing", format!("hashing ended early ({error}); look at the node's log"))),
        }
    }
}

/// `partial.watermark_bytes` are in the file and in `hasher` already.
pub fn open(
    context: &Arc<NodeContext>,
    job: &Job,
    file: Arc<File>,
    partial: Partial,
    hasher: Hasher,
    arrived_bytes: Arc<watch::Sender<u64>>,
) -> (IncomingData, Hashing) {
    let start = partial.watermark_bytes;
    let (arrived, positions) = mpsc::channel();
    let (hashed_at, hashed) = watch::channel(start);
    let path = context.store.partial_path(&partial.key);
    job.progress.store(start, Ordering::Relaxed);
    let data = IncomingData {
        file: file.clone(),
        path: path.clone(),
        subject: partial.source.path.clone(),
        size_bytes: partial.size_bytes,
        mark: Mutex::new(Watermark::new(start, partial.size_bytes)),
        arrived,
        hashed,
        job: job.clone(),
        arrived_bytes,
    };
    let follower = Follower { context: context.clone(), file, path, partial, hasher, hashed_at, checkpoint_at: Instant::now() };
    let span = tracing::Span::current();
    (data, Hashing(tokio::task::spawn_blocking(move || span.in_scope(|| follower.run(&positions)))))
}

impl IncomingData {
    pub fn is_complete(&self) -> bool {
        self.mark.lock().expect("nobody panics here").is_complete()
    }

    fn note(&self, offset: u64, length: u64) -> Result<(), ApiError> {
        let mut mark = self.mark.lock().expect("nobody panics here");
        mark.arrive(offset, length).map_err(|_| misplaced(&self.subject, offset, length))?;
        self.job.progress.store(mark.arrived_bytes(), Ordering::Relaxed);
        self.job.arrived(length);
        self.arrived_bytes.send_if_modified(|arrived_bytes| std::mem::replace(arrived_bytes, mark.contiguous()) != mark.contiguous());
        // The follower is gone only after a fault that its own result tells.
        let _ = self.arrived.send(mark.contiguous());
        Ok(())
    }
}

#[async_trait]
impl Sink for IncomingData {
    async fn write_at(&self, offset: u64, chunk: Bytes) -> Result<(), ApiError> {
        let length = chunk.len() as u64;
        if offset.checked_add(length).is_none_or(|end| end > self.size_bytes) {
            return Err(misplaced(&self.subject, offset, length));
        }
        let mut hashed = self.hashed.clone();
        let contiguous = self.mark.lock().expect("nobody panics here").contiguous();
        let gone = hashed.wait_for(|hashed| contiguous.saturating_sub(*hashed) <= LAG_BYTES_MAX).await.is_err();
        if gone {
            return Err(ApiError::new(
                Code::IoError,
                &self.subject,
                format!("hashing of {} ended early; look at the node's log", self.subject),
            ));
        }
        let (file, path) = (self.file.clone(), self.path.clone());
        blocking(move || file.write_all_at(&chunk, offset).map_err(at("writing", &path))).await?;
        self.note(offset, length)
    }

    fn pace(&self) -> Pace {
        self.job.priority.clone().into()
    }
}

struct Follower {
    context: Arc<NodeContext>,
    file: Arc<File>,
    path: PathBuf,
    partial: Partial,
    hasher: Hasher,
    hashed_at: watch::Sender<u64>,
    checkpoint_at: Instant,
}

impl Follower {
    fn run(mut self, positions: &mpsc::Receiver<u64>) -> Result<Hasher, ApiError> {
        while let Ok(mut position) = positions.recv() {
            while let Ok(later) = positions.try_recv() {
                position = position.max(later);
            }
            // In steps, so that a checkpoint never covers much more than is due.
            while self.hasher.size_bytes() < position {
                let step = position.min(self.hasher.size_bytes() + LAG_BYTES_MAX / 4);
                self.hasher.read_up_to(&self.file, &self.path, step)?;
                self.hashed_at.send_replace(self.hasher.size_bytes());
                self.checkpoint_if_due()?;
            }
        }
        Ok(self.hasher)
    }

    fn checkpoint_if_due(&mut self) -> Result<(), ApiError> {
        let fresh = self.hasher.size_bytes() - self.partial.watermark_bytes;
        let early = fresh >= CHECKPOINT_EARLY_BYTES && self.checkpoint_at.elapsed() >= CHECKPOINT_EARLY_AFTER;
        if (fresh < CHECKPOINT_BYTES && !early) || self.hasher.size_bytes() == self.partial.size_bytes {
            return Ok(());
        }
        self.checkpoint_at = Instant::now();
        self.partial.watermark_bytes = self.hasher.size_bytes();
        self.partial.prefix_blake3 = self.hasher.blake3_so_far();
        self.context.store.durability.file(&self.file, &self.path)?;
        self.context.store.write_blocking(&[Record::Partial(self.partial.clone())])?;
        self.context.accounting().index.put_partial(self.partial.clone(), true);
        Ok(())
    }
}
