//! Copies of open files: by reflink where the file system shares blocks, else in the kernel, else by hand.
//!
//! The one rule: a copy has as many bytes as its source had, or it is an error.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use stager_core::error::{ApiError, Code};

use crate::failure::at;

const FICLONE: libc::c_ulong = 0x4004_9409;

pub fn reflink(source: &File, target: &File) -> bool {
    // SAFETY: both descriptors are open for the call; FICLONE takes a descriptor and no memory.
    unsafe { libc::ioctl(target.as_raw_fd(), FICLONE, source.as_raw_fd()) == 0 }
}

/// The whole of `source`, read from its beginning whatever its position is.
pub fn content(source: &File, source_path: &Path, target: &mut File, size_bytes: u64) -> Result<(), ApiError> {
    if size_bytes == 0 || reflink(source, target) {
        return Ok(());
    }
    let mut reader = source.try_clone().map_err(at("opening", source_path))?;
    io::Seek::seek(&mut reader, io::SeekFrom::Start(0)).map_err(at("reading", source_path))?;
    let copied = io::copy(&mut reader, target).map_err(at("copying", source_path))?;
    if copied == size_bytes {
        return Ok(());
    }
    let subject = source_path.display().to_string();
    Err(ApiError::new(
        Code::ChecksumMismatch,
        &subject,
        format!("{subject} should have {size_bytes} bytes and {copied} could be copied; verify the replica"),
    ))
}

/// Whether files in `directory` can share blocks.
pub fn can_reflink(directory: &Path) -> bool {
    let names = [directory.join(".reflink-a"), directory.join(".reflink-b")];
    let made = std::fs::write(&names[0], vec![1u8; 4096]).and_then(|()| Ok((File::open(&names[0])?, File::create(&names[1])?)));
    let shares = made.map(|(source, target)| reflink(&source, &target)).unwrap_or(false);
    for name in names {
        let _ = std::fs::remove_file(name);
    }
    shares
}
