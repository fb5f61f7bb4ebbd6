//! How many requests may be under way at once, where that changes while they are.
//!
//! The one rule: what is under way goes on; with fewer allowed, the next one waits until so many fewer are.

use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

#[derive(Clone)]
pub struct Limiter {
    places: Arc<Semaphore>,
    counts: Arc<Mutex<Counts>>,
}

struct Counts {
    most: usize,
    /// Places that are taken away as soon as they are free.
    owed: usize,
}

/// One request that is under way.
pub struct Place {
    permit: Option<OwnedSemaphorePermit>,
    of: Limiter,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.of.counts();
        if counts.owed > 0 {
            counts.owed -= 1;
            self.permit.take().into_iter().for_each(OwnedSemaphorePermit::forget);
        }
    }
}

impl Limiter {
    pub fn new(most: usize) -> Self {
        Self { places: Arc::new(Semaphore::new(most)), counts: Arc::new(Mutex::new(Counts { most, owed: 0 })) }
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().expect("no holder panics")
    }

    pub async fn place(&self) -> Place {
        let permit = self.places.clone().acquire_owned().await.expect("the semaphore is never closed");
        Place { permit: Some(permit), of: self.clone() }
    }

    /// Returns how many are under way.
    pub fn allow(&self, most: usize) -> usize {
        let mut counts = self.counts();
        if most > counts.most {
            let more = most - counts.most;
            let kept = more.min(counts.owed);
            counts.owed -= kept;
            self.places.add_permits(more - kept);
        } else {
            let fewer = counts.most - most;
            counts.owed += fewer - self.places.forget_permits(fewer);
        }
        counts.most = most;
        most + counts.owed - self.places.available_permits()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn with_fewer_allowed_what_is_under_way_goes_on_and_the_next_waits() {
        let limiter = Limiter::new(3);
        let mut places = vec![limiter.place().await, limiter.place().await, limiter.place().await];
        assert_eq!(limiter.allow(1), 3);
        let mut next = Box::pin(limiter.place());
        places.truncate(1);
        assert!(futures::poll!(&mut next).is_pending());
        assert_eq!(limiter.allow(1), 1);
        places.clear();
        assert!(futures::poll!(&mut next).is_ready());
        assert_eq!(limiter.allow(0), 0);
        let mut none = Box::pin(limiter.place());
        assert!(futures::poll!(&mut none).is_pending());
        limiter.allow(2);
        assert!(futures::poll!(&mut none).is_ready());
    }
}
