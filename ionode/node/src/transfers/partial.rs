//! The partial file that fetches, copies and pushes have in common: adopted or begun, filled, hashed, made a replica or left behind.
//!
//! The one rule: what is gone on with has the hash that was recorded of it, and what is published was found right by who asked for it.

use std::fs::{File, OpenOptions, Permissions};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{fallocate, FallocateFlags};
use stager_core::error::{ApiError, Class, Code};
use stager_core::index::Index;
use stager_core::record::{Partial, Record, Source};
use stager_core::replica::{Replica, ReplicaKey};
use stager_core::space::Holder;

use super::chain::Chain;
use super::feed::{short, Feed};
use super::incoming_data;
use super::job::Job;
use crate::blocking::blocking;
use crate::context::NodeContext;
use crate::failure::at;
use crate::fingerprints::Fingerprints;
use crate::in_flight::{How, InFlightWriter};
use crate::store::digest::{Also, Digests, Hasher};
use crate::store::snapshot::snapshot;

/// Below this the blocks are not worth a call to reserve them.
const ALLOCATE_FROM_BYTES: u64 = 1 << 20;

/// The partial to go on with under this transfer's key; a fresh one if there is none of this content.
pub(super) async fn adopt(
    context: &Arc<NodeContext>,
    key: &ReplicaKey,
    source: &Source,
    size_bytes: u64,
    claimed: Option<Partial>,
) -> Result<Partial, ApiError> {
    let fresh = Partial {
        key: key.clone(),
        source: source.clone(),
        size_bytes,
        watermark_bytes: 0,
        prefix_blake3: blake3::hash(b"").to_hex().to_string(),
    };
    let found = match claimed {
        Some(partial) if partial.source == *source => Some(partial),
        Some(other) => {
            discard(context, &other.key).await;
            None
        }
        None => claim(&mut context.accounting().index, &key.file_id, source, size_bytes),
    };
    let Some(partial) = found else {
        // Bytes of another content under this very key would be taken for checkpoints of this fetch.
        if context.accounting().index.partial(key).is_some() {
            discard(context, key).await;
        }
        return Ok(fresh);
    };
    if partial.key == *key {
        return Ok(partial);
    }
    let before = partial.key.clone();
    let moved = rename(context, key, partial).await;
    if moved.is_err() {
        discard(context, &before).await;
    }
    moved
}

/// An earlier generation's partial goes on under this one's key.
async fn rename(context: &Arc<NodeContext>, key: &ReplicaKey, mut partial: Partial) -> Result<Partial, ApiError> {
    let (from, to) = (context.store.partial_path(&partial.key), context.store.partial_path(key));
    let gone = Record::PartialGone { key: std::mem::replace(&mut partial.key, key.clone()) };
    blocking(move || std::fs::rename(&from, &to).map_err(at("renaming", &from))).await?;
    context.store.write(vec![gone.clone(), Record::Partial(partial.clone())], Vec::new()).await?;
    let mut accounting = context.accounting();
    accounting.index.apply(&gone);
    accounting.index.put_partial(partial.clone(), true);
    Ok(partial)
}

/// What ended it, and what can be gone on with.
pub(super) type Stopped = (ApiError, Option<Partial>);

/// How a content is to be received.
pub(super) struct Order<'a> {
    pub subject: &'a str,
    pub also: Also,
    pub how: How,
}

/// All bytes are in the partial file and hashed; nothing was compared yet.
pub(super) struct Arrived {
    pub file: Arc<File>,
    pub digests: Digests,
    pub reached: Partial,
    pub bytes_moved: u64,
    pub in_flight: InFlightWriter,
}

pub(super) async fn arrive(
    context: &Arc<NodeContext>,
    job: &Job,
    order: &Order<'_>,
    feed: &dyn Feed,
    partial: Partial,
    chain: &mut Chain,
) -> Result<Arrived, Stopped> {
    let path = context.store.partial_path(&partial.key);
    let (size_bytes, also, identity) = (partial.size_bytes, order.also, partial.source.clone());
    let opened = blocking(move || open_partial(path, partial, also)).await;
    let (file, partial, hasher) = opened.map_err(|error| (error, None))?;
    let start = partial.watermark_bytes;
    let in_flight = context.in_flight.begin(&partial.key, file.clone(), size_bytes, start, order.how);
    chain.tell(size_bytes, &identity).await.map_err(|error| (error, Some(partial.clone())))?;
    let (sink, hashing) = incoming_data::open(context, job, file.clone(), partial.clone(), hasher, in_flight.marker());
    let arrived = async {
        if start < size_bytes {
            feed.feed(start..size_bytes, &sink).await?;
        } else {
            feed.check_unchanged().await?;
        }
        if sink.is_complete() {
            return Ok(());
        }
        Err(short(order.subject))
    };
    let fetched = job.watched(order.subject, feed.stall(), arrived).await;
    drop(sink);
    let hasher = match (hashing.finish().await, &fetched) {
        (Ok(hasher), _) => hasher,
        (Err(error), Ok(())) => return Err((error, None)),
        (Err(_), Err(error)) => return Err((error.clone(), None)),
    };
    let reached = Partial { watermark_bytes: hasher.size_bytes(), prefix_blake3: hasher.blake3_so_far(), ..partial };
    match fetched {
        Ok(()) => Ok(Arrived { file, digests: hasher.finish(), reached, bytes_moved: size_bytes - start, in_flight }),
        Err(error) => Err((error, Some(reached))),
    }
}

/// The partial file, its prefix hashed again: what does not have the recorded hash is fetched anew.
fn open_partial(path: PathBuf, mut partial: Partial, also: Also) -> Result<(Arc<File>, Partial, Hasher), ApiError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    if partial.watermark_bytes == 0 {
        // Never an old inode: a write of a fetch that was dropped may still be under way to it.
        crate::sandbox::folder::remove_tree(&path).map_err(at("removing", &path))?;
        options.create_new(true);
    }
    let file = options.open(&path).map_err(at("making", &path))?;
    let mut hasher = Hasher::with(also);
    hasher.read_up_to(&file, &path, partial.watermark_bytes)?;
    if hasher.size_bytes() != partial.watermark_bytes || hasher.blake3_so_far() != partial.prefix_blake3 {
        tracing::warn!(partial = %partial.key, "a partial does not have its recorded hash; the node fetches it anew");
        file.set_len(0).map_err(at("cutting", &path))?;
        hasher = Hasher::with(also);
        partial.watermark_bytes = 0;
        partial.prefix_blake3 = hasher.blake3_so_far();
    }
    allocate(&file, &path, partial.size_bytes)?;
    Ok((Arc::new(file), partial, hasher))
}

/// A disk too small says so before the first byte crosses the network.
fn allocate(file: &File, path: &std::path::Path, size_bytes: u64) -> Result<(), ApiError> {
    if size_bytes >= ALLOCATE_FROM_BYTES {
        match fallocate(file, FallocateFlags::empty(), 0, size_bytes as i64) {
            Ok(()) => return Ok(()),
            Err(Errno::EOPNOTSUPP | Errno::ENOSYS | Errno::EINTR) => {}
            Err(errno) => return Err(at::<Errno>("allocating", path)(errno)),
        }
    }
    file.set_len(size_bytes).map_err(at("extending", path))
}

/// What was found right becomes a replica; who follows it hears so at once, and syncs while this node does.
pub(super) async fn publish(
    fingerprints: &Arc<Fingerprints>,
    job: &Job,
    file: Arc<File>,
    replica: Replica,
    in_flight: InFlightWriter,
) -> Result<Replica, ApiError> {
    let context = &fingerprints.context;
    in_flight.verified(&replica);
    if replica.size_bytes <= context.store.inline_bytes_max && replica.stripes.is_none() {
        return publish_in_log(context, job, file, replica).await;
    }
    let key = replica.key();
    let (from, to, durability) = (context.store.partial_path(&key), context.store.data_path(&key), context.store.durability);
    let mode = if replica.executable { 0o500 } else { 0o400 };
    let (worker, published) = (context.clone(), replica.clone());
    let snapshot = blocking(move || {
        // Read-only only under its last name: what is still a partial must be writable at the next start.
        std::fs::rename(&from, &to).map_err(at("renaming", &from))?;
        file.set_permissions(Permissions::from_mode(mode)).map_err(at("making read-only", &to))?;
        durability.file(&file, &to)?;
        snapshot(&worker.store, &published)
    })
    .await?;
    let checkpointed = context.accounting().index.partial(&key).is_some();
    let records: Vec<Record> = checkpointed.then(|| Record::PartialGone { key: key.clone() }).into_iter().collect();
    context.store.commit([(&replica, None)], &records, vec![context.store.shard_directory(&key)]).await?;
    let mut accounting = context.accounting();
    accounting.index.commit(&Holder::Transfer(job.id.clone()), std::slice::from_ref(&replica));
    accounting.index.drop_partial(&key);
    fingerprints.set(&key, snapshot);
    Ok(replica)
}

/// A small one that came by a file all the same.
async fn publish_in_log(context: &Arc<NodeContext>, job: &Job, file: Arc<File>, replica: Replica) -> Result<Replica, ApiError> {
    let path = context.store.partial_path(&replica.key());
    let (read_path, length) = (path.clone(), replica.size_bytes as usize);
    let content = blocking(move || {
        let mut content = vec![0; length];
        file.read_exact_at(&mut content, 0).map_err(at("reading", &read_path))?;
        Ok(content)
    });
    let content = content.await?;
    context.store.commit([(&replica, Some(content.into()))], &[], Vec::new()).await?;
    context.accounting().index.commit(&Holder::Transfer(job.id.clone()), std::slice::from_ref(&replica));
    discard(context, &replica.key()).await;
    Ok(replica)
}

/// What a fetch that did not end well leaves: bytes to resume from where that makes sense, else nothing.
pub(super) async fn leave(context: &Arc<NodeContext>, job: &Job, key: &ReplicaKey, reached: Option<Partial>, error: &ApiError) {
    let resumable = error.class == Class::Transient || error.code == Code::Cancelled;
    let kept = match reached.filter(|partial| resumable && partial.watermark_bytes > 0) {
        Some(partial) => keep(context, job, partial).await,
        None => false,
    };
    if !kept {
        discard(context, key).await;
    }
}

async fn keep(context: &Arc<NodeContext>, job: &Job, partial: Partial) -> bool {
    let (path, durability, length) = (context.store.partial_path(&partial.key), context.store.durability, partial.watermark_bytes);
    let cut = blocking(move || {
        let file = OpenOptions::new().write(true).open(&path).map_err(at("opening", &path))?;
        file.set_len(length).map_err(at("cutting", &path))?;
        durability.file(&file, &path)
    });
    if cut.await.is_err() || context.store.write(vec![Record::Partial(partial.clone())], Vec::new()).await.is_err() {
        return false;
    }
    let mut accounting = context.accounting();
    // In one step: its bytes leave the reservation and become idle ones.
    accounting.index.space.release(&Holder::Transfer(job.id.clone()));
    accounting.index.put_partial(partial, false);
    true
}

pub(super) async fn discard(context: &Arc<NodeContext>, key: &ReplicaKey) {
    let (worker, gone) = (context.clone(), key.clone());
    let removed = blocking(move || {
        crate::sandbox::folder::remove_tree(&worker.store.partial_path(&gone))
            .map_err(at("removing", &worker.store.partial_path(&gone)))?;
        // Renamed already, but not in the log.
        if worker.accounting().index.replica(&gone).is_none() {
            worker.store.remove_bytes(&gone)?;
        }
        Ok(())
    });
    if let Err(error) = removed.await {
        tracing::warn!(partial = %key, %error, "a partial could not be removed; a restart removes it");
    }
    if context.accounting().index.partial(key).is_none() {
        return;
    }
    let record = Record::PartialGone { key: key.clone() };
    if let Err(error) = context.store.write(vec![record], Vec::new()).await {
        tracing::warn!(partial = %key, %error, "a partial could not be logged as gone; a restart finds out");
    }
    context.accounting().index.drop_partial(key);
}

/// An earlier try at this content that nobody goes on with, from now on this one's.
pub(super) fn claim(index: &mut Index, file_id: &str, source: &Source, size_bytes: u64) -> Option<Partial> {
    let key = index.idle_partial(file_id, source, size_bytes)?.key.clone();
    index.claim_partial(&key)
}
