//! Fetch: bytes of an origin become a replica, verified and on disk.
//!
//! The one rule: nothing is committed whose source could have changed while it was read, or whose checksum is not the expected one.

use std::fs::{File, OpenOptions, Permissions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{fallocate, FallocateFlags};
use stager_core::error::{ApiError, Class};
use stager_core::record::{Partial, Record, Source};
use stager_core::replica::{Replica, ReplicaKey, ReplicaKind, ReplicaState};
use stager_core::space::Holder;
use stager_origins::{Entry, EntryKind, Origin, Said, Verified};

use super::{arrival, intake, small};
use super::run::{watched, Job, Moved};
use crate::failure::at;
use crate::node::Node;
use crate::replicas::blocking;
use crate::store::digest::{Also, Digests, Hasher};
use crate::wire::{Expected, FetchRequest};

pub(super) const STALL: Duration = Duration::from_secs(60);
/// Below this the blocks are not worth a call to reserve them.
const ALLOCATE_FROM_BYTES: u64 = 1 << 20;

pub(super) async fn fetch(node: &Arc<Node>, job: &Job, request: &FetchRequest, claimed: Option<Partial>) -> Result<Moved, ApiError> {
    let key = ReplicaKey::new(&request.file_id, &request.generation);
    let (entry, origin, source) = match before(node, job, request).await {
        Ok(found) => found,
        Err(error) => {
            if let Some(partial) = claimed {
                leave(node, job, &partial.key.clone(), Some(partial), &error).await;
            }
            return Err(error);
        }
    };
    if entry.size_bytes <= node.store.inline_bytes_max {
        if let Some(partial) = claimed {
            discard(node, &partial.key).await;
        }
        return small::fetch(node, job, request, &entry, origin.as_ref()).await;
    }
    let partial = adopt(node, &key, &source, request.expected.size_bytes, claimed).await?;
    let outcome = bring(node, job, request, &entry, origin.as_ref(), partial.clone()).await;
    match outcome {
        Ok(moved) => Ok(moved),
        Err((error, reached)) => {
            let reached = reached.filter(|_| origin.resumes(&entry.path));
            leave(node, job, &key, reached, &error).await;
            Err(error)
        }
    }
}

/// The source as it is now, if it is what was asked for.
async fn before(node: &Arc<Node>, job: &Job, request: &FetchRequest) -> Result<(Entry, Arc<dyn Origin>, Source), ApiError> {
    let open = node.origin(&request.source.origin_id)?;
    let path = &request.source.path;
    let source = |token: &str| Source { origin: open.identity.clone(), path: path.clone(), token: token.to_owned() };
    if let Some(entry) = declared(path, &request.expected).filter(|_| !open.origin.look_before()) {
        let source = source(&entry.token);
        return Ok((entry, open.origin, source));
    }
    let entry = watched(node, job, path, STALL, open.origin.stat(path)).await?;
    if entry.kind != EntryKind::File {
        return Err(ApiError::invalid("unsupported", path, format!("{path} is a directory at its origin; fetch its files one by one")));
    }
    let expected = &request.expected;
    if entry.size_bytes != expected.size_bytes || expected.token.as_ref().is_some_and(|token| *token != entry.token) {
        let was = expected.token.clone().unwrap_or(format!("{} bytes", expected.size_bytes));
        return Err(source_changed(path, &was, &entry.token));
    }
    let source = source(&entry.token);
    Ok((entry, open.origin, source))
}

/// A token says all that a fetch checks, and it does so itself, before and after: asking here too would cost each small file a round trip.
fn declared(path: &str, expected: &Expected) -> Option<Entry> {
    let token = expected.token.clone()?;
    let (_, size) = token.rsplit_once(";s=")?;
    let size_bytes = size.parse().ok().filter(|size| *size == expected.size_bytes)?;
    Some(Entry { path: path.to_owned(), size_bytes, token, mtime_ns: None, kind: EntryKind::File, settled: true })
}

pub(super) async fn unchanged(origin: &dyn Origin, entry: &Entry) -> Result<(), ApiError> {
    let now = origin.stat(&entry.path).await?;
    if now.kind == EntryKind::File && now.token == entry.token {
        return Ok(());
    }
    Err(source_changed(&entry.path, &entry.token, &now.token))
}

fn source_changed(path: &str, was: &str, is: &str) -> ApiError {
    ApiError::refused(
        "source_changed",
        path,
        format!("{path} changed at its origin: expected {was}, found {is}; plan again with what is there now"),
    )
}

/// The partial to go on with under this transfer's key; a fresh one if there is none of this content.
async fn adopt(
    node: &Arc<Node>,
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
            discard(node, &other.key).await;
            None
        }
        None => super::claim(&mut node.books().index, &key.file_id, source, size_bytes),
    };
    let Some(partial) = found else {
        // Bytes of another content under this very key would be taken for checkpoints of this fetch.
        if node.books().index.partial(key).is_some() {
            discard(node, key).await;
        }
        return Ok(fresh);
    };
    if partial.key == *key {
        return Ok(partial);
    }
    let before = partial.key.clone();
    let moved = rename(node, key, partial).await;
    if moved.is_err() {
        discard(node, &before).await;
    }
    moved
}

/// An earlier generation's partial goes on under this one's key.
async fn rename(node: &Arc<Node>, key: &ReplicaKey, mut partial: Partial) -> Result<Partial, ApiError> {
    let (from, to) = (node.store.partial_path(&partial.key), node.store.partial_path(key));
    let gone = Record::PartialGone { key: std::mem::replace(&mut partial.key, key.clone()) };
    blocking(move || std::fs::rename(&from, &to).map_err(at("renaming", &from))).await?;
    node.store.write(vec![gone.clone(), Record::Partial(partial.clone())], Vec::new()).await?;
    let mut books = node.books();
    books.index.apply(&gone);
    books.index.put_partial(partial.clone(), true);
    Ok(partial)
}

type Stopped = (ApiError, Option<Partial>);

async fn bring(
    node: &Arc<Node>,
    job: &Job,
    request: &FetchRequest,
    entry: &Entry,
    origin: &dyn Origin,
    partial: Partial,
) -> Result<Moved, Stopped> {
    let said = origin.said(entry);
    let also = arrival::also(origin, &said, &request.expected);
    let path = node.store.partial_path(&partial.key);
    let size_bytes = partial.size_bytes;
    let opened = blocking(move || open_partial(path, partial, also)).await;
    let (file, partial, hasher) = opened.map_err(|error| (error, None))?;
    let start = partial.watermark_bytes;
    let (sink, hashing) = intake::open(node, job, file.clone(), partial.clone(), hasher);
    let arrived = async {
        if start < size_bytes {
            origin.fetch(entry, std::slice::from_ref(&(start..size_bytes)), &sink).await?;
        } else {
            unchanged(origin, entry).await?;
        }
        if sink.is_complete() {
            return Ok(());
        }
        Err(short(&entry.path))
    };
    let fetched = watched(node, job, &entry.path, STALL, arrived).await;
    drop(sink);
    let hasher = match (hashing.finish().await, &fetched) {
        (Ok(hasher), _) => hasher,
        (Err(error), Ok(())) => return Err((error, None)),
        (Err(_), Err(error)) => return Err((error.clone(), None)),
    };
    let reached = Partial { watermark_bytes: hasher.size_bytes(), prefix_blake3: hasher.blake3_so_far(), ..partial };
    if let Err(error) = fetched {
        return Err((error, Some(reached)));
    }
    let concluded = async {
        let (replica, verified) = judge(node, job, request, Witness { origin, entry, said }, hasher.finish()).await?;
        Ok((shelve(node, job, file, replica).await?, verified))
    };
    let (replica, verified) = concluded.await.map_err(|error| (error, Some(reached)))?;
    Ok(Moved { replica, bytes_moved: size_bytes - start, verified })
}

pub(super) fn short(path: &str) -> ApiError {
    ApiError::transient("short_read", path, format!("the origin sent fewer bytes of {path} than it has; it is tried again"))
}

pub(super) fn misplaced(path: &str, offset: u64, length: u64) -> ApiError {
    let message =
        format!("the origin sent {length} bytes at {offset} of {path}, which were not asked for or came twice; it is fetched anew");
    ApiError::corrupt("io_error", path, message)
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
        tracing::warn!(partial = %partial.key, "a partial does not have its recorded hash; it is fetched anew");
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

/// Who can say what the content is.
pub(super) struct Witness<'a> {
    pub origin: &'a dyn Origin,
    pub entry: &'a Entry,
    pub said: Said,
}

/// The replica that these digests make, if the source is still what it was and everything that is known of the content agrees.
pub(super) async fn judge(
    node: &Arc<Node>,
    job: &Job,
    request: &FetchRequest,
    witness: Witness<'_>,
    digests: Digests,
) -> Result<(Replica, Option<Verified>), ApiError> {
    let Witness { origin, entry, said } = witness;
    let verified = arrival::check(node, job, origin, entry, &said, &digests, STALL).await?;
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
    Err(ApiError::corrupt("checksum_mismatch", path, message))
}

async fn shelve(node: &Arc<Node>, job: &Job, file: Arc<File>, replica: Replica) -> Result<Replica, ApiError> {
    let key = replica.key();
    let (from, to, durability) = (node.store.partial_path(&key), node.store.data_path(&key), node.store.durability);
    let mode = if replica.executable { 0o500 } else { 0o400 };
    let (worker, sealed) = (node.clone(), replica.clone());
    let look = blocking(move || {
        // Read-only only under its last name: what is still a partial must be writable at the next start.
        std::fs::rename(&from, &to).map_err(at("renaming", &from))?;
        file.set_permissions(Permissions::from_mode(mode)).map_err(at("making read-only", &to))?;
        durability.file(&file, &to)?;
        crate::seals::look(&worker.store, &sealed)
    })
    .await?;
    let checkpointed = node.books().index.partial(&key).is_some();
    let records: Vec<Record> = checkpointed.then(|| Record::PartialGone { key: key.clone() }).into_iter().collect();
    node.store.commit([(&replica, None)], &records, vec![node.store.shelf(&key)]).await?;
    let mut books = node.books();
    books.index.commit(&Holder::Transfer(job.id.clone()), std::slice::from_ref(&replica));
    books.index.drop_partial(&key);
    node.seals.set(&key, look);
    Ok(replica)
}

/// What a fetch that did not end well leaves: bytes to resume from where that makes sense, else nothing.
async fn leave(node: &Arc<Node>, job: &Job, key: &ReplicaKey, reached: Option<Partial>, error: &ApiError) {
    let resumable = error.class == Class::Transient || error.code == "cancelled";
    let kept = match reached.filter(|partial| resumable && partial.watermark_bytes > 0) {
        Some(partial) => keep(node, job, partial).await,
        None => false,
    };
    if !kept {
        discard(node, key).await;
    }
}

async fn keep(node: &Arc<Node>, job: &Job, partial: Partial) -> bool {
    let (path, durability, length) = (node.store.partial_path(&partial.key), node.store.durability, partial.watermark_bytes);
    let cut = blocking(move || {
        let file = OpenOptions::new().write(true).open(&path).map_err(at("opening", &path))?;
        file.set_len(length).map_err(at("cutting", &path))?;
        durability.file(&file, &path)
    });
    if cut.await.is_err() || node.store.write(vec![Record::Partial(partial.clone())], Vec::new()).await.is_err() {
        return false;
    }
    let mut books = node.books();
    // In one step: its bytes leave the reservation and become idle ones.
    books.index.space.release(&Holder::Transfer(job.id.clone()));
    books.index.put_partial(partial, false);
    true
}

async fn discard(node: &Arc<Node>, key: &ReplicaKey) {
    let (worker, gone) = (node.clone(), key.clone());
    let removed = blocking(move || {
        crate::sandbox::folder::remove_tree(&worker.store.partial_path(&gone))
            .map_err(at("removing", &worker.store.partial_path(&gone)))?;
        // Renamed already, but not in the log.
        if worker.books().index.replica(&gone).is_none() {
            worker.store.remove_bytes(&gone)?;
        }
        Ok(())
    });
    if let Err(error) = removed.await {
        tracing::warn!(partial = %key, %error, "a partial could not be removed; a restart removes it");
    }
    if node.books().index.partial(key).is_none() {
        return;
    }
    let record = Record::PartialGone { key: key.clone() };
    if let Err(error) = node.store.write(vec![record], Vec::new()).await {
        tracing::warn!(partial = %key, %error, "a partial could not be logged as gone; a restart finds out");
    }
    node.books().index.drop_partial(key);
}
