//! A disk that fails when told to: a small library between the node and its C library.
//!
//! The one rule: without a C compiler the tests that need it say that they were not run.
#![allow(dead_code)]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

pub struct Faults {
    directory: PathBuf,
    library: PathBuf,
}

impl Faults {
    /// None, and a word about it, where it cannot be built.
    pub fn prepare(root: &Path) -> Option<Self> {
        let (directory, library) = (root.join("faults"), root.join("faults.so"));
        std::fs::create_dir(&directory).unwrap();
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/faults/shim.c");
        let built = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source).arg("-ldl").status();
        if built.is_ok_and(|status| status.success()) {
            return Some(Self { directory, library });
        }
        writeln!(std::io::stderr(), "NOT RUN: tests of a failing disk need a C compiler").ok();
        None
    }

    pub fn environment(&self) -> Vec<(String, String)> {
        let pairs = [("LD_PRELOAD", &self.library), ("FAULTS_DIR", &self.directory)];
        pairs.into_iter().map(|(name, value)| (name.to_string(), value.display().to_string())).collect()
    }

    /// Every read of a file with this in its path fails from now on.
    pub fn fail_reads_of(&self, part: &str) {
        std::fs::write(self.directory.join("read"), part).unwrap();
    }
    pub fn fail_syncs_of_the_log(&self) {
        std::fs::write(self.directory.join("sync"), "").unwrap();
    }
    pub fn mend(&self) {
        for name in ["read", "sync"] {
            let _ = std::fs::remove_file(self.directory.join(name));
        }
    }
}
