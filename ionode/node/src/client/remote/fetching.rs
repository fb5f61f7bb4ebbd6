//! The inputs of an attempt into a directory: small files many to a pack, others in ranges, several of both at once.
//!
//! The one rule: what is written was found to have the BLAKE3 that the node named when it opened the attempt.

use std::fs::{DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use stager_core::error::{ApiError, Code};
use stager_core::replica::{ReplicaKey, ReplicaKind};
use stager_origins::{stalled, Sink};

use super::Remote;
use crate::blocking::blocking;
use crate::failure::at;
use crate::pack_format::{Answered, Ask};
use crate::peers::link::Term;
use crate::peers::pack::fitting;
use crate::peers::source::Source;
use crate::store::digest;
use crate::store::tree::Manifest;
use crate::stripes::hex;
use crate::wire::InputContent;

/// What goes with others into a pack; a larger file is worth a call of its own.
pub const SMALL_BYTES_MAX: u64 = 256 << 10;
pub const AT_ONCE: usize = 4;
const STALL: Duration = Duration::from_secs(60);

/// One file to be made: of an input, or a member of one.
struct Wanted {
    key: ReplicaKey,
    member: Option<String>,
    to: PathBuf,
    size_bytes: u64,
    blake3: String,
    executable: bool,
}

pub async fn fetch_all(remote: &Arc<Remote>, top: &Path, contents: Vec<InputContent>) -> Result<(), ApiError> {
    let (files, trees): (Vec<InputContent>, Vec<InputContent>) =
        contents.into_iter().partition(|content| content.kind == ReplicaKind::File);
    let mut wanted: Vec<Wanted> = files.into_iter().map(|content| of_file(top, content)).collect();
    for content in trees {
        wanted.extend(members(remote, top, content).await?);
    }
    let folders: Vec<PathBuf> = wanted.iter().filter_map(|wanted| wanted.to.parent()).map(Path::to_owned).collect();
    blocking(move || folders.iter().try_for_each(|folder| make_folder(folder))).await?;
    let (small, large): (Vec<Wanted>, Vec<Wanted>) =
        wanted.into_iter().partition(|wanted| wanted.member.is_none() && wanted.size_bytes <= SMALL_BYTES_MAX);
    let packs = stream::iter(groups(small)).map(|group| pack(remote, group)).buffer_unordered(AT_ONCE).try_collect::<Vec<()>>();
    let alone = stream::iter(large).map(|wanted| alone(remote, wanted)).buffer_unordered(AT_ONCE).try_collect::<Vec<()>>();
    futures::future::try_join(packs, alone).await.map(drop)
}

fn of_file(top: &Path, content: InputContent) -> Wanted {
    Wanted {
        key: ReplicaKey::new(&content.file_id, &content.generation),
        member: None,
        to: top.join(&content.path),
        size_bytes: content.size_bytes,
        blake3: content.blake3,
        executable: content.executable,
    }
}

/// Of a directory, whose folders are made.
async fn members(remote: &Remote, top: &Path, content: InputContent) -> Result<Vec<Wanted>, ApiError> {
    let key = ReplicaKey::new(&content.file_id, &content.generation);
    let bytes = remote.link.manifest(Term::Its, &key).await?;
    if hex(*blake3::hash(&bytes).as_bytes()) != content.blake3 {
        return Err(another(&content.path));
    }
    let manifest = Manifest::parse(&bytes, &content.path)?;
    let to = top.join(&content.path);
    let folders: Vec<PathBuf> = std::iter::once(to.clone()).chain(manifest.folders().iter().map(|below| to.join(below))).collect();
    blocking(move || folders.iter().try_for_each(|folder| make_folder(folder))).await?;
    let wanted = manifest.members.into_iter().map(|member| Wanted {
        key: key.clone(),
        to: to.join(&member.path),
        size_bytes: member.size_bytes,
        blake3: member.blake3,
        executable: member.executable,
        member: Some(member.path),
    });
    Ok(wanted.collect())
}

fn groups(mut rest: Vec<Wanted>) -> Vec<Vec<Wanted>> {
    let mut groups = Vec::new();
    while !rest.is_empty() {
        let next = rest.split_off(fitting(rest.iter().map(|wanted| wanted.size_bytes)));
        groups.push(std::mem::replace(&mut rest, next));
    }
    groups
}

async fn pack(remote: &Arc<Remote>, group: Vec<Wanted>) -> Result<(), ApiError> {
    let asks: Vec<Ask> = group.iter().map(|wanted| Ask::Get(wanted.key.clone())).collect();
    let answers = remote.link.pack(Term::Its, &asks, group.iter().map(|wanted| wanted.size_bytes).sum()).await?;
    let mut came = Vec::with_capacity(group.len());
    for (wanted, answer) in group.into_iter().zip(answers) {
        match answer {
            Ok(Answered::Got(about, content)) if about.blake3_hex() == wanted.blake3 => came.push((wanted, content)),
            Ok(_) => return Err(another(&wanted.to.display().to_string())),
            Err(error) if error.code == Code::TooLarge => alone(remote, wanted).await?,
            Err(error) => return Err(error),
        }
    }
    blocking(move || {
        came.iter().try_for_each(|(wanted, content)| {
            let file = make_file(&wanted.to, wanted.executable)?;
            file.write_all_at(content, 0).map_err(at("writing", &wanted.to))
        })
    })
    .await
}

async fn alone(remote: &Arc<Remote>, wanted: Wanted) -> Result<(), ApiError> {
    let (to, executable) = (wanted.to.clone(), wanted.executable);
    let file = Arc::new(blocking(move || make_file(&to, executable)).await?);
    let sink = FileSink { file: file.clone(), path: wanted.to.clone(), came: AtomicU64::new(0) };
    if wanted.size_bytes > 0 {
        let source = Source { link: &remote.link, key: wanted.key, member: wanted.member, size_bytes: wanted.size_bytes, term: Term::Its };
        tokio::select! {
            outcome = source.fetch(0..wanted.size_bytes, &sink) => outcome?,
            () = stalled(&sink.came, STALL) => {
                return Err(remote.link.lost(&format!("no byte of an input came for {} s", STALL.as_secs())));
            }
        }
    }
    let path = wanted.to;
    blocking(move || match digest::of_file(&file, &path, false)?.blake3 == wanted.blake3 {
        true => Ok(()),
        false => Err(another(&path.display().to_string())),
    })
    .await
}

fn another(path: &str) -> ApiError {
    let message = format!("what the node sent for the input {path} is not the content that the attempt was opened with; nothing was kept");
    ApiError::new(Code::ChecksumMismatch, path, message)
}

fn make_folder(path: &Path) -> Result<(), ApiError> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(at("making", path))
}

fn make_file(path: &Path, executable: bool) -> Result<File, ApiError> {
    let mode = if executable { 0o700 } else { 0o600 };
    OpenOptions::new().create_new(true).read(true).write(true).mode(mode).open(path).map_err(at("making", path))
}

struct FileSink {
    file: Arc<File>,
    path: PathBuf,
    came: AtomicU64,
}

#[async_trait]
impl Sink for FileSink {
    async fn write_at(&self, offset: u64, chunk: Bytes) -> Result<(), ApiError> {
        let (file, path, length) = (self.file.clone(), self.path.clone(), chunk.len() as u64);
        blocking(move || file.write_all_at(&chunk, offset).map_err(at("writing", &path))).await?;
        self.came.fetch_add(length, Ordering::Relaxed);
        Ok(())
    }
}
