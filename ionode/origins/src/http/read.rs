//! Reading files over http: ranges over several connections, or one stream where the server gives none.
//!
//! The one rule: bytes go on only from answers that name the content that was asked for, and each once.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::{Bytes, BytesMut};
use futures::stream::BoxStream;
use futures::{stream, StreamExt, TryStreamExt};
use stager_core::error::ApiError;

use super::answer;
use super::site::{Answer, Site, Span};
use crate::pace::Flight;
use crate::path::checked_file;
use crate::{failure, ranges};
use crate::{Entry, Sink};

/// How large a range is asked for: small ones where the line is narrow, so that urgent bytes come soon.
const PIECE_BYTES_MIN: u64 = 1 << 20;
const PIECE_BYTES_MAX: u64 = 8 << 20;
/// Each over a connection of its own; the line is full with fewer, where it is no longer than usual.
const PIECES_IN_FLIGHT: usize = 8;
/// What comes off the network is a few KiB at a time: handed on one by one, that would cost more than the way here.
const GATHER_BYTES: usize = 128 << 10;
/// How often a piece goes on where its connection was lost.
const CONTINUED_MAX: usize = 3;

pub async fn fetch(site: &Site, expected: &Entry, ranges: &[Range<u64>], sink: &dyn Sink) -> Result<(), ApiError> {
    let expected = &Entry { path: checked_file(&expected.path)?, ..expected.clone() };
    let read = Reading { site, expected, sink }.all(ranges).await;
    // A changed file explains a failed read, so it is named first; a server that is away would only be waited for again.
    if read.as_ref().is_err_and(|error| !matches!(error.code.as_str(), "short_read" | "connection_lost" | "io_error")) {
        return read;
    }
    match site.head(&expected.path).await {
        Ok(found) if found.token != expected.token => {
            Err(failure::source_changed(&expected.path, &site.place, &expected.token, &found.token))
        }
        Ok(_) => read,
        Err(error) => Err(read.err().unwrap_or(error)),
    }
}

struct Reading<'a> {
    site: &'a Site,
    expected: &'a Entry,
    sink: &'a dyn Sink,
}

/// Why a body was not read to its end.
enum Stopped {
    ByServer(ApiError),
    BySink(ApiError),
}

impl Reading<'_> {
    async fn all(&self, ranges: &[Range<u64>]) -> Result<(), ApiError> {
        let mut left = ranges::checked(self.expected, ranges)?;
        let Some((first, flight)) = self.next(&mut left).await else { return Ok(()) };
        let answer = self.site.bytes(self.expected, first.clone()).await?;
        if answer.span == Span::Whole {
            return self.stream(answer, ranges, flight).await;
        }
        let in_flight = PIECES_IN_FLIGHT.min(self.site.connections_max).max(2) - 1;
        let rest = self.asked(left).map(|(piece, flight)| self.piece(piece, flight, None));
        let rest = rest.buffer_unordered(in_flight).try_for_each(|()| std::future::ready(Ok(())));
        futures::future::try_join(self.piece(first, flight, Some(answer)), rest).await.map(|_| ())
    }

    /// The next piece, when it is its turn.
    async fn next(&self, left: &mut VecDeque<Range<u64>>) -> Option<(Range<u64>, Flight)> {
        let piece = ranges::cut(left, self.site.pace.piece_bytes(PIECE_BYTES_MIN, PIECE_BYTES_MAX))?;
        let flight = self.site.pace.fly(piece.end - piece.start, self.sink.urgency()).await;
        Some((piece, flight))
    }

    fn asked(&self, left: VecDeque<Range<u64>>) -> BoxStream<'_, (Range<u64>, Flight)> {
        stream::unfold(left, move |mut left| async move { Some((self.next(&mut left).await?, left)) }).boxed()
    }

    /// Goes on where a connection was lost, as long as that helps.
    async fn piece(&self, piece: Range<u64>, flight: Flight, mut begun: Option<Answer>) -> Result<(), ApiError> {
        let mut offset = piece.start;
        for _ in 0..CONTINUED_MAX {
            let mut answer = match begun.take() {
                Some(answer) => answer,
                None => self.site.bytes(self.expected, offset..piece.end).await?,
            };
            if answer.span != Span::From(offset) {
                return Err(failure::protocol_broken(
                    &self.expected.path,
                    &self.site.place,
                    "it gives ranges at one time and none at another",
                ));
            }
            match self.drain(&mut answer, &mut offset, piece.end).await {
                Err(Stopped::BySink(error)) => return Err(error),
                Err(Stopped::ByServer(error)) if error.code != "connection_lost" => return Err(error),
                _ if offset == piece.end => {
                    flight.landed();
                    return Ok(());
                }
                _ => {}
            }
        }
        Err(failure::short_read(&self.expected.path, &self.site.place, offset))
    }

    async fn drain(&self, answer: &mut Answer, offset: &mut u64, end: u64) -> Result<(), Stopped> {
        let mut gathered = BytesMut::new();
        loop {
            let next = self.chunk(answer).await;
            if let Ok(Some(chunk)) = &next {
                gathered.extend_from_slice(chunk);
            }
            let (come, goes_on) = (*offset + gathered.len() as u64, matches!(next, Ok(Some(_))));
            if come > end {
                return Err(Stopped::ByServer(self.too_much()));
            }
            // What came before a connection was lost is kept, too.
            if come > *offset && (!goes_on || come == end || gathered.len() >= GATHER_BYTES) {
                self.sink.write_at(*offset, gathered.split().freeze()).await.map_err(Stopped::BySink)?;
                *offset = come;
            }
            if !goes_on {
                return next.map(drop).map_err(Stopped::ByServer);
            }
        }
    }

    /// All of the file over one connection; what is not wanted of it is passed over.
    async fn stream(&self, mut answer: Answer, ranges: &[Range<u64>], first: Flight) -> Result<(), ApiError> {
        let end = ranges.iter().map(|range| range.end).max().unwrap_or(0);
        let (mut offset, path) = (0, self.expected.path.as_str());
        // What comes without being asked for says nothing of how long the way is: its turns are only waited for.
        let (mut paid, mut flight) = (first.bytes(), Some(first));
        while offset < end {
            let Some(chunk) = self.chunk(&mut answer).await? else {
                return Err(failure::short_read(path, &self.site.place, offset));
            };
            let length = chunk.len() as u64;
            if length > paid {
                drop(flight.take());
                let next = PIECE_BYTES_MIN.max(length - paid);
                flight = Some(self.site.pace.fly(next, self.sink.urgency()).await);
                paid += next;
            }
            paid -= length;
            if offset + length > self.expected.size_bytes {
                return Err(self.too_much());
            }
            self.keep(offset, &chunk, ranges).await?;
            offset += length;
        }
        // Where the answer did not say its length, its end does.
        if end == self.expected.size_bytes && self.chunk(&mut answer).await?.is_some() {
            return Err(self.too_much());
        }
        Ok(())
    }

    async fn keep(&self, offset: u64, chunk: &Bytes, ranges: &[Range<u64>]) -> Result<(), ApiError> {
        let span = offset..offset + chunk.len() as u64;
        for range in ranges {
            let (start, end) = (range.start.max(span.start), range.end.min(span.end));
            if start < end {
                self.sink.write_at(start, chunk.slice((start - offset) as usize..(end - offset) as usize)).await?;
            }
        }
        Ok(())
    }

    async fn chunk(&self, answer: &mut Answer) -> Result<Option<Bytes>, ApiError> {
        answer.response.chunk().await.map_err(|error| answer::failure_of(&error, &self.expected.path, &self.site.place))
    }

    fn too_much(&self) -> ApiError {
        failure::protocol_broken(&self.expected.path, &self.site.place, "it sent more bytes than were asked for")
    }
}
