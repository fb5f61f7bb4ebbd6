//! Fetch: bytes of an origin become a replica, verified and on disk.
//!
//! The one rule: nothing is committed whose source could have changed while it was read, or whose checksum is not the expected one.

use std::fs::File;
use std::sync::Arc;

use stager_core::error::{ApiError, Code};
use stager_core::record::{Partial, Source};
use stager_core::replica::{Replica, ReplicaKey};
use stager_core::stripes::Layout;
use stager_origins::{Entry, EntryKind, Origin, Verified};

use super::arrival::{judge, Witness};
use super::assembly::Assembly;
use super::chain::{identity, Chain};
use super::feed::{source_changed, Feed, OriginFeed, StripeFeed, ORIGIN_STALL as STALL};
use super::job::{Job, Moved};
use super::partial::{adopt, arrive, discard, leave, publish, Arrived, Order, Stopped};
use super::small;
use super::table::Transfers;
use crate::blocking::blocking;
use crate::context::NodeContext;
use crate::failure::bad_request;
use crate::in_flight::How;
use crate::origin_checksums::also;
use crate::replicas::put_manifest;
use crate::store::digest::Also;
use crate::stripes::StripeManifest;
use crate::wire::{Expected, FetchRequest};

pub(super) async fn fetch(transfers: &Transfers, job: &Job, request: &FetchRequest, claimed: Option<Partial>) -> Result<Moved, ApiError> {
    let key = ReplicaKey::new(&request.file_id, &request.generation);
    let mut chain = Chain::for_maker(transfers, &job.cause, &job.id, &key, request.replicas.as_ref());
    let here = transfers.context.accounting().index.readable(&key).cloned().ok();
    if let Some(replica) = here {
        // A chain that was broken off is mended: nothing else is left to be done.
        let origin = transfers.context.origin(&request.source.origin_id).ok();
        let source = replica.token.clone().zip(origin).map(|(token, open)| source(request, &open.identity, &token));
        chain.tell_of(&replica, source.as_ref().map(identity)).await?;
        return Ok(Moved { replica, bytes_moved: 0, verified: None, synced: None, chain });
    }
    let (entry, origin, source) = match before(&transfers.context, job, request).await {
        Ok(found) => found,
        Err(error) => {
            if let Some(partial) = claimed {
                leave(&transfers.context, job, &partial.key.clone(), Some(partial), &error).await;
            }
            return Err(error);
        }
    };
    if at_once(&transfers.context, request, entry.size_bytes) {
        if let Some(partial) = claimed {
            discard(&transfers.context, &partial.key).await;
        }
        return small::fetch(transfers, job, request, &entry, &source, origin.as_ref(), chain).await;
    }
    let partial = adopt(&transfers.context, &key, &source, held_bytes(request)?, claimed).await?;
    let outcome = bring(transfers, job, request, &entry, origin.clone(), partial.clone(), &mut chain).await;
    match outcome {
        Ok((replica, bytes_moved, verified)) => Ok(Moved { replica, bytes_moved, verified, synced: None, chain }),
        Err((error, reached)) => {
            let reached = reached.filter(|_| origin.capabilities().resumes(&entry.path));
            leave(&transfers.context, job, &key, reached, &error).await;
            Err(error)
        }
    }
}

/// Into memory, and into the log from there.
fn at_once(context: &NodeContext, request: &FetchRequest, size_bytes: u64) -> bool {
    size_bytes <= context.store.inline_bytes_max && request.stripe.is_none()
}

/// The source as it is now, if it is what was asked for.
async fn before(context: &NodeContext, job: &Job, request: &FetchRequest) -> Result<(Entry, Arc<dyn Origin>, Source), ApiError> {
    let open = context.origin(&request.source.origin_id)?;
    let path = &request.source.path;
    let whole = at_once(context, request, request.expected.size_bytes);
    if let Some(entry) = declared(path, &request.expected).filter(|entry| !open.origin.capabilities().needs_stat(entry, whole)) {
        let source = source(request, &open.identity, &entry.token);
        return Ok((entry, open.origin, source));
    }
    let entry = job.watched(path, STALL, open.origin.stat(path)).await?;
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
        let message = "stripes cannot be compared with a checksum of the whole file, nor go on in a chain; leave both out: \
                       the reader of all stripes compares them";
        return Err(bad_request(&request.file_id, message));
    }
    Layout::new(share, expected.size_bytes, &request.source.path).map(Some)
}

pub(super) fn held_bytes(request: &FetchRequest) -> Result<u64, ApiError> {
    Ok(layout(request)?.map_or(request.expected.size_bytes, |layout| layout.held_bytes()))
}

async fn bring(
    transfers: &Transfers,
    job: &Job,
    request: &FetchRequest,
    entry: &Entry,
    origin: Arc<dyn Origin>,
    partial: Partial,
    chain: &mut Chain,
) -> Result<(Replica, u64, Option<Verified>), Stopped> {
    let layout = layout(request).map_err(|error| (error, None))?;
    let reported = origin.capabilities().reported_checksum(entry);
    let assembly = match &request.parts {
        Some(parts) => Some(Assembly::new(transfers, job, request, parts, entry, origin.clone()).map_err(|error| (error, None))?),
        None => None,
    };
    let also = match layout {
        // What is told of the whole cannot be compared with a share of it.
        Some(_) => Also::default(),
        None => also(origin.as_ref(), &reported, &request.expected),
    };
    let order = Order { subject: &entry.path, also, how: How { executable: request.executable, stripes: layout } };
    let whole = OriginFeed { origin: origin.clone(), entry: entry.clone() };
    let striped;
    let feed: &dyn Feed = match (&assembly, layout) {
        (Some(assembly), _) => assembly,
        (None, Some(layout)) => {
            striped = StripeFeed { whole, layout };
            &striped
        }
        (None, None) => &whole,
    };
    let arrived = arrive(&transfers.context, job, &order, feed, partial, chain).await?;
    let Arrived { file, mut digests, reached, bytes_moved, in_flight } = arrived;
    if let Some(assembly) = &assembly {
        // Nothing is kept of what could not be compared.
        digests = assembly.compared(&file, digests, also).await.map_err(|error| (error, None))?;
    }
    let concluded = async {
        let (replica, verified) = judge(job, request, Witness { origin: origin.as_ref(), entry, reported }, digests).await?;
        let replica = Replica { stripes: layout, ..replica };
        note_stripes(&transfers.context, &replica, file.clone()).await?;
        Ok((publish(&transfers.fingerprints, job, file, replica, in_flight).await?, bytes_moved, verified))
    };
    concluded.await.map_err(|error| (error, Some(reached)))
}

async fn note_stripes(context: &Arc<NodeContext>, replica: &Replica, file: Arc<File>) -> Result<(), ApiError> {
    let Some(layout) = replica.stripes else { return Ok(()) };
    let (worker, key) = (context.clone(), replica.key());
    blocking(move || {
        let manifest = StripeManifest::of(&layout, &file, &worker.store.partial_path(&key))?;
        put_manifest(&worker.store, &key, &manifest.to_bytes())
    })
    .await
}
