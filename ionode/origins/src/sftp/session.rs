//! The SFTP requests of one connection. Knows russh-sftp and the stream it runs on.
//!
//! The one rule: when the stream ends, so does every request, also one that was made in that very moment: russh-sftp wakes those it knows
//! and takes another one on that nobody will answer.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use russh_sftp::client::error::Error;
use russh_sftp::client::rawsession::{Limits, RawSftpSession};
use russh_sftp::client::Config;
use russh_sftp::extensions::{LimitsExtension, Statvfs};
use russh_sftp::protocol::{Attrs, Data, FileAttributes, Handle, Name, OpenFlags, Packet, Status, Version};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;

type Answer<T> = Result<T, Error>;

pub struct Session {
    raw: RawSftpSession,
    ended: watch::Receiver<bool>,
}

/// Tells when nothing more can be read from it, and when it is gone.
struct Told<S> {
    stream: S,
    ended: watch::Sender<bool>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Told<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let (space, before) = (buffer.remaining(), buffer.filled().len());
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        let over = match &polled {
            Poll::Ready(Ok(())) => space > 0 && buffer.filled().len() == before,
            Poll::Ready(Err(_)) => true,
            Poll::Pending => false,
        };
        if over {
            self.ended.send_replace(true);
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Told<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl Session {
    pub fn new<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(stream: S, settings: Config) -> Self {
        let (teller, ended) = watch::channel(false);
        Self { raw: RawSftpSession::new_with_config(Told { stream, ended: teller }, settings), ended }
    }

    pub fn set_limits(&mut self, limits: Limits) {
        self.raw.set_limits(limits);
    }

    async fn answered<T>(&self, request: impl Future<Output = Answer<T>>) -> Answer<T> {
        let mut ended = self.ended.clone();
        tokio::select! {
            biased;
            answer = request => answer,
            _ = ended.wait_for(|ended| *ended) => Err(Error::UnexpectedBehavior("the connection ended".to_owned())),
        }
    }
}

macro_rules! requests {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $answer:ty;)*) => {
        impl Session {
            $(pub async fn $name(&self, $($argument: $kind),*) -> Answer<$answer> {
                self.answered(self.raw.$name($($argument),*)).await
            })*
        }
    };
}

requests! {
    init() -> Version;
    limits() -> LimitsExtension;
    realpath(path: &str) -> Name;
    open(path: String, flags: OpenFlags, attributes: FileAttributes) -> Handle;
    opendir(path: String) -> Handle;
    readdir(handle: String) -> Name;
    read(handle: String, offset: u64, length: u32) -> Data;
    write(handle: String, offset: u64, bytes: Vec<u8>) -> Status;
    fsync(handle: String) -> Status;
    close(handle: String) -> Status;
    stat(path: String) -> Attrs;
    lstat(path: String) -> Attrs;
    fstat(handle: String) -> Attrs;
    statvfs(path: String) -> Statvfs;
    mkdir(path: String, attributes: FileAttributes) -> Status;
    remove(path: String) -> Status;
    rename(from: String, to: String) -> Status;
    hardlink(from: String, to: String) -> Status;
    extended(name: &str, data: Vec<u8>) -> Packet;
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// The far end hangs up while a request is being written: russh-sftp wakes it and takes on the next, though nobody reads answers any more.
    #[tokio::test]
    async fn a_request_made_while_the_stream_ends_is_not_left_waiting() {
        let (near, mut far) = tokio::io::duplex(64);
        let session = Session::new(near, Config { request_timeout_secs: 600, ..Config::default() });
        let hang_up = async {
            far.read_exact(&mut [0]).await.unwrap();
            far.shutdown().await.unwrap();
        };
        let both = async { tokio::join!(session.stat("x".repeat(10_000)), hang_up) };
        let (first, ()) = tokio::time::timeout(Duration::from_secs(60), both).await.expect("the request under way was left waiting");
        assert!(first.is_err());
        let later = tokio::time::timeout(Duration::from_secs(60), session.stat("later".to_owned())).await;
        assert!(later.expect("a request was left waiting").is_err());
    }
}
