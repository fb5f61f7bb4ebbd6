//! Paths as the kernel takes them. May know: descriptors. One rule: nothing is opened for reading or writing.

use std::ffi::{CString, OsStr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::sys;

/// O_PATH, symlinks followed.
pub fn open_path(path: &Path) -> Result<OwnedFd, String> {
    sys::open_at(libc::AT_FDCWD, &c_string(path.as_os_str())?, libc::O_PATH, 0).map_err(|error| format!("{}: {error}", path.display()))
}

pub fn by_fd(fd: &OwnedFd) -> CString {
    CString::new(format!("/proc/self/fd/{}", fd.as_raw_fd())).expect("digits hold no NUL")
}

pub fn c_string(text: &OsStr) -> Result<CString, String> {
    CString::new(text.as_bytes()).map_err(|_| "its path holds a NUL byte".to_string())
}
