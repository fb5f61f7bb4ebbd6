//! The S3-compatible endpoint of a node: HTTP, signatures and S3's words over the objects of `stager-objects`.
//!
//! The one rule: every request is signed with SigV4 by the one key of the credentials file; what S3 knows and we do not is refused by name,
//! never ignored.

mod attributes;
mod checksums;
mod conditions;
mod copies;
mod credentials;
mod errors;
mod gate;
mod lists;
mod reads;
mod serve;
mod service;
mod uploads;
mod writes;

pub use credentials::Credentials;
pub use serve::{serve, Guard, Settings};

/// The objects as S3.
pub(crate) struct Face {
    pub objects: stager_objects::Objects,
}
