//! Linked inputs: read-only bind mounts of the store's files over empty targets in the sandbox. May know: paths below one directory, and mount.
//! One rule: a target is reached from the sandbox one name at a time, never through a symlink, so no mount lands outside.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Component, Path};

use libc::c_ulong;

use crate::paths::{by_fd, c_string};
use crate::spec::Link;
use crate::sys;

/// Must run inside the job's own mount namespace.
pub fn bind_all(sandbox: &Path, links: &[Link]) -> Result<(), String> {
    for link in links {
        bind(sandbox, link).map_err(|what| format!("the input {} cannot be linked into the sandbox: {what}", link.target.display()))?;
    }
    Ok(())
}

fn bind(sandbox: &Path, link: &Link) -> Result<(), String> {
    let source = c_string(link.source.as_os_str())?;
    let source = sys::open_at(libc::AT_FDCWD, &source, libc::O_PATH | libc::O_NOFOLLOW, 0)
        .map_err(|error| format!("{}: {error}", link.source.display()))?;
    require_kind(&source, link.directory, &link.source)?;
    let target = open_inside(sandbox, &link.target)?;
    require_kind(&target, link.directory, &link.target)?;
    sys::mount(&by_fd(&source), &by_fd(&target), c"", libc::MS_BIND).map_err(|error| format!("bind mount: {error}"))?;
    // Opened again, the path leads to the mount on top; bind flags only take effect on a remount.
    let mounted = open_inside(sandbox, &link.target)?;
    let flags = libc::MS_REMOUNT | libc::MS_BIND | libc::MS_RDONLY | libc::MS_NOSUID | libc::MS_NODEV | kept_flags(&mounted)?;
    sys::mount(c"none", &by_fd(&mounted), c"", flags).map_err(|error| format!("read-only remount: {error}"))
}

/// In a user namespace the flags of the mount below are locked: leaving one out would be refused.
pub fn kept_flags(mounted: &OwnedFd) -> Result<c_ulong, String> {
    let has = sys::mount_flags_of(mounted).map_err(|error| format!("its mount flags cannot be read: {error}"))?;
    let pairs = [
        (libc::ST_NOEXEC, libc::MS_NOEXEC),
        (libc::ST_NOATIME, libc::MS_NOATIME),
        (libc::ST_NODIRATIME, libc::MS_NODIRATIME),
        (libc::ST_RELATIME, libc::MS_RELATIME),
    ];
    Ok(pairs.iter().filter(|(seen, _)| has & seen != 0).fold(0, |flags, (_, keep)| flags | keep))
}

fn require_kind(fd: &OwnedFd, directory: bool, path: &Path) -> Result<(), String> {
    let wanted = if directory { libc::S_IFDIR } else { libc::S_IFREG };
    let found = sys::mode_of(fd).map_err(|error| error.to_string())? & libc::S_IFMT;
    if found == wanted {
        return Ok(());
    }
    Err(format!("{} is no {}", path.display(), if directory { "directory" } else { "regular file" }))
}

/// O_PATH of something below `sandbox`, symlinks refused at every step.
pub fn open_inside(sandbox: &Path, path: &Path) -> Result<OwnedFd, String> {
    let below = if path.is_absolute() { path.strip_prefix(sandbox).map_err(|_| "it lies outside the sandbox".to_string())? } else { path };
    let mut names = Vec::new();
    for part in below.components() {
        match part {
            Component::Normal(name) => names.push(name),
            _ => return Err("its path holds '..' or '.'".into()),
        }
    }
    if names.is_empty() {
        return Err("it is the sandbox itself".into());
    }
    let flags = libc::O_PATH | libc::O_NOFOLLOW;
    let top = c_string(sandbox.as_os_str())?;
    let mut here =
        sys::open_at(libc::AT_FDCWD, &top, flags | libc::O_DIRECTORY, 0).map_err(|error| format!("{}: {error}", sandbox.display()))?;
    for (index, name) in names.iter().enumerate() {
        let directory = if index + 1 < names.len() { libc::O_DIRECTORY } else { 0 };
        here = sys::open_at(here.as_raw_fd(), &c_string(name)?, flags | directory, 0)
            .map_err(|error| format!("{}: {error}", name.to_string_lossy()))?;
    }
    Ok(here)
}
