//! Content on its way in: space granted, bytes hashed and stored as they come, whole or not at all. Where it would not fit it is refused at
//! once; where others were faster meanwhile, when the space is gone.
//!
//! The one rule: until a record names it, content that is dropped leaves nothing behind, on the disk or in the accounting.

use bytes::Bytes;
use stager_core::error::{ApiError, Code};
use stager_store::at_hand::Buffer;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::digest::{Algorithm, Digests, Hasher};
use crate::file::{ahead_of, NewFile, Writer, BLOCK_BYTES};
use crate::meta::{self, FilePart, Stored};
use crate::share::{Grant, UnderWay};
use crate::{blocking, broke_off, Name, Objects};

/// How many batches of about a block may wait for the disk.
const BATCHES_WAITING_MAX: usize = 3;
/// Granted for what a client says of its object, before that is known.
const META_BYTES: u64 = 4 << 10;

enum Sink {
    Inline { buffer: Buffer, hasher: Box<Hasher> },
    File { batch: Vec<Bytes>, batch_bytes: u64, sender: mpsc::Sender<Vec<Bytes>>, worker: JoinHandle<Result<(Digests, NewFile), ApiError>> },
}

pub struct Incoming {
    subject: String,
    size_bytes: u64,
    came_bytes: u64,
    granted_bytes: u64,
    sink: Sink,
    grant: Grant,
    _under_way: UnderWay,
}

/// Whole, hashed and, where it is a file, on disk; not an object yet.
pub struct Content {
    pub size_bytes: u64,
    pub digests: Digests,
    pub(crate) held: Held,
    _grant: Grant,
}

pub(crate) enum Held {
    Inline(Bytes),
    File(NewFile),
}

impl Content {
    pub(crate) fn new(size_bytes: u64, digests: Digests, held: Held, grant: Grant) -> Self {
        Self { size_bytes, digests, held, _grant: grant }
    }

    pub(crate) fn stored(&self) -> Stored {
        match &self.held {
            Held::Inline(_) => Stored::Inline,
            Held::File(new) => Stored::Files(vec![new.part.clone()]),
        }
    }

    pub(crate) fn inline(&self) -> Bytes {
        match &self.held {
            Held::Inline(bytes) => bytes.clone(),
            Held::File(_) => Bytes::new(),
        }
    }

    pub(crate) fn file(&self) -> Option<&FilePart> {
        match &self.held {
            Held::Inline(_) => None,
            Held::File(new) => Some(&new.part),
        }
    }

    /// A record names its file, or may.
    pub(crate) fn keep(self) {
        if let Held::File(new) = self.held {
            new.keep();
        }
    }
}

impl Objects {
    /// Makes ready for exactly `size_bytes` of content; refused when they are more than the share has left.
    pub async fn receive(&self, name: &Name, size_bytes: u64, named: Option<Algorithm>) -> Result<Incoming, ApiError> {
        self.receive_as(name, size_bytes, named, size_bytes <= self.inner.options.inline_bytes_max).await
    }

    pub(crate) async fn receive_as(
        &self,
        name: &Name,
        size_bytes: u64,
        named: Option<Algorithm>,
        inline: bool,
    ) -> Result<Incoming, ApiError> {
        let subject = name.to_string();
        let under_way = self.inner.share.begin(name.bucket.owner())?;
        let granted_bytes = ahead_of(0, size_bytes);
        self.check_space(&subject, size_bytes)?;
        let grant = self.grant(&subject, granted_bytes)?;
        let hasher = Hasher::new(named);
        let sink = if inline {
            Sink::Inline { buffer: Buffer::new(size_bytes as usize), hasher: Box::new(hasher) }
        } else {
            let directory = self.inner.directory.clone();
            let writer = blocking(move || Writer::create(&directory, size_bytes)).await?;
            let (sender, receiver) = mpsc::channel(BATCHES_WAITING_MAX);
            let fsync = self.fsync();
            let worker = tokio::task::spawn_blocking(move || take_in(writer, hasher, receiver, size_bytes, fsync));
            Sink::File { batch: Vec::new(), batch_bytes: 0, sender, worker }
        };
        Ok(Incoming { subject, size_bytes, came_bytes: 0, granted_bytes, sink, grant, _under_way: under_way })
    }

    pub(crate) fn grant(&self, subject: &str, content_bytes: u64) -> Result<Grant, ApiError> {
        self.grant_bytes(subject, weight_bytes(subject, content_bytes))
    }

    pub(crate) fn grant_bytes(&self, subject: &str, bytes: u64) -> Result<Grant, ApiError> {
        self.inner.share.grant(subject, bytes).inspect_err(|_| self.count_refused())
    }

    /// For what a client says of its object, where that is more than was granted with the content.
    pub(crate) fn grant_meta(&self, subject: &str, meta: &[u8]) -> Result<Option<Grant>, ApiError> {
        let more_bytes = (meta.len() as u64).saturating_sub(META_BYTES);
        (more_bytes > 0).then(|| self.grant_bytes(subject, more_bytes)).transpose()
    }

    fn check_space(&self, subject: &str, content_bytes: u64) -> Result<(), ApiError> {
        self.inner.share.check(subject, weight_bytes(subject, content_bytes)).inspect_err(|_| self.count_refused())
    }

    fn count_refused(&self) {
        self.inner.counters.refused_full.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}

fn weight_bytes(subject: &str, content_bytes: u64) -> u64 {
    meta::weight_bytes(subject.as_bytes(), &[], content_bytes.saturating_add(META_BYTES))
}

/// On a thread of its own: the digests of one batch are computed while the network brings the next.
fn take_in(
    mut writer: Writer,
    mut hasher: Hasher,
    mut batches: mpsc::Receiver<Vec<Bytes>>,
    size_bytes: u64,
    fsync: bool,
) -> Result<(Digests, NewFile), ApiError> {
    let mut came_bytes = 0;
    while let Some(batch) = batches.blocking_recv() {
        for bytes in batch {
            writer.write(&bytes)?;
            hasher.update(&bytes);
            came_bytes += bytes.len() as u64;
        }
    }
    if came_bytes != size_bytes {
        return Err(incomplete("content", came_bytes, size_bytes));
    }
    Ok((hasher.finish(), writer.finish(fsync)?))
}

fn incomplete(subject: &str, came_bytes: u64, size_bytes: u64) -> ApiError {
    let message = format!("{subject} was announced with {size_bytes} bytes and came with {came_bytes}; nothing was stored, send it again");
    ApiError::new(Code::IncompleteBody, subject, message)
}

impl Incoming {
    pub async fn write(&mut self, bytes: Bytes) -> Result<(), ApiError> {
        let begins = self.came_bytes;
        self.came_bytes += bytes.len() as u64;
        if self.came_bytes > self.size_bytes {
            return Err(incomplete(&self.subject, self.came_bytes, self.size_bytes));
        }
        if self.came_bytes > self.granted_bytes {
            let wanted = ahead_of(self.came_bytes, self.size_bytes);
            self.grant.grow(&self.subject, wanted - self.granted_bytes)?;
            self.granted_bytes = wanted;
        }
        match &mut self.sink {
            Sink::Inline { buffer, hasher } => {
                hasher.update(&bytes);
                buffer[begins as usize..self.came_bytes as usize].copy_from_slice(&bytes);
            }
            Sink::File { batch, batch_bytes, sender, worker } => {
                *batch_bytes += bytes.len() as u64;
                batch.push(bytes);
                if *batch_bytes >= BLOCK_BYTES {
                    *batch_bytes = 0;
                    // The worker is gone: it has met an error, which it tells.
                    if sender.send(std::mem::take(batch)).await.is_err() {
                        worker.await.map_err(broke_off)??;
                    }
                }
            }
        }
        Ok(())
    }

    pub async fn finish(self) -> Result<Content, ApiError> {
        if self.came_bytes != self.size_bytes {
            return Err(incomplete(&self.subject, self.came_bytes, self.size_bytes));
        }
        let (digests, held) = match self.sink {
            Sink::Inline { buffer, hasher } => (hasher.finish(), Held::Inline(buffer.freeze())),
            Sink::File { batch, sender, worker, .. } => {
                let _ = sender.send(batch).await;
                drop(sender);
                let (digests, new) = worker.await.map_err(broke_off)??;
                (digests, Held::File(new))
            }
        };
        Ok(Content::new(self.size_bytes, digests, held, self.grant))
    }
}
