//! Calls that are being answered: how many, and since when there is none. Knows nothing of their work.
//!
//! The one rule: a call counts for as long as its `OpenCall` is held.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub struct Calls {
    last: Mutex<Instant>,
    open: AtomicUsize,
    /// Of those, calls that change something.
    working: AtomicUsize,
}

impl Default for Calls {
    fn default() -> Self {
        Self { last: Mutex::new(Instant::now()), open: AtomicUsize::new(0), working: AtomicUsize::new(0) }
    }
}

impl Calls {
    /// To be held for as long as an authenticated call is answered.
    pub fn open(self: &Arc<Self>, works: bool) -> OpenCall {
        self.open.fetch_add(1, Ordering::Relaxed);
        self.working.fetch_add(usize::from(works), Ordering::Relaxed);
        OpenCall { calls: self.clone(), works }
    }

    /// Whether a call that an ordered end waits for is under way: one that changes something, or a reader of content.
    pub fn any_works(&self) -> bool {
        self.working.load(Ordering::Relaxed) > 0
    }

    /// How long nobody has called; zero while a call is answered.
    pub fn quiet_for(&self) -> Duration {
        match self.open.load(Ordering::Relaxed) {
            0 => self.last.lock().expect("nobody panics here").elapsed(),
            _ => Duration::ZERO,
        }
    }
}

pub struct OpenCall {
    calls: Arc<Calls>,
    works: bool,
}

impl OpenCall {
    /// From now on an ordered end waits for it.
    pub fn works(mut self) -> Self {
        self.calls.working.fetch_add(usize::from(!self.works), Ordering::Relaxed);
        self.works = true;
        self
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        *self.calls.last.lock().expect("nobody panics here") = Instant::now();
        self.calls.open.fetch_sub(1, Ordering::Relaxed);
        self.calls.working.fetch_sub(usize::from(self.works), Ordering::Relaxed);
    }
}
