//! Whose turn it is on the way to an origin: the bandwidth that it may be used with, and how much is asked of it at once. Knows the clock.
//!
//! The one rule: whoever moves bytes asks first and waits its turn, what a job waits for before the rest, and among those the transfer that
//! came first; and no more is under way than keeps the line full, because what has been asked for cannot be overtaken any more.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::window::Window;

/// What an idle origin may be ahead by.
const BURST: Duration = Duration::from_millis(100);
/// What nobody waits for gets each so manieth turn all the same, so that it never looks as if its origin had died.
const TURNS_OF_URGENT: usize = 16;
/// Each so manieth turn goes to the transfer that was given least so far: what is small does not wait for all that is large and came before.
const TURNS_OF_LEAST: usize = 4;

/// Whether a job waits for these bytes, and which transfer they are of. Shared by all clones; whether a job waits may change while they are
/// under way.
#[derive(Clone, Debug)]
pub struct Urgency {
    urgent: Arc<AtomicBool>,
    number: u64,
    given: Arc<AtomicU64>,
}

impl Default for Urgency {
    /// Of a transfer that came after all that there are.
    fn default() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        Self { urgent: Arc::default(), number: COUNT.fetch_add(1, Ordering::Relaxed), given: Arc::default() }
    }
}

impl Urgency {
    pub fn set(&self, urgent: bool) {
        self.urgent.store(urgent, Ordering::Relaxed);
    }
    pub fn is_urgent(&self) -> bool {
        self.urgent.load(Ordering::Relaxed)
    }
}

pub struct Pace {
    bytes_per_s_max: Option<u64>,
    flights_max: usize,
    desk: Mutex<Desk>,
}

struct Desk {
    /// When all that was allowed so far has passed at the rate.
    paid_until: Instant,
    under_way: u64,
    flights: usize,
    window: Window,
    waiting: VecDeque<Waiter>,
    urgent_turns: usize,
    turns: usize,
    /// Someone will look again then.
    look_at: Option<Instant>,
}

struct Waiter {
    bytes: u64,
    urgency: Urgency,
    /// Local files, and uploads in large pieces, only keep to the bandwidth.
    counts: bool,
    turn: oneshot::Sender<Flight>,
}

/// Bytes that were asked for; they have landed, or will not come, when it is dropped.
pub struct Flight {
    pace: Arc<Pace>,
    bytes: u64,
    since: Instant,
}

impl Flight {
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// All of them have arrived: that says how far and how wide the way is.
    pub fn landed(self) {
        let mut desk = self.pace.desk();
        let now = Instant::now();
        desk.window.landed(self.bytes, now - self.since, now);
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.pace.desk().give_back(self.bytes);
            self.pace.look();
        }
    }
}

enum Next {
    Go(usize),
    At(Instant),
    Nobody,
}

impl Pace {
    pub fn new(bytes_per_s_max: Option<u64>) -> Arc<Self> {
        Self::with_flights_max(bytes_per_s_max, usize::MAX)
    }

    /// Where each flight takes a connection of its own, a turn is given only to what has one: no other queue lies behind this.
    pub fn with_flights_max(bytes_per_s_max: Option<u64>, flights_max: usize) -> Arc<Self> {
        let now = Instant::now();
        let desk = Desk {
            paid_until: now,
            under_way: 0,
            flights: 0,
            window: Window::new(now),
            waiting: VecDeque::new(),
            urgent_turns: 0,
            turns: 0,
            look_at: None,
        };
        Arc::new(Self { bytes_per_s_max: bytes_per_s_max.filter(|rate| *rate > 0), flights_max, desk: Mutex::new(desk) })
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().expect("no holder panics")
    }

    /// Waits until so many bytes may pass.
    pub async fn take(self: &Arc<Self>, bytes: u64, urgency: &Urgency) {
        if self.bytes_per_s_max.is_some() {
            self.turn(bytes, urgency.clone(), false).await;
        }
    }

    /// Waits until so many bytes may be asked for.
    pub async fn fly(self: &Arc<Self>, bytes: u64, urgency: Urgency) -> Flight {
        self.turn(bytes, urgency, true).await
    }

    /// Pieces of this size leave room for others in between, and are large enough to keep the line full.
    pub fn piece_bytes(&self, least: u64, most: u64) -> u64 {
        (self.desk().window.bytes() / 8).clamp(least, most)
    }

    async fn turn(self: &Arc<Self>, bytes: u64, urgency: Urgency, counts: bool) -> Flight {
        let (turn, come) = oneshot::channel();
        self.desk().arrive(Waiter { bytes, urgency, counts, turn }, Instant::now());
        self.look();
        come.await.expect("nobody is sent away")
    }

    /// Gives out every turn that is due.
    fn look(self: &Arc<Self>) {
        // Dropped outside the lock, where their bytes are given back: those whose waiter has gone.
        let mut refused = Vec::new();
        let mut desk = self.desk();
        let now = Instant::now();
        loop {
            match desk.next(self.bytes_per_s_max, self.flights_max, now) {
                Next::Go(at) => {
                    let waiter = desk.waiting.remove(at).expect("it was found there");
                    let bytes = if waiter.counts { waiter.bytes } else { 0 };
                    desk.go(&waiter, self.bytes_per_s_max, now);
                    refused.extend(waiter.turn.send(Flight { pace: self.clone(), bytes, since: now }).err());
                }
                Next::At(when) => {
                    self.look_again(&mut desk, when);
                    break;
                }
                Next::Nobody => break,
            }
        }
        drop(desk);
    }

    fn look_again(self: &Arc<Self>, desk: &mut Desk, when: Instant) {
        if desk.look_at.is_some_and(|at| at <= when) {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        desk.look_at = Some(when);
        let pace = self.clone();
        runtime.spawn(async move {
            tokio::time::sleep_until(when).await;
            pace.desk().look_at = None;
            pace.look();
        });
    }
}

impl Desk {
    fn next(&mut self, rate: Option<u64>, flights_max: usize, now: Instant) -> Next {
        self.waiting.retain(|waiter| !waiter.turn.is_closed());
        let Some(at) = self.first(flights_max) else { return Next::Nobody };
        let Some(rate) = rate else { return Next::Go(at) };
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
    fn first(&self, flights_max: usize) -> Option<usize> {
        let least = (self.turns + 1).is_multiple_of(TURNS_OF_LEAST);
        let rank = |waiter: &Waiter| if least { waiter.urgency.given.load(Ordering::Relaxed) } else { waiter.urgency.number };
        let of = |urgent: bool| {
            let first = |counts: bool| {
                let fits = |waiter: &Waiter| waiter.counts == counts && waiter.urgency.is_urgent() == urgent;
                let waiting = self.waiting.iter().enumerate().filter(|(_, waiter)| fits(waiter));
                waiting.min_by_key(|(_, waiter)| rank(waiter)).map(|(at, _)| at)
            };
            let counted = first(true).filter(|at| self.flights < flights_max && self.has_room(self.waiting[*at].bytes));
            [counted, first(false)].into_iter().flatten().min_by_key(|at| rank(&self.waiting[*at]))
        };
        if self.urgent_turns + 1 >= TURNS_OF_URGENT {
            return of(false).or_else(|| of(true));
        }
        of(true).or_else(|| of(false))
    }

    fn has_room(&self, bytes: u64) -> bool {
        self.under_way == 0 || self.under_way + bytes <= self.window.bytes()
    }

    fn give_back(&mut self, bytes: u64) {
        self.under_way -= bytes;
        self.flights -= 1;
    }

    fn passed_at(&self, bytes: u64, rate: u64) -> Instant {
        self.paid_until + Duration::from_secs_f64(bytes as f64 / rate as f64)
    }

    fn go(&mut self, waiter: &Waiter, rate: Option<u64>, now: Instant) {
        if let Some(rate) = rate {
            self.paid_until = self.passed_at(waiter.bytes, rate);
            self.saves_no_more_than_a_burst(now);
        }
        self.urgent_turns = if waiter.urgency.is_urgent() { self.urgent_turns + 1 } else { 0 };
        self.turns += 1;
        waiter.urgency.given.fetch_add(waiter.bytes, Ordering::Relaxed);
        if waiter.counts {
            if self.under_way == 0 {
                self.window.starts(now);
            }
            self.under_way += waiter.bytes;
            self.flights += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::stream::{FuturesUnordered, StreamExt};

    use super::*;

    const PIECE: u64 = 255 * 1024;

    fn urgent() -> Urgency {
        let urgency = Urgency::default();
        urgency.set(true);
        urgency
    }

    #[tokio::test]
    async fn a_rate_is_kept_by_all_together() {
        let (pace, turn) = (Pace::new(Some(1_000_000)), Urgency::default());
        let started = Instant::now();
        futures::future::join_all((0..6).map(|_| pace.take(100_000, &turn))).await;
        assert!(started.elapsed() >= Duration::from_millis(390), "{:?}", started.elapsed());
        let free = Pace::new(None);
        assert!(futures::poll!(Box::pin(free.take(u64::MAX, &turn))).is_ready());
    }

    fn turns_given(pace: &Pace) -> usize {
        pace.desk().turns
    }

    /// Not by the clock: a busy machine takes its time for each turn. Its own is one of these, and what may pass in a burst behind it; none
    /// that is given when its bytes are given back.
    fn overtook(pace: &Pace, before: usize) {
        let turns = turns_given(pace) - before;
        assert!((1..=3).contains(&turns), "it came after {turns} turns, and nineteen waited");
    }

    #[tokio::test]
    async fn what_a_job_waits_for_overtakes_all_that_wait_before_it() {
        let pace = Pace::new(Some(1_000_000));
        let turn = Urgency::default();
        let mut others: FuturesUnordered<_> = (0..20).map(|_| pace.fly(100_000, turn.clone())).collect();
        drop(others.next().await);
        let before = turns_given(&pace);
        let flight = pace.fly(100_000, urgent()).await;
        overtook(&pace, before);
        drop(flight);
        // One that is asked for by a job only later, while it waits already.
        let later = Urgency::default();
        let waiting = pace.fly(100_000, later.clone());
        tokio::pin!(waiting);
        assert!(futures::poll!(&mut waiting).is_pending());
        later.set(true);
        let before = turns_given(&pace);
        let flight = waiting.await;
        overtook(&pace, before);
        drop(flight);
    }

    #[tokio::test]
    async fn below_a_rate_urgent_uploads_overtake_too() {
        let (pace, patient) = (Pace::new(Some(1_000_000)), Urgency::default());
        let mut others: FuturesUnordered<_> = (0..20).map(|_| pace.take(100_000, &patient)).collect();
        others.next().await;
        let before = turns_given(&pace);
        pace.take(100_000, &urgent()).await;
        overtook(&pace, before);
    }

    #[tokio::test]
    async fn no_more_fly_than_there_are_connections_and_the_next_is_an_urgent_one() {
        let (pace, patient) = (Pace::with_flights_max(None, 2), Urgency::default());
        let mut flights = vec![pace.fly(1, patient.clone()).await, pace.fly(1, patient.clone()).await];
        let (mut first, mut second) = (Box::pin(pace.fly(1, patient.clone())), Box::pin(pace.fly(1, urgent())));
        assert!(futures::poll!(&mut first).is_pending() && futures::poll!(&mut second).is_pending());
        flights.pop();
        assert!(futures::poll!(&mut first).is_pending() && futures::poll!(&mut second).is_ready());
    }

    /// One flies at a time, so that turns are counted and no time passes.
    #[tokio::test]
    async fn the_transfer_that_came_first_is_complete_first_and_a_small_one_does_not_wait_for_all_that_is_large() {
        const PIECES: usize = 40;
        let pace = Pace::with_flights_max(None, 1);
        let hold = pace.fly(1, Urgency::default()).await;
        let transfers = [("first", PIECES), ("second", PIECES), ("third", PIECES), ("small", 2)].map(|way| (way, Urgency::default()));
        let run = |name: &'static str, pieces: usize, urgency: Urgency| {
            let pace = &pace;
            async move {
                futures::future::join_all((0..pieces).map(|_| async { drop(pace.fly(1, urgency.clone()).await) })).await;
                (name, pace.desk().turns)
            }
        };
        // All that they want is asked for at once, in the other order.
        let large = transfers[..3].iter().rev().chain(&transfers[3..]);
        let mut all: FuturesUnordered<_> = large.map(|((name, pieces), urgency)| run(name, *pieces, urgency.clone())).collect();
        assert!(futures::poll!(all.next()).is_pending());
        drop(hold);
        let mut ended = Vec::new();
        while let Some(end) = all.next().await {
            ended.push(end);
        }
        let turn_of = |name: &str| ended.iter().find(|(each, _)| *each == name).expect("it ended").1;
        assert!(turn_of("first") < turn_of("second") && turn_of("second") < turn_of("third"), "{ended:?}");
        assert!(turn_of("first") <= PIECES * 3 / 2, "{ended:?}");
        assert!(turn_of("small") <= 6 * TURNS_OF_LEAST, "{ended:?}");
    }

    /// One flies at a time, so that turns are counted and no time passes.
    #[tokio::test]
    async fn what_nobody_waits_for_gets_some_turns_too() {
        let pace = Pace::with_flights_max(None, 1);
        let mut flies = pace.fly(1, urgent()).await;
        let mut pushing: FuturesUnordered<_> = (0..4).map(|_| pace.fly(1, urgent())).collect();
        let patient = async {
            for _ in 0..10 {
                drop(pace.fly(1, Urgency::default()).await);
            }
        };
        tokio::pin!(patient);
        let mut turns_of_others = 0;
        while futures::poll!(&mut patient).is_pending() {
            assert!(futures::poll!(pushing.next()).is_pending(), "two fly at once");
            drop(flies);
            // The patient one flies and lands when it is looked at.
            flies = tokio::select! { biased; () = &mut patient => break, flight = pushing.next() => flight.expect("four push") };
            turns_of_others += 1;
            assert!(turns_of_others <= 160, "the patient one has to wait for ever");
            pushing.push(pace.fly(1, urgent()));
        }
        assert!(turns_of_others >= 140, "{turns_of_others} turns of others for ten of its own");
    }

    #[tokio::test]
    async fn no_more_is_under_way_than_the_window_and_what_is_given_up_is_given_back() {
        let pace = Pace::new(None);
        let mut waiting: FuturesUnordered<_> = (0..50).map(|_| pace.fly(PIECE, Urgency::default())).collect();
        let mut flights = Vec::new();
        while let Ok(Some(flight)) = tokio::time::timeout(Duration::from_millis(50), waiting.next()).await {
            flights.push(flight);
        }
        assert_eq!(flights.len(), 16);
        // Its turn comes, but it has gone by then; so has one that was given its turn and never looked.
        let mut gone = Box::pin(pace.fly(PIECE, urgent()));
        assert!(futures::poll!(&mut gone).is_pending());
        flights.pop();
        drop(gone);
        drop(waiting);
        drop(flights);
        assert_eq!(pace.desk().under_way, 0);
        let whole = tokio::time::timeout(Duration::from_secs(60), pace.fly(1 << 40, Urgency::default())).await;
        assert!(whole.is_ok(), "a piece larger than the window goes alone");
    }
}
