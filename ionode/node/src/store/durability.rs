//! Whether what is acknowledged is synced. Knows files and directories, not what they hold.
//!
//! The one rule: with fsync on, nothing returns before the disk has it, but `begin`, which says so.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;

use stager_core::error::ApiError;

use crate::failure::at;

/// Whether fsync is done. Off is for benchmarks: a power loss may then take what was acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Durability(pub bool);

impl Durability {
    pub fn file(self, file: &File, path: &Path) -> Result<(), ApiError> {
        if self.0 {
            file.sync_all().map_err(at("fsync of", path))
        } else {
            Ok(())
        }
    }

    pub fn directory(self, path: &Path) -> Result<(), ApiError> {
        if !self.0 {
            return Ok(());
        }
        File::open(path).and_then(|directory| directory.sync_all()).map_err(at("fsync of", path))
    }

    /// Its bytes begin to go to the disk, for who waits for the whole file system later. An error shows then.
    pub fn begin(self, file: &File) {
        if self.0 {
            // SAFETY: the descriptor is open for as long as `file` lives.
            unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE) };
        }
    }

    /// Everything written to the file system that holds `path`: cheaper than an fsync each where a tree has many files.
    pub fn file_system(self, path: &Path) -> Result<(), ApiError> {
        if !self.0 {
            return Ok(());
        }
        let directory = File::open(path).map_err(at("opening", path))?;
        // SAFETY: the descriptor is open for as long as `directory` lives.
        if unsafe { libc::syncfs(directory.as_raw_fd()) } == 0 {
            return Ok(());
        }
        Err(at::<std::io::Error>("syncfs of", path)(std::io::Error::last_os_error()))
    }
}
