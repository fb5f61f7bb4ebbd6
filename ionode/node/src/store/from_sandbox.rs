//! Files of a sandbox become files of the store: linked where that is safe, else copied, then hashed and synced.
//!
//! The one rule: what is taken is what was looked at, by inode and by time, before it is hashed and after; anything else is refused.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use nix::errno::Errno;
use stager_core::error::{ApiError, Code};
use stager_core::replica::{Replica, ReplicaKey, ReplicaKind, ReplicaState};

use super::digest::{self, Digests};
use super::durability::Durability;
use super::tree::{Manifest, Member};
use super::Store;
use crate::failure::at;
use crate::sandbox::copy;
use crate::sandbox::folder::{split, Folder};
use crate::sandbox::survey::{Found, Seen};
use crate::store::snapshot::Snapshot;

/// The content of so many bytes of small outputs goes into one record of the log; the others become files.
pub const INLINE_BYTES_TOGETHER: u64 = 32 << 20;
/// From this many files on, one sync of the file system is cheaper than one for each.
pub const SYNC_TOGETHER_FROM: usize = 16;

fn replica(key: &ReplicaKey, kind: ReplicaKind, digests: Digests, executable: bool, members: Option<u64>) -> Replica {
    Replica {
        file_id: key.file_id.clone(),
        generation: key.generation.clone(),
        kind,
        size_bytes: digests.size_bytes,
        blake3: digests.blake3,
        crc64nvme: digests.crc64nvme,
        sha256: digests.sha256,
        executable,
        members,
        token: None,
        state: ReplicaState::Present,
        stripes: None,
    }
}

/// `synced`: whether it is to be on disk; else its caller syncs the file system. With how it looked before it was hashed.
pub fn take_file(
    store: &Store,
    sandbox: &Path,
    output_path: &str,
    key: &ReplicaKey,
    seen: &Seen,
    want_sha256: bool,
    synced: bool,
) -> Result<(Replica, Snapshot), ApiError> {
    let target = store.data_path(key);
    let (parents, name) = split(output_path);
    let source = Folder::open(sandbox).and_then(|top| top.descend(&parents)).map_err(at("opening", &sandbox.join(output_path)))?;
    let shard = Folder::open(&store.shard_directory(key)).map_err(at("opening", &target))?;
    let target_name = target.file_name().expect("a data path has a name");
    let how = How { want_sha256, durability: store.durability, together: !synced };
    let (digests, snapshot) = one(&source, name, seen, &shard, target_name, &target, how)?;
    Ok((replica(key, ReplicaKind::File, digests, seen.executable, None), snapshot))
}

/// A small output: its content goes into the log with its record, and no file is made.
pub fn take_small(
    sandbox: &Path,
    output_path: &str,
    key: &ReplicaKey,
    seen: &Seen,
    want_sha256: bool,
) -> Result<(Replica, Bytes), ApiError> {
    let path = sandbox.join(output_path);
    let (parents, name) = split(output_path);
    let source = Folder::open(sandbox).and_then(|top| top.descend(&parents)).map_err(at("opening", &path))?;
    let mut file = source.file(name).map_err(at("opening", &path))?;
    check_same(&file, seen, &path)?;
    let mut content = Vec::with_capacity(seen.size_bytes as usize + 1);
    (&mut file).take(seen.size_bytes + 1).read_to_end(&mut content).map_err(at("reading", &path))?;
    if content.len() as u64 != seen.size_bytes {
        return Err(changed(&path, seen));
    }
    check_same(&file, seen, &path)?;
    let digests = digest::of_bytes(&content, want_sha256);
    Ok((replica(key, ReplicaKind::File, digests, seen.executable, None), Bytes::from(content)))
}

#[derive(Clone, Copy)]
struct How {
    want_sha256: bool,
    durability: Durability,
    /// Its caller syncs the file system when all are there.
    together: bool,
}

impl How {
    fn sync(self, file: &File, target: &Path) -> Result<(), ApiError> {
        if !self.together {
            return self.durability.file(file, target);
        }
        // The disk is at work while this is hashed.
        self.durability.begin(file);
        Ok(())
    }
}

/// Links or copies one file, makes it read-only, syncs it and hashes it: in this order, since only a sync makes each later write through
/// an old mapping of it show in its times.
fn one(
    source: &Folder,
    name: &OsStr,
    seen: &Seen,
    shard: &Folder,
    target_name: &OsStr,
    target: &Path,
    how: How,
) -> Result<(Digests, Snapshot), ApiError> {
    let linked = seen.links == 1
        && match source.link_to(name, shard, target_name) {
            Ok(()) => true,
            Err(Errno::EXDEV | Errno::EPERM | Errno::EMLINK | Errno::EOPNOTSUPP) => false,
            Err(errno) => return Err(at::<Errno>("linking", target)(errno)),
        };
    if !linked {
        copy_in(source, name, seen, shard, target_name, target)?;
    }
    let file = shard.file(target_name).map_err(at("opening", target))?;
    if linked {
        check_same(&file, seen, target)?;
    }
    file.set_permissions(Permissions::from_mode(if seen.executable { 0o500 } else { 0o400 })).map_err(at("making read-only", target))?;
    how.sync(&file, target)?;
    let stat = || file.metadata().map(|found| Snapshot::of_file(&found)).map_err(at("stat of", target));
    let before = stat()?;
    let digests = digest::of_file(&file, target, how.want_sha256)?;
    if linked {
        check_same(&file, seen, target)?;
    }
    if digests.size_bytes != seen.size_bytes || stat()? != before {
        return Err(changed(target, seen));
    }
    Ok((digests, before))
}

fn copy_in(source: &Folder, name: &OsStr, seen: &Seen, shard: &Folder, target_name: &OsStr, target: &Path) -> Result<(), ApiError> {
    let from = source.file(name).map_err(at("opening", target))?;
    check_same(&from, seen, target)?;
    let mut to = shard.make_file(target_name, 0o600).map_err(at("making", target))?;
    copy::content(&from, target, &mut to, seen.size_bytes)?;
    check_same(&from, seen, target)
}

fn check_same(file: &File, seen: &Seen, target: &Path) -> Result<(), ApiError> {
    let found = file.metadata().map_err(at("stat of", target))?;
    let now = (found.dev(), found.ino(), found.size(), (found.mtime(), found.mtime_nsec()));
    if found.is_file() && now == (seen.device, seen.inode, seen.size_bytes, seen.mtime) {
        return Ok(());
    }
    Err(changed(target, seen))
}

fn changed(target: &Path, seen: &Seen) -> ApiError {
    let subject = target.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    ApiError::new(
        Code::OutputChanged,
        &subject,
        format!("the output {} for {subject} changed while it was taken; end every process of the job first", seen.path),
    )
}

pub fn take_tree(
    store: &Store,
    sandbox: &Path,
    output_path: &str,
    key: &ReplicaKey,
    found: &Found,
    want_sha256: bool,
) -> Result<(Replica, Snapshot), ApiError> {
    let target = store.data_path(key);
    let shard = Folder::open(&store.shard_directory(key)).map_err(at("opening", &target))?;
    let top_name = target.file_name().expect("a data path has a name");
    shard.make_folder(top_name, 0o700).map_err(at("making", &target))?;
    for below in &found.folders {
        let (parents, name) = split(below);
        let made = shard.child(top_name).and_then(|top| top.descend(&parents)).and_then(|parent| parent.make_folder(name, 0o700));
        made.map_err(at("making", &target.join(below)))?;
    }
    let together = found.files.len() + found.folders.len() >= SYNC_TOGETHER_FROM;
    let how = How { want_sha256: false, durability: store.durability, together };
    let mut snapshots = BTreeMap::new();
    let mut members = Vec::with_capacity(found.files.len());
    for seen in &found.files {
        let path = target.join(&seen.path);
        let (parents, name) = split(&seen.path);
        let source =
            Folder::open(sandbox).and_then(|top| top.descend(&output_path.split('/').chain(parents.iter().copied()).collect::<Vec<_>>()));
        let into = shard.child(top_name).and_then(|top| top.descend(&parents)).map_err(at("opening", &path))?;
        let (digests, snapshot) = one(&source.map_err(at("opening", &path))?, name, seen, &into, name, &path, how)?;
        snapshots.insert(seen.path.clone(), snapshot);
        members.push(Member {
            path: seen.path.clone(),
            size_bytes: digests.size_bytes,
            blake3: digests.blake3,
            crc64nvme: digests.crc64nvme,
            executable: seen.executable,
        });
    }
    let manifest = Manifest::new(members, found.empty_folders.clone());
    let digests = write_manifest(store, key, &manifest, want_sha256)?;
    if together {
        store.durability.file_system(&target)?;
    } else {
        for below in found.folders.iter().map(|below| target.join(below)).chain([target.clone()]) {
            store.durability.directory(&below)?;
        }
    }
    let snapshot = Snapshot::of_tree(&manifest.members.iter().map(|member| snapshots[&member.path].clone()).collect::<Vec<_>>());
    Ok((replica(key, ReplicaKind::Directory, digests, false, Some(manifest.members.len() as u64)), snapshot))
}

fn write_manifest(store: &Store, key: &ReplicaKey, manifest: &Manifest, want_sha256: bool) -> Result<Digests, ApiError> {
    let path: PathBuf = store.manifest_path(key);
    let bytes = manifest.to_bytes();
    let mut file = OpenOptions::new().create_new(true).write(true).mode(0o400).open(&path).map_err(at("making", &path))?;
    file.write_all(&bytes).map_err(at("writing", &path))?;
    store.durability.file(&file, &path)?;
    let mut digests = digest::of_bytes(&bytes, want_sha256);
    digests.size_bytes = manifest.size_bytes();
    Ok(digests)
}
