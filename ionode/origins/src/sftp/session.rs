//! The SFTP requests of one connection, over one channel of it or several. Knows russh-sftp and the streams it runs on.
//!
//! The one rule: when a stream ends, so does every request over it, also one that was made in that very moment: russh-sftp wakes those it
//! knows and takes another one on that nobody will answer.
//!
//! Behind each channel is a server of its own. It answers requests in the order they were sent in, has its own handles, and takes so many
//! bytes at once. What names a path goes over the first one, so that a rename and the look behind it stay in order. A file is opened where
//! the fewest are open, and all that is done with its handle goes there. When one of the servers ends, the caller ends the connection.

use std::future::Future;
use std::io;
use std::pin::{pin, Pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use futures::future::Either;
use futures::{poll, FutureExt};

use russh_sftp::client::error::Error;
use russh_sftp::client::rawsession::{Limits, RawSftpSession};
use russh_sftp::client::Config;
use russh_sftp::extensions::{LimitsExtension, Statvfs};
use russh_sftp::protocol::{Attrs, Data, FileAttributes, Handle, Name, OpenFlags, Packet, Status, StatusCode, Version};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;

type Answer<T> = Result<T, Error>;

pub struct Session {
    channels: Mutex<Vec<Arc<Channel>>>,
    settings: Config,
    limits: Limits,
    /// Of each server, at once.
    handles_max: usize,
}

struct Channel {
    raw: RawSftpSession,
    ended: watch::Receiver<bool>,
    /// Handles of files and directories, those that are being opened too.
    open: AtomicUsize,
}

/// What is open at the server behind one of the channels.
#[derive(Clone, Default)]
pub struct Held {
    channel: usize,
    name: String,
}

impl Held {
    pub fn is_none(&self) -> bool {
        self.name.is_empty()
    }
}

/// Tells when nothing more can be read from it, and when it is gone.
struct Told<S> {
    stream: S,
    ended: watch::Sender<bool>,
    codes: Codes,
}

/// Where in its packets a stream of answers is. russh-sftp knows the status codes of version 3 alone and gives all of a stream up at
/// another one, and some servers answer with those of later versions.
#[derive(Default)]
struct Codes {
    /// Bytes of this packet that have passed, its length's included.
    passed: u64,
    length: u32,
    is_status: bool,
    is_unknown: bool,
}

const LENGTH_BYTES: u64 = 4;
const STATUS: u8 = 101;
/// Length, type, request and code.
const STATUS_HEAD_BYTES: u64 = 13;

impl Codes {
    /// What came next: an unknown code becomes a failure, whose message stays what the server says.
    fn make_known(&mut self, mut bytes: &mut [u8]) {
        while !bytes.is_empty() {
            let step = match self.passed {
                0..STATUS_HEAD_BYTES => {
                    self.head(&mut bytes[0]);
                    1
                }
                passed => (LENGTH_BYTES + u64::from(self.length) - passed).min(bytes.len() as u64),
            };
            self.passed += step;
            bytes = &mut bytes[step as usize..];
            if self.passed >= LENGTH_BYTES && self.passed == LENGTH_BYTES + u64::from(self.length) {
                *self = Self::default();
            }
        }
    }

    fn head(&mut self, byte: &mut u8) {
        match self.passed {
            0..LENGTH_BYTES => self.length = self.length << 8 | u32::from(*byte),
            LENGTH_BYTES => self.is_status = *byte == STATUS,
            // Each of its bytes alone: the reader may have been given those before.
            9..12 if self.is_status => self.is_unknown |= std::mem::take(byte) != 0,
            12 if self.is_status && (self.is_unknown || *byte > StatusCode::OpUnsupported as u8) => *byte = StatusCode::Failure as u8,
            _ => {}
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Told<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let (space, before) = (buffer.remaining(), buffer.filled().len());
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.codes.make_known(&mut buffer.filled_mut()[before..]);
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

impl Channel {
    fn new<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(stream: S, settings: Config) -> Self {
        let (teller, ended) = watch::channel(false);
        let told = Told { stream, ended: teller, codes: Codes::default() };
        Self { raw: RawSftpSession::new_with_config(told, settings), ended, open: AtomicUsize::new(0) }
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

impl Session {
    pub fn new<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(stream: S, settings: Config) -> Self {
        let first = Channel::new(stream, settings.clone());
        Self { channels: Mutex::new(vec![Arc::new(first)]), settings, limits: Limits::default(), handles_max: usize::MAX }
    }

    /// Before anything is open.
    pub fn set_limits(&mut self, limits: Limits, handles_max: usize) {
        (self.limits, self.handles_max) = (limits, handles_max);
        let channels = self.channels.get_mut().expect("no holder panics");
        channels.iter_mut().filter_map(Arc::get_mut).for_each(|channel| channel.raw.set_limits(limits));
    }

    /// Files are opened over this stream as well, from when its server has answered.
    pub async fn add<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(&self, stream: S) -> Answer<()> {
        let mut channel = Channel::new(stream, self.settings.clone());
        channel.answered(channel.raw.init()).await?;
        channel.raw.set_limits(self.limits);
        self.channels.lock().expect("no holder panics").push(Arc::new(channel));
        Ok(())
    }

    /// Returns when one of the streams that there are now has ended.
    pub fn one_ended(&self) -> impl Future<Output = ()> + Send + 'static {
        let ended: Vec<_> = self.channels.lock().expect("no holder panics").iter().map(|channel| channel.ended.clone()).collect();
        let each = ended.into_iter().map(|mut ended| async move { ended.wait_for(|ended| *ended).await.is_ok() }.boxed());
        futures::future::select_all(each).map(drop)
    }

    fn channel(&self, number: usize) -> Arc<Channel> {
        self.channels.lock().expect("no holder panics")[number].clone()
    }

    /// Where the fewest are open, or behind what was sent over the first channel, as long as that has room: one more now.
    fn to_open(&self, behind: bool) -> (usize, Arc<Channel>) {
        let channels = self.channels.lock().expect("no holder panics");
        let open = |(number, channel): &(usize, &Arc<Channel>)| {
            let open = channel.open.load(Ordering::Relaxed);
            (!(behind && *number == 0 && open < self.handles_max), open)
        };
        let (number, channel) = channels.iter().enumerate().min_by_key(open).expect("there is a first one");
        channel.open.fetch_add(1, Ordering::Relaxed);
        (number, channel.clone())
    }

    /// Its caller waits for the answer: nobody else would give the handle back.
    pub async fn open(&self, path: String, flags: OpenFlags, attributes: FileAttributes) -> Answer<Held> {
        let (number, channel) = self.to_open(false);
        held(number, &channel, channel.answered(channel.raw.open(path, flags, attributes)).await)
    }

    /// As `open`, behind the renames and removes that were asked for: what is put on the disk then are the names after these.
    pub async fn open_behind(&self, path: String) -> Answer<Held> {
        let (number, channel) = self.to_open(true);
        held(number, &channel, channel.answered(channel.raw.open(path, OpenFlags::READ, FileAttributes::empty())).await)
    }

    /// As `open`.
    pub async fn opendir(&self, path: String) -> Answer<Held> {
        let (number, channel) = self.to_open(false);
        held(number, &channel, channel.answered(channel.raw.opendir(path)).await)
    }

    /// There is room for another one when this was sent, which is when it is first polled.
    pub async fn close(&self, held: Held) -> Answer<Status> {
        let channel = self.channel(held.channel);
        let mut closing = pin!(channel.answered(channel.raw.close(held.name)));
        let answer = match poll!(&mut closing) {
            Poll::Ready(answer) => Either::Left(answer),
            Poll::Pending => Either::Right(closing),
        };
        channel.open.fetch_sub(1, Ordering::Relaxed);
        match answer {
            Either::Left(answer) => answer,
            Either::Right(closing) => closing.await,
        }
    }
}

fn held(number: usize, channel: &Channel, opened: Answer<Handle>) -> Answer<Held> {
    if opened.is_err() {
        channel.open.fetch_sub(1, Ordering::Relaxed);
    }
    opened.map(|opened| Held { channel: number, name: opened.handle })
}

/// Over the first channel.
macro_rules! by_path {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $answer:ty;)*) => {
        impl Session {
            $(pub async fn $name(&self, $($argument: $kind),*) -> Answer<$answer> {
                let channel = self.channel(0);
                channel.answered(channel.raw.$name($($argument),*)).await
            })*
        }
    };
}

/// Over the channel that it was opened over.
macro_rules! by_handle {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $answer:ty;)*) => {
        impl Session {
            $(pub async fn $name(&self, held: Held, $($argument: $kind),*) -> Answer<$answer> {
                let channel = self.channel(held.channel);
                channel.answered(channel.raw.$name(held.name, $($argument),*)).await
            })*
        }
    };
}

by_path! {
    init() -> Version;
    limits() -> LimitsExtension;
    realpath(path: &str) -> Name;
    stat(path: String) -> Attrs;
    lstat(path: String) -> Attrs;
    statvfs(path: String) -> Statvfs;
    mkdir(path: String, attributes: FileAttributes) -> Status;
    remove(path: String) -> Status;
    rename(from: String, to: String) -> Status;
    hardlink(from: String, to: String) -> Status;
    extended(name: &str, data: Vec<u8>) -> Packet;
}

by_handle! {
    readdir() -> Name;
    read(offset: u64, length: u32) -> Data;
    write(offset: u64, bytes: Vec<u8>) -> Status;
    fsync() -> Status;
    fstat() -> Attrs;
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn packet(kind: u8, body: &[&[u8]]) -> Vec<u8> {
        let body = body.concat();
        [&(body.len() as u32 + 1).to_be_bytes()[..], &[kind], &body].concat()
    }

    fn status(id: u32, code: u32) -> Vec<u8> {
        packet(STATUS, &[&id.to_be_bytes(), &code.to_be_bytes(), &4u32.to_be_bytes(), b"told", &0u32.to_be_bytes()])
    }

    /// The answers to what is asked after the greeting, a byte at a time.
    async fn answering(mut far: tokio::io::DuplexStream, answers: impl IntoIterator<Item = impl Fn(u32) -> Vec<u8>>) {
        let request = async |far: &mut tokio::io::DuplexStream| {
            let mut body = vec![0; far.read_u32().await.unwrap() as usize];
            far.read_exact(&mut body).await.unwrap();
            u32::from_be_bytes(body[1..5].try_into().unwrap())
        };
        request(&mut far).await;
        far.write_all(&packet(2, &[&3u32.to_be_bytes()])).await.unwrap();
        for answer in answers {
            let id = request(&mut far).await;
            for byte in answer(id) {
                far.write_all(&[byte]).await.unwrap();
                tokio::task::yield_now().await;
            }
        }
        // Open until the caller has seen the last answer.
        far.read_exact(&mut [0]).await.ok();
    }

    #[tokio::test]
    async fn a_status_of_a_later_version_fails_one_request_and_not_the_connection() {
        let (near, far) = tokio::io::duplex(64);
        let codes = [(11, StatusCode::Failure), (256, StatusCode::Failure), (8, StatusCode::OpUnsupported), (2, StatusCode::NoSuchFile)];
        tokio::spawn(answering(far, codes.map(|(code, _)| move |id| status(id, code))));
        let session = Session::new(near, Config::default());
        session.init().await.unwrap();
        for (code, known) in codes {
            match session.open("f".to_owned(), OpenFlags::READ, FileAttributes::empty()).await {
                Err(Error::Status(status)) => assert_eq!((status.status_code, status.error_message.as_str()), (known, "told"), "{code}"),
                other => panic!("{code}: {:?}", other.err()),
            }
        }
    }

    #[test]
    fn only_codes_are_changed_wherever_the_stream_is_cut() {
        let data = packet(103, &[&7u32.to_be_bytes(), &300u32.to_be_bytes(), &status(1, 11)]);
        let stream = |code| [status(1, code), packet(STATUS, &[]), vec![0; 4], data.clone(), status(2, code), data.clone()].concat();
        for (code, known) in [(11, 4), (0x0100_0000, 4), (8, 8), (0, 0)] {
            for cut in 0..stream(code).len() {
                let (mut codes, mut bytes) = (Codes::default(), stream(code));
                let (first, rest) = bytes.split_at_mut(cut);
                codes.make_known(first);
                codes.make_known(rest);
                assert!(bytes == stream(known), "{code} cut at {cut}");
            }
        }
    }

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
