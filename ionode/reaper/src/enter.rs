//! A person's shell in a sandbox that a job left: what the job was given is given to it, and this process becomes it.
//! May know: one spec, mounts, exec. One rule: terminal, session and process group stay the caller's, so that the shell can be used as any other.

use std::ffi::CString;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::isolate::Mode;
use crate::spec::Spec;
use crate::{container, launch, links, sys};

/// `orders`: a descriptor of the spec, which is closed: it holds the environment. Returns only where it failed.
pub fn enter(orders: RawFd) -> String {
    match prepared(orders) {
        Ok(spec) => {
            sys::reset_signals();
            match spec.candidates() {
                Some(candidates) => launch::exec_or_explain(&spec, &candidates),
                None => format!("the program {:?} cannot be looked up: there is no PATH", spec.argv[0]),
            }
        }
        Err(why) => why,
    }
}

fn prepared(orders: RawFd) -> Result<Spec, String> {
    let spec = Spec::read(&PathBuf::from(format!("/proc/self/fd/{orders}")))?;
    sys::close(orders);
    sys::set_umask(0o022);
    if !spec.mounts.is_empty() || spec.container.is_some() {
        unshare()?;
        links::bind_all(spec.sandbox(), &spec.mounts)?;
    }
    let spec = match &spec.container {
        Some(container) => {
            container::enter(&spec, container)?;
            spec.inside(container)
        }
        None => spec,
    };
    let cwd = CString::new(spec.cwd.as_os_str().as_bytes()).map_err(|_| "the directory's name holds a NUL byte".to_string())?;
    // After the mounts: a directory may lie in one of them.
    sys::open_at(libc::AT_FDCWD, &cwd, libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW, 0)
        .and_then(|directory| sys::change_directory(directory.as_raw_fd()))
        .map_err(|error| format!("the directory {}: {error}", spec.cwd.display()))?;
    Ok(spec)
}

/// Without a pid namespace: the shell is to see the machine as its caller does.
fn unshare() -> Result<(), String> {
    let (uid, gid) = sys::user_and_group();
    let mut why_not = String::new();
    for mode in [Mode { user: false, pid: false }, Mode { user: true, pid: false }] {
        match sys::unshare(mode.flags()) {
            Ok(()) => return mode.settle(uid, gid),
            Err(error) => why_not = error.to_string(),
        }
    }
    Err(format!("inputs cannot be linked: this host gives this user no mount namespace ({why_not})"))
}
