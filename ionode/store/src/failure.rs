//! Faults of this host's disk as errors of the API.
//!
//! The one rule: an error says what happened to which file and what to do; a full disk is never called anything else.

use std::io;
use std::path::Path;

use stager_core::error::{ApiError, Code};

pub fn disk(what: &str, path: &Path, error: &io::Error) -> ApiError {
    let subject = path.display().to_string();
    if is_full(error) {
        return ApiError::new(
            Code::NoSpaceNode,
            &subject,
            format!("the disk under the store is full: {what} {subject} failed; free space on it or move the store"),
        )
        .caused_by_io(error);
    }
    ApiError::new(Code::IoError, &subject, format!("{what} {subject} failed ({error}); look at the disk and its permissions"))
        .caused_by_io(error)
}

pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// For `map_err`: `std::fs::read(path).map_err(at("reading", path))`.
pub fn at<'a, E: Into<io::Error>>(what: &'a str, path: &'a Path) -> impl FnOnce(E) -> ApiError + 'a {
    move |error| disk(what, path, &error.into())
}
