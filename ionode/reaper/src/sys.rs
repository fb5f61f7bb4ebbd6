//! System calls with Rust types. May know: libc. One rule: each wrapper does one call and decides nothing.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use libc::{c_int, c_ulong, pid_t};

pub fn check(value: c_int) -> io::Result<c_int> {
    if value < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(value)
    }
}

/// fork, into new namespaces if `flags` says so. Safe only because the reaper never has a second thread.
pub fn fork_with(flags: c_int) -> io::Result<pid_t> {
    // SAFETY: without CLONE_VM this is fork: the child has its own copy of everything and no stack is shared.
    let pid = unsafe { libc::syscall(libc::SYS_clone, (flags | libc::SIGCHLD) as c_ulong, 0, 0, 0, 0) };
    check(pid as c_int)
}

/// fork, and the child begins in this control group. Safe as `fork_with` is.
pub fn fork_into(group: &OwnedFd) -> io::Result<pid_t> {
    const INTO_CGROUP: u64 = 0x2_0000_0000;
    // flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size, cgroup.
    let arguments = [INTO_CGROUP, 0, 0, 0, libc::SIGCHLD as u64, 0, 0, 0, 0, 0, group.as_raw_fd() as u64];
    // SAFETY: without CLONE_VM this is fork; the structure is of the size that is told with it.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, arguments.as_ptr(), std::mem::size_of_val(&arguments)) };
    check(pid as c_int)
}

/// Safe only where there is no second thread.
pub fn unshare(flags: c_int) -> io::Result<()> {
    // SAFETY: plain integer arguments.
    check(unsafe { libc::unshare(flags) }).map(|_| ())
}

pub fn change_directory(directory: RawFd) -> io::Result<()> {
    // SAFETY: plain integer arguments.
    check(unsafe { libc::fchdir(directory) }).map(|_| ())
}

/// Of a descriptor that this process was given.
pub fn close(fd: RawFd) {
    // SAFETY: nothing else here knows it.
    unsafe { libc::close(fd) };
}

/// Ends a forked child without running the parent's exit handlers.
pub fn exit_now(code: c_int) -> ! {
    // SAFETY: _exit never returns and touches no memory of ours.
    unsafe { libc::_exit(code) }
}

pub fn die_with_parent() -> io::Result<()> {
    // SAFETY: plain integer arguments.
    check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) }).map(|_| ())
}

pub fn become_subreaper() -> io::Result<()> {
    // SAFETY: plain integer arguments.
    check(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }).map(|_| ())
}

/// A new session; already leading one is as good.
pub fn lead_session() {
    // SAFETY: no arguments.
    unsafe { libc::setsid() };
}

pub fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: the kernel writes two descriptors, which nobody else owns.
    unsafe {
        check(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC))?;
        Ok((OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])))
    }
}

/// It has no name, and room for whatever is written before anybody reads.
pub fn memory_file() -> io::Result<OwnedFd> {
    // SAFETY: the name ends with NUL; the descriptor returned is ours.
    unsafe { Ok(OwnedFd::from_raw_fd(check(libc::memfd_create(c"answer".as_ptr(), libc::MFD_CLOEXEC))?)) }
}

/// True when the other end of a pipe is closed.
pub fn is_hung_up(fd: &OwnedFd) -> bool {
    let mut entry = libc::pollfd { fd: fd.as_raw_fd(), events: 0, revents: 0 };
    // SAFETY: one entry, no waiting.
    unsafe { libc::poll(&mut entry, 1, 0) == 1 && entry.revents & libc::POLLHUP != 0 }
}

pub fn open_at(dir: RawFd, name: &CStr, flags: c_int, mode: libc::mode_t) -> io::Result<OwnedFd> {
    // SAFETY: `name` ends with NUL; the descriptor returned is ours.
    unsafe { Ok(OwnedFd::from_raw_fd(check(libc::openat(dir, name.as_ptr(), flags | libc::O_CLOEXEC, libc::c_uint::from(mode)))?)) }
}

pub fn mode_of(fd: &OwnedFd) -> io::Result<libc::mode_t> {
    let mut found = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: fstat fills the structure when it returns 0.
    unsafe {
        check(libc::fstat(fd.as_raw_fd(), found.as_mut_ptr()))?;
        Ok(found.assume_init().st_mode)
    }
}

/// The mount flags (ST_*) a descriptor lies under.
pub fn mount_flags_of(fd: &OwnedFd) -> io::Result<c_ulong> {
    let mut found = std::mem::MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: fstatvfs fills the structure when it returns 0.
    unsafe {
        check(libc::fstatvfs(fd.as_raw_fd(), found.as_mut_ptr()))?;
        Ok(found.assume_init().f_flag)
    }
}

pub fn mount(source: &CStr, target: &CStr, kind: &CStr, flags: c_ulong) -> io::Result<()> {
    // SAFETY: three NUL-terminated strings and no data.
    check(unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, std::ptr::null()) }).map(|_| ())
}

/// This process's root directory becomes the mount at `new_root`, and the one before goes to `put_old`.
pub fn pivot_root(new_root: &CStr, put_old: &CStr) -> io::Result<()> {
    // SAFETY: two NUL-terminated strings.
    check(unsafe { libc::syscall(libc::SYS_pivot_root, new_root.as_ptr(), put_old.as_ptr()) } as c_int).map(|_| ())
}

/// With all that is mounted below it, from sight at once.
pub fn unmount(place: &CStr) -> io::Result<()> {
    // SAFETY: a NUL-terminated string.
    check(unsafe { libc::umount2(place.as_ptr(), libc::MNT_DETACH) }).map(|_| ())
}

/// Readable while a signal waits that `wait_signal` would return.
pub fn signal_descriptor() -> io::Result<OwnedFd> {
    // SAFETY: a valid set; the descriptor returned is ours.
    unsafe { Ok(OwnedFd::from_raw_fd(check(libc::signalfd(-1, &watched(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK))?)) }
}

pub struct Ready {
    pub first: bool,
    pub second: bool,
    /// Its other end is gone.
    pub second_is_over: bool,
    /// The time is over.
    pub none: bool,
}

pub fn poll_two(first: &OwnedFd, second: &OwnedFd, limit: Option<Duration>) -> Ready {
    let entry = |fd: &OwnedFd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let mut entries = [entry(first), entry(second)];
    // Rounded up: an instant that is waited for has come then.
    let limit_ms = limit.map_or(-1, |limit| c_int::try_from(limit.as_micros().div_ceil(1000)).unwrap_or(c_int::MAX));
    // SAFETY: two entries.
    let count = unsafe { libc::poll(entries.as_mut_ptr(), 2, limit_ms) };
    let has = |index: usize, events| count > 0 && entries[index].revents & events != 0;
    Ready {
        first: has(0, libc::POLLIN),
        second: has(1, libc::POLLIN),
        second_is_over: has(1, libc::POLLHUP | libc::POLLERR),
        none: count == 0,
    }
}

/// A text that ends with NUL in the memory of another process, at most as long as a path. None: it may not be read.
pub fn read_string(pid: pid_t, at: u64) -> Option<Vec<u8>> {
    const PAGE: u64 = 4096;
    let mut text = vec![0u8; libc::PATH_MAX as usize];
    let mut done = 0;
    // A page at a time: the next one may not be there.
    while done < text.len() {
        let from = at + done as u64;
        let length = ((PAGE - from % PAGE) as usize).min(text.len() - done);
        let here = libc::iovec { iov_base: text[done..].as_mut_ptr().cast(), iov_len: length };
        let there = libc::iovec { iov_base: from as *mut libc::c_void, iov_len: length };
        // SAFETY: the kernel writes at most `length` bytes into our buffer, and checks the other address itself.
        let got = unsafe { libc::process_vm_readv(pid, &raw const here, 1, &raw const there, 1, 0) };
        if usize::try_from(got).ok()? != length {
            return None;
        }
        if let Some(end) = text[done..done + length].iter().position(|byte| *byte == 0) {
            text.truncate(done + end);
            return Some(text);
        }
        done += length;
    }
    None
}

/// Everything from 3 up. What is opened later carries O_CLOEXEC, so the job inherits nothing but its standard descriptors.
pub fn close_inherited() {
    // SAFETY: called before this process has opened anything of its own.
    if unsafe { libc::syscall(libc::SYS_close_range, 3, c_int::MAX, 0) } == 0 {
        return;
    }
    // Kernels before 5.9.
    let listed = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let open: Vec<RawFd> = listed.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(|fd| *fd > 2).collect();
    for fd in open {
        // SAFETY: as above; the descriptor of the listing itself is closed by now, which only gives EBADF.
        unsafe { libc::close(fd) };
    }
}

fn watched() -> libc::sigset_t {
    let mut set = std::mem::MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set before it is added to.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in [libc::SIGCHLD, libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    }
}

/// Signals are waited for, not handled: nothing ever runs in a handler.
pub fn block_signals() {
    // SAFETY: a valid set; the old one is not wanted.
    unsafe { libc::sigprocmask(libc::SIG_BLOCK, &watched(), std::ptr::null_mut()) };
}

/// What the job expects at its start: nothing blocked, nothing ignored (the Rust runtime ignores SIGPIPE).
pub fn reset_signals() {
    let mut none = std::mem::MaybeUninit::uninit();
    // The kernel's own call, since libc's refuses the two signals it keeps for itself; all zero is SIG_DFL with no flags.
    let default = [0u64; 4];
    // SAFETY: the kernel reads one sigaction (at most four words); signals that cannot be set only give EINVAL; sigemptyset initialises the set.
    unsafe {
        for signal in 1..=64 {
            libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), std::ptr::null::<u64>(), 8);
        }
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
    }
}

/// (signal, sender's pid as seen from here; 0 for one outside this pid namespace). None: the time is over.
pub fn wait_signal(limit: Option<Duration>) -> Option<(c_int, pid_t)> {
    let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
    let time = limit.map(|limit| libc::timespec { tv_sec: limit.as_secs() as libc::time_t, tv_nsec: limit.subsec_nanos().into() });
    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: valid set, info and time (or null: without limit); si_pid is set for all signals in the set.
    unsafe {
        let signal = libc::sigtimedwait(&watched(), info.as_mut_ptr(), time);
        if signal > 0 {
            Some((signal, info.assume_init().si_pid()))
        } else {
            None
        }
    }
}

pub enum Child {
    Ended(pid_t),
    NoneEnded,
    NoneLeft,
}

/// A child that ended, left unreaped so that /proc still knows it.
pub fn peek_child() -> Child {
    let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: zeroed info is valid; the kernel fills it when a child has ended.
    unsafe {
        if libc::waitid(libc::P_ALL, 0, info.as_mut_ptr(), libc::WEXITED | libc::WNOHANG | libc::WNOWAIT) != 0 {
            return Child::NoneLeft;
        }
        match info.assume_init().si_pid() {
            0 => Child::NoneEnded,
            pid => Child::Ended(pid),
        }
    }
}

/// The raw wait status; None while it lives.
pub fn reap(pid: pid_t, wait: bool) -> Option<c_int> {
    let mut status = 0;
    // SAFETY: one integer to write to.
    let found = unsafe { libc::waitpid(pid, &mut status, if wait { 0 } else { libc::WNOHANG }) };
    (found == pid).then_some(status)
}

/// CPU and peak memory of all children reaped so far, and of theirs.
pub fn usage_of_children() -> libc::rusage {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: zeroed is a valid rusage, and RUSAGE_CHILDREN cannot fail.
    unsafe {
        libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr());
        usage.assume_init()
    }
}

pub fn kill(pid: pid_t, signal: c_int) {
    // SAFETY: integers only.
    unsafe { libc::kill(pid, signal) };
}

/// Also one that may not be signalled.
pub fn is_there(pid: pid_t) -> bool {
    // SAFETY: integers only; signal 0 is none.
    unsafe { libc::kill(pid, 0) == 0 || io::Error::last_os_error().raw_os_error() == Some(libc::EPERM) }
}

/// False: somebody else has it locked.
pub fn lock_at_once(fd: &OwnedFd) -> bool {
    // SAFETY: integers only.
    unsafe { libc::flock(fd.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) == 0 }
}

/// Whether it is a control group of version 2.
pub fn is_cgroup2(path: &CStr) -> bool {
    const CGROUP2: u64 = 0x6367_7270;
    let mut found = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: statfs fills the structure when it returns 0.
    unsafe { libc::statfs(path.as_ptr(), found.as_mut_ptr()) == 0 && found.assume_init().f_type as u64 == CGROUP2 }
}

/// Whether this extended attribute of a file has this value.
pub fn attribute_is(path: &CStr, name: &CStr, value: &[u8]) -> bool {
    let mut found = [0u8; 16];
    // SAFETY: two NUL-terminated strings, and a buffer of the size that is told with it.
    let length = unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), found.as_mut_ptr().cast(), found.len()) };
    usize::try_from(length).is_ok_and(|length| found[..length] == *value)
}

/// A descriptor of a process: it can never come to mean another one.
pub fn pidfd(pid: pid_t) -> io::Result<OwnedFd> {
    // SAFETY: integers only; the descriptor returned is ours.
    unsafe { Ok(OwnedFd::from_raw_fd(check(libc::syscall(libc::SYS_pidfd_open, pid, 0) as c_int)?)) }
}

pub fn kill_by_pidfd(fd: &OwnedFd, signal: c_int) {
    // SAFETY: a valid descriptor, no siginfo.
    unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd.as_raw_fd(), signal, std::ptr::null::<libc::siginfo_t>(), 0) };
}

pub fn set_umask(mask: libc::mode_t) {
    // SAFETY: cannot fail.
    unsafe { libc::umask(mask) };
}

pub fn forbid_core_dumps() {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: lowering a limit is always allowed.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &none) };
}

/// No program that is run from here on gets rights that its caller has not: setuid has no effect.
pub fn forbid_new_privileges() -> io::Result<()> {
    // SAFETY: plain integer arguments.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }).map(|_| ())
}

/// All sets, for good: no_new_privs keeps the next program from getting any back, by root's uid as by a setuid bit.
pub fn drop_capabilities() -> io::Result<()> {
    const VERSION_3: u32 = 0x2008_0522;
    let header: [u32; 2] = [VERSION_3, 0];
    let none = [0u32; 6];
    forbid_new_privileges()?;
    // SAFETY: integers only; capset reads a header of two words and two times three words of sets.
    unsafe {
        for capability in 0..64 as c_ulong {
            // Who may not is left with a set that nothing can be raised from.
            if libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) != 0 {
                break;
            }
        }
        libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
        check(libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr()) as c_int).map(|_| ())
    }
}

pub fn user_and_group() -> (libc::uid_t, libc::gid_t) {
    // SAFETY: cannot fail.
    unsafe { (libc::geteuid(), libc::getegid()) }
}

/// For `set_mount_attributes`.
pub const MOUNT_READ_ONLY: u64 = 1;

/// Of one mount, or of it and all below it. Linux 5.12.
pub fn set_mount_attributes(place: &CStr, recursive: bool, set: u64, clear: u64) -> io::Result<()> {
    const RECURSIVE: c_int = 0x8000;
    // attr_set, attr_clr, propagation, userns_fd.
    let attributes = [set, clear, 0, 0];
    let flags = if recursive { RECURSIVE } else { 0 };
    // SAFETY: a NUL-terminated path, and a structure of the size that is told with it.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            place.as_ptr(),
            flags,
            attributes.as_ptr(),
            std::mem::size_of_val(&attributes),
        )
    };
    check(done as c_int).map(|_| ())
}

/// 0 or below: this kernel has none.
pub fn landlock_version() -> c_int {
    // SAFETY: the call that asks takes no structure.
    unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u64>(), 0, 1) as c_int }
}

/// A set of rules that forbids these accesses where no rule allows them.
pub fn landlock_rules(handled: u64) -> io::Result<OwnedFd> {
    // SAFETY: the structure's first field alone, and its size; the descriptor returned is ours.
    unsafe {
        let fd = libc::syscall(libc::SYS_landlock_create_ruleset, &raw const handled, std::mem::size_of_val(&handled), 0);
        Ok(OwnedFd::from_raw_fd(check(fd as c_int)?))
    }
}

/// These accesses at `place`, and below it.
pub fn landlock_allow(rules: &OwnedFd, access: u64, place: &OwnedFd) -> io::Result<()> {
    #[repr(C, packed)]
    struct Beneath {
        access: u64,
        place: c_int,
    }
    let beneath = Beneath { access, place: place.as_raw_fd() };
    // SAFETY: the structure that the type 1 of rule has.
    let done = unsafe { libc::syscall(libc::SYS_landlock_add_rule, rules.as_raw_fd(), 1, &raw const beneath, 0) };
    check(done as c_int).map(|_| ())
}

pub fn landlock_restrict(rules: RawFd) -> io::Result<()> {
    // SAFETY: plain integer arguments.
    check(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, rules, 0) } as c_int).map(|_| ())
}

/// A queue of opened files, empty yet; for root alone.
pub fn watch_opens() -> io::Result<OwnedFd> {
    let flags = libc::FAN_CLASS_NOTIF | libc::FAN_CLOEXEC | libc::FAN_NONBLOCK;
    // SAFETY: integers only; the descriptor returned is ours.
    unsafe {
        Ok(OwnedFd::from_raw_fd(check(libc::fanotify_init(flags, (libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK) as libc::c_uint))?))
    }
}

/// Opens through this mount go into the queue.
pub fn watch_mount(events: &OwnedFd, place: &CStr) -> io::Result<()> {
    let flags = libc::FAN_MARK_ADD | libc::FAN_MARK_MOUNT;
    // SAFETY: a NUL-terminated path.
    check(unsafe { libc::fanotify_mark(events.as_raw_fd(), flags, libc::FAN_OPEN, libc::AT_FDCWD, place.as_ptr()) }).map(|_| ())
}

/// The descriptors of the next events, which are the caller's to close; none: the queue is empty.
pub fn read_events(events: &OwnedFd, buffer: &mut [u64]) -> Vec<RawFd> {
    // SAFETY: the kernel writes whole events into a buffer of this size, which is aligned as they are.
    let length = unsafe { libc::read(events.as_raw_fd(), buffer.as_mut_ptr().cast(), std::mem::size_of_val(buffer)) };
    let words = usize::try_from(length).unwrap_or(0) / 8;
    // Of three words each: lengths and versions, what happened, the descriptor with the pid above it.
    buffer[..words].chunks_exact(3).map(|event| event[2] as u32 as RawFd).filter(|fd| *fd >= 0).collect()
}
