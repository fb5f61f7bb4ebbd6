//! One writer at a time for each destination. Knows names only.
//!
//! The one rule: a lock is released when the last holder is gone, so a step that outlives its cancelled upload (a rename already under way) still
//! keeps the next try waiting.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

/// Cloned into every detached step of an upload.
pub type PathGuard = Arc<OwnedMutexGuard<()>>;

#[derive(Default)]
pub struct PathLocks {
    by_path: Mutex<HashMap<String, Weak<AsyncMutex<()>>>>,
}

impl PathLocks {
    pub async fn lock(&self, path: &str) -> PathGuard {
        let lock = self.lock_of(path);
        Arc::new(lock.lock_owned().await)
    }

    fn lock_of(&self, path: &str) -> Arc<AsyncMutex<()>> {
        let mut by_path = self.by_path.lock().expect("no holder panics");
        if let Some(lock) = by_path.get(path).and_then(Weak::upgrade) {
            return lock;
        }
        // Swept when it doubles, so that the map stays as large as what is in use.
        if by_path.len() >= 64 && by_path.len().is_power_of_two() {
            by_path.retain(|_, lock| lock.strong_count() > 0);
        }
        let lock = Arc::new(AsyncMutex::new(()));
        by_path.insert(path.to_owned(), Arc::downgrade(&lock));
        lock
    }
}
