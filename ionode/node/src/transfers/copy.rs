//! Copy: a replica of another node becomes one of this node, from the first of its sources that gives the right content.
//!
//! The one rule: what is committed has the BLAKE3 that was expected or, of a file still being made, that its maker found in the end.

use std::ops::Range;
use std::time::Duration;

use async_trait::async_trait;
use stager_core::error::{ApiError, Code};
use stager_core::record::{Partial, Source as Place};
use stager_core::replica::{Replica, ReplicaKey, ReplicaKind, ReplicaState};
use stager_origins::Sink;

use super::chain::{Chain, PEERS};
use super::copy_tree;
use super::feed::Feed;
use super::job::{Job, Moved};
use super::partial::{adopt, arrive, leave, publish, Order};
use super::table::Transfers;
use crate::in_flight::How;
use crate::peers::link::{Link, Term};
use crate::peers::source::Source;
use crate::store::digest::Also;
use crate::wire::{CopyRequest, PeerReplica, SourceAnswer};

/// Nodes are near: one that sends nothing for so long is not worth waiting for.
const STALL: Duration = Duration::from_secs(15);
/// One that is still receiving the file itself may wait for its origin, and gives up before this.
const FOLLOWING_STALL: Duration = Duration::from_secs(90);

/// The place that partial copies of this content are joined by.
pub(super) fn place(request: &CopyRequest) -> Place {
    let expected = &request.expected;
    let token = expected.identity.clone().or_else(|| expected.blake3.as_ref().map(|blake3| format!("blake3:{blake3}")));
    Place { origin: PEERS.into(), path: request.file_id.clone(), token: token.unwrap_or_default() }
}

/// One source of a copy, as far as it is known.
pub(super) struct At<'a> {
    pub link: &'a Link,
    pub term: Term,
    pub key: ReplicaKey,
    pub answer: SourceAnswer,
}

pub(super) async fn copy(transfers: &Transfers, job: &Job, request: &CopyRequest, claimed: Option<Partial>) -> Result<Moved, ApiError> {
    let key = ReplicaKey::new(&request.file_id, &request.generation);
    let mut chain = Chain::for_maker(transfers, &job.cause, &job.id, &key, request.replicas.as_ref());
    let here = transfers.context.accounting().index.readable(&key).cloned().ok();
    if let Some(replica) = here {
        check_expected(request, "this node", &replica.blake3, replica.size_bytes)?;
        chain.tell_of(&replica, request.expected.identity.clone()).await?;
        return Ok(Moved { replica, bytes_moved: 0, verified: None, synced: None, chain });
    }
    let mut kept = claimed;
    let mut outcome = Err(no_source(&key));
    for source in &request.sources {
        outcome = from(transfers, job, request, source, &mut kept, &mut chain).await;
        if outcome.as_ref().is_err_and(|error| error.code == Code::ChecksumMismatch) {
            have_verified(transfers, job, request, source);
        }
        match &outcome {
            Err(error) if !job.cancel.is_cancelled() && !transfers.context.shutdown.is_cancelled() => {
                tracing::warn!(transfer_id = job.id, source = source.node_id, %error, "a source of a copy failed");
            }
            _ => break,
        }
    }
    match outcome {
        Ok((replica, bytes_moved)) => Ok(Moved { replica, bytes_moved, verified: None, synced: None, chain }),
        Err(error) => {
            leave(&transfers.context, job, &key, kept, &error).await;
            Err(error)
        }
    }
}

/// Was it its disk? Then it quarantines the replica, and tells.
fn have_verified(transfers: &Transfers, job: &Job, request: &CopyRequest, source: &PeerReplica) {
    let Ok(link) = transfers.peers.get(&source.node_id) else { return };
    let (key, term) = (ReplicaKey::new(&request.file_id, &source.generation), Term::Of(job.cause.epoch));
    tokio::spawn(async move {
        if let Err(error) = link.ask_verify(term, &key).await {
            tracing::warn!(replica = %key, %error, "a source of wrong content could not be asked to verify it");
        }
    });
}

fn no_source(key: &ReplicaKey) -> ApiError {
    ApiError::new(Code::BadRequest, &key.file_id, format!("the copy of {key} names no source; name the nodes that hold it"))
}

/// What a source that fails leaves in `kept` is gone on with from the next one.
async fn from(
    transfers: &Transfers,
    job: &Job,
    request: &CopyRequest,
    source: &PeerReplica,
    kept: &mut Option<Partial>,
    chain: &mut Chain,
) -> Result<(Replica, u64), ApiError> {
    let link = transfers.peers.get(&source.node_id)?;
    let key = ReplicaKey::new(&request.file_id, &source.generation);
    let term = Term::Of(job.cause.epoch);
    let answer = job.watched(&request.file_id, STALL, link.source(term, &key, false)).await?;
    let blake3 = answer.blake3.as_deref().or(request.expected.blake3.as_deref()).unwrap_or("");
    if answer.stripes.is_none() {
        check_expected(request, &link.name(), blake3, answer.size_bytes)?;
    }
    let at = At { link: &link, term, key, answer };
    if at.answer.stripes.is_some() {
        let message = format!("{} holds only stripes of {}; copy from a node that holds all of it, or fetch it", link.name(), at.key);
        return Err(ApiError::new(Code::StripeNotHere, &request.file_id, message));
    }
    if at.answer.kind == ReplicaKind::Directory {
        return copy_tree::copy(&transfers.fingerprints, job, request, &at, chain).await;
    }
    let outcome = file(transfers, job, request, &at, kept.take(), chain).await;
    match outcome {
        // Some of what was wrong may have come from a source before this one: it is asked for all.
        Err((error, Some(joined))) if error.code == Code::ChecksumMismatch && joined.watermark_bytes == joined.size_bytes => {
            let fresh = file(transfers, job, request, &at, None, chain).await;
            fresh.map_err(|(error, reached)| {
                *kept = reached.filter(|reached| reached.watermark_bytes < reached.size_bytes);
                error
            })
        }
        Err((error, reached)) => {
            *kept = reached;
            Err(error)
        }
        Ok(made) => Ok(made),
    }
}

fn check_expected(request: &CopyRequest, whose: &str, blake3: &str, size_bytes: u64) -> Result<(), ApiError> {
    let expected = &request.expected;
    let differs = expected.blake3.as_ref().is_some_and(|expected| !expected.eq_ignore_ascii_case(blake3));
    if size_bytes == expected.size_bytes && !differs {
        return Ok(());
    }
    let file_id = &request.file_id;
    let message = format!(
        "{whose} holds another content as {file_id}: {size_bytes} bytes with BLAKE3 {blake3} where {} bytes with BLAKE3 {} were expected",
        expected.size_bytes,
        expected.blake3.as_deref().unwrap_or("not yet known")
    );
    Err(ApiError::new(Code::ChecksumMismatch, file_id, message))
}

struct PeerFeed<'a> {
    source: Source<'a>,
    stall: Duration,
}

#[async_trait]
impl Feed for PeerFeed<'_> {
    async fn feed(&self, range: Range<u64>, sink: &dyn Sink) -> Result<(), ApiError> {
        self.source.fetch(range, sink).await
    }
    fn stall(&self) -> Duration {
        self.stall
    }
}

type Stopped = (ApiError, Option<Partial>);

async fn file(
    transfers: &Transfers,
    job: &Job,
    request: &CopyRequest,
    at: &At<'_>,
    kept: Option<Partial>,
    chain: &mut Chain,
) -> Result<(Replica, u64), Stopped> {
    let key = ReplicaKey::new(&request.file_id, &request.generation);
    let size_bytes = request.expected.size_bytes;
    let joined = kept.as_ref().is_some_and(|kept| kept.watermark_bytes > 0);
    let partial = adopt(&transfers.context, &key, &place(request), size_bytes, kept).await.map_err(|error| (error, None))?;
    let source = Source { link: at.link, key: at.key.clone(), member: None, size_bytes, term: at.term };
    let stall = if at.answer.blake3.is_some() { STALL } else { FOLLOWING_STALL };
    let feed = PeerFeed { source, stall };
    let also = Also { sha256: at.answer.sha256.is_some(), ..Also::default() };
    let how = How { executable: at.answer.executable, stripes: None };
    let order = Order { subject: &request.file_id, also, how };
    let arrived = arrive(&transfers.context, job, &order, &feed, partial, chain).await?;
    let said = checked(job, request, at).await.map_err(|error| (error, Some(arrived.reached.clone())))?;
    if arrived.digests.blake3 != said.blake3.clone().unwrap_or_default() {
        let message = format!(
            "{} sent a content of {} whose BLAKE3 is not the expected one, in blocks whose checksums were right; its bytes were deleted",
            at.link.name(),
            request.file_id
        );
        let reached = joined.then(|| arrived.reached.clone());
        return Err((ApiError::new(Code::ChecksumMismatch, &request.file_id, message), reached));
    }
    let digests = arrived.digests;
    let replica = Replica {
        file_id: key.file_id,
        generation: key.generation,
        kind: ReplicaKind::File,
        size_bytes,
        blake3: digests.blake3,
        crc64nvme: digests.crc64nvme,
        sha256: digests.sha256,
        executable: said.executable,
        members: None,
        token: said.token,
        state: ReplicaState::Present,
        stripes: None,
    };
    let published = publish(&transfers.fingerprints, job, arrived.file, replica, arrived.in_flight).await;
    published.map(|replica| (replica, arrived.bytes_moved)).map_err(|error| (error, Some(arrived.reached)))
}

/// What the source says once it has checked all of its own.
async fn checked(job: &Job, request: &CopyRequest, at: &At<'_>) -> Result<SourceAnswer, ApiError> {
    if let (Some(expected), Some(_)) = (&request.expected.blake3, &at.answer.blake3) {
        return Ok(SourceAnswer { blake3: Some(expected.to_ascii_lowercase()), ..at.answer.clone() });
    }
    loop {
        let answer = job.watched(&request.file_id, FOLLOWING_STALL, at.link.source(at.term, &at.key, true)).await?;
        if let Some(blake3) = &answer.blake3 {
            check_expected(request, &at.link.name(), blake3, answer.size_bytes)?;
            return Ok(answer);
        }
    }
}
