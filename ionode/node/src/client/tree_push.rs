//! `stager-ionode push` of a directory: small files many to a pack, large ones as ever, several of both at once, then their list.
//!
//! The one rule: the list is sent when the node has every file that it names.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Instant;

use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use nix::sys::memfd::{memfd_create, MFdFlags};
use serde::Serialize;
use stager_core::error::{ApiError, Code};
use stager_core::ids::check_id;
use stager_core::replica::ReplicaKey;

use super::tree::{encoded, member_id, survey, Found, List, Listed};
use super::{link, push, PushOptions};
use crate::blocking::blocking;
use crate::failure::{at, bad_request};
use crate::pack_format::NODES_MAX;
use crate::pack_format::{Answered, Ask};
use crate::peers::link::{Link, Term};
use crate::peers::pack::fitting;
use crate::stripes::hex;
use crate::wire::{NotHeld, ReplicasWanted};

/// Larger ones go by themselves: what a node keeps in its log by default.
const SMALL_BYTES_MAX: u64 = 64 << 10;
const PACKS_AT_ONCE: usize = 4;
const FILES_AT_ONCE: usize = 4;

#[derive(Serialize)]
pub struct PushedTree {
    file_id: String,
    generation: String,
    files: usize,
    size_bytes: u64,
    bytes_moved: u64,
    /// Of the files, so many went in packs.
    in_packs: usize,
    duration_s: f64,
}

struct Work {
    link: Link,
    top: PathBuf,
    key: ReplicaKey,
    replicas: Option<ReplicasWanted>,
}

/// What became of a file.
struct Sent {
    listed: Listed,
    moved_bytes: u64,
    in_pack: bool,
}

pub async fn run(options: PushOptions) -> Result<PushedTree, ApiError> {
    check_id("file id", &options.file)?;
    check_id("generation", &options.generation)?;
    let started = Instant::now();
    let work = Work {
        link: link(&options.node)?,
        top: options.path.clone(),
        key: ReplicaKey::new(&options.file, &options.generation),
        replicas: push::replicas_wanted(&options),
    };
    let top = options.path.clone();
    let (files, directories) = blocking(move || survey(&top)).await?;
    let in_packs = work.replicas.as_ref().is_none_or(|replicas| replicas.chain.len() <= NODES_MAX);
    let (small, large): (Vec<Found>, Vec<Found>) = files.into_iter().partition(|found| in_packs && found.size_bytes <= SMALL_BYTES_MAX);
    let packs = stream::iter(groups(small)).map(|group| work.pack(group)).buffer_unordered(PACKS_AT_ONCE).try_concat();
    let alone = stream::iter(large).map(|found| work.alone(found)).buffer_unordered(FILES_AT_ONCE).try_collect::<Vec<Sent>>();
    let (mut sent, alone) = futures::future::try_join(packs, alone).await?;
    sent.extend(alone);
    sent.sort_by(|a, b| a.listed.path.cmp(&b.listed.path));
    let told = PushedTree {
        file_id: options.file,
        generation: options.generation,
        files: sent.len(),
        size_bytes: sent.iter().map(|sent| sent.listed.size_bytes).sum(),
        bytes_moved: sent.iter().map(|sent| sent.moved_bytes).sum(),
        in_packs: sent.iter().filter(|sent| sent.in_pack).count(),
        duration_s: 0.0,
    };
    work.list(&List::new(sent.into_iter().map(|sent| sent.listed).collect(), &directories)).await?;
    Ok(PushedTree { duration_s: started.elapsed().as_secs_f64(), ..told })
}

/// In packs that are worth a call each.
fn groups(files: Vec<Found>) -> Vec<Vec<Found>> {
    let mut groups = Vec::new();
    let mut rest = files;
    while !rest.is_empty() {
        let next = rest.split_off(fitting(rest.iter().map(|found| found.size_bytes)));
        groups.push(std::mem::replace(&mut rest, next));
    }
    groups
}

impl Work {
    async fn pack(&self, files: Vec<Found>) -> Result<Vec<Sent>, ApiError> {
        let (top, key) = (self.top.clone(), self.key.clone());
        let (files, asks) = blocking(move || {
            let asks = files.iter().map(|found| put(&top, &key, found)).collect::<Result<Vec<Ask>, _>>()?;
            Ok((files, asks))
        })
        .await?;
        let answers = self.link.puts(Term::Its, &asks, self.replicas.as_ref()).await?;
        let mut sent = Vec::with_capacity(files.len());
        for ((found, ask), answer) in files.into_iter().zip(asks).zip(answers) {
            let (Ask::Put { key, blake3, content, .. }, path) = (ask, self.top.join(&found.below)) else { unreachable!("only puts") };
            let size_bytes = content.len() as u64;
            match answer {
                Ok(Answered::Put { missing, .. }) if missing.first().is_some_and(|first| goes_alone(&first.error)) => {
                    sent.push(self.alone(found).await?)
                }
                Ok(Answered::Put { missing, .. }) if !missing.is_empty() => return Err(not_on_all(&path, &missing)),
                Ok(said) => {
                    let already = matches!(said, Answered::Put { already: true, .. });
                    let moved_bytes = if already { 0 } else { size_bytes };
                    let listed = Listed {
                        path: encoded(&found.below),
                        file_id: key.file_id,
                        size_bytes,
                        blake3: hex(blake3),
                        executable: found.executable,
                    };
                    sent.push(Sent { listed, moved_bytes, in_pack: true });
                }
                Err(error) if goes_alone(&error) => sent.push(self.alone(found).await?),
                Err(error) => return Err(ApiError { message: format!("{}: {}", path.display(), error.message), ..error }),
            }
        }
        Ok(sent)
    }

    async fn alone(&self, found: Found) -> Result<Sent, ApiError> {
        let key = ReplicaKey::new(member_id(&self.key.file_id, &found.below), &self.key.generation);
        let pushed = push::file(&self.link, &self.top.join(&found.below), &key, self.replicas.clone()).await?;
        let listed = Listed {
            path: encoded(&found.below),
            file_id: key.file_id,
            size_bytes: pushed.size_bytes,
            blake3: pushed.blake3,
            executable: found.executable,
        };
        Ok(Sent { listed, moved_bytes: pushed.bytes_moved, in_pack: false })
    }

    async fn list(&self, list: &List) -> Result<(), ApiError> {
        let bytes = serde_json::to_vec(list).expect("a list is plain values");
        let named = Path::new(&self.key.file_id);
        let made = memfd_create(c"list", MFdFlags::MFD_CLOEXEC).map_err(at("making a file in memory for", named))?;
        let mut file = File::from(made);
        file.write_all(&bytes).map_err(at("writing in memory", named))?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        push::file(&self.link, &path, &self.key, self.replicas.clone()).await.map(drop)
    }
}

/// By itself it goes by other rules, and says what is wrong with it if something is.
fn goes_alone(error: &ApiError) -> bool {
    matches!(error.code, Code::TooLarge | Code::ChecksumMismatch | Code::PeerMisbehaves)
}

fn not_on_all(path: &Path, missing: &[NotHeld]) -> ApiError {
    let (nodes, first): (Vec<&str>, _) = (missing.iter().map(|missing| missing.node_id.as_str()).collect(), &missing[0].error);
    let message = format!(
        "{} is on the node and not on {} of its chain: {}; push it again to go on",
        path.display(),
        nodes.join(", "),
        first.message
    );
    ApiError::replication_failed(first.clone(), path.display().to_string(), message)
}

fn put(top: &Path, tree: &ReplicaKey, found: &Found) -> Result<Ask, ApiError> {
    let path = top.join(&found.below);
    let mut content = Vec::with_capacity(found.size_bytes as usize + 1);
    let read = File::open(&path).and_then(|file| file.take(SMALL_BYTES_MAX + 1).read_to_end(&mut content));
    read.map_err(at("reading", &path))?;
    if content.len() as u64 > SMALL_BYTES_MAX {
        let path = path.display().to_string();
        return Err(bad_request(&path, format!("{path} grew while it was pushed; push it again when nobody writes it")));
    }
    let key = ReplicaKey::new(member_id(&tree.file_id, &found.below), &tree.generation);
    Ok(Ask::Put { key, executable: found.executable, blake3: *blake3::hash(&content).as_bytes(), content: Bytes::from(content) })
}
