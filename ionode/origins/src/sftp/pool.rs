//! The connections of one origin: none until the first call, then as many as busy transfers want, opened one after another.
//!
//! The one rule: a server never sees two of our logins at once, nor more connections than allowed; one that turns us away is asked again later,
//! by one of us for all.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use stager_core::error::ApiError;
use tokio::sync::{Mutex as AsyncMutex, Notify, OwnedSemaphorePermit};

use super::link::Link;
use super::Timing;
use crate::config::SftpConfig;

const CONNECTIONS_DEFAULT: usize = 4;
/// Before the first connection is asked for again where the server is at its limit of logins (MaxStartups).
const PAUSES: [Duration; 5] = [
    Duration::from_millis(300),
    Duration::from_millis(600),
    Duration::from_millis(1200),
    Duration::from_millis(2400),
    Duration::from_millis(4800),
];

pub struct Pool {
    config: SftpConfig,
    place: Arc<str>,
    timing: Timing,
    links: Mutex<Vec<Arc<Link>>>,
    door: AsyncMutex<Door>,
    /// Told when a place to write may be free.
    freed: Arc<Notify>,
}

/// What was met at the server's door. Who holds it logs in.
#[derive(Default)]
struct Door {
    /// A further connection was refused: the ones at hand are shared for a while.
    refused_at: Option<Instant>,
    /// The first one was not to be had: who waited at the door then is told the same.
    failed: Option<(Instant, ApiError)>,
}

/// A share in a link; bulk work counts, so that the next transfer finds the least busy one.
pub struct Lease {
    pub link: Arc<Link>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.link.users.fetch_sub(1, Ordering::Relaxed);
    }
}

/// For a file that is written over one of the links, until it is closed.
pub struct PlaceToWrite {
    permit: Option<OwnedSemaphorePermit>,
    freed: Arc<Notify>,
}

impl Drop for PlaceToWrite {
    fn drop(&mut self) {
        drop(self.permit.take());
        self.freed.notify_one();
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Work {
    Metadata,
    Bulk,
}

impl Pool {
    pub fn new(config: SftpConfig, place: Arc<str>, timing: Timing) -> Self {
        Self { config, place, timing, links: Mutex::default(), door: AsyncMutex::default(), freed: Arc::default() }
    }

    pub fn connections_max(&self) -> usize {
        self.config.connections_max.unwrap_or(CONNECTIONS_DEFAULT).max(1)
    }

    pub async fn lease(self: &Arc<Self>, work: Work) -> Result<Lease, ApiError> {
        if let Some(found) = self.least_busy() {
            return Ok(self.shared(work, found));
        }
        let came = Instant::now();
        let mut door = self.door.lock().await;
        if let Some(found) = self.least_busy() {
            drop(door);
            return Ok(self.shared(work, found));
        }
        if let Some((_, error)) = door.failed.as_ref().filter(|(at, _)| *at > came) {
            return Err(error.clone());
        }
        let opened = self.open_patiently().await;
        door.failed = opened.as_ref().err().map(|error| (Instant::now(), error.clone()));
        opened
    }

    /// Over the link that has a place for it: one that is opened meanwhile takes its part of a crowd that waits.
    pub async fn lease_to_write(self: &Arc<Self>) -> Result<(Lease, PlaceToWrite), ApiError> {
        loop {
            let mut freed = std::pin::pin!(self.freed.notified());
            freed.as_mut().enable();
            let lease = self.lease(Work::Bulk).await?;
            if let Some(permit) = lease.link.place_to_write() {
                return Ok((lease, PlaceToWrite { permit: Some(permit), freed: self.freed.clone() }));
            }
            drop(lease);
            freed.await;
        }
    }

    async fn open_patiently(&self) -> Result<Lease, ApiError> {
        for pause in PAUSES {
            match self.open().await {
                // Other nodes are turned away at the same time: they must not all come back at the same time.
                Err(error) if error.retry_after_s.is_some() => tokio::time::sleep(pause.mul_f64(0.5 + rand::random::<f64>())).await,
                opened => return opened,
            }
        }
        self.open().await
    }

    /// Bulk work beside other work is worth one more connection, for those who come next: a login takes many round trips, and waiting for
    /// it would be slower than sharing.
    fn shared(self: &Arc<Self>, work: Work, (lease, count): (Lease, usize)) -> Lease {
        let busy = lease.link.users.load(Ordering::Relaxed) > 1;
        if work == Work::Bulk && busy && count < self.connections_max() {
            let pool = self.clone();
            tokio::spawn(async move { pool.grow().await.is_some() });
        }
        lease
    }

    /// So many connections, or as many as may be had. `start` is called for each when it is open, before the next is.
    pub async fn get_ready(self: &Arc<Self>, connections: usize, start: impl Fn(&Link)) {
        let wanted = connections.min(self.connections_max());
        let mut more = self.lease(Work::Metadata).await.is_ok();
        self.alive().iter().for_each(|link| start(link));
        while more && self.alive().len() < wanted {
            let grown = self.grow().await;
            more = grown.is_some();
            grown.iter().for_each(|lease| start(&lease.link));
        }
    }

    /// A link nobody moves bytes over, or a new one: for a file that is worth several.
    pub async fn another(&self) -> Option<Lease> {
        match self.least_busy() {
            Some((lease, _)) if lease.link.users.load(Ordering::Relaxed) == 1 => Some(lease),
            _ => self.grow().await,
        }
    }

    /// One more connection, unless one is being opened already or was refused lately.
    async fn grow(&self) -> Option<Lease> {
        let mut door = self.door.try_lock().ok()?;
        if door.refused_at.is_some_and(|at| at.elapsed() < self.timing.grow_again) || self.alive().len() >= self.connections_max() {
            return None;
        }
        match self.open().await {
            Ok(lease) => {
                door.refused_at = None;
                Some(lease)
            }
            Err(error) => {
                tracing::warn!(origin = &*self.place, code = error.code, "a further connection was refused; the open ones are shared");
                door.refused_at = Some(Instant::now());
                None
            }
        }
    }

    fn alive(&self) -> Vec<Arc<Link>> {
        self.links.lock().expect("no holder panics").iter().filter(|link| link.is_alive()).cloned().collect()
    }

    /// One with a place to write, if there is one.
    fn least_busy(&self) -> Option<(Lease, usize)> {
        let mut links = self.links.lock().expect("no holder panics");
        links.retain(|link| link.is_alive());
        let link = links.iter().min_by_key(|link| (!link.has_place_to_write(), link.users.load(Ordering::Relaxed)))?.clone();
        link.users.fetch_add(1, Ordering::Relaxed);
        Some((Lease { link }, links.len()))
    }

    async fn open(&self) -> Result<Lease, ApiError> {
        let link = Arc::new(Link::open(&self.config, &self.place, &self.timing).await?);
        link.users.fetch_add(1, Ordering::Relaxed);
        self.links.lock().expect("no holder panics").push(link.clone());
        self.freed.notify_waiters();
        Ok(Lease { link })
    }
}
