//! Upload: a replica becomes a file, or a tree of files, at an origin.
//!
//! The one rule: what is told is the weakest thing that was seen of any member, never the strongest.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::stream::{self, StreamExt, TryStreamExt};
use stager_core::error::{ApiError, Code};
use stager_core::replica::{Replica, ReplicaKey, ReplicaKind};
use stager_origins::{verify_content, Made, Origin, Synced, Upload, Uploaded, Verified};
use tokio::sync::Semaphore;

use super::chain::Chain;
use super::job::{Job, Moved};
use super::table::Transfers;
use crate::blocking::blocking;
use crate::context::NodeContext;
use crate::replicas::open_content;
use crate::store::tree::Manifest;
use crate::wire::{OnExists, UploadRequest, VerifyMode};

/// Of a directory: so many small members at once, since round trips are what they cost. A larger one counts as many.
const MEMBERS_AT_ONCE: usize = 128;
const SMALL_BYTES: u64 = 256 << 10;
const LARGE_COUNTS: u32 = 32;
const STALL: Duration = Duration::from_secs(60);
/// A server that hashes a file itself moves no byte of it that we could count: it gets time by the file's size on top.
const VERIFY_BYTES_PER_S_MIN: u64 = 8 << 20;

/// One file to be sent.
struct Piece<'a> {
    local: &'a Path,
    path: String,
    size_bytes: u64,
    blake3: &'a str,
    crc64nvme: &'a str,
    executable: bool,
    made: Option<Made>,
    /// Part of the temporary name at the origin. The file's own id, the same when tried again: a later transfer of the same file to the
    /// same path takes over what a killed one left.
    id: String,
}

pub(super) async fn upload(transfers: &Transfers, job: &Job, request: &UploadRequest) -> Result<Moved, ApiError> {
    let key = ReplicaKey::new(&request.file_id, &request.generation);
    let replica = crate::replicas::whole(transfers.context.accounting().index.readable(&key)?.clone())?;
    let open = transfers.context.origin(&request.destination.origin_id)?;
    let largest = replica.size_bytes;
    let stall = STALL + Duration::from_secs(largest / VERIFY_BYTES_PER_S_MIN);
    let work = async {
        match replica.kind {
            ReplicaKind::File => file(&transfers.context, job, request, open.origin.as_ref(), &replica).await,
            ReplicaKind::Directory => tree(&transfers.context, job, request, open.origin.as_ref(), &replica).await,
        }
    };
    let uploaded = job.watched(&request.destination.path, stall, work).await?;
    let token = (replica.kind == ReplicaKind::File).then_some(uploaded.token);
    let chain = Chain::for_maker(transfers, &job.cause, &job.id, &key, None);
    let (verified, synced) = (Some(uploaded.verified), Some(uploaded.synced));
    Ok(Moved { replica: Replica { token, ..replica }, bytes_moved: uploaded.bytes_moved, verified, synced, chain })
}

async fn file(
    context: &Arc<NodeContext>,
    job: &Job,
    request: &UploadRequest,
    origin: &dyn Origin,
    replica: &Replica,
) -> Result<Uploaded, ApiError> {
    let (worker, key) = (context.clone(), replica.key());
    // Kept open: content that lies in the log is reached through it.
    let content = blocking(move || open_content(&worker, &key, None)).await?;
    let piece = Piece {
        local: &content.path,
        path: request.destination.path.clone(),
        size_bytes: replica.size_bytes,
        blake3: &replica.blake3,
        crc64nvme: &replica.crc64nvme,
        executable: replica.executable || request.make_executable,
        made: request.made_s_ago.map(|ago_s| Made { ago: Duration::from_secs(ago_s.into()), told: job.asked }),
        id: request.file_id.clone(),
    };
    send(origin, job, request, &piece).await
}

async fn send(origin: &dyn Origin, job: &Job, request: &UploadRequest, piece: &Piece<'_>) -> Result<Uploaded, ApiError> {
    let upload = Upload {
        local: piece.local,
        path: &piece.path,
        size_bytes: piece.size_bytes,
        blake3: digest(piece.blake3, &piece.path)?,
        crc64nvme: u64::from_str_radix(piece.crc64nvme, 16).map_err(|_| unreadable(&piece.path))?,
        replace: request.on_exists == OnExists::Replace,
        made: piece.made,
        executable: piece.executable,
        transfer_id: &piece.id,
        pace: job.priority.clone().into(),
        progress: &|sent| job.sent(sent),
    };
    let mut uploaded = origin.upload(upload).await?;
    if request.verify == VerifyMode::Readback && uploaded.verified != Verified::Readback {
        let answer = verify_content(origin, &piece.path, piece.size_bytes, piece.blake3, &job.priority.clone().into()).await?;
        if !answer.matches {
            let message = format!(
                "{} read back from its origin differs from what was sent; look at the origin's disk, then upload it again",
                piece.path
            );
            return Err(ApiError::new(Code::ChecksumMismatch, &piece.path, message));
        }
        uploaded.verified = Verified::Readback;
        uploaded.token = answer.token;
    }
    Ok(uploaded)
}

fn digest(hex: &str, path: &str) -> Result<[u8; 32], ApiError> {
    blake3::Hash::from_hex(hex).map(|hash| *hash.as_bytes()).map_err(|_| unreadable(path))
}

fn unreadable(path: &str) -> ApiError {
    ApiError::new(Code::ChecksumMismatch, path, format!("the checksum recorded for {path} is not readable; verify the replica"))
}

async fn tree(
    context: &NodeContext,
    job: &Job,
    request: &UploadRequest,
    origin: &dyn Origin,
    replica: &Replica,
) -> Result<Uploaded, ApiError> {
    let manifest_path = context.store.manifest_path(&replica.key());
    let manifest = blocking(move || Manifest::read(&manifest_path)).await?;
    let top = &request.destination.path;
    if manifest.members.is_empty() && manifest.empty_directories.is_empty() {
        origin.make_directory(top).await?;
    }
    for folder in &manifest.empty_directories {
        origin.make_directory(&format!("{top}/{folder}")).await?;
    }
    let local_top = context.store.data_path(&replica.key());
    let locals: Vec<_> = manifest.members.iter().map(|member| local_top.join(&member.path)).collect();
    let (summary, places) = (Mutex::new(Summary::default()), Semaphore::new(MEMBERS_AT_ONCE));
    let sends = manifest.members.iter().enumerate().map(|(n, member)| {
        let piece = Piece {
            local: &locals[n],
            path: format!("{top}/{}", member.path),
            size_bytes: member.size_bytes,
            blake3: &member.blake3,
            crc64nvme: &member.crc64nvme,
            executable: member.executable,
            // One that stays would leave a tree of two versions.
            made: None,
            id: format!("{}-{n}", request.file_id),
        };
        let (summary, places) = (&summary, &places);
        async move {
            let counts = if piece.size_bytes > SMALL_BYTES { LARGE_COUNTS } else { 1 };
            let _place = places.acquire_many(counts).await.expect("never closed");
            let uploaded = send(origin, job, request, &piece).await?;
            summary.lock().expect("nobody panics here").add(&uploaded);
            Ok::<(), ApiError>(())
        }
    });
    stream::iter(sends.collect::<Vec<_>>()).buffer_unordered(MEMBERS_AT_ONCE).try_collect::<Vec<()>>().await?;
    Ok(summary.into_inner().expect("nobody panics here").total())
}

#[derive(Default)]
struct Summary {
    bytes_moved: u64,
    weakest: Option<Verified>,
    least: Option<Synced>,
}

impl Summary {
    fn add(&mut self, uploaded: &Uploaded) {
        self.bytes_moved += uploaded.bytes_moved;
        self.least = Some(self.least.map_or(uploaded.synced, |least| least.min(uploaded.synced)));
        let known = self.weakest.get_or_insert(uploaded.verified);
        if strength(uploaded.verified) < strength(*known) {
            *known = uploaded.verified;
        }
    }

    fn total(self) -> Uploaded {
        let (verified, synced) = (self.weakest.unwrap_or(Verified::Readback), self.least.unwrap_or(Synced::Nothing));
        Uploaded { token: String::new(), verified, synced, bytes_moved: self.bytes_moved }
    }
}

/// Adopted content was verified by reading it, too, but it is good to see in a summary that all of it was.
fn strength(verified: Verified) -> u8 {
    match verified {
        Verified::Size => 0,
        Verified::OriginChecksum => 1,
        Verified::RemoteChecksum => 2,
        Verified::Readback => 3,
        Verified::Adopted => 4,
    }
}
