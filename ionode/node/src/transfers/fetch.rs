//! Fetch: bytes of an origin become a replica, verified and on disk.
//!
//! The one rule: nothing is committed whose source could have changed while it was read, or whose checksum is not the expected one.

use std::fs::File;
use std::sync::Arc;

use stager_core::error::{ApiError, Code};
use stager_core::record::{Partial, Source};
use stager_core::replica::{Replica, ReplicaKey, ReplicaKind, ReplicaState};
use stager_core::stripes::Layout;
use stager_origins::{Entry, EntryKind, Origin, ReportedChecksum, Verified};

use super::arrival;
use super::chain::{identity, Chain};
use super::feed::{Feed, OriginFeed, StripeFeed, ORIGIN_STALL as STALL};
use super::partial::{adopt, arrive, discard, leave, publish, Arrived, Order, Stopped};
use super::run::{watched, Job, Moved};
use super::small;
use crate::failure::bad_request;
use crate::in_flight::How;
use crate::node::Node;
use crate::replicas::{blocking, put_manifest};
use crate::store::digest::{Also, Digests};
use crate::stripes::StripeManifest;
use crate::wire::{Expected, FetchRequest};

pub(super) async fn fetch(node: &Arc<Node>, job: &Job, request: &FetchRequest, claimed: Option<Partial>) -> Result<Moved, ApiError> {
    let key = ReplicaKey::new(&request.file_id, &request.generation);
    let mut chain = Chain::of(node, job, &key, request.replicas.as_ref());
    let here = node.accounting().index.readable(&key).cloned().ok();
    if let Some(replica) = here {
        // A chain that was broken off is mended: nothing else is left to be done.
        let origin = node.origin(&request.source.origin_id).ok();
        let source = replica.token.clone().zip(origin).map(|(token, open)| source(request, &open.identity, &token));
        chain.tell_of(&replica, source.as_ref().map(identity)).await?;
        return Ok(Moved { replica, bytes_moved: 0, verified: None, synced: None, chain });
    }
    let (entry, origin, source) = match before(node, job, request).await {
        Ok(found) => found,
        Err(error) => {
            if let Some(partial) = claimed {
                leave(node, job, &partial.key.clone(), Some(partial), &error).await;
            }
            return Err(error);
        }
    };
    if at_once(node, request, entry.size_bytes) {
        if let Some(partial) = claimed {
            discard(node, &partial.key).await;
        }
        return small::fetch(node, job, request, &entry, &source, origin.as_ref(), chain).await;
    }
    let partial = adopt(node, &key, &source, held_bytes(request)?, claimed).await?;
    let outcome = bring(node, job, request, &entry, origin.clone(), partial.clone(), &mut chain).await;
    match outcome {
        Ok((replica, bytes_moved, verified)) => Ok(Moved { replica, bytes_moved, verified, synced: None, chain }),
        Err((error, reached)) => {
            let reached = reached.filter(|_| origin.resumes(&entry.path));
            leave(node, job, &key, reached, &error).await;
            Err(error)
        }
    }
}

/// Into memory, and into the log from there.
fn at_once(node: &Node, request: &FetchRequest, size_bytes: u64) -> bool {
    size_bytes <= node.store.inline_bytes_max && request.stripe.is_none()
}

/// The source as it is now, if it is what was asked for.
async fn before(node: &Arc<Node>, job: &Job, request: &FetchRequest) -> Result<(Entry, Arc<dyn Origin>, Source), ApiError> {
    let open = node.origin(&request.source.origin_id)?;
    let path = &request.source.path;
    let whole = at_once(node, request, request.expected.size_bytes);
    if let Some(entry) = declared(path, &request.expected).filter(|entry| !open.origin.needs_stat(entry, whole)) {
        let source = source(request, &open.identity, &entry.token);
        return Ok((entry, open.origin, source));
    }
    let entry = watched(node, job, path, STALL, open.origin.stat(path)).await?;
    if entry.kind != EntryKind::File {
        return Err(ApiError::new(Code::Unsupported, path, format!("{path} is a directory at its origin; fetch its files one by one")));
    }
    let expected = &request.expected;
    if entry.size_bytes != expected.size_bytes || expected.token.as_ref().is_some_and(|token| *token != entry.token) {
        let was = expected.token.clone().unwrap_or(format!("{} bytes", expected.size_bytes));
        return Err(source_changed(path, &was, &entry.token));
    }
    let source = source(request, &open.identity, &entry.token);
    Ok((entry, open.origin, source))
}

/// A token says all that a fetch checks, and it does so itself, before and after: asking here too would cost each small file a round trip.
fn declared(path: &str, expected: &Expected) -> Option<Entry> {
    let token = expected.token.clone()?;
    let (_, size) = token.rsplit_once(";s=")?;
    let size_bytes = size.parse().ok().filter(|size| *size == expected.size_bytes)?;
    Some(Entry { path: path.to_owned(), size_bytes, token, mtime_ns: None, kind: EntryKind::File, settled: true })
}

/// What is kept of a broken-off fetch is joined by the same share only.
pub(super) fn source(request: &FetchRequest, origin: &str, token: &str) -> Source {
    let share = request.stripe.map(|share| format!("#stripe={}/{}/{}", share.index, share.count, share.stripe_bytes)).unwrap_or_default();
    Source { origin: origin.to_string(), path: request.source.path.clone(), token: format!("{token}{share}") }
}

/// The stripes that are asked for, if not all of the file is. One share cannot be compared with what is known of the whole.
pub(super) fn layout(request: &FetchRequest) -> Result<Option<Layout>, ApiError> {
    let Some(share) = request.stripe else { return Ok(None) };
    let expected = &request.expected;
    if expected.blake3.is_some() || expected.sha256.is_some() || request.replicas.is_some() {
        let message = "stripes cannot be compared with a checksum of the whole file, nor go on in a chain; leave these out, \
                       whoever reads all stripes compares them";
        return Err(bad_request(&request.file_id, message));
    }
    Layout::new(share, expected.size_bytes, &request.source.path).map(Some)
}

pub(super) fn held_bytes(request: &FetchRequest) -> Result<u64, ApiError> {
    Ok(layout(request)?.map_or(request.expected.size_bytes, |layout| layout.held_bytes()))
}

pub(super) fn source_changed(path: &str, was: &str, is: &str) -> ApiError {
    ApiError::new(
        Code::SourceChanged,
        path,
        format!("{path} changed at its origin: expected {was}, found {is}; plan again with what is there now"),
    )
}

async fn bring(
    node: &Arc<Node>,
    job: &Job,
    request: &FetchRequest,
    entry: &Entry,
    origin: Arc<dyn Origin>,
    partial: Partial,
    chain: &mut Chain,
) -> Result<(Replica, u64, Option<Verified>), Stopped> {
    let layout = layout(request).map_err(|error| (error, None))?;
    let reported = origin.reported_checksum(entry);
    let also = match layout {
        // What is told of the whole cannot be compared with a share of it.
        Some(_) => Also::default(),
        None => arrival::also(origin.as_ref(), &reported, &request.expected),
    };
    let order = Order { subject: &entry.path, also, how: How { executable: request.executable, stripes: layout } };
    let whole = OriginFeed { origin: origin.clone(), entry: entry.clone() };
    let feed: Box<dyn Feed> = match layout {
        Some(layout) => Box::new(StripeFeed { whole, layout }),
        None => Box::new(whole),
    };
    let arrived = arrive(node, job, &order, feed.as_ref(), partial, chain).await?;
    let Arrived { file, digests, reached, bytes_moved, in_flight } = arrived;
    let concluded = async {
        let (replica, verified) = judge(node, job, request, Witness { origin: origin.as_ref(), entry, reported }, digests).await?;
        let replica = Replica { stripes: layout, ..replica };
        note_stripes(node, &replica, file.clone()).await?;
        Ok((publish(node, job, file, replica, in_flight).await?, bytes_moved, verified))
    };
    concluded.await.map_err(|error| (error, Some(reached)))
}

async fn note_stripes(node: &Arc<Node>, replica: &Replica, file: Arc<File>) -> Result<(), ApiError> {
    let Some(layout) = replica.stripes else { return Ok(()) };
    let (worker, key) = (node.clone(), replica.key());
    blocking(move || {
        let manifest = StripeManifest::of(&layout, &file, &worker.store.partial_path(&key))?;
        put_manifest(&worker.store, &key, &manifest.to_bytes())
    })
    .await
}

/// Who can say what the content is.
pub(super) struct Witness<'a> {
    pub origin: &'a dyn Origin,
    pub entry: &'a Entry,
    pub reported: ReportedChecksum,
}

/// The replica that these digests make, if everything that is known of the content agrees. Who read it saw that it did not change meanwhile.
pub(super) async fn judge(
    node: &Arc<Node>,
    job: &Job,
    request: &FetchRequest,
    witness: Witness<'_>,
    digests: Digests,
) -> Result<(Replica, Option<Verified>), ApiError> {
    let Witness { origin, entry, reported } = witness;
    let verified = match request.stripe {
        Some(_) => None,
        None => arrival::check(node, job, origin, entry, &reported, &digests, STALL).await?,
    };
    check_content(&request.expected, &entry.path, &digests)?;
    let replica = Replica {
        file_id: request.file_id.clone(),
        generation: request.generation.clone(),
        kind: ReplicaKind::File,
        size_bytes: digests.size_bytes,
        blake3: digests.blake3,
        crc64nvme: digests.crc64nvme,
        sha256: digests.sha256,
        executable: request.executable,
        members: None,
        token: Some(entry.token.clone()),
        state: ReplicaState::Present,
        stripes: None,
    };
    Ok((replica, verified))
}

fn check_content(expected: &Expected, path: &str, digests: &Digests) -> Result<(), ApiError> {
    let differs = |wanted: &Option<String>, found: Option<&str>| {
        wanted.as_deref().is_some_and(|wanted| found.is_none_or(|found| !found.eq_ignore_ascii_case(wanted)))
    };
    let kind = match (differs(&expected.blake3, Some(&digests.blake3)), differs(&expected.sha256, digests.sha256.as_deref())) {
        (true, _) => "BLAKE3",
        (_, true) => "SHA-256",
        _ => return Ok(()),
    };
    let message = format!(
        "{path} does not have the expected {kind}: the file at the origin, or the checksum declared for it, is wrong; its bytes were deleted"
    );
    Err(ApiError::new(Code::ChecksumMismatch, path, message))
}
