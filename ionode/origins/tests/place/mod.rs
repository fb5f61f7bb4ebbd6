//! A directory of this host as the far side of an origin: what files, sftp and the test S3 server's own storage have in common.
#![allow(dead_code)]

use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use stager_origins::conformance::Place;
use stager_origins::Origin;

pub struct DirectoryPlace {
    pub origin: Arc<dyn Origin>,
    pub base: PathBuf,
    pub scratch: tempfile::TempDir,
    pub denied: Option<String>,
}

impl DirectoryPlace {
    pub fn new(origin: Arc<dyn Origin>, base: &Path) -> Self {
        Self { origin, base: base.to_owned(), scratch: tempfile::tempdir().unwrap(), denied: None }
    }
}

pub fn files_below(base: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut waiting = vec![base.to_owned()];
    while let Some(directory) = waiting.pop() {
        for item in std::fs::read_dir(&directory).into_iter().flatten().flatten() {
            if item.file_type().unwrap().is_dir() {
                waiting.push(item.path());
            } else {
                found.push(item.path().strip_prefix(base).unwrap().to_string_lossy().into_owned());
            }
        }
    }
    found.sort();
    found
}

/// As the user the origin writes as: a file put here by root must not hinder it.
pub fn write_file(base: &Path, path: &str, content: &[u8], mode: Option<u32>) {
    let target = base.join(path);
    std::fs::create_dir_all(target.parent().unwrap()).unwrap();
    if let Some(mode) = mode {
        std::fs::set_permissions(target.parent().unwrap(), std::fs::Permissions::from_mode(mode)).ok();
    }
    std::fs::write(target, content).unwrap();
}

#[async_trait]
impl Place for DirectoryPlace {
    fn origin(&self) -> Arc<dyn Origin> {
        self.origin.clone()
    }
    fn scratch(&self) -> &Path {
        self.scratch.path()
    }
    fn raw_names(&self) -> Vec<String> {
        files_below(&self.base)
    }
    fn mode(&self, path: &str) -> Option<u32> {
        Some(std::fs::metadata(self.base.join(path)).unwrap().permissions().mode())
    }
    async fn write_behind(&self, path: &str, content: &[u8]) {
        write_file(&self.base, path, content, None)
    }
    fn write_at_once(&self, path: &str, content: &[u8]) -> bool {
        write_file(&self.base, path, content, None);
        true
    }
    fn corrupt_unfinished(&self) -> bool {
        for name in self.raw_names().into_iter().filter(|name| name.contains(".stager-")) {
            let file = std::fs::OpenOptions::new().read(true).write(true).open(self.base.join(name)).unwrap();
            let mut byte = [0];
            file.read_at(&mut byte, 4321).unwrap();
            // Not flipped, or every second call would mend it.
            file.write_all_at(&[byte[0] | 0x81], 4321).unwrap();
        }
        true
    }
    fn denied_directory(&self) -> Option<String> {
        self.denied.clone()
    }
    fn far_directory(&self) -> Option<&Path> {
        Some(&self.base)
    }
    fn has_directories(&self) -> bool {
        true
    }
    fn allows_newlines(&self) -> bool {
        true
    }
}
