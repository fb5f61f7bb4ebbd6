//! `stager-ionode hash`: the size and the BLAKE3 of files, for who compares a file with what a ledger says of it.
//!
//! The one rule: one line for each file, in order; at the first that cannot be read it ends.

use std::fs::File;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{json, Value};
use stager_core::error::ApiError;

use crate::failure::at;
use crate::store::digest;

const EXIT_FAULT: i32 = 2;

#[derive(Args, Debug)]
pub struct HashOptions {
    /// The files
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

pub fn run(options: &HashOptions) -> i32 {
    for path in &options.files {
        match hashed(path) {
            Ok(line) => println!("{line}"),
            Err(error) => {
                eprintln!("stager-ionode: {error}");
                return EXIT_FAULT;
            }
        }
    }
    0
}

fn hashed(path: &Path) -> Result<Value, ApiError> {
    let file = File::open(path).map_err(at("opening", path))?;
    let digests = digest::of_file(&file, path, false)?;
    Ok(json!({"size_bytes": digests.size_bytes, "blake3": digests.blake3}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_told_by_its_size_and_blake3() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("empty");
        std::fs::write(&path, b"").unwrap();
        let told = hashed(&path).unwrap();
        assert_eq!(told["size_bytes"], 0);
        assert_eq!(told["blake3"], "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262");
        assert!(hashed(&place.path().join("none")).is_err());
    }
}
