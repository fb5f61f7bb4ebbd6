//! The attempt's lock: held means its reaper lives. May know: flock. One rule: only the reaper itself holds it, never a child, so a held lock proves whose pid is in it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

/// A worker that looks whether the lock is held takes it for a moment; that is no other reaper.
const ATTEMPTS_MAX: u32 = 50;
const PAUSE: Duration = Duration::from_millis(20);

/// None: somebody else keeps holding it.
pub fn take(path: &Path) -> io::Result<Option<File>> {
    let mut file =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(libc::O_NOFOLLOW).open(path)?;
    for attempt in 0..ATTEMPTS_MAX {
        // SAFETY: flock on a descriptor this function owns.
        if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
            file.set_len(0)?;
            file.write_all(format!("{}\n", std::process::id()).as_bytes())?;
            return Ok(Some(file));
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EWOULDBLOCK) {
            return Err(error);
        }
        if attempt + 1 < ATTEMPTS_MAX {
            std::thread::sleep(PAUSE);
        }
    }
    Ok(None)
}
