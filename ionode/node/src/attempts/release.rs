//! Release: the attempt's leases end, changed replicas are found out, the sandbox goes.
//!
//! The one rule: only a directory that belongs to the attempt is removed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use stager_core::error::ApiError;
use stager_core::replica::ReplicaKey;
use stager_core::space::Holder;

use super::direct;
use super::table::{Attempt, Attempts, Link};
use crate::blocking::blocking;
use crate::context::Cause;
use crate::failure::{at, bad_request};
use crate::sandbox::checked_directory;
use crate::sandbox::folder;
use crate::store::snapshot::snapshot;
use crate::wire::{ReleaseAnswer, ReleaseRequest};

pub async fn release(
    attempts: Arc<Attempts>,
    cause: Cause,
    attempt_id: String,
    request: ReleaseRequest,
) -> Result<ReleaseAnswer, ApiError> {
    let lock = attempts.lock_of(&attempt_id);
    let _locked = lock.lock().await;
    let attempt = attempts.get(&attempt_id);
    let sandbox = sandbox_of(&attempts, &attempt_id, attempt.as_ref(), &request)?;
    let changed = match &attempt {
        Some(attempt) if !attempt.links.is_empty() => changed_links(&attempts, attempt.clone()).await?,
        _ => Vec::new(),
    };
    let direct = match &attempt {
        Some(attempt) => direct::seen_after(&attempts, &attempt.request.direct).await,
        None => Vec::new(),
    };
    for key in &changed {
        if attempts.context.accounting().index.readable(key).is_ok() {
            attempts.context.quarantine(&cause, key, "was changed through a link by a job that reads it").await?;
        }
    }
    attempts.context.accounting().index.end_lease(&attempt_id);
    if let Some(reservation_id) = request.reservation_id {
        attempts.context.accounting().index.space.release(&Holder::Named(reservation_id));
    }
    let file = attempts.context.store.attempt_path(&attempt_id);
    blocking(move || {
        if let Some(sandbox) = sandbox {
            folder::remove_tree(&sandbox).map_err(at("removing", &sandbox))?;
        }
        match std::fs::remove_file(&file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(at::<std::io::Error>("removing", &file)(error)),
            _ => Ok(()),
        }
    })
    .await?;
    attempts.forget(&attempt_id);
    Ok(ReleaseAnswer { changed, direct })
}

/// Which directory to remove, if any.
fn sandbox_of(
    attempts: &Attempts,
    attempt_id: &str,
    attempt: Option<&Attempt>,
    request: &ReleaseRequest,
) -> Result<Option<PathBuf>, ApiError> {
    let asked = request.sandbox_dir.as_deref().map(|path| checked_directory(path, attempts.context.store.root())).transpose()?;
    if !request.remove_sandbox {
        return Ok(None);
    }
    match (attempt, asked) {
        (Some(attempt), None) => Ok(Some(PathBuf::from(&attempt.request.sandbox_dir))),
        (Some(attempt), Some(asked)) if Path::new(&attempt.request.sandbox_dir) == asked => Ok(Some(asked)),
        (Some(_), Some(asked)) => Err(foreign(attempt_id, &asked)),
        (None, None) => Ok(None),
        // After a reboot nothing is remembered: the name has to say whose it is.
        (None, Some(asked)) if asked.iter().any(|part| part == attempt_id) => Ok(Some(asked)),
        (None, Some(asked)) => Err(foreign(attempt_id, &asked)),
    }
}

fn foreign(attempt_id: &str, asked: &Path) -> ApiError {
    bad_request(
        asked.display().to_string(),
        format!("{} is not the sandbox of attempt {attempt_id}; name the one it was staged into", asked.display()),
    )
}

async fn changed_links(attempts: &Arc<Attempts>, attempt: Attempt) -> Result<Vec<ReplicaKey>, ApiError> {
    let worker = attempts.clone();
    blocking(move || Ok(attempt.links.iter().filter(|link| was_changed(&worker, link)).map(|link| link.key.clone()).collect())).await
}

/// Rights and names may change without harm: what nothing else speaks against is read again.
fn was_changed(attempts: &Attempts, link: &Link) -> bool {
    let Some(replica) = attempts.context.accounting().index.replica(&link.key).cloned() else { return false };
    let Ok(now) = snapshot(&attempts.context.store, &replica) else { return true };
    if now.content != link.fingerprint {
        return true;
    }
    let stirred = link.changed.as_ref().is_some_and(|before| *before != now.changed);
    stirred && !attempts.fingerprints.matches_now(&replica).unwrap_or(false)
}
