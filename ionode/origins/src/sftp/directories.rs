//! Directories at the server: made where an upload needs them, and their names put on the server's disk. Knows links.
//!
//! The one rule: a directory that we made counts as durable only when its own name is on the disk.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard};

use russh_sftp::protocol::FileAttributes;
use stager_core::error::{ApiError, Code};

use super::link::Link;
use super::opened::{put_on_disk, Opened};
use super::site::Site;
use crate::failure;
use crate::path::split;
use crate::waves::Waves;
use crate::EntryKind;

/// By directory: making it, and having its names put on the server's disk.
pub struct Directories {
    site: Arc<Site>,
    makings: Arc<Waves<Result<(), ApiError>>>,
    /// Directories that we made and whose names are not known to be on the server's disk.
    made: Mutex<HashSet<String>>,
    /// Whether it was, and whether the line was still there then.
    syncs: Arc<Waves<(bool, bool)>>,
}

impl Directories {
    pub fn new(site: Arc<Site>) -> Arc<Self> {
        Arc::new(Self { site, makings: Arc::default(), made: Mutex::default(), syncs: Arc::default() })
    }

    /// Makes `directory` and what is missing above it, below the base: once for all uploads that need it.
    pub async fn make(self: &Arc<Self>, link: &Arc<Link>, directory: &str) -> Result<(), ApiError> {
        let (directories, link, missing) = (self.clone(), link.clone(), directory.to_owned());
        self.makings.join_while(directory, async move { directories.make_missing(&link, &missing).await }, std::future::ready).await
    }

    /// Mostly one directory is missing, and one request makes it. Their names are put on the disk by `sync_made`, before anything in them
    /// counts as durable: nobody waits for that before the first byte.
    async fn make_missing(&self, link: &Arc<Link>, directory: &str) -> Result<(), ApiError> {
        if !directory.is_empty() && self.make_one(link, directory).await.is_ok() {
            return Ok(());
        }
        let mut missing = Vec::new();
        let mut here = directory;
        loop {
            match self.site.stat_on(link, here).await {
                Ok(entry) if entry.kind == EntryKind::Directory => break,
                Ok(_) => {
                    return Err(failure::denied(directory, &self.site.place, &format!("{here:?} is a file where a directory is needed")))
                }
                Err(error) if error.code == Code::NotFound && here.is_empty() => return Err(failure::no_base(directory, &self.site.place)),
                Err(error) if error.code == Code::NotFound => missing.push(here),
                Err(error) => return Err(error),
            }
            here = split(here).0;
        }
        for directory in missing.into_iter().rev() {
            if let Err(error) = self.make_one(link, directory).await {
                // Another upload may have made it meanwhile.
                let there = self.site.stat_on(link, directory).await.is_ok_and(|entry| entry.kind == EntryKind::Directory);
                if !there {
                    return Err(self.site.or_full(link, error, 1).await);
                }
            }
        }
        Ok(())
    }

    async fn make_one(&self, link: &Link, directory: &str) -> Result<(), ApiError> {
        let made = link.sftp.mkdir(self.site.remote(directory), FileAttributes::empty()).await;
        made.map_err(|error| link.failure(error, directory))?;
        if link.offers.fsync {
            self.made().insert(directory.to_owned());
        }
        Ok(())
    }

    fn made(&self) -> MutexGuard<'_, HashSet<String>> {
        self.made.lock().expect("no holder panics")
    }

    /// What `directory` holds, and those directories that we made on the way to it.
    pub async fn put_names_on_disk(&self, link: &Arc<Link>, directory: &str) -> bool {
        let (names, above) = futures::join!(self.sync_names(link, directory), self.sync_made(link, directory));
        names && above
    }

    /// Once for all who published there until it is open.
    async fn sync_names(&self, link: &Arc<Link>, directory: &str) -> bool {
        if !link.offers.fsync {
            return false;
        }
        let (over, by, remote) = (link.clone(), link.clone(), self.site.remote(directory));
        let opening = async move { Opened::to_sync(&over, &remote).await };
        let syncing = |opened: Result<Opened, _>| async move {
            let synced = match opened {
                Ok(opened) => opened.sync().await,
                Err(_) => false,
            };
            (synced, by.is_alive())
        };
        match self.syncs.join_while(directory, opening, syncing).await {
            // The line of another broke: that says nothing of the server.
            (false, false) => put_on_disk(link, &self.site.remote(directory)).await,
            (synced, _) => synced,
        }
    }

    /// The names of `directory` and of what is above it, as far as we made those and nobody did so yet. Whether all are on the disk.
    async fn sync_made(&self, link: &Arc<Link>, directory: &str) -> bool {
        let mut made = Vec::new();
        let mut here = directory;
        while !here.is_empty() {
            if self.made().contains(here) {
                made.push(here);
            }
            here = split(here).0;
        }
        let sync = async |made: &str| {
            let synced = self.sync_names(link, split(made).0).await;
            if synced {
                self.made().remove(made);
            }
            synced
        };
        futures::future::join_all(made.into_iter().map(sync)).await.into_iter().all(|synced| synced)
    }
}
