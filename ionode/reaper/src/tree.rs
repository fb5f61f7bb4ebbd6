//! The rest of a job's tree: who is in it, and how a signal reaches all of them. May know: /proc and pids. One rule: a signal goes to a process only after it was seen to be a descendant.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::Read;

use libc::{c_int, pid_t};

use crate::sys;

/// How the tree is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// This process is the init of the job's pid namespace: everything else in it is the job's.
    Namespace,
    /// This process is the subreaper: its descendants are the job's.
    Descendants,
}

/// Bytes and characters, as the kernel counted them for a process and the children it waited for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Io {
    pub chars_read: u64,
    pub chars_written: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
}

/// How often the listing is repeated in search of those that were born, or lost their parent, during the last one.
const ROUNDS_MAX: u32 = 20;

impl Reach {
    /// All that live of the job's tree.
    pub fn members(self) -> Vec<pid_t> {
        match self {
            Reach::Namespace => pids().filter(|pid| *pid != std::process::id() as pid_t).collect(),
            Reach::Descendants => descendants().into_iter().map(|(pid, _)| pid).collect(),
        }
    }

    pub fn signal(self, signal: c_int) {
        match self {
            Reach::Namespace => sys::kill(-1, signal),
            Reach::Descendants => signal_descendants(signal),
        }
    }

    /// A stopped process could not act on TERM otherwise.
    pub fn terminate(self) {
        self.signal(libc::SIGTERM);
        self.signal(libc::SIGCONT);
    }
}

fn signal_descendants(signal: c_int) {
    let mut reached = HashSet::new();
    for _ in 0..ROUNDS_MAX {
        let fresh: Vec<_> = descendants().into_iter().filter(|(pid, _)| !reached.contains(pid)).collect();
        if fresh.is_empty() {
            return;
        }
        reached.extend(fresh.into_iter().filter(|(pid, parent)| signal_one(*pid, *parent, signal)).map(|(pid, _)| pid));
    }
}

/// False if it is gone or has another parent now. Between the listing and the signal a pid may have been reaped and given away: it is held by descriptor and looked at again.
fn signal_one(pid: pid_t, parent: pid_t, signal: c_int) -> bool {
    match sys::pidfd(pid) {
        Ok(fd) if parent_of(pid) == Some(parent) => sys::kill_by_pidfd(&fd, signal),
        Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => sys::kill(pid, signal),
        _ => return false,
    }
    true
}

/// All of them with their parents.
fn descendants() -> Vec<(pid_t, pid_t)> {
    let mut children: HashMap<pid_t, Vec<pid_t>> = HashMap::new();
    for pid in pids() {
        if let Some(parent) = parent_of(pid) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = Vec::new();
    let mut above = vec![std::process::id() as pid_t];
    while let Some(parent) = above.pop() {
        for pid in children.remove(&parent).unwrap_or_default() {
            found.push((pid, parent));
            above.push(pid);
        }
    }
    found
}

fn pids() -> impl Iterator<Item = pid_t> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str().and_then(|name| name.parse().ok()))
}

fn parent_of(pid: pid_t) -> Option<pid_t> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may itself hold spaces and parentheses.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// The counters of a process, to be read when it has ended but is not reaped yet. They must be opened while it lives: a zombie's file belongs to root.
pub fn open_io(pid: pid_t) -> Option<File> {
    File::open(format!("/proc/{pid}/io")).ok()
}

/// None where the kernel does not tell.
pub fn read_io(mut counters: File) -> Option<Io> {
    let mut text = String::new();
    counters.read_to_string(&mut text).ok()?;
    let mut io = Io::default();
    for line in text.lines() {
        let (key, value) = line.split_once(": ")?;
        let value: u64 = value.parse().ok()?;
        match key {
            "rchar" => io.chars_read = value,
            "wchar" => io.chars_written = value,
            "read_bytes" => io.read_bytes = value,
            "write_bytes" => io.written_bytes = value,
            _ => {}
        }
    }
    Some(io)
}
