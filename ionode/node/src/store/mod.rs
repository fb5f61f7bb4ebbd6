//! The store on disk: one directory tree, its names, its commit log. Knows files and records, nothing of HTTP, origins or jobs.
//!
//! The one rule: the log is the only truth; a file that it does not name is garbage, a file that it names must be there.

pub mod digest;
pub mod intake;
pub mod journal;
pub mod log;
pub mod recovery;
pub mod tree;

use std::fs::File;
use std::path::{Path, PathBuf};

use nix::fcntl::Flock;
use stager_core::error::ApiError;
use stager_core::record::Record;
use stager_core::replica::{Replica, ReplicaKey, ReplicaKind};

use journal::{Durability, Journal};

pub const FORMAT: u32 = 1;
const NAME_BYTES_MAX: usize = 230;

pub struct Store {
    root: PathBuf,
    pub durability: Durability,
    journal: Journal,
    token: String,
    /// Held for as long as the process lives: no second node on this directory.
    _lock: Flock<File>,
}

impl Store {
    pub fn root(&self) -> &Path {
        &self.root
    }
    pub fn token(&self) -> &str {
        &self.token
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
    pub fn shelf(&self, key: &ReplicaKey) -> PathBuf {
        shelf(&self.root, key)
    }

    pub async fn write(&self, records: Vec<Record>, directories: Vec<PathBuf>) -> Result<(), ApiError> {
        self.journal.write(records, directories).await
    }

    /// As `write`, from a thread that may wait.
    pub fn write_blocking(&self, records: Vec<Record>) -> Result<(), ApiError> {
        self.journal.write_blocking(records)
    }

    /// Removes the bytes of a replica that the log no longer names, or does not name yet. What is missing is fine.
    pub fn remove_bytes(&self, key: &ReplicaKey) -> Result<(), ApiError> {
        for path in [self.data_path(key), self.manifest_path(key)] {
            crate::sandbox::folder::remove_tree(&path).map_err(crate::failure::at("removing", &path))?;
        }
        Ok(())
    }
}

fn shelf(root: &Path, key: &ReplicaKey) -> PathBuf {
    let hash = blake3::hash(format!("{}@{}", key.file_id, key.generation).as_bytes());
    root.join("data").join(format!("{:02x}", hash.as_bytes()[0]))
}

pub fn data_path(root: &Path, key: &ReplicaKey) -> PathBuf {
    shelf(root, key).join(name(key))
}
pub fn manifest_path(root: &Path, key: &ReplicaKey) -> PathBuf {
    shelf(root, key).join(format!("{}@m", name(key)))
}

/// `@` is not in the alphabet of ids, so two replicas never share a name. Ids too long for a file name are joined by their hash.
pub fn name(key: &ReplicaKey) -> String {
    let plain = format!("{}@{}", key.file_id, key.generation);
    if plain.len() <= NAME_BYTES_MAX {
        return plain;
    }
    format!("@{}", blake3::hash(plain.as_bytes()).to_hex())
}

/// The names a replica has on its shelf.
fn names(replica: &Replica) -> Vec<String> {
    let name = name(&replica.key());
    match replica.kind {
        ReplicaKind::File if replica.stripes.is_none() => vec![name],
        ReplicaKind::File => vec![format!("{name}@m"), name],
        ReplicaKind::Directory => vec![format!("{name}@m"), name],
    }
}
