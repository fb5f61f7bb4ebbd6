//! Paths of origins as the contract has them: relative, `/`-separated, no `..`, no NUL. Pure.
//!
//! The one rule: what passes `checked` names something below the base, or a symbolic link decides; implementations confine those.

use stager_core::error::{ApiError, Code};

const TEMPORARY_PREFIX: &str = ".stager-";
const TEMPORARY_SUFFIX: &str = ".part";
/// Enough to tell two paths apart, and few beside the 255 bytes of a name.
const WAY_DIGITS: usize = 16;

/// The path without empty and `.` components; "" is the base itself.
pub fn checked(path: &str) -> Result<String, ApiError> {
    let refuse =
        |why: &str| Err(ApiError::new(Code::BadRequest, path, format!("The path {path:?} {why}; name it relative to the origin's base.")));
    if path.starts_with('/') {
        return refuse("is absolute");
    }
    if path.contains('\0') {
        return refuse("contains a NUL character");
    }
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    if parts.contains(&"..") {
        return refuse("contains \"..\"");
    }
    Ok(parts.join("/"))
}

/// As `checked`, for what must be a file: the base itself is none.
pub fn checked_file(path: &str) -> Result<String, ApiError> {
    let clean = checked(path)?;
    if clean.is_empty() {
        return Err(ApiError::new(
            Code::DestinationIsDirectory,
            path,
            "The origin's own directory is named where a file is needed; name a file in it.".to_owned(),
        ));
    }
    Ok(clean)
}

/// Directory and name; the directory of a bare name is "".
pub fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

pub fn join(directory: &str, name: &str) -> String {
    if directory.is_empty() {
        name.to_owned()
    } else {
        format!("{directory}/{name}")
    }
}

pub fn temporary_name(id: &str) -> String {
    format!("{TEMPORARY_PREFIX}{id}{TEMPORARY_SUFFIX}")
}

/// Of an upload to this clean path. Stable over its retries, so that each try finds and removes what the one before left. One content may
/// go to two names in a directory at once, so its id alone would have two uploads write to one file.
pub fn temporary_of(path: &str, transfer_id: &str) -> String {
    let way = blake3::hash(path.as_bytes()).to_hex();
    temporary_name(&format!("{transfer_id}-{}", &way[..WAY_DIGITS]))
}

/// Unfinished uploads are no files of the origin: listings leave them out.
pub fn is_temporary(name: &str) -> bool {
    name.starts_with(TEMPORARY_PREFIX) && name.ends_with(TEMPORARY_SUFFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_normalised_or_refused() {
        assert_eq!(checked("a//b/./c/").unwrap(), "a/b/c");
        assert_eq!(checked("").unwrap(), "");
        for bad in ["/etc/passwd", "a/../b", "..", "a\0b"] {
            assert_eq!(checked(bad).unwrap_err().code.as_str(), "bad_request", "{bad:?}");
        }
        assert_eq!(checked("a..b/..c").unwrap(), "a..b/..c");
        assert_eq!(checked_file(".").unwrap_err().code.as_str(), "destination_is_directory");
    }

    #[test]
    fn temporary_names_are_known_again() {
        assert!(is_temporary(&temporary_name("t-1")));
        assert!(!is_temporary("result.part"));
        let longest = format!("{}-{}", "f".repeat(128), usize::MAX);
        assert!(is_temporary(&temporary_of("d/a", &longest)) && temporary_of("d/a", &longest).len() <= 255);
    }

    #[test]
    fn each_way_of_a_content_has_a_temporary_name_of_its_own() {
        assert_eq!(temporary_of("d/a", "t"), temporary_of("d/a", "t"));
        assert_ne!(temporary_of("d/a", "t"), temporary_of("d/b", "t"));
        assert_ne!(temporary_of("d/a", "t"), temporary_of("d/a", "u"));
    }
}
