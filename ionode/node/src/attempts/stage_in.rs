//! Stage-in: a fresh sandbox, leases on what the job reads, copies and empty targets for mounts.
//!
//! The one rule: all or nothing; a sandbox that could not be furnished is gone again, with its leases.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{DirBuilder, File};
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use nix::errno::Errno;
use stager_core::error::{ApiError, Code};
use stager_core::ids::{check_id, check_relative_path};
use stager_core::replica::{Replica, ReplicaKey, ReplicaKind};

use super::direct;
use super::table::{boot_id, keys, save, Attempt, Attempts, Link};
use crate::blocking::blocking;
use crate::context::Cause;
use crate::failure::{at, bad_request, disk};
use crate::sandbox::checked_directory;
use crate::sandbox::folder::Folder;
use crate::sandbox::{copy, folder};
use crate::store::snapshot::snapshot;
use crate::store::tree::Manifest;
use crate::store::Place;
use crate::wire::{InputAccess, MountOrder, StageInAnswer, StageInRequest};

pub async fn stage_in(
    attempts: Arc<Attempts>,
    cause: Cause,
    attempt_id: String,
    mut request: StageInRequest,
) -> Result<StageInAnswer, ApiError> {
    attempts.context.refuse_if_draining(&attempt_id)?;
    let sandbox = checked_directory(&request.sandbox_dir, attempts.context.store.root())?;
    direct::check(&request.direct)?;
    check_inputs(&request)?;
    if let Some(reservation) = request.reservation.take() {
        check_id("reservation id", &reservation.id)?;
        attempts.context.set_reservation(&reservation.id, reservation.bytes)?;
    }
    let lock = attempts.lock_of(&attempt_id);
    let _locked = lock.lock().await;
    if let Some(known) = attempts.get(&attempt_id) {
        if known.request == request {
            return Ok(known.answer);
        }
        return Err(bad_request(
            &attempt_id,
            format!("the attempt {attempt_id} was staged in before with other inputs; release it first or use a new id"),
        ));
    }
    let keys = keys(&request);
    attempts.context.accounting().index.lease(&attempt_id, &keys)?;
    let sound = match attempts.fingerprints.require_sound(&cause, &keys).await {
        Ok(()) => direct::require(&attempts, &request.direct).await,
        unsound => unsound,
    };
    let furnished = match sound {
        Ok(()) => {
            let (worker, id) = (attempts.clone(), attempt_id.clone());
            blocking(move || furnish(&worker, &id, &sandbox, request)).await
        }
        Err(error) => Err(error),
    };
    match furnished {
        Ok(attempt) => {
            let answer = attempt.answer.clone();
            attempts.remember(&attempt_id, attempt);
            Ok(answer)
        }
        Err(error) => {
            attempts.context.accounting().index.end_lease(&attempt_id);
            Err(error)
        }
    }
}

pub(super) fn check_inputs(request: &StageInRequest) -> Result<(), ApiError> {
    let mut paths: BTreeSet<String> = request.direct.iter().map(|input| format!("{}/", input.path)).collect();
    for input in &request.inputs {
        check_id("file_id", &input.file_id)?;
        check_id("generation", &input.generation)?;
        check_relative_path(&input.path)?;
        paths.insert(format!("{}/", input.path));
    }
    if paths.len() < request.inputs.len() + request.direct.len() {
        return Err(bad_request("inputs", "two inputs have the same path; give each its own"));
    }
    match paths.iter().zip(paths.iter().skip(1)).find(|(one, next)| next.starts_with(one.as_str())) {
        Some((one, next)) => {
            Err(bad_request(next.trim_end_matches('/'), format!("the input {next} lies inside the input {one}; keep them apart")))
        }
        None => Ok(()),
    }
}

fn furnish(attempts: &Attempts, attempt_id: &str, sandbox: &Path, request: StageInRequest) -> Result<Attempt, ApiError> {
    make_sandbox(sandbox)?;
    let furnished = fill(attempts, sandbox, request)
        .and_then(|attempt| save(&attempts.context.store.attempt_path(attempt_id), &attempt).map(|()| attempt));
    if furnished.is_err() {
        if let Err(error) = folder::remove_tree(sandbox) {
            tracing::warn!(sandbox = %sandbox.display(), %error, "a half-furnished sandbox cannot be removed");
        }
    }
    furnished
}

fn make_sandbox(sandbox: &Path) -> Result<(), ApiError> {
    let parent = sandbox.parent().expect("checked to have one");
    DirBuilder::new().recursive(true).mode(0o700).create(parent).map_err(at("making", parent))?;
    DirBuilder::new().mode(0o700).create(sandbox).map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            let subject = sandbox.display().to_string();
            ApiError::new(
                Code::DestinationExists,
                &subject,
                format!("the sandbox {subject} exists; an attempt gets a fresh one: remove it or name another"),
            )
        }
        _ => disk("making", sandbox, &error),
    })
}

fn fill(attempts: &Attempts, sandbox: &Path, request: StageInRequest) -> Result<Attempt, ApiError> {
    let mut answer = StageInAnswer { mounts: Vec::new(), copied_bytes: 0 };
    let mut links: Vec<Link> = Vec::new();
    let mut folders = Folders { sandbox, last: None };
    let keys: Vec<ReplicaKey> = request.inputs.iter().map(|input| ReplicaKey::new(&input.file_id, &input.generation)).collect();
    for number in attempts.context.store.in_reading_order(&keys) {
        let (input, key) = (&request.inputs[number], keys[number].clone());
        let replica = crate::replicas::whole(attempts.context.accounting().index.readable(&key)?.clone())?;
        let target = folders.make(&input.path)?;
        let content = attempts.context.store.content(&replica)?;
        // What lies in the log has no file to be linked: a copy of so little costs less than a mount.
        if input.access == InputAccess::Copy || matches!(content, Place::InLog(_)) {
            target.copy(content, &replica)?;
            answer.copied_bytes += replica.size_bytes;
            continue;
        }
        target.placeholder(replica.kind)?;
        if !links.iter().any(|link| link.key == key) {
            let snapshot = snapshot(&attempts.context.store, &replica)?;
            links.push(Link { fingerprint: snapshot.content, changed: Some(snapshot.changed), key: key.clone() });
        }
        answer.mounts.push(MountOrder {
            source: attempts.context.store.data_path(&key).display().to_string(),
            target: sandbox.join(&input.path).display().to_string(),
            directory: replica.kind == ReplicaKind::Directory,
        });
    }
    for input in &request.direct {
        folders.make(&input.path)?.placeholder(ReplicaKind::File)?;
        answer.mounts.push(direct::order(attempts, input, sandbox)?);
    }
    Ok(Attempt { boot_id: boot_id(), request, answer, links })
}

/// Places in a sandbox that nobody else sees yet, so the folder of the last one serves the next.
struct Folders<'a> {
    sandbox: &'a Path,
    last: Option<(Vec<&'a str>, Rc<Folder>)>,
}

impl<'a> Folders<'a> {
    fn make(&mut self, path: &'a str) -> Result<Target<'a>, ApiError> {
        let (parents, name) = folder::split(path);
        let full = self.sandbox.join(path);
        if let Some((_, folder)) = self.last.as_ref().filter(|(last, _)| *last == parents) {
            return Ok(Target { folder: folder.clone(), name, path: full });
        }
        let folder = Folder::open(self.sandbox).and_then(|top| enter_made(top, &parents));
        let folder = Rc::new(folder.map_err(at("making", &full))?);
        self.last = Some((parents, folder.clone()));
        Ok(Target { folder, name, path: full })
    }
}

/// A place in the sandbox whose parents exist.
struct Target<'a> {
    folder: Rc<Folder>,
    name: &'a OsStr,
    path: PathBuf,
}

impl Target<'_> {
    fn placeholder(&self, kind: ReplicaKind) -> Result<(), ApiError> {
        let made = match kind {
            ReplicaKind::File => self.folder.make_file(self.name, 0o600).map(drop),
            ReplicaKind::Directory => self.folder.make_folder(self.name, 0o700),
        };
        made.map_err(at("making", &self.path))
    }

    fn copy(&self, content: Place, replica: &Replica) -> Result<(), ApiError> {
        let (source, manifest) = match content {
            Place::InLog(bytes) => {
                let made = self.folder.make_file(self.name, mode(replica.executable)).map_err(at("making", &self.path))?;
                return (&made).write_all(&bytes).map_err(at("writing", &self.path));
            }
            Place::File(source) => return copy_file(&source, replica.size_bytes, replica.executable, &self.folder, self.name, &self.path),
            Place::Tree { top, manifest } => (top, Manifest::read(&manifest)?),
        };
        self.folder.make_folder(self.name, 0o700).map_err(at("making", &self.path))?;
        for below in manifest.folders() {
            let (parents, name) = folder::split(&below);
            let made = self.top().and_then(|top| top.descend(&parents)).and_then(|parent| parent.make_folder(name, 0o700));
            made.map_err(at("making", &self.path.join(&below)))?;
        }
        for member in &manifest.members {
            let (parents, name) = folder::split(&member.path);
            let path = self.path.join(&member.path);
            let parent = self.top().and_then(|top| top.descend(&parents)).map_err(at("opening", &path))?;
            copy_file(&source.join(&member.path), member.size_bytes, member.executable, &parent, name, &path)?;
        }
        Ok(())
    }

    fn top(&self) -> Result<Folder, Errno> {
        self.folder.child(self.name)
    }
}

fn enter_made(top: Folder, parents: &[&str]) -> Result<Folder, Errno> {
    parents.iter().try_fold(top, |folder, name| match folder.make_folder(OsStr::new(name), 0o700) {
        Ok(()) | Err(Errno::EEXIST) => folder.child(OsStr::new(name)),
        Err(errno) => Err(errno),
    })
}

fn mode(executable: bool) -> u32 {
    if executable {
        0o700
    } else {
        0o600
    }
}

fn copy_file(source: &Path, size_bytes: u64, executable: bool, parent: &Folder, name: &OsStr, path: &Path) -> Result<(), ApiError> {
    let from = File::open(source).map_err(at("opening", source))?;
    let mut to = parent.make_file(name, mode(executable)).map_err(at("making", path))?;
    copy::content(&from, source, &mut to, size_bytes)
}
