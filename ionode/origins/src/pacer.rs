//! Who may move bytes to or from an origin: the bandwidth that it may be used with, and how much is asked of it at once. Knows the clock.
//!
//! The one rule: whoever moves bytes acquires a permit first: what a job waits for before the rest, and among those the transfer that
//! came first; and no more is under way than keeps the line full, because nothing can go before what has been asked for already.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::window::Window;

/// What an idle origin may be ahead by.
const BURST: Duration = Duration::from_millis(100);
/// What nobody waits for gets one permit of so many all the same, so that it never looks as if its origin had died.
const URGENT_PERMITS: usize = 16;
/// One permit of so many goes to the transfer that was given least so far: what is small does not wait for all that is large and came before.
const LEAST_SERVED_PERMITS: usize = 4;

/// Whether a job waits for these bytes, and which transfer they are of. Shared by all clones; whether a job waits may change while they are
/// under way.
#[derive(Clone, Debug)]
pub struct Priority {
    urgent: Arc<AtomicBool>,
    number: u64,
    given: Arc<AtomicU64>,
    read_back: Arc<AtomicU64>,
}

impl Default for Priority {
    /// Of a transfer that came after all that there are.
    fn default() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        Self { urgent: Arc::default(), number, given: Arc::default(), read_back: Arc::default() }
    }
}

impl Priority {
    pub fn set(&self, urgent: bool) {
        self.urgent.store(urgent, Ordering::Relaxed);
    }
    pub fn is_urgent(&self) -> bool {
        self.urgent.load(Ordering::Relaxed)
    }
    /// Of what lies at the origin, to be compared or verified. They bring nobody nearer to the end, but the transfer has not come to a halt
    /// while they arrive.
    pub fn read_back_bytes(&self) -> u64 {
        self.read_back.load(Ordering::Relaxed)
    }
    pub(crate) fn was_read_back(&self, bytes: u64) {
        self.read_back.fetch_add(bytes, Ordering::Relaxed);
    }
}

pub struct Pacer {
    permits_max: usize,
    state: Mutex<PacerState>,
}

struct PacerState {
    bytes_per_s_max: Option<u64>,
    /// No more permits are given then.
    until: Option<Instant>,
    /// When all that was allowed so far has passed at the rate.
    paid_until: Instant,
    under_way: u64,
    permits: usize,
    window: Window,
    waiting: VecDeque<Waiter>,
    urgent_in_a_row: usize,
    granted: usize,
    /// A task grants what is due then.
    wake_at: Option<Instant>,
}

struct Waiter {
    bytes: u64,
    priority: Priority,
    /// Local files, and uploads in large pieces, only keep to the bandwidth.
    counts: bool,
    grant: oneshot::Sender<Permit>,
}

/// Bytes that were asked for; they have come, or will not come, when it is dropped.
pub struct Permit {
    /// None: nothing paces them.
    pacer: Option<Arc<Pacer>>,
    bytes: u64,
    since: Instant,
}

impl Permit {
    /// Of an origin that nothing paces.
    pub fn free(bytes: u64) -> Self {
        Self { pacer: None, bytes, since: Instant::now() }
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The first of them have arrived, of an answer that has a connection to itself.
    pub fn answered(&self) {
        if let Some(pacer) = &self.pacer {
            pacer.state().window.answered(self.since.elapsed());
        }
    }

    /// All of them have arrived: that says how far and how wide the way is.
    pub fn complete(self) {
        let Some(pacer) = &self.pacer else { return };
        let mut state = pacer.state();
        let now = Instant::now();
        state.window.completed(self.bytes, now - self.since, now);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(pacer) = self.pacer.as_ref().filter(|_| self.bytes > 0) {
            pacer.state().give_back(self.bytes);
            pacer.grant_due();
        }
    }
}

enum Next {
    Go(usize),
    At(Instant),
    Nobody,
}

impl Pacer {
    pub fn new(bytes_per_s_max: Option<u64>) -> Arc<Self> {
        Self::with_permits_max(bytes_per_s_max, usize::MAX)
    }

    /// Where each permit takes a connection of its own, no more are given than there are: no other queue lies behind this.
    pub fn with_permits_max(bytes_per_s_max: Option<u64>, permits_max: usize) -> Arc<Self> {
        let now = Instant::now();
        let state = PacerState {
            bytes_per_s_max: bytes_per_s_max.filter(|rate| *rate > 0),
            until: None,
            paid_until: now,
            under_way: 0,
            permits: 0,
            window: Window::new(now),
            waiting: VecDeque::new(),
            urgent_in_a_row: 0,
            granted: 0,
            wake_at: None,
        };
        Arc::new(Self { permits_max, state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, PacerState> {
        self.state.lock().expect("no holder panics")
    }

    /// Waits until so many bytes may pass.
    pub async fn take(self: &Arc<Self>, bytes: u64, priority: &Priority) {
        if self.paces() {
            self.wait(bytes, priority.clone(), false).await;
        }
    }

    fn paces(&self) -> bool {
        let state = self.state();
        state.bytes_per_s_max.is_some() || state.until.is_some()
    }

    /// From now on, until then. A rate of 0 lets nothing pass.
    pub fn set_rate(self: &Arc<Self>, bytes_per_s_max: Option<u64>, until: Option<Instant>) {
        {
            let mut state = self.state();
            (state.bytes_per_s_max, state.until) = (bytes_per_s_max, until);
        }
        self.grant_due();
    }

    /// Waits until so many bytes may be asked for.
    pub async fn acquire(self: &Arc<Self>, bytes: u64, priority: Priority) -> Permit {
        self.wait(bytes, priority, true).await
    }

    /// Pieces of this size let others pass in between, and are large enough to keep the line full.
    pub fn piece_bytes(&self, least: u64, most: u64) -> u64 {
        (self.state().window.bytes() / 8).clamp(least, most)
    }

    async fn wait(self: &Arc<Self>, bytes: u64, priority: Priority, counts: bool) -> Permit {
        let (grant, granted) = oneshot::channel();
        self.state().arrive(Waiter { bytes, priority, counts, grant }, Instant::now());
        self.grant_due();
        granted.await.expect("nobody is sent away")
    }

    /// Gives out every permit that is due.
    fn grant_due(self: &Arc<Self>) {
        // Dropped outside the lock, where their bytes are given back: those whose waiter has gone.
        let mut refused = Vec::new();
        let mut state = self.state();
        let now = Instant::now();
        loop {
            match state.next(self.permits_max, now) {
                Next::Go(at) => {
                    let waiter = state.waiting.remove(at).expect("it was found there");
                    let bytes = if waiter.counts { waiter.bytes } else { 0 };
                    state.go(&waiter, now);
                    refused.extend(waiter.grant.send(Permit { pacer: Some(self.clone()), bytes, since: now }).err());
                }
                Next::At(when) => {
                    self.wake_at(&mut state, when);
                    break;
                }
                Next::Nobody => break,
            }
        }
        drop(state);
    }

    fn wake_at(self: &Arc<Self>, state: &mut PacerState, when: Instant) {
        if state.wake_at.is_some_and(|at| at <= when) {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        state.wake_at = Some(when);
        let pacer = self.clone();
        runtime.spawn(async move {
            tokio::time::sleep_until(when).await;
            pacer.state().wake_at = None;
            pacer.grant_due();
        });
    }
}

impl PacerState {
    fn next(&mut self, permits_max: usize, now: Instant) -> Next {
        self.waiting.retain(|waiter| !waiter.grant.is_closed());
        if self.bytes_per_s_max == Some(0) || self.until.is_some_and(|until| until <= now) {
            return Next::Nobody;
        }
        let Some(at) = self.first(permits_max) else { return Next::Nobody };
        let Some(rate) = self.bytes_per_s_max else { return Next::Go(at) };
        match self.passed_at(self.waiting[at].bytes, rate).checked_sub(BURST) {
            Some(due) if due > now => Next::At(due),
            _ => Next::Go(at),
        }
    }

    fn arrive(&mut self, waiter: Waiter, now: Instant) {
        if self.waiting.is_empty() {
            self.saves_no_more_than_a_burst(now);
        }
        self.waiting.push_back(waiter);
    }

    fn saves_no_more_than_a_burst(&mut self, now: Instant) {
        self.paid_until = self.paid_until.max(now.checked_sub(BURST).unwrap_or(now));
    }

    /// Urgent ones first, then those of the oldest transfer, so that one after the other is complete and its reader can begin, or it can be
    /// verified, while the next is under way; of those that count, none while the window is full.
    fn first(&self, permits_max: usize) -> Option<usize> {
        let least = (self.granted + 1).is_multiple_of(LEAST_SERVED_PERMITS);
        let rank = |waiter: &Waiter| if least { waiter.priority.given.load(Ordering::Relaxed) } else { waiter.priority.number };
        let first = |urgent: bool, counts: bool| {
            let fits = |waiter: &Waiter| waiter.counts == counts && waiter.priority.is_urgent() == urgent;
            let waiting = self.waiting.iter().enumerate().filter(|(_, waiter)| fits(waiter));
            waiting.min_by_key(|(_, waiter)| rank(waiter)).map(|(at, _)| at)
        };
        let has_room = |at: &usize| self.permits < permits_max && self.fits_window(self.waiting[*at].bytes);
        let of = |urgent: bool| {
            let counted = first(urgent, true).filter(has_room);
            [counted, first(urgent, false)].into_iter().flatten().min_by_key(|at| rank(&self.waiting[*at]))
        };
        if self.urgent_in_a_row + 1 >= URGENT_PERMITS {
            return of(false).or_else(|| of(true));
        }
        // The room that a large urgent piece waits for does not go to small ones that nobody waits for.
        if first(true, true).is_some_and(|at| !has_room(&at)) {
            return first(true, false).or_else(|| first(false, false));
        }
        of(true).or_else(|| of(false))
    }

    fn fits_window(&self, bytes: u64) -> bool {
        self.under_way == 0 || self.under_way + bytes <= self.window.bytes()
    }

    fn give_back(&mut self, bytes: u64) {
        self.under_way -= bytes;
        self.permits -= 1;
    }

    fn passed_at(&self, bytes: u64, rate: u64) -> Instant {
        self.paid_until + Duration::from_secs_f64(bytes as f64 / rate as f64)
    }

    fn go(&mut self, waiter: &Waiter, now: Instant) {
        if let Some(rate) = self.bytes_per_s_max {
            self.paid_until = self.passed_at(waiter.bytes, rate);
            self.saves_no_more_than_a_burst(now);
        }
        self.urgent_in_a_row = if waiter.priority.is_urgent() { self.urgent_in_a_row + 1 } else { 0 };
        self.granted += 1;
        waiter.priority.given.fetch_add(waiter.bytes, Ordering::Relaxed);
        if waiter.counts {
            if self.under_way == 0 {
                self.window.starts(now);
            }
            self.under_way += waiter.bytes;
            self.permits += 1;
        }
    }
}

#[cfg(test)]
mod tests;
