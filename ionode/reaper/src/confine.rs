//! Where a job may write: its sandbox, a /tmp of its own, devices and its logs. May know: mounts, Landlock and one spec.
//! One rule: what this host does not give is told, so that the report says what held; a job is never isolated in silence, or not at all in silence.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use crate::paths::{c_string, open_path};
use crate::spec::Spec;
use crate::{landlock, sys};

/// What programs take for scratch space, whatever TMPDIR says.
const TEMPORARY: [&str; 2] = ["/tmp", "/var/tmp"];
const SHARED_MEMORY: &str = "/dev/shm";
const DEVICES: [&str; 7] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx"];
/// Of accelerators, fast networks and file systems in user space; and the directory of terminals.
const DEVICE_NAMES: [&str; 9] = ["pts", "nvidia", "dri", "kfd", "infiniband", "hfi1", "knem", "xpmem", "fuse"];

/// How a job is held to its sandbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Confinement {
    /// The file systems of its namespace are read-only but for its own places.
    pub mounts: bool,
    pub landlock: bool,
}

impl Confinement {
    pub fn name(self) -> &'static str {
        match (self.mounts, self.landlock) {
            (true, true) => "mounts+landlock",
            (true, false) => "mounts",
            (false, true) => "landlock",
            (false, false) => "none",
        }
    }
}

/// In the job's own mount namespace, before its inputs are linked. False: this kernel has no call that makes a whole tree read-only, and nothing was changed.
pub fn by_mounts(spec: &Spec) -> Result<bool, String> {
    if sys::set_mount_attributes(c"/", true, sys::MOUNT_READ_ONLY, 0).is_err() {
        return Ok(false);
    }
    let sandbox = spec.sandbox();
    bind(sandbox, sandbox)?;
    let place = c_string(sandbox.as_os_str())?;
    sys::set_mount_attributes(&place, false, 0, sys::MOUNT_READ_ONLY).map_err(|error| failed(sandbox, error))?;
    // What a process may write of its own there its rights say; a user namespace of its own needs it.
    if sys::user_and_group().0 != 0 {
        let _ = sys::set_mount_attributes(c"/proc", false, 0, sys::MOUNT_READ_ONLY);
    }
    Ok(true)
}

/// Once its inputs are linked: these hide what was there, and a store may lie there.
pub fn own_places(spec: &Spec) -> Result<(), String> {
    let sandbox = spec.sandbox();
    if let Some(scratch) = spec.scratch_dir.as_deref() {
        for place in private(sandbox) {
            bind(scratch, &place)?;
        }
    }
    if has_own_memory(sandbox) {
        let flags = libc::MS_NOSUID | libc::MS_NODEV;
        sys::mount(c"tmpfs", c"/dev/shm", c"tmpfs", flags).map_err(|error| failed(Path::new(SHARED_MEMORY), error))?;
    }
    Ok(())
}

/// None: this kernel has no Landlock that would do. `mounts`: places for scratch are the job's own; else they are everybody's, and written to only where nothing
/// of stager's lies below them.
pub fn by_landlock(spec: &Spec, mounts: bool) -> Result<Option<OwnedFd>, String> {
    let Some(rules) = landlock::Rules::new() else { return Ok(None) };
    let sandbox = spec.sandbox();
    rules.allow(sandbox)?;
    for place in private(sandbox) {
        let is_shared = !mounts || spec.scratch_dir.is_none();
        if !(is_shared && spec.origins.iter().any(|base| base.starts_with(&place))) {
            rules.allow(&place)?;
        }
    }
    if has_own_memory(sandbox) {
        rules.allow(Path::new(SHARED_MEMORY))?;
    }
    for place in devices().iter().chain([&spec.stdout, &spec.stderr]) {
        rules.allow_writes(place)?;
    }
    Ok(Some(rules.into_fd()))
}

/// Those that can be the job's own: not where they would hide its sandbox.
fn private(sandbox: &Path) -> Vec<PathBuf> {
    TEMPORARY.iter().map(PathBuf::from).filter(|place| is_directory(place) && !lies_in(sandbox, place)).collect()
}

fn has_own_memory(sandbox: &Path) -> bool {
    let place = Path::new(SHARED_MEMORY);
    is_directory(place) && !lies_in(sandbox, place)
}

/// By its name, or by where a link in its name leads.
fn lies_in(sandbox: &Path, place: &Path) -> bool {
    sandbox.starts_with(place) || sandbox.canonicalize().is_ok_and(|found| found.starts_with(place))
}

fn devices() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = DEVICES.iter().map(PathBuf::from).collect();
    for entry in fs::read_dir("/dev").into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(|name| DEVICE_NAMES.iter().any(|known| name.starts_with(known))) {
            found.push(entry.path());
        }
    }
    found
}

/// No symlink: /var/tmp is one in places.
fn is_directory(place: &Path) -> bool {
    place.symlink_metadata().is_ok_and(|found| found.is_dir())
}

fn bind(source: &Path, target: &Path) -> Result<(), String> {
    let (from, to) = (open_path(source)?, open_path(target)?);
    sys::mount(&crate::paths::by_fd(&from), &crate::paths::by_fd(&to), c"", libc::MS_BIND).map_err(|error| failed(target, error))
}

fn failed(place: &Path, error: io::Error) -> String {
    format!("{} cannot be made the job's own: {error}", place.display())
}
