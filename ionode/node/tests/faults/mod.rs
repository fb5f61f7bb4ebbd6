//! A disk that fails when told to: a small library between the node and its C library.
//!
//! The one rule: without a C compiler the tests that need it say that they were not run.
#![allow(dead_code)]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

pub struct Faults {
    directory: PathBuf,
    shim: PathBuf,
}

impl Faults {
    /// None, and a word about it, where there is no C compiler.
    pub fn prepare(root: &Path) -> Option<Self> {
        let (directory, shim) = (root.join("faults"), root.join("faults.so"));
        std::fs::create_dir(&directory).unwrap();
        let source = root.join("shim.c");
        std::fs::write(&source, include_str!("shim.c")).unwrap();
        let Ok(built) = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).args([&shim, &source]).arg("-ldl").status() else {
            writeln!(std::io::stderr(), "NOT RUN: tests of a failing disk need a C compiler").ok();
            return None;
        };
        assert!(built.success(), "the compiler refused shim.c");
        Some(Self { directory, shim })
    }

    pub fn environment(&self) -> Vec<(String, String)> {
        let pairs = [("LD_PRELOAD", &self.shim), ("FAULTS_DIR", &self.directory)];
        pairs.into_iter().map(|(name, value)| (name.to_string(), value.display().to_string())).collect()
    }

    /// Every read of a file with this in its path fails from now on.
    pub fn fail_reads_of(&self, part: &str) {
        std::fs::write(self.directory.join("read"), part).unwrap();
    }
    pub fn fail_syncs_of_the_log(&self) {
        std::fs::write(self.directory.join("sync"), "").unwrap();
    }
    pub fn fail_syncs_of_the_file_system(&self) {
        std::fs::write(self.directory.join("syncfs"), "").unwrap();
    }
    pub fn mend(&self) {
        for name in ["read", "sync", "syncfs"] {
            let _ = std::fs::remove_file(self.directory.join(name));
        }
    }
}
