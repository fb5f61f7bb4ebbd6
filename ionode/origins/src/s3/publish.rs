//! An upload to a bucket: one conditional PUT, or a multipart upload completed on the condition, whose answer proves what the server got;
//! else a read-back of the ETag it got.
//!
//! The one rule: nothing is sent under the final name before its local content was checked, and what does not read back equal is taken
//! away again where that removes nothing else.
//!
//! Most servers give what they took the MD5 of it as ETag, and of parts the MD5 of their MD5s: equal to what was sent it proves that all of
//! it came. Another one proves nothing: servers that encrypt by keys of their own have such ETags.

use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{stream, FutureExt, TryFutureExt, TryStreamExt};
use md5::Digest;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path as Key;
use object_store::{Error, ObjectStore, PutPayload, PutResult};
use stager_core::error::{ApiError, Code};
use tokio::sync::{OwnedSemaphorePermit, RwLock};

use super::exact::{self, take_back, Written};
use super::{put_options, tag_of, token_of, S3Origin};
use crate::compared::{compare, unpaced, Compared, Reading, There};
use crate::failure;
use crate::local::{LocalFile, Sha256Of, Source, SMALL_BYTES};
use crate::newer::seconds_of;
use crate::verify::{content_blake3, content_of};
use crate::{Entry, Synced, Upload, Uploaded, Verified};

const SINGLE_BYTES_MAX: u64 = 16 << 20;
const PART_BYTES_USUAL_MIN: u64 = 8 << 20;
const PART_BYTES_USUAL_MAX: u64 = 64 << 20;
const PARTS_USUAL: u64 = 1000;
const PARTS_MAX: u64 = 10_000;
pub const HELD_MIB_MAX: u32 = 256;
/// Of what is there already: a quick word where it differs at once, then as much as a line takes.
const COMPARING: Reading = Reading { step_bytes: 256 << 10, steps_at_once: 4, in_flight: 8 };
/// Others do not wait long for that.
const HASHED_HERE_BYTES: usize = 64 << 10;
/// Of parts in memory; large parts go two at a time.
const PARTS_BYTES_IN_FLIGHT: u64 = 64 << 20;

/// After so many uploads it pays to ask a server whether it keeps to the condition of a PUT.
const ASKED_AFTER: usize = 16;

/// What the server answered, and whether that proves its content.
struct Sent {
    written: Written,
    is_proven: bool,
}

impl Sent {
    fn new(answer: PutResult, expected_tag: Option<String>) -> Self {
        let written = Written::from(answer);
        let is_proven = expected_tag.is_some() && written.tag == expected_tag;
        Self { written, is_proven }
    }
}

pub async fn upload(origin: &S3Origin, upload: &Upload<'_>, path: &str) -> Result<Uploaded, ApiError> {
    let local = LocalFile::open(upload).await?;
    // One small request that is refused where something is there says as much as a stat before.
    let stats = upload.replace || upload.size_bytes >= SINGLE_BYTES_MAX || !creates_only(origin).await;
    let bytes_read = match stats {
        true => match existing(origin, upload, path).await? {
            There::Adopted(adopted) => return Ok(adopted),
            There::Other { bytes_read } => bytes_read,
        },
        false => 0,
    };
    let sent = if upload.size_bytes < SINGLE_BYTES_MAX {
        single(origin, upload, path, local).await
    } else {
        multipart(origin, upload, path, local).await
    };
    let uploaded = match sent {
        Ok(sent) if sent.is_proven => proven(upload, &sent.written),
        Ok(sent) => verified(origin, upload, path, sent.written).await?,
        // Somebody else made it meanwhile, or our own request did and its answer was lost.
        Err(error) if error.code == Code::DestinationExists => match existing(origin, upload, path).await? {
            There::Adopted(adopted) => adopted,
            There::Other { .. } => {
                let message = format!("Another upload of {path:?} to {} is under way; stager retries this one.", origin.place);
                return Err(ApiError::new(Code::IoError, path, message));
            }
        },
        Err(error) => return Err(error),
    };
    Ok(Uploaded { bytes_moved: uploaded.bytes_moved + bytes_read, ..uploaded })
}

fn proven(upload: &Upload<'_>, written: &Written) -> Uploaded {
    let token = token_of(written.tag.as_deref().unwrap_or_default(), upload.size_bytes);
    Uploaded { token, verified: Verified::OriginChecksum, synced: Synced::ByServer, bytes_moved: upload.size_bytes }
}

/// Whether the server refuses a PUT that may only create where something is there: asked once, by an object of our own, as soon as there are
/// many uploads. Some servers take no notice of the condition.
async fn creates_only(origin: &S3Origin) -> bool {
    if origin.uploads.fetch_add(1, Ordering::Relaxed) < ASKED_AFTER {
        return false;
    }
    *origin.creates_on_condition.get_or_init(|| async { exact::keeps_to_creating(origin).await.unwrap_or(false) }).await
}

/// Adopts equal content; other content is an error unless it may be replaced and is not newer.
async fn existing(origin: &S3Origin, upload: &Upload<'_>, path: &str) -> Result<There, ApiError> {
    let (entry, clock) = match origin.head_at(path).await {
        Ok(found) => found,
        Err(error) if error.code == Code::NotFound => return Ok(There::Other { bytes_read: 0 }),
        Err(error) => return Err(error),
    };
    let compared = match entry.size_bytes == upload.size_bytes {
        true => {
            let read = |range| content_of(origin, &entry, range, &upload.pace);
            compare(upload, COMPARING, read, other_by_tag(origin, upload, &entry)).await?
        }
        false => Compared::OTHER_SIZE,
    };
    if compared.is_same {
        let (verified, synced) = (Verified::Adopted, Synced::ByServer);
        return Ok(There::Adopted(Uploaded { token: entry.token, verified, synced, bytes_moved: compared.bytes_read }));
    }
    if !upload.replace {
        return Err(failure::destination_exists(path, &origin.place));
    }
    match upload.made {
        Some(made) if compared.bytes_read == 0 => made.refuse_newer(&entry, server_seconds(clock), &origin.place)?,
        // Reading took its time.
        _ => refuse_newer(origin, upload, path).await?,
    }
    Ok(There::Other { bytes_read: compared.bytes_read })
}

fn server_seconds(clock: Option<SystemTime>) -> i64 {
    seconds_of(clock.unwrap_or_else(SystemTime::now))
}

/// Some(false): its ETag is another one than what is to replace it would get. That it has the same one is no reason not to read it. What was
/// sent in parts of another size may be the same for all that: then it is sent once more, and not where what is newer stays.
async fn other_by_tag(origin: &S3Origin, upload: &Upload<'_>, entry: &Entry) -> Result<Option<bool>, ApiError> {
    let Some(tag) = tag_of(&entry.token).filter(|_| upload.replace && origin.tags_are_md5.load(Ordering::Relaxed)) else {
        return Ok(None);
    };
    let part_bytes = part_bytes(upload.size_bytes);
    let in_parts = tag.contains('-');
    let now_s = seconds_of(SystemTime::now());
    let is_newer = upload.made.is_some_and(|made| made.refuse_newer(entry, now_s, &origin.place).is_err());
    if in_parts && (is_newer || !tag.ends_with(&format!("-{}\"", upload.size_bytes.div_ceil(part_bytes)))) {
        return Ok(None);
    }
    let source = unpaced(upload).await?.source(part_bytes as usize, Sha256Of::Nothing);
    let (mut whole, mut parts) = (md5::Context::new(), Vec::new());
    while let Some((_, piece)) = source.next().await? {
        if in_parts {
            parts.push(md5_of(origin, &piece).await);
        } else {
            let consuming = move || {
                whole.consume(&piece);
                whole
            };
            whole = tokio::task::spawn_blocking(consuming).await.expect("hashing does not panic");
        }
    }
    let ours = if in_parts { tag_of_parts(parts) } else { Some(format!("\"{:x}\"", whole.finalize())) };
    Ok(ours.is_some_and(|ours| ours != tag).then_some(false))
}

/// Just before it would be replaced, too: parts may have taken long to send.
async fn refuse_newer(origin: &S3Origin, upload: &Upload<'_>, path: &str) -> Result<(), ApiError> {
    let Some(made) = upload.made else { return Ok(()) };
    match origin.head_at(path).await {
        Ok((found, clock)) => made.refuse_newer(&found, server_seconds(clock), &origin.place),
        Err(error) if error.code == Code::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

async fn single(origin: &S3Origin, upload: &Upload<'_>, path: &str, local: LocalFile) -> Result<Sent, ApiError> {
    let key = origin.key(path)?;
    let _memory = memory_for(origin, upload.size_bytes).await;
    let source = local.source((upload.size_bytes as usize).max(1), Sha256Of::Nothing);
    let bytes = source.next().await?.map_or(Bytes::new(), |(_, bytes)| bytes);
    if source.hashes().await.blake3 != upload.blake3 {
        return Err(source.damaged());
    }
    let md5 = md5_of(origin, &bytes).await;
    let payload = PutPayload::from_bytes(bytes);
    // Each goes over a connection of its own: more than the line holds would crowd each other out of it. Larger ones are few at once, and one
    // of them may fill more than the window of small ones.
    let under_way = if upload.size_bytes <= SMALL_BYTES { Some(upload.pace.send(upload.size_bytes).await) } else { None };
    let written = match origin.clients.plain.put_opts(&key, payload.clone(), put_options(upload.replace)).await {
        Ok(written) => written,
        // Looked for just before; such a server cannot do better.
        Err(error) if !upload.replace && origin.failure(&error, path).code == Code::Unsupported => {
            origin.clients.plain.put_opts(&key, payload, put_options(true)).await.map_err(|error| origin.failure(&error, path))?
        }
        Err(error) => return Err(refused(origin, &error, path)),
    };
    if let Some(permit) = under_way {
        permit.complete();
    }
    (upload.progress)(upload.size_bytes);
    Ok(Sent::new(written, md5.map(|md5| format!("\"{md5:x}\""))))
}

/// What all uploads to one origin hold in memory together is bounded, however many they are.
async fn memory_for(origin: &S3Origin, bytes: u64) -> OwnedSemaphorePermit {
    let mib = bytes.div_ceil(1 << 20).clamp(1, u64::from(HELD_MIB_MAX)) as u32;
    origin.held.clone().acquire_many_owned(mib).await.expect("never closed")
}

/// None: the server's ETags are known to be something else.
async fn md5_of(origin: &S3Origin, bytes: &Bytes) -> Option<Digest> {
    if !origin.tags_are_md5.load(Ordering::Relaxed) {
        return None;
    }
    let bytes = bytes.clone();
    if bytes.len() <= HASHED_HERE_BYTES {
        return Some(md5::compute(&bytes));
    }
    Some(tokio::task::spawn_blocking(move || md5::compute(&bytes)).await.expect("hashing does not panic"))
}

fn refused(origin: &S3Origin, error: &Error, path: &str) -> ApiError {
    match error {
        Error::AlreadyExists { .. } | Error::Precondition { .. } | Error::NotModified { .. } => {
            failure::destination_exists(path, &origin.place)
        }
        other => origin.failure(other, path),
    }
}

/// All of one size: they go side by side, and the longer the last of them is alone on the line, the longer that is not full.
fn part_bytes(size_bytes: u64) -> u64 {
    let usual = size_bytes.div_ceil(PARTS_USUAL).clamp(PART_BYTES_USUAL_MIN, PART_BYTES_USUAL_MAX);
    let most = usual.max(size_bytes.div_ceil(PARTS_MAX));
    size_bytes.div_ceil(size_bytes.div_ceil(most).max(1)).max(1)
}

/// With what the server says of its content, where it says that.
type SentPart = (PartId, Option<Digest>);

/// A begun multipart upload; given up when dropped before its end, after a failure as by a cancelled caller.
struct Multipart<'a> {
    origin: &'a S3Origin,
    path: &'a str,
    key: Key,
    id: String,
    open: bool,
    /// Held for reading by each part on its way: a part that arrives after the abort would stay at the server, unseen and paid for.
    sending: Arc<RwLock<()>>,
}

impl Drop for Multipart<'_> {
    fn drop(&mut self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if self.open {
            let (store, key, id, sending) = (self.origin.clients.plain.clone(), self.key.clone(), self.id.clone(), self.sending.clone());
            runtime.spawn(async move {
                let _all_parts_answered = sending.write().await;
                store.abort_multipart(&key, &id).await.ok()
            });
        }
    }
}

async fn multipart(origin: &S3Origin, upload: &Upload<'_>, path: &str, local: LocalFile) -> Result<Sent, ApiError> {
    let key = origin.key(path)?;
    let id = origin.clients.plain.create_multipart(&key).await.map_err(|error| origin.failure(&error, path))?;
    let mut begun = Multipart { origin, path, key, id, open: true, sending: Arc::default() };
    let part_bytes = part_bytes(upload.size_bytes);
    let source = local.source(part_bytes as usize, Sha256Of::Nothing);
    let (parts, digests): (Vec<_>, Vec<_>) = begun.send(&source, part_bytes, upload.progress).await?.into_iter().unzip();
    if source.hashes().await.blake3 != upload.blake3 {
        return Err(source.damaged());
    }
    refuse_newer(origin, upload, path).await?;
    let answer = begun.complete(parts, upload.replace).await?;
    begun.open = false;
    Ok(Sent::new(answer, tag_of_parts(digests)))
}

/// The MD5 of the MD5s, and how many they are.
fn tag_of_parts(digests: Vec<Option<Digest>>) -> Option<String> {
    let all = digests.iter().map(|digest| digest.map(|digest| digest.0)).collect::<Option<Vec<_>>>()?;
    Some(format!("\"{:x}-{}\"", md5::compute(all.concat()), all.len()))
}

impl Multipart<'_> {
    fn send<'b>(
        &'b self,
        source: &'b Source,
        part_bytes: u64,
        progress: &'b (dyn Fn(u64) + Send + Sync),
    ) -> BoxFuture<'b, Result<Vec<SentPart>, ApiError>> {
        let in_flight = (PARTS_BYTES_IN_FLIGHT / part_bytes).clamp(2, 4) as usize;
        let pieces = stream::try_unfold((), move |()| async move {
            let held = memory_for(self.origin, part_bytes).await;
            Ok(source.next().await?.map(|piece| ((piece, held), ())))
        });
        let sending = pieces.map_ok(move |((offset, bytes), held)| async move {
            let sent = self.send_part((offset / part_bytes) as usize, bytes, progress).await;
            drop(held);
            sent
        });
        let sent = sending.try_buffer_unordered(in_flight).try_collect::<Vec<_>>();
        let ordered = sent.map_ok(|mut parts| {
            parts.sort_by_key(|(index, _)| *index);
            parts.into_iter().map(|(_, part)| part).collect()
        });
        ordered.boxed()
    }

    async fn send_part(&self, index: usize, bytes: Bytes, progress: &(dyn Fn(u64) + Send + Sync)) -> Result<(usize, SentPart), ApiError> {
        let length = bytes.len() as u64;
        let hashed = bytes.clone();
        let (store, key, id) = (self.origin.clients.plain.clone(), self.key.clone(), self.id.clone());
        let answered = self.sending.clone().read_owned().await;
        let sending = tokio::spawn(async move {
            let _answered = answered;
            store.put_part(&key, &id, index, PutPayload::from_bytes(bytes)).await
        });
        let (sent, md5) = tokio::join!(sending, md5_of(self.origin, &hashed));
        let part = sent.expect("sending does not panic").map_err(|error| self.origin.failure(&error, self.path))?;
        progress(length);
        Ok((index, (part, md5)))
    }

    async fn complete(&self, parts: Vec<PartId>, replace: bool) -> Result<PutResult, ApiError> {
        let (origin, clients) = (self.origin, &self.origin.clients);
        if replace {
            return clients.plain.complete_multipart(&self.key, &self.id, parts).await.map_err(|error| origin.failure(&error, self.path));
        }
        match origin.head(self.path).await {
            Ok(_) => return Err(failure::destination_exists(self.path, &origin.place)),
            Err(error) if error.code == Code::NotFound => {}
            Err(error) => return Err(error),
        }
        match clients.creating.complete_multipart(&self.key, &self.id, parts.clone()).await {
            Ok(answer) => Ok(answer),
            // Looked for just before; such a server cannot do better.
            Err(error) if origin.failure(&error, self.path).code == Code::Unsupported => {
                let done = clients.plain.complete_multipart(&self.key, &self.id, parts).await;
                done.map_err(|error| origin.failure(&error, self.path))
            }
            Err(error) => Err(refused(origin, &error, self.path)),
        }
    }
}

/// Reads the new object back by the ETag that it got; what differs is taken away where that is sure to remove nothing else.
async fn verified(origin: &S3Origin, upload: &Upload<'_>, path: &str, written: Written) -> Result<Uploaded, ApiError> {
    let entry: Entry = match origin.head(path).await {
        Err(error) if error.code == Code::NotFound => return Err(gone_again(path, &origin.place)),
        other => other?,
    };
    let is_another = written.tag.as_deref().zip(tag_of(&entry.token)).is_some_and(|(ours, found)| ours != found);
    if is_another {
        return of_somebody_else(origin, upload, path, &written).await;
    }
    let content = match entry.size_bytes == upload.size_bytes {
        true => content_blake3(origin, &entry, &upload.pace).await.map(Some),
        false => Ok(None),
    };
    match content {
        Ok(Some(found)) if found == upload.blake3 => {
            let (verified, synced) = (Verified::Readback, Synced::ByServer);
            Ok(Uploaded { token: entry.token, verified, synced, bytes_moved: 2 * upload.size_bytes })
        }
        Err(error) if error.code == Code::SourceChanged => of_somebody_else(origin, upload, path, &written).await,
        Err(error) => Err(error),
        Ok(_) => Err(match take_back(origin, path, written).await {
            Ok(true) => failure::written_differs(path, &origin.place),
            Ok(false) => left_there(path, &origin.place),
            // That it is damaged is what matters, not that it could not be removed.
            Err(error) => {
                tracing::warn!(code = error.code.as_str(), error = %error, "a damaged upload could not be taken back");
                left_there(path, &origin.place)
            }
        }),
    }
}

/// After ours was there: theirs stays, and is as good as ours where its content is the same.
async fn of_somebody_else(origin: &S3Origin, upload: &Upload<'_>, path: &str, written: &Written) -> Result<Uploaded, ApiError> {
    match existing(origin, upload, path).await? {
        There::Adopted(adopted) => Ok(adopted),
        There::Other { .. } => {
            let ours = written.tag.as_deref().unwrap_or("what was sent");
            Err(failure::source_changed(path, &origin.place, ours, "a content that somebody else wrote just after this upload"))
        }
    }
}

fn gone_again(path: &str, place: &str) -> ApiError {
    let message = format!("{path:?} was written to {place} just now and is there no longer; stager uploads it again.");
    ApiError::new(Code::IoError, path, message)
}

fn left_there(path: &str, place: &str) -> ApiError {
    let message = format!(
        "{place} holds other content for {path:?} than was sent. The file was left there: the server cannot delete exactly that content, or \
         somebody else wrote there meanwhile. Check it, and remove it if it is of no use."
    );
    ApiError::new(Code::ChecksumMismatch, path, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of all parts but the last.
    const SERVERS_MIN: u64 = 5 << 20;

    #[test]
    fn parts_are_alike_and_neither_too_many_nor_too_small() {
        for size_bytes in [0, SINGLE_BYTES_MAX, (16 << 20) + 1, 20_000_000, 1 << 30, 1 << 36, 600 << 30, 4 << 40] {
            let part = part_bytes(size_bytes);
            let parts = size_bytes.div_ceil(part);
            assert!(parts * part - size_bytes <= parts, "{size_bytes}: the last of {parts} parts of {part} is much smaller");
            assert!((parts <= 1 || part >= SERVERS_MIN) && parts <= PARTS_MAX, "{size_bytes}: {part}");
            assert!(part <= PART_BYTES_USUAL_MAX || size_bytes > PART_BYTES_USUAL_MAX * PARTS_MAX);
        }
    }
}
