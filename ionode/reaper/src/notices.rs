//! seccomp's notices of calls that open files. May know: its filter, its structures. One rule: every call goes on as it was made.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use libc::{c_int, c_ulong, pid_t, sock_filter};

use crate::sys::check;

const ACTION_ALLOW: u32 = 0x7fff_0000;
const ACTION_NOTICE: u32 = 0x7fc0_0000;
const NEW_LISTENER: c_ulong = 1 << 3;
/// Once a call was read it is no signal that ends its wait, unless it kills. Linux 5.19.
const WAIT_KILLABLE: c_ulong = 1 << 5;
const SET_FILTER: c_int = 1;
const RECEIVE: c_ulong = 0xc050_2100;
const SEND: c_ulong = 0xc018_2101;
const CONTINUE: u64 = 1;

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "x86_64")]
const OPEN: u32 = libc::SYS_open as u32;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;
/// There is none.
#[cfg(target_arch = "aarch64")]
const OPEN: u32 = u32::MAX;

const LOAD: u16 = 0x20;
const JUMP: u16 = 0x05;
const IF_EQUAL: u16 = 0x15;
const IF_ANY: u16 = 0x45;
const RETURN: u16 = 0x06;

/// A call that waits.
pub struct OpenCall {
    id: u64,
    pub pid: pid_t,
    /// What a relative name begins at.
    pub directory: c_int,
    /// Where its name is in the memory of its process.
    pub name: u64,
}

/// From here on the calls of this process and of all that it starts wait at this descriptor: those that read a file, or may.
pub fn listen() -> io::Result<OwnedFd> {
    // What opens no content, or only writes.
    let passed = (libc::O_PATH | libc::O_DIRECTORY | libc::O_WRONLY) as u32;
    let step = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    // At 0 is the number of the call, at 4 the architecture, from 16 on the arguments, of 8 bytes each.
    let mut steps = [
        step(LOAD, 0, 0, 4),
        step(IF_EQUAL, 0, 4, ARCHITECTURE),
        step(LOAD, 0, 0, 0),
        step(IF_EQUAL, 8, 0, libc::SYS_openat2 as u32),
        step(IF_EQUAL, 2, 0, libc::SYS_openat as u32),
        step(IF_EQUAL, 3, 0, OPEN),
        step(RETURN, 0, 0, ACTION_ALLOW),
        step(LOAD, 0, 0, 32),
        step(JUMP, 0, 0, 1),
        step(LOAD, 0, 0, 24),
        step(IF_ANY, 0, 1, passed),
        step(RETURN, 0, 0, ACTION_ALLOW),
        step(RETURN, 0, 0, ACTION_NOTICE),
    ];
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: a program of the length that is told with it, which the kernel copies; the descriptor returned is ours.
    unsafe {
        let fd = libc::syscall(libc::SYS_seccomp, SET_FILTER, NEW_LISTENER | WAIT_KILLABLE, &raw const program);
        Ok(OwnedFd::from_raw_fd(check(fd as c_int)?))
    }
}

/// None: it was withdrawn meanwhile, or says nothing of a name.
pub fn receive(calls: &OwnedFd) -> Option<OpenCall> {
    // id, pid and flags, number and architecture, instruction, six arguments.
    let mut notice = [0u64; 10];
    // SAFETY: the kernel writes a structure of exactly this size, as the number of the call says.
    if unsafe { libc::ioctl(calls.as_raw_fd(), RECEIVE as _, notice.as_mut_ptr()) } != 0 {
        return None;
    }
    let arguments = &notice[4..];
    let (directory, name) =
        if notice[2] as u32 == OPEN { (libc::AT_FDCWD, arguments[0]) } else { (arguments[0] as u32 as c_int, arguments[1]) };
    Some(OpenCall { id: notice[0], pid: notice[1] as u32 as pid_t, directory, name })
}

/// False: its process is gone.
pub fn go_on(calls: &OwnedFd, call: &OpenCall) -> bool {
    // id, value, error and flags.
    let answer = [call.id, 0, CONTINUE << 32];
    // SAFETY: the kernel reads a structure of exactly this size, as the number of the call says.
    unsafe { libc::ioctl(calls.as_raw_fd(), SEND as _, answer.as_ptr()) == 0 }
}
