//! The time of day as this process counts it. Knows nothing else.
//!
//! The one rule: it never goes back, whoever sets the clock.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Seconds since 1970 as the clock was at the start of this process, counted on by time that passes: whoever sets the clock back by a year
/// does not keep the scrubber from its work for so long.
pub fn now_s() -> u64 {
    static START: OnceLock<(Instant, u64)> = OnceLock::new();
    let (start, start_s) = START.get_or_init(|| (Instant::now(), wall_s()));
    start_s + start.elapsed().as_secs()
}

fn wall_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
