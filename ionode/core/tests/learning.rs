//! The learned number of transfers at once against simulated origins: a line that is full at some rate, a round trip per file, a server that
//! refuses too much.
//!
//! The one rule: time is the simulation's, so a run comes out the same each time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use proptest::prelude::*;
use stager_core::learn::{End, Learner, Outcome};

#[derive(Clone, Copy, Debug)]
struct Site {
    latency_ns: u64,
    line_bytes_per_s: u64,
    file_bytes: u64,
    /// More than so many at once fail.
    refuses_above: usize,
    /// Parts of a hundred by which a latency varies.
    noise: u64,
}

impl Site {
    fn on_the_line_ns(&self) -> u64 {
        self.file_bytes * 1_000_000_000 / self.line_bytes_per_s
    }
    /// As many as just fill the line.
    fn knee(&self) -> f64 {
        (self.latency_ns as f64 / self.on_the_line_ns().max(1) as f64 + 1.0).min(self.refuses_above as f64)
    }
    /// As many as forty of the learner's shortest rounds take at the best rate: it has found its number long before the second half.
    fn files(&self) -> usize {
        20_000.max((self.best_files_per_s() * 8.0) as usize)
    }
    fn best_files_per_s(&self) -> f64 {
        self.knee().min(256.0) * 1e9 / (self.latency_ns + self.on_the_line_ns()) as f64
    }
}

struct Run {
    files_per_s: f64,
    failed_part: f64,
    limit_mean: f64,
}

/// Always enough waits. What is told is of the second half.
fn simulate(site: Site) -> Run {
    let files = site.files();
    let mut learner = Learner::default();
    let mut under_way: BinaryHeap<Reverse<(u64, bool)>> = BinaryHeap::new();
    let (mut now, mut line_free, mut seed) = (0_u64, 0_u64, 1_u64);
    let (mut failed, mut limits, mut half_at) = (0, 0, 0);
    for ended in 0..files {
        while under_way.len() < learner.limit() {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let latency = site.latency_ns * (100 + (seed >> 33) % (site.noise + 1)) / 100;
            if under_way.len() >= site.refuses_above {
                under_way.push(Reverse((now + latency, false)));
                continue;
            }
            line_free = line_free.max(now + latency) + site.on_the_line_ns();
            under_way.push(Reverse((line_free, true)));
        }
        let Reverse((at, well)) = under_way.pop().expect("the limit is at least one");
        now = at;
        let outcome = if well { Outcome::Success } else { Outcome::Overload };
        learner.ended(End { outcome, bytes: site.file_bytes, at: Duration::from_nanos(now) }, under_way.len(), true);
        if ended == files / 2 {
            half_at = now;
        }
        if ended > files / 2 {
            failed += usize::from(!well);
            limits += learner.limit();
        }
    }
    let half = (files - files / 2 - 1) as f64;
    Run {
        files_per_s: (half - failed as f64) * 1e9 / (now - half_at).max(1) as f64,
        failed_part: failed as f64 / half,
        limit_mean: limits as f64 / half,
    }
}

fn site() -> impl Strategy<Value = Site> {
    (1_000_000_u64..300_000_000, 2_000_000_u64..100_000_000, 0_u64..1_000_000, 0_u64..30).prop_map(
        |(latency_ns, line_bytes_per_s, file_bytes, noise)| Site {
            latency_ns,
            line_bytes_per_s,
            file_bytes,
            refuses_above: usize::MAX,
            noise,
        },
    )
}

proptest! {
    #[test]
    fn a_line_is_filled_without_many_more_than_it_takes(site in site()) {
        let run = simulate(site);
        prop_assert!(run.files_per_s >= 0.75 * site.best_files_per_s(), "{} of {} files/s", run.files_per_s, site.best_files_per_s());
        prop_assert!(run.limit_mean <= 3.0 * site.knee() + 24.0, "{} at once, {} fill the line", run.limit_mean, site.knee());
        prop_assert_eq!(run.failed_part, 0.0);
    }

    #[test]
    fn a_server_that_refuses_too_many_is_used_as_far_as_it_goes(site in site(), refuses_above in 1_usize..100) {
        let site = Site { refuses_above, ..site };
        let run = simulate(site);
        prop_assert!(run.failed_part <= 0.1, "{} of all failed", run.failed_part);
        prop_assert!(run.files_per_s >= 0.4 * site.best_files_per_s(), "{} of {} files/s", run.files_per_s, site.best_files_per_s());
    }
}

/// They end in waves, one for each round trip, and a wave comes as often as the shortest round.
#[test]
fn tiny_files_over_a_long_way_fill_their_line_too() {
    for latency_ns in (130_000_000..200_000_000).step_by(1_000_003) {
        for noise in [4, 13, 21] {
            let site = Site { latency_ns, line_bytes_per_s: 60_000_000, file_bytes: 1_000, refuses_above: usize::MAX, noise };
            let run = simulate(site);
            assert!(
                run.files_per_s >= 0.75 * site.best_files_per_s(),
                "{} of {} files/s: {site:?}",
                run.files_per_s,
                site.best_files_per_s()
            );
        }
    }
}

#[test]
fn after_an_outage_it_comes_back_to_where_it_was() {
    let mut learner = Learner::default();
    let end = |outcome, ms| End { outcome, bytes: 65_536, at: Duration::from_millis(ms) };
    for _ in 0..10 {
        learner.ended(end(Outcome::Overload, 0), 0, true);
    }
    assert_eq!(learner.limit(), 1);
    // Ten milliseconds a file each, however many at once.
    let mut ms = 0;
    for _ in 0..20_000 {
        ms += 1000 / learner.limit() as u64;
        learner.ended(end(Outcome::Success, ms), learner.limit() - 1, true);
    }
    assert!(learner.limit() >= 16, "{}", learner.limit());
}

#[test]
fn what_nobody_waits_for_teaches_nothing() {
    let mut learner = Learner::default();
    for n in 0..10_000 {
        learner.ended(End { outcome: Outcome::Success, bytes: 1 << 20, at: Duration::from_millis(n) }, 3, false);
    }
    assert_eq!(learner.limit(), 16);
}
