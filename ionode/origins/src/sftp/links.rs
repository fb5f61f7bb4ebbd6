//! The connections of one pool that are open, and how many there may be. Knows the clock.
//!
//! The one rule: what is more than there may be gets no new work, and is closed as soon as nobody uses it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

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
    /// Connections that were told to close, and are there still.
    closing: AtomicUsize,
    /// Told when one may be opened that might not before.
    opened_up: Notify,
}

#[derive(Clone, Copy)]
struct Allowed {
    most: usize,
    until: Option<Instant>,
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
            closing: AtomicUsize::new(0),
            opened_up: Notify::new(),
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

    /// Waits until there may be one.
    pub async fn open_up(&self) {
        loop {
            let mut told = std::pin::pin!(self.opened_up.notified());
            told.as_mut().enable();
            if self.most() > self.closing.load(Ordering::Relaxed) {
                return;
            }
            told.await;
        }
    }

    pub fn allow(self: &Arc<Self>, allowance: Allowance) {
        let until = allowance.lease.map(|lease| Instant::now() + lease);
        let most = allowance.connections_max.unwrap_or(self.described_max);
        *self.allowed.lock().expect("no holder panics") = Allowed { most, until };
        self.opened_up.notify_waiters();
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

    /// Those that are not closed yet count.
    pub fn open(&self) -> usize {
        self.alive().len() + self.closing.load(Ordering::Relaxed)
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
        let link = first.min_by_key(|link| (!link.has_place_to_write(), link.users.load(Ordering::Relaxed)))?.clone();
        Some((self.lease(link), list.len()))
    }

    pub fn add(self: &Arc<Self>, link: Arc<Link>) -> Lease {
        let lease = self.lease(link.clone());
        self.list().push(link);
        lease
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
            links.opened_up.notify_waiters();
        });
    }
}
