//! Files that a job opens to read, where the kernel tells this user nothing of them: each call waits until it was noted here, and then goes on as it is.
//! May know: seccomp's notices, /proc. One rule: no file is touched while the job runs, so a dead file system holds up nobody but who reads from it.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use libc::{c_int, pid_t};

use crate::notices::{self, OpenCall};
use crate::spec::Spec;
use crate::sys;
use crate::watch;

/// Of names that a link may lead below an origin: more are not looked at. Those that lie there are all noted.
const OTHERS_MAX: usize = 10_000;
/// No data lies there, unless an origin does.
const SYSTEMS: [&str; 8] = ["/usr", "/lib", "/lib64", "/bin", "/etc", "/proc", "/sys", "/dev"];

pub struct Opens {
    calls: Option<OwnedFd>,
    signals: OwnedFd,
    bases: Vec<PathBuf>,
    /// Those of SYSTEMS that no origin lies in.
    skipped: Vec<&'static str>,
    seen: HashSet<PathBuf>,
}

impl Opens {
    /// None: nothing is to be watched.
    pub fn new(bases: &[PathBuf]) -> Option<Opens> {
        let bases = watch::watchable(bases);
        if bases.is_empty() {
            return None;
        }
        let skipped = SYSTEMS.into_iter().filter(|place| !bases.iter().any(|base| base.starts_with(place))).collect();
        Some(Opens { calls: None, signals: sys::signal_descriptor().ok()?, bases, skipped, seen: HashSet::new() })
    }

    /// `calls`: where the job's calls wait from now on. None: this kernel has none of it.
    pub fn listening(self, calls: Option<OwnedFd>) -> Option<Opens> {
        calls.map(|calls| Opens { calls: Some(calls), ..self })
    }

    /// As `sys::wait_signal`, and meanwhile calls are answered.
    pub fn wait_signal(&mut self, limit: Option<Duration>) -> Option<(c_int, pid_t)> {
        let end = limit.map(|limit| Instant::now() + limit);
        while let Some(calls) = &self.calls {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            let ready = sys::poll_two(&self.signals, calls, left);
            if ready.second {
                if let Some(call) = notices::receive(calls) {
                    let path = path_of(&call);
                    if notices::go_on(calls, &call) {
                        self.note(path);
                    }
                }
            }
            if ready.first || ready.none {
                return sys::wait_signal(Some(Duration::ZERO));
            }
            if ready.second_is_over {
                self.calls = None;
            }
        }
        sys::wait_signal(end.map(|end| end.saturating_duration_since(Instant::now())))
    }

    fn note(&mut self, path: Option<PathBuf>) {
        let Some(path) = path.filter(|path| !self.skipped.iter().any(|place| path.starts_with(place))) else { return };
        if self.seen.len() < OTHERS_MAX || self.bases.iter().any(|base| path.starts_with(base)) {
            self.seen.insert(path);
        }
    }

    /// (names in order, how many in all) as `watch::Watch::opened`.
    pub fn opened(&self, spec: &Spec) -> (Vec<String>, u64) {
        let own_place = spec.sandbox().canonicalize().unwrap_or_else(|_| spec.sandbox().to_path_buf());
        let real = self.seen.iter().filter_map(|path| path.canonicalize().ok()).filter(|path| !path.starts_with(&own_place));
        let data =
            real.filter(|path| fs::metadata(path).is_ok_and(|found| watch::may_be_data(std::os::unix::fs::MetadataExt::mode(&found))));
        watch::told(data, &self.bases, spec)
    }
}

/// Absolute, links as they are. None: its process is gone, or may not be looked into.
fn path_of(call: &OpenCall) -> Option<PathBuf> {
    let name = sys::read_string(call.pid, call.name)?;
    let path = Path::new(OsStr::from_bytes(&name));
    if path.is_absolute() {
        return Some(path.to_path_buf());
    }
    let from = match call.directory {
        libc::AT_FDCWD => format!("/proc/{}/cwd", call.pid),
        fd => format!("/proc/{}/fd/{fd}", call.pid),
    };
    Some(fs::read_link(from).ok()?.join(path))
}
