//! Namespaces for one job. May know: clone, mount and id maps. One rule: the reaper itself never leaves the host's namespaces; only the small child it clones does.

use std::fs;
use std::io;

use libc::{c_int, pid_t};

use crate::sys;

/// One way to isolate a job, from the strongest on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    /// A user namespace, where the host gives no mounts to this user otherwise. The job keeps its own uid and gid, but setuid programs lose their effect in it.
    pub user: bool,
    /// A pid namespace: its end is the end of every process in it, whatever happens to the reaper.
    pub pid: bool,
}

impl Mode {
    pub fn flags(self) -> c_int {
        libc::CLONE_NEWNS | if self.user { libc::CLONE_NEWUSER } else { 0 } | if self.pid { libc::CLONE_NEWPID } else { 0 }
    }

    /// What is tried, in order. Without links an ordinary user's job gets no user namespace: it would lose sudo and its like for nothing that it asked for.
    pub fn worth_trying(with_links: bool) -> Vec<Mode> {
        let mut modes = Vec::new();
        if sys::user_and_group().0 == 0 {
            modes.push(Mode { user: false, pid: true });
            if with_links {
                modes.push(Mode { user: false, pid: false });
            }
        }
        if with_links {
            modes.extend([Mode { user: true, pid: true }, Mode { user: true, pid: false }]);
        }
        modes
    }

    pub fn fork(self) -> io::Result<pid_t> {
        sys::fork_with(self.flags())
    }

    /// In the child: ids, private propagation, a /proc that knows the new pids.
    pub fn settle(self, uid: libc::uid_t, gid: libc::gid_t) -> Result<(), String> {
        if self.user {
            let write = |name: &str, text: String| {
                fs::write(format!("/proc/self/{name}"), text).map_err(|error| format!("{name} cannot be set: {error}"))
            };
            write("setgroups", "deny".into())?;
            write("uid_map", format!("{uid} {uid} 1"))?;
            write("gid_map", format!("{gid} {gid} 1"))?;
        }
        sys::mount(c"none", c"/", c"", libc::MS_REC | libc::MS_PRIVATE)
            .map_err(|error| format!("mounts cannot be made private: {error}"))?;
        if self.pid {
            let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
            sys::mount(c"proc", c"/proc", c"proc", flags).map_err(|error| format!("/proc cannot be mounted afresh: {error}"))?;
        }
        Ok(())
    }
}
