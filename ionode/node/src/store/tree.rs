//! Directory replicas: the manifest that is their identity, and how a tree is checked against it.
//!
//! The one rule: equal content gives equal manifest bytes, on any node, in any order of walking.

use std::fs::File;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use stager_core::error::{ApiError, Code};
use stager_core::ids::is_relative_path;

use super::digest::Reader;
use super::digest::{self, Digests};
use crate::failure::at;

const FORMAT: u32 = 1;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    pub path: String,
    pub size_bytes: u64,
    pub blake3: String,
    pub crc64nvme: String,
    pub executable: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    format: u32,
    pub members: Vec<Member>,
    pub empty_directories: Vec<String>,
}

impl Manifest {
    pub fn new(mut members: Vec<Member>, mut empty_directories: Vec<String>) -> Self {
        members.sort_by(|a, b| a.path.cmp(&b.path));
        empty_directories.sort();
        Self { format: FORMAT, members, empty_directories }
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a manifest is plain values")
    }
    pub fn size_bytes(&self) -> u64 {
        self.members.iter().map(|member| member.size_bytes).sum()
    }
    pub fn member(&self, path: &str) -> Option<&Member> {
        self.members.binary_search_by(|member| member.path.as_str().cmp(path)).ok().map(|at| &self.members[at])
    }

    /// Every directory below the top, parents first.
    pub fn folders(&self) -> Vec<String> {
        let mut folders = std::collections::BTreeSet::new();
        for path in self.members.iter().map(|member| member.path.as_str()) {
            folders.extend(path.match_indices('/').map(|(at, _)| path[..at].to_string()));
        }
        for path in &self.empty_directories {
            folders.extend(path.match_indices('/').map(|(at, _)| path[..at].to_string()));
            folders.insert(path.clone());
        }
        folders.into_iter().collect()
    }

    pub fn read(path: &Path) -> Result<Self, ApiError> {
        let bytes = std::fs::read(path).map_err(at("reading", path))?;
        Self::parse(&bytes, &path.display().to_string())
    }

    pub fn parse(bytes: &[u8], subject: &str) -> Result<Self, ApiError> {
        let damaged = |why: String| {
            ApiError::new(Code::ChecksumMismatch, subject, format!("the manifest {subject} is damaged ({why}); make the replica again"))
        };
        let manifest: Self = serde_json::from_slice(bytes).map_err(|error| damaged(error.to_string()))?;
        if manifest.format != FORMAT {
            return Err(damaged(format!("it has format {} and not {FORMAT}", manifest.format)));
        }
        let paths = manifest.members.iter().map(|member| &member.path).chain(&manifest.empty_directories);
        if let Some(bad) = paths.into_iter().find(|path| !is_relative_path(path)) {
            return Err(damaged(format!("{bad:?} is no path in a tree")));
        }
        if !manifest.is_in_order() {
            return Err(damaged("its paths are not in order, or one is there twice".into()));
        }
        Ok(manifest)
    }

    /// As `new` makes it; members are found by it.
    fn is_in_order(&self) -> bool {
        self.members.windows(2).all(|two| two[0].path < two[1].path) && self.empty_directories.windows(2).all(|two| two[0] < two[1])
    }
}

/// What the content of a tree is now, by its manifest: `None` where a member is missing or differs, without saying which.
pub fn verify(top: &Path, manifest_path: &Path, digests: &mut Reader<'_>) -> Result<Option<Digests>, ApiError> {
    let manifest = Manifest::read(manifest_path)?;
    for member in &manifest.members {
        let path: PathBuf = top.join(&member.path);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(crate::failure::disk("opening", &path, &error)),
        };
        let found = digests(&file, &path)?;
        if (found.size_bytes, &found.blake3) != (member.size_bytes, &member.blake3) {
            return Ok(None);
        }
    }
    let mut digests = digest::of_bytes(&manifest.to_bytes(), false);
    digests.size_bytes = manifest.size_bytes();
    Ok(Some(digests))
}

/// Whether every member is there with its size; contents are not read.
pub fn has_sizes(top: &Path, manifest_path: &Path) -> bool {
    let Ok(manifest) = Manifest::read(manifest_path) else { return false };
    let folder = |path: &str| top.join(path).symlink_metadata().is_ok_and(|found| found.is_dir());
    let file = |path: &str, size: u64| top.join(path).symlink_metadata().is_ok_and(|found| found.is_file() && found.len() == size);
    top.is_dir()
        && manifest.members.iter().all(|member| file(&member.path, member.size_bytes))
        && manifest.empty_directories.iter().all(|path| folder(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(path: &str) -> Member {
        Member { path: path.into(), size_bytes: 1, blake3: "b".into(), crc64nvme: "c".into(), executable: false }
    }

    #[test]
    fn the_order_of_walking_does_not_show() {
        let one = Manifest::new(vec![member("b/x"), member("a")], vec!["z".into(), "b/e/f".into()]);
        let two = Manifest::new(vec![member("a"), member("b/x")], vec!["b/e/f".into(), "z".into()]);
        assert_eq!(one.to_bytes(), two.to_bytes());
        assert_eq!(one.folders(), ["b", "b/e", "b/e/f", "z"]);
    }

    #[test]
    fn only_a_manifest_as_it_is_made_is_understood() {
        let made = Manifest::new(vec![member("a"), member("b/x")], vec!["z".into()]);
        assert_eq!(Manifest::parse(&made.to_bytes(), "t").unwrap(), made);
        let refused = |change: &dyn Fn(&mut Manifest)| {
            let mut other = made.clone();
            change(&mut other);
            assert_eq!(Manifest::parse(&other.to_bytes(), "t").unwrap_err().code.as_str(), "checksum_mismatch", "{other:?}");
        };
        refused(&|manifest| manifest.members.reverse());
        refused(&|manifest| manifest.members[1].path = "a".into());
        refused(&|manifest| manifest.empty_directories.push("z".into()));
        refused(&|manifest| manifest.members[0].path = "../a".into());
        refused(&|manifest| manifest.format = 2);
    }
}
