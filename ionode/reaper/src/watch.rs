//! Files below origins that a job opened although nobody gave them to it. May know: fanotify and paths. One rule: it tells, and refuses nothing.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use crate::paths::c_string;
use crate::spec::Spec;
use crate::sys;

/// More are counted.
const TOLD_MAX: usize = 50;
/// The files of a Python environment, wherever it lies.
const LIBRARIES: &str = "site-packages";

pub struct Watch {
    events: OwnedFd,
    bases: Vec<PathBuf>,
}

/// In the job's own mount namespace, where each base becomes a mount that only the job uses. None: this user may not watch, or nothing is to be watched.
pub fn begin(bases: &[PathBuf]) -> Option<Watch> {
    let bases = watchable(bases);
    if bases.is_empty() {
        return None;
    }
    let events = sys::watch_opens().ok()?;
    let mut watched = Vec::new();
    for base in bases {
        let Ok(place) = c_string(base.as_os_str()) else { continue };
        let own = sys::mount(&place, &place, c"", libc::MS_BIND | libc::MS_REC);
        if own.and_then(|()| sys::watch_mount(&events, &place)).is_ok() {
            watched.push(base);
        }
    }
    (!watched.is_empty()).then_some(Watch { events, bases: watched })
}

impl Watch {
    /// (names in order, how many in all)
    pub fn opened(&self, spec: &Spec) -> (Vec<String>, u64) {
        let mut found = BTreeSet::new();
        let mut buffer = vec![0u64; 512];
        loop {
            let events = sys::read_events(&self.events, &mut buffer);
            if events.is_empty() {
                break;
            }
            for fd in events {
                // SAFETY: the kernel opened it for this process with the event.
                let file = unsafe { OwnedFd::from_raw_fd(fd) };
                let Ok(path) = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())) else { continue };
                if may_be_data(sys::mode_of(&file).unwrap_or(0)) {
                    found.insert(path);
                }
            }
        }
        told(found.into_iter(), &self.bases, spec)
    }
}

/// Directories, but for the top of all. One that lies in another comes after it: a mount would hide it otherwise.
pub fn watchable(bases: &[PathBuf]) -> Vec<PathBuf> {
    let found: BTreeSet<&PathBuf> = bases.iter().filter(|base| base.parent().is_some() && base.is_dir()).collect();
    found.into_iter().cloned().collect()
}

/// Programs are none.
pub fn may_be_data(mode: libc::mode_t) -> bool {
    mode & libc::S_IFMT == libc::S_IFREG && mode & 0o111 == 0
}

/// (names in order, how many in all) of those that lie below `bases`, but for hidden files and what comes with a program on the job's PATH.
pub fn told(paths: impl Iterator<Item = PathBuf>, bases: &[PathBuf], spec: &Spec) -> (Vec<String>, u64) {
    let own: Vec<PathBuf> = spec.env.get("PATH").map_or_else(Vec::new, |path| path.split(':').filter_map(home_of).collect());
    let told = paths.filter(|path| is_plain(path, bases) && !own.iter().any(|home| path.starts_with(home)));
    let found: BTreeSet<String> = told.map(|path| path.to_string_lossy().into_owned()).collect();
    let count = found.len() as u64;
    (found.into_iter().take(TOLD_MAX).collect(), count)
}

fn is_plain(path: &Path, bases: &[PathBuf]) -> bool {
    bases.iter().filter_map(|base| path.strip_prefix(base).ok()).any(|below| {
        below.components().all(|part| {
            let name = part.as_os_str().to_string_lossy();
            !name.starts_with('.') && name != LIBRARIES
        })
    })
}

/// Of `/opt/tool/bin` it is `/opt/tool`.
fn home_of(entry: &str) -> Option<PathBuf> {
    let entry = Path::new(entry);
    (entry.is_absolute() && entry.ends_with("bin"))
        .then(|| entry.parent().map(Path::to_path_buf))
        .flatten()
        .filter(|home| home.parent().is_some())
}
