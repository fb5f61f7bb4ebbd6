//! Assembly: a file made of its parts, which several nodes fetch over their own lines, this one among them or not, while they come.
//!
//! The one rule: a stripe that does not come from its part, or is not what came there, comes from the origin.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::try_join_all;
use stager_core::error::{ApiError, Code};
use stager_core::ids::check_id;
use stager_core::replica::ReplicaKey;
use stager_core::stripes::{Layout, Share};
use stager_origins::{Entry, Origin, Pace, Sink};

use super::feed::{Feed, OriginFeed, ORIGIN_STALL};
use super::job::Job;
use super::part::Part;
use super::table::Transfers;
use crate::blocking::blocking;
use crate::failure::{at, bad_request};
use crate::peers::link::{Link, Term};
use crate::store::digest::{Also, Digests, Hasher};
use crate::stripes::merged;
use crate::wire::{FetchRequest, Parts, PeerReplica};

/// A few are in memory at once.
const STRIPE_BYTES_MAX: u64 = 16 << 20;
const STRIPES_AT_ONCE: usize = 2;
/// Each part has its own, which is shorter.
const STALL: Duration = Duration::from_secs(120);

/// Before any of it is accepted.
pub(super) fn check(transfers: &Transfers, request: &FetchRequest, parts: &Parts) -> Result<(), ApiError> {
    let bad = |why: &str| Err(bad_request(&request.file_id, format!("{} cannot be made of parts: {why}", request.file_id)));
    if request.stripe.is_some() || request.replicas.is_some() {
        return bad("only a whole file without a chain can; leave stripe and replicas out");
    }
    if request.expected.token.is_none() {
        return bad("nothing says that all parts are of one content; name its token");
    }
    if parts.stripe_bytes > STRIPE_BYTES_MAX {
        return bad(&format!("stripes have at most {STRIPE_BYTES_MAX} bytes, not {}", parts.stripe_bytes));
    }
    shares(request, parts)?;
    for part in &parts.held_by {
        check_id("generation", &part.generation)?;
        link(transfers, part)?;
    }
    Ok(())
}

fn shares(request: &FetchRequest, parts: &Parts) -> Result<Vec<Layout>, ApiError> {
    let count = parts.held_by.len() as u64;
    let share = |index| Share { index, count, stripe_bytes: parts.stripe_bytes };
    if count == 0 {
        return Err(bad_request(&request.file_id, "no part of it is named; name the nodes that fetch one"));
    }
    (0..count).map(|index| Layout::new(share(index), request.expected.size_bytes, &request.source.path)).collect()
}

/// `None`: it is this node.
fn link(transfers: &Transfers, part: &PeerReplica) -> Result<Option<Arc<Link>>, ApiError> {
    if part.node_id == transfers.context.node_id {
        return Ok(None);
    }
    transfers.peers.get(&part.node_id).map(Some)
}

pub(super) struct Assembly<'a> {
    transfers: &'a Transfers,
    job: &'a Job,
    origin: OriginFeed,
    parts: Vec<Part>,
    /// The chaining values of stripes that came from their parts.
    came: Mutex<BTreeMap<u64, [u8; 32]>>,
}

impl<'a> Assembly<'a> {
    pub fn new(
        transfers: &'a Transfers,
        job: &'a Job,
        request: &FetchRequest,
        parts: &Parts,
        entry: &Entry,
        origin: Arc<dyn Origin>,
    ) -> Result<Self, ApiError> {
        let (term, shares) = (Term::Of(job.cause.epoch), shares(request, parts)?);
        let named = |(share, part): (Layout, &PeerReplica)| {
            Ok(Part::new(share, ReplicaKey::new(&request.file_id, &part.generation), link(transfers, part)?, term))
        };
        let parts = shares.into_iter().zip(&parts.held_by).map(named).collect::<Result<_, ApiError>>()?;
        Ok(Self { transfers, job, origin: OriginFeed { origin, entry: entry.clone() }, parts, came: Mutex::default() })
    }

    fn came(&self) -> MutexGuard<'_, BTreeMap<u64, [u8; 32]>> {
        self.came.lock().expect("nobody panics here")
    }

    async fn part(&self, part: &Part, wanted: &Range<u64>, sink: &dyn Sink) -> Result<(), ApiError> {
        let stripes = part.share.held().map(|n| part.share.range(n));
        let stripes = stripes.map(|stripe| stripe.start.max(wanted.start)..stripe.end.min(wanted.end)).filter(|stripe| !stripe.is_empty());
        let stripes: VecDeque<Range<u64>> = stripes.collect();
        if stripes.is_empty() {
            return Ok(());
        }
        let missing = match part.comes(self.transfers, &self.origin.entry.token).await {
            Ok(()) => self.stripes(part, stripes, sink).await?,
            Err(error) => {
                tracing::warn!(part = %part.key, index = part.share.index, %error, "a part does not come");
                stripes.into()
            }
        };
        if missing.is_empty() {
            return Ok(());
        }
        tracing::warn!(part = %part.key, index = part.share.index, stripes = missing.len(), "stripes of a part come from the origin");
        self.origin.origin.fetch(&self.origin.entry, &missing, sink).await
    }

    /// Returns those that the part does not give.
    async fn stripes(&self, part: &Part, stripes: VecDeque<Range<u64>>, sink: &dyn Sink) -> Result<Vec<Range<u64>>, ApiError> {
        let (waiting, missing) = (Mutex::new(stripes), Mutex::new(Vec::new()));
        let worker = || async {
            loop {
                let next = waiting.lock().expect("nobody panics here").pop_front();
                let Some(range) = next else { return Ok::<(), ApiError>(()) };
                match part.stripe(self.transfers, &range).await {
                    Ok((bytes, value)) => {
                        let n = range.start / part.share.stripe_bytes;
                        value.map(|value| self.came().insert(n, value));
                        sink.write_at(range.start, bytes).await?;
                    }
                    Err(error) => {
                        tracing::warn!(part = %part.key, index = part.share.index, at = range.start, %error, "a stripe does not come");
                        let mut missing = missing.lock().expect("nobody panics here");
                        missing.push(range);
                        match error.code {
                            Code::ChecksumMismatch => part.have_verified(&self.transfers.fingerprints, &self.job.cause),
                            _ => missing.extend(waiting.lock().expect("nobody panics here").drain(..)),
                        }
                    }
                }
            }
        };
        try_join_all((0..STRIPES_AT_ONCE).map(|_| worker())).await?;
        let mut missing = missing.into_inner().expect("nobody panics here");
        missing.sort_by_key(|range| range.start);
        Ok(missing)
    }

    /// The digests of the file, of which each stripe is what came to its part, or has come from the origin once more.
    pub async fn compared(&self, file: &Arc<File>, digests: Digests, also: Also) -> Result<Digests, ApiError> {
        let subject = &self.origin.entry.path;
        let wrong = self.job.watched(subject, STALL, self.wrong()).await?;
        if !wrong.is_empty() {
            tracing::warn!(stripes = wrong.len(), "stripes are not what came to their parts; they come from the origin");
            return self.again(file, &wrong, also).await;
        }
        let values: Vec<[u8; 32]> = self.came().values().copied().collect();
        let Layout { stripe_bytes, file_bytes, .. } = self.parts[0].share;
        let all = values.len() as u64 == self.parts[0].share.total();
        if all && blake3::Hash::from_bytes(merged(&values, stripe_bytes, file_bytes)).to_hex().as_str() != digests.blake3 {
            let message = format!("{subject} is not what its parts make together: this node's memory or disk is damaged; nothing was kept");
            return Err(ApiError::new(Code::ChecksumMismatch, subject, message));
        }
        Ok(digests)
    }

    /// The places of stripes that came and were not right. Of a node that is gone nobody can say: what it gave had the checksums of its
    /// blocks, and is of this content if the origin still has it.
    async fn wrong(&self) -> Result<Vec<Range<u64>>, ApiError> {
        let mut wrong = Vec::new();
        for part in &self.parts {
            let came = self.came().clone().into_iter().filter(|(n, _)| n % part.share.count == part.share.index);
            let came: Vec<(u64, [u8; 32])> = came.collect();
            if came.is_empty() {
                continue;
            }
            if let Err(error) = part.checked(self.transfers, &self.origin.entry.token).await {
                tracing::warn!(part = %part.key, index = part.share.index, %error, "a part cannot be compared");
                if !matches!(error.code, Code::SourceChanged | Code::StripeNotHere | Code::ChecksumMismatch) {
                    self.origin.check_unchanged().await?;
                    continue;
                }
            }
            let unlike = came.into_iter().filter(|(n, value)| part.is_as_noted(*n, *value) != Some(true));
            let unlike: Vec<u64> = unlike.map(|(n, _)| n).collect();
            if !unlike.is_empty() && part.is_noted() {
                part.have_verified(&self.transfers.fingerprints, &self.job.cause);
            }
            wrong.extend(unlike.into_iter().map(|n| part.share.range(n)));
        }
        wrong.sort_by_key(|range| range.start);
        Ok(wrong)
    }

    async fn again(&self, file: &Arc<File>, wrong: &[Range<u64>], also: Also) -> Result<Digests, ApiError> {
        let entry = &self.origin.entry;
        let path = PathBuf::from(&entry.path);
        let sink = Over { file: file.clone(), path: path.clone(), job: self.job };
        self.job.watched(&entry.path, ORIGIN_STALL, self.origin.origin.fetch(entry, wrong, &sink)).await?;
        let (file, size_bytes) = (file.clone(), entry.size_bytes);
        blocking(move || {
            let mut hasher = Hasher::with(also);
            hasher.read_up_to(&file, &path, size_bytes)?;
            Ok(hasher.finish())
        })
        .await
    }
}

#[async_trait]
impl Feed for Assembly<'_> {
    async fn feed(&self, range: Range<u64>, sink: &dyn Sink) -> Result<(), ApiError> {
        try_join_all(self.parts.iter().map(|part| self.part(part, &range, sink))).await.map(drop)
    }

    async fn check_unchanged(&self) -> Result<(), ApiError> {
        self.origin.check_unchanged().await
    }

    fn stall(&self) -> Duration {
        STALL
    }
}

/// Writes over what is there.
struct Over<'a> {
    file: Arc<File>,
    path: PathBuf,
    job: &'a Job,
}

#[async_trait]
impl Sink for Over<'_> {
    async fn write_at(&self, offset: u64, chunk: Bytes) -> Result<(), ApiError> {
        let (file, path, length) = (self.file.clone(), self.path.clone(), chunk.len() as u64);
        blocking(move || file.write_all_at(&chunk, offset).map_err(at("writing", &path))).await?;
        self.job.sent(length);
        Ok(())
    }

    fn pace(&self) -> Pace {
        self.job.priority.clone().into()
    }
}
