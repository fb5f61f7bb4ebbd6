//! The local file of an upload, read once in order and hashed on the way. Knows the host's disk only.
//!
//! The one rule: what the hashes cover is exactly what was handed out.
//!
//! A small file is read when it is opened: to hand a step over to a blocking thread costs more than reading it.

use std::fs::File;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::StreamExt;
use sha2::{Digest, Sha256};
use stager_core::error::ApiError;
use tokio::sync::Mutex;

use crate::{failure, into_new, Pace, Upload};

const READ_BYTES: u64 = 4 << 20;
/// A file of up to so many bytes is one step wherever it can be.
pub const SMALL_BYTES: u64 = 256 << 10;
/// A range is so many reads.
const RANGE_READS: u64 = 4;

pub struct Hashes {
    pub blake3: blake3::Hash,
    pub sha256: Option<[u8; 32]>,
}

/// What is hashed with SHA-256 besides.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Sha256Of {
    Nothing,
    All,
    /// Of `RANGE_READS` reads each; the last one ends with the file.
    EachRange,
}

pub struct LocalFile {
    file: Arc<File>,
    local: PathBuf,
    path: String,
    size_bytes: u64,
    pace: Pace,
    /// All of a small one, and what it hashes to.
    whole: Option<(Bytes, blake3::Hasher)>,
}

struct Reading {
    offset: u64,
    chunk: Bytes,
    blake3: blake3::Hasher,
    sha256: Option<Sha256>,
    /// Of the ranges that were read whole.
    ranges: Vec<[u8; 32]>,
}

/// Hands out pieces in order, to any number of takers.
pub struct Source {
    local: LocalFile,
    piece_bytes: usize,
    sha256_of: Sha256Of,
    reading: Mutex<Reading>,
}

impl LocalFile {
    /// Refused when it is not of the committed size: then it is not what was committed.
    pub async fn open(upload: &Upload<'_>) -> Result<Self, ApiError> {
        let (local, path, size_bytes, pace) = (upload.local.to_owned(), upload.path.to_owned(), upload.size_bytes, upload.pace.clone());
        let opening = move || Self::open_here(local, path, size_bytes, pace);
        tokio::task::spawn_blocking(opening).await.expect("opening does not panic")
    }

    /// As `open`, on this thread.
    pub fn open_here(local: PathBuf, path: String, size_bytes: u64, pace: Pace) -> Result<Self, ApiError> {
        let opened = || {
            let file = File::open(&local)?;
            if file.metadata()?.len() != size_bytes {
                return Ok(None);
            }
            let whole = if size_bytes <= SMALL_BYTES { Some(read(&file, 0, size_bytes as usize, blake3::Hasher::new())?) } else { None };
            Ok(Some((file, whole)))
        };
        let (file, whole) = match opened() {
            Ok(Some(found)) => found,
            Ok(None) => return Err(failure::local_differs(&path, &local)),
            Err(error) => return Err(failure::local_io(&path, &local, &error)),
        };
        Ok(Self { file: Arc::new(file), local, path, size_bytes, pace, whole })
    }

    pub fn handle(&self) -> Arc<File> {
        self.file.clone()
    }

    /// A small one whole, where it is what was committed.
    pub fn whole(&self, expected: &blake3::Hash) -> Result<Bytes, ApiError> {
        match &self.whole {
            Some((content, blake3)) if blake3.finalize() == *expected => Ok(content.clone()),
            _ => Err(failure::local_differs(&self.path, &self.local)),
        }
    }

    /// Keeps to the upload's pace.
    pub fn source(mut self, piece_bytes: usize, sha256_of: Sha256Of) -> Source {
        let (chunk, blake3) = self.whole.take().unwrap_or_default();
        let sha256 = (sha256_of != Sha256Of::Nothing).then(|| Sha256::new_with_prefix(&chunk));
        let reading = Reading { offset: 0, chunk, blake3, sha256, ranges: Vec::new() };
        Source { local: self, piece_bytes, sha256_of, reading: Mutex::new(reading) }
    }
}

impl Source {
    pub async fn next(&self) -> Result<Option<(u64, Bytes)>, ApiError> {
        let mut reading = self.reading.lock().await;
        if reading.chunk.is_empty() {
            if reading.offset == self.local.size_bytes {
                return Ok(None);
            }
            self.fill(&mut reading).await?;
        }
        let length = self.piece_bytes.min(reading.chunk.len());
        let (offset, piece) = (reading.offset, reading.chunk.split_to(length));
        reading.offset += length as u64;
        drop(reading);
        self.local.pace.pass(length as u64).await;
        Ok(Some((offset, piece)))
    }

    pub fn pieces(&self) -> BoxStream<'_, Result<(u64, Bytes), ApiError>> {
        stream::try_unfold(self, |source| async move { Ok(source.next().await?.map(|piece| (piece, source))) }).boxed()
    }

    async fn fill(&self, reading: &mut Reading) -> Result<(), ApiError> {
        let (file, offset) = (self.local.file.clone(), reading.offset);
        let length = self.read_bytes().min(self.local.size_bytes - offset) as usize;
        let (blake3, mut sha256) = (reading.blake3.clone(), reading.sha256.clone());
        let work = move || {
            let (chunk, blake3) = read(&file, offset, length, blake3)?;
            if let Some(sha256) = &mut sha256 {
                sha256.update(&chunk);
            }
            Ok::<_, std::io::Error>((chunk, blake3, sha256))
        };
        let done = tokio::task::spawn_blocking(work).await.expect("reading does not panic");
        (reading.chunk, reading.blake3, reading.sha256) =
            done.map_err(|error| failure::local_io(&self.local.path, &self.local.local, &error))?;
        let end = offset + length as u64;
        if self.sha256_of == Sha256Of::EachRange && (end.is_multiple_of(self.range_bytes()) || end == self.local.size_bytes) {
            let ended = reading.sha256.replace(Sha256::new()).expect("ranges are hashed");
            reading.ranges.push(ended.finalize().into());
        }
        Ok(())
    }

    /// Of each read but the last: whole pieces, so that only the last one is short.
    pub fn read_bytes(&self) -> u64 {
        READ_BYTES.max(self.piece_bytes as u64) / self.piece_bytes as u64 * self.piece_bytes as u64
    }

    pub fn range_bytes(&self) -> u64 {
        RANGE_READS * self.read_bytes()
    }

    pub fn ranges(&self) -> u64 {
        self.local.size_bytes.div_ceil(self.range_bytes())
    }

    /// Of a range whose pieces were all handed out.
    pub async fn range_sha256(&self, range: u64) -> [u8; 32] {
        self.reading.lock().await.ranges[range as usize]
    }

    /// After the last piece was taken.
    pub async fn hashes(&self) -> Hashes {
        let reading = self.reading.lock().await;
        let sha256 = reading.sha256.clone().filter(|_| self.sha256_of == Sha256Of::All);
        Hashes { blake3: reading.blake3.finalize(), sha256: sha256.map(|hasher| hasher.finalize().into()) }
    }

    pub fn damaged(&self) -> ApiError {
        failure::local_differs(&self.local.path, &self.local.local)
    }
}

fn read(file: &File, offset: u64, length: usize, mut blake3: blake3::Hasher) -> std::io::Result<(Bytes, blake3::Hasher)> {
    let chunk = into_new::read(file, offset, length)?;
    if chunk.len() < length {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    blake3.update(&chunk);
    Ok((chunk.into(), blake3))
}
