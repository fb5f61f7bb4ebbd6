//! Content digests of one pass: BLAKE3 (identity), crc64nvme (every hop), sha256 and MD5 where someone outside says them.
//!
//! The one rule: bytes are counted as they are hashed, so a digest always says of how many.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crc_fast::CrcAlgorithm;
use sha2::Digest as _;
use stager_core::error::ApiError;
use stager_store::at_hand::Buffer;

use crate::failure::at;

const READ_BYTES: usize = 1 << 20;
/// From here on BLAKE3 takes all cores; below, starting threads costs more than it brings.
const PARALLEL_FROM_BYTES: u64 = 32 << 20;
const PARALLEL_READ_BYTES: usize = 8 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digests {
    pub size_bytes: u64,
    pub blake3: String,
    pub crc64nvme: String,
    pub sha256: Option<String>,
    pub md5: Option<[u8; 16]>,
    /// As `Also` asked for.
    pub crc32: Option<u32>,
}

/// Digests beside those that every content gets.
#[derive(Clone, Copy, Debug, Default)]
pub struct Also {
    pub sha256: bool,
    pub md5: bool,
    pub crc32: Option<CrcAlgorithm>,
}

pub struct Hasher {
    size_bytes: u64,
    blake3: blake3::Hasher,
    crc: crc_fast::Digest,
    sha256: Option<sha2::Sha256>,
    md5: Option<md5::Context>,
    crc32: Option<crc_fast::Digest>,
}

impl Hasher {
    pub fn new(want_sha256: bool) -> Self {
        Self::with(Also { sha256: want_sha256, ..Also::default() })
    }

    pub fn with(also: Also) -> Self {
        Self {
            size_bytes: 0,
            blake3: blake3::Hasher::new(),
            crc: crc_fast::Digest::new(CrcAlgorithm::Crc64Nvme),
            sha256: also.sha256.then(sha2::Sha256::new),
            md5: also.md5.then(md5::Context::new),
            crc32: also.crc32.map(crc_fast::Digest::new),
        }
    }

    pub fn update(&mut self, bytes: &[u8]) {
        self.blake3.update(bytes);
        self.update_others(bytes);
    }

    fn update_parallel(&mut self, bytes: &[u8]) {
        self.blake3.update_rayon(bytes);
        self.update_others(bytes);
    }

    fn update_others(&mut self, bytes: &[u8]) {
        self.crc.update(bytes);
        if let Some(sha256) = &mut self.sha256 {
            sha256.update(bytes);
        }
        if let Some(crc32) = &mut self.crc32 {
            crc32.update(bytes);
        }
        if let Some(md5) = &mut self.md5 {
            md5.consume(bytes);
        }
        self.size_bytes += bytes.len() as u64;
    }

    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Of what was hashed so far; hashing may go on.
    pub fn blake3_so_far(&self) -> String {
        self.blake3.finalize().to_hex().to_string()
    }

    pub fn finish(self) -> Digests {
        Digests {
            size_bytes: self.size_bytes,
            blake3: self.blake3.finalize().to_hex().to_string(),
            crc64nvme: format!("{:016x}", self.crc.finalize()),
            sha256: self.sha256.map(|sha256| sha256.finalize().iter().map(|byte| format!("{byte:02x}")).collect()),
            md5: self.md5.map(|md5| md5.finalize().0),
            crc32: self.crc32.map(|crc32| crc32.finalize() as u32),
        }
    }

    /// Hashes `file` from where this hasher is up to `end`; stops early at the end of the file.
    pub fn read_up_to(&mut self, file: &File, path: &Path, end: u64) -> Result<(), ApiError> {
        let parallel = end.saturating_sub(self.size_bytes) >= PARALLEL_FROM_BYTES;
        let window = if parallel { PARALLEL_READ_BYTES } else { READ_BYTES };
        let mut buffer = Buffer::new(window.min((end - self.size_bytes) as usize));
        while self.size_bytes < end {
            let length = buffer.len().min((end - self.size_bytes) as usize);
            let read = file.read_at(&mut buffer[..length], self.size_bytes).map_err(at("reading", path))?;
            if read == 0 {
                break;
            }
            if parallel {
                self.update_parallel(&buffer[..read])
            } else {
                self.update(&buffer[..read])
            }
        }
        Ok(())
    }
}

pub fn of_bytes(bytes: &[u8], want_sha256: bool) -> Digests {
    let mut hasher = Hasher::new(want_sha256);
    hasher.update(bytes);
    hasher.finish()
}

/// The whole file as it is now.
pub fn of_file(file: &File, path: &Path, want_sha256: bool) -> Result<Digests, ApiError> {
    let size_bytes = file.metadata().map_err(at("stat of", path))?.len();
    let mut hasher = Hasher::new(want_sha256);
    hasher.read_up_to(file, path, size_bytes)?;
    Ok(hasher.finish())
}

/// How a file's content is read to be hashed.
pub type Reader<'a> = dyn FnMut(&File, &Path) -> Result<Digests, ApiError> + 'a;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answers() {
        let digests = of_bytes(b"123456789", true);
        assert_eq!(digests.size_bytes, 9);
        assert_eq!(digests.crc64nvme, "ae8b14860a799888");
        assert_eq!(digests.sha256.as_deref(), Some("15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225"));
        assert_eq!(of_bytes(b"", false).blake3, "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262");
    }

    #[test]
    fn a_large_file_hashed_by_all_cores_is_the_same_file() {
        let file = tempfile::tempfile().unwrap();
        let bytes: Vec<u8> = (0..PARALLEL_FROM_BYTES + 12345).map(|n| (n * 31 % 251) as u8).collect();
        file.write_all_at(&bytes, 0).unwrap();
        assert_eq!(of_file(&file, Path::new("large"), true).unwrap(), of_bytes(&bytes, true));
    }
}
