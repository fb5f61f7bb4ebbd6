//! Opening a store: lock, format, token, what the log says, and what the disk says to it.
//!
//! The one rule: nothing that the log names is removed here; what is missing or of a wrong size is quarantined and told.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use nix::fcntl::{Flock, FlockArg};
use stager_core::error::{ApiError, Code};
use stager_core::index::Index;
use stager_core::record::Record;
use stager_core::replica::{Replica, ReplicaKey, ReplicaKind, ReplicaState};
use stager_store::Log;

use super::durability::Durability;
use super::files::{list, make_directory, write_whole};
use super::tables::{self, Kept};
use super::{log_options, name, names, tree, upgrade, Store, StoreSettings, FORMAT};
use crate::failure::{at, disk};
use crate::sandbox::folder::remove_tree;

/// Why a store cannot be opened.
#[derive(Debug)]
pub enum Unopened {
    /// Another node has it.
    Locked(String),
    Fault(ApiError),
}

impl From<ApiError> for Unopened {
    fn from(error: ApiError) -> Self {
        Self::Fault(error)
    }
}

pub struct Opened {
    pub store: Store,
    pub index: Index,
    /// Replicas whose bytes are not what the log says.
    pub lost: Vec<ReplicaKey>,
}

pub fn open(root: &Path, capacity_bytes: u64, settings: StoreSettings) -> Result<Opened, Unopened> {
    let StoreSettings { durability, inline_bytes_max } = settings;
    make_directory(root)?;
    let root = root.canonicalize().map_err(at("looking for", root))?;
    let lock = lock(&root)?;
    bring_to_format(&root, durability)?;
    for below in ["data", "partial", "attempts", "remote"] {
        make_directory(&root.join(below))?;
    }
    let token = token(&root, durability)?;
    make_shard_directories(&root, durability)?;
    let (log, recovered) = Log::open(&root, log_options(durability))?;
    tracing::info!(
        frames = recovered.frames,
        entries = recovered.entries,
        cut_bytes = recovered.cut_bytes,
        index_rebuilt = recovered.index_rebuilt,
        took_s = recovered.took.as_secs_f64(),
        "opened the log"
    );
    let mut index = Index::new(capacity_bytes);
    let lost = load(&root, &log, &mut index)?;
    let mut findings: Vec<Record> = lost.iter().map(|key| Record::Quarantine { key: key.clone() }).collect();
    findings.iter().for_each(|record| index.apply(record));
    findings.extend(check_partials(&root, &mut index)?);
    remove_garbage(&root, &index)?;
    let store = Store { root, durability, inline_bytes_max, log: Arc::new(log), token, _lock: lock };
    store.write_blocking(&findings)?;
    Ok(Opened { store, index, lost })
}

/// Everything the log says of replicas, and which of them are not there.
fn load(root: &Path, log: &Log, index: &mut Index) -> Result<Vec<ReplicaKey>, ApiError> {
    index.apply(&Record::Epoch { epoch: tables::epoch(log)? });
    let mut lost = Vec::new();
    for kept in tables::replicas(log)? {
        let Kept { replica, in_log } = kept?;
        if !in_log && replica.state == ReplicaState::Present && !is_there(root, &replica) {
            lost.push(replica.key());
        }
        index.apply(&Record::Commit { replicas: vec![replica] });
    }
    for partial in tables::partials(log)? {
        index.apply(&Record::Partial(partial));
    }
    Ok(lost)
}

pub fn lock(root: &Path) -> Result<Flock<File>, Unopened> {
    let path = root.join("lock");
    let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path).map_err(at("opening", &path))?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| match errno {
        nix::errno::Errno::EWOULDBLOCK => {
            Unopened::Locked(format!("another node serves {}; end it first or name another directory", root.display()))
        }
        errno => Unopened::Fault(disk("locking", &path, &errno.into())),
    })
}

/// Of the store in `root`.
pub fn format_of(root: &Path) -> Result<u32, ApiError> {
    let path = root.join("VERSION");
    let text = fs::read_to_string(&path).map_err(at("reading", &path))?;
    text.trim().parse().map_err(|_| {
        let message = format!("{} holds no format number; it is no store of stager, or a damaged one", path.display());
        ApiError::new(Code::StoreDamaged, path.display().to_string(), message)
    })
}

/// The format of this version: as it is, made, or upgraded from an older one; a newer one is refused.
fn bring_to_format(root: &Path, durability: Durability) -> Result<(), ApiError> {
    let path = root.join("VERSION");
    let write_version = || write_whole(&path, format!("{FORMAT}\n").as_bytes(), durability);
    match path.exists().then(|| format_of(root)) {
        Some(format) => match format? {
            1 => {
                upgrade::from_format_1(root, log_options(durability))?;
                write_version()
            }
            format if format == FORMAT => Ok(()),
            format => {
                let message = format!(
                    "the store {} has format {format} and this stager-ionode knows format {FORMAT}; use the version that wrote it",
                    root.display()
                );
                Err(ApiError::new(Code::Unsupported, root.display().to_string(), message))
            }
        },
        None => write_version(),
    }?;
    upgrade::put_aside(root)
}

fn token(root: &Path, durability: Durability) -> Result<String, ApiError> {
    let path = root.join("token");
    match fs::read_to_string(&path) {
        Ok(text) if text.trim().len() >= 32 => return Ok(text.trim().to_string()),
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(disk("reading", &path, &error)),
    }
    let token: String = rand::random::<[u8; 32]>().iter().map(|byte| format!("{byte:02x}")).collect();
    write_whole(&path, token.as_bytes(), durability)?;
    Ok(token)
}

fn make_shard_directories(root: &Path, durability: Durability) -> Result<(), ApiError> {
    let data = root.join("data");
    if data.join("ff").is_dir() {
        return Ok(());
    }
    for shard in 0..=255u8 {
        make_directory(&data.join(format!("{shard:02x}")))?;
    }
    durability.directory(&data)
}

/// By size only: contents are verified at commit and by `verify`, not at every start.
pub fn is_there(root: &Path, replica: &Replica) -> bool {
    let path = super::data_path(root, &replica.key());
    match replica.kind {
        ReplicaKind::File => path.symlink_metadata().is_ok_and(|found| found.is_file() && found.len() == replica.size_bytes),
        ReplicaKind::Directory => tree::has_sizes(&path, &super::manifest_path(root, &replica.key())),
    }
}

/// A partial is worth what its last checkpoint says; bytes written after it are cut.
fn check_partials(root: &Path, index: &mut Index) -> Result<Vec<Record>, ApiError> {
    let mut gone = Vec::new();
    for partial in index.partials() {
        let path = root.join("partial").join(name(&partial.key));
        let long_enough = path.symlink_metadata().is_ok_and(|found| found.is_file() && found.len() >= partial.watermark_bytes);
        if !long_enough || partial.watermark_bytes == 0 {
            gone.push(Record::PartialGone { key: partial.key.clone() });
            continue;
        }
        let file = OpenOptions::new().write(true).open(&path).map_err(at("opening", &path))?;
        file.set_len(partial.watermark_bytes).map_err(at("cutting", &path))?;
    }
    gone.iter().for_each(|record| index.apply(record));
    Ok(gone)
}

fn remove_garbage(root: &Path, index: &Index) -> Result<(), ApiError> {
    let known: HashSet<String> = index.replicas().flat_map(names).collect();
    let mut removed = 0;
    for shard in list(&root.join("data"))? {
        let shard = root.join("data").join(shard);
        for entry in list(&shard)?.into_iter().filter(|entry| !known.contains(entry)) {
            remove_tree(&shard.join(&entry)).map_err(at("removing", &shard.join(&entry)))?;
            removed += 1;
        }
    }
    let partials: HashSet<String> = index.partials().map(|partial| name(&partial.key)).collect();
    for entry in list(&root.join("partial"))?.into_iter().filter(|entry| !partials.contains(entry)) {
        let path = root.join("partial").join(entry);
        remove_tree(&path).map_err(at("removing", &path))?;
        removed += 1;
    }
    if removed > 0 {
        tracing::info!(removed, "removed files that the log does not name");
    }
    Ok(())
}
