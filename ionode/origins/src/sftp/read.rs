//! Reading files over SFTP: many requests in flight, over several connections where the way is long.
//!
//! The one rule: bytes go on only while the file is the one that was asked for, looked at before and after.

use std::collections::VecDeque;
use std::future::Future;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::future::{BoxFuture, Shared};
use futures::stream::BoxStream;
use futures::{stream, FutureExt, Stream, StreamExt, TryStreamExt};
use russh_sftp::client::error::Error as SftpError;
use russh_sftp::protocol::{OpenFlags, StatusCode};
use stager_core::error::ApiError;

use super::link::Link;
use super::opened::Opened;
use super::pool::{Lease, Pool, Work};
use super::session::Held;
use super::site::Site;
use crate::compared::{compare, Compared, Reading};
use crate::failure;
use crate::pacer::Permit;
use crate::path::checked_file;
use crate::ranges::pieces;
use crate::{Entry, Pace, Sink, Upload};

pub const IN_FLIGHT: usize = 32;
/// A file of so few pieces is asked for as a whole, and looked at in the same breath.
pub const SMALL_PIECES: usize = 4;
/// One connection moves at most a window (2 MiB at OpenSSH) per round trip: on a long way a large file is worth several.
const FAR: Duration = Duration::from_millis(5);
const LARGE_BYTES: u64 = 32 << 20;

pub fn connections_worth(link: &Link, size_bytes: u64, connections_max: usize) -> usize {
    if link.round_trip >= FAR && size_bytes >= LARGE_BYTES {
        connections_max
    } else {
        1
    }
}

struct Job<'a> {
    pool: &'a Arc<Pool>,
    site: &'a Site,
    expected: &'a Entry,
    remote: String,
    queue: Mutex<VecDeque<Range<u64>>>,
    sink: &'a dyn Sink,
}

pub async fn fetch(pool: &Arc<Pool>, site: &Site, expected: &Entry, ranges: &[Range<u64>], sink: &dyn Sink) -> Result<(), ApiError> {
    let remote = site.remote(&checked_file(&expected.path)?);
    let lease = pool.lease(Work::Bulk).await?;
    let link = lease.link.clone();
    let pieces = pieces(expected, ranges, link.read_bytes)?;
    if pieces.len() <= SMALL_PIECES && small(site, &link, expected, &remote, &pieces, sink).await? {
        return Ok(());
    }
    let job = Job { pool, site, expected, remote, queue: Mutex::new(pieces.into()), sink };
    let wanted: u64 = ranges.iter().map(|range| range.end - range.start).sum();
    let extra = connections_worth(&link, wanted, pool.connections_max()).saturating_sub(1);
    let read = futures::future::try_join(job.lane(lease), job.more_lanes(extra)).await;
    // A dead link explains itself, and would only be waited for again.
    if !link.is_alive() {
        read?;
        return Err(link.lost(&expected.path));
    }
    // A changed file explains a failed read, so it is named first.
    match site.stat_on(&link, &job.expected.path).await {
        Ok(found) => site.same_token(expected, &found)?,
        Err(error) => return Err(read.err().unwrap_or(error)),
    }
    read.map(|_| ())
}

/// Two round trips: the open, then all the rest at once. A server answers requests for one file in the order they were sent in (section 7 of
/// the protocol's draft), so the file that was read is looked at after its bytes were: it had the token when it was first looked at, and has
/// it still. `false`: not every answer was whole, so nothing was taken of them; a server may do so, and it is asked again piece by piece.
async fn small(
    site: &Site,
    link: &Arc<Link>,
    expected: &Entry,
    remote: &str,
    pieces: &[Range<u64>],
    sink: &dyn Sink,
) -> Result<bool, ApiError> {
    let path = expected.path.as_str();
    let bytes = pieces.iter().map(|piece| piece.end - piece.start).sum();
    let opened = Opened::file(link, remote, OpenFlags::READ, None).await.map_err(|error| link.failure(error, path))?;
    let permit = sink.pace().ask(bytes).await;
    let handle = opened.handle.clone();
    let read = |piece: &Range<u64>| link.sftp.read(handle.clone(), piece.start, (piece.end - piece.start) as u32);
    let reads = futures::future::join_all(pieces.iter().map(read));
    // Polled in this order, and each sends its request when it is first polled.
    let (read, after, _) = futures::join!(reads, link.sftp.fstat(handle.clone()), opened.close());
    permit.complete();
    let after = after.map_err(|error| link.failure(error, path))?;
    site.same_token(expected, &site.entry(path, &after.attrs).ok_or_else(|| failure::not_found(path, &site.place))?)?;
    let mut chunks = Vec::with_capacity(pieces.len());
    for (piece, read) in pieces.iter().zip(read) {
        match read {
            Ok(data) if data.data.len() as u64 == piece.end - piece.start => chunks.push((piece.start, Bytes::from(data.data))),
            Ok(_) | Err(SftpError::Status(_)) => return Ok(false),
            Err(error) => return Err(link.failure(error, path)),
        }
    }
    for (offset, chunk) in chunks {
        sink.write_at(offset, chunk).await?;
    }
    Ok(true)
}

impl Job<'_> {
    /// The pieces, each with its permit.
    fn asked(&self) -> BoxStream<'_, (Range<u64>, Permit)> {
        self.sink.pace().permitted(stream::unfold((), move |()| async move { Some((self.next()?, ())) }))
    }

    fn next(&self) -> Option<Range<u64>> {
        self.queue.lock().expect("no holder panics").pop_front()
    }

    fn more_lanes(&self, count: usize) -> BoxFuture<'_, Result<(), ApiError>> {
        async move {
            if count == 0 || self.queue.lock().expect("no holder panics").is_empty() {
                return Ok(());
            }
            let Some(lease) = self.pool.another().await else { return Ok(()) };
            futures::future::try_join(self.lane(lease), self.more_lanes(count - 1)).await.map(|_| ())
        }
        .boxed()
    }

    async fn lane(&self, lease: Lease) -> Result<(), ApiError> {
        let (path, link) = (self.expected.path.as_str(), &lease.link);
        let opened = Opened::file(link, &self.remote, OpenFlags::READ, None).await.map_err(|error| link.failure(error, path))?;
        let checked = check_opened(self.site, &opened, self.expected).boxed().shared();
        let reading = self.asked().map(|(piece, permit)| self.read(&opened, piece, permit, checked.clone()));
        let reading = reading.buffer_unordered(IN_FLIGHT).try_for_each(|()| std::future::ready(Ok(())));
        // Polled in this order: the check is asked for first.
        futures::future::try_join(checked.clone(), reading).await.map(|_| ())
    }

    /// Asked for behind the check of the file, not after its answer, and counts only then.
    async fn read(&self, opened: &Opened, piece: Range<u64>, permit: Permit, checked: Checked<'_>) -> Result<(), ApiError> {
        let offset = piece.start;
        let chunk = read_piece(self.site, &opened.link, &opened.handle, &self.expected.path, piece).await?;
        permit.complete();
        checked.await?;
        self.sink.write_at(offset, chunk).await
    }
}

type Checked<'a> = Shared<BoxFuture<'a, Result<(), ApiError>>>;

/// Whether what was opened is what is expected.
async fn check_opened(site: &Site, opened: &Opened, expected: &Entry) -> Result<(), ApiError> {
    let path = expected.path.as_str();
    let attributes = opened.link.sftp.fstat(opened.handle.clone()).await.map_err(|error| opened.link.failure(error, path))?;
    match site.entry(path, &attributes.attrs) {
        Some(found) => site.same_token(expected, &found),
        None => Err(failure::not_found(path, &site.place)),
    }
}

async fn open_expected(site: &Site, link: &Arc<Link>, expected: &Entry, remote: &str) -> Result<Opened, ApiError> {
    let opened = Opened::file(link, remote, OpenFlags::READ, None).await.map_err(|error| link.failure(error, &expected.path))?;
    check_opened(site, &opened, expected).await.map(|()| opened)
}

/// A server may answer with less than was asked for; the rest is asked again.
async fn read_piece(site: &Site, link: &Link, handle: &Held, path: &str, piece: Range<u64>) -> Result<Bytes, ApiError> {
    let mut chunk: Vec<u8> = Vec::new();
    loop {
        let start = piece.start + chunk.len() as u64;
        match link.sftp.read(handle.clone(), start, (piece.end - start) as u32).await {
            Ok(data) if data.data.is_empty() => return Err(failure::short_read(path, &site.place, start)),
            Ok(data) if chunk.is_empty() => chunk = data.data,
            Ok(data) => chunk.extend(data.data),
            Err(SftpError::Status(status)) if status.status_code == StatusCode::Eof => {
                return Err(failure::short_read(path, &site.place, start))
            }
            Err(error) => return Err(link.failure(error, path)),
        }
        match (piece.end - piece.start).cmp(&(chunk.len() as u64)) {
            std::cmp::Ordering::Equal => return Ok(Bytes::from(chunk)),
            std::cmp::Ordering::Greater => {}
            std::cmp::Ordering::Less => return Err(failure::protocol_broken(path, &site.place, "it sent more bytes than were asked for")),
        }
    }
}

/// The content of an open file, hashed in order while many reads are in flight.
pub async fn hash(site: &Site, opened: &Opened, path: &str, size_bytes: u64, pace: &Pace) -> Result<blake3::Hash, ApiError> {
    let starts = stream::iter((0..size_bytes).step_by(opened.link.read_bytes as usize));
    hash_of(site, opened, path, size_bytes, pace, starts, |_| ()).await
}

/// The same of pieces that may be read one after another. `came` is told of the bytes of each.
pub async fn hash_of(
    site: &Site,
    opened: &Opened,
    path: &str,
    size_bytes: u64,
    pace: &Pace,
    starts: impl Stream<Item = u64>,
    came: impl Fn(u64),
) -> Result<blake3::Hash, ApiError> {
    let step = opened.link.read_bytes;
    let paced = |start: u64| read_paced(site, opened, path, start..(start + step).min(size_bytes), pace);
    let mut chunks = std::pin::pin!(starts.map(paced).buffered(IN_FLIGHT));
    let mut hasher = blake3::Hasher::new();
    while let Some(chunk) = chunks.try_next().await? {
        came(chunk.len() as u64);
        hasher.update(&chunk);
    }
    Ok(hasher.finalize())
}

async fn read_paced(site: &Site, opened: &Opened, path: &str, piece: Range<u64>, pace: &Pace) -> Result<Bytes, ApiError> {
    let permit = pace.ask(piece.end - piece.start).await;
    let chunk = read_piece(site, &opened.link, &opened.handle, path, piece).await?;
    permit.complete();
    pace.was_read_back(chunk.len() as u64);
    Ok(chunk)
}

/// What an entry is of, and nothing that has come in its place, beside what is to be uploaded.
pub async fn compared(
    site: &Site,
    link: &Arc<Link>,
    entry: &Entry,
    remote: &str,
    upload: &Upload<'_>,
    told: impl Future<Output = Result<Option<bool>, ApiError>> + Send,
) -> Result<Compared, ApiError> {
    let opened = open_expected(site, link, entry, remote).await?;
    let reading = Reading { step_bytes: link.read_bytes, steps_at_once: 1, in_flight: IN_FLIGHT };
    let compared = compare(upload, reading, |piece| read_paced(site, &opened, &entry.path, piece, &upload.pace), told).await?;
    if compared.is_same {
        site.same_token(entry, &site.stat_on(link, &entry.path).await?)?;
    }
    Ok(compared)
}

/// Of what an entry is of, and of nothing that has come in its place.
pub async fn content_hash(site: &Site, link: &Arc<Link>, entry: &Entry, remote: &str, pace: &Pace) -> Result<blake3::Hash, ApiError> {
    let opened = open_expected(site, link, entry, remote).await?;
    let found = hash(site, &opened, &entry.path, entry.size_bytes, pace).await?;
    site.same_token(entry, &site.stat_on(link, &entry.path).await?)?;
    Ok(found)
}
