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
}

impl Default for Priority {
    /// Of a transfer that came after all that there are.
    fn default() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        Self { urgent: Arc::default(), number: COUNT.fetch_add(1, Ordering::Relaxed), given: Arc::default() }
    }
}

impl Priority {
    pub fn set(&self, urgent: bool) {
        self.urgent.store(urgent, Ordering::Relaxed);
    }
    pub fn is_urgent(&self) -> bool {
        self.urgent.load(Ordering::Relaxed)
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
mod tests {
    use std::task::Poll;

    use futures::stream::{FuturesUnordered, StreamExt};

    use super::*;

    const PIECE: u64 = 255 * 1024;

    fn urgent() -> Priority {
        let priority = Priority::default();
        priority.set(true);
        priority
    }

    #[tokio::test]
    async fn a_rate_is_kept_by_all_together() {
        let (pacer, priority) = (Pacer::new(Some(1_000_000)), Priority::default());
        let started = Instant::now();
        futures::future::join_all((0..6).map(|_| pacer.take(100_000, &priority))).await;
        assert!(started.elapsed() >= Duration::from_millis(390), "{:?}", started.elapsed());
        let free = Pacer::new(None);
        assert!(futures::poll!(Box::pin(free.take(u64::MAX, &priority))).is_ready());
    }

    fn granted(pacer: &Pacer) -> usize {
        pacer.state().granted
    }

    /// Not by the clock: a busy machine takes its time for each permit. Its own is one of these, and what may pass in a burst behind it; none
    /// that is given when its bytes are given back.
    fn overtook(pacer: &Pacer, before: usize) {
        let permits = granted(pacer) - before;
        assert!((1..=3).contains(&permits), "it came after {permits} permits, and nineteen waited");
    }

    #[tokio::test]
    async fn what_a_job_waits_for_overtakes_all_that_wait_before_it() {
        let pacer = Pacer::new(Some(1_000_000));
        let priority = Priority::default();
        let mut others: FuturesUnordered<_> = (0..20).map(|_| pacer.acquire(100_000, priority.clone())).collect();
        drop(others.next().await);
        let before = granted(&pacer);
        let permit = pacer.acquire(100_000, urgent()).await;
        overtook(&pacer, before);
        drop(permit);
        // One that is asked for by a job only later, while it waits already.
        let later = Priority::default();
        let waiting = pacer.acquire(100_000, later.clone());
        tokio::pin!(waiting);
        assert!(futures::poll!(&mut waiting).is_pending());
        later.set(true);
        let before = granted(&pacer);
        let permit = waiting.await;
        overtook(&pacer, before);
        drop(permit);
    }

    #[tokio::test]
    async fn a_rate_that_changes_counts_at_once_and_after_its_end_nothing_passes() {
        let (pacer, priority) = (Pacer::new(Some(1_000)), Priority::default());
        pacer.take(1, &priority).await;
        let mut slow = Box::pin(pacer.take(1_000_000, &priority));
        assert!(futures::poll!(&mut slow).is_pending());
        pacer.set_rate(Some(100_000_000), None);
        slow.await;
        pacer.set_rate(Some(0), None);
        let mut none = Box::pin(pacer.take(1, &priority));
        assert!(futures::poll!(&mut none).is_pending());
        pacer.set_rate(None, Some(Instant::now()));
        assert!(futures::poll!(&mut none).is_pending());
        pacer.set_rate(None, None);
        none.await;
    }

    #[tokio::test]
    async fn below_a_rate_urgent_uploads_overtake_too() {
        let (pacer, patient) = (Pacer::new(Some(1_000_000)), Priority::default());
        let mut others: FuturesUnordered<_> = (0..20).map(|_| pacer.take(100_000, &patient)).collect();
        others.next().await;
        let before = granted(&pacer);
        pacer.take(100_000, &urgent()).await;
        overtook(&pacer, before);
    }

    #[tokio::test]
    async fn no_more_permits_are_given_than_there_are_connections_and_the_next_is_an_urgent_one() {
        let (pacer, patient) = (Pacer::with_permits_max(None, 2), Priority::default());
        let mut permits = vec![pacer.acquire(1, patient.clone()).await, pacer.acquire(1, patient.clone()).await];
        let (mut first, mut second) = (Box::pin(pacer.acquire(1, patient.clone())), Box::pin(pacer.acquire(1, urgent())));
        assert!(futures::poll!(&mut first).is_pending() && futures::poll!(&mut second).is_pending());
        permits.pop();
        assert!(futures::poll!(&mut first).is_pending() && futures::poll!(&mut second).is_ready());
    }

    /// One permit at a time, so that permits are counted and no time passes.
    #[tokio::test]
    async fn the_transfer_that_came_first_is_complete_first_and_a_small_one_does_not_wait_for_all_that_is_large() {
        const PIECES: usize = 40;
        let pacer = Pacer::with_permits_max(None, 1);
        let hold = pacer.acquire(1, Priority::default()).await;
        let transfers = [("first", PIECES), ("second", PIECES), ("third", PIECES), ("small", 2)].map(|way| (way, Priority::default()));
        let run = |name: &'static str, pieces: usize, priority: Priority| {
            let pacer = &pacer;
            async move {
                futures::future::join_all((0..pieces).map(|_| async { drop(pacer.acquire(1, priority.clone()).await) })).await;
                (name, pacer.state().granted)
            }
        };
        // All that they want is asked for at once, in the other order.
        let large = transfers[..3].iter().rev().chain(&transfers[3..]);
        let mut all: FuturesUnordered<_> = large.map(|((name, pieces), priority)| run(name, *pieces, priority.clone())).collect();
        assert!(futures::poll!(all.next()).is_pending());
        drop(hold);
        let mut ended = Vec::new();
        while let Some(end) = all.next().await {
            ended.push(end);
        }
        let permit_of = |name: &str| ended.iter().find(|(each, _)| *each == name).expect("it ended").1;
        assert!(permit_of("first") < permit_of("second") && permit_of("second") < permit_of("third"), "{ended:?}");
        assert!(permit_of("first") <= PIECES * 3 / 2, "{ended:?}");
        assert!(permit_of("small") <= 6 * LEAST_SERVED_PERMITS, "{ended:?}");
    }

    /// One permit at a time, so that permits are counted and no time passes.
    #[tokio::test]
    async fn what_nobody_waits_for_gets_some_permits_too() {
        let pacer = Pacer::with_permits_max(None, 1);
        let mut held = pacer.acquire(1, urgent()).await;
        let mut pushing: FuturesUnordered<_> = (0..4).map(|_| pacer.acquire(1, urgent())).collect();
        let patient = async {
            for _ in 0..10 {
                drop(pacer.acquire(1, Priority::default()).await);
            }
        };
        tokio::pin!(patient);
        let mut permits_of_others = 0;
        while futures::poll!(&mut patient).is_pending() {
            assert!(futures::poll!(pushing.next()).is_pending(), "two have a permit at once");
            drop(held);
            // The patient one acquires and drops its permit when it is polled.
            held = tokio::select! { biased; () = &mut patient => break, permit = pushing.next() => permit.expect("four push") };
            permits_of_others += 1;
            assert!(permits_of_others <= 160, "the patient one has to wait for ever");
            pushing.push(pacer.acquire(1, urgent()));
        }
        assert!(permits_of_others >= 140, "{permits_of_others} permits of others for ten of its own");
    }

    /// A line that brings one permit after the other, and gives its bytes back then: bytes are counted, and no time passes.
    #[tokio::test]
    async fn small_pieces_do_not_take_the_room_that_a_large_urgent_one_waits_for() {
        const LARGE: u64 = 1 << 20;
        const SMALL: u64 = 115_600;
        let (pacer, needed) = (Pacer::new(None), urgent());
        let mut small: FuturesUnordered<_> = (0..200).map(|_| pacer.acquire(SMALL, Priority::default())).collect();
        let mut large: FuturesUnordered<_> = (0..3).map(|_| pacer.acquire(LARGE, needed.clone())).collect();
        let (mut line, mut small_ones, mut large_ones) = (VecDeque::new(), 0, 0);
        while large_ones < 18 {
            let before = line.len();
            while let Poll::Ready(Some(permit)) = futures::poll!(small.next()) {
                line.push_back(permit);
                small_ones += 1;
            }
            while let Poll::Ready(Some(permit)) = futures::poll!(large.next()) {
                line.push_back(permit);
                large_ones += 1;
                large.push(pacer.acquire(LARGE, needed.clone()));
            }
            if line.len() == before {
                line.pop_front();
            }
        }
        let had_room = pacer.state().window.bytes() / SMALL;
        assert!(small_ones <= had_room + 2, "{small_ones} small ones went before 18 large ones, and {had_room} came first");
    }

    #[tokio::test]
    async fn no_more_is_under_way_than_the_window_and_what_is_given_up_is_given_back() {
        let pacer = Pacer::new(None);
        let mut waiting: FuturesUnordered<_> = (0..50).map(|_| pacer.acquire(PIECE, Priority::default())).collect();
        let mut permits = Vec::new();
        while let Ok(Some(permit)) = tokio::time::timeout(Duration::from_millis(50), waiting.next()).await {
            permits.push(permit);
        }
        assert_eq!(permits.len(), 16);
        // Its permit comes, but it has gone by then; so has one that was given its permit and never polled again.
        let mut gone = Box::pin(pacer.acquire(PIECE, urgent()));
        assert!(futures::poll!(&mut gone).is_pending());
        permits.pop();
        drop(gone);
        drop(waiting);
        drop(permits);
        assert_eq!(pacer.state().under_way, 0);
        let whole = tokio::time::timeout(Duration::from_secs(60), pacer.acquire(1 << 40, Priority::default())).await;
        assert!(whole.is_ok(), "a piece larger than the window goes alone");
    }
}
