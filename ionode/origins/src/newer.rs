//! Whether what is at a destination was changed after what is to be written over it was made. Knows times, no protocol.
//!
//! The one rule: each age is measured by one clock, the origin's or ours; what cannot be told apart counts as newer, and stays.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use stager_core::error::ApiError;

use crate::{failure, Entry};

/// Stamps and clocks come in whole seconds, and up to two more of an origin's clock are taken for rounding (sftp/mod.rs).
const UNCERTAINTY_S: i64 = 5;

/// How long ago something was made, and when that was said.
#[derive(Clone, Copy, Debug)]
pub struct Made {
    pub ago: Duration,
    pub told: Instant,
}

impl Made {
    /// `now_s`: by the origin's clock. What tells no time is older.
    pub fn refuse_newer(&self, found: &Entry, now_s: i64, place: &str) -> Result<(), ApiError> {
        let Some(mtime_ns) = found.mtime_ns else { return Ok(()) };
        let mtime_s = mtime_ns.div_euclid(1_000_000_000);
        let age_s = i64::try_from((self.ago + self.told.elapsed()).as_secs()).unwrap_or(i64::MAX);
        if now_s - mtime_s > age_s.saturating_add(UNCERTAINTY_S) {
            return Ok(());
        }
        Err(failure::destination_newer(&found.path, place, found.size_bytes, mtime_s))
    }
}

pub fn seconds_of(time: SystemTime) -> i64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EntryKind;

    fn judged(changed_s_ago: i64, made_s_ago: u64, mtime: bool) -> bool {
        let (made, now_s) = (Made { ago: Duration::from_secs(made_s_ago), told: Instant::now() }, 1_800_000_000);
        let mtime_ns = mtime.then_some((now_s - changed_s_ago) * 1_000_000_000);
        let found = Entry { path: "out".into(), size_bytes: 3, token: String::new(), mtime_ns, kind: EntryKind::File, settled: true };
        made.refuse_newer(&found, now_s, "a place").is_err()
    }

    #[test]
    fn only_what_was_surely_changed_before_may_be_replaced() {
        assert!(judged(0, 100, true) && judged(99, 100, true));
        assert!(judged(100, 100, true) && judged(105, 100, true), "in doubt it stays");
        assert!(!judged(107, 100, true) && !judged(1_800_000_000, 100, true));
        assert!(judged(-50, 0, true), "a clock that was set back");
        assert!(!judged(0, 100, false), "no time is told");
    }
}
