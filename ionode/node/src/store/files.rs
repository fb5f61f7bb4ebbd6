//! Directories listed and made, small files written whole. Knows files, not what they hold.
//!
//! The one rule: a file that is written here appears whole or not at all.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use stager_core::error::ApiError;

use super::durability::Durability;
use crate::failure::at;

pub fn make_directory(path: &Path) -> Result<(), ApiError> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(at("making", path))
}

/// Appears whole or not at all, mode 0600.
pub fn write_whole(path: &Path, bytes: &[u8], durability: Durability) -> Result<(), ApiError> {
    let temporary = path.with_extension("new");
    let mut file =
        OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&temporary).map_err(at("making", &temporary))?;
    file.write_all(bytes).map_err(at("writing", &temporary))?;
    durability.file(&file, &temporary)?;
    fs::rename(&temporary, path).map_err(at("renaming", path))?;
    durability.directory(path.parent().expect("a file lies in a directory"))
}

pub fn list(directory: &Path) -> Result<Vec<String>, ApiError> {
    let entries = fs::read_dir(directory).map_err(at("listing", directory))?;
    let mut names = Vec::new();
    for entry in entries {
        names.push(entry.map_err(at("listing", directory))?.file_name().to_string_lossy().into_owned());
    }
    Ok(names)
}
