//! TCP connections that notice when the other end is gone: a line that is cut tells nobody. Knows sockets, not what is said on them.
//!
//! The one rule: every TCP connection of this program is watched from here, so no call and no body waits for ever.

use std::os::fd::AsFd;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};

/// For so long nothing that was sent may stay unanswered, and a reader may read nothing. A line that is mended sooner is gone on with.
pub const DEAD_AFTER: Duration = Duration::from_secs(30);
const ASKED_AFTER: Duration = Duration::from_secs(10);
const ASKED_EVERY: Duration = Duration::from_secs(5);
const ASKED_TIMES: u32 = 4;

/// Of a connection to another node or a client of stager, or of a listener: what it accepts has the same.
pub fn watch(socket: &impl AsFd) -> std::io::Result<()> {
    watch_idle(socket)?;
    SockRef::from(socket).set_tcp_user_timeout(Some(DEAD_AFTER))
}

/// Of callers that may pause while they read, as those of S3 do: only a connection with nothing on its way is asked for life. What is on
/// its way to one that is gone is given up by the system, within a quarter of an hour.
pub fn watch_idle(socket: &impl AsFd) -> std::io::Result<()> {
    let asked = TcpKeepalive::new().with_time(ASKED_AFTER).with_interval(ASKED_EVERY).with_retries(ASKED_TIMES);
    SockRef::from(socket).set_tcp_keepalive(&asked)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn what_a_watched_listener_accepts_is_watched() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        watch(&listener).unwrap();
        let _caller = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let socket = SockRef::from(&accepted);
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(DEAD_AFTER));
        assert_eq!((socket.tcp_keepalive_time().unwrap(), socket.tcp_keepalive_retries().unwrap()), (ASKED_AFTER, ASKED_TIMES));
    }
}
