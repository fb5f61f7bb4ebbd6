//! The store on disk: one directory tree, its names, its log. Knows files and records, nothing of HTTP, origins or jobs.
//!
//! The one rule: the log is the only truth; a file that it does not name is garbage, a file that it names must be there.

pub mod digest;
pub mod durability;
pub mod files;
pub mod from_sandbox;
pub mod recovery;
pub mod snapshot;
pub mod tables;
pub mod tree;
mod upgrade;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use nix::fcntl::Flock;
use stager_core::error::ApiError;
use stager_core::record::Record;
use stager_core::replica::{Replica, ReplicaKey, ReplicaKind};
use stager_store::{Done, Log, Op, Options, Sync};

use durability::Durability;

pub const FORMAT: u32 = 2;
const NAME_BYTES_MAX: usize = 230;
const ID_CONTEXT: &str = "stager-ionode 2026-11-26 identity of a store";

/// How the log is kept under a durability.
pub fn log_options(durability: Durability) -> Options {
    Options { sync: if durability.0 { Sync::Always } else { Sync::Never }, ..Options::default() }
}

/// How a store is kept.
#[derive(Clone, Copy, Debug)]
pub struct StoreSettings {
    pub durability: Durability,
    /// Files up to this size lie in the log.
    pub inline_bytes_max: u64,
}

/// What the directories of attempts on other hosts begin with.
pub const REMOTE: &str = "of-";

pub struct Store {
    root: PathBuf,
    pub durability: Durability,
    pub inline_bytes_max: u64,
    /// Replicas and objects by name, small ones with their content.
    pub log: Arc<Log>,
    token: String,
    /// Held for as long as the process lives: no second node on this directory.
    _lock: Flock<File>,
}

/// Where a replica's content lies.
pub enum Place {
    InLog(Bytes),
    File(PathBuf),
    Tree { top: PathBuf, manifest: PathBuf },
}

impl Store {
    pub fn root(&self) -> &Path {
        &self.root
    }
    pub fn token(&self) -> &str {
        &self.token
    }
    /// Which store this is: it stays so over restarts, another directory has another, and a copy of this one has the same. Derived, since
    /// who knows the salt can write a value that looks like a frame.
    pub fn id(&self) -> String {
        blake3::Hash::from(blake3::derive_key(ID_CONTEXT, &self.log.salt().to_le_bytes())).to_hex()[..32].to_string()
    }
    pub fn data_path(&self, key: &ReplicaKey) -> PathBuf {
        data_path(&self.root, key)
    }
    pub fn manifest_path(&self, key: &ReplicaKey) -> PathBuf {
        manifest_path(&self.root, key)
    }
    pub fn partial_path(&self, key: &ReplicaKey) -> PathBuf {
        self.root.join("partial").join(name(key))
    }
    /// Of an attempt on another host: what it was given, and what it sent so far.
    pub fn remote_path(&self, attempt_id: &str) -> PathBuf {
        // An id may be `..`.
        self.root.join("remote").join(format!("{REMOTE}{attempt_id}"))
    }

    pub fn attempt_path(&self, attempt_id: &str) -> PathBuf {
        self.root.join("attempts").join(format!("{attempt_id}.json"))
    }
    pub fn rendezvous_path(&self) -> PathBuf {
        self.root.join("rendezvous.json")
    }
    pub fn token_path(&self) -> PathBuf {
        self.root.join("token")
    }

    /// The directory that a replica's file or tree is renamed into; to be synced before its commit.
    pub fn shard_directory(&self, key: &ReplicaKey) -> PathBuf {
        shard_directory(&self.root, key)
    }

    /// Content that lies in the log has been compared with its checksum there.
    pub fn content(&self, replica: &Replica) -> Result<Place, ApiError> {
        let key = replica.key();
        if replica.kind == ReplicaKind::Directory {
            return Ok(Place::Tree { top: self.data_path(&key), manifest: self.manifest_path(&key) });
        }
        match self.version_in_log(&key)? {
            Some(_) => {
                let found = self.log.get(tables::REPLICAS, &tables::name(&key))?;
                Ok(found.map_or_else(|| Place::File(self.data_path(&key)), |(_, bytes)| Place::InLog(bytes)))
            }
            None => Ok(Place::File(self.data_path(&key))),
        }
    }

    /// A file's content where it lies in the log and no disk has to be waited for.
    pub fn content_at_hand(&self, key: &ReplicaKey) -> Result<Option<Bytes>, ApiError> {
        let found = self.log.get_at_hand(tables::REPLICAS, &tables::name(key))?;
        Ok(found.filter(|(stat, _)| tables::in_log(stat)).map(|(_, bytes)| bytes))
    }

    /// These, those in the log in the order in which they lie there, so that a cold disk is read once from one end to the other.
    pub fn in_reading_order(&self, keys: &[ReplicaKey]) -> Vec<usize> {
        let place = |key: &ReplicaKey| self.log.stat(tables::REPLICAS, &tables::name(key)).ok().flatten().map(|stat| stat.place());
        let mut order: Vec<_> = keys.iter().enumerate().map(|(number, key)| (place(key), number)).collect();
        order.sort();
        order.into_iter().map(|(_, number)| number).collect()
    }

    /// Which write of it, where a replica's content lies in the log.
    pub fn version_in_log(&self, key: &ReplicaKey) -> Result<Option<u64>, ApiError> {
        let name = tables::name(key);
        let Some(stat) = self.log.stat(tables::REPLICAS, &name)? else { return Ok(None) };
        Ok(tables::kept(&stat, &name)?.in_log.then_some(stat.version))
    }

    /// On disk when this returns, after the directories that files were renamed in.
    pub async fn write(&self, records: Vec<Record>, directories: Vec<PathBuf>) -> Result<(), ApiError> {
        let ops = records.iter().flat_map(tables::ops).collect();
        self.log.write_all_after(directories, ops).await.map(drop)
    }

    /// Replicas with their content where that is to lie in the log; `records` are written with them, all or none.
    pub async fn commit(
        &self,
        replicas: impl IntoIterator<Item = (&Replica, Option<Bytes>)>,
        records: &[Record],
        directories: Vec<PathBuf>,
    ) -> Result<(), ApiError> {
        let commits = replicas.into_iter().map(|(replica, content)| tables::commit(replica, content));
        let ops: Vec<Op> = commits.chain(records.iter().flat_map(tables::ops)).collect();
        self.log.write_all_after(directories, ops).await.map(drop)
    }

    /// As `commit`, and deletes; returns those of them that may have left files: what was known of them does not lie in the log.
    pub async fn commit_and_delete(
        &self,
        replicas: impl IntoIterator<Item = (&Replica, Option<Bytes>)>,
        deletes: &[ReplicaKey],
    ) -> Result<Vec<ReplicaKey>, ApiError> {
        let commits = replicas.into_iter().map(|(replica, content)| tables::commit(replica, content));
        let ops: Vec<Op> = commits.chain(deletes.iter().map(tables::delete)).collect();
        let commits = ops.len() - deletes.len();
        let done = self.log.write_all(ops).await?;
        let in_log = |done: &Done| matches!(done, Done::Deleted { before: Some(before) } if tables::in_log(before));
        let deleted = deletes.iter().zip(done.iter().skip(commits));
        Ok(deleted.filter(|(_, done)| !in_log(done)).map(|(key, _)| key.clone()).collect())
    }

    /// As `write`, from a thread that may wait.
    pub fn write_blocking(&self, records: &[Record]) -> Result<(), ApiError> {
        self.log.write_all_blocking(records.iter().flat_map(tables::ops).collect()).map(drop)
    }

    /// Removes the files of a replica that the log no longer names, or does not name yet. What is missing is fine.
    pub fn remove_bytes(&self, key: &ReplicaKey) -> Result<(), ApiError> {
        for path in [self.data_path(key), self.manifest_path(key)] {
            crate::sandbox::folder::remove_tree(&path).map_err(crate::failure::at("removing", &path))?;
        }
        Ok(())
    }
}

fn shard_directory(root: &Path, key: &ReplicaKey) -> PathBuf {
    let hash = blake3::hash(format!("{}@{}", key.file_id, key.generation).as_bytes());
    root.join("data").join(format!("{:02x}", hash.as_bytes()[0]))
}

pub fn data_path(root: &Path, key: &ReplicaKey) -> PathBuf {
    shard_directory(root, key).join(name(key))
}
pub fn manifest_path(root: &Path, key: &ReplicaKey) -> PathBuf {
    shard_directory(root, key).join(format!("{}@m", name(key)))
}

/// `@` is not in the alphabet of ids, so two replicas never share a name. Ids too long for a file name are joined by their hash.
pub fn name(key: &ReplicaKey) -> String {
    let plain = format!("{}@{}", key.file_id, key.generation);
    if plain.len() <= NAME_BYTES_MAX {
        return plain;
    }
    format!("@{}", blake3::hash(plain.as_bytes()).to_hex())
}

/// The names a replica has in its shard directory.
fn names(replica: &Replica) -> Vec<String> {
    let name = name(&replica.key());
    match replica.kind {
        ReplicaKind::File if replica.stripes.is_none() => vec![name],
        ReplicaKind::File => vec![format!("{name}@m"), name],
        ReplicaKind::Directory => vec![format!("{name}@m"), name],
    }
}
