//! One file into a node. Knows the calls, not what the node does with it.
//!
//! The one rule: the file is hashed before it is sent, so the node can tell what it got from what was meant.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::stream::{self, StreamExt};
use futures::TryStreamExt;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use serde::Serialize;
use stager_core::error::{ApiError, Code};
use stager_core::ids::check_id;
use stager_core::replica::ReplicaKey;
use stager_origins::stalled;

use super::{link, PushOptions};
use crate::blocking::blocking;
use crate::blocks;
use crate::failure::{at, bad_request};
use crate::peers::link::{Body, Link, Term};
use crate::store::digest;
use crate::wire::{ExpectedPush, Fact, PushRequest, ReplicasWanted, Replication};

/// So often is content sent that is not taken.
const ATTEMPTS_MAX: u32 = 3;
/// As long as the node waits for the next byte.
const STALL: Duration = Duration::from_secs(60);

#[derive(Serialize)]
pub struct Pushed {
    file_id: String,
    generation: String,
    pub(super) size_bytes: u64,
    pub(super) blake3: String,
    pub(super) bytes_moved: u64,
    /// From the first call to the acknowledgement; hashing came before.
    duration_s: f64,
    replication: Option<Replication>,
}

pub async fn run(options: PushOptions) -> Result<Pushed, ApiError> {
    check_id("file id", &options.file)?;
    check_id("generation", &options.generation)?;
    let link = link(&options.node)?;
    let key = ReplicaKey::new(&options.file, &options.generation);
    file(&link, &options.path, &key, replicas_wanted(&options)).await
}

pub(super) fn replicas_wanted(options: &PushOptions) -> Option<ReplicasWanted> {
    (!options.chain.is_empty()).then(|| ReplicasWanted { chain: options.chain.clone(), ack: options.ack.into() })
}

pub(super) async fn file(link: &Link, path: &Path, key: &ReplicaKey, replicas: Option<ReplicasWanted>) -> Result<Pushed, ApiError> {
    let given = path.to_owned();
    let path = given.clone();
    let opened = blocking(move || {
        let file = File::open(&path)
            .map_err(|error| bad_request(path.display().to_string(), format!("{} cannot be read ({error})", path.display())))?;
        let found = file.metadata().map_err(at("stat of", &path))?;
        if !found.is_file() {
            return Err(bad_request(path.display().to_string(), format!("{} is neither a file nor a directory", path.display())));
        }
        let digests = digest::of_file(&file, &path, false)?;
        Ok((Arc::new(file), digests, found.permissions().mode() & 0o100 != 0))
    });
    let (file, digests, executable) = opened.await?;
    let request = PushRequest {
        file_id: key.file_id.clone(),
        generation: key.generation.clone(),
        expected: ExpectedPush { size_bytes: digests.size_bytes, blake3: digests.blake3.clone() },
        priority: 0,
        executable,
        replicas,
    };
    let started = Instant::now();
    let transfer_id = format!("push-{}", rand::random::<[u8; 8]>().iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    link.ask_push(&transfer_id, &request).await?;
    let content = |from_bytes, sent| content(file.clone(), given.clone(), from_bytes..digests.size_bytes, sent);
    let (bytes_moved, replication) = delivered(link, &transfer_id, content).await?;
    Ok(Pushed {
        file_id: key.file_id.clone(),
        generation: key.generation.clone(),
        size_bytes: digests.size_bytes,
        blake3: digests.blake3,
        bytes_moved,
        duration_s: started.elapsed().as_secs_f64(),
        replication,
    })
}

/// A node that still waits for the content is sent it again: it would wait for a minute, in vain, and then call the line silent.
async fn delivered(
    link: &Link,
    transfer_id: &str,
    content: impl Fn(u64, Arc<AtomicU64>) -> Body,
) -> Result<(u64, Option<Replication>), ApiError> {
    let mut attempts = 0;
    loop {
        let Some(from_bytes) = link.push_from(transfer_id).await?.from_bytes else {
            // It has ended, or is not so far yet.
            match link.transfer(Term::Its, transfer_id, false).await?.event {
                Some(event) => return outcome(transfer_id, event.fact),
                None => continue,
            }
        };
        let sent = Arc::new(AtomicU64::new(from_bytes));
        let outcome = tokio::select! {
            outcome = link.send_content(transfer_id, content(from_bytes, sent.clone())) => outcome,
            () = stalled(&sent, STALL) => Err(link.lost(&format!("it took no byte of the content for {} s", STALL.as_secs()))),
        };
        let Err(error) = outcome else { return ended(link, transfer_id).await };
        attempts += 1;
        tracing::warn!(transfer_id, error = %error.message, "the content was not taken");
        if attempts == ATTEMPTS_MAX {
            // What the node says of the end is nearer to the cause than a connection that broke.
            return Err(ended(link, transfer_id).await.err().unwrap_or(error));
        }
    }
}

async fn ended(link: &Link, transfer_id: &str) -> Result<(u64, Option<Replication>), ApiError> {
    loop {
        if let Some(event) = link.transfer(Term::Its, transfer_id, true).await?.event {
            return outcome(transfer_id, event.fact);
        }
    }
}

fn outcome(transfer_id: &str, fact: Fact) -> Result<(u64, Option<Replication>), ApiError> {
    match fact {
        Fact::TransferDone(done) => Ok((done.bytes_moved, done.replication)),
        Fact::TransferFailed { error, .. } => Err(error),
        _ => Err(ApiError::new(Code::Cancelled, transfer_id, format!("the push {transfer_id} was cancelled at the node"))),
    }
}

/// `sent`: up to where it was taken from here.
pub(super) fn content(file: Arc<File>, path: std::path::PathBuf, range: Range<u64>, sent: Arc<AtomicU64>) -> Body {
    let end = range.end;
    let blocks = stream::try_unfold(range.start, move |offset| {
        sent.store(offset, Ordering::Relaxed);
        let (file, path) = (file.clone(), path.clone());
        async move {
            if offset >= end {
                return Ok(None);
            }
            let length = (blocks::BLOCK_BYTES as u64).min(end - offset);
            let read = blocking(move || block(&file, &path, offset, length as usize)).await.map_err(std::io::Error::other)?;
            Ok::<_, std::io::Error>(Some((read, offset + length)))
        }
    });
    StreamBody::new(blocks.chain(stream::iter([Ok(blocks::end(end))])).map_ok(Frame::data)).boxed_unsync()
}

fn block(file: &File, path: &Path, offset: u64, length: usize) -> Result<Bytes, ApiError> {
    let mut buffer = vec![0; blocks::HEADER_BYTES + length];
    file.read_exact_at(&mut buffer[blocks::HEADER_BYTES..], offset).map_err(at("reading", path))?;
    let header = blocks::header(offset, &buffer[blocks::HEADER_BYTES..]);
    buffer[..blocks::HEADER_BYTES].copy_from_slice(&header);
    Ok(Bytes::from(buffer))
}
