//! The pacer: what goes first, how much at once, and how quick.

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
