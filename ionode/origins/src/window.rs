//! How many bytes to have under way to an origin, learned from how they arrive. Knows what it is told; no clock.
//!
//! The one rule: twice what the line holds (its rate by the shortest time that such pieces were under way), so that it is full, finds out when
//! it got wider, and whoever comes new waits for no more than that.
//!
//! A large piece is under way for longer than a way there and back, even on a line that is empty: its connection may have to be made, and
//! begins slowly. So the shortest time is kept for each size of piece, and weighed by what comes in which. Of all that is larger than the
//! smallest piece of a large file it is one: pieces grow with the window, and would be known by a line only that was full already.
//!
//! Pieces over connections of their own share a narrow line, so each of them takes as long as all of them do. How soon an answer began says
//! how long one alone would take at most.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// Sixteen requests of 255 KiB. On a line that takes more than half a second for them it is as much as that brings, but two of the largest
/// pieces that a narrow line is asked for at least: with one at a time it would be idle in between.
const BYTES_MIN: u64 = 16 * 255 * 1024;
const NARROW_BYTES_MIN: u64 = 2 << 20;
const NARROW_S: f64 = 0.5;
/// A line was watched for so long before it counts as narrow: the first bytes are late on any.
const WATCHED_S_MIN: f64 = 2.0;
const BYTES_MAX: u64 = 64 << 20;
const SLOT: Duration = Duration::from_millis(100);
const SLOTS_REMEMBERED: usize = 50;
/// A new connection begins slowly: a piece of a megabyte takes so many times as long to come as its answer takes to begin, besides the time
/// that the line needs for it.
const ANSWER_TIMES: f64 = 6.0;

/// Pieces of up to so many bytes are of one size; the last size has no end.
const SIZES: [u64; 4] = [64 << 10, 128 << 10, 255 * 1024 - 1, u64::MAX];

pub struct Window {
    bytes: u64,
    ways_min: [Duration; SIZES.len()],
    answer_min: Duration,
    slot_began: Instant,
    slot_bytes: [u64; SIZES.len()],
    slot_pieces: usize,
    rates: VecDeque<f64>,
    watched_s: f64,
}

impl Window {
    pub fn new(now: Instant) -> Self {
        let (ways_min, slot_bytes) = ([Duration::MAX; SIZES.len()], [0; SIZES.len()]);
        let (rates, answer_min) = (VecDeque::new(), Duration::MAX);
        Self { bytes: BYTES_MIN, ways_min, answer_min, slot_began: now, slot_bytes, slot_pieces: 0, rates, watched_s: 0.0 }
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// After a time in which nothing was under way.
    pub fn starts(&mut self, now: Instant) {
        (self.slot_began, self.slot_bytes, self.slot_pieces) = (now, [0; SIZES.len()], 0);
    }

    /// The answer to a request began to come so long after it was allowed.
    pub fn answered(&mut self, after: Duration) {
        self.answer_min = self.answer_min.min(after);
    }

    pub fn completed(&mut self, bytes: u64, way: Duration, now: Instant) {
        let size = SIZES.partition_point(|most| *most < bytes);
        self.ways_min[size] = self.ways_min[size].min(way);
        self.slot_bytes[size] += bytes;
        self.slot_pieces += 1;
        let (took, way_s) = (now.saturating_duration_since(self.slot_began).as_secs_f64(), self.way_min_s());
        if took < way_s.max(SLOT.as_secs_f64()) {
            return;
        }
        let slot_bytes = self.slot_bytes.iter().sum::<u64>() as f64;
        self.watched_s += took;
        self.rates.push_back(slot_bytes / took);
        if self.rates.len() > SLOTS_REMEMBERED {
            self.rates.pop_front();
        }
        let best = self.rates.iter().copied().fold(0.0, f64::max);
        let alone_s = ANSWER_TIMES * self.answer_min.as_secs_f64() + slot_bytes / self.slot_pieces as f64 / best;
        self.bytes = ((2.0 * best * way_s.min(alone_s)) as u64).clamp(self.least_bytes(best), BYTES_MAX);
        self.starts(now);
    }

    fn least_bytes(&self, best: f64) -> u64 {
        match self.watched_s >= WATCHED_S_MIN {
            true => ((NARROW_S * best) as u64).clamp(NARROW_BYTES_MIN, BYTES_MIN),
            false => BYTES_MIN,
        }
    }

    /// Of the pieces of this slot, each byte counted alike.
    fn way_min_s(&self) -> f64 {
        let weighed = self.slot_bytes.iter().zip(&self.ways_min).filter(|(bytes, _)| **bytes > 0);
        let byte_seconds: f64 = weighed.map(|(bytes, way)| *bytes as f64 * way.as_secs_f64()).sum();
        byte_seconds / self.slot_bytes.iter().sum::<u64>().max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line of this rate and length, always as full as the window allows, for so many seconds.
    fn window_on(bytes_per_s: f64, round_trip_s: f64, seconds: f64) -> u64 {
        let start = Instant::now();
        window_after(Window::new(start), start, bytes_per_s, round_trip_s, seconds)
    }

    fn window_after(mut window: Window, start: Instant, bytes_per_s: f64, round_trip_s: f64, seconds: f64) -> u64 {
        let (piece, mut now_s, mut free_s) = (255 * 1024_u64, 0.0, 0.0_f64);
        let mut under_way: VecDeque<(f64, f64)> = VecDeque::new();
        window.starts(start);
        while now_s < seconds {
            while (under_way.len() as u64 + 1) * piece <= window.bytes() {
                free_s = free_s.max(now_s + round_trip_s) + piece as f64 / bytes_per_s;
                under_way.push_back((now_s, free_s));
            }
            let (asked_s, ends_s) = under_way.pop_front().expect("the window holds sixteen");
            now_s = ends_s;
            window.completed(piece, Duration::from_secs_f64(ends_s - asked_s), start + Duration::from_secs_f64(ends_s));
        }
        window.bytes()
    }

    #[test]
    fn a_wide_line_is_found_and_a_narrow_one_is_not_flooded() {
        let held = 94e6 * 0.1;
        let wide = window_on(94e6, 0.1, 10.0) as f64;
        assert!((1.5 * held..2.5 * held).contains(&wide), "{wide} for a line that holds {held}");
        assert_eq!(window_on(25e6, 0.03, 10.0), BYTES_MIN);
        assert_eq!(window_on(1.25e6, 0.03, 10.0), NARROW_BYTES_MIN);
        assert_eq!(window_on(2e9, 0.3, 10.0), BYTES_MAX);
    }

    /// As `window_on`, but all that is under way shares the line, so what began together ends together.
    fn window_on_shared(bytes_per_s: f64, round_trip_s: f64, seconds: f64) -> u64 {
        let (piece, start, mut now_s) = (512 * 1024_u64, Instant::now(), 0.0);
        let mut window = Window::new(start);
        window.starts(start);
        while now_s < seconds {
            let at_once = window.bytes() / piece;
            let took_s = round_trip_s + (at_once * piece) as f64 / bytes_per_s;
            now_s += took_s;
            for _ in 0..at_once {
                window.answered(Duration::from_secs_f64(round_trip_s));
                window.completed(piece, Duration::from_secs_f64(took_s), start + Duration::from_secs_f64(now_s));
            }
        }
        window.bytes()
    }

    #[test]
    fn a_narrow_line_that_pieces_share_is_not_flooded() {
        let narrow = window_on_shared(1.25e6, 0.03, 60.0) as f64;
        assert!(narrow < 2.5 * 1.25e6, "{narrow} for a line of 1.25 MB/s");
        let wide = window_on_shared(94e6, 0.1, 10.0) as f64;
        assert!(wide > 94e6 * 0.1, "{wide} for a line that holds 9.4 MB");
    }

    #[test]
    fn a_line_is_not_taken_for_narrow_because_its_first_bytes_are_late() {
        let (start, late) = (Instant::now(), Duration::from_millis(200));
        let mut window = Window::new(start);
        window.starts(start);
        window.completed(512 * 1024, late, start + late);
        assert_eq!(window.bytes(), BYTES_MIN);
    }

    #[test]
    fn a_line_is_filled_by_pieces_that_take_longer_than_its_shortest_way() {
        let (start, way) = (Instant::now(), Duration::from_millis(50));
        let mut window = Window::new(start);
        window.starts(start);
        for _ in 0..3 {
            window.completed(700, way, start + way);
        }
        // Four ways there and back: one for the connection, three until it is wide enough.
        let full = 94e6 * 0.2;
        let found = window_after(window, start + way, 94e6, 0.2, 10.0) as f64;
        assert!((1.5 * full..2.5 * full).contains(&found), "{found} to have {full} under way");
    }

    #[test]
    fn small_files_that_come_after_large_ones_get_a_window_of_their_own_way() {
        let start = Instant::now();
        let mut window = Window::new(start);
        window_after_large(&mut window, start);
        assert!(window.bytes() > 20_000_000, "{}", window.bytes());
        let mut now = start + Duration::from_secs(20);
        window.starts(now);
        for _ in 0..200 * SLOTS_REMEMBERED {
            now += Duration::from_millis(1);
            window.completed(50_000, Duration::from_millis(50), now);
        }
        assert_eq!(window.bytes(), 5_000_000);
    }

    fn window_after_large(window: &mut Window, start: Instant) {
        let mut now = start;
        window.starts(now);
        for _ in 0..1000 {
            now += Duration::from_millis(5);
            window.completed(500_000, Duration::from_millis(200), now);
        }
    }
}
