//! All digests of a content in one pass: MD5 (the ETag), BLAKE3 (identity), crc64nvme (every hop), and the one a client named.
//!
//! The one rule: what a client is told of a content was computed here from the bytes that were stored.

use crc_fast::CrcAlgorithm;
use serde::{Deserialize, Serialize};
use sha2::Digest as _;
use xxhash_rust::{xxh3, xxh64};

/// The checksums S3 knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Algorithm {
    Crc64Nvme,
    Crc32,
    Crc32c,
    Sha1,
    Sha256,
    Sha512,
    Md5,
    Xxhash64,
    Xxhash3,
    Xxhash128,
}

impl Algorithm {
    fn crc(self) -> Option<CrcAlgorithm> {
        match self {
            Self::Crc64Nvme => Some(CrcAlgorithm::Crc64Nvme),
            Self::Crc32 => Some(CrcAlgorithm::Crc32IsoHdlc),
            Self::Crc32c => Some(CrcAlgorithm::Crc32Iscsi),
            _ => None,
        }
    }

    /// Whether nodes of the first version of the metadata know it.
    pub fn is_of_first_version(self) -> bool {
        matches!(self, Self::Crc64Nvme | Self::Crc32 | Self::Crc32c | Self::Sha1 | Self::Sha256)
    }

    /// Whether the checksum of a whole follows from those of its parts.
    pub fn combines(self) -> bool {
        self.crc().is_some()
    }

    fn crc_bytes(self, value: u64) -> Vec<u8> {
        match self {
            Self::Crc64Nvme => value.to_be_bytes().to_vec(),
            _ => (value as u32).to_be_bytes().to_vec(),
        }
    }

    pub fn of(self, bytes: &[u8]) -> Vec<u8> {
        let mut hashing = Hashing::new(self);
        hashing.update(bytes);
        hashing.finish(self)
    }

    /// Of `first` followed by something of `second_bytes` bytes with checksum `second`; `None` where that cannot be said.
    pub fn combine(self, first: &[u8], second: &[u8], second_bytes: u64) -> Option<Vec<u8>> {
        let number = |bytes: &[u8]| bytes.iter().fold(0u64, |value, byte| value << 8 | u64::from(*byte));
        let combined = crc_fast::checksum_combine(self.crc()?, number(first), number(second), second_bytes);
        Some(self.crc_bytes(combined))
    }
}

enum Hashing {
    Crc(crc_fast::Digest),
    Sha1(sha1::Sha1),
    Sha256(sha2::Sha256),
    Sha512(sha2::Sha512),
    Md5(md5::Context),
    Xxhash64(xxh64::Xxh64),
    /// Of 64 and of 128 bits.
    Xxhash3(Box<xxh3::Xxh3Default>),
}

impl Hashing {
    fn new(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::Crc64Nvme => Self::Crc(crc_fast::Digest::new(CrcAlgorithm::Crc64Nvme)),
            Algorithm::Crc32 => Self::Crc(crc_fast::Digest::new(CrcAlgorithm::Crc32IsoHdlc)),
            Algorithm::Crc32c => Self::Crc(crc_fast::Digest::new(CrcAlgorithm::Crc32Iscsi)),
            Algorithm::Sha1 => Self::Sha1(<sha1::Sha1 as sha1::Digest>::new()),
            Algorithm::Sha256 => Self::Sha256(sha2::Sha256::new()),
            Algorithm::Sha512 => Self::Sha512(sha2::Sha512::new()),
            Algorithm::Md5 => Self::Md5(md5::Context::new()),
            Algorithm::Xxhash64 => Self::Xxhash64(xxh64::Xxh64::new(0)),
            Algorithm::Xxhash3 | Algorithm::Xxhash128 => Self::Xxhash3(Box::default()),
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Crc(digest) => digest.update(bytes),
            Self::Sha1(digest) => sha1::Digest::update(digest, bytes),
            Self::Sha256(digest) => digest.update(bytes),
            Self::Sha512(digest) => digest.update(bytes),
            Self::Md5(digest) => digest.consume(bytes),
            Self::Xxhash64(digest) => digest.update(bytes),
            Self::Xxhash3(digest) => digest.update(bytes),
        }
    }

    /// Numbers begin with their highest byte, as S3 has them.
    fn finish(self, algorithm: Algorithm) -> Vec<u8> {
        match self {
            Self::Crc(digest) => algorithm.crc_bytes(digest.finalize()),
            Self::Sha1(digest) => sha1::Digest::finalize(digest).to_vec(),
            Self::Sha256(digest) => digest.finalize().to_vec(),
            Self::Sha512(digest) => digest.finalize().to_vec(),
            Self::Md5(digest) => digest.finalize().0.to_vec(),
            Self::Xxhash64(digest) => digest.digest().to_be_bytes().to_vec(),
            Self::Xxhash3(digest) if algorithm == Algorithm::Xxhash128 => digest.digest128().to_be_bytes().to_vec(),
            Self::Xxhash3(digest) => digest.digest().to_be_bytes().to_vec(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digests {
    pub md5: [u8; 16],
    pub blake3: [u8; 32],
    pub crc64nvme: u64,
    /// The one that was asked for, else crc64nvme.
    pub named: (Algorithm, Vec<u8>),
}

pub struct Hasher {
    md5: md5::Context,
    blake3: blake3::Hasher,
    crc: crc_fast::Digest,
    named: Option<(Algorithm, Hashing)>,
}

impl Hasher {
    pub fn new(named: Option<Algorithm>) -> Self {
        let more = named.filter(|algorithm| *algorithm != Algorithm::Crc64Nvme);
        Self {
            md5: md5::Context::new(),
            blake3: blake3::Hasher::new(),
            crc: crc_fast::Digest::new(CrcAlgorithm::Crc64Nvme),
            named: more.map(|algorithm| (algorithm, Hashing::new(algorithm))),
        }
    }

    pub fn update(&mut self, bytes: &[u8]) {
        self.md5.consume(bytes);
        self.blake3.update(bytes);
        self.crc.update(bytes);
        if let Some((_, hashing)) = &mut self.named {
            hashing.update(bytes);
        }
    }

    pub fn finish(self) -> Digests {
        let crc64nvme = self.crc.finalize();
        let named = match self.named {
            Some((algorithm, hashing)) => (algorithm, hashing.finish(algorithm)),
            None => (Algorithm::Crc64Nvme, Algorithm::Crc64Nvme.crc_bytes(crc64nvme)),
        };
        Digests { md5: self.md5.finalize().0, blake3: *self.blake3.finalize().as_bytes(), crc64nvme, named }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn known_answers() {
        let all = [Algorithm::Crc64Nvme, Algorithm::Crc32, Algorithm::Crc32c, Algorithm::Sha1, Algorithm::Sha256];
        let known: Vec<String> = all.iter().map(|algorithm| hex(&algorithm.of(b"123456789"))).collect();
        assert_eq!(known[..3], ["ae8b14860a799888", "cbf43926", "e3069283"]);
        assert_eq!(known[3], "f7c3bc1d808e04732adf679965ccc34ca7ae3441");
        assert_eq!(known[4], "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225");
        let newer = [Algorithm::Md5, Algorithm::Xxhash64, Algorithm::Xxhash3, Algorithm::Xxhash128];
        let known: Vec<String> = newer.iter().map(|algorithm| hex(&algorithm.of(b""))).collect();
        assert_eq!(known, ["d41d8cd98f00b204e9800998ecf8427e", "ef46db3751d8e999", "2d06800538d394c2", "99aa06d3014798d86001c324468d497f"]);
        assert!(hex(&Algorithm::Sha512.of(b"abc")).starts_with("ddaf35a193617abacc417349ae204131"));
    }

    #[test]
    fn a_whole_follows_from_its_parts() {
        for algorithm in [Algorithm::Crc64Nvme, Algorithm::Crc32, Algorithm::Crc32c] {
            let (first, second) = (algorithm.of(b"12345"), algorithm.of(b"6789"));
            assert_eq!(algorithm.combine(&first, &second, 4), Some(algorithm.of(b"123456789")));
        }
        assert_eq!(Algorithm::Sha1.combine(b"", b"", 0), None);
    }
}
