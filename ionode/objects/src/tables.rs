//! The tables of the store's log that are ours, and how names become keys.
//!
//! The one rule: numbers and keys are part of the format on disk (docs/formats/s3-endpoint.md); none is ever used for anything else.

use crate::ids::UploadId;
use crate::{BucketName, Name};

pub const BUCKETS: u8 = 16;
pub const OBJECTS: u8 = 17;
pub const UPLOADS: u8 = 18;
pub const PARTS: u8 = 19;

/// Names of buckets have no NUL: the first one ends them.
pub fn object(name: &Name) -> Vec<u8> {
    below(&name.bucket, &name.key)
}

pub fn below(bucket: &BucketName, rest: &str) -> Vec<u8> {
    [bucket.full().as_bytes(), &[0], rest.as_bytes()].concat()
}

/// Of a key that `object` made.
pub fn name_of(key: &[u8]) -> Name {
    let at = key.iter().position(|byte| *byte == 0).unwrap_or(key.len());
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Name::new(BucketName::kept(text(&key[..at])), text(key.get(at + 1..).unwrap_or_default()))
}

/// The id is of fixed length at the end: a key may hold anything.
pub fn upload(name: &Name, id: UploadId) -> Vec<u8> {
    [&object(name)[..], &[0], &id.0].concat()
}

/// The key of the object and the id, without the bucket.
pub fn split_upload(bucket: &BucketName, key: &[u8]) -> Option<(String, UploadId)> {
    let rest = key.strip_prefix(bucket.full().as_bytes())?.strip_prefix(&[0])?;
    let (key, id) = rest.split_at_checked(rest.len().checked_sub(17)?)?;
    Some((String::from_utf8(key.to_vec()).ok()?, UploadId(id[1..].try_into().ok()?)))
}

pub fn part(id: UploadId, number: u16) -> Vec<u8> {
    [&id.0[..], &number.to_be_bytes()].concat()
}

pub fn part_number(key: &[u8]) -> Option<u16> {
    Some(u16::from_be_bytes(key.get(16..18)?.try_into().ok()?))
}
