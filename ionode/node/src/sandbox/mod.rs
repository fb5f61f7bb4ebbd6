//! A job's sandbox as the node sees it: folders, what is in them, copies. Knows nothing of replicas, leases or the network.
//!
//! The one rule: a job may have put anything there, so nothing is followed and everything is looked at before it is touched.

pub mod copy;
pub mod folder;
pub mod judge;
pub mod survey;

use std::path::{Path, PathBuf};

use stager_core::error::ApiError;

use crate::failure::bad_request;

/// An absolute, clean path given by the scheduler for a place outside the store.
pub fn checked_directory(path: &str, store: &Path) -> Result<PathBuf, ApiError> {
    let clean = path.strip_prefix('/').is_some_and(stager_core::ids::is_relative_path);
    if !clean {
        return Err(bad_request(path, format!("the sandbox {path:?} is no clean absolute path; write it as /a/b/c")));
    }
    let path_buf = PathBuf::from(path);
    if path_buf.starts_with(store) || store.starts_with(&path_buf) {
        return Err(bad_request(
            path,
            format!("the sandbox {path} and the store {} contain one another; keep them apart", store.display()),
        ));
    }
    Ok(path_buf)
}
