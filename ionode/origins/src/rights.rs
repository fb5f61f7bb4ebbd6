//! Rights of what is written to an origin of this host.
//!
//! The one rule: what the submitter's umask allows, whatever umask this process keeps for its own files.

use std::sync::atomic::{AtomicU32, Ordering};

use nix::sys::stat::Mode;

static UMASK: AtomicU32 = AtomicU32::new(0o022);

/// Said once at the start of the process, before the first upload.
pub fn set_umask(mask: u32) {
    UMASK.store(mask & 0o777, Ordering::Relaxed);
}

pub fn file_mode(executable: bool) -> Mode {
    allowed(if executable { 0o777 } else { 0o666 })
}

/// Keeps what the file system gave it besides, such as the group bit that a shared directory hands on.
pub fn directory_mode(found: u32) -> Mode {
    allowed(0o777) | Mode::from_bits_truncate(found & 0o7000)
}

fn allowed(bits: u32) -> Mode {
    Mode::from_bits_truncate(bits & !UMASK.load(Ordering::Relaxed))
}
