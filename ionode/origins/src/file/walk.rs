//! Listing and probing a directory tree of this host. Runs on blocking threads.
//!
//! The one rule: the walk is in path order, so that a limit ends it early and the answer is the same whatever the directory's own order.

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
use crate::{Entry, EntryKind, Probe};

struct Walk<'a> {
    site: &'a Site,
    base: &'a Base,
    recursive: bool,
    limit: usize,
    found: Vec<Entry>,
}

struct Member {
    name: String,
    stat: FileStat,
    descend: bool,
}

/// Names that are no UTF-8 cannot be said in the API and are left out, as are sockets, devices and links to directories (they could loop).
pub fn list(site: &Site, prefix: &str, recursive: bool, limit: usize) -> Result<(Vec<Entry>, bool), ApiError> {
    let clean = checked(prefix)?;
    let base = site.base(prefix)?;
    let start = site.entry(&clean, &base.stat(&clean).map_err(|errno| site.failure(errno, prefix))?)?;
    if start.kind == EntryKind::File {
        return Ok((vec![start], false));
    }
    let mut walk = Walk { site, base: &base, recursive, limit, found: Vec::new() };
    walk.directory(&clean)?;
    let truncated = walk.found.len() > limit;
    walk.found.truncate(limit);
    Ok((walk.found, truncated))
}

impl Walk<'_> {
    fn directory(&mut self, path: &str) -> Result<(), ApiError> {
        for member in self.members(path)? {
            if self.found.len() > self.limit {
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

    fn members(&self, path: &str) -> Result<Vec<Member>, ApiError> {
        let handle = self.base.open_beneath(path, OFlag::O_RDONLY | OFlag::O_DIRECTORY).map_err(|errno| self.site.failure(errno, path))?;
        let mut directory = Dir::from_fd(handle).map_err(|errno| self.site.failure(errno, path))?;
        let mut names = Vec::new();
        for item in directory.iter() {
            let item = item.map_err(|errno| self.site.failure(errno, path))?;
            names.extend(
                item.file_name().to_str().ok().filter(|name| !matches!(*name, "." | "..") && !is_temporary(name)).map(str::to_owned),
            );
        }
        let mut members: Vec<Member> = names.into_iter().filter_map(|name| self.member(&directory, path, name)).collect();
        // With the slash that follows a directory in its members' paths, or "a.txt" and "a/b" would come out of order.
        members.sort_by_cached_key(|member| if member.descend { format!("{}/", member.name) } else { member.name.clone() });
        Ok(members)
    }

    /// What vanishes between readdir and stat was not there.
    fn member(&self, directory: &Dir, parent: &str, name: String) -> Option<Member> {
        let mut stat = fstatat(directory, name.as_str(), AtFlags::AT_SYMLINK_NOFOLLOW).ok()?;
        if beneath::is_link(&stat) {
            stat = self.base.stat(&join(parent, &name)).ok().filter(beneath::is_file)?;
        }
        let descend = self.recursive && beneath::is_directory(&stat);
        Some(Member { name, stat, descend })
    }
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
    let vfs = fstatvfs(base.root()).map_err(|errno| site.failure(errno, path))?;
    probe.free_bytes = Some(vfs.blocks_available() * vfs.fragment_size());
    if !write {
        return base.stat(&clean).map(|_| ()).map_err(|errno| site.failure(errno, path));
    }
    probe.writable = Some(false);
    let directory = nearest(&base, &clean).map_err(|errno| site.failure(errno, path))?;
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
