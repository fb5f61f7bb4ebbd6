//! Stage-out on another host: what the job left is looked at here, sent, and committed there. Knows the sandbox, not how contents go.
//!
//! The one rule: outputs are judged before a byte is sent, and stay in the sandbox until the node has committed them.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use stager_core::error::{ApiError, Code};
use stager_core::replica::ReplicaKind;

use super::sending::{announced, send_all};
use super::{Beside, Remote};
use crate::blocking::blocking;
use crate::failure::{at, bad_request, Failure};
use crate::sandbox::folder::{split, Folder};
use crate::sandbox::judge::{judged, UNDECLARED_NAMED_MAX};
use crate::sandbox::survey::{self, Found};
use crate::wire::{AttemptState, CommitRequest, Output, OutputsAnswer, RemoteRelease, StageOutAnswer, StageOutRequest};

/// The node reads and syncs all outputs meanwhile; whether it lives is asked beside it.
const COMMIT_WITHIN: Duration = Duration::from_secs(6 * 3600);
const ANNOUNCE_WITHIN: Duration = Duration::from_secs(120);

pub async fn stage_out(remote: Arc<Remote>, request: StageOutRequest) -> Result<StageOutAnswer, Failure> {
    let beside = Arc::new(Beside::of(&request.sandbox_dir)?);
    if request.replicas.is_some() {
        return Err(
            ApiError::new(Code::Unsupported, &remote.attempt_id, "outputs from another host go to one node; copy them from there").into()
        );
    }
    let _locked = beside.locked().await?;
    let request = Arc::new(request);
    let answer = remote.again(|| taken(&remote, &beside, &request)).await?;
    match &request.release {
        Some(release) => beside.remove(release.remove_sandbox).await?,
        None => {
            let (top, outputs) = (beside.sandbox.clone(), request.outputs.clone());
            blocking(move || clear(&top, &outputs)).await?;
        }
    }
    Ok(answer)
}

async fn taken(remote: &Arc<Remote>, beside: &Arc<Beside>, request: &Arc<StageOutRequest>) -> Result<StageOutAnswer, Failure> {
    let about = remote.about().await?;
    if about.outputs != request.outputs {
        let message = format!("the attempt {} was opened with other outputs; name the same ones", remote.attempt_id);
        return Err(bad_request(&remote.attempt_id, message).into());
    }
    let (top, asked, id) = (beside.sandbox.clone(), request.clone(), remote.attempt_id.clone());
    let fresh = about.state == AttemptState::Open;
    let looked = blocking(move || Ok(look(&top, &id, &asked, fresh))).await??;
    let (found, undeclared, undeclared_count) = looked;
    if fresh {
        let files = announced(&beside.sandbox, found).await?;
        let answer: OutputsAnswer = remote.call("PUT", "/outputs", &files.request, ANNOUNCE_WITHIN).await?;
        send_all(remote, files, &answer.wanted).await?;
    }
    let release = request.release.as_ref().map(|release| RemoteRelease { reservation_id: release.reservation_id.clone() });
    let body = CommitRequest { want_sha256: request.want_sha256, release };
    let answer: StageOutAnswer = remote.call("POST", "/commit", &body, COMMIT_WITHIN).await?;
    Ok(StageOutAnswer { undeclared, undeclared_count, ..answer })
}

type Looked = (Vec<(usize, Output, Found)>, Vec<String>, u64);

/// As the node does where it sees the sandbox itself.
fn look(top: &Path, attempt_id: &str, request: &StageOutRequest, fresh: bool) -> Result<Looked, Failure> {
    let declared = request.outputs.iter().map(|output| output.path.as_str());
    let known: HashSet<&str> = declared.chain(request.mounts.iter().chain(&request.keep).map(String::as_str)).collect();
    let (undeclared, count) = survey::undeclared(top, &known, UNDECLARED_NAMED_MAX)?;
    if !fresh {
        return Ok((Vec::new(), undeclared, count));
    }
    let looked = request.outputs.iter().map(|output| Ok((output.clone(), survey::output(top, &output.path, output.kind)?)));
    let found = judged(attempt_id, looked.collect::<Result<Vec<_>, ApiError>>()?)?;
    let number = |output: &Output| request.outputs.iter().position(|other| other.path == output.path).expect("it is one of them");
    Ok((found.into_iter().map(|(output, found)| (number(&output), output, found)).collect(), undeclared, count))
}

/// As where the node sees the sandbox: what was committed is not in it any more.
fn clear(top: &Path, outputs: &[Output]) -> Result<(), ApiError> {
    for output in outputs.iter().filter(|output| matches!(output.kind, ReplicaKind::File | ReplicaKind::Directory)) {
        let (parents, name) = split(&output.path);
        let removed = Folder::open(top).and_then(|top| top.descend(&parents)).and_then(|folder| folder.remove(name));
        match removed {
            Err(nix::errno::Errno::ENOENT) | Ok(()) => {}
            Err(errno) => return Err(at("removing", &top.join(&output.path))(errno)),
        }
    }
    Ok(())
}
