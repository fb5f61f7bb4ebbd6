//! The kernel's table of mounts: what is mounted where, and how it is taken away. Knows /proc and umount.
//!
//! The one rule: nothing here touches what is mounted; the table is read, a dead mount is never entered.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::mount::{umount2, MntFlags};

/// Mounted one over the other there may be several.
const LAYERS_MAX: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountEntry {
    pub point: PathBuf,
    pub kind: String,
    /// Names the connection of a FUSE mount.
    pub device_minor: u32,
}

pub fn entries_below(root: &Path) -> Vec<MountEntry> {
    let text = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    text.lines().filter_map(parse).filter(|entry| entry.point.starts_with(root)).collect()
}

pub fn entry_at(point: &Path) -> Option<MountEntry> {
    entries_below(point).into_iter().find(|entry| entry.point == point)
}

/// `36 35 0:47 / /mnt/a\040b rw,nosuid - fuse.sshfs host: rw`
fn parse(line: &str) -> Option<MountEntry> {
    let (first, second) = line.split_once(" - ")?;
    let fields: Vec<&str> = first.split(' ').collect();
    let device_minor = fields.get(2)?.split_once(':')?.1.parse().ok()?;
    Some(MountEntry { point: unescaped(fields.get(4)?), kind: second.split(' ').next()?.to_owned(), device_minor })
}

/// Blanks and backslashes stand there in octal.
fn unescaped(text: &str) -> PathBuf {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((first, tail)) = rest.split_first() {
        let octal = tail.get(..3).filter(|_| *first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        let code = octal.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &tail[3..] } else { tail };
    }
    PathBuf::from(OsString::from_vec(bytes))
}

/// Whoever has files open there keeps them until they are closed; nobody comes in any more.
pub fn detach(point: &Path) -> bool {
    for _ in 0..LAYERS_MAX {
        if entry_at(point).is_none() {
            return true;
        }
        if umount2(point, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW).is_err() && !by_fusermount(point) {
            return entry_at(point).is_none();
        }
    }
    false
}

/// For who is not root and mounted it the same way.
fn by_fusermount(point: &Path) -> bool {
    let mut command = Command::new("fusermount3");
    command.arg("-uz").arg("--").arg(point).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

pub fn sweep(root: &Path) {
    for entry in entries_below(root).iter().rev() {
        let gone = detach(&entry.point);
        tracing::warn!(point = %entry.point.display(), gone, "a mount was left by a process that was killed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_table_are_read() {
        let entry = parse("36 35 0:47 / /mnt/a\\040b\\134c rw,nosuid shared:1 - fuse.sshfs lab:/d ro").unwrap();
        assert_eq!((entry.point, entry.kind.as_str(), entry.device_minor), (PathBuf::from("/mnt/a b\\c"), "fuse.sshfs", 47));
        assert!(parse("nonsense").is_none() && !entries_below(Path::new("/")).is_empty());
    }
}
