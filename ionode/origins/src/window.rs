//! How many bytes to have under way to an origin, learned from how they arrive. Knows what it is told; no clock.
//!
//! The one rule: twice what the line holds (its rate by its shortest way there and back), so that it is full, finds out when it got wider, and
//! whoever comes new waits for no more than that.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// Sixteen requests of 255 KiB.
const BYTES_MIN: u64 = 16 * 255 * 1024;
const BYTES_MAX: u64 = 64 << 20;
const SLOT: Duration = Duration::from_millis(100);
const SLOTS_REMEMBERED: usize = 50;

pub struct Window {
    bytes: u64,
    way_min: Duration,
    slot_began: Instant,
    slot_bytes: u64,
    rates: VecDeque<f64>,
}

impl Window {
    pub fn new(now: Instant) -> Self {
        Self { bytes: BYTES_MIN, way_min: Duration::MAX, slot_began: now, slot_bytes: 0, rates: VecDeque::new() }
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// After a time in which nothing was under way.
    pub fn starts(&mut self, now: Instant) {
        (self.slot_began, self.slot_bytes) = (now, 0);
    }

    pub fn completed(&mut self, bytes: u64, way: Duration, now: Instant) {
        self.way_min = self.way_min.min(way);
        self.slot_bytes += bytes;
        let took = now.saturating_duration_since(self.slot_began);
        if took < SLOT.max(self.way_min) {
            return;
        }
        self.rates.push_back(self.slot_bytes as f64 / took.as_secs_f64());
        if self.rates.len() > SLOTS_REMEMBERED {
            self.rates.pop_front();
        }
        self.starts(now);
        let best = self.rates.iter().copied().fold(0.0, f64::max);
        self.bytes = ((2.0 * best * self.way_min.as_secs_f64()) as u64).clamp(BYTES_MIN, BYTES_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line of this rate and length, always as full as the window allows, for so many seconds.
    fn window_on(bytes_per_s: f64, round_trip_s: f64, seconds: f64) -> u64 {
        let start = Instant::now();
        let mut window = Window::new(start);
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
        assert_eq!(window_on(2e9, 0.3, 10.0), BYTES_MAX);
    }
}
