//! What the log keeps of an object beside its content, and how that lies on disk: one byte of version, then postcard.
//!
//! The one rule: bytes of a version we do not know are refused by name, never guessed at.

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use stager_core::error::{ApiError, Code};

use crate::digest::Algorithm;
use crate::ids::FileId;

/// Of what nodes of the first version can read too; other metadata is written in version 2.
const FIRST_VERSION: u8 = 1;
const VERSION: u8 = 2;
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
    pub tags: Tags,
}

/// Names and values that may be changed without touching the object.
pub type Tags = Vec<(String, String)>;

/// What a client says of an object beside its content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Described {
    pub attributes: Attributes,
    pub tags: Tags,
}

impl From<Attributes> for Described {
    fn from(attributes: Attributes) -> Self {
        Self { attributes, tags: Tags::new() }
    }
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

/// What lies in the log as metadata.
pub trait Kept: Serialize + DeserializeOwned {
    /// Whether nodes that know only that version would read it rightly.
    fn is_of_first_version(&self) -> bool {
        true
    }
    /// What metadata of the first version lacks at its end, as it would lie there.
    const ADDED: &'static [u8] = &[];
}

/// No tags.
pub const NO_TAGS: &[u8] = &[0];

impl Kept for Object {
    fn is_of_first_version(&self) -> bool {
        self.checksum.algorithm.is_of_first_version() && self.tags.is_empty()
    }
    const ADDED: &'static [u8] = NO_TAGS;
}

pub fn to_bytes<T: Kept>(what: &T) -> Vec<u8> {
    let is_first = what.is_of_first_version();
    let plain = postcard::to_extend(what, vec![if is_first { FIRST_VERSION } else { VERSION }]);
    let mut plain = plain.expect("metadata is plain values, and memory grows");
    if is_first {
        plain.truncate(plain.len() - T::ADDED.len());
    }
    plain
}

pub fn parse<T: Kept>(subject: &str, bytes: &[u8]) -> Result<T, ApiError> {
    let unreadable = |error: postcard::Error| {
        let message = format!("the metadata of {subject} cannot be read ({error}); put it again or delete it");
        ApiError::new(Code::ChecksumMismatch, subject, message)
    };
    match bytes.split_first() {
        Some((&FIRST_VERSION, rest)) => postcard::from_bytes(&[rest, T::ADDED].concat()).map_err(unreadable),
        Some((&VERSION, rest)) => postcard::from_bytes(rest).map_err(unreadable),
        Some((version, _)) => {
            let message =
                format!("the metadata of {subject} has version {version} and this stager-ionode knows {VERSION}; use a newer one");
            Err(ApiError::new(Code::Unsupported, subject, message))
        }
        None => {
            Err(ApiError::new(Code::ChecksumMismatch, subject, format!("the metadata of {subject} is empty; put it again or delete it")))
        }
    }
}

/// What an entry counts for against the share.
pub fn weight_bytes(key: &[u8], meta: &[u8], content_bytes: u64) -> u64 {
    content_bytes + (key.len() + meta.len()) as u64 + ENTRY_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(algorithm: Algorithm) -> Object {
        Object {
            size_bytes: 3,
            modified_ms: 1,
            etag: ETag { md5: [7; 16], parts: 0 },
            checksum: Checksum { algorithm, value: vec![1, 2], of_parts: 0 },
            crc64nvme: 9,
            blake3: None,
            attributes: Attributes::default(),
            upload: None,
            stored: Stored::Inline,
            tags: Tags::new(),
        }
    }

    #[test]
    fn tags_are_of_the_second_version() {
        let plain = object(Algorithm::Sha256);
        let tagged = Object { tags: vec![("a".to_string(), "b".to_string())], ..plain.clone() };
        let (first, second) = (to_bytes(&plain), to_bytes(&tagged));
        assert_eq!((first[0], second[0]), (1, 2));
        assert_eq!(first[1..], second[1..first.len()], "version 1 is as it always was");
        assert_eq!((parse::<Object>("x", &first).unwrap(), parse::<Object>("x", &second).unwrap()), (plain, tagged));
    }

    #[test]
    fn what_the_first_version_can_say_is_written_in_it() {
        for (algorithm, version) in [(Algorithm::Sha256, 1), (Algorithm::Sha512, 2), (Algorithm::Xxhash128, 2)] {
            let bytes = to_bytes(&object(algorithm));
            assert_eq!(bytes[0], version);
            assert_eq!(parse::<Object>("x", &bytes).unwrap(), object(algorithm));
        }
        assert!(parse::<Object>("x", &[3, 0]).unwrap_err().message.contains("version 3"));
    }
}
