//! Inputs that a job reads in place, through a watched mount of their origin. Knows mounts and origins.
//!
//! The one rule: the origin itself is asked, before and after, whether the file is the one that is meant; the mount is never asked, since it
//! may hang.

use std::path::Path;

use stager_core::error::{ApiError, Code};
use stager_core::ids::{check_id, check_relative_path};
use stager_mounts::State;
use stager_origins::EntryKind;

use super::table::Attempts;
use crate::wire::{DirectInput, DirectSeen, DirectState, MountOrder};

pub fn check(inputs: &[DirectInput]) -> Result<(), ApiError> {
    inputs.iter().try_for_each(|input| {
        check_id("origin id", &input.origin_id)?;
        check_relative_path(&input.origin_path)?;
        check_relative_path(&input.path)
    })
}

/// All are there, as they are meant, and mounted.
pub async fn require(attempts: &Attempts, inputs: &[DirectInput]) -> Result<(), ApiError> {
    for input in inputs {
        mounted(attempts, input)?;
        if state_at_origin(attempts, input).await? == DirectState::Changed {
            let path = &input.origin_path;
            let message = format!("{path} changed at its origin since {} was seen there; plan again with what is there now", input.token);
            return Err(ApiError::new(Code::SourceChanged, path, message));
        }
    }
    Ok(())
}

/// Where the reaper finds it.
pub fn order(attempts: &Attempts, input: &DirectInput, sandbox: &Path) -> Result<MountOrder, ApiError> {
    Ok(MountOrder { source: mounted(attempts, input)?, target: sandbox.join(&input.path).display().to_string(), directory: false })
}

pub async fn seen_after(attempts: &Attempts, inputs: &[DirectInput]) -> Vec<DirectSeen> {
    let states = inputs.iter().map(|input| async {
        DirectSeen { path: input.path.clone(), state: state_at_origin(attempts, input).await.unwrap_or(DirectState::Unknown) }
    });
    futures::future::join_all(states).await
}

fn mounted(attempts: &Attempts, input: &DirectInput) -> Result<String, ApiError> {
    let (id, path) = (&input.origin_id, &input.origin_path);
    match attempts.mounts.get(id) {
        Some(mount) if mount.state == State::Mounted => Ok(mount.path.join(path).display().to_string()),
        Some(mount) => {
            let why = mount.message.unwrap_or_default();
            let message = format!(
                "{path} cannot be read directly: the mount of {id} is away ({why}); the node mounts it again when the origin answers"
            );
            Err(ApiError::new(Code::OriginUnreachable, path, message))
        }
        None => {
            let message = format!("{path} cannot be read directly: the origin {id} is not mounted; put its mount first");
            Err(ApiError::new(Code::BadRequest, path, message))
        }
    }
}

async fn state_at_origin(attempts: &Attempts, input: &DirectInput) -> Result<DirectState, ApiError> {
    match attempts.context.origin(&input.origin_id)?.origin.stat(&input.origin_path).await {
        Ok(found) => {
            let same = found.kind == EntryKind::File && (found.size_bytes, &found.token) == (input.size_bytes, &input.token);
            Ok(if same { DirectState::Same } else { DirectState::Changed })
        }
        Err(error) if error.code == Code::NotFound => Ok(DirectState::Changed),
        Err(error) => Err(error),
    }
}
