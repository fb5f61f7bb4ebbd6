//! The S3-compatible endpoint of a node: HTTP, signatures and S3's words over the objects of `stager-objects`.
//!
//! The one rule: every request is signed with SigV4 by a key of the node's, and reaches only what belongs to that key's owner; what S3
//! knows and we do not is refused by name, never ignored.

mod answers;
mod attributes;
mod bodies;
mod checksums;
mod conditions;
pub mod connections;
mod copies;
mod credentials;
mod described;
mod documents;
mod errors;
mod issued;
mod lists;
mod readable;
mod reads;
mod serve;
mod service;
mod signed;
mod tags;
mod uploads;
mod writes;
mod xml;

use s3s::S3Result;
use stager_objects::{BucketName, Name, Objects, Owner};

pub use credentials::Credentials;
pub use serve::{serve, EndpointSettings, Guard};

/// The objects of one owner as S3: made for a request, of the key that signed it.
pub(crate) struct Face {
    objects: Objects,
    owner: Owner,
}

impl Face {
    fn bucket(&self, name: &str) -> S3Result<BucketName> {
        self.owner.bucket(name).map_err(errors::to_s3)
    }

    fn name(&self, bucket: &str, key: impl Into<String>) -> S3Result<Name> {
        Ok(Name::new(self.bucket(bucket)?, key))
    }
}
