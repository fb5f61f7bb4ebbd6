//! A job's own root directory: an unpacked image, read-only, with the job's sandbox and scratch and the kernel's file systems in it. May know: mounts and one spec.
//! One rule: a mount point is reached from the image's top one name at a time, never through a symlink, so that no image leads a mount elsewhere.

use std::os::fd::AsRawFd;
use std::path::Path;

use crate::links::{kept_flags, open_inside};
use crate::paths::{by_fd, c_string, open_path};
use crate::spec::{Container, Spec};
use crate::sys;

/// Of the kernel, as the job would find them without an image.
const KERNELS: [&str; 3] = ["dev", "proc", "sys"];
/// The job's scratch by another name.
const SCRATCH: [&str; 2] = ["tmp", "var/tmp"];
/// How this host names others: the network is the host's, too.
const HOSTS: [&str; 2] = ["etc/resolv.conf", "etc/hosts"];

/// In the job's own mount namespace, after its inputs are linked. The host's files are out of reach from then on.
pub fn enter(spec: &Spec, container: &Container) -> Result<(), String> {
    let root = container.root_dir.as_path();
    read_only(root)?;
    for name in KERNELS {
        bind(&Path::new("/").join(name), root, Path::new(name), libc::MS_REC)?;
    }
    let at = container.sandbox_at.strip_prefix("/").map_err(|_| "the place of the sandbox is relative".to_string())?;
    bind(spec.sandbox(), root, at, libc::MS_REC)?;
    for name in SCRATCH {
        if let Some(scratch) = spec.scratch_dir.as_deref() {
            bind(scratch, root, Path::new(name), 0)?;
        }
    }
    for name in HOSTS {
        let file = Path::new("/").join(name);
        if file.is_file() {
            bind(&file, root, Path::new(name), 0)?;
        }
    }
    become_root(root).map_err(|error| format!("{} cannot become the root directory: {error}", root.display()))
}

/// On itself: a root directory is a mount of its own.
fn read_only(root: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("the image {} cannot be mounted: {error}", root.display());
    let from = open_path(root)?;
    sys::mount(&by_fd(&from), &c_string(root.as_os_str())?, c"", libc::MS_BIND).map_err(failed)?;
    let mounted = open_path(root)?;
    let flags = libc::MS_REMOUNT | libc::MS_BIND | libc::MS_RDONLY | libc::MS_NOSUID | libc::MS_NODEV | kept_flags(&mounted)?;
    sys::mount(c"none", &by_fd(&mounted), c"", flags).map_err(failed)
}

fn bind(source: &Path, root: &Path, name: &Path, flags: libc::c_ulong) -> Result<(), String> {
    let failed = |what: String| format!("{} cannot be mounted in the image: {what}", source.display());
    let (from, to) = (open_path(source)?, open_inside(root, name).map_err(failed)?);
    sys::mount(&by_fd(&from), &by_fd(&to), c"", libc::MS_BIND | flags).map_err(|error| failed(error.to_string()))
}

fn become_root(root: &Path) -> std::io::Result<()> {
    let open = |path: &Path| {
        sys::open_at(libc::AT_FDCWD, &std::ffi::CString::new(path.as_os_str().as_encoded_bytes())?, libc::O_PATH | libc::O_DIRECTORY, 0)
    };
    sys::change_directory(open(root)?.as_raw_fd())?;
    sys::pivot_root(c".", c".")?;
    // What was there before lies on top now.
    sys::unmount(c".")?;
    sys::change_directory(open(Path::new("/"))?.as_raw_fd())
}
