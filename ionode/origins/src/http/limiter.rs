//! How many requests may be under way at once, where that changes while they are.
//!
//! The one rule: what is under way goes on; with fewer allowed, the next one waits until so many fewer are.

use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::{watch, OwnedSemaphorePermit, Semaphore};

#[derive(Clone)]
pub struct Limiter {
    places: Arc<Semaphore>,
    counts: Arc<Mutex<Counts>>,
    /// How many wait for a place.
    waiting: watch::Sender<usize>,
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

struct Waiting<'a>(&'a watch::Sender<usize>);

impl<'a> Waiting<'a> {
    fn new(count: &'a watch::Sender<usize>) -> Self {
        count.send_modify(|waiting| *waiting += 1);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|waiting| *waiting -= 1);
    }
}

impl Limiter {
    pub fn new(most: usize) -> Self {
        let counts = Counts { most, owed: 0 };
        Self { places: Arc::new(Semaphore::new(most)), counts: Arc::new(Mutex::new(counts)), waiting: watch::Sender::new(0) }
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().expect("no holder panics")
    }

    pub async fn place(&self) -> Place {
        let permit = match self.places.clone().try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                let _waiting = Waiting::new(&self.waiting);
                self.places.clone().acquire_owned().await.expect("the semaphore is never closed")
            }
        };
        Place { permit: Some(permit), of: self.clone() }
    }

    /// Until somebody waits for a place.
    pub async fn wanted(&self) {
        self.waiting.subscribe().wait_for(|waiting| *waiting > 0).await.expect("the sender is here");
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

    #[tokio::test]
    async fn a_place_is_wanted_while_somebody_waits_for_it() {
        let limiter = Limiter::new(1);
        let place = limiter.place().await;
        let mut wanted = Box::pin(limiter.wanted());
        assert!(futures::poll!(&mut wanted).is_pending());
        let mut given_up = Box::pin(limiter.place());
        assert!(futures::poll!(&mut given_up).is_pending());
        assert!(futures::poll!(&mut wanted).is_ready());
        drop(given_up);
        assert!(futures::poll!(Box::pin(limiter.wanted())).is_pending());
        let mut next = Box::pin(limiter.place());
        assert!(futures::poll!(&mut next).is_pending());
        drop(place);
        assert!(futures::poll!(&mut next).is_ready());
        assert!(futures::poll!(Box::pin(limiter.wanted())).is_pending());
    }
}
