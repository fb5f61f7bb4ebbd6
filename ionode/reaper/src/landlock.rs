//! Landlock: rules that the kernel keeps for a process and all that it starts, root's too. May know: three system calls. One rule: only what writes is handled; reading is free.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use crate::paths::open_path;
use crate::sys;

const WRITE_FILE: u64 = 1 << 1;
/// Removes and makes of every kind.
const DIRECTORY_CHANGES: u64 = 0x1ff << 4;
const REFER: u64 = 1 << 13;
const TRUNCATE: u64 = 1 << 14;
/// Before 2 nothing can be moved between two directories, inside the sandbox neither.
const ABI_MIN: i32 = 2;
const ABI_TRUNCATE: i32 = 3;

pub struct Rules {
    fd: OwnedFd,
    writes: u64,
}

/// The version that this kernel has.
pub fn is_there() -> bool {
    sys::landlock_version() >= ABI_MIN
}

impl Rules {
    pub fn new() -> Option<Rules> {
        let version = sys::landlock_version();
        if version < ABI_MIN {
            return None;
        }
        let writes = WRITE_FILE | if version >= ABI_TRUNCATE { TRUNCATE } else { 0 };
        let fd = sys::landlock_rules(writes | DIRECTORY_CHANGES | REFER).ok()?;
        Some(Rules { fd, writes })
    }

    /// Everything below a directory.
    pub fn allow(&self, place: &Path) -> Result<(), String> {
        self.add(place, self.writes | DIRECTORY_CHANGES | REFER)
    }

    /// A file or device, or those that are in a directory; nothing is made or removed. One that is not there is passed over.
    pub fn allow_writes(&self, place: &Path) -> Result<(), String> {
        if place.exists() {
            self.add(place, self.writes)
        } else {
            Ok(())
        }
    }

    fn add(&self, place: &Path, access: u64) -> Result<(), String> {
        let fd = open_path(place)?;
        sys::landlock_allow(&self.fd, access, &fd).map_err(|error| format!("no rule can be made for {}: {error}", place.display()))
    }

    pub fn into_fd(self) -> OwnedFd {
        self.fd
    }
}

/// From here on, for good. Who may not do it as it is gives up setuid programs for it.
pub fn restrict(rules: &OwnedFd) -> io::Result<()> {
    match sys::landlock_restrict(rules.as_raw_fd()) {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
            sys::forbid_new_privileges()?;
            sys::landlock_restrict(rules.as_raw_fd())
        }
        done => done,
    }
}
