//! The outputs of an attempt to the node: small files many to a pack, others each by itself, several of both at once.
//!
//! The one rule: a file is opened without following a link, and one that changes while it is taken is refused.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use stager_core::error::{ApiError, Code};
use stager_core::replica::{ReplicaKey, ReplicaKind};
use stager_origins::stalled;

use super::fetching::{AT_ONCE, SMALL_BYTES_MAX};
use super::Remote;
use crate::blocking::blocking;
use crate::blocks;
use crate::client::push::content;
use crate::failure::at;
use crate::pack_format::{Answered, Ask};
use crate::peers::link::{Call, Term};
use crate::peers::pack::fitting;
use crate::sandbox::folder::{split, Folder};
use crate::sandbox::survey::{Found, Seen};
use crate::store::digest;
use crate::stripes::from_hex;
use crate::wire::{Output, OutputFile, OutputFolder, OutputsRequest};

const STALL: Duration = Duration::from_secs(60);

/// Where the files of a request are, in its order.
pub struct Files {
    pub request: OutputsRequest,
    top: PathBuf,
    /// Below the sandbox, and as it was surveyed.
    places: Vec<(String, Seen)>,
}

/// All that was found, hashed.
pub async fn announced(top: &Path, found: Vec<(usize, Output, Found)>) -> Result<Files, ApiError> {
    let (mut wanted, mut folders) = (Vec::new(), Vec::new());
    for (number, output, found) in found {
        if output.kind == ReplicaKind::Directory {
            let below = std::iter::once(String::new()).chain(found.folders);
            folders.extend(below.map(|path| OutputFolder { output: number, path }));
        }
        wanted.extend(found.files.into_iter().map(|seen| (number, below(&output.path, &seen.path), seen)));
    }
    let hashed = stream::iter(wanted).map(|(number, path, seen)| {
        let top = top.to_owned();
        blocking(move || {
            let file = opened(&top, &path, &seen)?;
            let blake3 = digest::of_file(&file, &top.join(&path), false)?.blake3;
            require_same(&file, &path, &seen)?;
            let size_bytes = seen.size_bytes;
            let said = OutputFile { output: number, path: seen.path.clone(), size_bytes, blake3, executable: seen.executable };
            Ok((said, (path, seen)))
        })
    });
    let hashed: Vec<(OutputFile, (String, Seen))> = hashed.buffered(AT_ONCE).try_collect().await?;
    let (files, places) = hashed.into_iter().unzip();
    Ok(Files { request: OutputsRequest { files, folders }, top: top.to_owned(), places })
}

fn below(output: &str, path: &str) -> String {
    if path.is_empty() {
        output.to_string()
    } else {
        format!("{output}/{path}")
    }
}

fn opened(top: &Path, path: &str, seen: &Seen) -> Result<File, ApiError> {
    let (parents, name): (Vec<&str>, &OsStr) = split(path);
    let file = Folder::open(top).and_then(|top| top.descend(&parents)).and_then(|folder| folder.file(name));
    let file = file.map_err(at("opening", &top.join(path)))?;
    require_same(&file, path, seen)?;
    Ok(file)
}

fn require_same(file: &File, path: &str, seen: &Seen) -> Result<(), ApiError> {
    let now = file.metadata().map_err(at("stat of", Path::new(path)))?;
    let found = (now.dev(), now.ino(), now.len(), (now.mtime(), now.mtime_nsec()));
    if found == (seen.device, seen.inode, seen.size_bytes, seen.mtime) {
        return Ok(());
    }
    let message = format!("the output {path} changed while it was taken; end every process of the job first");
    Err(ApiError::new(Code::OutputChanged, path, message))
}

pub async fn send_all(remote: &Arc<Remote>, files: Files, wanted: &[usize]) -> Result<(), ApiError> {
    let files = Arc::new(files);
    let known = wanted.iter().copied().filter(|number| *number < files.places.len());
    let (small, large): (Vec<usize>, Vec<usize>) = known.partition(|number| files.request.files[*number].size_bytes <= SMALL_BYTES_MAX);
    let packs = stream::iter(groups(&files, small)).map(|group| pack(remote, &files, group));
    let packs = packs.buffer_unordered(AT_ONCE).try_collect::<Vec<()>>();
    let alone = stream::iter(large).map(|number| alone(remote, &files, number)).buffer_unordered(AT_ONCE).try_collect::<Vec<()>>();
    futures::future::try_join(packs, alone).await.map(drop)
}

fn groups(files: &Files, mut rest: Vec<usize>) -> Vec<Vec<usize>> {
    let mut groups = Vec::new();
    while !rest.is_empty() {
        let next = rest.split_off(fitting(rest.iter().map(|number| files.request.files[*number].size_bytes)));
        groups.push(std::mem::replace(&mut rest, next));
    }
    groups
}

async fn pack(remote: &Arc<Remote>, files: &Arc<Files>, group: Vec<usize>) -> Result<(), ApiError> {
    let worker = files.clone();
    let asks = blocking(move || group.into_iter().map(|number| put(&worker, number)).collect::<Result<Vec<Ask>, ApiError>>()).await?;
    let answers = remote.link.pack_at(&remote.path("/outputs"), &asks).await?;
    answers.into_iter().try_for_each(|answer| match answer? {
        Answered::Put { .. } => Ok(()),
        _ => unreachable!("the answers are those of the entries"),
    })
}

fn put(files: &Files, number: usize) -> Result<Ask, ApiError> {
    let (path, seen) = &files.places[number];
    let file = opened(&files.top, path, seen)?;
    let mut content = vec![0; seen.size_bytes as usize];
    file.read_exact_at(&mut content, 0).map_err(at("reading", &files.top.join(path)))?;
    require_same(&file, path, seen)?;
    let said = &files.request.files[number];
    let blake3 = from_hex(&said.blake3).expect("our own digest");
    Ok(Ask::Put { key: ReplicaKey::new(number.to_string(), "output"), executable: said.executable, blake3, content: Bytes::from(content) })
}

async fn alone(remote: &Arc<Remote>, files: &Arc<Files>, number: usize) -> Result<(), ApiError> {
    let worker = files.clone();
    let file = blocking(move || opened(&worker.top, &worker.places[number].0, &worker.places[number].1)).await?;
    let (file, (path, seen)) = (Arc::new(file), files.places[number].clone());
    let sent = Arc::new(AtomicU64::new(0));
    let body = content(file.clone(), files.top.join(&path), 0..seen.size_bytes, sent.clone());
    let headers = vec![("content-type", blocks::MEDIA_TYPE.to_string())];
    let call = Call { method: "PUT", path: remote.path(&format!("/outputs/{number}")), headers, body, term: Term::Its };
    let outcome = tokio::select! {
        outcome = remote.link.send(call) => outcome.map(|reply| reply.done()),
        () = still(&sent, seen.size_bytes) => Err(remote.link.lost(&format!("it took no byte of {path} for {} s", STALL.as_secs()))),
    };
    match outcome {
        Ok(()) => require_same(&file, &path, &seen),
        // The other content may be the job's doing.
        Err(error) => require_same(&file, &path, &seen).and(Err(error)),
    }
}

/// While bytes are left to be taken. Once all are, the node hashes and answers.
async fn still(sent: &AtomicU64, size_bytes: u64) {
    loop {
        stalled(sent, STALL).await;
        if sent.load(Ordering::Relaxed) < size_bytes {
            return;
        }
        tokio::time::sleep(STALL).await;
    }
}
