//! `stager-ionode fetch --tree`: a directory from its list, small files many to a pack, large ones as ever, several of both at once.
//!
//! The one rule: the directory appears under its name when every file of it is there and was found right.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use serde::Serialize;
use stager_core::error::ApiError;
use stager_core::replica::ReplicaKey;

use super::tree::{beside, decoded, List, Listed};
use super::{fetch, link, FetchOptions};
use crate::blocking::blocking;
use crate::failure::{at, bad_request};
use crate::pack_format::{Answered, Ask};
use crate::peers::link::{Link, Term};
use crate::peers::pack::fitting;
use crate::store::digest;
use crate::store::durability::Durability;

const SMALL_BYTES_MAX: u64 = 256 << 10;
const PACKS_AT_ONCE: usize = 4;
const FILES_AT_ONCE: usize = 2;

#[derive(Serialize)]
pub struct FetchedTree {
    path: String,
    files: usize,
    size_bytes: u64,
    bytes_moved: u64,
    duration_s: f64,
}

struct Work {
    options: FetchOptions,
    links: Vec<Link>,
    /// The directory as it is made.
    part: PathBuf,
    moved_bytes: AtomicU64,
}

pub async fn run(options: FetchOptions) -> Result<FetchedTree, ApiError> {
    if options.to.symlink_metadata().is_ok() {
        let target = options.to.display().to_string();
        return Err(bad_request(&target, format!("{target} is there already; name another directory or remove it")));
    }
    let started = Instant::now();
    let part = beside(&options.to, "stager-tree")?;
    let links = options.nodes.iter().map(|node| link(node)).collect::<Result<Vec<Link>, _>>()?;
    let list = listed(&options).await?;
    let work = Work { options, links, part, moved_bytes: AtomicU64::new(0) };
    let (files, size_bytes) = (list.files.len(), list.files.iter().map(|file| file.size_bytes).sum());
    let wanted = work.make_directories(list).await?;
    let (small, large): (Vec<Listed>, Vec<Listed>) = wanted.into_iter().partition(|file| file.size_bytes <= SMALL_BYTES_MAX);
    let packs = stream::iter(groups(small).into_iter().enumerate())
        .map(|(n, group)| work.pack(n, group))
        .buffer_unordered(PACKS_AT_ONCE)
        .try_collect::<Vec<()>>();
    let alone = stream::iter(large).map(|file| work.alone(file)).buffer_unordered(FILES_AT_ONCE).try_collect::<Vec<()>>();
    futures::future::try_join(packs, alone).await?;
    let (part, target) = (work.part.clone(), work.options.to.clone());
    blocking(move || {
        Durability(true).file_system(&part)?;
        std::fs::rename(&part, &target).map_err(at("renaming", &part))?;
        let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Durability(true).directory(parent)
    })
    .await?;
    Ok(FetchedTree {
        path: work.options.to.display().to_string(),
        files,
        size_bytes,
        bytes_moved: work.moved_bytes.load(Ordering::Relaxed),
        duration_s: started.elapsed().as_secs_f64(),
    })
}

async fn listed(options: &FetchOptions) -> Result<List, ApiError> {
    let path = beside(&options.to, "stager-list")?;
    let place = path.clone();
    // Of an earlier try, perhaps of another list.
    blocking(move || match std::fs::remove_file(&place) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(at("removing", &place)(error)),
        _ => Ok(()),
    })
    .await?;
    fetch::run(FetchOptions { to: path.clone(), tree: false, ..options.clone() }).await?;
    let subject = options.file.clone();
    blocking(move || {
        let bytes = std::fs::read(&path).map_err(at("reading", &path))?;
        std::fs::remove_file(&path).map_err(at("removing", &path))?;
        List::parse(&bytes, &subject)
    })
    .await
}

fn groups(files: Vec<Listed>) -> Vec<Vec<Listed>> {
    let mut groups = Vec::new();
    let mut rest = files;
    while !rest.is_empty() {
        let next = rest.split_off(fitting(rest.iter().map(|file| file.size_bytes)));
        groups.push(std::mem::replace(&mut rest, next));
    }
    groups
}

impl Work {
    /// Makes the directories; the files that an earlier try has not left there.
    async fn make_directories(&self, list: List) -> Result<Vec<Listed>, ApiError> {
        let part = self.part.clone();
        blocking(move || {
            make_directory(&part)?;
            for below in &list.directories {
                make_directory(&part.join(decoded(below)?))?;
            }
            let mut wanted = Vec::new();
            for file in list.files {
                if !is_there(&part, &file)? {
                    wanted.push(file);
                }
            }
            Ok(wanted)
        })
        .await
    }

    /// From one node; what that does not give, from the others, each file by itself.
    async fn pack(&self, number: usize, files: Vec<Listed>) -> Result<(), ApiError> {
        let link = &self.links[number % self.links.len()];
        let asks: Vec<Ask> = files.iter().map(|file| Ask::Get(self.key(file))).collect();
        let content_bytes = files.iter().map(|file| file.size_bytes).sum();
        let answers = match link.pack(Term::Its, &asks, content_bytes).await {
            Ok(answers) => answers,
            Err(error) => asks.iter().map(|_| Err(error.clone())).collect(),
        };
        let (mut came, mut left) = (Vec::new(), Vec::new());
        for (file, answer) in files.into_iter().zip(answers) {
            match answer {
                Ok(Answered::Got(about, content)) if about.blake3_hex().eq_ignore_ascii_case(&file.blake3) => came.push((file, content)),
                _ => left.push(file),
            }
        }
        let moved_bytes = came.iter().map(|(_, content)| content.len() as u64).sum();
        self.moved_bytes.fetch_add(moved_bytes, Ordering::Relaxed);
        let part = self.part.clone();
        blocking(move || came.iter().try_for_each(|(file, content)| write(&part, file, content))).await?;
        for file in left {
            self.alone(file).await?;
        }
        Ok(())
    }

    async fn alone(&self, file: Listed) -> Result<(), ApiError> {
        let to = self.part.join(decoded(&file.path)?);
        let blake3 = Some(file.blake3.clone());
        let options = FetchOptions { file: file.file_id, to: to.clone(), blake3, tree: false, ..self.options.clone() };
        let fetched = fetch::run(options).await?;
        self.moved_bytes.fetch_add(fetched.bytes_moved, Ordering::Relaxed);
        blocking(move || std::fs::set_permissions(&to, PermissionsExt::from_mode(mode(file.executable))).map_err(at("changing", &to))).await
    }

    fn key(&self, file: &Listed) -> ReplicaKey {
        ReplicaKey::new(&file.file_id, &self.options.generation)
    }
}

fn mode(executable: bool) -> u32 {
    if executable {
        0o755
    } else {
        0o644
    }
}

/// There already: of an earlier try, if it is a directory itself.
fn make_directory(path: &Path) -> Result<(), ApiError> {
    match DirBuilder::new().mode(0o755).create(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists && path.symlink_metadata().is_ok_and(|seen| seen.is_dir()) => Ok(()),
        outcome => outcome.map_err(at("making", path)),
    }
}

fn is_there(part: &Path, file: &Listed) -> Result<bool, ApiError> {
    let path = part.join(decoded(&file.path)?);
    match path.symlink_metadata() {
        Ok(seen) if seen.is_file() && seen.len() == file.size_bytes => {
            let open = File::open(&path).map_err(at("opening", &path))?;
            if digest::of_file(&open, &path, false)?.blake3 == file.blake3 {
                return Ok(true);
            }
        }
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(at("stat of", &path)(error)),
    }
    std::fs::remove_file(&path).map_err(at("removing", &path))?;
    Ok(false)
}

fn write(part: &Path, file: &Listed, content: &Bytes) -> Result<(), ApiError> {
    let path = part.join(decoded(&file.path)?);
    let made = OpenOptions::new().create_new(true).write(true).mode(mode(file.executable)).open(&path);
    made.and_then(|mut made| made.write_all(content)).map_err(at("writing", &path))
}
