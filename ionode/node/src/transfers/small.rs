//! Fetch of a small file: into memory, hashed there, and into the log with its record. No file is made; its fsync is shared with others.
//!
//! The one rule: as for every fetch, nothing is committed that was not checked against its source and its expected checksum.

use std::sync::atomic::Ordering;
use std::sync::Mutex;

use async_trait::async_trait;
use bytes::Bytes;
use stager_core::error::ApiError;
use stager_core::record::Source;
use stager_core::space::Holder;
use stager_core::watermark::Watermark;
use stager_origins::{Entry, Origin, Pace, Sink};

use super::arrival::{judge, Witness};
use super::chain::{identity, Chain};
use super::feed::{misplaced, short, unchanged, ORIGIN_STALL as STALL};
use super::job::{Job, Moved};
use super::table::Transfers;
use crate::origin_checksums::also;
use crate::store::digest::Hasher;
use crate::wire::{ExpectedCopy, FetchRequest};

/// The bytes that came, in their places.
struct ContentBuffer {
    subject: String,
    content: Mutex<(Vec<u8>, Watermark)>,
    job: Job,
}

#[async_trait]
impl Sink for ContentBuffer {
    async fn write_at(&self, offset: u64, chunk: Bytes) -> Result<(), ApiError> {
        let mut content = self.content.lock().expect("nobody panics here");
        let (bytes, mark) = &mut *content;
        let length = chunk.len() as u64;
        mark.arrive(offset, length).map_err(|_| misplaced(&self.subject, offset, length))?;
        bytes[offset as usize..offset as usize + chunk.len()].copy_from_slice(&chunk);
        self.job.progress.store(mark.arrived_bytes(), Ordering::Relaxed);
        Ok(())
    }

    fn pace(&self) -> Pace {
        self.job.priority.clone().into()
    }
}

/// The nodes of a chain reserve their space before, and get their copies when it is committed.
pub(super) async fn fetch(
    transfers: &Transfers,
    job: &Job,
    request: &FetchRequest,
    entry: &Entry,
    source: &Source,
    origin: &dyn Origin,
    mut chain: Chain,
) -> Result<Moved, ApiError> {
    let size_bytes = entry.size_bytes;
    let identity = identity(source);
    chain.hold(&ExpectedCopy { size_bytes, blake3: None, identity: Some(identity.clone()) }).await?;
    let content = Mutex::new((vec![0; size_bytes as usize], Watermark::new(0, size_bytes)));
    let sink = ContentBuffer { subject: entry.path.clone(), content, job: job.clone() };
    if size_bytes > 0 {
        job.watched(&entry.path, STALL, origin.fetch(entry, std::slice::from_ref(&(0..size_bytes)), &sink)).await?;
    } else {
        job.watched(&entry.path, STALL, unchanged(origin, entry)).await?;
    }
    let (content, mark) = sink.content.into_inner().expect("nobody panics here");
    if !mark.is_complete() {
        return Err(short(&entry.path));
    }
    let reported = origin.capabilities().reported_checksum(entry);
    let mut hasher = Hasher::with(also(origin, &reported, &request.expected));
    hasher.update(&content);
    let (replica, verified) = judge(job, request, Witness { origin, entry, reported }, hasher.finish()).await?;
    transfers.commit_small(&replica, Bytes::from(content)).await?;
    transfers.context.accounting().index.commit(&Holder::Transfer(job.id.clone()), std::slice::from_ref(&replica));
    chain.tell_of(&replica, Some(identity)).await?;
    Ok(Moved { replica, bytes_moved: size_bytes, verified, synced: None, chain })
}
