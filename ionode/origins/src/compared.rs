//! Whether an origin holds already what is to be uploaded there. Knows the local file, and a way to read the other one.
//!
//! The one rule: it is the same only if all of it was read, here or at the origin, and hashes to what is to be uploaded. Where it may be
//! replaced, reading ends with the first piece that differs from the local file: what a job makes anew is often of the same size.

use std::future::Future;
use std::ops::Range;

use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use stager_core::error::ApiError;

use crate::local::{LocalFile, Sha256Of};
use crate::{Pace, Upload, Uploaded};

pub struct Compared {
    pub is_same: bool,
    pub bytes_read: u64,
}

impl Compared {
    pub const OTHER_SIZE: Self = Self { is_same: false, bytes_read: 0 };
}

/// What is at the place of an upload before it.
pub enum There {
    Adopted(Uploaded),
    /// Nothing, or what may be replaced; so many bytes of it were read.
    Other {
        bytes_read: u64,
    },
}

/// The first `step_bytes` are read alone, the rest in ranges of `steps_at_once` of them, so many at a time as `in_flight` says.
pub struct Reading {
    pub step_bytes: u64,
    pub steps_at_once: u64,
    pub in_flight: usize,
}

/// With a file of the same size there. `told`: whether the origin itself says that it is the same, where it can. It is asked when the first
/// step says nothing and there are more.
pub async fn compare<F>(
    upload: &Upload<'_>,
    reading: Reading,
    read: impl Fn(Range<u64>) -> F + Send + Sync,
    told: impl Future<Output = Result<Option<bool>, ApiError>> + Send,
) -> Result<Compared, ApiError>
where
    F: Future<Output = Result<Bytes, ApiError>> + Send,
{
    let Reading { step_bytes, steps_at_once, in_flight } = reading;
    let ours = match upload.replace {
        true => Some(unpaced(upload).await?.source(step_bytes as usize, Sha256Of::Nothing)),
        false => None,
    };
    let mut told = Some(told);
    let (first, rest) = ranges(upload.size_bytes, step_bytes, step_bytes * steps_at_once);
    let mut theirs = stream::iter(first).then(&read).chain(stream::iter(rest).map(&read).buffered(in_flight)).boxed();
    let (mut hasher, mut bytes_read) = (blake3::Hasher::new(), 0);
    while let Some(range) = theirs.try_next().await? {
        bytes_read += range.len() as u64;
        hasher.update(&range);
        for step in range.chunks(step_bytes as usize) {
            let Some(ours) = &ours else { break };
            if ours.next().await?.is_none_or(|(_, piece)| piece != step) {
                return Ok(Compared { is_same: false, bytes_read });
            }
        }
        if bytes_read < upload.size_bytes {
            if let Some(told) = told.take() {
                if let Some(is_same) = told.await? {
                    return Ok(Compared { is_same, bytes_read });
                }
            }
        }
    }
    Ok(Compared { is_same: hasher.finalize() == upload.blake3, bytes_read })
}

/// The local file, read for nobody's line.
pub async fn unpaced(upload: &Upload<'_>) -> Result<LocalFile, ApiError> {
    LocalFile::open(&Upload { pace: Pace::default(), ..*upload }).await
}

fn ranges(size_bytes: u64, first_bytes: u64, more_bytes: u64) -> (Option<Range<u64>>, impl Iterator<Item = Range<u64>>) {
    let first = (size_bytes > 0).then(|| 0..first_bytes.min(size_bytes));
    let rest = (first_bytes..size_bytes).step_by(more_bytes as usize).map(move |start| start..(start + more_bytes).min(size_bytes));
    (first, rest)
}
