//! `stager-ionode stage-in`, `stage-out`, `release` and `fetch-brief`: an attempt's side on a host that shares no files with the node.
//!
//! The one rule: a ticket comes by stdin and is never an argument, and a node that is gone holds nobody up.

mod fetching;
mod sending;
mod stage_in;
mod stage_out;

use std::future::Future;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use nix::fcntl::{Flock, FlockArg};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use stager_core::error::{ApiError, Class, Code};
use stager_core::ids::{check_id, is_relative_path};
use stager_origins::Secret;

use crate::blocking::blocking;
use crate::failure::{at, bad_request, Failure};
use crate::peers::link::{Address, Link, Term, ANSWER_WITHIN};
use crate::sandbox::folder;
use crate::tls::Anonymous;
use crate::wire::{AttemptAnswer, BriefAnswer, Empty, ErrorAnswer, ReleaseAnswer, ReleaseRequest, RemoteRelease};

const EXIT_FAULT: i32 = 1;
/// For so long a node that does not answer is asked again: it may be starting anew.
const ASKED_AGAIN_FOR: Duration = Duration::from_secs(30);
const ASKED_AGAIN_EVERY: Duration = Duration::from_millis(500);
/// A node that works on a call is asked meanwhile whether it lives, and the attempt with it.
const LOOK_EVERY: Duration = Duration::from_secs(10);
const SILENT_MAX: Duration = Duration::from_secs(60);

#[derive(Args, Clone, Debug)]
pub struct RemoteOptions {
    /// Where the order is read from: `-`, stdin
    #[arg(long, value_name = "-", value_parser = ["-"], required = true)]
    brief: String,
}

/// What stdin says. It holds a secret and is therefore never written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Order<T> {
    /// `host:port`, or the absolute path of a socket.
    address: String,
    /// Who has to answer there.
    node_id: Option<String>,
    /// The authority of the cluster; without it the line is not encrypted.
    ca_pem: Option<String>,
    attempt_id: String,
    ticket: Secret,
    epoch: u64,
    request: T,
}

struct Remote {
    link: Link,
    attempt_id: String,
}

impl Remote {
    fn path(&self, rest: &str) -> String {
        format!("/v1/attempts/{}{rest}", self.attempt_id)
    }

    async fn about(&self) -> Result<AttemptAnswer, ApiError> {
        self.link.json("GET", &self.path(""), Term::Its, None::<&Empty>, ANSWER_WITHIN).await
    }

    /// An answer of the node with what goes beside an error.
    async fn call<T: DeserializeOwned>(&self, method: &str, rest: &str, body: &impl Serialize, within: Duration) -> Result<T, Failure> {
        let body = serde_json::to_vec(body).expect("requests are plain values");
        self.link.detailed(method, &self.path(rest), body.into(), within).await
    }

    /// Until the node has been silent for too long, or the attempt is closed.
    async fn gone(&self) -> ApiError {
        let mut heard = Instant::now();
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            match self.about().await {
                Ok(_) => heard = Instant::now(),
                Err(error) if error.class != Class::Transient => return error,
                Err(error) if heard.elapsed() > SILENT_MAX => return error,
                Err(_) => {}
            }
        }
    }

    /// What can be done again is done again while the node cannot be reached.
    async fn again<T, F: Future<Output = Result<T, Failure>>>(&self, work: impl Fn() -> F) -> Result<T, Failure> {
        let begun = Instant::now();
        loop {
            let outcome = tokio::select! {
                outcome = work() => outcome,
                error = self.gone() => Err(error.into()),
            };
            match outcome {
                Err(failure) if is_away(&failure.error) && begun.elapsed() < ASKED_AGAIN_FOR => {
                    tokio::time::sleep(ASKED_AGAIN_EVERY).await;
                }
                outcome => return outcome,
            }
        }
    }
}

fn is_away(error: &ApiError) -> bool {
    matches!(error.code, Code::ConnectionLost | Code::PeerUnreachable | Code::Timeout)
}

/// The places beside a sandbox that the programs use.
struct Beside {
    sandbox: PathBuf,
    part: PathBuf,
    record: PathBuf,
    lock: PathBuf,
}

impl Beside {
    fn of(sandbox_dir: &str) -> Result<Self, ApiError> {
        if !sandbox_dir.strip_prefix('/').is_some_and(is_relative_path) {
            return Err(bad_request(sandbox_dir, format!("the sandbox {sandbox_dir:?} is no clean absolute path; write it as /a/b/c")));
        }
        let named = |ending: &str| PathBuf::from(format!("{sandbox_dir}.stager-{ending}"));
        Ok(Self { sandbox: PathBuf::from(sandbox_dir), part: named("part"), record: named("in"), lock: named("lock") })
    }

    /// One program of an attempt at a time: one that lost its starter may still be at it.
    async fn locked(&self) -> Result<Flock<std::fs::File>, ApiError> {
        let path = self.lock.clone();
        blocking(move || {
            let parent = path.parent().unwrap_or(Path::new("/"));
            crate::store::files::make_directory(parent)?;
            let file = std::fs::File::options().create(true).truncate(false).write(true).open(&path).map_err(at("making", &path))?;
            Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, errno)| at::<std::io::Error>("locking", &path)(errno.into()))
        })
        .await
    }

    /// `sandbox`: with the sandbox itself. Called under the lock, which goes too: who waits for it finds all done.
    async fn remove(&self, sandbox: bool) -> Result<(), ApiError> {
        let (top, part, record, lock) = (self.sandbox.clone(), self.part.clone(), self.record.clone(), self.lock.clone());
        blocking(move || {
            if sandbox {
                folder::remove_tree(&top).map_err(at("removing", &top))?;
            }
            folder::remove_tree(&part).map_err(at("removing", &part))?;
            folder::remove_tree(&record).map_err(at("removing", &record))?;
            folder::remove_tree(&lock).map_err(at("removing", &lock))
        })
        .await
    }
}

pub fn stage_in(_: RemoteOptions) -> i32 {
    run(stage_in::stage_in)
}

pub fn stage_out(_: RemoteOptions) -> i32 {
    run(stage_out::stage_out)
}

pub fn release(_: RemoteOptions) -> i32 {
    run(released)
}

pub fn fetch_brief(_: RemoteOptions) -> i32 {
    run(|remote: Arc<Remote>, _: Option<Empty>| async move {
        let asked = || async { Ok(remote.link.json("GET", &remote.path("/brief"), Term::Its, None::<&Empty>, ANSWER_WITHIN).await?) };
        remote.again(asked).await.map(|answer: BriefAnswer| answer)
    })
}

/// An attempt that was closed holds nothing any more: what is left is on this host.
async fn released(remote: Arc<Remote>, request: ReleaseRequest) -> Result<ReleaseAnswer, Failure> {
    let beside = request.sandbox_dir.as_deref().map(Beside::of).transpose()?;
    let _locked = match &beside {
        Some(beside) => Some(beside.locked().await?),
        None => None,
    };
    let body = RemoteRelease { reservation_id: request.reservation_id.clone() };
    let answer = match remote.again(|| remote.call("POST", "/release", &body, ANSWER_WITHIN)).await {
        Err(failure) if failure.error.code == Code::TicketClosed => ReleaseAnswer { changed: Vec::new(), direct: Vec::new() },
        answer => answer?,
    };
    if let Some(beside) = beside {
        beside.remove(request.remove_sandbox).await?;
    }
    Ok(answer)
}

/// Reads the order, prints one JSON object: the answer, or the error as the node would say it.
fn run<Q: DeserializeOwned, A: Serialize, F: Future<Output = Result<A, Failure>>>(work: impl FnOnce(Arc<Remote>, Q) -> F) -> i32 {
    let outcome = ordered().and_then(|(remote, request)| {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.map_err(at::<std::io::Error>("starting threads for", Path::new("the attempt")))?;
        runtime.block_on(work(remote, request))
    });
    match outcome {
        Ok(answer) => {
            println!("{}", serde_json::to_string(&answer).expect("answers are plain values"));
            0
        }
        Err(Failure { error, detail }) => {
            println!("{}", serde_json::to_string(&ErrorAnswer { error, detail }).expect("errors are plain values"));
            EXIT_FAULT
        }
    }
}

fn ordered<Q: DeserializeOwned>() -> Result<(Arc<Remote>, Q), Failure> {
    let mut text = Vec::new();
    std::io::stdin().read_to_end(&mut text).map_err(at("reading", Path::new("stdin")))?;
    // What serde says of a wrong value may hold the value: only the place is told.
    let order: Order<Q> = serde_json::from_slice(&text).map_err(|error| {
        let place = format!("line {} column {}", error.line(), error.column());
        bad_request(
            "stdin",
            format!("the order on stdin is not understood at {place}; give address, attempt_id, ticket, epoch and request"),
        )
    })?;
    check_id("attempt id", &order.attempt_id)?;
    if !order.ticket.reveal().bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(bad_request("stdin", "the ticket is not valid; give it as the node answered it").into());
    }
    let anonymous = order.ca_pem.as_deref().map(Anonymous::trusting).transpose()?.map(Arc::new);
    let link = Link::by_ticket(Address::parse(&order.address)?, order.ticket.reveal(), order.epoch, order.node_id, anonymous);
    Ok((Arc::new(Remote { link, attempt_id: order.attempt_id }), order.request))
}
