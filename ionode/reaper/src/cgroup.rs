//! The control group of one attempt, where this host has delegated some: the kernel itself holds a job to its memory, and says that it did.
//! May know: files of cgroup v2 and one spec. One rule: a group is locked by the reaper that made it, so that one which is not is what a dead reaper left.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use libc::pid_t;

use crate::paths::c_string;
use crate::report::{Outcome, Report};
use crate::spec::Spec;
use crate::sys;

/// Names the group in which attempts get theirs.
const VARIABLE: &str = "STAGER_CGROUP";
const PLACES: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
/// Of attempts: a pid and an attempt's id follow.
const PREFIX: &str = "stager-";
/// For processes that were in the delegated group itself: a group whose children have limits holds none.
const BESIDE: &str = "stager";
/// What systemd writes on a group that it gives away; only root reads the second.
const DELEGATED: [&std::ffi::CStr; 2] = [c"user.delegate", c"trusted.delegate"];
const ROUNDS_MAX: u32 = 10;
const NAME_MAX: usize = 128;
/// A killed process may take that long to be gone.
const REMOVE_ROUNDS: u32 = 200;
const REMOVE_PAUSE: Duration = Duration::from_millis(5);

/// What `memory_by` of a report says.
pub const BY_GROUP: &str = "cgroup";
pub const BY_MEASURE: &str = "measured";
const OUT_OF_MEMORY: &str = "the job was ended by the kernel: the machine, or the control group that stager runs in, had no memory left";

pub struct Group {
    path: PathBuf,
    /// Holds the lock, as does the copy of a forked init.
    dir: OwnedFd,
    /// The kernel holds it to the memory that its spec allows.
    pub limits: bool,
}

impl Group {
    /// For a job with a limit. None: nothing is delegated here, or no group could be made.
    pub fn make(spec: &Spec) -> Option<Group> {
        let limit = spec.memory_limit_bytes?;
        let (base, inside) = base()?;
        sweep(&base);
        let memory = has_memory(&base, inside);
        (0..ROUNDS_MAX).find_map(|_| Group::make_in(&base, &spec.attempt_id, memory.then_some(limit)))
    }

    /// None also where somebody took the new group for one that was left.
    fn make_in(base: &Path, attempt_id: &str, limit: Option<u64>) -> Option<Group> {
        let id: String =
            attempt_id.chars().filter(|letter| letter.is_ascii_alphanumeric() || "._-".contains(*letter)).take(NAME_MAX).collect();
        let path = base.join(format!("{PREFIX}{}-{id}", std::process::id()));
        fs::create_dir(&path).ok()?;
        let group = locked(&path).map(|dir| {
            let limits = limit.is_some_and(|bytes| put(&path.join("memory.max"), &bytes.to_string()).is_ok());
            if limits {
                // What is swapped out is held, too. Older kernels have no such files.
                let _ = put(&path.join("memory.swap.max"), "0");
                let _ = put(&path.join("memory.oom.group"), "1");
            }
            Group { path: path.clone(), dir, limits }
        });
        if group.is_none() || !path.join("cgroup.procs").exists() {
            remove(&path);
            return None;
        }
        group
    }

    /// As fork, and the child begins in the group. Not every kernel and container allows it.
    pub fn fork(&self) -> io::Result<pid_t> {
        sys::fork_into(&self.dir)
    }

    /// Takes in a process that was begun elsewhere.
    pub fn take(&self, pid: pid_t) -> io::Result<()> {
        self.put("cgroup.procs", &pid.to_string())
    }

    /// All in it at once, those that are just born included.
    pub fn kill(&self) {
        let _ = self.put("cgroup.kill", "1");
    }

    /// By descriptor: it is also called where the path leads elsewhere.
    fn put(&self, name: &str, text: &str) -> io::Result<()> {
        let fd = sys::open_at(self.dir.as_raw_fd(), &std::ffi::CString::new(name)?, libc::O_WRONLY, 0)?;
        File::from(fd).write_all(text.as_bytes())
    }

    /// Puts in what the kernel knows better: why the job was killed, and what it took of processors.
    pub fn judge(&self, report: &mut Report) {
        if report.memory_by.as_deref() != Some(BY_GROUP) {
            return;
        }
        if report.outcome == Outcome::Signalled
            && report.signal == Some(libc::SIGKILL)
            && self.number("memory.events", "oom_kill") > Some(0)
        {
            // Of itself alone: what was full may be a group above it, or the machine.
            let own = self.number("memory.events.local", "oom").or_else(|| self.number("memory.events", "oom"));
            if own > Some(0) {
                report.outcome = Outcome::Memory;
                report.message = Some("the job used more memory than is declared and was ended".into());
                report.memory_limit_bytes = self.value("memory.max");
                report.memory_used_bytes = self.value("memory.peak").or(report.memory_limit_bytes);
            } else {
                report.message = Some(OUT_OF_MEMORY.into());
            }
        }
        if let (Some(user), Some(system)) = (self.number("cpu.stat", "user_usec"), self.number("cpu.stat", "system_usec")) {
            (report.cpu_user_s, report.cpu_system_s) = (user as f64 / 1e6, system as f64 / 1e6);
        }
    }

    fn number(&self, file: &str, key: &str) -> Option<u64> {
        let text = fs::read_to_string(self.path.join(file)).ok()?;
        text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
    }

    fn value(&self, file: &str) -> Option<u64> {
        fs::read_to_string(self.path.join(file)).ok()?.trim().parse().ok()
    }

    /// With all that is still in it.
    pub fn remove(self) {
        remove(&self.path);
    }
}

/// Whether the kernel would hold a job to its memory here, found by making a group.
pub fn is_there() -> bool {
    let Some((base, inside)) = base() else { return false };
    if !has_memory(&base, inside) {
        return false;
    }
    let made = Group::make_in(&base, "probe", Some(1 << 30));
    let limits = made.as_ref().is_some_and(|group| group.limits);
    made.into_iter().for_each(Group::remove);
    limits
}

/// (the group that was given to us, whether this process is in it itself)
fn base() -> Option<(PathBuf, bool)> {
    let own = own_group();
    let named = std::env::var_os(VARIABLE).filter(|named| !named.is_empty());
    match (named, own) {
        (Some(named), own) => {
            let named = PathBuf::from(named).canonicalize().ok().filter(|named| is_group(named))?;
            let inside = own.is_some_and(|own| own == named);
            Some((named, inside))
        }
        (None, Some(own)) => {
            let above = own.parent()?;
            // That of a user's own systemd is its own, and no unit's.
            if is_delegated(above) && !last_name(above).starts_with("user@") {
                return Some((above.to_path_buf(), false));
            }
            // A service whose own group has limits for its children could not be started again while one of its jobs lives.
            (last_name(&own).ends_with(".scope") && is_delegated(&own)).then_some((own, true))
        }
        (None, None) => None,
    }
}

fn own_group() -> Option<PathBuf> {
    let place = PLACES.iter().map(Path::new).find(|place| is_group(place))?;
    let text = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    // Above the top of a namespace of control groups.
    (!own.split('/').any(|part| part == "..")).then(|| if own.is_empty() { place.to_path_buf() } else { place.join(own) })
}

fn last_name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or("")
}

fn is_group(path: &Path) -> bool {
    c_string(path.as_os_str()).is_ok_and(|path| sys::is_cgroup2(&path))
}

fn is_delegated(path: &Path) -> bool {
    c_string(path.as_os_str()).is_ok_and(|path| DELEGATED.iter().any(|name| sys::attribute_is(&path, name, b"1")))
}

/// Whether children of this group can be limited. `inside`: this process stands in the way, and may be moved.
fn has_memory(base: &Path, inside: bool) -> bool {
    let names_it = |file: &str| fs::read_to_string(base.join(file)).is_ok_and(|text| text.split_whitespace().any(|name| name == "memory"));
    if names_it("cgroup.subtree_control") {
        return true;
    }
    // More than once: others may be born while those that were listed are moved.
    names_it("cgroup.controllers")
        && (0..ROUNDS_MAX).any(|_| match put(&base.join("cgroup.subtree_control"), "+memory") {
            Ok(()) => true,
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && inside => {
                move_beside(base);
                false
            }
            Err(_) => false,
        })
}

fn move_beside(base: &Path) {
    let beside = base.join(BESIDE);
    let _ = fs::create_dir(&beside);
    for pid in fs::read_to_string(base.join("cgroup.procs")).unwrap_or_default().lines() {
        let _ = put(&beside.join("cgroup.procs"), pid);
    }
}

/// Removes what reapers left that were killed, before this one makes its own.
fn sweep(base: &Path) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let of = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split_once('-')?.0.parse().ok());
        if of.is_some_and(|pid| pid == std::process::id() as pid_t || !sys::is_there(pid)) {
            // Another pid namespace may have made it: its lock says.
            let path = entry.path();
            if let Some(lock) = locked(&path) {
                remove(&path);
                drop(lock);
            }
        }
    }
}

fn locked(path: &Path) -> Option<OwnedFd> {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW;
    let dir = sys::open_at(libc::AT_FDCWD, &c_string(path.as_os_str()).ok()?, flags, 0).ok()?;
    sys::lock_at_once(&dir).then_some(dir)
}

/// Ends what is in it, and removes it with the groups that a job made in it.
fn remove(path: &Path) {
    for round in 0..REMOVE_ROUNDS {
        if remove_tree(path).is_ok() || !path.exists() {
            return;
        }
        let _ = put(&path.join("cgroup.kill"), "1");
        if round > 0 {
            std::thread::sleep(REMOVE_PAUSE);
        }
    }
}

fn remove_tree(path: &Path) -> io::Result<()> {
    fs::remove_dir(path).or_else(|_| {
        for entry in fs::read_dir(path)?.flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                remove_tree(&entry.path())?;
            }
        }
        fs::remove_dir(path)
    })
}

fn put(path: &Path, text: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(path)?.write_all(text.as_bytes())
}
