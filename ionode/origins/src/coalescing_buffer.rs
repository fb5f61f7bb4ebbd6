//! What comes off a network, a few KiB at a time, collected into pieces: handed on one by one, that would cost more than the way here.
//!
//! The one rule: bytes of the span that was asked for go on in their order, each once, and nothing beyond it does.

use std::ops::Range;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use stager_core::error::ApiError;

use crate::{failure, Sink};

const PIECE_BYTES: usize = 512 << 10;
/// On a slow line: who waits for bytes sees that some come.
const HELD_MAX: Duration = Duration::from_millis(250);

pub struct CoalescingBuffer<'a> {
    sink: &'a dyn Sink,
    /// For errors.
    path: &'a str,
    place: &'a str,
    /// What lies before it has been handed on.
    flushed: u64,
    end: u64,
    held: BytesMut,
    held_since: Instant,
    held_max: Duration,
}

impl<'a> CoalescingBuffer<'a> {
    pub fn new(sink: &'a dyn Sink, span: Range<u64>, path: &'a str, place: &'a str) -> Self {
        let (held, held_since) = (BytesMut::new(), Instant::now());
        Self { sink, path, place, flushed: span.start, end: span.end, held, held_since, held_max: HELD_MAX }
    }

    /// What lies before it has come.
    pub fn reached(&self) -> u64 {
        self.flushed + self.held.len() as u64
    }

    pub fn is_full(&self) -> bool {
        self.reached() == self.end
    }

    /// The last of the span is handed on at once. An error is final: the answer is no good, or the sink is none.
    pub async fn push(&mut self, chunk: &[u8]) -> Result<(), ApiError> {
        let left = self.end - self.reached();
        if chunk.len() as u64 > left {
            return Err(failure::protocol_broken(self.path, self.place, "it sent more bytes than were asked for"));
        }
        if self.held.is_empty() {
            self.held.reserve(left.min(PIECE_BYTES as u64) as usize);
            self.held_since = Instant::now();
        }
        self.held.extend_from_slice(chunk);
        match self.is_full() || self.held.len() >= PIECE_BYTES || self.held_since.elapsed() >= self.held_max {
            true => self.flush().await,
            false => Ok(()),
        }
    }

    /// What has come so far: of an answer that was cut off, too.
    pub async fn flush(&mut self) -> Result<(), ApiError> {
        if self.held.is_empty() {
            return Ok(());
        }
        let (at, piece) = (self.flushed, self.held.split().freeze());
        self.flushed += piece.len() as u64;
        self.sink.write_at(at, piece).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use async_trait::async_trait;
    use bytes::Bytes;

    use super::*;

    #[derive(Default)]
    struct Seen(Mutex<Vec<(u64, Bytes)>>);

    #[async_trait]
    impl Sink for Seen {
        async fn write_at(&self, offset: u64, chunk: Bytes) -> Result<(), ApiError> {
            self.0.lock().unwrap().push((offset, chunk));
            Ok(())
        }
    }

    impl Seen {
        fn spans(&self) -> Vec<(u64, usize)> {
            self.0.lock().unwrap().iter().map(|(offset, chunk)| (*offset, chunk.len())).collect()
        }
    }

    /// Slow is what the test calls slow, however long a busy machine takes between two chunks.
    fn buffer(seen: &Seen, span: Range<u64>, held_max: Duration) -> CoalescingBuffer<'_> {
        CoalescingBuffer { held_max, ..CoalescingBuffer::new(seen, span, "f", "here") }
    }

    #[tokio::test]
    async fn many_small_chunks_go_on_as_few_pieces_and_the_last_at_once() {
        let (seen, bytes) = (Seen::default(), crate::conformance::content(1, PIECE_BYTES + 5_000));
        let mut buffer = buffer(&seen, 100..100 + bytes.len() as u64, Duration::MAX);
        for chunk in bytes.chunks(4096) {
            buffer.push(chunk).await.unwrap();
        }
        assert!(buffer.is_full());
        assert_eq!(seen.spans(), [(100, PIECE_BYTES), (100 + PIECE_BYTES as u64, 5_000)]);
        assert!(seen.0.lock().unwrap().iter().flat_map(|(_, chunk)| chunk.to_vec()).eq(bytes));
        assert_eq!(buffer.push(b"x").await.unwrap_err().code.as_str(), "io_error");
        assert_eq!(seen.spans().len(), 2, "more than was asked for went on");
    }

    #[tokio::test]
    async fn what_came_before_an_answer_was_cut_off_goes_on_and_the_rest_after_it() {
        let seen = Seen::default();
        let mut buffer = buffer(&seen, 0..8, Duration::MAX);
        buffer.push(b"abc").await.unwrap();
        assert_eq!((buffer.reached(), seen.spans().len()), (3, 0));
        buffer.flush().await.unwrap();
        buffer.flush().await.unwrap();
        assert!(buffer.push(b"defghi").await.is_err());
        buffer.push(b"defgh").await.unwrap();
        assert_eq!(seen.spans(), [(0, 3), (3, 5)]);
    }

    #[tokio::test]
    async fn what_comes_slowly_is_not_held_until_there_is_much_of_it() {
        let seen = Seen::default();
        let mut buffer = buffer(&seen, 0..1 << 20, Duration::MAX);
        buffer.push(b"abc").await.unwrap();
        assert!(seen.spans().is_empty());
        buffer.held_max = Duration::from_millis(10);
        tokio::time::sleep(buffer.held_max).await;
        buffer.push(b"de").await.unwrap();
        assert_eq!(seen.spans(), [(0, 5)]);
    }
}
