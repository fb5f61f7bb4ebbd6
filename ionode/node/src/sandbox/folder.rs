//! Directories opened one component at a time, never through a symlink, never across a mount. Knows system calls, not sandboxes.
//!
//! The one rule: a name is looked up in an open directory; no path of more than one component ever reaches the kernel from here.

use std::ffi::{CStr, OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{openat, openat2, renameat, AtFlags, OFlag, OpenHow, ResolveFlag};
use nix::sys::stat::{fstat, fstatat, mkdirat, FileStat, Mode};
use nix::unistd::{linkat, unlinkat, UnlinkatFlags};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    File,
    Directory,
    Symlink,
    Special,
}

pub fn kind_of(stat: &FileStat) -> NodeKind {
    match stat.st_mode & libc::S_IFMT {
        libc::S_IFREG => NodeKind::File,
        libc::S_IFDIR => NodeKind::Directory,
        libc::S_IFLNK => NodeKind::Symlink,
        _ => NodeKind::Special,
    }
}

/// How deep a walk goes into what a job left: each step takes an open file, and a part of a stack that is soon used up.
pub const DEPTH_MAX: usize = 128;

pub struct Folder(OwnedFd);

const DIRECTORY: OFlag = OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);
/// Non-blocking, so that a fifo put where a file was cannot hold the node.
const READ: OFlag = OFlag::O_RDONLY.union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC).union(OFlag::O_NONBLOCK);

impl Folder {
    /// The one place where a whole path is followed: the path of the folder itself, given by the scheduler.
    pub fn open(path: &Path) -> Result<Self, Errno> {
        nix::fcntl::open(path, DIRECTORY, Mode::empty()).map(Self)
    }

    pub fn stat(&self, name: &OsStr) -> Result<FileStat, Errno> {
        fstatat(&self.0, name, AtFlags::AT_SYMLINK_NOFOLLOW)
    }

    pub fn child(&self, name: &OsStr) -> Result<Self, Errno> {
        self.enter(name, DIRECTORY).map(Self)
    }

    pub fn file(&self, name: &OsStr) -> Result<File, Errno> {
        self.enter(name, READ).map(File::from)
    }

    /// A bind mount on the same file system has the same device number: only the kernel can tell that a mount is crossed.
    fn enter(&self, name: &OsStr, flags: OFlag) -> Result<OwnedFd, Errno> {
        debug_assert!(!name.as_bytes().contains(&b'/'));
        let resolve = ResolveFlag::RESOLVE_NO_XDEV | ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_BENEATH;
        match openat2(&self.0, name, OpenHow::new().flags(flags).resolve(resolve)) {
            Err(Errno::ENOSYS) | Err(Errno::EPERM) => self.enter_checked(name, flags),
            found => found,
        }
    }

    /// For kernels and containers without openat2.
    fn enter_checked(&self, name: &OsStr, flags: OFlag) -> Result<OwnedFd, Errno> {
        let opened = openat(&self.0, name, flags, Mode::empty())?;
        if fstat(&opened)?.st_dev != fstat(&self.0)?.st_dev {
            return Err(Errno::EXDEV);
        }
        Ok(opened)
    }

    pub fn names(&self) -> Result<Vec<OsString>, Errno> {
        let mut directory = nix::dir::Dir::openat(&self.0, ".", DIRECTORY, Mode::empty())?;
        let mut names = Vec::new();
        for entry in directory.iter() {
            let entry = entry?;
            let name: &CStr = entry.file_name();
            if name.to_bytes() != b"." && name.to_bytes() != b".." {
                names.push(OsString::from_vec(name.to_bytes().to_vec()));
            }
        }
        names.sort();
        Ok(names)
    }

    pub fn make_folder(&self, name: &OsStr, mode: u32) -> Result<(), Errno> {
        mkdirat(&self.0, name, Mode::from_bits_truncate(mode))
    }

    /// A new file, never an existing one.
    pub fn make_file(&self, name: &OsStr, mode: u32) -> Result<File, Errno> {
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        openat(&self.0, name, flags, Mode::from_bits_truncate(mode)).map(File::from)
    }

    pub fn link_to(&self, name: &OsStr, target: &Folder, target_name: &OsStr) -> Result<(), Errno> {
        linkat(&self.0, name, &target.0, target_name, AtFlags::empty())
    }

    pub fn remove_file(&self, name: &OsStr) -> Result<(), Errno> {
        unlinkat(&self.0, name, UnlinkatFlags::NoRemoveDir)
    }
    pub fn remove_folder(&self, name: &OsStr) -> Result<(), Errno> {
        unlinkat(&self.0, name, UnlinkatFlags::RemoveDir)
    }

    pub fn set_mode(&self, mode: u32) -> Result<(), Errno> {
        nix::sys::stat::fchmod(&self.0, Mode::from_bits_truncate(mode))
    }

    pub fn sync(&self) -> Result<(), Errno> {
        nix::unistd::fsync(&self.0)
    }

    /// Walks `components` down; the last folder.
    pub fn descend(self, components: &[&str]) -> Result<Self, Errno> {
        components.iter().try_fold(self, |folder, name| folder.child(OsStr::new(name)))
    }

    /// Removes what is in this folder, deepest first.
    /// A mount, or a directory that became something else meanwhile, is an error, not a way out.
    pub fn clear(&self) -> Result<(), Errno> {
        let mut raised = Vec::new();
        self.empty(self, 0, &mut raised)?;
        while let Some(name) = raised.pop() {
            self.writable(&name)?.empty(self, 1, &mut raised)?;
            self.remove_folder(&name)?;
        }
        Ok(())
    }

    /// A folder that lies too deep for a stack and for open files is moved up into `top`; its name there is in `raised`.
    fn empty(&self, top: &Folder, depth: usize, raised: &mut Vec<OsString>) -> Result<(), Errno> {
        for name in self.names()? {
            let stat = match self.stat(&name) {
                Ok(stat) => stat,
                Err(Errno::ENOENT) => continue,
                Err(errno) => return Err(errno),
            };
            if kind_of(&stat) != NodeKind::Directory {
                self.remove_file(&name)?;
                continue;
            }
            // Also before it is moved: its owner may not move one that he may not write into.
            let child = self.writable(&name)?;
            if depth < DEPTH_MAX {
                child.empty(top, depth + 1, raised)?;
                self.remove_folder(&name)?;
            } else {
                let fresh = top.unused_name(raised.len());
                renameat(&self.0, name.as_os_str(), &top.0, fresh.as_os_str())?;
                raised.push(fresh);
            }
        }
        Ok(())
    }

    fn unused_name(&self, from: usize) -> OsString {
        let mut names = (from..).map(|number| OsString::from(format!(".stager-raised-{number}")));
        names.find(|name| matches!(self.stat(name), Err(Errno::ENOENT))).expect("numbers do not end")
    }

    /// Jobs leave directories without rights for their owner behind.
    fn writable(&self, name: &OsStr) -> Result<Folder, Errno> {
        let child = match self.child(name) {
            Err(Errno::EACCES) => {
                nix::sys::stat::fchmodat(&self.0, name, Mode::S_IRWXU, nix::sys::stat::FchmodatFlags::FollowSymlink)?;
                self.child(name)?
            }
            opened => opened?,
        };
        if fstat(&child.0)?.st_mode & 0o700 != 0o700 {
            child.set_mode(0o700)?;
        }
        Ok(child)
    }

    /// Removes one entry with all that is in it. Missing is fine.
    pub fn remove(&self, name: &OsStr) -> Result<(), Errno> {
        let stat = match self.stat(name) {
            Ok(stat) => stat,
            Err(Errno::ENOENT) => return Ok(()),
            Err(errno) => return Err(errno),
        };
        if kind_of(&stat) != NodeKind::Directory {
            return self.remove_file(name);
        }
        self.writable(name)?.clear()?;
        self.remove_folder(name)
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Parent components and last name of a checked relative path.
pub fn split(path: &str) -> (Vec<&str>, &OsStr) {
    let mut components: Vec<&str> = path.split('/').collect();
    let name = components.pop().expect("a path has a last component");
    (components, OsStr::new(name))
}

/// Removes a directory tree by its own path.
pub fn remove_tree(path: &Path) -> std::io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Err(Errno::EINVAL.into()) };
    match Folder::open(parent) {
        Ok(parent) => parent.remove(name).map_err(Into::into),
        Err(Errno::ENOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
