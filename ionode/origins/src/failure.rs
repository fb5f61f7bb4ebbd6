//! Errors of any origin in the contract's words. Knows codes and sentences, no protocol but errno.
//!
//! The one rule: a code that says "do not try again" is only given for what no retry can mend.

use nix::errno::Errno;
use stager_core::error::ApiError;

pub fn not_found(path: &str, place: &str) -> ApiError {
    ApiError::invalid("not_found", path, format!("{path:?} does not exist at {place}; check the name, or produce the file first."))
}

pub fn denied(path: &str, place: &str, why: &str) -> ApiError {
    ApiError::denied("denied", path, format!("Access to {path:?} at {place} is denied ({why}); grant the right or change the credentials."))
}

pub fn source_changed(path: &str, place: &str, expected: &str, found: &str) -> ApiError {
    ApiError::refused(
        "source_changed",
        path,
        format!("{path:?} at {place} changed: expected {expected}, found {found}; plan again with the new content."),
    )
}

pub fn short_read(path: &str, place: &str, offset: u64) -> ApiError {
    ApiError::transient(
        "short_read",
        path,
        format!("{path:?} at {place} ended at byte {offset}, before the range asked for; the transfer is tried again."),
    )
}

pub fn destination_exists(path: &str, place: &str) -> ApiError {
    ApiError::refused(
        "destination_exists",
        path,
        format!("{path:?} is already at {place} with other content; remove it, choose another name, or allow replacing."),
    )
}

pub fn is_directory(path: &str, place: &str) -> ApiError {
    ApiError::invalid("destination_is_directory", path, format!("{path:?} at {place} is a directory, not a file; choose another name."))
}

pub fn no_space(path: &str, place: &str) -> ApiError {
    ApiError::refused("no_space_origin", path, format!("There is no space left for {path:?} at {place}; free some, then resume."))
}

pub fn written_differs(path: &str, place: &str) -> ApiError {
    ApiError::corrupt(
        "checksum_mismatch",
        path,
        format!("What {place} holds for {path:?} is not what was sent; it was removed again and the upload must be repeated."),
    )
}

pub fn local_differs(path: &str, local: &std::path::Path) -> ApiError {
    ApiError::corrupt(
        "checksum_mismatch",
        path,
        format!(
            "The local copy {local:?} of {path:?} is damaged (its content is not what was committed); nothing was uploaded, make it again."
        ),
    )
}

pub fn bad_range(path: &str) -> ApiError {
    ApiError::invalid("bad_request", path, format!("A range asked of {path:?} does not lie inside the file."))
}

pub fn protocol_broken(path: &str, place: &str, what: &str) -> ApiError {
    ApiError::transient("io_error", path, format!("{place} broke its protocol on {path:?}: {what}."))
}

/// Of the host's own disk, while reading what is to be uploaded.
pub fn local_io(path: &str, local: &std::path::Path, error: &std::io::Error) -> ApiError {
    ApiError::transient("io_error", path, format!("The local copy {local:?} of {path:?} cannot be read ({error})."))
}

pub fn from_errno(errno: Errno, path: &str, place: &str) -> ApiError {
    match errno {
        Errno::ENOENT | Errno::ENOTDIR => not_found(path, place),
        Errno::EACCES | Errno::EPERM => denied(path, place, "permission denied"),
        Errno::EROFS => denied(path, place, "it is mounted read-only"),
        Errno::EXDEV => denied(path, place, "a symbolic link leads out of the origin's base"),
        Errno::ELOOP => denied(path, place, "a symbolic link stands where none may be followed"),
        Errno::ENOSPC | Errno::EDQUOT => no_space(path, place),
        Errno::EISDIR => is_directory(path, place),
        Errno::EFBIG => ApiError::refused("no_space_origin", path, format!("{path:?} is larger than {place} allows a file to be.")),
        Errno::ENAMETOOLONG | Errno::EINVAL | Errno::EILSEQ => {
            ApiError::invalid("bad_request", path, format!("{place} cannot hold the name {path:?} ({}).", errno.desc()))
        }
        Errno::ETIMEDOUT => ApiError::transient("timeout", path, format!("{place} did not answer in time for {path:?}.")),
        other => ApiError::transient("io_error", path, format!("{path:?} at {place} failed: {}.", other.desc())),
    }
}
