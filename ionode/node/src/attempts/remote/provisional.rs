//! What an attempt on another host sends of its outputs, until it is committed. Knows files, not how they come.
//!
//! The one rule: a file has its name in the tree when all of it came and its BLAKE3 is the announced one.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use stager_core::error::{ApiError, Code};
use stager_core::ids::{check_relative_path, is_relative_path};
use stager_core::replica::{ReplicaKey, ReplicaKind};
use stager_core::space::Holder;

use super::super::stage_out::uncommitted;
use super::super::table::Attempts;
use super::table::{closed, drop_sent, is_each_once, save_sent, Remote, PART, TREE};
use crate::blocking::blocking;
use crate::failure::{at, bad_request, Failure};
use crate::pack_format::{Answered, Ask};
use crate::packs::Outcome;
use crate::sandbox::judge::too_large;
use crate::store::files::make_directory;
use crate::stripes::hex;
use crate::wire::{AttemptState, Output, OutputFile, OutputsAnswer, OutputsRequest};

/// Which files are still to be sent. What is announced has to fit the reservation before a byte of it comes.
pub async fn announce(attempts: Arc<Attempts>, attempt_id: String, request: OutputsRequest) -> Result<OutputsAnswer, Failure> {
    let lock = attempts.lock_of(&attempt_id);
    let _locked = lock.lock().await;
    let mut known = attempts.remotes.get(&attempt_id).ok_or_else(|| closed(&attempt_id))?;
    if known.answer.is_some() {
        return Ok(OutputsAnswer { wanted: Vec::new() });
    }
    require_open(&attempt_id, &known)?;
    check(&known, &request)?;
    let total_bytes = request.files.iter().map(|file| file.size_bytes).fold(0, u64::saturating_add);
    let held_bytes = attempts.context.accounting().index.space.held_by(&Holder::Named(known.reservation_id.clone())).unwrap_or(0);
    if held_bytes < total_bytes {
        return Err(too_large(&attempt_id, total_bytes, held_bytes));
    }
    let path = attempts.context.store.remote_path(&attempt_id);
    let (outputs, fresh, request) = (known.outputs.clone(), known.sent.as_deref() != Some(&request), Arc::new(request));
    let sent = request.clone();
    let wanted = blocking(move || {
        if fresh {
            drop_sent(&path)?;
            make_tree(&path.join(TREE), &outputs, &sent)?;
            save_sent(&path, &sent)?;
        }
        let wanted = sent.files.iter().enumerate().filter(|(_, file)| !is_here(&path.join(TREE), &outputs, file));
        Ok(wanted.map(|(number, _)| number).collect())
    });
    let wanted = wanted.await?;
    known.sent = Some(request);
    attempts.remotes.remember(&attempt_id, known);
    Ok(OutputsAnswer { wanted })
}

fn require_open(attempt_id: &str, known: &Remote) -> Result<(), ApiError> {
    match known.state {
        AttemptState::Open => Ok(()),
        _ => Err(closed(attempt_id)),
    }
}

fn check(known: &Remote, request: &OutputsRequest) -> Result<(), ApiError> {
    let of = |number: usize| {
        known
            .outputs
            .get(number)
            .ok_or_else(|| bad_request("outputs", format!("there is no output with the number {number}; count from 0")))
    };
    for file in &request.files {
        let output = of(file.output)?;
        match output.kind {
            ReplicaKind::File if file.path.is_empty() => {}
            ReplicaKind::File => {
                return Err(bad_request(&file.path, format!("{} is declared as a file and has no files below it", output.path)))
            }
            ReplicaKind::Directory => check_relative_path(&file.path)?,
        }
        if blake3::Hash::from_hex(&file.blake3).is_err() {
            return Err(bad_request(&output.path, format!("{:?} is no BLAKE3 in hex", file.blake3)));
        }
    }
    for folder in &request.folders {
        let output = of(folder.output)?;
        if output.kind != ReplicaKind::Directory || !(folder.path.is_empty() || is_relative_path(&folder.path)) {
            return Err(bad_request(&output.path, format!("{:?} is no directory of the output {}", folder.path, output.path)));
        }
    }
    let files = request.files.iter().map(|file| (file.output, file.path.clone()));
    match is_each_once(files.chain(request.folders.iter().map(|folder| (folder.output, folder.path.clone())))) {
        true => Ok(()),
        false => Err(bad_request("outputs", "two files or directories have the same path; name each once")),
    }
}

fn make_tree(tree: &Path, outputs: &[Output], request: &OutputsRequest) -> Result<(), ApiError> {
    make_directory(tree)?;
    let folders = request.folders.iter().map(|folder| place(tree, outputs, folder.output, &folder.path));
    folders.into_iter().try_for_each(|folder| make_directory(&folder))
}

fn place(tree: &Path, outputs: &[Output], output: usize, path: &str) -> PathBuf {
    let top = tree.join(&outputs[output].path);
    if path.is_empty() {
        top
    } else {
        top.join(path)
    }
}

fn is_here(tree: &Path, outputs: &[Output], file: &OutputFile) -> bool {
    let found = place(tree, outputs, file.output, &file.path).symlink_metadata();
    found.is_ok_and(|found| found.is_file() && found.len() == file.size_bytes)
}

/// Of outputs that are not committed yet: all that was announced has come.
pub fn require_all(attempts: &Attempts, attempt_id: &str, known: &Remote) -> Result<(), ApiError> {
    let tree = attempts.context.store.remote_path(attempt_id).join(TREE);
    make_directory(&tree)?;
    let fresh = uncommitted(attempts, &known.outputs)?;
    let is_fresh = |file: &&OutputFile| {
        let output = &known.outputs[file.output];
        fresh.iter().any(|fresh| (&fresh.file_id, &fresh.generation) == (&output.file_id, &output.generation))
    };
    let announced = known.sent.iter().flat_map(|sent| &sent.files).filter(is_fresh);
    match announced.into_iter().find(|file| !is_here(&tree, &known.outputs, file)) {
        None => Ok(()),
        Some(file) => {
            let path = place(Path::new(""), &known.outputs, file.output, &file.path).display().to_string();
            Err(bad_request(&path, format!("{path} was announced and has not come; send it, then commit")))
        }
    }
}

struct Announced {
    known: Remote,
    file: OutputFile,
    tree: PathBuf,
    target: PathBuf,
}

fn announced(attempts: &Attempts, attempt_id: &str, number: &str) -> Result<Announced, ApiError> {
    let known = attempts.remotes.get(attempt_id).ok_or_else(|| closed(attempt_id))?;
    require_open(attempt_id, &known)?;
    let file = known.sent.as_ref().and_then(|sent| sent.files.get(number.parse::<usize>().ok()?)).cloned();
    let file =
        file.ok_or_else(|| bad_request(number, format!("no file with the number {number:?} was announced; announce all outputs first")))?;
    let tree = attempts.context.store.remote_path(attempt_id).join(TREE);
    let target = place(&tree, &known.outputs, file.output, &file.path);
    Ok(Announced { known, file, tree, target })
}

fn mode(executable: bool) -> u32 {
    if executable {
        0o700
    } else {
        0o600
    }
}

fn another(path: &Path) -> ApiError {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let message = format!("what came of the output {name} has another content than was announced; nothing of it was kept, send it again");
    ApiError::new(Code::ChecksumMismatch, name, message)
}

/// One file that comes by itself.
pub struct Arriving {
    attempts: Arc<Attempts>,
    attempt_id: String,
    number: String,
    file: Arc<File>,
    part: PathBuf,
    hasher: blake3::Hasher,
    pub size_bytes: u64,
    pub offset: u64,
}

impl Arriving {
    pub async fn begin(attempts: Arc<Attempts>, attempt_id: String, number: String) -> Result<Self, ApiError> {
        let about = announced(&attempts, &attempt_id, &number)?;
        let directory = attempts.context.store.remote_path(&attempt_id).join(PART);
        let part = directory.join(format!("{number}.{:016x}", rand::random::<u64>()));
        let (made, executable) = (part.clone(), about.file.executable);
        let file = blocking(move || {
            make_directory(&directory)?;
            OpenOptions::new().create_new(true).write(true).mode(mode(executable)).open(&made).map_err(at("making", &made))
        });
        let file = Arc::new(file.await?);
        let size_bytes = about.file.size_bytes;
        Ok(Self { attempts, attempt_id, number, file, part, hasher: blake3::Hasher::new(), size_bytes, offset: 0 })
    }

    pub async fn take(&mut self, bytes: Bytes) -> Result<(), ApiError> {
        let (file, path, offset) = (self.file.clone(), self.part.clone(), self.offset);
        self.offset += bytes.len() as u64;
        self.hasher.update(&bytes);
        blocking(move || file.write_all_at(&bytes, offset).map_err(at("writing", &path))).await
    }

    /// Nothing comes in under a close.
    pub async fn end(self) -> Result<(), ApiError> {
        let lock = self.attempts.lock_of(&self.attempt_id);
        let _locked = lock.lock().await;
        let about = announced(&self.attempts, &self.attempt_id, &self.number)?;
        if (self.offset, self.hasher.finalize().to_hex().as_str())
            != (about.file.size_bytes, about.file.blake3.to_ascii_lowercase().as_str())
        {
            return Err(another(&about.target));
        }
        let part = self.part.clone();
        blocking(move || {
            make_directory(about.target.parent().unwrap_or(&about.tree))?;
            std::fs::rename(&part, &about.target).map_err(at("renaming", &about.target))
        })
        .await
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        // It has its name in the tree, or came for nothing.
        let _ = std::fs::remove_file(&self.part);
    }
}

/// Small files of a pack: puts whose file id is their number.
pub async fn put_small(attempts: Arc<Attempts>, attempt_id: String, asked: Vec<Result<Ask, ApiError>>) -> Vec<Outcome> {
    let lock = attempts.lock_of(&attempt_id);
    let _locked = lock.lock().await;
    let count = asked.len();
    let worker = attempts.clone();
    let put = move || Ok(asked.into_iter().map(|ask| ask.and_then(|ask| put_one(&worker, &attempt_id, ask))).collect::<Vec<_>>());
    match blocking(put).await {
        Ok(done) => done.into_iter().map(|done| done.map_or_else(Outcome::Failed, Outcome::Answered)).collect(),
        Err(error) => (0..count).map(|_| Outcome::Failed(error.clone())).collect(),
    }
}

fn put_one(attempts: &Attempts, attempt_id: &str, ask: Ask) -> Result<Answered, ApiError> {
    let Ask::Put { key: ReplicaKey { file_id: number, .. }, content, .. } = ask else {
        return Err(bad_request(attempt_id, "a pack of outputs holds puts only; read inputs by POST /v1/packs"));
    };
    let about = announced(attempts, attempt_id, &number)?;
    let found = hex(*blake3::hash(&content).as_bytes());
    if (content.len() as u64, &found) != (about.file.size_bytes, &about.file.blake3.to_ascii_lowercase()) {
        return Err(another(&about.target));
    }
    if is_here(&about.tree, &about.known.outputs, &about.file) {
        return Ok(Answered::Put { already: true, missing: Vec::new() });
    }
    make_directory(about.target.parent().unwrap_or(&about.tree))?;
    let made = OpenOptions::new().create(true).truncate(true).write(true).mode(mode(about.file.executable)).open(&about.target);
    let written = made.and_then(|file| file.write_all_at(&content, 0));
    written.map_err(at("writing", &about.target))?;
    Ok(Answered::Put { already: false, missing: Vec::new() })
}
