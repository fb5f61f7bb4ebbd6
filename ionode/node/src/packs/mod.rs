//! Packs: many small puts, gets, stats and deletes in one call. Knows replicas and the log, nothing of HTTP.
//!
//! The one rule: puts and deletes of a pack are one write of the log, and each entry is judged for itself: one refused fails no other.

pub mod chain;

use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use bytes::Bytes;
use stager_core::error::{ApiError, Code};
use stager_core::record::Record;
use stager_core::replica::{Replica, ReplicaKey, ReplicaKind, ReplicaState};
use stager_core::space::Holder;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::blocking::blocking;
use crate::context::{give_up, Cause, NodeContext};
use crate::failure::{at, bad_request};
use crate::fingerprints::Fingerprints;
use crate::peers::Peers;
use crate::store::{digest, Place};
use crate::stripes::hex;
use crate::transfers::Transfers;
use crate::wire::Fact;

use crate::claims::Claims;
use crate::pack_format::{About, Answered, Ask, CONTENT_BYTES_MAX, NODES_MAX, PACK_BYTES_MAX};

/// What the log calls them by.
const CALL: &str = "/v1/packs";
/// All packs together that are here and not answered yet hold no more than this; others wait before they are read. Those that go on
/// through a chain have memory of their own, by how far they go: so none waits for memory at a node whose packs wait for memory here.
const MEMORY_BYTES: usize = 128 << 20;
const MEMORY_TO_GO_ON_BYTES: usize = 64 << 20;
const MEMORY_UNIT_BYTES: usize = 1 << 10;
/// Hashing less than this takes no longer than handing it to another thread.
const HASH_HERE_BYTES: usize = 128 << 10;

pub struct Packs {
    context: Arc<NodeContext>,
    fingerprints: Arc<Fingerprints>,
    peers: Arc<Peers>,
    transfers: Arc<Transfers>,
    memory: Memory,
    next: AtomicU64,
}

impl Packs {
    pub fn new(context: Arc<NodeContext>, fingerprints: Arc<Fingerprints>, peers: Arc<Peers>, transfers: Arc<Transfers>) -> Self {
        Self { context, fingerprints, peers, transfers, memory: Memory::default(), next: AtomicU64::new(0) }
    }

    /// Waits until a request of so many bytes may be read, that goes on to so many nodes; held until its contents are in all their logs.
    pub async fn memory(&self, bytes: usize, goes_on: usize) -> OwnedSemaphorePermit {
        self.memory.take(bytes, goes_on).await
    }
}

/// By how far a pack goes on.
struct Memory([Arc<Semaphore>; 1 + NODES_MAX]);

impl Default for Memory {
    fn default() -> Self {
        let bytes_of = |goes_on: usize| if goes_on == 0 { MEMORY_BYTES } else { MEMORY_TO_GO_ON_BYTES };
        Self(std::array::from_fn(|goes_on| Arc::new(Semaphore::new(bytes_of(goes_on) / MEMORY_UNIT_BYTES))))
    }
}

impl Memory {
    async fn take(&self, bytes: usize, goes_on: usize) -> OwnedSemaphorePermit {
        let units = bytes.min(PACK_BYTES_MAX).div_ceil(MEMORY_UNIT_BYTES).max(1) as u32;
        self.0[goes_on].clone().acquire_many_owned(units).await.expect("it is never closed")
    }
}

/// How an entry went.
pub enum Outcome {
    Answered(Answered),
    Failed(ApiError),
    /// A get: to be read when its turn comes to be sent.
    Read(Replica),
}

struct Put {
    number: usize,
    key: ReplicaKey,
    executable: bool,
    blake3: [u8; 32],
    content: Bytes,
}

/// Puts and deletes first, all in one write; gets and stats see what is then.
pub async fn perform(packs: &Arc<Packs>, cause: &Cause, asked: Vec<Result<Ask, ApiError>>) -> Vec<Outcome> {
    let mut outcomes: Vec<Option<Outcome>> = asked.iter().map(|_| None).collect();
    let (mut puts, mut deletes, mut reads) = (Vec::new(), Vec::new(), Vec::new());
    let repeated = repeated(&asked);
    for (number, ask) in asked.into_iter().enumerate() {
        match ask {
            Err(error) => outcomes[number] = Some(Outcome::Failed(error)),
            Ok(Ask::Put { key, .. } | Ask::Delete(key)) if repeated.contains(&number) => {
                let message = format!("the pack puts or deletes replica {key} twice; do the second in a pack of its own");
                outcomes[number] = Some(Outcome::Failed(bad_request(&key.file_id, message)));
            }
            Ok(Ask::Put { key, executable, blake3, content }) => puts.push(Put { number, key, executable, blake3, content }),
            Ok(Ask::Delete(key)) => deletes.push((number, key)),
            Ok(Ask::Get(key)) => reads.push((number, key, true)),
            Ok(Ask::Stat(key)) => reads.push((number, key, false)),
        }
    }
    change(packs, cause, puts, deletes, &mut outcomes).await;
    answer_reads(&packs.context, reads, &mut outcomes);
    outcomes.into_iter().map(|outcome| outcome.expect("every entry is answered")).collect()
}

/// The numbers of those that change a key which one before them changes.
fn repeated(asked: &[Result<Ask, ApiError>]) -> HashSet<usize> {
    if asked.len() < 2 {
        return HashSet::new();
    }
    let mut changed = HashSet::with_capacity(asked.len());
    let changes = asked.iter().enumerate().filter_map(|(number, ask)| match ask {
        Ok(Ask::Put { key, .. } | Ask::Delete(key)) => Some((number, key)),
        _ => None,
    });
    changes.filter(|(_, key)| !changed.insert(*key)).map(|(number, _)| number).collect()
}

fn answer_reads(context: &NodeContext, reads: Vec<(usize, ReplicaKey, bool)>, outcomes: &mut [Option<Outcome>]) {
    let accounting = context.accounting();
    for (number, key, content) in reads {
        let outcome = match content {
            true => accounting.index.readable(&key).cloned().and_then(small).map(Outcome::Read),
            false => accounting
                .index
                .replica(&key)
                .map(|replica| Outcome::Answered(Answered::Stat(About::of(replica))))
                .ok_or_else(|| unknown(&key)),
        };
        outcomes[number] = Some(outcome.unwrap_or_else(Outcome::Failed));
    }
}

fn unknown(key: &ReplicaKey) -> ApiError {
    ApiError::new(Code::ReplicaUnknown, &key.file_id, format!("there is no replica {key} on this node; put, fetch or copy it first"))
}

fn small(replica: Replica) -> Result<Replica, ApiError> {
    let key = replica.key();
    if replica.kind == ReplicaKind::Directory || replica.stripes.is_some() {
        let message = format!("replica {key} is no whole file; read it by its own call");
        return Err(bad_request(&key.file_id, message));
    }
    if replica.size_bytes > CONTENT_BYTES_MAX as u64 {
        return Err(too_large(&key, replica.size_bytes, CONTENT_BYTES_MAX as u64, "read it by its own call"));
    }
    Ok(replica)
}

fn too_large(key: &ReplicaKey, size_bytes: u64, bytes_max: u64, instead: &str) -> ApiError {
    let message = format!("{size_bytes} bytes of {key} are more than {bytes_max}, the most for an entry of a pack here; {instead}");
    ApiError::new(Code::TooLarge, &key.file_id, message)
}

async fn change(packs: &Arc<Packs>, cause: &Cause, puts: Vec<Put>, deletes: Vec<(usize, ReplicaKey)>, outcomes: &mut [Option<Outcome>]) {
    if puts.is_empty() && deletes.is_empty() {
        return;
    }
    let mut claims = packs.transfers.packed.claims();
    let puts = admitted(packs, &mut claims, puts, outcomes);
    let puts = hashed(puts, outcomes).await;
    let holder = Holder::Transfer(format!("pack:{}", packs.next.fetch_add(1, Ordering::Relaxed)));
    let puts = with_space(&packs.context, cause, &holder, puts, outcomes);
    let (delete_numbers, deletes): (Vec<usize>, Vec<ReplicaKey>) = hidden(&packs.context, deletes, outcomes).into_iter().unzip();
    let written = match puts.is_empty() && deletes.is_empty() {
        true => Ok(Vec::new()),
        false => {
            let commits = puts.iter().map(|(_, replica, content)| (replica, Some(content.clone())));
            packs.context.store.commit_and_delete(commits, &deletes).await
        }
    };
    let written = match written {
        Ok(in_files) => {
            remove_files(packs, cause, in_files).await;
            Ok(())
        }
        Err(error) => Err(error),
    };
    let (put_numbers, replicas): (Vec<usize>, Vec<Replica>) = puts.into_iter().map(|(number, replica, _)| (number, replica)).unzip();
    let mut accounting = packs.context.accounting();
    match &written {
        Ok(()) => {
            accounting.index.commit(&holder, &replicas);
            deletes.iter().for_each(|key| accounting.index.apply(&Record::Delete { key: key.clone() }));
        }
        Err(_) => deletes.iter().for_each(|key| accounting.index.abandon_delete(key)),
    }
    accounting.index.space.release(&holder);
    drop(accounting);
    for number in delete_numbers {
        outcomes[number] = Some(written.clone().map_or_else(Outcome::Failed, |()| Outcome::Answered(Answered::Deleted)));
    }
    if written.is_ok() {
        deletes.iter().for_each(|key| packs.fingerprints.forget(key));
        packs.context.emit_all(cause, deletes.into_iter().map(Fact::ReplicaDeleted));
    }
    for number in put_numbers {
        let done = || Outcome::Answered(Answered::Put { already: false, missing: Vec::new() });
        outcomes[number] = Some(written.clone().map_or_else(Outcome::Failed, |()| done()));
    }
}

/// Those that may be made under their key.
fn admitted(packs: &Packs, claims: &mut Claims<'_>, puts: Vec<Put>, outcomes: &mut [Option<Outcome>]) -> Vec<Put> {
    let inline_bytes_max = packs.context.store.inline_bytes_max.min(CONTENT_BYTES_MAX as u64);
    let claimed = claims.claim(&puts.iter().map(|put| &put.key).collect::<Vec<_>>());
    // After the claims: a transfer that is accepted from now on finds them.
    let busy = if puts.is_empty() { HashSet::new() } else { packs.transfers.being_made() };
    let accounting = packs.context.accounting();
    let mut kept = Vec::with_capacity(puts.len());
    for (put, claimed) in puts.into_iter().zip(claimed) {
        let (key, size_bytes) = (&put.key, put.content.len() as u64);
        let outcome = match accounting.index.readable(key) {
            Ok(here) if here.blake3 == hex(put.blake3) && here.size_bytes == size_bytes => {
                Outcome::Answered(Answered::Put { already: true, missing: Vec::new() })
            }
            Ok(_) => {
                let message = format!("replica {key} is on this node with another content; put it under a new generation");
                Outcome::Failed(ApiError::new(Code::ReplicaBusy, &key.file_id, message))
            }
            Err(_) if size_bytes > inline_bytes_max => {
                Outcome::Failed(too_large(key, size_bytes, inline_bytes_max, "push it by a call of its own"))
            }
            Err(error) if error.code != Code::ReplicaUnknown || accounting.index.is_leaving(key) || !claimed || busy.contains(key) => {
                let message = format!("replica {key} is being made, deleted or quarantined on this node; put it under a new generation");
                Outcome::Failed(ApiError::new(Code::ReplicaBusy, &key.file_id, message))
            }
            Err(_) => match packs.context.refuse_if_draining(&key.file_id) {
                Ok(()) => {
                    kept.push(put);
                    continue;
                }
                Err(error) => Outcome::Failed(error),
            },
        };
        outcomes[put.number] = Some(outcome);
    }
    kept
}

type Made = (usize, Replica, Bytes);

/// Those that have the BLAKE3 that was named.
async fn hashed(puts: Vec<Put>, outcomes: &mut [Option<Outcome>]) -> Vec<Made> {
    let together: usize = puts.iter().map(|put| put.content.len()).sum();
    let judge = move || puts.into_iter().map(|put| (put.number, hashed_one(put))).collect::<Vec<_>>();
    let judged = match together > HASH_HERE_BYTES {
        true => blocking(move || Ok(judge())).await,
        false => Ok(judge()),
    };
    let judged = judged.unwrap_or_else(|_| give_up("hashing a pack"));
    let mut made = Vec::with_capacity(judged.len());
    for (number, outcome) in judged {
        match outcome {
            Ok((replica, content)) => made.push((number, replica, content)),
            Err(error) => outcomes[number] = Some(Outcome::Failed(error)),
        }
    }
    made
}

fn hashed_one(put: Put) -> Result<(Replica, Bytes), ApiError> {
    let digests = digest::of_bytes(&put.content, false);
    let ReplicaKey { file_id, generation } = put.key;
    if digests.blake3 != hex(put.blake3) {
        let message = format!("the content put as {file_id} has another BLAKE3 than the pack names; nothing of it was kept, put it again");
        return Err(ApiError::new(Code::ChecksumMismatch, &file_id, message));
    }
    let replica = Replica {
        file_id,
        generation,
        kind: ReplicaKind::File,
        size_bytes: digests.size_bytes,
        blake3: digests.blake3,
        crc64nvme: digests.crc64nvme,
        sha256: None,
        executable: put.executable,
        members: None,
        token: None,
        state: ReplicaState::Present,
        stripes: None,
    };
    Ok((replica, put.content))
}

/// Those that there is space for, in their order; the holder holds it.
fn with_space(context: &NodeContext, cause: &Cause, holder: &Holder, puts: Vec<Made>, outcomes: &mut [Option<Outcome>]) -> Vec<Made> {
    let together: u64 = puts.iter().map(|(_, replica, _)| replica.size_bytes).sum();
    let reserve = |subject: &str, bytes| context.reserve_in(|| cause.span("POST", CALL), holder.clone(), subject, bytes);
    if together == 0 || reserve("pack", together).is_ok() {
        return puts;
    }
    let mut held = 0;
    let mut kept = Vec::new();
    for put in puts {
        match reserve(&put.1.file_id, held + put.1.size_bytes) {
            Ok(()) => {
                held += put.1.size_bytes;
                kept.push(put);
            }
            Err(error) => outcomes[put.0] = Some(Outcome::Failed(error)),
        }
    }
    kept
}

/// Those that are there and not open: from here on nobody sees them.
fn hidden(context: &NodeContext, deletes: Vec<(usize, ReplicaKey)>, outcomes: &mut [Option<Outcome>]) -> Vec<(usize, ReplicaKey)> {
    if deletes.is_empty() {
        return deletes;
    }
    let mut accounting = context.accounting();
    let begin = |(number, key): &(usize, ReplicaKey)| match accounting.index.begin_delete(key) {
        Ok(true) => true,
        Ok(false) => {
            outcomes[*number] = Some(Outcome::Answered(Answered::Deleted));
            false
        }
        Err(error) => {
            outcomes[*number] = Some(Outcome::Failed(error));
            false
        }
    };
    deletes.into_iter().filter(begin).collect()
}

async fn remove_files(packs: &Arc<Packs>, cause: &Cause, keys: Vec<ReplicaKey>) {
    if keys.is_empty() {
        return;
    }
    let worker = packs.clone();
    let removed = blocking(move || keys.iter().try_for_each(|key| worker.context.store.remove_bytes(key)));
    if let Err(error) = removed.await {
        let _call = cause.span("POST", CALL).entered();
        tracing::warn!(%error, "bytes that a pack deleted could not all be removed; a restart removes them");
    }
}

/// The content of a small replica, its checksum compared; `Corrupt` where it differs. For a thread that may wait.
pub fn read(context: &NodeContext, replica: &Replica) -> Result<Bytes, ApiError> {
    let content = match context.store.content(replica)? {
        Place::InLog(content) => content,
        Place::File(path) => {
            let mut content = vec![0; replica.size_bytes as usize];
            File::open(&path).and_then(|file| file.read_exact_at(&mut content, 0)).map_err(at("reading", &path))?;
            Bytes::from(content)
        }
        Place::Tree { top, .. } => return Err(bad_request(&replica.file_id, format!("{} is a directory", top.display()))),
    };
    if content.len() as u64 == replica.size_bytes && digest::of_bytes(&content, false).crc64nvme == replica.crc64nvme {
        return Ok(content);
    }
    let message = format!("replica {} is damaged on this node's disk; it was not given out", replica.key());
    Err(ApiError::new(Code::ChecksumMismatch, &replica.file_id, message))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Else two nodes whose packs go to each other would each wait for the other's memory.
    #[tokio::test]
    async fn packs_that_go_further_take_no_memory_from_those_that_end_sooner() {
        let packs = Memory::default();
        let mut held = Vec::new();
        for goes_on in (1..=NODES_MAX).rev() {
            let memory = tokio::time::timeout(Duration::from_secs(60), packs.take(PACK_BYTES_MAX, goes_on)).await;
            held.push(memory.expect("there is memory"));
            let rest = packs.0[goes_on].available_permits() as u32;
            held.push(packs.0[goes_on].clone().try_acquire_many_owned(rest).expect("so much is left"));
            assert!(packs.0[goes_on - 1].available_permits() * MEMORY_UNIT_BYTES >= PACK_BYTES_MAX);
        }
    }
}
