//! An upload over SFTP: temporary name, pipelined writes, fsync, verify at the server or through another handle, rename, stat.
//!
//! The one rule: the final name appears by one rename of content the server was seen to hold, and never over a file nobody allowed to
//! replace.
//!
//! A small file costs round trips, not bytes. So what does not need the answer of another request goes out with it: `futures::join!` polls in
//! the order that is written there, and each request is sent when it is first polled. What was asked for too early is asked again.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, TryStreamExt};
use russh_sftp::client::error::Error as SftpError;
use russh_sftp::protocol::OpenFlags;
use stager_core::error::{ApiError, Code};

use super::directories::Directories;
use super::link::Link;
use super::opened::{put_on_disk, Opened};
use super::pool::{Lease, Pool};
use super::range_sums::{Answered, RangeSums};
use super::read::{compared, connections_worth, content_hash, hash, IN_FLIGHT, SMALL_PIECES};
use super::read_back::ReadBack;
use super::shell::Shell;
use super::site::Site;
use crate::compared::{unpaced, Compared, There};
use crate::failure;
use crate::local::{Hashes, LocalFile, Sha256Of, Source};
use crate::path::{checked_file, join, split, temporary_of};
use crate::path_locks::{PathGuard, PathLocks};
use crate::{EntryKind, Synced, Upload, Uploaded, Verified};

pub struct Uploads {
    site: Arc<Site>,
    pool: Arc<Pool>,
    shell: Arc<Shell>,
    directories: Arc<Directories>,
    locks: PathLocks,
    /// How often a file was read in vain while it was written, since it last was not.
    read_in_vain: AtomicU32,
}

/// A line that breaks may do so while a file is read. A server that never answers a read of what is being written does it each time.
const READ_IN_VAIN_MAX: u32 = 2;
/// A larger file is checked by ranges, so that little is left to hash when all of it is there.
const RANGED_BYTES: u64 = 32 << 20;

struct Job<'a> {
    by: &'a Uploads,
    site: &'a Arc<Site>,
    upload: &'a Upload<'a>,
    path: String,
    temporary: String,
}

/// A file on its way, and how it is looked at meanwhile: the shell is asked, or it is read back where that is of no help.
struct Sending {
    source: Source,
    sums: Option<RangeSums>,
    back: Option<ReadBack>,
}

/// What that came to.
#[derive(Default)]
struct LookedAt {
    said: Option<Answered>,
    read: Option<Read>,
}

struct Read {
    /// None: the server did not let it be read.
    hash: Option<blake3::Hash>,
    bytes: u64,
}

impl Uploads {
    pub fn new(site: Arc<Site>, pool: Arc<Pool>, shell: Arc<Shell>, directories: Arc<Directories>) -> Self {
        Self { site, pool, shell, directories, locks: PathLocks::default(), read_in_vain: AtomicU32::new(0) }
    }

    pub async fn upload(&self, upload: &Upload<'_>) -> Result<Uploaded, ApiError> {
        let path = checked_file(upload.path)?;
        let guard = self.locks.lock(&path).await;
        let (lease, place) = self.pool.lease_to_write(upload.size_bytes).await?;
        let (site, link) = (&self.site, lease.link.clone());
        let temporary = join(split(&path).0, &temporary_of(&path, upload.transfer_id));
        let job = Job { by: self, site, upload, path, temporary };
        let (there, created) = futures::join!(job.existing(&link), job.create(&link));
        let bytes_read = match there {
            Ok(There::Other { bytes_read }) => bytes_read,
            Ok(There::Adopted(adopted)) => {
                drop(created);
                job.remove_temporary(&link).await;
                return Ok(adopted);
            }
            Err(error) => {
                drop(created);
                job.remove_temporary(&link).await;
                return Err(error);
            }
        };
        let created = created.map(|opened| opened.holding(place));
        let result = job.write_and_publish(created, lease, guard).await;
        if result.is_err() {
            job.remove_temporary(&link).await;
        }
        match result {
            // Somebody else made the file meanwhile: theirs may be the same.
            Err(error) if error.code == Code::DestinationExists => match job.existing(&link).await? {
                There::Adopted(adopted) => Ok(adopted),
                There::Other { .. } => Err(error),
            },
            other => other.map(|uploaded| Uploaded { bytes_moved: uploaded.bytes_moved + bytes_read, ..uploaded }),
        }
    }
}

fn named(name: bool) -> Synced {
    if name {
        Synced::ContentAndName
    } else {
        Synced::Content
    }
}

impl Job<'_> {
    /// Adopts equal content; other content is an error unless it may be replaced.
    async fn existing(&self, link: &Arc<Link>) -> Result<There, ApiError> {
        let (site, path, size_bytes) = (self.site, self.path.as_str(), self.upload.size_bytes);
        let entry = match site.stat_on(link, path).await {
            Ok(entry) => entry,
            Err(error) if error.code == Code::NotFound => return Ok(There::Other { bytes_read: 0 }),
            Err(error) => return Err(error),
        };
        if entry.kind == EntryKind::Directory {
            return Err(failure::is_directory(path, &site.place));
        }
        let compared = match entry.size_bytes == size_bytes {
            true => compared(site, link, &entry, &site.remote(path), self.upload, self.told_by_shell(link)).await?,
            false => Compared::OTHER_SIZE,
        };
        if compared.is_same {
            let synced = self.put_on_disk(link).await;
            let (verified, bytes_moved) = (Verified::Adopted, compared.bytes_read);
            return Ok(There::Adopted(Uploaded { token: entry.token, verified, synced, bytes_moved }));
        }
        if self.upload.replace {
            Ok(There::Other { bytes_read: compared.bytes_read })
        } else {
            Err(failure::destination_exists(path, &site.place))
        }
    }

    /// Whether the server's shell finds the same there.
    async fn told_by_shell(&self, link: &Link) -> Result<Option<bool>, ApiError> {
        if !self.by.shell.is_usable() {
            return Ok(None);
        }
        let source = unpaced(self.upload).await?.source(link.write_bytes as usize, Sha256Of::All);
        while source.next().await?.is_some() {}
        let ours = self.sent(&source).await?.sha256;
        let theirs = self.by.shell.sha256(link, &self.site.remote(&self.path), self.upload.size_bytes).await;
        Ok(theirs.map(|theirs| Some(theirs) == ours))
    }

    /// What an earlier try may have left between its link and its remove, too.
    async fn remove_temporary(&self, link: &Link) {
        if link.is_alive() {
            link.sftp.remove(self.site.remote(&self.temporary)).await.ok();
        }
    }

    /// Whoever wrote it may not have done so. What a server cannot do it answers with an error.
    async fn put_on_disk(&self, link: &Arc<Link>) -> Synced {
        if !put_on_disk(link, &self.site.remote(&self.path)).await {
            return Synced::Nothing;
        }
        named(self.by.directories.put_names_on_disk(link, split(&self.path).0).await)
    }

    async fn write_and_publish(&self, created: Result<Opened, ApiError>, lease: Lease, guard: PathGuard) -> Result<Uploaded, ApiError> {
        let (link, first) = (lease.link.clone(), created?);
        self.check_destination_early(&first).await?;
        let sending = self.sending(&link).await?;
        let (hashes, seen, looked_at) = match self.is_small(&link) {
            true => self.write_at_once(&sending.source, first).await.map(|(hashes, seen)| (hashes, seen, LookedAt::default()))?,
            false => self.write_in_pieces(&link, sending, first).await?,
        };
        let (verified, bytes_read) = self.verify(&link, &hashes, looked_at).await?;
        self.refuse_newer(&link).await?;
        let (token, synced) = self.publish(link, guard, seen).await?;
        Ok(Uploaded { token, verified, synced, bytes_moved: self.upload.size_bytes + bytes_read })
    }

    /// A fresh file each time: requests of a cancelled try may still be writing to the old one.
    async fn create(&self, link: &Arc<Link>) -> Result<Opened, ApiError> {
        let remote = self.site.remote(&self.temporary);
        let flags = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::EXCLUDE;
        let mode = Some(if self.upload.executable { 0o777 } else { 0o666 });
        let first = match Opened::file(link, &remote, flags, mode).await {
            Ok(opened) => return Ok(opened),
            Err(error) => link.failure(error, &self.path),
        };
        match first.code {
            Code::NotFound => self.by.directories.make(link, split(&self.path).0).await?,
            Code::IoError => drop(link.sftp.remove(remote.clone()).await),
            _ => return Err(first),
        }
        match Opened::file(link, &remote, flags, mode).await {
            Ok(opened) => Ok(opened),
            Err(error) => Err(self.site.or_full(link, link.failure(error, &self.path), self.upload.size_bytes).await),
        }
    }

    /// Before it is sent, if that may be in vain. The stamp of the new file tells the server's clock.
    async fn check_destination_early(&self, first: &Opened) -> Result<(), ApiError> {
        if self.upload.made.is_none() {
            return Ok(());
        }
        let link = &first.link;
        let seen = link.sftp.fstat(first.handle.clone()).await.map_err(|error| link.failure(error, &self.path))?;
        self.site.learn_clock(&seen.attrs);
        self.refuse_newer(link).await
    }

    async fn refuse_newer(&self, link: &Link) -> Result<(), ApiError> {
        let Some(made) = self.upload.made else { return Ok(()) };
        match self.site.stat_on(link, &self.path).await {
            Ok(found) => made.refuse_newer(&found, self.site.now_s(), &self.site.place),
            Err(error) if error.code == Code::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Opened when there is a handle at the server to write it to: a small file is read at once, and thousands may wait for their handle.
    async fn sending(&self, link: &Link) -> Result<Sending, ApiError> {
        let (size_bytes, shell) = (self.upload.size_bytes, &self.by.shell);
        let place = if size_bytes > RANGED_BYTES && shell.takes_ranges() { link.sums.place_for_ranges() } else { None };
        let sha256_of = match place {
            Some(_) => Sha256Of::EachRange,
            None if shell.is_usable() => Sha256Of::All,
            None => Sha256Of::Nothing,
        };
        let source = LocalFile::open(self.upload).await?.source(link.write_bytes as usize, sha256_of);
        let sums = place.map(|place| link.sums.of_ranges(place, &self.site.remote(&self.temporary), &source, size_bytes));
        let may_read = sha256_of != Sha256Of::All && self.by.read_in_vain.load(Ordering::Relaxed) < READ_IN_VAIN_MAX;
        Ok(Sending { source, sums, back: may_read.then(ReadBack::new) })
    }

    fn is_small(&self, link: &Link) -> bool {
        self.upload.size_bytes <= SMALL_PIECES as u64 * link.write_bytes
    }

    /// What all that was handed out hashes to.
    async fn sent(&self, source: &Source) -> Result<Hashes, ApiError> {
        let hashes = source.hashes().await;
        if hashes.blake3 == self.upload.blake3 {
            Ok(hashes)
        } else {
            Err(source.damaged())
        }
    }

    /// All pieces and what settles them in one breath: a server answers requests for one file in the order they were sent in (section 7 of
    /// the protocol's draft). One that does not is found out by the size that it saw, or when the content is verified.
    async fn write_at_once(&self, source: &Source, first: Opened) -> Result<(Hashes, String), ApiError> {
        let pieces: Vec<(u64, Bytes)> = source.pieces().try_collect().await?;
        let hashes = self.sent(source).await?;
        let permit = self.upload.pace.send(self.upload.size_bytes.max(1)).await;
        let (link, handle) = (first.link.clone(), first.handle.clone());
        let write = |(offset, piece): (u64, Bytes)| link.sftp.write(handle.clone(), offset, piece.to_vec());
        let written = futures::future::join_all(pieces.into_iter().map(write));
        let (written, seen) = futures::join!(written, self.settle(first));
        if let Some(error) = written.into_iter().find_map(Result::err) {
            return Err(self.site.or_full(&link, link.failure(error, &self.path), self.upload.size_bytes).await);
        }
        permit.complete();
        (self.upload.progress)(self.upload.size_bytes);
        Ok((hashes, seen?))
    }

    async fn write_in_pieces(&self, link: &Arc<Link>, sending: Sending, first: Opened) -> Result<(Hashes, String, LookedAt), ApiError> {
        let extra = connections_worth(link, self.upload.size_bytes, self.by.pool.connections_max()).saturating_sub(1);
        let writing = async {
            futures::future::try_join(self.lane(&sending, &first), self.more_lanes(&sending, extra)).await?;
            Ok((self.sent(&sending.source).await?, self.settle(first).await?))
        };
        let looking = self.look_at(link, &sending).map(Ok);
        let written = futures::future::try_join(writing, looking).await;
        if sending.back.as_ref().is_some_and(ReadBack::has_begun) && !link.is_alive() {
            self.by.read_in_vain.fetch_add(1, Ordering::Relaxed);
        }
        written.map(|((hashes, seen), looked_at)| (hashes, seen, looked_at))
    }

    async fn look_at(&self, link: &Arc<Link>, sending: &Sending) -> LookedAt {
        let said = match &sending.sums {
            Some(sums) => Some(sums.said().await),
            None => None,
        };
        if said == Some(Answered::Nothing) {
            self.by.shell.try_out(link);
        }
        let read = match &sending.back {
            Some(back) if said != Some(Answered::Same) => self.read_back(link, back).await,
            _ => None,
        };
        LookedAt { said, read }
    }

    /// None: no handle is to spare. Who writes one file must not wait for the handle of another that does the same.
    async fn read_back(&self, link: &Arc<Link>, back: &ReadBack) -> Option<Read> {
        let opened = Opened::file_if_spare(link, &self.site.remote(&self.temporary), OpenFlags::READ).await?;
        let hash = match opened {
            Ok(opened) => back.hash(self.site, &opened, &self.path, self.upload.size_bytes, &self.upload.pace).await,
            Err(_) => None,
        };
        Some(Read { hash, bytes: back.bytes_read() })
    }

    fn lane<'b>(&'b self, sending: &'b Sending, opened: &'b Opened) -> BoxFuture<'b, Result<(), ApiError>> {
        let writing = sending.source.pieces().map_ok(move |piece| self.write(sending, opened, piece));
        writing.try_buffer_unordered(IN_FLIGHT).try_for_each(|()| std::future::ready(Ok(()))).boxed()
    }

    async fn write(&self, sending: &Sending, opened: &Opened, (offset, piece): (u64, Bytes)) -> Result<(), ApiError> {
        let (link, length) = (&opened.link, piece.len() as u64);
        let permit = self.upload.pace.send(length).await;
        if let Err(error) = link.sftp.write(opened.handle.clone(), offset, piece.to_vec()).await {
            let left = self.upload.size_bytes - offset;
            return Err(self.site.or_full(link, link.failure(error, &self.path), left).await);
        }
        permit.complete();
        if let Some(back) = &sending.back {
            back.piece_written(offset, length);
        }
        if let Some(sums) = &sending.sums {
            sums.piece_written(&sending.source, offset, length).await;
        }
        (self.upload.progress)(length);
        Ok(())
    }

    /// Writes to the same file over further connections.
    fn more_lanes<'b>(&'b self, sending: &'b Sending, count: usize) -> BoxFuture<'b, Result<(), ApiError>> {
        async move {
            if count == 0 {
                return Ok(());
            }
            let Some(lease) = self.by.pool.another().await else { return Ok(()) };
            let link = &lease.link;
            let opened = Opened::file(link, &self.site.remote(&self.temporary), OpenFlags::WRITE, None).await;
            let opened = opened.map_err(|error| link.failure(error, &self.path))?;
            futures::future::try_join(self.lane(sending, &opened), self.more_lanes(sending, count - 1)).await?;
            opened.close().await.map_err(|error| link.failure(error, &self.path))
        }
        .boxed()
    }

    /// On the server's disk, where it can be told to, and of the right size. Its token.
    async fn settle(&self, opened: Opened) -> Result<String, ApiError> {
        let (link, handle) = (opened.link.clone(), opened.handle.clone());
        let failed = |error: SftpError| link.failure(error, &self.path);
        let put_on_disk = async {
            match link.offers.fsync {
                true => link.sftp.fsync(handle.clone()).await.map(drop),
                false => Ok(()),
            }
        };
        let (seen, synced, closed) = futures::join!(link.sftp.fstat(handle.clone()), put_on_disk, opened.close());
        let attributes = seen.map_err(failed)?.attrs;
        self.site.learn_clock(&attributes);
        if attributes.size != Some(self.upload.size_bytes) {
            return Err(failure::written_differs(&self.path, &self.site.place));
        }
        match synced.and(closed) {
            Ok(()) => Ok(self.site.entry(&self.path, &attributes).map_or_else(String::new, |entry| entry.token)),
            Err(error) => Err(self.site.or_full(&link, failed(error), 1).await),
        }
    }

    /// By what was seen of it meanwhile, or by the server's shell, where that proves it; else by reading everything back when all is there.
    async fn verify(&self, link: &Arc<Link>, hashes: &Hashes, looked_at: LookedAt) -> Result<(Verified, u64), ApiError> {
        let (remote, size_bytes) = (self.site.remote(&self.temporary), self.upload.size_bytes);
        let bytes_before = match &looked_at {
            LookedAt { said: Some(Answered::Same), .. } => return Ok((Verified::RemoteChecksum, 0)),
            LookedAt { said, read: Some(read) } if read.hash == Some(hashes.blake3) => {
                said.inspect(|said| self.by.shell.was_no_help(link, *said));
                self.by.read_in_vain.store(0, Ordering::Relaxed);
                return Ok((Verified::Readback, read.bytes));
            }
            LookedAt { read, .. } => read.as_ref().map_or(0, |read| read.bytes),
        };
        if let Some(expected) = hashes.sha256 {
            if self.by.shell.sha256(link, &remote, size_bytes).await == Some(expected) {
                return Ok((Verified::RemoteChecksum, 0));
            }
        }
        let opened = Opened::file(link, &remote, OpenFlags::READ, None).await.map_err(|error| link.failure(error, &self.path))?;
        match hash(self.site, &opened, &self.path, size_bytes, &self.upload.pace).await {
            Ok(found) if found == hashes.blake3 => {
                self.was_no_help(link, &looked_at);
                Ok((Verified::Readback, bytes_before + size_bytes))
            }
            Err(error) if error.code != Code::ShortRead => Err(error),
            _ => Err(failure::written_differs(&self.path, &self.site.place)),
        }
    }

    /// All was right, and what was seen of it meanwhile was not.
    fn was_no_help(&self, link: &Link, looked_at: &LookedAt) {
        looked_at.said.inspect(|said| self.by.shell.was_no_help(link, *said));
        if looked_at.read.is_some() && link.is_alive() && self.by.read_in_vain.swap(READ_IN_VAIN_MAX, Ordering::Relaxed) < READ_IN_VAIN_MAX
        {
            tracing::warn!(
                origin = &*link.place,
                "it shows other bytes, or none, of a file that is being written; from now on it is read back when all is there"
            );
        }
    }

    /// In a task of its own that keeps the lock: once begun it ends, and no later try meets a half-done rename.
    async fn publish(&self, link: Arc<Link>, guard: PathGuard, seen: String) -> Result<(String, Synced), ApiError> {
        let (site, path, replace, size_bytes) = (self.site.clone(), self.path.clone(), self.upload.replace, self.upload.size_bytes);
        let (blake3, pace) = (self.upload.blake3, self.upload.pace.clone());
        let (directories, temporary) = (self.by.directories.clone(), self.temporary.clone());
        let task = tokio::spawn(async move {
            let (_guard, to) = (guard, site.remote(&path));
            let (renamed, stat) = futures::join!(rename(&site, &link, &temporary, &path, replace), site.stat_on(&link, &path));
            let left = renamed?;
            let entry = match stat {
                Ok(entry) if entry.token == seen => entry,
                // Maybe looked at before it was there.
                _ => site.stat_on(&link, &path).await?,
            };
            let removed = async {
                match left {
                    true => link.sftp.remove(site.remote(&temporary)).await.map(drop).map_err(|error| link.failure(error, &path)),
                    false => Ok(()),
                }
            };
            let (removed, name) = futures::join!(removed, directories.put_names_on_disk(&link, split(&path).0));
            removed?;
            // Somebody may have put another file there already.
            let hash = || content_hash(&site, &link, &entry, &to, &pace);
            let same = entry.token == seen || (entry.size_bytes == size_bytes && hash().await? == blake3);
            match (same, link.offers.fsync) {
                (true, true) => Ok((entry.token, named(name))),
                (true, false) => Ok((entry.token, Synced::Nothing)),
                (false, _) => Err(failure::source_changed(&path, &site.place, &seen, &entry.token)),
            }
        });
        task.await.expect("publishing does not panic")
    }
}

/// Whether the temporary name is there still.
async fn rename(site: &Site, link: &Link, temporary: &str, path: &str, replace: bool) -> Result<bool, ApiError> {
    let (from, to) = (site.remote(temporary), site.remote(path));
    if replace && link.offers.posix_rename {
        return link.rename_over(&from, &to).await.map(|()| false).map_err(|error| link.failure(error, path));
    }
    // A hard link never replaces; a rename of SFTP version 3 should not either, but not every server keeps to that.
    if !replace && link.offers.hardlink && link.sftp.hardlink(from.clone(), to.clone()).await.is_ok() {
        return Ok(true);
    }
    let there = || async { link.sftp.lstat(to.clone()).await.is_ok() };
    let occupied = || if replace { cannot_replace(site, path) } else { failure::destination_exists(path, &site.place) };
    if there().await {
        return Err(occupied());
    }
    match link.sftp.rename(from, to.clone()).await {
        Ok(_) => Ok(false),
        Err(error) => {
            let error = link.failure(error, path);
            Err(if there().await { occupied() } else { error })
        }
    }
}

fn cannot_replace(site: &Site, path: &str) -> ApiError {
    let message =
        format!("{} cannot replace {path:?} in one step (it lacks posix-rename@openssh.com); remove the old file first.", site.place);
    ApiError::new(Code::Unsupported, path, message)
}
