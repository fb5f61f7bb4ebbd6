//! The connections of one origin: none until the first call, then as many as busy transfers want, opened one after another.
//!
//! The one rule: a server never sees two of our logins at once, nor more connections than allowed; one that turns us away is asked again later,
//! by one of us for all.

use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::{BoxFuture, Either};
use futures::FutureExt;
use stager_core::error::ApiError;
use tokio::sync::{Mutex as AsyncMutex, MutexGuard, Notify};

use super::link::Link;
pub use super::links::Lease;
use super::links::{Coming, Links};
use super::login::{Login, Timing};
use super::opened::PlaceToWrite;
use super::shell::Shell;
use crate::capabilities::Allowance;
use crate::config::SftpConfig;

const CONNECTIONS_DEFAULT: usize = 4;
/// Another connection is worth a login for so many more small files.
const FILES_A_CONNECTION: usize = 64;
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
    shell: Arc<Shell>,
    links: Arc<Links>,
    /// Held by who opens the first one.
    door: AsyncMutex<Door>,
    /// Held by who logs in. When a further connection was refused: the ones at hand are shared for a while.
    logging_in: AsyncMutex<Option<Instant>>,
    /// Told when a place to write may be free.
    freed: Arc<Notify>,
}

#[derive(Default)]
struct Door {
    /// It was not to be had: who waited at the door then is told the same.
    failed: Option<(Instant, ApiError)>,
}

/// One of those who wait for a place to write, from when it looks for it.
struct Woken<'a> {
    freed: &'a Notify,
    is_served: bool,
}

impl Drop for Woken<'_> {
    fn drop(&mut self) {
        if !self.is_served {
            self.freed.notify_one();
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Work {
    Metadata,
    Bulk,
}

impl Pool {
    pub fn new(config: SftpConfig, place: Arc<str>, timing: Timing, shell: Arc<Shell>) -> Self {
        Self {
            links: Links::new(config.connections_max.unwrap_or(CONNECTIONS_DEFAULT).max(1)),
            config,
            place,
            timing,
            shell,
            door: AsyncMutex::default(),
            logging_in: AsyncMutex::default(),
            freed: Arc::default(),
        }
    }

    pub fn connections_max(&self) -> usize {
        self.links.most()
    }

    /// The connections that there are still.
    pub fn allow(&self, allowance: Allowance) -> usize {
        self.links.allow(allowance);
        self.links.open()
    }

    pub async fn lease(self: &Arc<Self>, work: Work) -> Result<Lease, ApiError> {
        if let Some(found) = self.links.least_busy() {
            return Ok(self.shared(work, found));
        }
        let came = Instant::now();
        let mut door = self.door.lock().await;
        if let Some(found) = self.links.least_busy() {
            drop(door);
            return Ok(self.shared(work, found));
        }
        if let Some((_, error)) = door.failed.as_ref().filter(|(at, _)| *at > came) {
            return Err(error.clone());
        }
        let opened = self.open_patiently(work).await;
        door.failed = opened.as_ref().err().map(|error| (Instant::now(), error.clone()));
        opened
    }

    /// Over the link that has a place for it: one that is opened meanwhile takes its part of a crowd that waits.
    pub async fn lease_to_write(self: &Arc<Self>, size_bytes: u64) -> Result<(Lease, PlaceToWrite), ApiError> {
        loop {
            let mut freed = std::pin::pin!(self.freed.notified());
            freed.as_mut().enable();
            // Who was woken and goes away without a place leaves it to another.
            let mut woken = Woken { freed: &self.freed, is_served: false };
            let lease = self.lease(Work::Bulk).await.inspect_err(|_| self.freed.notify_waiters())?;
            woken.is_served = true;
            if let Some(permit) = lease.link.places.to_write(size_bytes) {
                return Ok((lease, PlaceToWrite::new(permit, self.freed.clone())));
            }
            self.widen(&lease.link);
            drop(lease);
            freed.await;
        }
    }

    /// For a crowd of uploads, the first connection alone: the others, which take longer to come, have places enough together. What says
    /// checksums has its channel before: the server may let us open few.
    fn widen(&self, link: &Arc<Link>) {
        if self.links.alive().len() == 1 && link.is_to_widen() {
            self.shell.start(link);
            tokio::spawn(link.clone().widen(self.freed.clone()));
        }
    }

    async fn open_patiently(self: &Arc<Self>, work: Work) -> Result<Lease, ApiError> {
        for pause in PAUSES {
            match self.found_or_opened(work).await {
                // Other nodes are turned away at the same time: they must not all come back at the same time.
                Err(error) if error.retry_after_s.is_some() => tokio::time::sleep(pause.mul_f64(0.5 + rand::random::<f64>())).await,
                opened => return opened,
            }
        }
        self.found_or_opened(work).await
    }

    async fn found_or_opened(self: &Arc<Self>, work: Work) -> Result<Lease, ApiError> {
        loop {
            let coming = match self.links.found_or_place().await {
                Either::Left(found) => return Ok(self.shared(work, found)),
                Either::Right(coming) => coming,
            };
            let logging_in = self.logging_in.lock().await;
            if !coming.is_allowed() {
                continue;
            }
            let login = Login::new(&self.config, &self.place, &self.timing).await?;
            drop(logging_in);
            if let Some(lease) = self.greet(login, coming).await? {
                return Ok(lease);
            }
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

    /// As many connections as so many small files are worth, or as may be had; and what files over each of them will want.
    pub async fn get_ready(self: &Arc<Self>, files: usize) {
        let wanted = (1 + files / FILES_A_CONNECTION).min(self.connections_max());
        let first = async {
            if self.lease(Work::Metadata).await.is_ok() {
                self.links.alive().iter().for_each(|link| self.start(link, files));
            }
        };
        // Polled in this order: the first one is coming when more are asked for.
        futures::join!(first, self.get_more(wanted, files));
    }

    fn start(&self, link: &Arc<Link>, files: usize) {
        self.shell.start(link);
        if files > link.places.to_write_each() {
            self.widen(link);
        }
    }

    /// One after another logs in; what follows a login is no matter of the door.
    fn get_more(&self, wanted: usize, files: usize) -> BoxFuture<'_, ()> {
        async move {
            let logging_in = self.logging_in.lock().await;
            // None at all: the first one was not to be had.
            if !(1..wanted).contains(&self.links.open()) {
                return;
            }
            let Some(login) = self.log_in_again(logging_in).await else { return };
            let greeted = async { self.greet_again(login).await.iter().for_each(|lease| self.start(&lease.link, files)) };
            futures::join!(greeted, self.get_more(wanted, files));
        }
        .boxed()
    }

    /// A link nobody moves bytes over, or a new one: for a file that is worth several.
    pub async fn another(&self) -> Option<Lease> {
        match self.links.least_busy() {
            Some((lease, _)) if lease.link.users.load(Ordering::Relaxed) == 1 => Some(lease),
            _ => self.grow().await,
        }
    }

    /// One more connection, unless somebody is logging in already or was refused lately.
    async fn grow(&self) -> Option<Lease> {
        let login = self.log_in_again(self.logging_in.try_lock().ok()?).await?;
        self.greet_again(login).await
    }

    async fn log_in_again(&self, mut refused_at: MutexGuard<'_, Option<Instant>>) -> Option<(Login, Coming)> {
        if refused_at.is_some_and(|at| at.elapsed() < self.timing.grow_again) {
            return None;
        }
        let coming = self.links.place()?;
        let login = Login::new(&self.config, &self.place, &self.timing).await.map_err(|error| self.say_refused(&error)).ok();
        *refused_at = login.is_none().then(Instant::now);
        login.map(|login| (login, coming))
    }

    async fn greet_again(&self, (login, coming): (Login, Coming)) -> Option<Lease> {
        match self.greet(login, coming).await {
            Ok(lease) => lease,
            Err(error) => {
                self.say_refused(&error);
                *self.logging_in.lock().await = Some(Instant::now());
                None
            }
        }
    }

    fn say_refused(&self, error: &ApiError) {
        tracing::warn!(origin = &*self.place, code = error.code.as_str(), "a further connection was refused; the open ones are shared");
    }

    /// None where it may not be there any more.
    async fn greet(&self, login: Login, coming: Coming) -> Result<Option<Lease>, ApiError> {
        let lease = self.links.add(Arc::new(login.greet(&self.place, &self.timing).await?), coming);
        self.freed.notify_waiters();
        Ok(lease)
    }
}
