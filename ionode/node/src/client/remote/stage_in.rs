//! Stage-in on another host: a sandbox with copies of all inputs. Knows the sandbox and the order, not how contents come.
//!
//! The one rule: a sandbox has its name when every input in it was found right.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use stager_core::error::{ApiError, Code};
use stager_core::ids::check_relative_path;

use super::fetching::fetch_all;
use super::{Beside, Remote};
use crate::blocking::blocking;
use crate::failure::{at, bad_request, Failure};
use crate::sandbox::folder;
use crate::store::durability::Durability;
use crate::store::files::{make_directory, write_whole};
use crate::wire::{InputContent, StageInAnswer, StageInRequest};

#[derive(Serialize, Deserialize)]
struct Record {
    attempt_id: String,
    request: StageInRequest,
    answer: StageInAnswer,
}

pub async fn stage_in(remote: Arc<Remote>, request: StageInRequest) -> Result<StageInAnswer, Failure> {
    let beside = Arc::new(Beside::of(&request.sandbox_dir)?);
    if let Some(direct) = request.direct.first() {
        let message = format!("{} cannot be read directly at its origin from another host; have it fetched to the node", direct.path);
        return Err(ApiError::new(Code::Unsupported, &direct.path, message).into());
    }
    let _locked = beside.locked().await?;
    if let Some(answer) = staged_before(&remote, &beside, &request)? {
        return Ok(answer);
    }
    let answer = remote.again(|| furnish(&remote, &beside, &request)).await?;
    let record = Record { attempt_id: remote.attempt_id.clone(), request, answer: answer.clone() };
    blocking(move || {
        let bytes = serde_json::to_vec(&record).expect("plain values");
        write_whole(&beside.record, &bytes, Durability(false))?;
        std::fs::rename(&beside.part, &beside.sandbox).map_err(at("renaming", &beside.sandbox))
    })
    .await?;
    Ok(answer)
}

fn staged_before(remote: &Remote, beside: &Beside, request: &StageInRequest) -> Result<Option<StageInAnswer>, ApiError> {
    if beside.sandbox.symlink_metadata().is_err() {
        return Ok(None);
    }
    let subject = beside.sandbox.display().to_string();
    let known = std::fs::read(&beside.record).ok().and_then(|bytes| serde_json::from_slice::<Record>(&bytes).ok());
    match known {
        Some(known) if known.attempt_id == remote.attempt_id && known.request == *request => Ok(Some(known.answer)),
        Some(known) if known.attempt_id == remote.attempt_id => {
            let message =
                format!("the attempt {} was staged in before with other inputs; release it first or use a new id", known.attempt_id);
            Err(bad_request(&known.attempt_id, message))
        }
        _ => {
            let message = format!("the sandbox {subject} exists; an attempt gets a fresh one: remove it or name another");
            Err(ApiError::new(Code::DestinationExists, &subject, message))
        }
    }
}

async fn furnish(remote: &Arc<Remote>, beside: &Arc<Beside>, request: &StageInRequest) -> Result<StageInAnswer, Failure> {
    let contents = contents(remote, request).await?;
    let part = beside.part.clone();
    blocking(move || {
        folder::remove_tree(&part).map_err(at("removing", &part))?;
        make_directory(&part)
    })
    .await?;
    let copied_bytes = contents.iter().map(|content| content.size_bytes).sum();
    fetch_all(remote, &beside.part, contents).await?;
    Ok(StageInAnswer { mounts: Vec::new(), copied_bytes })
}

/// Which contents they are is what the node said when the attempt was opened.
async fn contents(remote: &Remote, request: &StageInRequest) -> Result<Vec<InputContent>, ApiError> {
    let about = remote.about().await?;
    let mut known: BTreeMap<String, InputContent> = about.inputs.into_iter().map(|input| (input.path.clone(), input)).collect();
    let wanted = request.inputs.iter().map(|input| {
        let found = known.remove(&input.path).filter(|found| (&found.file_id, &found.generation) == (&input.file_id, &input.generation));
        let found = found.ok_or_else(|| {
            let message = format!("the attempt {} was not opened with {} as {}; open it so", remote.attempt_id, input.file_id, input.path);
            bad_request(&input.path, message)
        })?;
        check_relative_path(&found.path)?;
        Ok(found)
    });
    wanted.collect()
}
