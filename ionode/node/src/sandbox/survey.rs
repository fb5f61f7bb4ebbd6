//! What a job left in its sandbox: the declared outputs, and what it declared to nobody.
//!
//! The one rule: an output is regular files and directories and nothing else, each seen without following a link.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::stat::FileStat;
use stager_core::error::ApiError;
use stager_core::replica::ReplicaKind;

use super::folder::{kind_of, split, Folder, NodeKind, DEPTH_MAX};
use crate::failure::disk;

/// One regular file. `device`, `inode` and `mtime` (seconds, nanoseconds) say that what is opened later is what was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Relative to the output; empty for an output that is a file.
    pub path: String,
    pub size_bytes: u64,
    pub executable: bool,
    pub device: u64,
    pub inode: u64,
    pub links: u64,
    pub mtime: (i64, i64),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    pub files: Vec<Seen>,
    /// Directories below the output, parents before children.
    pub folders: Vec<String>,
    pub empty_folders: Vec<String>,
}

impl Found {
    pub fn size_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.size_bytes).sum()
    }
}

#[derive(Debug)]
pub enum Survey {
    Found(Found),
    Missing,
    /// Path of what may not be an output, and what it is.
    Escapes(String, &'static str),
}

fn seen(path: String, stat: &FileStat) -> Seen {
    Seen {
        path,
        size_bytes: stat.st_size as u64,
        executable: stat.st_mode & 0o111 != 0,
        device: stat.st_dev,
        inode: stat.st_ino,
        links: stat.st_nlink,
        mtime: (stat.st_mtime, stat.st_mtime_nsec),
    }
}

/// Surveys one declared output.
pub fn output(root: &Path, path: &str, kind: ReplicaKind) -> Result<Survey, ApiError> {
    survey(root, path, kind).or_else(|errno| match errno {
        Errno::ENOENT | Errno::ENOTDIR => Ok(Survey::Missing),
        Errno::ELOOP | Errno::EXDEV => Ok(Survey::Escapes(path.to_string(), "reached through a symlink or a mount")),
        errno => Err(disk("looking at", &root.join(path), &errno.into())),
    })
}

fn survey(root: &Path, path: &str, kind: ReplicaKind) -> Result<Survey, Errno> {
    let (parents, name) = split(path);
    let mut folder = Folder::open(root)?;
    for parent in parents {
        // openat with O_DIRECTORY calls a symlink "not a directory"; a person should read that it is a symlink.
        if kind_of(&folder.stat(OsStr::new(parent))?) == NodeKind::Symlink {
            return Ok(Survey::Escapes(path.to_string(), "reached through a symlink"));
        }
        folder = folder.child(OsStr::new(parent))?;
    }
    let stat = folder.stat(name)?;
    match (kind_of(&stat), kind) {
        (NodeKind::Symlink, _) => Ok(Survey::Escapes(path.to_string(), "a symlink")),
        (NodeKind::Special, _) => Ok(Survey::Escapes(path.to_string(), "a special file")),
        (NodeKind::File, ReplicaKind::File) => Ok(Survey::Found(Found { files: vec![seen(String::new(), &stat)], ..Found::default() })),
        (NodeKind::Directory, ReplicaKind::Directory) => tree(&folder.child(name)?, path),
        (NodeKind::File, ReplicaKind::Directory) => Ok(Survey::Escapes(path.to_string(), "a file where a directory was declared")),
        (NodeKind::Directory, ReplicaKind::File) => Ok(Survey::Escapes(path.to_string(), "a directory where a file was declared")),
    }
}

fn tree(top: &Folder, output_path: &str) -> Result<Survey, Errno> {
    let mut found = Found::default();
    let escape = descend(top, "", 1, &mut found)?;
    Ok(match escape {
        Some((path, what)) => Survey::Escapes(format!("{output_path}/{path}"), what),
        None => Survey::Found(found),
    })
}

fn descend(folder: &Folder, prefix: &str, depth: usize, found: &mut Found) -> Result<Option<(String, &'static str)>, Errno> {
    let names = folder.names()?;
    if names.is_empty() && !prefix.is_empty() {
        found.empty_folders.push(prefix.trim_end_matches('/').to_string());
    }
    for name in names {
        let Some(text) = name.to_str() else {
            return Ok(Some((format!("{prefix}{}", name.to_string_lossy()), "a name that is not UTF-8")));
        };
        let path = format!("{prefix}{text}");
        let stat = folder.stat(&name)?;
        match kind_of(&stat) {
            NodeKind::File => found.files.push(seen(path, &stat)),
            NodeKind::Directory if depth == DEPTH_MAX => return Ok(Some((path, "deeper than an output may be"))),
            NodeKind::Directory => {
                found.folders.push(path.clone());
                let escape = descend(&folder.child(&name)?, &format!("{path}/"), depth + 1, found)?;
                if escape.is_some() {
                    return Ok(escape);
                }
            }
            NodeKind::Symlink => return Ok(Some((path, "a symlink"))),
            NodeKind::Special => return Ok(Some((path, "a special file"))),
        }
    }
    Ok(None)
}

/// Everything that is not a directory and that nobody declared: the first `limit` paths, and how many there are.
pub fn undeclared(root: &Path, known: &HashSet<&str>, limit: usize) -> Result<(Vec<String>, u64), ApiError> {
    let mut rest = (Vec::new(), 0);
    let walked = Folder::open(root).and_then(|folder| unknown(&folder, "", 0, known, limit, &mut rest));
    match walked {
        // A call repeated after the sandbox was removed.
        Ok(()) | Err(Errno::ENOENT) => Ok(rest),
        Err(errno) => Err(disk("looking at", root, &errno.into())),
    }
}

fn unknown(
    folder: &Folder,
    prefix: &str,
    depth: usize,
    known: &HashSet<&str>,
    limit: usize,
    rest: &mut (Vec<String>, u64),
) -> Result<(), Errno> {
    for name in folder.names()? {
        let path = format!("{prefix}{}", name.to_string_lossy());
        if known.contains(path.as_str()) {
            continue;
        }
        match folder.stat(&name) {
            Ok(stat) if kind_of(&stat) == NodeKind::Directory && depth < DEPTH_MAX => match folder.child(&name) {
                Ok(child) => unknown(&child, &format!("{path}/"), depth + 1, known, limit, rest)?,
                // Counted as one: what cannot be entered cannot be listed, and is no reason to fail the job.
                Err(_) => note(path, limit, rest),
            },
            Ok(_) => note(path, limit, rest),
            Err(Errno::ENOENT) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

fn note(path: String, limit: usize, rest: &mut (Vec<String>, u64)) {
    rest.1 += 1;
    if rest.0.len() < limit {
        rest.0.push(path);
    }
}
