//! Stage-out: the declared outputs of a job become replicas, all in one log record.
//!
//! The one rule: outputs stay in the sandbox until the log names their replicas, so a crash loses neither.

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use stager_core::error::{ApiError, Code};
use stager_core::ids::{check_id, check_relative_path};
use stager_core::replica::{Replica, ReplicaKey, ReplicaKind};
use stager_core::space::Holder;

use super::table::Attempts;
use crate::blocking::blocking;
use crate::failure::{at, bad_request, Failure};
use crate::sandbox::checked_directory;
use crate::sandbox::folder::{split, Folder};
use crate::sandbox::judge::{judged, too_large, UNDECLARED_NAMED_MAX};
use crate::sandbox::survey::{self, Found, Survey};
use crate::store::from_sandbox::{take_file, take_small, take_tree, INLINE_BYTES_TOGETHER, SYNC_TOGETHER_FROM};
use crate::store::snapshot::{snapshot, Snapshot};
use crate::store::Store;
use crate::wire::{Output, StageOutAnswer, StageOutRequest};

/// An output that is there and not committed yet.
struct Wanted {
    output: Output,
    key: ReplicaKey,
    found: Found,
}

pub async fn stage_out(attempts: Arc<Attempts>, attempt_id: String, request: StageOutRequest) -> Result<StageOutAnswer, Failure> {
    let sandbox = checked_directory(&request.sandbox_dir, attempts.context.store.root())?;
    check_outputs(&request)?;
    let lock = attempts.lock_of(&attempt_id);
    let _locked = lock.lock().await;
    take(attempts, attempt_id, request, sandbox).await
}

/// Under the lock of the attempt, what was checked.
pub(super) async fn take(
    attempts: Arc<Attempts>,
    attempt_id: String,
    request: StageOutRequest,
    sandbox: PathBuf,
) -> Result<StageOutAnswer, Failure> {
    let fresh: Vec<Output> = uncommitted(&attempts, &request.outputs)?;
    let (worker, asked, root) = (attempts.clone(), request.clone(), sandbox.clone());
    let surveyed = blocking(move || survey_all(&worker, &root, &asked, fresh)).await?;
    let (surveys, undeclared, undeclared_count) = surveyed;
    let found = judged(&attempt_id, surveys)?;
    let key = |output: &Output| ReplicaKey::new(&output.file_id, &output.generation);
    let wanted: Vec<Wanted> = found.into_iter().map(|(output, found)| Wanted { key: key(&output), output, found }).collect();
    if !wanted.is_empty() {
        commit(&attempts, &attempt_id, &request, &sandbox, wanted).await?;
    }
    let accounting = attempts.context.accounting();
    let committed = |output: &Output| accounting.index.replica(&ReplicaKey::new(&output.file_id, &output.generation)).cloned();
    let outputs = request.outputs.iter().filter_map(committed).collect();
    Ok(StageOutAnswer { outputs, undeclared, undeclared_count, released: None, replication: None })
}

pub(super) fn check_outputs(request: &StageOutRequest) -> Result<(), ApiError> {
    check_id("reservation_id", &request.reservation_id)?;
    let mut paths = BTreeSet::new();
    let mut keys = HashSet::new();
    for output in &request.outputs {
        check_id("file_id", &output.file_id)?;
        check_id("generation", &output.generation)?;
        check_relative_path(&output.path)?;
        if !keys.insert((&output.file_id, &output.generation)) {
            return Err(bad_request(&output.file_id, "two outputs have the same file id and generation; give each its own"));
        }
        if !paths.insert(format!("{}/", output.path)) {
            return Err(bad_request(&output.path, "two outputs have the same path; declare it once"));
        }
    }
    let overlap = paths.iter().zip(paths.iter().skip(1)).find(|(one, next)| next.starts_with(one.as_str()));
    if let Some((one, next)) = overlap {
        return Err(bad_request(
            next.trim_end_matches('/'),
            format!("the output {next} lies inside the output {one}; declare one of them"),
        ));
    }
    match request.mounts.iter().find(|mount| paths.contains(&format!("{mount}/"))) {
        Some(mount) => Err(bad_request(mount, format!("{mount} is a linked input and cannot be an output; give the output another path"))),
        None => Ok(()),
    }
}

pub(super) fn uncommitted(attempts: &Attempts, outputs: &[Output]) -> Result<Vec<Output>, ApiError> {
    let accounting = attempts.context.accounting();
    let mut fresh = Vec::new();
    for output in outputs {
        let key = ReplicaKey::new(&output.file_id, &output.generation);
        if accounting.index.is_leaving(&key) {
            return Err(ApiError::new(Code::ReplicaBusy, &key.file_id, format!("replica {key} is being deleted; use a new generation")));
        }
        if accounting.index.replica(&key).is_none() {
            fresh.push(output.clone());
        }
    }
    Ok(fresh)
}

type Surveyed = (Vec<(Output, Survey)>, Vec<String>, u64);

fn survey_all(attempts: &Attempts, root: &Path, request: &StageOutRequest, fresh: Vec<Output>) -> Result<Surveyed, ApiError> {
    let mut surveys = Vec::new();
    for output in fresh {
        // What a crash left half taken would count as a second link to the output.
        attempts.context.store.remove_bytes(&ReplicaKey::new(&output.file_id, &output.generation))?;
        let survey = survey::output(root, &output.path, output.kind)?;
        surveys.push((output, survey));
    }
    let declared = request.outputs.iter().map(|output| output.path.as_str());
    let known: HashSet<&str> = declared.chain(request.mounts.iter().chain(&request.keep).map(String::as_str)).collect();
    let (undeclared, count) = survey::undeclared(root, &known, UNDECLARED_NAMED_MAX)?;
    Ok((surveys, undeclared, count))
}

async fn commit(
    attempts: &Arc<Attempts>,
    attempt_id: &str,
    request: &StageOutRequest,
    sandbox: &Path,
    wanted: Vec<Wanted>,
) -> Result<(), Failure> {
    let total_bytes = wanted.iter().map(|wanted| wanted.found.size_bytes()).sum();
    let holder = Holder::Transfer(format!("stage-out {attempt_id}"));
    let reservation = Holder::Named(request.reservation_id.clone());
    hold(attempts, attempt_id, &reservation, &holder, total_bytes)?;
    let outcome = take_all(attempts, request, sandbox, wanted, &holder).await;
    let mut accounting = attempts.context.accounting();
    let rest = accounting.index.space.held_by(&holder).unwrap_or(0);
    accounting.index.space.hand_over(&holder, &reservation, rest);
    outcome.map_err(Failure::from)
}

/// From here on the bytes are this stage-out's, whatever happens to the reservation meanwhile.
fn hold(attempts: &Attempts, attempt_id: &str, reservation: &Holder, holder: &Holder, total_bytes: u64) -> Result<(), Failure> {
    let mut accounting = attempts.context.accounting();
    let held = accounting.index.space.held_by(reservation).unwrap_or(0);
    if held < total_bytes {
        return Err(too_large(attempt_id, total_bytes, held));
    }
    accounting.index.space.hand_over(reservation, holder, total_bytes);
    Ok(())
}

async fn take_all(
    attempts: &Arc<Attempts>,
    request: &StageOutRequest,
    sandbox: &Path,
    wanted: Vec<Wanted>,
    holder: &Holder,
) -> Result<(), ApiError> {
    let (worker, root, want_sha256) = (attempts.clone(), sandbox.to_owned(), request.want_sha256);
    let (wanted, taken, together) = blocking(move || {
        let store = &worker.context.store;
        let in_log = in_log(store, &wanted);
        let together = in_log.iter().filter(|in_log| !**in_log).count() >= SYNC_TOGETHER_FROM;
        let one = |(wanted, in_log): (&Wanted, &bool)| take_one(store, &root, wanted, want_sha256, *in_log, !together);
        let all = wanted.iter().zip(&in_log).map(one).collect::<Result<Vec<Taken>, _>>();
        let all = all.and_then(|taken| match together {
            true => store.durability.file_system(store.root()).map(|()| taken),
            false => Ok(taken),
        });
        match all {
            Ok(taken) => Ok((wanted, taken, together)),
            Err(error) => {
                wanted.iter().try_for_each(|wanted| store.remove_bytes(&wanted.key))?;
                Err(error)
            }
        }
    })
    .await?;
    // One sync of the whole file system has put their names on the disk, too.
    let unsynced = taken.iter().filter(|taken| taken.content.is_none() && !together);
    let shards = unsynced.map(|taken| attempts.context.store.shard_directory(&taken.replica.key())).collect();
    let commits = taken.iter().map(|taken| (&taken.replica, taken.content.clone()));
    attempts.context.store.commit(commits, &[], shards).await?;
    let replicas: Vec<Replica> = taken.iter().map(|taken| taken.replica.clone()).collect();
    attempts.context.accounting().index.commit(holder, &replicas);
    let (worker, root) = (attempts.clone(), sandbox.to_owned());
    blocking(move || {
        clear_outputs(&root, &wanted)?;
        taken.iter().for_each(|taken| remember(&worker, taken));
        Ok(())
    })
    .await
}

/// An output as a replica: its content, where that goes into the log, or a snapshot of its files.
struct Taken {
    replica: Replica,
    content: Option<Bytes>,
    snapshot: Option<Snapshot>,
}

/// Which of them go into the log: small ones, as far as one record may carry them.
fn in_log(store: &Store, wanted: &[Wanted]) -> Vec<bool> {
    let mut left = INLINE_BYTES_TOGETHER;
    let fits = |wanted: &Wanted| {
        let size_bytes = wanted.found.size_bytes();
        let fits = wanted.output.kind == ReplicaKind::File && size_bytes <= store.inline_bytes_max && size_bytes <= left;
        left -= if fits { size_bytes } else { 0 };
        fits
    };
    wanted.iter().map(fits).collect()
}

fn take_one(store: &Store, root: &Path, wanted: &Wanted, want_sha256: bool, in_log: bool, synced: bool) -> Result<Taken, ApiError> {
    let Wanted { output, key, found } = wanted;
    if in_log {
        let (replica, content) = take_small(root, &output.path, key, &found.files[0], want_sha256)?;
        return Ok(Taken { replica, content: Some(content), snapshot: None });
    }
    let (replica, snapshot) = match output.kind {
        ReplicaKind::File => take_file(store, root, &output.path, key, &found.files[0], want_sha256, synced)?,
        ReplicaKind::Directory => take_tree(store, root, &output.path, key, found, want_sha256)?,
    };
    Ok(Taken { replica, content: None, snapshot: Some(snapshot) })
}

/// The sandbox's name of it went just now, which the kernel counts as a change: only that may have happened since it was hashed.
fn remember(attempts: &Attempts, taken: &Taken) {
    let Some(before) = &taken.snapshot else { return };
    if let Some(now) = snapshot(&attempts.context.store, &taken.replica).ok().filter(|now| now.content == before.content) {
        attempts.fingerprints.set(&taken.replica.key(), now);
    }
}

/// The sandbox must not keep a writable name of what is a replica now.
fn clear_outputs(sandbox: &Path, wanted: &[Wanted]) -> Result<(), ApiError> {
    for wanted in wanted {
        let (parents, name) = split(&wanted.output.path);
        let removed = Folder::open(sandbox).and_then(|top| top.descend(&parents)).and_then(|folder| folder.remove(name));
        removed.map_err(at("removing", &sandbox.join(&wanted.output.path)))?;
    }
    Ok(())
}
