//! One life of one mount: sshfs started, looked at, ended. Knows sshfs and its child process.
//!
//! The one rule: when a session is over, sshfs and what it started are gone and so is the mount: nobody can wait for it any more.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{killpg, Signal};
use nix::unistd::Pid;
use stager_core::error::{ApiError, Code};
use stager_origins::SftpConfig;

use crate::{ssh_config, table, Timing};

const LOOK: Duration = Duration::from_millis(20);
/// All on one connection: then what the prober asks waits where the readers wait, and no reader can hang beside a mount that looks well.
const CONNECTIONS: u32 = 1;
/// An sshfs that was refused says so and ends, a moment after its mount fails.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Where a mount lives: its configuration and log beside the mount point.
pub struct Place {
    pub directory: PathBuf,
    pub point: PathBuf,
}

impl Place {
    pub fn new(root: &Path, origin_id: &str) -> Self {
        let directory = root.join(format!("of-{origin_id}"));
        Self { point: directory.join("mount"), directory }
    }

    fn log(&self) -> PathBuf {
        self.directory.join("log")
    }
}

pub struct Session {
    child: Child,
    point: PathBuf,
    queries: Sender<()>,
    answers: Receiver<Result<(), Errno>>,
}

impl Session {
    /// Must be called by a thread that lives as long as the session: the kernel ends sshfs when that thread ends.
    pub fn start(place: &Place, config: &SftpConfig, timing: Timing) -> Result<Self, ApiError> {
        let wrong = |error: std::io::Error| {
            ApiError::new(Code::IoError, &config.host, format!("sshfs cannot be started ({error}); is it installed?"))
        };
        table::detach(&place.point);
        let settings = place.directory.join("ssh_config");
        let text = ssh_config::text(config, timing.alive_every)?;
        private(&settings).and_then(|mut file| file.write_all(text.as_bytes())).map_err(wrong)?;
        let child = command(place, &settings, config).map_err(wrong)?.spawn().map_err(wrong)?;
        let (queries, answers) = prober(&place.point);
        let mut session = Self { child, point: place.point.clone(), queries, answers };
        match session.wait_until_mounted(place, config, timing) {
            Ok(()) => Ok(session),
            Err(error) => {
                session.end();
                Err(error)
            }
        }
    }

    fn wait_until_mounted(&mut self, place: &Place, config: &SftpConfig, timing: Timing) -> Result<(), ApiError> {
        let deadline = Instant::now() + timing.mount_within;
        while table::entry_at(&self.point).is_none() {
            if self.has_ended() {
                return Err(refused(&std::fs::read_to_string(place.log()).unwrap_or_default(), config));
            }
            if Instant::now() >= deadline {
                return Err(late(config));
            }
            std::thread::sleep(LOOK);
        }
        self.ask();
        match self.answer(deadline.saturating_duration_since(Instant::now())) {
            Some(Ok(())) => Ok(()),
            Some(Err(errno)) => {
                self.wait_for_end(LAST_WORDS);
                let log = std::fs::read_to_string(place.log()).unwrap_or_default();
                Err(refused(if log.is_empty() { errno.desc() } else { &log }, config))
            }
            None => Err(late(config)),
        }
    }

    fn wait_for_end(&mut self, within: Duration) {
        let deadline = Instant::now() + within;
        while !self.has_ended() && Instant::now() < deadline {
            std::thread::sleep(LOOK);
        }
    }

    pub fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Has a thread ask the far side something that no cache can answer.
    pub fn ask(&self) {
        // The thread is gone only with its mount, which the watch sees by itself.
        let _ = self.queries.send(());
    }

    /// None: nobody answered so far.
    pub fn answer(&self, within: Duration) -> Option<Result<(), Errno>> {
        match self.answers.recv_timeout(within) {
            Ok(answer) => Some(answer),
            Err(mpsc::RecvTimeoutError::Disconnected) => Some(Err(Errno::ENOTCONN)),
            Err(mpsc::RecvTimeoutError::Timeout) => None,
        }
    }

    /// Readers get an error from here on: the connection is aborted where the kernel lets us, and dies with sshfs in any case.
    pub fn end(mut self) {
        if let Some(entry) = table::entry_at(&self.point) {
            let abort = format!("/sys/fs/fuse/connections/{}/abort", entry.device_minor);
            if entry.kind.starts_with("fuse") && Path::new(&abort).exists() {
                std::fs::write(abort, "1").ok();
            }
        }
        killpg(Pid::from_raw(self.child.id() as i32), Signal::SIGKILL).ok();
        self.child.wait().ok();
        if !table::detach(&self.point) {
            tracing::warn!(point = %self.point.display(), "a mount cannot be taken away; the next start tries again");
        }
    }
}

fn private(path: &Path) -> std::io::Result<File> {
    std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}

fn command(place: &Place, settings: &Path, config: &SftpConfig) -> std::io::Result<Command> {
    let log = private(&place.log())?;
    let mut command = Command::new("sshfs");
    command
        .arg("-f")
        .arg("-F")
        .arg(settings)
        .arg("-o")
        .arg(format!("ro,nodev,nosuid,follow_symlinks,max_conns={CONNECTIONS},fsname=stager"));
    command.arg("--").arg(format!("{}:{}", ssh_config::HOST, config.base_path)).arg(&place.point);
    command.env_remove("SSH_AUTH_SOCK").env_remove("SSH_ASKPASS").process_group(0);
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    let parent = std::process::id();
    // Safe: prctl and getppid are async-signal-safe and touch no memory of the parent.
    unsafe {
        command.pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 || libc::getppid() as u32 != parent {
                return Err(std::io::Error::last_os_error());
            }
            Ok(())
        });
    }
    Ok(command)
}

/// A thread that may hang without harm; it ends when its mount does or nobody asks any more.
fn prober(point: &Path) -> (Sender<()>, Receiver<Result<(), Errno>>) {
    let ((queries, asked), (said, answers)) = (mpsc::channel(), mpsc::channel());
    let point = point.to_owned();
    std::thread::spawn(move || {
        while asked.recv().is_ok() {
            // A name that was never asked for: it has to be looked up at the far side.
            let name = point.join(format!(".stager-probe-{:032x}", rand::random::<u128>()));
            let outcome = match nix::sys::stat::lstat(&name) {
                // sshfs mounts before it connects, and takes that back where it cannot: then the directory below has answered.
                Ok(_) | Err(Errno::ENOENT | Errno::EACCES | Errno::EPERM) if table::entry_at(&point).is_none() => Err(Errno::ENOTCONN),
                Ok(_) | Err(Errno::ENOENT | Errno::EACCES | Errno::EPERM) => Ok(()),
                Err(errno) => Err(errno),
            };
            if said.send(outcome).is_err() {
                return;
            }
        }
    });
    (queries, answers)
}

fn late(config: &SftpConfig) -> ApiError {
    ApiError::new(Code::Timeout, &config.host, format!("{} did not answer in time to be mounted; look at the network", config.host))
}

fn refused(log: &str, config: &SftpConfig) -> ApiError {
    let host = &config.host;
    let last = log.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing").trim();
    let message = format!("{}:{} at {host} cannot be mounted: {last}", config.user, config.base_path);
    if log.contains("Host key verification failed") {
        return ApiError::new(Code::HostKeyUnknown, host, format!("{message}; put the right host key into known_hosts"));
    }
    if log.contains("Permission denied (") {
        return ApiError::new(Code::AuthFailed, host, format!("{message}; check user and key"));
    }
    if log.contains("No such file or directory") {
        return ApiError::new(Code::NotFound, &config.base_path, message);
    }
    ApiError::new(Code::OriginUnreachable, host, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_below_a_mount_that_is_gone_does_not_answer_for_it() {
        let plain = tempfile::tempdir().unwrap();
        let (queries, answers) = prober(plain.path());
        queries.send(()).unwrap();
        assert_eq!(answers.recv(), Ok(Err(Errno::ENOTCONN)));
    }
}
