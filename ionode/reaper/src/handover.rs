//! A descriptor that a child hands to its parent. May know: sockets. One rule: a parent that gets none learns so when the child's end is closed.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use libc::c_int;

use crate::sys::check;

/// Both ends.
pub fn socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: the kernel writes two descriptors, which nobody else owns.
    unsafe {
        check(libc::socketpair(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0, ends.as_mut_ptr()))?;
        Ok((OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])))
    }
}

/// A byte, an iovec and room for one descriptor.
fn message(byte: &mut u8, vector: &mut libc::iovec, room: &mut [u64; 4]) -> libc::msghdr {
    *vector = libc::iovec { iov_base: std::ptr::from_mut(byte).cast(), iov_len: 1 };
    // SAFETY: all zero is a valid empty message.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = vector;
    message.msg_iovlen = 1;
    // SAFETY: arithmetic alone.
    let length = unsafe { libc::CMSG_SPACE(std::mem::size_of::<c_int>() as libc::c_uint) };
    message.msg_control = room.as_mut_ptr().cast();
    message.msg_controllen = length as _;
    message
}

pub fn send(socket: &OwnedFd, fd: &OwnedFd) -> io::Result<()> {
    let (mut byte, mut vector, mut room) = (0, libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }, [0; 4]);
    let message = message(&mut byte, &mut vector, &mut room);
    // SAFETY: the message's control part has room for this one header and its descriptor, and outlives the call.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(std::mem::size_of::<c_int>() as libc::c_uint) as _;
        libc::CMSG_DATA(header).cast::<c_int>().write_unaligned(fd.as_raw_fd());
        check(libc::sendmsg(socket.as_raw_fd(), &raw const message, 0) as c_int).map(|_| ())
    }
}

/// None: the other end was closed without one.
pub fn receive(socket: &OwnedFd) -> Option<OwnedFd> {
    let (mut byte, mut vector, mut room) = (0, libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }, [0; 4]);
    let mut message = message(&mut byte, &mut vector, &mut room);
    // SAFETY: the message's parts outlive the call; the kernel says whether it wrote a header, and the descriptor in it is ours.
    unsafe {
        let got = libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC);
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (got == 1 && !header.is_null() && (*header).cmsg_type == libc::SCM_RIGHTS)
            .then(|| OwnedFd::from_raw_fd(libc::CMSG_DATA(header).cast::<c_int>().read_unaligned()))
    }
}
