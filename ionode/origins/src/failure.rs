//! Errors of any origin in the contract's words. Knows codes and sentences, no protocol but errno.
//!
//! The one rule: a code that says "do not try again" is only given for what no retry can mend.

use std::time::{Duration, UNIX_EPOCH};

use nix::errno::Errno;
use stager_core::error::{ApiError, Code};

/// How a sentence calls it: the empty path is the origin's own directory.
pub fn shown(path: &str) -> String {
    if path.is_empty() {
        "the origin's own directory".to_owned()
    } else {
        format!("{path:?}")
    }
}

pub fn no_base(path: &str, place: &str) -> ApiError {
    let user = if path.is_empty() { "it".to_owned() } else { shown(path) };
    let message = format!("The base directory of {place} does not exist; mount or create it before {user} can be used.");
    ApiError::new(Code::NotFound, path, message)
}

/// Of what is to be read.
pub fn link_leads_out(path: &str, place: &str) -> ApiError {
    let message = format!(
        "{} leads out of the {place} by a symbolic link; put the file itself there, or name an origin where the link leads to.",
        shown(path)
    );
    ApiError::new(Code::LinkLeadsOut, path, message)
}

/// `link` is the part of `path` that is one.
pub fn link_not_followed(path: &str, link: &str, place: &str) -> ApiError {
    let message =
        format!("{} at {place} is a symbolic link that is not followed here; name what it leads to, or an origin there.", shown(link));
    ApiError::new(Code::LinkNotFollowed, path, message)
}

pub fn not_found(path: &str, place: &str) -> ApiError {
    let shown = shown(path);
    ApiError::new(Code::NotFound, path, format!("{shown} does not exist at {place}; check the name, or produce the file first."))
}

pub fn denied(path: &str, place: &str, why: &str) -> ApiError {
    let shown = shown(path);
    ApiError::new(Code::Denied, path, format!("Access to {shown} at {place} is denied ({why}); grant the right or change the credentials."))
}

pub fn source_changed(path: &str, place: &str, expected: &str, found: &str) -> ApiError {
    let shown = shown(path);
    ApiError::new(
        Code::SourceChanged,
        path,
        format!("{shown} at {place} changed: expected {expected}, found {found}; plan again with the new content."),
    )
}

pub fn short_read(path: &str, place: &str, offset: u64) -> ApiError {
    let shown = shown(path);
    ApiError::new(
        Code::ShortRead,
        path,
        format!("{shown} at {place} ended at byte {offset}, before the range asked for; stager retries the transfer."),
    )
}

pub fn destination_exists(path: &str, place: &str) -> ApiError {
    let shown = shown(path);
    ApiError::new(
        Code::DestinationExists,
        path,
        format!("{shown} is already at {place} with other content; remove it, choose another name, or write on_exists: replace."),
    )
}

/// Of what may be replaced unless it was changed after what would replace it was made.
pub fn destination_newer(path: &str, place: &str, size_bytes: u64, mtime_s: i64) -> ApiError {
    let changed = u64::try_from(mtime_s).map_or(UNIX_EPOCH, |since_s| UNIX_EPOCH + Duration::from_secs(since_s));
    let (shown, when) = (shown(path), httpdate::fmt_http_date(changed));
    let message = format!("{shown} at {place} ({size_bytes} bytes) was changed {when}, after its replacement was made; it stays.");
    ApiError::new(Code::DestinationNewer, path, message)
}

pub fn is_directory(path: &str, place: &str) -> ApiError {
    let shown = shown(path);
    ApiError::new(Code::DestinationIsDirectory, path, format!("{shown} at {place} is a directory, not a file; choose another name."))
}

pub fn no_space(path: &str, place: &str) -> ApiError {
    let shown = shown(path);
    ApiError::new(Code::NoSpaceOrigin, path, format!("There is no space left for {shown} at {place}; free some, then resume."))
}

pub fn written_differs(path: &str, place: &str) -> ApiError {
    let shown = shown(path);
    ApiError::new(
        Code::ChecksumMismatch,
        path,
        format!("{place} held other content for {shown} than was sent; it was removed there, upload the file again."),
    )
}

pub fn local_differs(path: &str, local: &std::path::Path) -> ApiError {
    let shown = shown(path);
    ApiError::new(
        Code::ChecksumMismatch,
        path,
        format!(
            "The local copy {local:?} of {shown} is damaged (its content is not what was committed); nothing was uploaded, make it again."
        ),
    )
}

pub fn bad_range(path: &str) -> ApiError {
    let shown = shown(path);
    ApiError::new(Code::BadRequest, path, format!("A range asked of {shown} does not lie inside the file."))
}

pub fn protocol_broken(path: &str, place: &str, what: &str) -> ApiError {
    let shown = shown(path);
    ApiError::new(Code::IoError, path, format!("{place} broke its protocol on {shown}: {what}."))
}

/// Of the host's own disk, while reading what is to be uploaded.
pub fn local_io(path: &str, local: &std::path::Path, error: &std::io::Error) -> ApiError {
    let shown = shown(path);
    ApiError::new(Code::IoError, path, format!("The local copy {local:?} of {shown} cannot be read ({error}).")).caused_by_io(error)
}

pub fn from_errno(errno: Errno, path: &str, place: &str) -> ApiError {
    by_errno(errno, path, place).caused_by(errno)
}

fn by_errno(errno: Errno, path: &str, place: &str) -> ApiError {
    let shown = shown(path);
    match errno {
        Errno::ENOENT | Errno::ENOTDIR => not_found(path, place),
        Errno::EACCES | Errno::EPERM => denied(path, place, "permission denied"),
        Errno::EROFS => denied(path, place, "it is mounted read-only"),
        Errno::EXDEV => link_leads_out(path, place),
        Errno::ELOOP => link_not_followed(path, path, place),
        Errno::ENOSPC | Errno::EDQUOT => no_space(path, place),
        Errno::EISDIR => is_directory(path, place),
        Errno::EFBIG => ApiError::new(Code::NoSpaceOrigin, path, format!("{shown} is larger than {place} allows a file to be.")),
        Errno::ENAMETOOLONG | Errno::EINVAL | Errno::EILSEQ => {
            ApiError::new(Code::BadRequest, path, format!("{place} cannot hold the name {shown} ({}).", errno.desc()))
        }
        Errno::ETIMEDOUT => ApiError::new(Code::Timeout, path, format!("{place} did not answer in time for {shown}.")),
        other => ApiError::new(Code::IoError, path, format!("{shown} at {place} failed: {}.", other.desc())),
    }
}
