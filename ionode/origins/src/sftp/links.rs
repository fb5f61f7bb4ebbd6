//! The connections of one pool that are open or coming, and how many there may be. Knows the clock.
//!
//! The one rule: each has a place, and there are no more places than there may be connections. What is more gets no new work, and is closed
//! as soon as nobody uses it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use futures::future::Either;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::link::Link;
use crate::capabilities::Allowance;

pub struct Links {
    list: Mutex<Vec<Arc<Link>>>,
    /// By the origin's description.
    described_max: usize,
    allowed: Mutex<Allowed>,
    /// Connections that are being opened.
    coming: AtomicUsize,
    /// Connections that were told to close, and are there still.
    closing: AtomicUsize,
    /// Told when there is a connection or a place that was not there before.
    changed: Notify,
}

#[derive(Clone, Copy)]
struct Allowed {
    most: usize,
    until: Option<Instant>,
}

/// The place of a connection that is being opened.
pub struct Coming(Arc<Links>);

impl Coming {
    /// Not where what was allowed became less, or ended, since the place was taken.
    pub fn is_allowed(&self) -> bool {
        self.0.there(&self.0.list()) <= self.0.most()
    }
}

impl Drop for Coming {
    fn drop(&mut self) {
        self.0.coming.fetch_sub(1, Ordering::Relaxed);
        self.0.changed.notify_waiters();
    }
}

/// A share in a link; bulk work counts, so that the next transfer finds the least busy one.
pub struct Lease {
    pub link: Arc<Link>,
    links: Arc<Links>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.link.users.fetch_sub(1, Ordering::Relaxed);
        self.links.trim();
    }
}

impl Links {
    pub fn new(described_max: usize) -> Arc<Self> {
        Arc::new(Self {
            list: Mutex::default(),
            described_max,
            allowed: Mutex::new(Allowed { most: described_max, until: None }),
            coming: AtomicUsize::new(0),
            closing: AtomicUsize::new(0),
            changed: Notify::new(),
        })
    }

    fn list(&self) -> MutexGuard<'_, Vec<Arc<Link>>> {
        self.list.lock().expect("no holder panics")
    }

    fn allowed(&self) -> Allowed {
        *self.allowed.lock().expect("no holder panics")
    }

    /// So many may be open now.
    pub fn most(&self) -> usize {
        let Allowed { most, until } = self.allowed();
        if until.is_some_and(|until| until <= Instant::now()) {
            0
        } else {
            most
        }
    }

    /// The place of one more, if there may be one.
    pub fn place(self: &Arc<Self>) -> Option<Coming> {
        let list = self.list();
        (self.there(&list) < self.most()).then(|| {
            self.coming.fetch_add(1, Ordering::Relaxed);
            Coming(self.clone())
        })
    }

    /// Waits for one that another one opened, or for the place of one more.
    pub async fn found_or_place(self: &Arc<Self>) -> Either<(Lease, usize), Coming> {
        loop {
            let mut told = std::pin::pin!(self.changed.notified());
            told.as_mut().enable();
            if let Some(found) = self.least_busy() {
                return Either::Left(found);
            }
            if let Some(place) = self.place() {
                return Either::Right(place);
            }
            told.await;
        }
    }

    pub fn allow(self: &Arc<Self>, allowance: Allowance) {
        let until = allowance.lease.map(|lease| Instant::now() + lease);
        let most = allowance.connections_max.unwrap_or(self.described_max);
        *self.allowed.lock().expect("no holder panics") = Allowed { most, until };
        self.changed.notify_waiters();
        self.trim();
        let (Some(until), Ok(runtime)) = (until, Handle::try_current()) else { return };
        let links = Arc::downgrade(self);
        runtime.spawn(async move {
            tokio::time::sleep_until(until).await;
            let Some(links) = links.upgrade().filter(|links| links.allowed().until == Some(until)) else { return };
            let open = std::mem::take(&mut *links.list());
            open.into_iter().for_each(|link| links.close(link));
        });
    }

    /// Those that are coming count, and those that are not closed yet.
    pub fn open(&self) -> usize {
        self.there(&self.list())
    }

    fn there(&self, list: &[Arc<Link>]) -> usize {
        let alive = list.iter().filter(|link| link.is_alive()).count();
        alive + self.closing.load(Ordering::Relaxed) + self.coming.load(Ordering::Relaxed)
    }

    pub fn alive(&self) -> Vec<Arc<Link>> {
        self.list().iter().filter(|link| link.is_alive()).cloned().collect()
    }

    /// One with a place to write, if there is one; and how many there are.
    pub fn least_busy(self: &Arc<Self>) -> Option<(Lease, usize)> {
        let most = self.most();
        let mut list = self.list();
        list.retain(|link| link.is_alive());
        let first = list.iter().take(most);
        let link = first.min_by_key(|link| (!link.places.has_one_to_write(), link.users.load(Ordering::Relaxed)))?.clone();
        Some((self.lease(link), list.len()))
    }

    /// None where it may not be there any more: then it is closed.
    pub fn add(self: &Arc<Self>, link: Arc<Link>, coming: Coming) -> Option<Lease> {
        if !coming.is_allowed() {
            self.close(link);
            return None;
        }
        let lease = self.lease(link.clone());
        self.list().push(link);
        Some(lease)
    }

    fn lease(self: &Arc<Self>, link: Arc<Link>) -> Lease {
        link.users.fetch_add(1, Ordering::Relaxed);
        Lease { link, links: self.clone() }
    }

    fn trim(self: &Arc<Self>) {
        let most = self.most();
        let mut surplus = Vec::new();
        {
            let mut list = self.list();
            while list.len() > most {
                let Some(idle) = list.iter().rposition(|link| link.users.load(Ordering::Relaxed) == 0) else { break };
                surplus.push(list.remove(idle));
            }
        }
        surplus.into_iter().for_each(|link| self.close(link));
    }

    fn close(self: &Arc<Self>, link: Arc<Link>) {
        // Without a runtime it is told to close by nobody, and goes with the process.
        let Ok(runtime) = Handle::try_current() else { return };
        self.closing.fetch_add(1, Ordering::Relaxed);
        let links = self.clone();
        runtime.spawn(async move {
            link.close().await;
            links.closing.fetch_sub(1, Ordering::Relaxed);
            links.changed.notify_waiters();
        });
    }
}
