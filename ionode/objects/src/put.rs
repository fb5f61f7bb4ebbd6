//! Content becomes an object, an object goes, an object is made from another one: each by one record.
//!
//! The one rule: what a condition says holds at the record, whoever else writes; files go only after the record that let go of them.

use std::sync::atomic::Ordering;

use stager_core::error::{ApiError, Class, Code};
use stager_store::{Done, Op, Stat, When};

use crate::file;
use crate::incoming::{Content, Held};
use crate::meta::{self, Checksum, Described, ETag, Object, Stored};
use crate::{blocking, now_ms, tables, to_the_end, BucketName, Name, Objects};

/// What must be true of the name for a write to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    Any,
    Absent,
    Present,
    /// The object there has this ETag.
    Matches(String),
}

impl Objects {
    pub async fn put(
        &self,
        name: &Name,
        content: Content,
        described: impl Into<Described>,
        condition: Condition,
    ) -> Result<Object, ApiError> {
        let (objects, name, described) = (self.clone(), name.clone(), described.into());
        to_the_end(async move { objects.put_now(&name, content, described, condition).await }).await
    }

    async fn put_now(&self, name: &Name, content: Content, described: Described, condition: Condition) -> Result<Object, ApiError> {
        let (algorithm, value) = content.digests.named.clone();
        let object = Object {
            size_bytes: content.size_bytes,
            modified_ms: now_ms(),
            etag: ETag { md5: content.digests.md5, parts: 0 },
            checksum: Checksum { algorithm, value, of_parts: 0 },
            crc64nvme: content.digests.crc64nvme,
            blake3: Some(content.digests.blake3),
            attributes: described.attributes,
            upload: None,
            stored: content.stored(),
            tags: described.tags,
        };
        let inline = content.inline();
        let outcome = self.commit(name, &object, inline, condition, Vec::new()).await;
        settle(&outcome, content);
        outcome?;
        self.inner.counters.objects_written.fetch_add(1, Ordering::Relaxed);
        self.inner.counters.written_bytes.fetch_add(object.size_bytes, Ordering::Relaxed);
        Ok(object)
    }

    /// One record that makes the object, in one write with `more`; then the files of what it replaced go.
    pub(crate) async fn commit(
        &self,
        name: &Name,
        object: &Object,
        inline: bytes::Bytes,
        condition: Condition,
        more: Vec<Op>,
    ) -> Result<(), ApiError> {
        let key = tables::object(name);
        let meta = meta::to_bytes(object);
        let weight_bytes = meta::weight_bytes(&key, &meta, object.size_bytes);
        let _grant = self.grant_meta(&name.to_string(), &meta)?;
        let before = {
            let _locked = self.inner.buckets_lock.read().await;
            self.require_bucket(&name.bucket)?;
            loop {
                let when = self.when(name, &condition)?;
                let put =
                    Op::Put { table: tables::OBJECTS, key: key.clone(), meta: meta.clone(), value: inline.clone(), weight_bytes, when };
                let ops = std::iter::once(put).chain(more.iter().cloned()).collect();
                match self.log().write_all(ops).await?.swap_remove(0) {
                    Done::Put { before, .. } => break before,
                    Done::NoSpace { free_bytes } => return Err(no_space(name, free_bytes)),
                    // Somebody was faster: what the condition says is looked at again.
                    _ => {}
                }
            }
        };
        self.forget_files(name, before).await
    }

    /// The condition, as of now; `precondition_failed` where it does not hold.
    fn when(&self, name: &Name, condition: &Condition) -> Result<When, ApiError> {
        if *condition == Condition::Any {
            return Ok(When::Any);
        }
        let found = self.log().stat(tables::OBJECTS, &tables::object(name))?;
        match (condition, found) {
            (Condition::Absent, None) => Ok(When::Absent),
            (Condition::Present, Some(stat)) => Ok(When::Version(stat.version)),
            (Condition::Matches(etag), Some(stat)) => {
                let object: Object = meta::parse(&name.to_string(), &stat.meta)?;
                if object.etag.to_string() == *etag {
                    Ok(When::Version(stat.version))
                } else {
                    Err(not_met(name))
                }
            }
            (Condition::Matches(_) | Condition::Present, None) => Err(unknown(name)),
            _ => Err(not_met(name)),
        }
    }

    pub(crate) async fn forget_files(&self, name: &Name, before: Option<Stat>) -> Result<(), ApiError> {
        let Some(before) = before else { return Ok(()) };
        // Metadata that cannot be read names no files: the next start finds what they were.
        let Ok(object) = meta::parse::<Object>(&name.to_string(), &before.meta) else { return Ok(()) };
        if let Stored::Files(files) = object.stored {
            let leases = self.inner.leases.clone();
            blocking(move || {
                leases.remove(&files);
                Ok(())
            })
            .await?;
        }
        Ok(())
    }

    /// What is not there is no error, unless a condition says it must be.
    pub async fn delete(&self, name: &Name, condition: Condition) -> Result<(), ApiError> {
        let (objects, name) = (self.clone(), name.clone());
        to_the_end(async move {
            objects.require_bucket(&name.bucket)?;
            loop {
                let op = Op::Delete { table: tables::OBJECTS, key: tables::object(&name), when: objects.when(&name, &condition)? };
                if let Done::Deleted { before } = objects.log().write_all(vec![op]).await?.remove(0) {
                    objects.inner.counters.objects_deleted.fetch_add(u64::from(before.is_some()), Ordering::Relaxed);
                    return objects.forget_files(&name, before).await;
                }
            }
        })
        .await
    }

    /// Many at once, in one record; what is not there is no error.
    pub async fn delete_many(&self, bucket: &BucketName, keys: Vec<String>) -> Result<(), ApiError> {
        let (objects, bucket) = (self.clone(), bucket.clone());
        to_the_end(async move {
            objects.require_bucket(&bucket)?;
            let names: Vec<Name> = keys.into_iter().map(|key| Name::new(bucket.clone(), key)).collect();
            let delete = |name: &Name| Op::Delete { table: tables::OBJECTS, key: tables::object(name), when: When::Any };
            let done = objects.log().write(names.iter().map(delete).collect()).await?;
            for (name, done) in names.iter().zip(done) {
                if let Done::Deleted { before } = done {
                    objects.inner.counters.objects_deleted.fetch_add(u64::from(before.is_some()), Ordering::Relaxed);
                    objects.forget_files(name, before).await?;
                }
            }
            Ok(())
        })
        .await
    }

    /// A content for a new object, without moving bytes where the source is one file; `None`: it has to be read and written.
    pub async fn duplicate(&self, source: &crate::Found, target: &Name) -> Result<Option<Content>, ApiError> {
        let object = source.object();
        let (Some(part), Some(blake3)) = (source.only_file(), object.blake3) else { return Ok(None) };
        let grant = self.grant(&target.to_string(), object.size_bytes)?;
        let (directory, fsync) = (self.inner.directory.clone(), self.fsync());
        let new = blocking(move || file::duplicate(&directory, &part, fsync)).await?;
        let named = (object.checksum.algorithm, object.checksum.value.clone());
        let digests = crate::Digests { md5: object.etag.md5, blake3, crc64nvme: object.crc64nvme, named };
        Ok(Some(Content::new(object.size_bytes, digests, Held::File(new), grant)))
    }
}

/// Refused: nothing names the content, it goes. Done, or nobody knows: its file stays, the next start knows.
pub(crate) fn settle<T>(outcome: &Result<T, ApiError>, content: Content) {
    let refused = outcome.as_ref().is_err_and(|error| matches!(error.class, Class::InvalidInput | Class::Refused));
    if !refused {
        content.keep();
    }
}

pub(crate) fn no_space(name: &Name, free_bytes: u64) -> ApiError {
    let message = format!("the store has {free_bytes} bytes left for objects; delete some");
    ApiError::new(Code::ShareFull, name.to_string(), message)
}

pub(crate) fn unknown(name: &Name) -> ApiError {
    ApiError::new(Code::ObjectUnknown, name.to_string(), format!("there is no object {name} on this node"))
}

fn not_met(name: &Name) -> ApiError {
    let message = format!("{name} does not meet the condition of the request; read it again and decide");
    ApiError::new(Code::PreconditionFailed, name.to_string(), message)
}
