//! The tables of the log that replicas are kept in, and records as operations on them. Pure: knows no files.
//!
//! The one rule: what is read from the tables at a start folds to the index that the records folded to.

use bytes::Bytes;
use stager_core::error::{ApiError, Code};
use stager_core::record::{Partial, Record};
use stager_core::replica::{Replica, ReplicaKey, ReplicaState};
use stager_store::{Log, Op, When};

/// What this node is: the epoch it obeys. Tables from 16 on belong to the objects of the S3 endpoint.
const NODE: u8 = 1;
pub const REPLICAS: u8 = 2;
const PARTIALS: u8 = 3;

const EPOCH: &[u8] = b"epoch";
/// The first byte of a replica's metadata: where its content lies.
const IN_FILES: u8 = b'f';
const IN_LOG: u8 = b'l';

/// About what a replica takes as JSON.
const META_BYTES: usize = 400;

/// Ids hold no NUL, so no two replicas share a name.
pub fn name(key: &ReplicaKey) -> Vec<u8> {
    format!("{}\0{}", key.file_id, key.generation).into_bytes()
}

/// A replica as it was committed, and whether its content is the value in the log.
pub struct Kept {
    pub replica: Replica,
    pub in_log: bool,
}

fn put(table: u8, key: Vec<u8>, meta: Vec<u8>, value: Bytes, weight_bytes: u64) -> Op {
    Op::Put { table, key, meta, value, weight_bytes, when: When::Any }
}

/// `content`: of a small file, to lie in the log itself.
pub fn commit(replica: &Replica, content: Option<Bytes>) -> Op {
    let mut meta = Vec::with_capacity(META_BYTES);
    meta.push(if content.is_some() { IN_LOG } else { IN_FILES });
    serde_json::to_writer(&mut meta, replica).expect("a replica is plain values");
    put(REPLICAS, name(&replica.key()), meta, content.unwrap_or_default(), replica.size_bytes)
}

pub fn delete(key: &ReplicaKey) -> Op {
    Op::Delete { table: REPLICAS, key: name(key), when: When::Any }
}

/// For commits of content that lies in files.
pub fn ops(record: &Record) -> Vec<Op> {
    match record {
        Record::Commit { replicas } => replicas.iter().map(|replica| commit(replica, None)).collect(),
        Record::Delete { key } => vec![delete(key)],
        Record::Quarantine { key } => vec![Op::Quarantine { table: REPLICAS, key: name(key), when: When::Any }],
        Record::Epoch { epoch } => vec![put(NODE, EPOCH.to_vec(), epoch.to_le_bytes().to_vec(), Bytes::new(), 0)],
        Record::Partial(partial) => {
            let meta = serde_json::to_vec(partial).expect("a partial is plain values");
            vec![put(PARTIALS, name(&partial.key), meta, Bytes::new(), 0)]
        }
        Record::PartialGone { key } => vec![Op::Delete { table: PARTIALS, key: name(key), when: When::Any }],
    }
}

pub fn kept(stat: &stager_store::Stat, key: &[u8]) -> Result<Kept, ApiError> {
    let (place, rest) = stat.meta.split_first().ok_or_else(|| unreadable(key))?;
    let mut replica: Replica = serde_json::from_slice(rest).map_err(|_| unreadable(key))?;
    if stat.quarantined {
        replica.state = ReplicaState::Quarantined;
    }
    Ok(Kept { replica, in_log: *place == IN_LOG })
}

pub fn in_log(stat: &stager_store::Stat) -> bool {
    stat.meta.first() == Some(&IN_LOG)
}

pub fn replicas(log: &Log) -> Result<impl Iterator<Item = Result<Kept, ApiError>>, ApiError> {
    Ok(log.scan(REPLICAS, b"")?.map(|found| found.and_then(|(key, stat)| kept(&stat, &key))))
}

pub fn partials(log: &Log) -> Result<Vec<Partial>, ApiError> {
    let parse = |(key, stat): (Vec<u8>, stager_store::Stat)| serde_json::from_slice(&stat.meta).map_err(|_| unreadable(&key));
    log.scan(PARTIALS, b"")?.map(|found| found.and_then(parse)).collect()
}

pub fn epoch(log: &Log) -> Result<u64, ApiError> {
    let Some(stat) = log.stat(NODE, EPOCH)? else { return Ok(0) };
    Ok(u64::from_le_bytes(stat.meta.as_slice().try_into().map_err(|_| unreadable(EPOCH))?))
}

fn unreadable(key: &[u8]) -> ApiError {
    let subject = String::from_utf8_lossy(key).into_owned();
    let message = format!("the log holds {subject:?} in a form that this version does not know; use the version that wrote it");
    ApiError::new(Code::StoreDamaged, subject, message)
}
