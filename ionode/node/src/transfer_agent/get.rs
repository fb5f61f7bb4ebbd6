//! One file of an origin into a new file here. What breaks off is gone on with by the origin (`Retried`).
//!
//! The one rule: what the origin says of the content is compared with what lies on the disk here.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use stager_core::error::{ApiError, Code};
use stager_origins::{EntryKind, Origin, Pace, Sink};

use super::Moved;
use crate::blocking::blocking;
use crate::failure::at;
use crate::origin_checksums::{also, verify_by_origin};
use crate::store::digest::{Also, Digests, Hasher};
use crate::wire::Expected;

struct Arriving {
    file: Arc<File>,
    to: PathBuf,
}

#[async_trait]
impl Sink for Arriving {
    async fn write_at(&self, offset: u64, chunk: Bytes) -> Result<(), ApiError> {
        let (file, to) = (self.file.clone(), self.to.clone());
        blocking(move || file.write_all_at(&chunk, offset).map_err(at("writing", &to))).await
    }
}

pub(super) async fn get(origin: &dyn Origin, path: &str, to: PathBuf) -> Result<Moved, ApiError> {
    let entry = origin.stat(path).await?;
    if entry.kind != EntryKind::File {
        return Err(ApiError::new(Code::Unsupported, path, format!("{path} is a directory at its origin; only files are transferred")));
    }
    let place = to.clone();
    let file =
        blocking(move || OpenOptions::new().create_new(true).read(true).write(true).open(&place).map_err(at("making", &place))).await?;
    let arriving = Arriving { file: Arc::new(file), to };
    if entry.size_bytes > 0 {
        origin.fetch(&entry, std::slice::from_ref(&(0..entry.size_bytes)), &arriving).await?;
    }
    let reported = origin.capabilities().reported_checksum(&entry);
    let expected = Expected { size_bytes: entry.size_bytes, token: None, blake3: None, sha256: None };
    let also = Also { sha256: true, ..also(origin, &reported, &expected) };
    let (file, place) = (arriving.file.clone(), arriving.to.clone());
    let digests = blocking(move || hashed(&file, &place, also)).await?;
    if digests.size_bytes != entry.size_bytes {
        let message = format!("{path} has {} bytes, but {} came; fetch it again", entry.size_bytes, digests.size_bytes);
        return Err(ApiError::new(Code::ShortRead, path, message));
    }
    let verified = verify_by_origin(origin, &entry, &reported, &digests, &Pace::default()).await?;
    Ok(Moved { size_bytes: digests.size_bytes, sha256: digests.sha256.expect("asked for"), verified })
}

fn hashed(file: &File, place: &std::path::Path, also: Also) -> Result<Digests, ApiError> {
    let size_bytes = file.metadata().map_err(at("stat of", place))?.len();
    let mut hasher = Hasher::with(also);
    hasher.read_up_to(file, place, size_bytes)?;
    Ok(hasher.finish())
}
