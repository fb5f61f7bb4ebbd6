//! The connections of one origin: none until the first call, then as many as busy transfers want, opened one after another.
//!
//! The one rule: a server never sees two of our logins at once, nor more connections than allowed.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use stager_core::error::ApiError;
use tokio::sync::Mutex as AsyncMutex;

use super::link::Link;
use super::Timing;
use crate::config::SftpConfig;

const CONNECTIONS_DEFAULT: usize = 4;
/// After a refused further connection (MaxStartups, a firewall) the ones at hand are shared for a while.
const GROW_AGAIN_AFTER: Duration = Duration::from_secs(30);

pub struct Pool {
    config: SftpConfig,
    place: Arc<str>,
    timing: Timing,
    links: Mutex<Vec<Arc<Link>>>,
    opening: AsyncMutex<Option<Instant>>,
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

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Work {
    Metadata,
    Bulk,
}

impl Pool {
    pub fn new(config: SftpConfig, place: Arc<str>, timing: Timing) -> Self {
        Self { config, place, timing, links: Mutex::default(), opening: AsyncMutex::new(None) }
    }

    pub fn connections_max(&self) -> usize {
        self.config.connections_max.unwrap_or(CONNECTIONS_DEFAULT).max(1)
    }

    pub async fn lease(self: &Arc<Self>, work: Work) -> Result<Lease, ApiError> {
        if let Some(found) = self.least_busy() {
            return Ok(self.shared(work, found));
        }
        let one_at_a_time = self.opening.lock().await;
        match self.least_busy() {
            Some(found) => {
                drop(one_at_a_time);
                Ok(self.shared(work, found))
            }
            None => self.open().await,
        }
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

    /// A link nobody moves bytes over, or a new one: for a file that is worth several.
    pub async fn another(&self) -> Option<Lease> {
        match self.least_busy() {
            Some((lease, _)) if lease.link.users.load(Ordering::Relaxed) == 1 => Some(lease),
            _ => self.grow().await,
        }
    }

    /// One more connection, unless one is being opened already or was refused lately.
    async fn grow(&self) -> Option<Lease> {
        let mut refused_at = self.opening.try_lock().ok()?;
        if refused_at.is_some_and(|at| at.elapsed() < GROW_AGAIN_AFTER) || self.alive() >= self.connections_max() {
            return None;
        }
        match self.open().await {
            Ok(lease) => {
                *refused_at = None;
                Some(lease)
            }
            Err(error) => {
                tracing::warn!(origin = &*self.place, code = error.code, "a further connection was refused; the open ones are shared");
                *refused_at = Some(Instant::now());
                None
            }
        }
    }

    fn alive(&self) -> usize {
        self.links.lock().expect("no holder panics").iter().filter(|link| link.is_alive()).count()
    }

    fn least_busy(&self) -> Option<(Lease, usize)> {
        let mut links = self.links.lock().expect("no holder panics");
        links.retain(|link| link.is_alive());
        let link = links.iter().min_by_key(|link| link.users.load(Ordering::Relaxed))?.clone();
        link.users.fetch_add(1, Ordering::Relaxed);
        Some((Lease { link }, links.len()))
    }

    async fn open(&self) -> Result<Lease, ApiError> {
        let link = Arc::new(Link::open(&self.config, &self.place, &self.timing).await?);
        link.users.fetch_add(1, Ordering::Relaxed);
        self.links.lock().expect("no holder panics").push(link.clone());
        Ok(Lease { link })
    }
}
