//! An upload over SFTP: temporary name, pipelined writes, fsync, verify at the server or through a fresh handle, rename, stat.
//!
//! The one rule: the final name appears by one rename of content the server was seen to hold, and never over a file nobody allowed to
//! replace.
//!
//! A small file costs round trips, not bytes. So what does not need the answer of another request goes out with it: `futures::join!` polls in
//! the order that is written there, and each request is sent when it is first polled. What was asked for too early is asked again.

use std::sync::atomic::Ordering;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, TryStreamExt};
use russh_sftp::client::error::Error as SftpError;
use russh_sftp::protocol::OpenFlags;
use stager_core::error::{ApiError, Code};

use super::link::{Link, Opened};
use super::pool::Lease;
use super::read::{connections_worth, hash, open_expected, IN_FLIGHT, SMALL_PIECES};
use super::Site;
use crate::failure;
use crate::local::{Hashes, LocalFile, Source};
use crate::path::{join, split, temporary_name};
use crate::path_locks::PathGuard;
use crate::{Entry, EntryKind, Pace, Synced, Upload, Uploaded, Verified};

struct Job<'a> {
    site: &'a Arc<Site>,
    upload: &'a Upload<'a>,
    path: String,
    temporary: String,
}

pub async fn upload(site: &Arc<Site>, guard: PathGuard, upload: &Upload<'_>, path: String) -> Result<Uploaded, ApiError> {
    let (lease, place) = site.pool.lease_to_write().await?;
    let link = lease.link.clone();
    let temporary = join(split(&path).0, &temporary_name(upload.transfer_id));
    let job = Job { site, upload, path, temporary };
    let (adopted, created) = futures::join!(existing(site, &link, &job.path, upload), job.create(&link));
    if let Some(decided) = adopted.transpose() {
        // What an earlier try may have left between its link and its remove, too.
        drop(created);
        if link.is_alive() {
            link.sftp.remove(site.remote(&job.temporary)).await.ok();
        }
        return decided;
    }
    let created = created.map(|opened| opened.holding(place));
    let result = job.write_and_publish(created, lease, guard).await;
    if result.is_err() && link.is_alive() {
        link.sftp.remove(site.remote(&job.temporary)).await.ok();
    }
    match result {
        // Somebody else made the file meanwhile: theirs may be the same.
        Err(error) if error.code == Code::DestinationExists => existing(site, &link, &job.path, upload).await?.ok_or(error),
        other => other,
    }
}

/// Adopts equal content; other content is an error unless it may be replaced.
async fn existing(site: &Arc<Site>, link: &Arc<Link>, path: &str, upload: &Upload<'_>) -> Result<Option<Uploaded>, ApiError> {
    let entry = match site.stat_on(link, path).await {
        Ok(entry) => entry,
        Err(error) if error.code == Code::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if entry.kind == EntryKind::Directory {
        return Err(failure::is_directory(path, &site.place));
    }
    if entry.size_bytes == upload.size_bytes && hash_of(site, link, &entry, &upload.pace).await? == upload.blake3 {
        let synced = put_on_disk(site, link, path).await;
        return Ok(Some(Uploaded { token: entry.token, verified: Verified::Adopted, synced, bytes_moved: upload.size_bytes }));
    }
    if upload.replace {
        Ok(None)
    } else {
        Err(failure::destination_exists(path, &site.place))
    }
}

/// Whoever wrote it may not have done so. What a server cannot do it answers with an error.
async fn put_on_disk(site: &Arc<Site>, link: &Arc<Link>, path: &str) -> Synced {
    if !sync(site, link, path).await {
        return Synced::Nothing;
    }
    named(put_names_on_disk(site, link, split(path).0).await)
}

/// What `directory` holds, and those directories that we made on the way to it.
pub(super) async fn put_names_on_disk(site: &Arc<Site>, link: &Arc<Link>, directory: &str) -> bool {
    let (names, above) = futures::join!(sync_names(site, link, directory), sync_made(site, link, directory));
    names && above
}

/// Once for all who published there until it is open.
async fn sync_names(site: &Arc<Site>, link: &Arc<Link>, directory: &str) -> bool {
    if !link.offers.fsync {
        return false;
    }
    let (over, by, remote) = (link.clone(), link.clone(), site.remote(directory));
    let opening = async move { Opened::file(&over, &remote, OpenFlags::READ, None).await };
    let syncing = |opened| async move { (synced(opened).await, by.is_alive()) };
    match site.syncs.join_while(directory, opening, syncing).await {
        // The line of another broke: that says nothing of the server.
        (false, false) => sync(site, link, directory).await,
        (synced, _) => synced,
    }
}

/// The names of `directory` and of what is above it, as far as we made those and nobody did so yet. Whether all are on the disk.
async fn sync_made(site: &Arc<Site>, link: &Arc<Link>, directory: &str) -> bool {
    let mut made = Vec::new();
    let mut here = directory;
    while !here.is_empty() {
        if site.made().contains(here) {
            made.push(here);
        }
        here = split(here).0;
    }
    let sync = async |made: &str| {
        let synced = sync_names(site, link, split(made).0).await;
        if synced {
            site.made().remove(made);
        }
        synced
    };
    futures::future::join_all(made.into_iter().map(sync)).await.into_iter().all(|synced| synced)
}

fn named(name: bool) -> Synced {
    if name {
        Synced::ContentAndName
    } else {
        Synced::Content
    }
}

/// Of a directory, too: OpenSSH opens one like a file where its system does.
async fn sync(site: &Site, link: &Arc<Link>, path: &str) -> bool {
    if !link.offers.fsync {
        return false;
    }
    synced(Opened::file(link, &site.remote(path), OpenFlags::READ, None).await).await
}

async fn synced(opened: Result<Opened, SftpError>) -> bool {
    let Ok(opened) = opened else { return false };
    let (link, handle) = (opened.link.clone(), opened.handle.clone());
    let (synced, _) = futures::join!(link.sftp.fsync(handle), opened.close());
    synced.is_ok()
}

async fn hash_of(site: &Arc<Site>, link: &Arc<Link>, entry: &Entry, pace: &Pace) -> Result<blake3::Hash, ApiError> {
    let opened = open_expected(site, link, entry, &site.remote(&entry.path)).await?;
    let found = hash(site, &opened, &entry.path, entry.size_bytes, pace).await?;
    site.same_token(entry, &site.stat_on(link, &entry.path).await?)?;
    Ok(found)
}

impl Job<'_> {
    async fn write_and_publish(&self, created: Result<Opened, ApiError>, lease: Lease, guard: PathGuard) -> Result<Uploaded, ApiError> {
        let (link, first) = (lease.link.clone(), created?);
        self.check_destination_early(&first).await?;
        let source = self.source(&link).await?;
        let (hashes, seen) = if self.upload.size_bytes <= SMALL_PIECES as u64 * link.write_bytes {
            self.write_at_once(&source, first).await?
        } else {
            let extra = connections_worth(&link, self.upload.size_bytes, self.site.pool.connections_max()) - 1;
            futures::future::try_join(self.lane(&source, &first), self.more_lanes(&source, extra)).await?;
            (self.sent(&source).await?, self.settle(first).await?)
        };
        let (verified, bytes_read) = self.verify(&link, &hashes).await?;
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
            Code::NotFound => self.site.make_directories(link, split(&self.path).0).await?,
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
    async fn source(&self, link: &Link) -> Result<Source, ApiError> {
        let want_sha256 = self.site.shell.load(Ordering::Relaxed);
        Ok(LocalFile::open(self.upload).await?.source(link.write_bytes as usize, want_sha256))
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

    fn lane<'b>(&'b self, source: &'b Source, opened: &'b Opened) -> BoxFuture<'b, Result<(), ApiError>> {
        let writing = source.pieces().map_ok(move |piece| self.write(opened, piece));
        writing.try_buffer_unordered(IN_FLIGHT).try_for_each(|()| std::future::ready(Ok(()))).boxed()
    }

    async fn write(&self, opened: &Opened, (offset, piece): (u64, Bytes)) -> Result<(), ApiError> {
        let link = &opened.link;
        let permit = self.upload.pace.send(piece.len() as u64).await;
        if let Err(error) = link.sftp.write(opened.handle.clone(), offset, piece.to_vec()).await {
            let left = self.upload.size_bytes - offset;
            return Err(self.site.or_full(link, link.failure(error, &self.path), left).await);
        }
        permit.complete();
        (self.upload.progress)(piece.len() as u64);
        Ok(())
    }

    /// Writes to the same file over further connections.
    fn more_lanes<'b>(&'b self, source: &'b Source, count: usize) -> BoxFuture<'b, Result<(), ApiError>> {
        async move {
            if count == 0 {
                return Ok(());
            }
            let Some(lease) = self.site.pool.another().await else { return Ok(()) };
            let link = &lease.link;
            let opened = Opened::file(link, &self.site.remote(&self.temporary), OpenFlags::WRITE, None).await;
            let opened = opened.map_err(|error| link.failure(error, &self.path))?;
            futures::future::try_join(self.lane(source, &opened), self.more_lanes(source, count - 1)).await?;
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

    /// By the server's shell where that proves it, else by reading everything back through a fresh handle.
    async fn verify(&self, link: &Arc<Link>, hashes: &Hashes) -> Result<(Verified, u64), ApiError> {
        let (remote, size_bytes) = (self.site.remote(&self.temporary), self.upload.size_bytes);
        if let Some(expected) = hashes.sha256 {
            if self.site.sha256(link, &remote, size_bytes).await == Some(expected) {
                return Ok((Verified::RemoteChecksum, 0));
            }
        }
        let opened = Opened::file(link, &remote, OpenFlags::READ, None).await.map_err(|error| link.failure(error, &self.path))?;
        match hash(self.site, &opened, &self.path, size_bytes, &self.upload.pace).await {
            Ok(found) if found == hashes.blake3 => Ok((Verified::Readback, size_bytes)),
            Err(error) if error.code != Code::ShortRead => Err(error),
            _ => Err(failure::written_differs(&self.path, &self.site.place)),
        }
    }

    /// In a task of its own that keeps the lock: once begun it ends, and no later try meets a half-done rename.
    async fn publish(&self, link: Arc<Link>, guard: PathGuard, seen: String) -> Result<(String, Synced), ApiError> {
        let (site, path, replace, size_bytes) = (self.site.clone(), self.path.clone(), self.upload.replace, self.upload.size_bytes);
        let (blake3, pace) = (self.upload.blake3, self.upload.pace.clone());
        let temporary = self.temporary.clone();
        let task = tokio::spawn(async move {
            let _guard = guard;
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
            let (removed, name) = futures::join!(removed, put_names_on_disk(&site, &link, split(&path).0));
            removed?;
            // Somebody may have put another file there already.
            let same = entry.token == seen || (entry.size_bytes == size_bytes && hash_of(&site, &link, &entry, &pace).await? == blake3);
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
