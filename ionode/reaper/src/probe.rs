//! Whether inputs can be linked here, found by doing it. May know: isolate and links. One rule: it says true only after a write to a linked file was refused.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::confine::Confinement;
use crate::isolate::Mode;
use crate::spec::Link;
use crate::{cgroup, landlock, links, sys};

/// What the child of a trial says.
const ALL: &str = "all";
const LINKS: &str = "links";

/// JSON: can_link, why, pid_namespace (of a job with linked inputs), user_namespace, isolation (what would hold a job to its sandbox), memory (who would hold it to its memory).
pub fn probe() -> serde_json::Value {
    let mut why_not = Vec::new();
    let directory = match scratch() {
        Ok(directory) => directory,
        Err(error) => return answer(None, false, format!("no directory for a trial can be made: {error}")),
    };
    let (mut found, mut mounts) = (None, false);
    for mode in Mode::worth_trying(true) {
        match trial(mode, &directory) {
            Ok(read_only) => {
                (found, mounts) = (Some(mode), read_only);
                break;
            }
            Err(why) => why_not.push(why),
        }
    }
    let _ = fs::remove_dir_all(&directory);
    why_not.dedup();
    let why =
        if found.is_some() { "a read-only bind mount was made and a write through it was refused".into() } else { why_not.join("; ") };
    answer(found, mounts, why)
}

fn answer(mode: Option<Mode>, mounts: bool, why: String) -> serde_json::Value {
    let pid = mode.is_some_and(|mode| mode.pid);
    let user = mode.is_some_and(|mode| mode.user);
    let landlock = landlock::is_there() && (!mounts || sys::user_and_group().0 == 0);
    let isolation = Confinement { mounts, landlock }.name();
    let memory = if cgroup::is_there() { cgroup::BY_GROUP } else { cgroup::BY_MEASURE };
    serde_json::json!({
        "can_link": mode.is_some(), "why": why, "pid_namespace": pid, "user_namespace": user, "isolation": isolation, "memory": memory
    })
}

fn scratch() -> std::io::Result<PathBuf> {
    let directory = std::env::temp_dir().canonicalize()?.join(format!("stager-probe-{}", std::process::id()));
    fs::DirBuilder::new().mode(0o700).create(&directory)?;
    for name in ["source", "target"] {
        fs::write(directory.join(name), "")?;
    }
    Ok(directory)
}

/// Whether all can be made read-only, too.
fn trial(mode: Mode, directory: &Path) -> Result<bool, String> {
    let (uid, gid) = sys::user_and_group();
    let (from_child, to_parent) = sys::pipe().map_err(|error| error.to_string())?;
    let pid = mode.fork().map_err(|error| format!("clone: {error}"))?;
    if pid == 0 {
        let tried = mode.settle(uid, gid).and_then(|()| refuses_writes(directory));
        let read_only = || if sys::set_mount_attributes(c"/", true, sys::MOUNT_READ_ONLY, 0).is_ok() { ALL } else { LINKS };
        let said = tried.map_or_else(|why| why, |()| read_only().into());
        let _ = File::from(to_parent).write_all(said.as_bytes());
        sys::exit_now(0);
    }
    drop(to_parent);
    let mut said = String::new();
    let read = File::from(from_child).read_to_string(&mut said);
    sys::reap(pid, true);
    match (read, said.as_str()) {
        (Ok(_), ALL) => Ok(true),
        (Ok(_), LINKS) => Ok(false),
        (Ok(_), "") | (Err(_), _) => Err("the trial process died".into()),
        _ => Err(said),
    }
}

fn refuses_writes(directory: &Path) -> Result<(), String> {
    let link = Link { source: directory.join("source"), target: directory.join("target"), directory: false };
    links::bind_all(directory, std::slice::from_ref(&link))?;
    match OpenOptions::new().write(true).open(&link.target) {
        Err(error) if error.raw_os_error() == Some(libc::EROFS) => Ok(()),
        Err(error) => Err(format!("a write through a read-only mount gave {error}")),
        Ok(_) => Err("a write through a read-only mount was allowed".into()),
    }
}
