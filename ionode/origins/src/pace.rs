//! The bandwidth an origin may be used with, shared by all its transfers. Knows the clock and a rate.
//!
//! The one rule: whoever moves bytes asks first and waits its turn; a short burst is allowed, a lasting excess is not.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

/// What an idle origin may be ahead by.
const BURST: Duration = Duration::from_millis(100);

pub struct Pace {
    bytes_per_s_max: Option<u64>,
    /// When all that was allowed so far has passed at the rate.
    paid_until: Mutex<Instant>,
}

impl Pace {
    pub fn new(bytes_per_s_max: Option<u64>) -> Self {
        Self { bytes_per_s_max: bytes_per_s_max.filter(|rate| *rate > 0), paid_until: Mutex::new(Instant::now()) }
    }

    pub async fn take(&self, bytes: u64) {
        let Some(rate) = self.bytes_per_s_max else { return };
        let start = {
            let mut paid_until = self.paid_until.lock().expect("no holder panics");
            let now = Instant::now();
            let start = (*paid_until).max(now.checked_sub(BURST).unwrap_or(now));
            *paid_until = start + Duration::from_secs_f64(bytes as f64 / rate as f64);
            *paid_until
        };
        tokio::time::sleep_until(start.checked_sub(BURST).unwrap_or(start)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_rate_is_kept_by_all_together() {
        let pace = Pace::new(Some(1_000_000));
        let started = Instant::now();
        futures::future::join_all((0..6).map(|_| pace.take(100_000))).await;
        assert!(started.elapsed() >= Duration::from_millis(390), "{:?}", started.elapsed());
        let free = Pace::new(None);
        let started = Instant::now();
        free.take(u64::MAX).await;
        assert!(started.elapsed() < Duration::from_millis(100));
    }
}
