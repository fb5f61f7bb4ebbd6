//! Copy of a directory replica: its manifest first, which is its identity, then member by member.
//!
//! The one rule: a member is taken when its bytes have the hash that the manifest names, and a manifest when it has the one expected.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use stager_core::error::{ApiError, Code};
use stager_core::ids::is_relative_path;
use stager_core::record::Record;
use stager_core::replica::{Replica, ReplicaKey, ReplicaKind, ReplicaState};
use stager_core::space::Holder;
use stager_origins::Sink;

use super::chain::Chain;
use super::copy::At;
use super::job::Job;
use crate::blocking::blocking;
use crate::failure::at as failed_at;
use crate::fingerprints::Fingerprints;
use crate::peers::source::Source;
use crate::replicas::put_manifest;
use crate::store::digest;
use crate::store::snapshot::snapshot;
use crate::store::tree::{Manifest, Member};
use crate::wire::CopyRequest;

const MEMBERS_AT_ONCE: usize = 8;
const STALL: Duration = Duration::from_secs(15);

pub(super) async fn copy(
    fingerprints: &Arc<Fingerprints>,
    job: &Job,
    request: &CopyRequest,
    at: &At<'_>,
    chain: &mut Chain,
) -> Result<(Replica, u64), ApiError> {
    let key = ReplicaKey::new(&request.file_id, &request.generation);
    let bytes = job.watched(&request.file_id, STALL, at.link.manifest(at.term, &at.key)).await?;
    let manifest = checked_manifest(request, &at.link.name(), &bytes)?;
    let top = fingerprints.context.store.partial_path(&key);
    let (made_top, folders) = (top.clone(), manifest.folders());
    blocking(move || make_folders(&made_top, &folders)).await?;
    let moved = AtomicU64::new(0);
    let members = manifest.members.iter().map(|wanted| member(job, at, &top, wanted, &moved));
    let all = stream::iter(members.collect::<Vec<_>>()).buffer_unordered(MEMBERS_AT_ONCE).try_collect::<Vec<()>>();
    job.watched(&request.file_id, STALL, all).await?;
    let digests = digest::of_bytes(&bytes, false);
    let replica = Replica {
        file_id: key.file_id.clone(),
        generation: key.generation.clone(),
        kind: ReplicaKind::Directory,
        size_bytes: manifest.size_bytes(),
        blake3: digests.blake3,
        crc64nvme: digests.crc64nvme,
        sha256: None,
        executable: false,
        members: Some(manifest.members.len() as u64),
        token: at.answer.token.clone(),
        state: ReplicaState::Present,
        stripes: None,
    };
    let replica = publish(fingerprints, job, replica, bytes).await?;
    // What lies behind in the chain begins when this node has verified all of it: a tree has no order to be followed in.
    chain.tell_of(&replica, None).await?;
    Ok((replica, moved.into_inner()))
}

fn checked_manifest(request: &CopyRequest, whose: &str, bytes: &[u8]) -> Result<Manifest, ApiError> {
    let file_id = &request.file_id;
    let wrong = |why: &str| {
        let message = format!("{whose} sent a manifest of {file_id} that is not the expected one ({why}); nothing was kept");
        ApiError::new(Code::ChecksumMismatch, file_id, message)
    };
    let found = blake3::hash(bytes).to_hex();
    if !request.expected.blake3.as_ref().is_some_and(|expected| expected.eq_ignore_ascii_case(&found)) {
        return Err(wrong("its BLAKE3 differs"));
    }
    let manifest: Manifest = serde_json::from_slice(bytes).map_err(|_| wrong("it cannot be read"))?;
    let paths = manifest.members.iter().map(|member| &member.path).chain(&manifest.empty_directories);
    if paths.into_iter().any(|path| !is_relative_path(path)) {
        return Err(wrong("it names a path outside of itself"));
    }
    match manifest.size_bytes() == request.expected.size_bytes {
        true => Ok(manifest),
        false => Err(wrong("its members have another size")),
    }
}

fn make_folders(top: &Path, folders: &[String]) -> Result<(), ApiError> {
    if top.symlink_metadata().is_ok_and(|found| !found.is_dir()) {
        std::fs::remove_file(top).map_err(failed_at("removing", top))?;
    }
    for path in std::iter::once(top.to_owned()).chain(folders.iter().map(|below| top.join(below))) {
        DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(failed_at("making", &path))?;
    }
    Ok(())
}

async fn member(job: &Job, at: &At<'_>, top: &Path, wanted: &Member, moved: &AtomicU64) -> Result<(), ApiError> {
    let path = top.join(&wanted.path);
    let (looked, expected) = (path.clone(), wanted.clone());
    // From a source before this one.
    if blocking(move || Ok(has_content(&looked, &expected))).await? {
        return Ok(());
    }
    let (opened, size_bytes) = (path.clone(), wanted.size_bytes);
    let file = blocking(move || {
        let file = OpenOptions::new().create(true).truncate(true).read(true).write(true).mode(0o600).open(&opened);
        file.map(Arc::new).map_err(failed_at("making", &opened))
    })
    .await?;
    let sink = MemberSink { file, path: path.clone(), progress: job.progress.clone(), moved };
    let source = Source { link: at.link, key: at.key.clone(), member: Some(wanted.path.clone()), size_bytes, term: at.term };
    source.fetch(0..size_bytes, &sink).await?;
    let expected = wanted.clone();
    match blocking(move || Ok(has_content(&path, &expected))).await? {
        true => Ok(()),
        false => {
            let message = format!(
                "{} sent a content of {} in {} whose BLAKE3 is not the one in its manifest; nothing was kept",
                at.link.name(),
                wanted.path,
                at.key
            );
            Err(ApiError::new(Code::ChecksumMismatch, &at.key.file_id, message))
        }
    }
}

fn has_content(path: &Path, wanted: &Member) -> bool {
    let Ok(file) = File::open(path) else { return false };
    let same_size = file.metadata().is_ok_and(|found| found.len() == wanted.size_bytes);
    same_size && digest::of_file(&file, path, false).is_ok_and(|found| found.blake3 == wanted.blake3)
}

struct MemberSink<'a> {
    file: Arc<File>,
    path: PathBuf,
    progress: Arc<AtomicU64>,
    moved: &'a AtomicU64,
}

#[async_trait]
impl Sink for MemberSink<'_> {
    async fn write_at(&self, offset: u64, chunk: Bytes) -> Result<(), ApiError> {
        let (file, path, length) = (self.file.clone(), self.path.clone(), chunk.len() as u64);
        blocking(move || file.write_all_at(&chunk, offset).map_err(failed_at("writing", &path))).await?;
        self.progress.fetch_add(length, Ordering::Relaxed);
        self.moved.fetch_add(length, Ordering::Relaxed);
        Ok(())
    }
}

async fn publish(fingerprints: &Arc<Fingerprints>, job: &Job, replica: Replica, manifest: Bytes) -> Result<Replica, ApiError> {
    let context = &fingerprints.context;
    let key = replica.key();
    let (worker, published) = (context.clone(), replica.clone());
    let snapshot = blocking(move || {
        let (from, to) = (worker.store.partial_path(&published.key()), worker.store.data_path(&published.key()));
        let parsed: Manifest = serde_json::from_slice(&manifest).expect("it was parsed before");
        for member in &parsed.members {
            let path = from.join(&member.path);
            let mode = if member.executable { 0o500 } else { 0o400 };
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).map_err(failed_at("making read-only", &path))?;
        }
        put_manifest(&worker.store, &published.key(), &manifest)?;
        std::fs::rename(&from, &to).map_err(failed_at("renaming", &from))?;
        worker.store.durability.file_system(&to)?;
        snapshot(&worker.store, &published)
    })
    .await?;
    context.store.write(vec![Record::Commit { replicas: vec![replica.clone()] }], vec![context.store.shard_directory(&key)]).await?;
    context.accounting().index.commit(&Holder::Transfer(job.id.clone()), std::slice::from_ref(&replica));
    fingerprints.set(&key, snapshot);
    Ok(replica)
}
