//! Work that goes on and on without moving a byte. Knows a count of bytes and the clock.
//!
//! The one rule: whoever moves bytes counts them where it is waited for.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const STALL_CHECK: Duration = Duration::from_secs(1);

/// Returns when the count has not changed for so long.
pub async fn stalled(progress: &AtomicU64, stall: Duration) {
    stalled_by(|| progress.load(Ordering::Relaxed), stall).await;
}

/// As `stalled`, of whatever counts.
pub async fn stalled_by(count: impl Fn() -> u64, stall: Duration) {
    let (mut seen, mut since) = (count(), Instant::now());
    let mut ticks = tokio::time::interval(STALL_CHECK.min(stall));
    loop {
        ticks.tick().await;
        let now = count();
        if now != seen {
            (seen, since) = (now, Instant::now());
        }
        if since.elapsed() >= stall {
            return;
        }
    }
}
