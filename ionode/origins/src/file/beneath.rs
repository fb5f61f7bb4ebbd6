//! File system calls that cannot leave the base directory. Knows descriptors and errno, nothing of origins.
//!
//! The one rule: no path is resolved by name from outside; every open starts at the base's descriptor and is refused by the kernel when it
//! would leave it.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{openat, openat2, AtFlags, OFlag, OpenHow, ResolveFlag};
use nix::libc;
use nix::sys::stat::{fchmod, fstat, fstatat, mkdirat, FileStat, Mode};

use crate::rights;

/// The base directory, opened once for each call so that a re-made or re-mounted base is seen.
pub struct Base {
    root: OwnedFd,
}

impl Base {
    pub fn open(path: &Path) -> Result<Self, Errno> {
        let root = nix::fcntl::open(path, OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
        Ok(Self { root })
    }

    pub fn root(&self) -> &OwnedFd {
        &self.root
    }

    /// Follows symbolic links as long as they stay inside.
    pub fn open_beneath(&self, path: &str, flags: OFlag) -> Result<OwnedFd, Errno> {
        let path = if path.is_empty() { "." } else { path };
        // EAGAIN: something was renamed meanwhile and the kernel could not be sure.
        for _ in 0..16 {
            let how =
                OpenHow::new().flags(flags | OFlag::O_CLOEXEC).resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS);
            match openat2(&self.root, path, how) {
                Err(Errno::EAGAIN) => continue,
                Err(Errno::ENOSYS | Errno::EPERM) if !kernel_resolves_beneath(&self.root) => return self.open_without_links(path, flags),
                other => return other,
            }
        }
        Err(Errno::EXDEV)
    }

    pub fn stat(&self, path: &str) -> Result<FileStat, Errno> {
        fstat(self.open_beneath(path, OFlag::O_PATH)?)
    }

    /// O_NONBLOCK: a FIFO must not hang the reader before its kind is seen.
    pub fn open_to_read(&self, path: &str) -> Result<OwnedFd, Errno> {
        self.open_beneath(path, OFlag::O_RDONLY | OFlag::O_NONBLOCK)
    }

    /// For older kernels: no symbolic link is followed at all.
    fn open_without_links(&self, path: &str, flags: OFlag) -> Result<OwnedFd, Errno> {
        let (directory, name) = crate::path::split(path);
        let parent = self.directory_without_links(directory, false)?;
        openat(&parent, name, flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC, Mode::empty())
    }

    /// What is written goes through real directories only; with `create` the missing ones are made, and made durable.
    pub fn directory_without_links(&self, path: &str, create: bool) -> Result<OwnedFd, Errno> {
        let mut here = self.root.try_clone().map_err(|_| Errno::EMFILE)?;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            here = match open_directory(&here, name) {
                Err(Errno::ENOENT) if create => make_directory(&here, name)?,
                other => other?,
            };
        }
        Ok(here)
    }

    /// The first name on the way to `path`, itself included, that is a symbolic link.
    pub fn first_link<'a>(&self, path: &'a str) -> Option<&'a str> {
        let ends = path.match_indices('/').map(|(end, _)| end).chain([path.len()]);
        ends.map(|end| &path[..end]).find(|part| self.ends_in_link(part))
    }

    fn ends_in_link(&self, path: &str) -> bool {
        let (directory, name) = crate::path::split(path);
        let Ok(parent) = self.directory_without_links(directory, false) else {
            return false;
        };
        fstatat(&parent, name, AtFlags::AT_SYMLINK_NOFOLLOW).is_ok_and(|stat| is_link(&stat))
    }
}

fn open_directory(parent: impl AsFd, name: &str) -> Result<OwnedFd, Errno> {
    openat(parent, name, OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC, Mode::empty())
}

fn make_directory(parent: &OwnedFd, name: &str) -> Result<OwnedFd, Errno> {
    match mkdirat(parent, name, Mode::from_bits_truncate(0o777)) {
        Ok(()) => {
            let made = open_directory(parent, name)?;
            fchmod(&made, rights::directory_mode(fstat(&made)?.st_mode))?;
            sync_directory(parent)?;
            Ok(made)
        }
        Err(Errno::EEXIST) => open_directory(parent, name),
        Err(other) => Err(other),
    }
}

/// False: some network file systems know no fsync of a directory; there the name is as durable as they make it.
pub fn sync_directory(directory: impl AsFd) -> Result<bool, Errno> {
    match nix::unistd::fsync(directory) {
        Err(Errno::EINVAL | Errno::ENOTSUP) => Ok(false),
        other => other.map(|()| true),
    }
}

fn kernel_resolves_beneath(root: &OwnedFd) -> bool {
    openat2(root, ".", OpenHow::new().flags(OFlag::O_PATH).resolve(ResolveFlag::RESOLVE_BENEATH)).is_ok()
}

pub fn is_file(stat: &FileStat) -> bool {
    stat.st_mode & libc::S_IFMT == libc::S_IFREG
}
pub fn is_directory(stat: &FileStat) -> bool {
    stat.st_mode & libc::S_IFMT == libc::S_IFDIR
}
pub fn is_link(stat: &FileStat) -> bool {
    stat.st_mode & libc::S_IFMT == libc::S_IFLNK
}
