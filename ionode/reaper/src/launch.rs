//! Starts the job's first process. May know: descriptors, fork and exec. One rule: the job gets exactly what the spec names: no descriptor, signal setting or variable more.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use libc::{c_char, c_int, pid_t};

use crate::cgroup::Group;
use crate::handover;
use crate::landlock;
use crate::notices;
use crate::spec::Spec;
use crate::sys;
use crate::tree;

/// Why nothing runs: a stable code and one sentence.
pub struct Refusal {
    pub code: &'static str,
    pub message: String,
}

pub fn refuse<T>(code: &'static str, message: String) -> Result<T, Refusal> {
    Err(Refusal { code, message })
}

/// stdout and stderr; opened before any namespace is entered, since they lie outside the sandbox.
pub struct Logs {
    stdout: OwnedFd,
    stderr: OwnedFd,
}

impl Logs {
    pub fn open(spec: &Spec) -> Result<Logs, Refusal> {
        Ok(Logs { stdout: open_log(&spec.stdout)?, stderr: open_log(&spec.stderr)? })
    }

    /// Of stdout and stderr, wherever their files lie.
    pub fn paths(&self) -> (PathBuf, PathBuf) {
        let path = |fd: &OwnedFd| PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()));
        (path(&self.stdout), path(&self.stderr))
    }
}

fn open_log(path: &Path) -> Result<OwnedFd, Refusal> {
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_NOFOLLOW | libc::O_NOCTTY;
    open(path, flags, 0o600).or_else(|error| refuse("start_failed", format!("the log file {} cannot be opened: {error}", path.display())))
}

fn open(path: &Path, flags: c_int, mode: libc::mode_t) -> io::Result<OwnedFd> {
    sys::open_at(libc::AT_FDCWD, &CString::new(path.as_os_str().as_bytes())?, flags, mode)
}

/// After the links are mounted: stdin may be one of them.
fn open_stdin(spec: &Spec) -> Result<OwnedFd, Refusal> {
    let path = spec.stdin.as_deref().unwrap_or(Path::new("/dev/null"));
    // O_NONBLOCK: opening a FIFO by mistake must not hang; it means nothing for a regular file.
    let opened = open(path, libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY, 0).and_then(|fd| Ok((sys::mode_of(&fd)?, fd)));
    match opened {
        Ok((mode, fd)) if spec.stdin.is_none() || mode & libc::S_IFMT == libc::S_IFREG => Ok(fd),
        Ok(_) => refuse("stdin_unreadable", format!("stdin {} is not a regular file", path.display())),
        Err(error) => refuse("stdin_unreadable", format!("stdin {} cannot be opened: {error}", path.display())),
    }
}

/// The job's first process, which has become the program by now.
pub struct Started {
    pub root: pid_t,
    /// Its I/O counters.
    pub counters: Option<File>,
    /// Whether it is in its control group.
    pub grouped: bool,
    /// Where its calls that open files wait.
    pub calls: Option<OwnedFd>,
}

/// `listen`: calls that open files are to wait, where this kernel can have them do so.
pub fn launch(spec: &Spec, logs: &Logs, rules: Option<OwnedFd>, group: Option<&Group>, listen: bool) -> Result<Started, Refusal> {
    let invalid = |message| Refusal { code: "start_failed", message };
    let arguments = spec.arguments().map_err(invalid)?;
    let environment = spec.environment().map_err(invalid)?;
    let Some(candidates) = spec.candidates() else {
        return refuse(
            "program_not_found",
            format!("the program {:?} cannot be looked up: the job's environment has no PATH", spec.argv[0]),
        );
    };
    let stdin = open_stdin(spec)?;
    let failed = |what: &str, error: io::Error| Refusal { code: "start_failed", message: format!("{what}: {error}") };
    let cwd = open(&spec.cwd, libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW, 0)
        .map_err(|error| failed(&format!("the directory {}", spec.cwd.display()), error))?;
    let (error_in, error_out) = sys::pipe().map_err(|error| failed("pipe", error))?;
    let (go_in, go_out) = sys::pipe().map_err(|error| failed("pipe", error))?;
    let ends = listen.then(handover::socket_pair).transpose().map_err(|error| failed("socket", error))?;
    let (from_child, calls_to) = ends.unzip();
    let mut start = Start {
        cwd,
        stdio: [stdin.as_raw_fd(), logs.stdout.as_raw_fd(), logs.stderr.as_raw_fd()],
        candidates,
        arguments: &arguments,
        environment: &environment,
        unprivileged: spec.unprivileged,
        rules,
        calls_to,
    };
    let parent = std::process::id() as pid_t;
    let (root, mut grouped) = match group.map(Group::fork) {
        Some(Ok(root)) => (root, true),
        _ => (sys::fork_with(0).map_err(|error| failed("the job's process cannot be made", error))?, false),
    };
    if root == 0 {
        drop(go_out);
        // Ends when the parent has opened the counters: a short job would be over before.
        let _ = File::from(go_in).read(&mut [0]);
        let errno = start.become_program(parent).raw_os_error().unwrap_or(libc::EIO);
        let _ = File::from(error_out).write_all(&errno.to_ne_bytes());
        sys::exit_now(127);
    }
    drop((error_out, go_in));
    let counters = tree::open_io(root);
    // It waits for the parent still.
    grouped = grouped || group.is_some_and(|group| group.take(root).is_ok());
    drop(go_out);
    start.calls_to = None;
    let calls = from_child.as_ref().and_then(handover::receive);
    let mut errno = [0; 4];
    if File::from(error_in).read_exact(&mut errno).is_err() {
        return Ok(Started { root, counters, grouped, calls });
    }
    sys::reap(root, true);
    Err(explain(spec, &start.cwd, io::Error::from_raw_os_error(i32::from_ne_bytes(errno))))
}

struct Start<'a> {
    cwd: OwnedFd,
    stdio: [c_int; 3],
    candidates: Vec<CString>,
    arguments: &'a [CString],
    environment: &'a [CString],
    unprivileged: bool,
    /// Of Landlock.
    rules: Option<OwnedFd>,
    calls_to: Option<OwnedFd>,
}

impl Start<'_> {
    /// In the child; returns only when it failed.
    fn become_program(&self, parent: pid_t) -> io::Error {
        match self.prepare(parent) {
            Ok(()) => self.exec(),
            Err(error) => error,
        }
    }

    fn prepare(&self, parent: pid_t) -> io::Result<()> {
        sys::lead_session();
        sys::die_with_parent()?;
        // SAFETY: no arguments. A parent that died before the line above sends no signal any more.
        if unsafe { libc::getppid() } != parent {
            sys::exit_now(127);
        }
        // SAFETY: descriptors of this process, all above 2, since Rust's runtime opens what its starter left closed of 0 to 2:
        // no dup2 overwrites one that is still needed.
        unsafe {
            sys::check(libc::fchdir(self.cwd.as_raw_fd()))?;
            for (index, fd) in self.stdio.iter().enumerate() {
                sys::check(libc::dup2(*fd, index as c_int))?;
            }
        }
        sys::reset_signals();
        if self.unprivileged {
            sys::drop_capabilities()?;
        }
        self.rules.as_ref().map_or(Ok(()), landlock::restrict)?;
        match self.calls_to.as_ref().map(|socket| (socket, notices::listen())) {
            Some((socket, Ok(calls))) => handover::send(socket, &calls),
            _ => Ok(()),
        }
    }

    fn exec(&self) -> io::Error {
        exec(&self.candidates, self.arguments, self.environment)
    }
}

/// As execvp does: go on past places where it is not; a place where it may not be run is remembered.
fn exec(candidates: &[CString], arguments: &[CString], environment: &[CString]) -> io::Error {
    let arguments = pointers(arguments);
    let environment = pointers(environment);
    let mut worst = io::Error::from_raw_os_error(libc::ENOENT);
    for program in candidates {
        // SAFETY: NUL-terminated strings in NULL-terminated arrays that outlive the call.
        unsafe { libc::execve(program.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENOTDIR) => {}
            Some(libc::EACCES) => worst = error,
            _ => return error,
        }
    }
    worst
}

/// This process becomes the spec's program; where it cannot, why not.
pub fn exec_or_explain(spec: &Spec, candidates: &[CString]) -> String {
    let words = spec.arguments().and_then(|arguments| Ok((arguments, spec.environment()?)));
    let cwd = open(Path::new("."), libc::O_PATH | libc::O_DIRECTORY, 0).map_err(|error| error.to_string());
    match (words, cwd) {
        (Ok((arguments, environment)), Ok(cwd)) => explain(spec, &cwd, exec(candidates, &arguments, &environment)).message,
        (Err(why), _) | (_, Err(why)) => why,
    }
}

fn pointers(words: &[CString]) -> Vec<*const c_char> {
    words.iter().map(|word| word.as_ptr()).chain([std::ptr::null()]).collect()
}

/// Says what is wrong with the program in words its author can act on.
fn explain(spec: &Spec, cwd: &OwnedFd, error: io::Error) -> Refusal {
    let program = &spec.argv[0];
    let by_path = program.contains('/');
    let exists = by_path && CString::new(program.as_str()).is_ok_and(|name| sys::open_at(cwd.as_raw_fd(), &name, libc::O_PATH, 0).is_ok());
    let (code, message) = match error.raw_os_error() {
        Some(libc::ENOENT) if exists => ("program_not_found", format!("the program {program:?} exists, but the interpreter that its first line (or its ELF header) names does not")),
        Some(libc::ENOENT | libc::ENOTDIR) if spec.isolate && program.starts_with("/tmp/") => ("program_not_found", format!("the program {program:?} is not there: /tmp is the job's own; name it as an input, or say `isolate: off`")),
        Some(libc::ENOENT | libc::ENOTDIR) if by_path => ("program_not_found", format!("the program {program:?} does not exist; a job's paths are relative to its sandbox, so declare it as an input or give an absolute path")),
        Some(libc::ENOENT) => ("program_not_found", format!("the program {program:?} was not found in PATH ({})", spec.env.get("PATH").map_or("", String::as_str))),
        Some(libc::EACCES) => ("program_not_executable", format!("the program {program:?} may not be executed: it is a directory, lacks the execute bit, or lies on a noexec file system")),
        Some(libc::ENOEXEC) => ("program_not_executable", format!("the program {program:?} is neither a binary for this machine nor a script that begins with '#!'")),
        Some(libc::E2BIG) => ("start_failed", format!("the arguments and environment of {program:?} are larger than the kernel takes")),
        _ => ("start_failed", format!("the program {program:?} cannot be started: {error}")),
    };
    Refusal { code, message }
}
