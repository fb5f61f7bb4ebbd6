//! A directory as replicas: one for each file, and a list of them all. Knows names of any bytes, not how anything is sent.
//!
//! The one rule: what a list says is believed only where it leads below the directory that is made from it.

use std::ffi::OsStr;
use std::fs::Metadata;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use percent_encoding::{percent_decode_str, percent_encode, AsciiSet, NON_ALPHANUMERIC};
use serde::{Deserialize, Serialize};
use stager_core::error::ApiError;
use stager_core::ids::check_id;

use crate::failure::{at, bad_request};

const FORMAT: u32 = 1;
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'.').remove(b'_').remove(b'-');
const PATH_BYTES_MAX: usize = 4096;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct List {
    pub format: u32,
    pub files: Vec<Listed>,
    /// All below the top, each before what lies in it.
    pub directories: Vec<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listed {
    /// Below the top; what is no letter, digit or one of `/._-` is percent-encoded.
    pub path: String,
    pub file_id: String,
    pub size_bytes: u64,
    pub blake3: String,
    pub executable: bool,
}

/// A file as it was seen.
pub struct Found {
    pub below: PathBuf,
    pub size_bytes: u64,
    pub executable: bool,
}

impl List {
    pub fn new(files: Vec<Listed>, directories: &[PathBuf]) -> Self {
        Self { format: FORMAT, files, directories: directories.iter().map(|path| encoded(path)).collect() }
    }

    /// What could be one, all of its paths clean.
    pub fn parse(bytes: &[u8], subject: &str) -> Result<Self, ApiError> {
        let no_list = |why: String| {
            bad_request(subject, format!("{subject} is not the list of a directory that was pushed ({why}); fetch it without --tree"))
        };
        let list: Self = serde_json::from_slice(bytes).map_err(|error| no_list(error.to_string()))?;
        if list.format != FORMAT {
            return Err(no_list(format!("its format is {}, this version knows {FORMAT}", list.format)));
        }
        list.directories.iter().chain(list.files.iter().map(|file| &file.path)).try_for_each(|path| decoded(path).map(drop))?;
        list.files.iter().try_for_each(|file| check_id("file id", &file.file_id))?;
        Ok(list)
    }
}

/// The file id of a file in a tree: the same in every push of it.
pub fn member_id(tree_id: &str, below: &Path) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(tree_id.as_bytes()).update(&[0]).update(below.as_os_str().as_bytes());
    format!("m-{}", hasher.finalize().to_hex())
}

pub fn encoded(below: &Path) -> String {
    percent_encode(below.as_os_str().as_bytes(), PLAIN).to_string()
}

pub fn decoded(text: &str) -> Result<PathBuf, ApiError> {
    let bytes: Vec<u8> = percent_decode_str(text).collect();
    let clean = |part: &[u8]| !part.is_empty() && part != b"." && part != b".." && !part.contains(&0);
    if bytes.len() <= PATH_BYTES_MAX && bytes.split(|byte| *byte == b'/').all(clean) {
        return Ok(PathBuf::from(std::ffi::OsString::from_vec(bytes)));
    }
    Err(bad_request(text, format!("the path {text} in the list leads out of the directory, or is none; nothing was made from it")))
}

/// All files and directories below `top`, each directory before what lies in it. Anything else is refused by name.
pub fn survey(top: &Path) -> Result<(Vec<Found>, Vec<PathBuf>), ApiError> {
    let (mut files, mut directories, mut open) = (Vec::new(), Vec::new(), vec![PathBuf::new()]);
    while let Some(below) = open.pop() {
        let here = top.join(&below);
        let mut entries: Vec<_> = std::fs::read_dir(&here).and_then(Iterator::collect).map_err(at("listing", &here))?;
        entries.sort_by_key(|entry: &std::fs::DirEntry| entry.file_name());
        for entry in entries {
            let path = below.join(entry.file_name());
            let seen = entry.metadata().map_err(at("stat of", &entry.path()))?;
            if seen.is_dir() {
                directories.push(path.clone());
                open.push(path);
            } else {
                files.push(found(top, path, &seen)?);
            }
        }
    }
    directories.sort();
    Ok((files, directories))
}

fn found(top: &Path, below: PathBuf, seen: &Metadata) -> Result<Found, ApiError> {
    if seen.is_file() {
        return Ok(Found { below, size_bytes: seen.len(), executable: seen.permissions().mode() & 0o100 != 0 });
    }
    let path = top.join(below).display().to_string();
    Err(bad_request(
        &path,
        format!("{path} is neither a file nor a directory; only those are pushed: move it away, or replace a link by what it leads to"),
    ))
}

/// A name beside `path`, for what is not whole yet.
pub fn beside(path: &Path, what: &str) -> Result<PathBuf, ApiError> {
    let name = path.file_name().ok_or_else(|| bad_request(path.display().to_string(), "name the directory to be made"))?;
    let name = [b".", name.as_bytes(), b".", what.as_bytes()].concat();
    Ok(path.with_file_name(OsStr::from_bytes(&name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_any_bytes_come_back_and_none_leads_out() {
        for name in [&b"a"[..], b"a b/c%41", b"\xff\xfe\n", "ä/ö".as_bytes(), b"..a/b..", b"-", b"a\\b"] {
            let path = PathBuf::from(OsStr::from_bytes(name));
            assert_eq!(decoded(&encoded(&path)).unwrap(), path);
            assert!(encoded(&path).bytes().all(|byte| byte.is_ascii_graphic()));
        }
        for bad in
            ["", "/a", "a/", "a//b", "..", "a/../b", "%2e%2e/b", "a/%2E%2E", ".", "a%00b", "%2Fetc/passwd", "a%2F..%2Fb", &"a".repeat(4097)]
        {
            assert!(decoded(bad).is_err(), "{bad}");
        }
        assert_ne!(member_id("t", Path::new("a/b")), member_id("t", Path::new("a")));
        assert!(check_id("file id", &member_id("t", Path::new("a"))).is_ok());
    }
}
