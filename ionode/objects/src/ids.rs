//! Ids of files of contents and of uploads in parts. Knows randomness and hexadecimal digits.
//!
//! The one rule: an id is drawn from 128 random bits, so that no two of all times are the same and nothing has to count.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A file never has to be replaced: no other has its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FileId(pub [u8; 16]);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UploadId(pub [u8; 16]);

impl FileId {
    pub(crate) fn new() -> Self {
        Self(rand::random())
    }

    pub fn parse(text: &str) -> Option<Self> {
        parse(text).map(Self)
    }
}

impl UploadId {
    pub(crate) fn new() -> Self {
        Self(rand::random())
    }

    pub fn parse(text: &str) -> Option<Self> {
        parse(text).map(Self)
    }
}

impl fmt::Display for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(&self.0, f)
    }
}

impl fmt::Display for UploadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(&self.0, f)
    }
}

fn write_hex(bytes: &[u8; 16], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

/// Only what is written so: an id has one spelling.
fn parse(text: &str) -> Option<[u8; 16]> {
    let whole = text.len() == 32 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    whole.then(|| std::array::from_fn(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).expect("two hex digits")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_one_spelling() {
        let id = FileId::new();
        let text = id.to_string();
        assert_eq!((FileId::parse(&text), UploadId::parse(&text)), (Some(id), Some(UploadId(id.0))));
        for other in ["", &text[1..], &format!("{text}0"), "0123456789ABCDEF0123456789ABCDEF", "+123456789abcdef0123456789abcdef"] {
            assert_eq!(FileId::parse(other), None, "{other:?}");
        }
    }
}
