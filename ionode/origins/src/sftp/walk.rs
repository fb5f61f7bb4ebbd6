//! Listing and probing over SFTP, many directories at once on one connection.
//!
//! The one rule: a directory that cannot be read is an error, never an empty one.

use std::sync::Arc;

use futures::stream::FuturesUnordered;
use futures::{StreamExt, TryStreamExt};
use russh_sftp::client::error::Error as SftpError;
use russh_sftp::protocol::{File, FileType, OpenFlags, StatusCode};
use stager_core::error::{ApiError, Code};

use super::link::Link;
use super::opened::Opened;
use super::pool::{Pool, Work};
use super::site::{free_bytes, Site};
use crate::failure;
use crate::path::{checked, is_temporary, join, split, temporary_name};
use crate::{Entry, EntryKind, LeftOut, Listing, Probe, Why};

const DIRECTORIES_IN_FLIGHT: usize = 16;
const LINKS_IN_FLIGHT: usize = 64;

struct Found {
    entries: Vec<Entry>,
    left_out: Vec<LeftOut>,
    directories: Vec<String>,
    links: Vec<String>,
}

/// Names that are no UTF-8 cannot be said in the API; links to directories could loop. Where a link leads to is the server's business: it
/// follows them by the rights of the account, also out of the base, and a client's check would not hold until the file is opened.
pub async fn list(site: &Site, link: &Arc<Link>, prefix: String, recursive: bool, limit: usize) -> Result<Listing, ApiError> {
    let start = site.stat_on(link, &prefix).await?;
    if start.kind == EntryKind::File {
        return Ok(Listing { entries: vec![start], ..Listing::default() });
    }
    let (mut entries, mut left_out) = (Vec::new(), Vec::new());
    let mut waiting = vec![prefix];
    let mut reading = FuturesUnordered::new();
    while entries.len() + left_out.len() <= limit {
        while reading.len() < DIRECTORIES_IN_FLIGHT {
            let Some(directory) = waiting.pop() else { break };
            reading.push(read_directory(site, link, directory, recursive));
        }
        let Some(found) = reading.next().await else { break };
        let found = found?;
        entries.extend(found.entries);
        waiting.extend(found.directories);
        left_out.extend(found.left_out);
        for followed in follow(site, link, found.links).await? {
            match followed {
                Followed::File(entry) => entries.push(entry),
                Followed::LeftOut(other) => left_out.push(other),
            }
        }
    }
    Ok(Listing::cut(entries, left_out, limit))
}

async fn read_directory(site: &Site, link: &Arc<Link>, path: String, recursive: bool) -> Result<Found, ApiError> {
    let failed = |error| link.failure(error, &path);
    let opened = Opened::directory(link, &site.remote(&path)).await.map_err(failed)?;
    let mut found = Found { entries: Vec::new(), left_out: Vec::new(), directories: Vec::new(), links: Vec::new() };
    loop {
        match link.sftp.readdir(opened.handle.clone()).await {
            Ok(names) => names.files.into_iter().for_each(|file| found.take(site, &path, file, recursive)),
            Err(SftpError::Status(status)) if status.status_code == StatusCode::Eof => return Ok(found),
            Err(error) => return Err(failed(error)),
        }
    }
}

impl Found {
    fn take(&mut self, site: &Site, parent: &str, file: File, recursive: bool) {
        let name = file.filename;
        if matches!(name.as_str(), "" | "." | "..") || name.contains('/') || is_temporary(&name) {
            return;
        }
        let path = join(parent, &name);
        match file.attrs.file_type() {
            // The decoder puts it where a name is no UTF-8. Such a link cannot be followed: it may lead to a directory.
            kind if name.contains('\u{FFFD}') => {
                if recursive || kind != FileType::Dir {
                    let directory = matches!(kind, FileType::Dir | FileType::Symlink);
                    self.left_out.push(LeftOut { path, why: Why::NotUtf8, directory });
                }
            }
            FileType::Symlink => self.links.push(path),
            FileType::Dir if recursive => self.directories.push(path),
            _ => match site.entry(&path, &file.attrs) {
                Some(entry) => self.entries.push(entry),
                None => self.left_out.push(LeftOut { path, why: Why::SpecialFile, directory: false }),
            },
        }
    }
}

enum Followed {
    File(Entry),
    LeftOut(LeftOut),
}

async fn follow(site: &Site, link: &Link, paths: Vec<String>) -> Result<Vec<Followed>, ApiError> {
    let stats = futures::stream::iter(paths).map(|path| follow_one(site, link, path)).buffer_unordered(LINKS_IN_FLIGHT);
    stats.try_collect().await
}

async fn follow_one(site: &Site, link: &Link, path: String) -> Result<Followed, ApiError> {
    let why = match site.stat_on(link, &path).await {
        Ok(entry) if entry.kind == EntryKind::File => return Ok(Followed::File(entry)),
        Ok(_) => Why::LinkToDirectory,
        Err(error) => match error.code {
            Code::NotFound => Why::LinkLeadsNowhere,
            Code::Denied => Why::LinkDenied,
            Code::Unsupported => Why::SpecialFile,
            _ => return Err(error),
        },
    };
    Ok(Followed::LeftOut(LeftOut { path, why, directory: why == Why::LinkToDirectory }))
}

pub async fn probe(pool: &Arc<Pool>, site: &Site, path: &str, write: bool) -> Probe {
    let mut probe = Probe::default();
    if let Err(error) = fill(pool, site, path, write, &mut probe).await {
        probe.findings.push(error);
    }
    probe
}

async fn fill(pool: &Arc<Pool>, site: &Site, path: &str, write: bool, probe: &mut Probe) -> Result<(), ApiError> {
    let clean = checked(path)?;
    let lease = pool.lease(Work::Metadata).await?;
    let link = &lease.link;
    probe.reachable = true;
    if !write {
        room_in(site, link, "", probe).await;
        return site.stat_on(link, &clean).await.map(|_| ());
    }
    probe.writable = Some(false);
    let directory = nearest(site, link, &clean).await?;
    // Something else may be mounted below the base.
    room_in(site, link, &directory, probe).await;
    try_write(site, link, &directory).await?;
    probe.writable = Some(true);
    Ok(())
}

/// Where the server tells it. A file system without a number is known by its size.
async fn room_in(site: &Site, link: &Link, directory: &str, probe: &mut Probe) {
    let Some(vfs) = site.file_system(link, directory).await else { return };
    probe.free_bytes = Some(free_bytes(&vfs));
    probe.file_system = Some(format!("fsid:{:x}:{}:{}", vfs.fs_id, vfs.blocks, vfs.fragment_size));
}

/// Uploads make missing directories, so the nearest one that exists decides.
async fn nearest(site: &Site, link: &Link, path: &str) -> Result<String, ApiError> {
    let mut here = path;
    loop {
        match site.stat_on(link, here).await {
            Err(error) if error.code == Code::NotFound && here.is_empty() => return Err(failure::no_base(path, &site.place)),
            Err(error) if error.code == Code::NotFound => here = split(here).0,
            other => return other.map(|_| here.to_owned()),
        }
    }
}

async fn try_write(site: &Site, link: &Arc<Link>, directory: &str) -> Result<(), ApiError> {
    let path = join(directory, &temporary_name(&format!("probe-{:016x}", rand::random::<u64>())));
    let remote = site.remote(&path);
    let failed = |error| link.failure(error, directory);
    let flags = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::EXCLUDE;
    let opened = match Opened::file(link, &remote, flags, Some(0o600)).await {
        Ok(opened) => opened,
        Err(error) => return Err(site.or_full(link, failed(error), 1).await),
    };
    let written = link.sftp.write(opened.handle.clone(), 0, b"x".to_vec()).await.map_err(failed);
    if let Ok(attributes) = link.sftp.fstat(opened.handle.clone()).await {
        site.learn_clock(&attributes.attrs);
    }
    let closed = opened.close().await.map_err(failed);
    let removed = link.sftp.remove(remote).await.map_err(failed);
    match written.map(|_| ()).and(closed) {
        Ok(()) => removed.map(|_| ()),
        Err(error) => Err(site.or_full(link, error, 1).await),
    }
}
