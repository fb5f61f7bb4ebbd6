//! Calls about replicas that are here: delete, verify, read.
//!
//! The one rule: a delete is in the log before the first byte goes, so a crash in between leaves garbage, never a hole.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use nix::sys::memfd::{memfd_create, MFdFlags};
use stager_core::error::{ApiError, Code};
use stager_core::ids::check_id;
use stager_core::record::Record;
use stager_core::replica::{Replica, ReplicaKey, ReplicaKind};
use stager_core::stripes::Layout;

use tracing::Instrument;

use crate::blocking::blocking;
use crate::context::{Cause, NodeContext};
use crate::failure::{at, bad_request};
use crate::fingerprints::Fingerprints;
use crate::in_flight::InFlightReplica;
use crate::store::{tree, Place, Store};
use crate::wire::{AskedDelete, DeletedAnswer, DeletedAnswers, DeletesRequest, Fact, SourceAnswer};

/// Returns when the replica is out of sight; its event follows when it is gone.
pub fn delete(fingerprints: &Arc<Fingerprints>, cause: Cause, key: ReplicaKey) -> Result<(), ApiError> {
    if !fingerprints.context.accounting().index.begin_delete(&key)? {
        return Ok(());
    }
    let fingerprints = fingerprints.clone();
    let finishing = async move {
        if let Err(error) = finish_delete(&fingerprints, &cause, &key).await {
            tracing::error!(replica = %key, %error, "a delete could not be finished; the replica stays");
            fingerprints.context.accounting().index.abandon_delete(&key);
        }
    };
    tokio::spawn(finishing.in_current_span());
    Ok(())
}

/// Each for itself.
pub fn delete_all(fingerprints: &Arc<Fingerprints>, cause: &Cause, asked: DeletesRequest) -> DeletedAnswers {
    let one = |asked: AskedDelete| {
        check_id("file id", &asked.file_id)?;
        check_id("generation", &asked.generation)?;
        asked.command_id.as_deref().map_or(Ok(()), |command_id| check_id("command id", command_id))?;
        let cause = Cause { command_id: asked.command_id, ..cause.clone() };
        delete(fingerprints, cause, ReplicaKey::new(asked.file_id, asked.generation))
    };
    DeletedAnswers { answers: asked.replicas.into_iter().map(|asked| DeletedAnswer { error: one(asked).err() }).collect() }
}

async fn finish_delete(fingerprints: &Arc<Fingerprints>, cause: &Cause, key: &ReplicaKey) -> Result<(), ApiError> {
    let context = &fingerprints.context;
    let record = Record::Delete { key: key.clone() };
    context.store.write(vec![record.clone()], Vec::new()).await?;
    let (worker, gone) = (context.clone(), key.clone());
    let removed = blocking(move || worker.store.remove_bytes(&gone)).await;
    if let Err(error) = removed {
        tracing::warn!(replica = %key, %error, "deleted bytes could not all be removed; a restart removes them");
    }
    context.accounting().index.apply(&record);
    fingerprints.forget(key);
    context.emit(cause, Fact::ReplicaDeleted(key.clone()));
    Ok(())
}

/// What a peer asks before it copies. Of a replica that is being made: once it was checked, or without its BLAKE3 after `wait`.
pub async fn source(context: &NodeContext, key: &ReplicaKey, wait: Duration) -> Result<SourceAnswer, ApiError> {
    let answer = |replica: Replica| SourceAnswer {
        kind: replica.kind,
        size_bytes: replica.stripes.map_or(replica.size_bytes, |layout| layout.file_bytes),
        blake3: Some(replica.blake3),
        sha256: replica.sha256,
        token: replica.token,
        executable: replica.executable,
        stripes: replica.stripes,
    };
    let in_flight = {
        let accounting = context.accounting();
        match (accounting.index.readable(key), context.in_flight.get(key)) {
            (Err(error), Some(in_flight)) if error.code == Code::ReplicaUnknown => in_flight,
            (here, _) => return here.cloned().map(answer),
        }
    };
    let (size_bytes, executable, stripes) = (in_flight.size_bytes, in_flight.executable, in_flight.stripes);
    let mut watched = in_flight;
    match tokio::time::timeout(wait, watched.checked(key)).await {
        Ok(replica) => replica.map(answer),
        Err(_) => Ok(SourceAnswer { kind: ReplicaKind::File, size_bytes, blake3: None, sha256: None, token: None, executable, stripes }),
    }
}

/// What can be read of a replica now.
pub struct Content {
    pub file: Arc<File>,
    pub path: PathBuf,
    pub size_bytes: u64,
    /// As it was committed; `None` where it is not, or not all of it.
    pub crc64nvme: Option<String>,
    /// It is still being made: bytes are read once they are there.
    pub in_flight: Option<InFlightReplica>,
    /// Only these of its stripes are here.
    pub stripes: Option<Layout>,
}

/// For those that need all of it.
pub fn whole(replica: Replica) -> Result<Replica, ApiError> {
    let Some(layout) = replica.stripes else { return Ok(replica) };
    let (key, held_bytes, file_bytes) = (replica.key(), replica.size_bytes, layout.file_bytes);
    let message = format!("this node holds {held_bytes} of {file_bytes} bytes of replica {key} as stripes; fetch it whole for this");
    Err(ApiError::new(Code::StripeNotHere, &key.file_id, message))
}

/// All of a small file and its crc64nvme as it was committed; `None` where that takes more than a look.
pub fn at_hand(context: &NodeContext, key: &ReplicaKey) -> Option<(Bytes, String)> {
    let committed = {
        let accounting = context.accounting();
        let replica = accounting.index.readable(key).ok()?;
        let small = replica.kind == ReplicaKind::File && replica.stripes.is_none() && replica.size_bytes <= context.store.inline_bytes_max;
        small.then(|| replica.crc64nvme.clone())?
    };
    // What is wrong with it is told by who looks closer.
    Some((context.store.content_at_hand(key).ok()??, committed))
}

/// The open file of a replica or of one member. Content that lies in the log comes in a file in memory.
pub fn open_content(context: &NodeContext, key: &ReplicaKey, member: Option<&str>) -> Result<Content, ApiError> {
    let here = {
        let accounting = context.accounting();
        match (accounting.index.readable(key).cloned(), context.in_flight.get(key)) {
            (Err(error), Some(in_flight)) if error.code == Code::ReplicaUnknown && member.is_none() => Err(in_flight),
            (here, _) => Ok(here?),
        }
    };
    let replica = match here {
        Ok(replica) => replica,
        Err(in_flight) => {
            let (file, path, size_bytes, stripes) =
                (in_flight.file.clone(), context.store.partial_path(key), in_flight.size_bytes, in_flight.stripes);
            return Ok(Content { file, path, size_bytes, crc64nvme: None, in_flight: Some(in_flight), stripes });
        }
    };
    let (path, size_bytes, crc64nvme) = match (context.store.content(&replica)?, member) {
        (Place::InLog(bytes), None) => {
            let (file, path) = in_memory(&replica, &bytes)?;
            let (size_bytes, crc64nvme) = (replica.size_bytes, Some(replica.crc64nvme));
            return Ok(Content { file: Arc::new(file), path, size_bytes, crc64nvme, in_flight: None, stripes: None });
        }
        (Place::File(path), None) => match replica.stripes {
            Some(layout) => (path, layout.file_bytes, None),
            None => (path, replica.size_bytes, Some(replica.crc64nvme)),
        },
        (Place::Tree { top, manifest }, Some(member)) => {
            let manifest = tree::Manifest::read(&manifest)?;
            let entry = manifest.member(member).ok_or_else(|| {
                ApiError::new(Code::NotFound, member, format!("the directory {key} has no member {member}; list its manifest"))
            })?;
            (top.join(member), entry.size_bytes, Some(entry.crc64nvme.clone()))
        }
        (Place::InLog(_) | Place::File(_), Some(_)) => {
            return Err(bad_request(&key.file_id, format!("replica {key} is a file and has no members; leave ?member out")))
        }
        (Place::Tree { .. }, None) => {
            return Err(bad_request(&key.file_id, format!("replica {key} is a directory; name one ?member=path")))
        }
    };
    let file = File::open(&path).map_err(at("opening", &path))?;
    Ok(Content { file: Arc::new(file), path, size_bytes, crc64nvme, in_flight: None, stripes: replica.stripes })
}

pub fn read_manifest(context: &NodeContext, key: &ReplicaKey) -> Result<Vec<u8>, ApiError> {
    // What was checked has its manifest, also in the moment before it is committed.
    let made = context.in_flight.get(key).is_some_and(|in_flight| in_flight.stripes.is_some() && in_flight.is_checked());
    let replica = if made { None } else { Some(context.accounting().index.readable(key)?.clone()) };
    if replica.is_some_and(|replica| replica.kind == ReplicaKind::File && replica.stripes.is_none()) {
        return Err(bad_request(&key.file_id, format!("replica {key} is a file and has no manifest")));
    }
    let path = context.store.manifest_path(key);
    std::fs::read(&path).map_err(at("reading", &path))
}

/// Beside the replica's bytes, before they are committed.
pub fn put_manifest(store: &Store, key: &ReplicaKey, bytes: &[u8]) -> Result<(), ApiError> {
    let path = store.manifest_path(key);
    crate::sandbox::folder::remove_tree(&path).map_err(at("removing", &path))?;
    let mut file = OpenOptions::new().create_new(true).write(true).mode(0o400).open(&path).map_err(at("making", &path))?;
    file.write_all(bytes).map_err(at("writing", &path))?;
    store.durability.file(&file, &path)
}

/// Small content as a file without a disk under it; the path leads to it for as long as the file is open.
pub fn in_memory(replica: &Replica, content: &[u8]) -> Result<(File, PathBuf), ApiError> {
    let path = PathBuf::from(&replica.file_id);
    let made = memfd_create(c"replica", MFdFlags::MFD_CLOEXEC).map_err(at("making a file in memory for", &path))?;
    let mut file = File::from(made);
    file.write_all(content).map_err(at("writing in memory", &path))?;
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    Ok((file, path))
}
