//! Release: the attempt's leases end, changed replicas are found out, the sandbox goes.
//!
//! The one rule: only a directory that belongs to the attempt is removed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use stager_core::error::ApiError;
use stager_core::replica::ReplicaKey;
use stager_core::space::Holder;

use super::{direct, Attempt, Link};
use crate::failure::{at, bad_request};
use crate::fingerprints::snapshot;
use crate::node::{checked_directory, Cause, Node};
use crate::replicas::{blocking, matches_now};
use crate::sandbox::folder;
use crate::wire::{ReleaseAnswer, ReleaseRequest};

pub async fn release(node: Arc<Node>, cause: Cause, attempt_id: String, request: ReleaseRequest) -> Result<ReleaseAnswer, ApiError> {
    let lock = node.attempts.lock_of(&attempt_id);
    let _locked = lock.lock().await;
    let attempt = node.attempts.get(&attempt_id);
    let sandbox = sandbox_of(&node, &attempt_id, attempt.as_ref(), &request)?;
    let changed = match &attempt {
        Some(attempt) if !attempt.links.is_empty() => changed_links(&node, attempt.clone()).await?,
        _ => Vec::new(),
    };
    let direct = match &attempt {
        Some(attempt) => direct::seen_after(&node, &attempt.request.direct).await,
        None => Vec::new(),
    };
    for key in &changed {
        if node.accounting().index.readable(key).is_ok() {
            node.quarantine(&cause, key, "was changed through a link by a job that reads it").await?;
        }
    }
    node.accounting().index.end_lease(&attempt_id);
    if let Some(reservation_id) = request.reservation_id {
        node.accounting().index.space.release(&Holder::Named(reservation_id));
    }
    let file = node.store.attempt_path(&attempt_id);
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
    node.attempts.forget(&attempt_id);
    Ok(ReleaseAnswer { changed, direct })
}

/// Which directory to remove, if any.
fn sandbox_of(node: &Node, attempt_id: &str, attempt: Option<&Attempt>, request: &ReleaseRequest) -> Result<Option<PathBuf>, ApiError> {
    let asked = request.sandbox_dir.as_deref().map(|path| checked_directory(path, node.store.root())).transpose()?;
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

async fn changed_links(node: &Arc<Node>, attempt: Attempt) -> Result<Vec<ReplicaKey>, ApiError> {
    let worker = node.clone();
    blocking(move || Ok(attempt.links.iter().filter(|link| was_changed(&worker, link)).map(|link| link.key.clone()).collect())).await
}

/// Rights and names may change without harm: what nothing else speaks against is read again.
fn was_changed(node: &Node, link: &Link) -> bool {
    let Some(replica) = node.accounting().index.replica(&link.key).cloned() else { return false };
    let Ok(now) = snapshot(&node.store, &replica) else { return true };
    if now.content != link.fingerprint {
        return true;
    }
    let stirred = link.changed.as_ref().is_some_and(|before| *before != now.changed);
    stirred && !matches_now(node, &replica).unwrap_or(false)
}
