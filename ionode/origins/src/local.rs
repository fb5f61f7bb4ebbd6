//! The local file of an upload, read once in order and hashed on the way. Knows the host's disk only.
//!
//! The one rule: what the hashes cover is exactly what was handed out.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::StreamExt;
use sha2::{Digest, Sha256};
use stager_core::error::ApiError;
use tokio::sync::Mutex;

use crate::pace::Pace;
use crate::{failure, Upload, Urgency};

const READ_BYTES: u64 = 4 << 20;

pub struct Hashes {
    pub blake3: blake3::Hash,
    pub sha256: Option<[u8; 32]>,
}

pub struct LocalFile {
    file: Arc<File>,
    local: PathBuf,
    path: String,
    size_bytes: u64,
    urgency: Urgency,
}

struct Reading {
    offset: u64,
    chunk: Bytes,
    blake3: blake3::Hasher,
    sha256: Option<Sha256>,
}

/// Hands out pieces in order, to any number of takers.
pub struct Source {
    local: LocalFile,
    piece_bytes: usize,
    pace: Arc<Pace>,
    reading: Mutex<Reading>,
}

impl LocalFile {
    /// Refused when it is not of the committed size: then it is not what was committed.
    pub async fn open(upload: &Upload<'_>) -> Result<Self, ApiError> {
        let (local, path, size_bytes, urgency) =
            (upload.local.to_owned(), upload.path.to_owned(), upload.size_bytes, upload.urgency.clone());
        let opening = move || {
            let file = File::open(&local).map_err(|error| failure::local_io(&path, &local, &error))?;
            let found = file.metadata().map_err(|error| failure::local_io(&path, &local, &error))?.len();
            if found == size_bytes {
                Ok(Self { file: Arc::new(file), local, path, size_bytes, urgency })
            } else {
                Err(failure::local_differs(&path, &local))
            }
        };
        tokio::task::spawn_blocking(opening).await.expect("opening does not panic")
    }

    /// Hashes with SHA-256 too where `want_sha256`, and keeps to the origin's pace.
    pub fn source(self, piece_bytes: usize, want_sha256: bool, pace: &Arc<Pace>) -> Source {
        let sha256 = want_sha256.then(Sha256::new);
        let reading = Reading { offset: 0, chunk: Bytes::new(), blake3: blake3::Hasher::new(), sha256 };
        Source { local: self, piece_bytes, pace: pace.clone(), reading: Mutex::new(reading) }
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
        self.pace.take(length as u64, &self.local.urgency).await;
        Ok(Some((offset, piece)))
    }

    pub fn pieces(&self) -> BoxStream<'_, Result<(u64, Bytes), ApiError>> {
        stream::try_unfold(self, |source| async move { Ok(source.next().await?.map(|piece| (piece, source))) }).boxed()
    }

    async fn fill(&self, reading: &mut Reading) -> Result<(), ApiError> {
        let (file, offset) = (self.local.file.clone(), reading.offset);
        // Whole pieces, so that only the last one is short.
        let want = READ_BYTES.max(self.piece_bytes as u64) / self.piece_bytes as u64 * self.piece_bytes as u64;
        let length = want.min(self.local.size_bytes - offset) as usize;
        let (mut blake3, mut sha256) = (reading.blake3.clone(), reading.sha256.clone());
        let work = move || {
            let mut chunk = vec![0; length];
            file.read_exact_at(&mut chunk, offset)?;
            blake3.update(&chunk);
            if let Some(sha256) = &mut sha256 {
                sha256.update(&chunk);
            }
            Ok::<_, std::io::Error>((chunk, blake3, sha256))
        };
        let done = tokio::task::spawn_blocking(work).await.expect("reading does not panic");
        let (chunk, blake3, sha256) = done.map_err(|error| failure::local_io(&self.local.path, &self.local.local, &error))?;
        (reading.chunk, reading.blake3, reading.sha256) = (Bytes::from(chunk), blake3, sha256);
        Ok(())
    }

    /// After the last piece was taken.
    pub async fn hashes(&self) -> Hashes {
        let reading = self.reading.lock().await;
        Hashes { blake3: reading.blake3.finalize(), sha256: reading.sha256.clone().map(|hasher| hasher.finalize().into()) }
    }

    pub fn damaged(&self) -> ApiError {
        failure::local_differs(&self.local.path, &self.local.local)
    }
}
