//! The alphabet of ids and the shape of relative paths. May know nothing but text.
//!
//! The one rule: what passes here can be a file name component without leading anywhere else.

use crate::error::{ApiError, Code};

const ID_LENGTH_MAX: usize = 128;

pub fn is_id(text: &str) -> bool {
    !text.is_empty() && text.len() <= ID_LENGTH_MAX && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

pub fn check_id(what: &str, text: &str) -> Result<(), ApiError> {
    if is_id(text) {
        return Ok(());
    }
    let shown: String = text.chars().take(ID_LENGTH_MAX).collect();
    Err(ApiError::new(Code::BadRequest, shown, format!("the {what} is not 1 to {ID_LENGTH_MAX} of A-Z a-z 0-9 . _ -; use such an id")))
}

/// `a/b/c`: no empty component, no `.` or `..`, no NUL, not absolute.
pub fn is_relative_path(path: &str) -> bool {
    !path.is_empty()
        && path.len() <= 4096
        && path.split('/').all(|part| !part.is_empty() && part != "." && part != ".." && !part.contains('\0'))
}

pub fn check_relative_path(path: &str) -> Result<(), ApiError> {
    if is_relative_path(path) {
        return Ok(());
    }
    Err(ApiError::new(
        Code::BadRequest,
        path,
        format!("the path {path:?} is not relative and clean; write it as a/b/c without . or .. or empty parts"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_lead_elsewhere_are_refused() {
        for bad in ["", "/", "/a", "a//b", "a/", "..", "a/../b", "./a", "a/.", "a\0b"] {
            assert!(!is_relative_path(bad), "{bad:?}");
        }
        for good in ["a", "a/b", "..a/b..", "ä/ b", ".hidden"] {
            assert!(is_relative_path(good), "{good:?}");
        }
    }

    #[test]
    fn ids_have_an_alphabet_and_a_length() {
        for bad in ["", "a/b", "a b", "a@b", "ä", &"x".repeat(129)] {
            assert!(!is_id(bad), "{bad:?}");
        }
        for good in ["a", "A-9._", "..", &"x".repeat(128)] {
            assert!(is_id(good), "{good:?}");
        }
    }
}
