//! Bodies of requests as they come: each at a least pace, none in pieces that would have to be held whole in memory.
//!
//! The one rule: only the time that is spent waiting for the client counts against it.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{ready, Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::http::request::Parts;
use tokio::time::{Instant, Sleep};

use crate::connections::{Caller, Held};
use crate::documents::is_document;

/// So much of a body has to come within this time of waiting for it: a sender that is gone, or wants to hold a place, is slower.
const PACE_BYTES: usize = 64 << 10;
const PACE_WITHIN: Duration = Duration::from_secs(60);
/// Of a chunk with a signature of its own, which the library holds until it has compared it.
const CHUNK_BYTES_MAX: u64 = 32 << 20;
/// Not counted for its owner: as many as there may be bodies are no more than is held of one body elsewhere.
const CHUNK_BYTES_USUAL: u64 = 256 << 10;

pub const TOO_MUCH_HELD: &str = "too much of this owner's bodies is held in memory";
pub const TOO_SLOW: &str = "less than 64 KiB of the body came in 60 s";
pub const CHUNK_TOO_LARGE: &str = "a chunk of the body has more than 32 MiB";

/// The body of a request, which can still be read when the answer was made without it.
pub struct Sent<B = Incoming>(Arc<Mutex<Coming<B>>>);

struct Coming<B> {
    body: B,
    pace: Pace,
    chunks: Option<Chunks>,
    held: Option<Held>,
    is_document: bool,
    /// A client that waits for 100 Continue has got it, and sends on.
    asked_for: bool,
}

impl<B> Clone for Sent<B> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<B> Sent<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    pub fn new(head: &Parts, body: B) -> Self {
        let kind = head.headers.get("x-amz-content-sha256").map(|value| value.as_bytes());
        let chunks = kind.is_some_and(|kind| kind.starts_with(b"STREAMING-")).then(Chunks::default);
        let held = head.extensions.get::<Arc<Caller>>().cloned().map(Held::none);
        let is_document = is_document(&head.method, &head.uri);
        Self(Arc::new(Mutex::new(Coming { body, pace: Pace::new(PACE_WITHIN), chunks, held, is_document, asked_for: false })))
    }

    fn coming(&self) -> MutexGuard<'_, Coming<B>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn was_asked_for(&self) -> bool {
        self.coming().asked_for
    }

    /// Reads on, up to so much.
    pub async fn spill(mut self, bytes_max: u64) {
        let mut left = bytes_max;
        self.coming().hold_nothing();
        while let Some(Ok(frame)) = std::future::poll_fn(|context| Pin::new(&mut self).poll_frame(context)).await {
            let bytes = frame.data_ref().map_or(0, Bytes::len) as u64;
            if bytes > left {
                return;
            }
            left -= bytes;
        }
    }
}

impl<B> Body for Sent<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let mut coming = self.coming();
        let coming = &mut *coming;
        coming.asked_for = true;
        let polled = Pin::new(&mut coming.body).poll_frame(context);
        if polled.is_pending() {
            ready!(coming.pace.poll_over(context));
            return Poll::Ready(Some(Err(io::Error::new(io::ErrorKind::TimedOut, TOO_SLOW))));
        }
        polled.map(|next| {
            next.map(|outcome| {
                let frame = outcome.map_err(io::Error::other)?;
                if let Some(bytes) = frame.data_ref() {
                    coming.pace.came(bytes.len());
                    coming.hold(bytes)?;
                }
                Ok(frame)
            })
        })
    }

    fn is_end_stream(&self) -> bool {
        self.coming().body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.coming().body.size_hint()
    }
}

impl<B> Coming<B> {
    fn hold_nothing(&mut self) {
        (self.chunks, self.held) = (None, None);
    }

    /// What the library keeps of these bytes is counted for their owner.
    fn hold(&mut self, bytes: &[u8]) -> io::Result<()> {
        let fits = match (&mut self.chunks, &mut self.held) {
            (None, Some(held)) if self.is_document => held.add(bytes.len() as u64),
            (None, _) => true,
            (Some(chunks), held) => {
                let before = chunks.held_bytes();
                chunks.scan(bytes)?;
                let now = chunks.held_bytes();
                held.as_mut().filter(|_| now != before).is_none_or(|held| held.set(now))
            }
        };
        match fits {
            true => Ok(()),
            false => Err(io::Error::new(io::ErrorKind::OutOfMemory, TOO_MUCH_HELD)),
        }
    }
}

struct Pace {
    within: Duration,
    came_bytes: usize,
    waited: Duration,
    waiting: Option<(Instant, Pin<Box<Sleep>>)>,
}

impl Pace {
    fn new(within: Duration) -> Self {
        Self { within, came_bytes: 0, waited: Duration::ZERO, waiting: None }
    }

    fn came(&mut self, bytes: usize) {
        if let Some((since, _)) = self.waiting.take() {
            self.waited += since.elapsed();
        }
        self.came_bytes += bytes;
        if self.came_bytes >= PACE_BYTES {
            (self.came_bytes, self.waited) = (0, Duration::ZERO);
        }
    }

    fn poll_over(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let left = self.within.saturating_sub(self.waited);
        let (_, sleep) = self.waiting.get_or_insert_with(|| (Instant::now(), Box::pin(tokio::time::sleep(left))));
        sleep.as_mut().poll(context)
    }
}

/// The sizes of the chunks of a body that is signed chunk by chunk, read as the library reads them: hex digits, anything, a newline; so many
/// bytes, CR LF.
#[derive(Default)]
struct Chunks {
    size: u64,
    digits: usize,
    /// Behind the digits.
    named: bool,
    left: u64,
    /// The whole chunk that is coming, or came last.
    chunk_bytes: u64,
    /// Behind the last chunk come trailers, which the library bounds.
    ended: bool,
}

impl Chunks {
    fn held_bytes(&self) -> u64 {
        if self.chunk_bytes > CHUNK_BYTES_USUAL {
            self.chunk_bytes
        } else {
            0
        }
    }

    fn scan(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !self.ended && !bytes.is_empty() {
            let passed = self.left.min(bytes.len() as u64);
            self.left -= passed;
            bytes = &bytes[passed as usize..];
            let Some((first, rest)) = bytes.split_first() else { break };
            bytes = rest;
            self.size_byte(*first)?;
        }
        Ok(())
    }

    fn size_byte(&mut self, byte: u8) -> io::Result<()> {
        match (byte as char).to_digit(16).filter(|_| !self.named && self.digits < 8) {
            Some(digit) => {
                self.size = self.size << 4 | u64::from(digit);
                self.digits += 1;
            }
            None => self.named = true,
        }
        if self.size > CHUNK_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, CHUNK_TOO_LARGE));
        }
        if byte == b'\n' {
            *self = Self { left: self.size + 2, chunk_bytes: self.size, ended: self.size == 0, ..Self::default() };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    use tokio::sync::mpsc;

    struct ScriptedBody(mpsc::UnboundedReceiver<Bytes>);

    impl Body for ScriptedBody {
        type Data = Bytes;
        type Error = Infallible;
        fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            self.0.poll_recv(context).map(|next| next.map(|bytes| Ok(Frame::data(bytes))))
        }
    }

    fn line(within: Duration) -> (mpsc::UnboundedSender<Bytes>, Sent<ScriptedBody>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let sent = Sent::new(&hyper::Request::new(()).into_parts().0, ScriptedBody(receiver));
        sent.coming().pace = Pace::new(within);
        (sender, sent)
    }

    async fn next(sent: &mut Sent<ScriptedBody>) -> Option<io::Result<usize>> {
        let frame = std::future::poll_fn(|context| Pin::new(&mut *sent).poll_frame(context)).await;
        frame.map(|frame| frame.map(|frame| frame.data_ref().map_or(0, Bytes::len)))
    }

    async fn all(sent: &mut Sent<ScriptedBody>) -> io::Result<usize> {
        let mut came = 0;
        while let Some(bytes) = next(sent).await {
            came += bytes?;
        }
        Ok(came)
    }

    const MS: Duration = Duration::from_millis(1);

    /// What came, of pieces of which each is sent once the one before it was taken.
    async fn fed(within: Duration, piece: usize, pause: Duration) -> io::Result<usize> {
        let (sender, mut sent) = line(within);
        let feeding = tokio::spawn(async move {
            for _ in 0..20 {
                tokio::time::sleep(pause).await;
                let _ = sender.send(Bytes::from(vec![0; piece]));
            }
        });
        let came = all(&mut sent).await;
        feeding.abort();
        came
    }

    #[tokio::test]
    async fn a_body_that_drips_is_given_up_and_one_that_comes_slowly_is_not() {
        assert_eq!(fed(50 * MS, 1, 10 * MS).await.unwrap_err().to_string(), TOO_SLOW);
        assert_eq!(fed(50 * MS, PACE_BYTES / 8, 10 * MS).await.unwrap_err().to_string(), TOO_SLOW);
        // Altogether it takes longer than any piece may.
        assert_eq!(fed(200 * MS, PACE_BYTES, 15 * MS).await.unwrap(), 20 * PACE_BYTES);
    }

    #[tokio::test]
    async fn time_in_which_nobody_reads_does_not_count() {
        let (sender, mut sent) = line(20 * MS);
        for _ in 0..3 {
            sender.send(Bytes::from_static(b"x")).unwrap();
            tokio::time::sleep(40 * MS).await;
            assert_eq!(next(&mut sent).await.unwrap().unwrap(), 1);
        }
    }

    fn looked(bodies: &[&[u8]]) -> io::Result<()> {
        let mut chunks = Chunks::default();
        bodies.iter().try_for_each(|bytes| chunks.scan(bytes))
    }

    #[test]
    fn chunks_that_would_be_held_whole_are_small() {
        let body = b"a;chunk-signature=ffffffffff\r\n0123456789\r\n1\r\nx\r\n0;chunk-signature=ff\r\nffffffff:no size\r\n";
        assert!(looked(&[body]).is_ok());
        // However it is cut.
        assert!(body
            .iter()
            .map(std::slice::from_ref)
            .try_fold(Chunks::default(), |mut chunks, byte| chunks.scan(byte).map(|()| chunks))
            .is_ok());
        assert!(looked(&[b"2000000;x\r\n"]).is_ok());
        for large in ["2000001\r\n", "ffffffff;chunk-signature=0\r\n", "FFFFFFFFF\r\n"] {
            assert_eq!(looked(&[large.as_bytes()]).unwrap_err().to_string(), CHUNK_TOO_LARGE);
            let second = format!("2\r\nxx\r\n{large}");
            assert!(looked(&[second.as_bytes()]).is_err());
        }
    }
}
