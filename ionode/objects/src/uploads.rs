//! Uploads in parts: each part is a file of its own, completing writes one record that names them in order; no byte moves again.
//!
//! The one rule: parts come while the upload is open, and it ends once: by being completed, aborted or forgotten.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stager_core::error::{ApiError, Code};
use stager_store::{Op, When};
use tokio::sync::RwLock;

use crate::digest::Algorithm;
use crate::ids::UploadId;
use crate::incoming::{Content, Incoming};
use crate::meta::{self, Attributes, Checksum, ETag, FilePart, Object, Stored, Tags};
use crate::put::{settle, Condition};
use crate::{now_ms, tables, to_the_end, BucketName, Name, Objects, UPLOAD_LOCKS};

pub const PART_NUMBER_MAX: u16 = 10_000;
/// Of every part but the last, as S3 has it.
const PART_BYTES_MIN: u64 = 5 << 20;

/// What was said when it began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Upload {
    pub started_ms: u64,
    pub attributes: Attributes,
    pub algorithm: Option<Algorithm>,
    /// Whether its checksum is of the content, not of the parts' checksums.
    pub full_checksum: bool,
    pub tags: Tags,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    pub modified_ms: u64,
    pub md5: [u8; 16],
    pub crc64nvme: u64,
    pub checksum: (Algorithm, Vec<u8>),
    pub(crate) file: FilePart,
}

impl meta::Kept for Upload {
    fn is_of_first_version(&self) -> bool {
        self.tags.is_empty()
    }
    const ADDED: &'static [u8] = meta::NO_TAGS;
}

impl meta::Kept for Part {
    fn is_of_first_version(&self) -> bool {
        self.checksum.0.is_of_first_version()
    }
}

impl Part {
    pub fn size_bytes(&self) -> u64 {
        self.file.size_bytes
    }
    pub fn etag(&self) -> ETag {
        ETag { md5: self.md5, parts: 0 }
    }
    /// `None`: it was not computed when the part came.
    fn checksum_by(&self, algorithm: Algorithm) -> Option<Vec<u8>> {
        match algorithm {
            _ if algorithm == self.checksum.0 => Some(self.checksum.1.clone()),
            Algorithm::Crc64Nvme => Some(self.crc64nvme.to_be_bytes().to_vec()),
            Algorithm::Md5 => Some(self.md5.to_vec()),
            _ => None,
        }
    }
}

/// What the caller knows of a part when it completes the upload.
#[derive(Clone, Debug)]
pub struct CompletedPart {
    pub number: u16,
    pub etag: Option<String>,
    pub checksums: Vec<(Algorithm, Vec<u8>)>,
}

/// What the caller knows of the whole when it completes the upload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Whole {
    pub checksum: Option<(Algorithm, Vec<u8>)>,
    /// Of how many parts that checksum says it is; 0: it does not say.
    pub of_parts: u32,
    /// Whether the checksum is of the content, not of the parts' checksums.
    pub full_checksum: Option<bool>,
    pub size_bytes: Option<u64>,
}

impl Objects {
    fn lock_of(&self, id: UploadId) -> &RwLock<()> {
        &self.inner.upload_locks[usize::from(id.0[0]) % UPLOAD_LOCKS]
    }

    pub async fn create_upload(&self, name: &Name, upload: Upload) -> Result<UploadId, ApiError> {
        let id = UploadId::new();
        let (key, meta) = (tables::upload(name, id), meta::to_bytes(&upload));
        let weight_bytes = meta::weight_bytes(&key, &meta, 0);
        let _grant = self.grant_bytes(&name.to_string(), weight_bytes)?;
        let _locked = self.inner.buckets_lock.read().await;
        self.require_bucket(&name.bucket)?;
        self.log()
            .write_all(vec![Op::Put { table: tables::UPLOADS, key, meta, value: Default::default(), weight_bytes, when: When::Absent }])
            .await?;
        Ok(id)
    }

    pub fn upload(&self, name: &Name, id: UploadId) -> Result<Upload, ApiError> {
        let stat = self.log().stat(tables::UPLOADS, &tables::upload(name, id))?;
        let unknown = || {
            let message =
                format!("there is no upload {id} of {name}: it was completed, aborted, forgotten after seven days, or never began");
            ApiError::new(Code::UploadUnknown, id.to_string(), message)
        };
        meta::parse(&name.to_string(), &stat.ok_or_else(unknown)?.meta)
    }

    pub async fn receive_part(&self, name: &Name, id: UploadId, size_bytes: u64, named: Option<Algorithm>) -> Result<Incoming, ApiError> {
        let upload = self.upload(name, id)?;
        self.receive_as(name, size_bytes, upload.algorithm.or(named), false).await
    }

    pub async fn put_part(&self, name: &Name, id: UploadId, number: u16, content: Content) -> Result<Part, ApiError> {
        let (objects, name) = (self.clone(), name.clone());
        to_the_end(async move {
            let digests = content.digests.clone();
            let file = content.file().cloned().expect("parts are files");
            let part = Part { modified_ms: now_ms(), md5: digests.md5, crc64nvme: digests.crc64nvme, checksum: digests.named, file };
            let outcome = objects.put_part_now(&name, id, number, &part).await;
            settle(&outcome, content);
            outcome.map(|()| part)
        })
        .await
    }

    async fn put_part_now(&self, name: &Name, id: UploadId, number: u16, part: &Part) -> Result<(), ApiError> {
        let _locked = self.lock_of(id).read().await;
        self.upload(name, id)?;
        let (key, meta) = (tables::part(id, number), meta::to_bytes(part));
        let weight_bytes = meta::weight_bytes(&key, &meta, part.size_bytes());
        let op = Op::Put { table: tables::PARTS, key, meta, value: Default::default(), weight_bytes, when: When::Any };
        let done = self.log().write_all(vec![op]).await?.remove(0);
        if let stager_store::Done::Put { before: Some(before), .. } = done {
            self.remove_parts(vec![meta::parse(&name.to_string(), &before.meta)?]).await?;
        }
        Ok(())
    }

    async fn remove_parts(&self, parts: Vec<Part>) -> Result<(), ApiError> {
        let leases = self.inner.leases.clone();
        crate::blocking(move || {
            parts.iter().for_each(|part| leases.remove(std::slice::from_ref(&part.file)));
            Ok(())
        })
        .await
    }

    /// By number.
    pub fn parts(&self, id: UploadId) -> Result<Vec<(u16, Part)>, ApiError> {
        let mut parts = Vec::new();
        for found in self.log().scan(tables::PARTS, &tables::part(id, 0))? {
            let (key, stat) = found?;
            if !key.starts_with(&id.0) {
                break;
            }
            let number = tables::part_number(&key).unwrap_or_default();
            parts.push((number, meta::parse(&id.to_string(), &stat.meta)?));
        }
        Ok(parts)
    }

    pub async fn abort_upload(&self, name: &Name, id: UploadId) -> Result<(), ApiError> {
        let (objects, name) = (self.clone(), name.clone());
        to_the_end(async move {
            objects.upload(&name, id)?;
            objects.end_upload(&name, id).await
        })
        .await
    }

    /// All records of it, then its files. What is gone already is fine.
    pub(crate) async fn end_upload(&self, name: &Name, id: UploadId) -> Result<(), ApiError> {
        let _locked = self.lock_of(id).write().await;
        let parts = self.parts(id)?;
        self.log().write_all(self.ends(name, id, &parts)).await?;
        self.remove_parts(parts.into_iter().map(|(_, part)| part).collect()).await
    }

    fn ends(&self, name: &Name, id: UploadId, parts: &[(u16, Part)]) -> Vec<Op> {
        let upload = Op::Delete { table: tables::UPLOADS, key: tables::upload(name, id), when: When::Any };
        let part = |(number, _): &(u16, Part)| Op::Delete { table: tables::PARTS, key: tables::part(id, *number), when: When::Any };
        std::iter::once(upload).chain(parts.iter().map(part)).collect()
    }

    pub(crate) fn uploads_below(&self, prefix: &[u8], bucket: &BucketName) -> Result<Vec<(Name, UploadId)>, ApiError> {
        let mut uploads = Vec::new();
        for found in self.log().scan(tables::UPLOADS, prefix)? {
            let (key, _) = found?;
            if !key.starts_with(prefix) {
                break;
            }
            uploads.extend(tables::split_upload(bucket, &key).map(|(key, id)| (Name::new(bucket.clone(), key), id)));
        }
        Ok(uploads)
    }

    /// Aborts what began longer ago; returns how many that were.
    pub async fn expire_uploads(&self, after: Duration) -> Result<usize, ApiError> {
        let begin_ms = now_ms().saturating_sub(after.as_millis() as u64);
        let mut expired = 0;
        for bucket in self.buckets()? {
            for (name, id) in self.uploads_below(&tables::below(&bucket.name, ""), &bucket.name)? {
                // One that has ended meanwhile is no upload any more.
                if self.upload(&name, id).is_ok_and(|upload| upload.started_ms <= begin_ms) {
                    self.end_upload(&name, id).await?;
                    expired += 1;
                }
            }
        }
        if expired > 0 {
            tracing::info!(expired, "aborted uploads that nobody completed");
        }
        Ok(expired)
    }

    pub async fn complete_upload(
        &self,
        name: &Name,
        id: UploadId,
        listed: Vec<CompletedPart>,
        condition: Condition,
        expected: Whole,
    ) -> Result<Object, ApiError> {
        let (objects, name) = (self.clone(), name.clone());
        to_the_end(async move {
            let _locked = objects.lock_of(id).write().await;
            let upload = match objects.upload(&name, id) {
                Ok(upload) => upload,
                // The answer to the first call may have been lost.
                Err(error) => return objects.head(&name).ok().filter(|object| object.upload == Some(id.0)).ok_or(error),
            };
            let there = objects.parts(id)?;
            let chosen = choose(&name, &there, listed)?;
            let object = join(&name, id, upload, &chosen, &expected)?;
            objects.commit(&name, &object, Default::default(), condition, objects.ends(&name, id, &there)).await?;
            let named: std::collections::HashSet<_> = chosen.iter().map(|part| part.file.id).collect();
            objects.remove_parts(there.into_iter().map(|(_, part)| part).filter(|part| !named.contains(&part.file.id)).collect()).await?;
            objects.inner.counters.objects_written.fetch_add(1, Ordering::Relaxed);
            objects.inner.counters.written_bytes.fetch_add(object.size_bytes, Ordering::Relaxed);
            Ok(object)
        })
        .await
    }
}

fn wrong(code: Code, name: &Name, message: String) -> ApiError {
    ApiError::new(code, name.to_string(), message)
}

/// The parts that were listed, which must be those that are there.
fn choose(name: &Name, there: &[(u16, Part)], listed: Vec<CompletedPart>) -> Result<Vec<Part>, ApiError> {
    if listed.is_empty() {
        return Err(wrong(Code::PartWrong, name, format!("the upload of {name} cannot be completed without parts")));
    }
    if !listed.is_sorted_by(|one, next| one.number < next.number) {
        return Err(wrong(Code::PartOrder, name, format!("the parts of {name} are not listed in ascending order")));
    }
    let last = listed.len() - 1;
    let mut chosen = Vec::with_capacity(listed.len());
    for (at, listed) in listed.into_iter().enumerate() {
        let found = there.binary_search_by_key(&listed.number, |(number, _)| *number).ok().map(|at| &there[at].1);
        let same = |part: &&Part| {
            listed.etag.as_ref().is_none_or(|etag| *etag == part.etag().to_string())
                && listed.checksums.iter().all(|(algorithm, value)| part.checksum_by(*algorithm).as_ref() == Some(value))
        };
        let Some(part) = found.filter(same) else {
            let message = format!("part {} of {name} is not there, or not with this ETag and checksum; send it again", listed.number);
            return Err(wrong(Code::PartWrong, name, message));
        };
        if at < last && part.size_bytes() < PART_BYTES_MIN {
            let message = format!(
                "part {} of {name} has {} bytes; all but the last have at least {PART_BYTES_MIN}",
                listed.number,
                part.size_bytes()
            );
            return Err(wrong(Code::PartSmall, name, message));
        }
        chosen.push(part.clone());
    }
    Ok(chosen)
}

fn join(name: &Name, id: UploadId, upload: Upload, parts: &[Part], expected: &Whole) -> Result<Object, ApiError> {
    let md5s: Vec<u8> = parts.iter().flat_map(|part| part.md5).collect();
    let crc = parts.iter().fold(Algorithm::Crc64Nvme.of(b""), |crc, part| {
        Algorithm::Crc64Nvme.combine(&crc, &part.crc64nvme.to_be_bytes(), part.size_bytes()).expect("CRCs combine")
    });
    let checksum = whole_checksum(&upload, parts, &crc);
    check_whole(name, expected, &checksum, parts)?;
    Ok(Object {
        size_bytes: parts.iter().map(Part::size_bytes).sum(),
        modified_ms: now_ms(),
        etag: ETag { md5: md5::compute(&md5s).0, parts: parts.len() as u32 },
        checksum,
        crc64nvme: crc.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)),
        blake3: None,
        attributes: upload.attributes,
        upload: Some(id.0),
        stored: Stored::Files(parts.iter().map(|part| part.file.clone()).collect()),
        tags: upload.tags,
    })
}

fn check_whole(name: &Name, expected: &Whole, checksum: &Checksum, parts: &[Part]) -> Result<(), ApiError> {
    let size_bytes: u64 = parts.iter().map(Part::size_bytes).sum();
    if let Some(said_bytes) = expected.size_bytes.filter(|said| *said != size_bytes) {
        let message =
            format!("the parts of {name} have {size_bytes} bytes together and the request says {said_bytes}; look which are listed");
        return Err(wrong(Code::SizeWrong, name, message));
    }
    if expected.full_checksum.is_some_and(|full| full != (checksum.of_parts == 0)) {
        let message = format!("the upload of {name} began with another type of checksum than the request says; use the one it began with");
        return Err(wrong(Code::ChecksumTypeWrong, name, message));
    }
    let Some((algorithm, value)) = &expected.checksum else { return Ok(()) };
    if (checksum.algorithm, &checksum.value) != (*algorithm, value) || ![0, checksum.of_parts].contains(&expected.of_parts) {
        let message = format!("the parts of {name} together do not have the checksum the request says; send them again");
        return Err(wrong(Code::ChecksumWrong, name, message));
    }
    Ok(())
}

/// As the upload asked for; else crc64nvme of the content.
fn whole_checksum(upload: &Upload, parts: &[Part], crc: &[u8]) -> Checksum {
    let plain = Checksum { algorithm: Algorithm::Crc64Nvme, value: crc.to_vec(), of_parts: 0 };
    let Some(algorithm) = upload.algorithm.filter(|algorithm| *algorithm != Algorithm::Crc64Nvme) else { return plain };
    if !upload.full_checksum {
        let together: Vec<u8> = parts.iter().flat_map(|part| part.checksum.1.clone()).collect();
        return Checksum { algorithm, value: algorithm.of(&together), of_parts: parts.len() as u32 };
    }
    let joined = parts.iter().try_fold(algorithm.of(b""), |whole, part| algorithm.combine(&whole, &part.checksum.1, part.size_bytes()));
    joined.map_or(plain, |value| Checksum { algorithm, value, of_parts: 0 })
}
