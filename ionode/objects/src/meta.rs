//! What the log keeps of an object beside its content, and how that lies on disk: one byte of version, then postcard.
//!
//! The one rule: bytes of a version we do not know are refused by name, never guessed at.

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use stager_core::error::ApiError;

use crate::digest::Algorithm;
use crate::file::FileId;

const VERSION: u8 = 1;
/// What an entry counts for beside its content, its name and its metadata.
const ENTRY_BYTES: u64 = 128;

/// What a client says of an object and gets back as it was.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    pub content_type: Option<String>,
    pub cache_control: Option<String>,
    pub content_disposition: Option<String>,
    pub content_encoding: Option<String>,
    pub content_language: Option<String>,
    /// As seconds since 1970.
    pub expires_s: Option<i64>,
    pub user: Vec<(String, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ETag {
    pub md5: [u8; 16],
    /// Of an object that came in parts: how many; the MD5 is then of theirs.
    pub parts: u32,
}

impl fmt::Display for ETag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.md5.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        match self.parts {
            0 => Ok(()),
            parts => write!(f, "-{parts}"),
        }
    }
}

/// The one checksum an object is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checksum {
    pub algorithm: Algorithm,
    pub value: Vec<u8>,
    /// Not of the content but of the checksums of so many parts; 0: of the content.
    pub of_parts: u32,
}

/// A file that holds content: its name, how much of it is content, and the checksum of its table of block checksums.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilePart {
    pub id: FileId,
    pub size_bytes: u64,
    pub table_crc: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stored {
    /// As the value of the record.
    Inline,
    /// One after the other.
    Files(Vec<FilePart>),
}

impl Stored {
    pub fn files(&self) -> &[FilePart] {
        match self {
            Self::Inline => &[],
            Self::Files(files) => files,
        }
    }
}

/// All that is known of an object without its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Object {
    pub size_bytes: u64,
    pub modified_ms: u64,
    pub etag: ETag,
    pub checksum: Checksum,
    pub crc64nvme: u64,
    /// `None` where it came in parts.
    pub blake3: Option<[u8; 32]>,
    pub attributes: Attributes,
    /// The upload it came by: completing that again is no error.
    pub upload: Option<[u8; 16]>,
    pub(crate) stored: Stored,
}

impl Object {
    /// Sizes of the parts it came in; empty where it came whole.
    pub fn part_sizes_bytes(&self) -> Vec<u64> {
        match self.etag.parts {
            0 => Vec::new(),
            _ => self.stored.files().iter().map(|file| file.size_bytes).collect(),
        }
    }
}

pub fn to_bytes<T: Serialize>(what: &T) -> Vec<u8> {
    let plain = postcard::to_extend(what, vec![VERSION]);
    plain.expect("metadata is plain values, and memory grows")
}

pub fn parse<T: DeserializeOwned>(subject: &str, bytes: &[u8]) -> Result<T, ApiError> {
    match bytes.split_first() {
        Some((&VERSION, rest)) => postcard::from_bytes(rest).map_err(|error| {
            let message = format!("the metadata of {subject} cannot be read ({error}); put it again or delete it");
            ApiError::corrupt("checksum_mismatch", subject, message)
        }),
        Some((version, _)) => {
            let message =
                format!("the metadata of {subject} has version {version} and this stager-ionode knows {VERSION}; use a newer one");
            Err(ApiError::invalid("unsupported", subject, message))
        }
        None => {
            Err(ApiError::corrupt("checksum_mismatch", subject, format!("the metadata of {subject} is empty; put it again or delete it")))
        }
    }
}

/// What an entry counts for against the share.
pub fn weight_bytes(key: &[u8], meta: &[u8], content_bytes: u64) -> u64 {
    content_bytes + (key.len() + meta.len()) as u64 + ENTRY_BYTES
}
