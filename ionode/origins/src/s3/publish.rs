//! An upload to a bucket: one conditional PUT, or a multipart upload completed on the condition, then a read-back of the ETag it got.
//!
//! The one rule: nothing is sent under the final name before its local content was checked, and what does not read back equal is taken
//! away again where that removes nothing else.

use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, TryFutureExt, TryStreamExt};
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path as Key;
use object_store::{Error, ObjectStore, PutPayload};
use stager_core::error::ApiError;
use tokio::sync::RwLock;

use super::exact::{take_back, Written};
use super::{put_options, tag_of, S3Origin};
use crate::failure;
use crate::local::{LocalFile, Source};
use crate::newer::seconds_of;
use crate::verify::content_blake3;
use crate::{Entry, Synced, Upload, Uploaded, Verified};

const SINGLE_BYTES_MAX: u64 = 16 << 20;
const PART_BYTES_MIN: u64 = 8 << 20;
const PART_BYTES_USUAL_MAX: u64 = 64 << 20;
const PARTS_USUAL: u64 = 1000;
const PARTS_MAX: u64 = 10_000;
/// Of parts in memory; large parts go two at a time.
const PARTS_BYTES_IN_FLIGHT: u64 = 64 << 20;

pub async fn upload(origin: &S3Origin, upload: &Upload<'_>, path: &str) -> Result<Uploaded, ApiError> {
    let local = LocalFile::open(upload).await?;
    if let Some(adopted) = existing(origin, upload, path).await? {
        return Ok(adopted);
    }
    refuse_newer(origin, upload, path).await?;
    let sent = if upload.size_bytes < SINGLE_BYTES_MAX {
        single(origin, upload, path, local).await
    } else {
        multipart(origin, upload, path, local).await
    };
    match sent {
        Ok(written) => verified(origin, upload, path, written).await,
        // Somebody else made it meanwhile, or our own request did and its answer was lost.
        Err(error) if error.code == "destination_exists" => match existing(origin, upload, path).await? {
            Some(adopted) => Ok(adopted),
            None => Err(ApiError::transient(
                "io_error",
                path,
                format!("Another upload of {path:?} to {} is under way; it is tried again.", origin.place),
            )),
        },
        Err(error) => Err(error),
    }
}

/// Adopts equal content; other content is an error unless it may be replaced.
async fn existing(origin: &S3Origin, upload: &Upload<'_>, path: &str) -> Result<Option<Uploaded>, ApiError> {
    let entry = match origin.head(path).await {
        Ok(entry) => entry,
        Err(error) if error.code == "not_found" => return Ok(None),
        Err(error) => return Err(error),
    };
    if entry.size_bytes == upload.size_bytes && content_blake3(origin, &entry, &upload.urgency).await? == upload.blake3 {
        let (verified, synced) = (Verified::Adopted, Synced::ByServer);
        return Ok(Some(Uploaded { token: entry.token, verified, synced, bytes_moved: upload.size_bytes }));
    }
    if upload.replace {
        Ok(None)
    } else {
        Err(failure::destination_exists(path, &origin.place))
    }
}

/// Just before it would be replaced, too: parts may have taken long to send.
async fn refuse_newer(origin: &S3Origin, upload: &Upload<'_>, path: &str) -> Result<(), ApiError> {
    let Some(made) = upload.made else { return Ok(()) };
    match origin.head_at(path).await {
        Ok((found, clock)) => made.refuse_newer(&found, seconds_of(clock.unwrap_or_else(SystemTime::now)), &origin.place),
        Err(error) if error.code == "not_found" => Ok(()),
        Err(error) => Err(error),
    }
}

async fn single(origin: &S3Origin, upload: &Upload<'_>, path: &str, local: LocalFile) -> Result<Written, ApiError> {
    let key = origin.key(path)?;
    let source = local.source((upload.size_bytes as usize).max(1), false, &origin.pace);
    let bytes = source.next().await?.map_or(Bytes::new(), |(_, bytes)| bytes);
    if source.hashes().await.blake3 != upload.blake3 {
        return Err(source.damaged());
    }
    let payload = PutPayload::from_bytes(bytes);
    let written = match origin.clients.plain.put_opts(&key, payload.clone(), put_options(upload.replace)).await {
        Ok(written) => written,
        // Looked for just before; such a server cannot do better.
        Err(error) if !upload.replace && origin.failure(&error, path).code == "unsupported" => {
            origin.clients.plain.put_opts(&key, payload, put_options(true)).await.map_err(|error| origin.failure(&error, path))?
        }
        Err(error) => return Err(refused(origin, &error, path)),
    };
    (upload.progress)(upload.size_bytes);
    Ok(written.into())
}

fn refused(origin: &S3Origin, error: &Error, path: &str) -> ApiError {
    match error {
        Error::AlreadyExists { .. } | Error::Precondition { .. } | Error::NotModified { .. } => {
            failure::destination_exists(path, &origin.place)
        }
        other => origin.failure(other, path),
    }
}

fn part_bytes(size_bytes: u64) -> u64 {
    let usual = size_bytes.div_ceil(PARTS_USUAL).clamp(PART_BYTES_MIN, PART_BYTES_USUAL_MAX);
    usual.max(size_bytes.div_ceil(PARTS_MAX))
}

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

async fn multipart(origin: &S3Origin, upload: &Upload<'_>, path: &str, local: LocalFile) -> Result<Written, ApiError> {
    let key = origin.key(path)?;
    let id = origin.clients.plain.create_multipart(&key).await.map_err(|error| origin.failure(&error, path))?;
    let mut begun = Multipart { origin, path, key, id, open: true, sending: Arc::default() };
    let part_bytes = part_bytes(upload.size_bytes);
    let source = local.source(part_bytes as usize, false, &origin.pace);
    let parts = begun.send(&source, part_bytes, upload.progress).await?;
    if source.hashes().await.blake3 != upload.blake3 {
        return Err(source.damaged());
    }
    refuse_newer(origin, upload, path).await?;
    let written = begun.complete(parts, upload.replace).await?;
    begun.open = false;
    Ok(written)
}

impl Multipart<'_> {
    fn send<'b>(
        &'b self,
        source: &'b Source,
        part_bytes: u64,
        progress: &'b (dyn Fn(u64) + Send + Sync),
    ) -> BoxFuture<'b, Result<Vec<PartId>, ApiError>> {
        let in_flight = (PARTS_BYTES_IN_FLIGHT / part_bytes).clamp(2, 4) as usize;
        let sending = source.pieces().map_ok(move |(offset, bytes)| self.send_part((offset / part_bytes) as usize, bytes, progress));
        let sent = sending.try_buffer_unordered(in_flight).try_collect::<Vec<_>>();
        let ordered = sent.map_ok(|mut parts| {
            parts.sort_by_key(|(index, _)| *index);
            parts.into_iter().map(|(_, part)| part).collect()
        });
        ordered.boxed()
    }

    async fn send_part(&self, index: usize, bytes: Bytes, progress: &(dyn Fn(u64) + Send + Sync)) -> Result<(usize, PartId), ApiError> {
        let length = bytes.len() as u64;
        let (store, key, id) = (self.origin.clients.plain.clone(), self.key.clone(), self.id.clone());
        let answered = self.sending.clone().read_owned().await;
        let sending = tokio::spawn(async move {
            let _answered = answered;
            store.put_part(&key, &id, index, PutPayload::from_bytes(bytes)).await
        });
        let part = sending.await.expect("sending does not panic").map_err(|error| self.origin.failure(&error, self.path))?;
        progress(length);
        Ok((index, part))
    }

    async fn complete(&self, parts: Vec<PartId>, replace: bool) -> Result<Written, ApiError> {
        let (origin, clients) = (self.origin, &self.origin.clients);
        if replace {
            return clients
                .plain
                .complete_multipart(&self.key, &self.id, parts)
                .await
                .map(Written::from)
                .map_err(|error| origin.failure(&error, self.path));
        }
        match origin.head(self.path).await {
            Ok(_) => return Err(failure::destination_exists(self.path, &origin.place)),
            Err(error) if error.code == "not_found" => {}
            Err(error) => return Err(error),
        }
        match clients.creating.complete_multipart(&self.key, &self.id, parts.clone()).await {
            Ok(written) => Ok(written.into()),
            // Looked for just before; such a server cannot do better.
            Err(error) if origin.failure(&error, self.path).code == "unsupported" => {
                let done = clients.plain.complete_multipart(&self.key, &self.id, parts).await;
                done.map(Written::from).map_err(|error| origin.failure(&error, self.path))
            }
            Err(error) => Err(refused(origin, &error, self.path)),
        }
    }
}

/// Reads the new object back by the ETag that it got; what differs is taken away where that is sure to remove nothing else.
async fn verified(origin: &S3Origin, upload: &Upload<'_>, path: &str, written: Written) -> Result<Uploaded, ApiError> {
    let entry: Entry = match origin.head(path).await {
        Err(error) if error.code == "not_found" => return Err(gone_again(path, &origin.place)),
        other => other?,
    };
    let is_another = written.tag.as_deref().zip(tag_of(&entry.token)).is_some_and(|(ours, found)| ours != found);
    if is_another {
        return of_somebody_else(origin, upload, path, &written).await;
    }
    let content = match entry.size_bytes == upload.size_bytes {
        true => content_blake3(origin, &entry, &upload.urgency).await.map(Some),
        false => Ok(None),
    };
    match content {
        Ok(Some(found)) if found == upload.blake3 => {
            let (verified, synced) = (Verified::Readback, Synced::ByServer);
            Ok(Uploaded { token: entry.token, verified, synced, bytes_moved: 2 * upload.size_bytes })
        }
        Err(error) if error.code == "source_changed" => of_somebody_else(origin, upload, path, &written).await,
        Err(error) => Err(error),
        Ok(_) => Err(match take_back(origin, path, written).await {
            Ok(true) => failure::written_differs(path, &origin.place),
            Ok(false) => left_there(path, &origin.place),
            // That it is damaged is what matters, not that it could not be removed.
            Err(error) => {
                tracing::warn!(code = error.code, error = %error, "a damaged upload could not be taken back");
                left_there(path, &origin.place)
            }
        }),
    }
}

/// After ours was there: theirs stays, and is as good as ours where its content is the same.
async fn of_somebody_else(origin: &S3Origin, upload: &Upload<'_>, path: &str, written: &Written) -> Result<Uploaded, ApiError> {
    match existing(origin, upload, path).await? {
        Some(adopted) => Ok(adopted),
        None => {
            let ours = written.tag.as_deref().unwrap_or("what was sent");
            Err(failure::source_changed(path, &origin.place, ours, "what somebody else wrote there just after us"))
        }
    }
}

fn gone_again(path: &str, place: &str) -> ApiError {
    let message = format!("{path:?} is not at {place} any more, though it was written there just now; it is tried again.");
    ApiError::transient("io_error", path, message)
}

fn left_there(path: &str, place: &str) -> ApiError {
    let message = format!(
        "What {place} holds for {path:?} is not what was sent. It was left there: the server cannot be asked to delete exactly that, or \
         somebody else wrote there meanwhile. Look at it, and remove it if it is of no use."
    );
    ApiError::corrupt("checksum_mismatch", path, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_neither_too_many_nor_too_small() {
        for size_bytes in [16u64 << 20, 1 << 30, 1 << 36, 600 << 30, 4 << 40] {
            let part = part_bytes(size_bytes);
            assert!(part >= PART_BYTES_MIN && size_bytes.div_ceil(part) <= PARTS_MAX, "{size_bytes}: {part}");
            assert!(part <= PART_BYTES_USUAL_MAX || size_bytes > PART_BYTES_USUAL_MAX * PARTS_MAX);
        }
    }
}
