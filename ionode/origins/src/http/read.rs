//! Reading files over http: ranges over several connections, or one stream where the server gives none.
//!
//! The one rule: bytes go on only from answers that name the content that was asked for, and each once.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{stream, StreamExt, TryStreamExt};
use stager_core::error::{ApiError, Code};

use super::answer;
use super::site::{Answer, Site, Span};
use crate::coalescing_buffer::CoalescingBuffer;
use crate::pacer::Permit;
use crate::path::checked_file;
use crate::{failure, ranges};
use crate::{Entry, Sink};

/// How large a range is asked for: small ones where the line is narrow, so that urgent bytes come soon.
const PIECE_BYTES_MIN: u64 = 1 << 20;
const PIECE_BYTES_MAX: u64 = 8 << 20;
/// Each over a connection of its own; the line is full with fewer, where it is no longer than usual.
const PIECES_IN_FLIGHT: usize = 8;
/// How often a piece goes on where its connection was lost.
const CONTINUED_MAX: usize = 3;

pub async fn fetch(site: &Site, expected: &Entry, ranges: &[Range<u64>], sink: &dyn Sink) -> Result<(), ApiError> {
    let expected = &Entry { path: checked_file(&expected.path)?, ..expected.clone() };
    let read = Reading { site, expected, sink }.all(ranges).await;
    // A changed file explains a failed read, so it is named first; a server that is away would only be waited for again.
    if read
        .as_ref()
        .is_err_and(|error| !matches!(error.code, Code::ShortRead | Code::ConnectionLost | Code::IoError | Code::OriginMisbehaves))
    {
        return read.map(drop);
    }
    if matches!(read, Ok(Seen::Enough)) {
        return Ok(());
    }
    match site.head(&expected.path).await {
        Ok(found) if found.token != expected.token => {
            Err(failure::source_changed(&expected.path, &site.place, &expected.token, &found.token))
        }
        Ok(_) => read.map(drop),
        Err(error) => Err(read.err().unwrap_or(error)),
    }
}

/// What has been seen of the content while it was read.
enum Seen {
    /// One small answer under a strong tag of what the server calls immutable.
    Enough,
    /// It is looked at again: a server may send a file that is being written under the tag that it had before.
    TooLittle,
}

struct Reading<'a> {
    site: &'a Site,
    expected: &'a Entry,
    sink: &'a dyn Sink,
}

/// Why a body was not read to its end.
enum Stopped {
    /// The rest can be asked for again.
    Lost(ApiError),
    Final(ApiError),
}

impl Reading<'_> {
    async fn all(&self, ranges: &[Range<u64>]) -> Result<Seen, ApiError> {
        let mut left = ranges::checked(self.expected, ranges)?;
        let Some((first, permit)) = self.next(&mut left).await else { return Ok(Seen::TooLittle) };
        let answer = self.answer(first.clone(), &permit).await?;
        let soon_over = answer.immutable && left.is_empty() && first.end - first.start <= PIECE_BYTES_MIN;
        let seen = |answers| if soon_over && answers == 1 { Seen::Enough } else { Seen::TooLittle };
        if answer.span == Span::Whole {
            let whole = self.expected.size_bytes <= PIECE_BYTES_MIN;
            return self.stream(answer, ranges, permit).await.map(|()| if whole { seen(1) } else { Seen::TooLittle });
        }
        if left.is_empty() {
            return self.piece(first, permit, Some(answer)).await.map(seen);
        }
        let in_flight = PIECES_IN_FLIGHT.min(self.site.connections_max).max(2) - 1;
        let rest = self.asked(left).map(|(piece, permit)| self.piece(piece, permit, None));
        let rest = rest.buffer_unordered(in_flight).try_for_each(|_| std::future::ready(Ok(())));
        futures::future::try_join(self.piece(first, permit, Some(answer)), rest).await.map(|_| Seen::TooLittle)
    }

    async fn answer(&self, range: Range<u64>, permit: &Permit) -> Result<Answer, ApiError> {
        let answer = self.site.bytes(self.expected, range).await?;
        permit.answered();
        Ok(answer)
    }

    /// The next piece, with its permit.
    async fn next(&self, left: &mut VecDeque<Range<u64>>) -> Option<(Range<u64>, Permit)> {
        let piece = ranges::cut(left, self.sink.pace().piece_bytes(PIECE_BYTES_MIN, PIECE_BYTES_MAX))?;
        let permit = self.sink.pace().ask(piece.end - piece.start).await;
        Some((piece, permit))
    }

    fn asked(&self, left: VecDeque<Range<u64>>) -> BoxStream<'_, (Range<u64>, Permit)> {
        stream::unfold(left, move |mut left| async move { Some((self.next(&mut left).await?, left)) }).boxed()
    }

    /// Goes on where a connection was lost, as long as that helps. Gives how many answers it took.
    async fn piece(&self, piece: Range<u64>, permit: Permit, mut begun: Option<Answer>) -> Result<usize, ApiError> {
        let (path, place) = (self.expected.path.as_str(), self.site.place.as_str());
        let mut buffer = CoalescingBuffer::new(self.sink, piece.clone(), path, place);
        for answers in 1..=CONTINUED_MAX {
            let offset = buffer.reached();
            let mut answer = match begun.take() {
                Some(answer) => answer,
                None => self.answer(offset..piece.end, &permit).await?,
            };
            if answer.span != Span::From(offset) {
                return Err(failure::protocol_broken(path, place, "it gives ranges at one time and none at another"));
            }
            match self.drain(&mut answer, &mut buffer).await {
                Err(Stopped::Final(error)) => return Err(error),
                Err(Stopped::Lost(error)) if error.code != Code::ConnectionLost => return Err(error),
                _ if buffer.is_full() => {
                    permit.complete();
                    return Ok(answers);
                }
                _ => {}
            }
        }
        Err(failure::short_read(path, place, buffer.reached()))
    }

    /// To the end of the answer, so that its connection serves the next.
    async fn drain(&self, answer: &mut Answer, buffer: &mut CoalescingBuffer<'_>) -> Result<(), Stopped> {
        loop {
            let next = self.chunk(answer).await;
            match &next {
                Ok(Some(chunk)) => buffer.push(chunk).await.map_err(Stopped::Final)?,
                _ => {
                    buffer.flush().await.map_err(Stopped::Final)?;
                    return next.map(drop).map_err(Stopped::Lost);
                }
            }
        }
    }

    /// All of the file over one connection; what is not wanted of it is passed over.
    async fn stream(&self, mut answer: Answer, ranges: &[Range<u64>], first: Permit) -> Result<(), ApiError> {
        let end = ranges.iter().map(|range| range.end).max().unwrap_or(0);
        let (mut offset, path) = (0, self.expected.path.as_str());
        let mut kept: Vec<_> =
            ranges.iter().map(|range| (range, CoalescingBuffer::new(self.sink, range.clone(), path, &self.site.place))).collect();
        // What comes without being asked for says nothing of how long the way is: its permits are only waited for.
        let (mut paid, mut permit) = (first.bytes(), Some(first));
        while offset < end {
            let Some(chunk) = self.chunk(&mut answer).await? else {
                return Err(failure::short_read(path, &self.site.place, offset));
            };
            let length = chunk.len() as u64;
            if length > paid {
                drop(permit.take());
                let next = PIECE_BYTES_MIN.max(length - paid);
                permit = self.more(next).await;
                paid += next;
            }
            paid -= length;
            if offset + length > self.expected.size_bytes {
                return Err(self.too_much());
            }
            for (range, buffer) in &mut kept {
                let (start, end) = (range.start.max(offset), range.end.min(offset + length));
                if start < end {
                    buffer.push(&chunk[(start - offset) as usize..(end - offset) as usize]).await?;
                }
            }
            offset += length;
        }
        // Where the answer did not say its length, its end does.
        if end == self.expected.size_bytes && self.chunk(&mut answer).await?.is_some() {
            return Err(self.too_much());
        }
        Ok(())
    }

    /// With a connection in hand. Others wait for one with their permits in hand: while they do, this one waits for none, since neither
    /// would come, and only keeps to the bandwidth.
    async fn more(&self, bytes: u64) -> Option<Permit> {
        let pace = self.sink.pace();
        tokio::select! {
            biased;
            permit = pace.ask(bytes) => Some(permit),
            () = self.site.requests.wanted() => {
                pace.pass(bytes).await;
                None
            }
        }
    }

    async fn chunk(&self, answer: &mut Answer) -> Result<Option<Bytes>, ApiError> {
        answer.response.chunk().await.map_err(|error| answer::failure_of(&error, &self.expected.path, &self.site.place))
    }

    fn too_much(&self) -> ApiError {
        failure::protocol_broken(&self.expected.path, &self.site.place, "it sent more bytes than were asked for")
    }
}
