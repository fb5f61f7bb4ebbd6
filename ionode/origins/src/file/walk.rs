//! Listing and probing a directory tree of this host. Runs on blocking threads.
//!
//! The one rule: the walk is in path order, so that a limit ends it early and the answer is the same whatever the directory's own order.

use std::ffi::{CStr, CString};
use std::os::fd::OwnedFd;

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{openat, AtFlags, OFlag};
use nix::sys::stat::{fstatat, FileStat, Mode};
use nix::sys::statvfs::fstatvfs;
use nix::unistd::{unlinkat, UnlinkatFlags};
use stager_core::error::ApiError;

use super::beneath::{self, Base};
use super::{entry_of, Site};
use crate::path::{checked, is_temporary, join, split, temporary_name};
use crate::{Entry, EntryKind, LeftOut, Listing, Probe, Why};

struct Walk<'a> {
    site: &'a Site,
    base: &'a Base,
    recursive: bool,
    limit: usize,
    found: Vec<Entry>,
    left_out: Vec<LeftOut>,
}

enum Seen {
    Member(FileStat),
    LeftOut(Why),
}

struct Member {
    name: String,
    stat: FileStat,
    descend: bool,
}

/// Names that are no UTF-8 cannot be said in the API; links to directories could loop.
pub fn list(site: &Site, prefix: &str, recursive: bool, limit: usize) -> Result<Listing, ApiError> {
    let clean = checked(prefix)?;
    let base = site.base(prefix)?;
    let start = site.entry(&clean, &base.stat(&clean).map_err(|errno| site.failure(errno, prefix))?)?;
    if start.kind == EntryKind::File {
        return Ok(Listing { entries: vec![start], ..Listing::default() });
    }
    let mut walk = Walk { site, base: &base, recursive, limit, found: Vec::new(), left_out: Vec::new() };
    walk.directory(&clean)?;
    Ok(Listing::cut(walk.found, walk.left_out, limit))
}

impl Walk<'_> {
    fn directory(&mut self, path: &str) -> Result<(), ApiError> {
        for member in self.members(path)? {
            if self.found.len() + self.left_out.len() > self.limit {
                return Ok(());
            }
            let path = join(path, &member.name);
            if member.descend {
                self.directory(&path)?;
            } else {
                self.found.extend(entry_of(&path, &member.stat));
            }
        }
        Ok(())
    }

    fn members(&mut self, path: &str) -> Result<Vec<Member>, ApiError> {
        let handle = self.base.open_beneath(path, OFlag::O_RDONLY | OFlag::O_DIRECTORY).map_err(|errno| self.site.failure(errno, path))?;
        let mut directory = Dir::from_fd(handle).map_err(|errno| self.site.failure(errno, path))?;
        let mut names: Vec<CString> = Vec::new();
        for item in directory.iter() {
            names.push(item.map_err(|errno| self.site.failure(errno, path))?.file_name().to_owned());
        }
        names.retain(|name| !matches!(name.to_bytes(), b"." | b"..") && !name.to_str().is_ok_and(is_temporary));
        let mut members = Vec::with_capacity(names.len());
        for name in names {
            members.extend(self.member(&directory, path, &name)?);
        }
        // With the slash that follows a directory in its members' paths, or "a.txt" and "a/b" would come out of order.
        members.sort_by_cached_key(|member| if member.descend { format!("{}/", member.name) } else { member.name.clone() });
        Ok(members)
    }

    /// None: it is left out, or vanished between readdir and stat and was not there.
    fn member(&mut self, directory: &Dir, parent: &str, raw: &CStr) -> Result<Option<Member>, ApiError> {
        let name = raw.to_string_lossy();
        let path = join(parent, &name);
        let stat = match fstatat(directory, raw, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::ENOENT) => return Ok(None),
            Err(errno) => return Err(self.site.failure(errno, &path)),
        };
        let why = match self.seen(&path, raw, &stat)? {
            Seen::Member(stat) => {
                let descend = self.recursive && beneath::is_directory(&stat);
                return Ok(Some(Member { name: name.into_owned(), stat, descend }));
            }
            Seen::LeftOut(why) => why,
        };
        let below = if beneath::is_link(&stat) { leads_to_directory(directory, raw) } else { beneath::is_directory(&stat) };
        if self.recursive || !beneath::is_directory(&stat) {
            self.left_out.push(LeftOut { path, why, directory: below });
        }
        Ok(None)
    }

    fn seen(&self, path: &str, raw: &CStr, stat: &FileStat) -> Result<Seen, ApiError> {
        if raw.to_str().is_err() {
            return Ok(Seen::LeftOut(Why::NotUtf8));
        }
        if !beneath::is_link(stat) {
            let known = beneath::is_file(stat) || beneath::is_directory(stat);
            return Ok(if known { Seen::Member(*stat) } else { Seen::LeftOut(Why::SpecialFile) });
        }
        Ok(match self.base.stat(path) {
            Ok(stat) if beneath::is_file(&stat) => Seen::Member(stat),
            Ok(stat) if beneath::is_directory(&stat) => Seen::LeftOut(Why::LinkToDirectory),
            // A kernel that cannot follow within bounds.
            Ok(stat) if beneath::is_link(&stat) => Seen::LeftOut(Why::LinkNotFollowed),
            Ok(_) => Seen::LeftOut(Why::SpecialFile),
            Err(Errno::EXDEV) => Seen::LeftOut(Why::LinkLeadsOut),
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => Seen::LeftOut(Why::LinkLeadsNowhere),
            Err(Errno::EACCES | Errno::EPERM) => Seen::LeftOut(Why::LinkDenied),
            Err(errno) => return Err(self.site.failure(errno, path)),
        })
    }
}

/// Also out of the base: only whether a pattern could have gone on there is asked, nothing is opened and nothing else is told.
fn leads_to_directory(directory: &Dir, raw: &CStr) -> bool {
    fstatat(directory, raw, AtFlags::empty()).is_ok_and(|stat| beneath::is_directory(&stat))
}

pub fn probe(site: &Site, path: &str, write: bool) -> Probe {
    let mut probe = Probe::default();
    if let Err(error) = fill(site, path, write, &mut probe) {
        probe.findings.push(error);
    }
    probe
}

fn fill(site: &Site, path: &str, write: bool, probe: &mut Probe) -> Result<(), ApiError> {
    let clean = checked(path)?;
    let base = site.base(path)?;
    probe.reachable = true;
    let room_in = |directory: &OwnedFd, probe: &mut Probe| {
        let vfs = fstatvfs(directory)?;
        probe.free_bytes = Some(vfs.blocks_available() * vfs.fragment_size());
        probe.file_system = Some(format!("dev:{}", nix::sys::stat::fstat(directory)?.st_dev));
        Ok(())
    };
    if !write {
        room_in(base.root(), probe).map_err(|errno| site.failure(errno, path))?;
        return base.stat(&clean).map(|_| ()).map_err(|errno| site.failure(errno, path));
    }
    probe.writable = Some(false);
    let directory = nearest(&base, &clean).map_err(|errno| site.parent_failure(errno, &clean))?;
    // Something else may be mounted below the base.
    room_in(&directory, probe).map_err(|errno| site.failure(errno, path))?;
    try_write(&directory).map_err(|errno| site.failure(errno, path))?;
    probe.writable = Some(true);
    Ok(())
}

/// Uploads make missing directories, so the nearest one that exists decides.
fn nearest(base: &Base, path: &str) -> Result<OwnedFd, Errno> {
    let mut path = path;
    loop {
        match base.directory_without_links(path, false) {
            Err(Errno::ENOENT) if !path.is_empty() => path = split(path).0,
            other => return other,
        }
    }
}

fn try_write(directory: &OwnedFd) -> Result<(), Errno> {
    let name = temporary_name(&format!("probe-{:016x}", rand::random::<u64>()));
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let file = openat(directory, name.as_str(), flags, Mode::from_bits_truncate(0o600))?;
    let written = nix::unistd::write(&file, b"x").map(|_| ());
    let removed = unlinkat(directory, name.as_str(), UnlinkatFlags::NoRemoveDir);
    written.and(removed)
}
