//! Small files that arrive about the same time are committed together: one sync of the disk, and one wake-up of who waits for events, serve
//! all of them. Knows the store and the clock.
//!
//! The one rule: nobody hears that a file is kept before it is, and none is held up for others that are not under way.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use stager_core::error::ApiError;
use stager_core::replica::Replica;
use tokio::sync::{oneshot, Notify};
use tokio_util::task::TaskTracker;

use crate::context::NodeContext;

/// Less than a round trip of the lines where this pays, so that these stay full.
const WAIT_MAX: Duration = Duration::from_millis(25);
const FILES_MAX: usize = 64;

pub struct GroupCommit {
    context: Arc<NodeContext>,
    /// Of what is to be waited for at the node's end.
    tracker: TaskTracker,
    waiting: Mutex<Vec<Waiter>>,
    hurry: Notify,
}

struct Waiter {
    replica: Replica,
    content: Bytes,
    done: oneshot::Sender<Result<(), ApiError>>,
}

impl GroupCommit {
    pub fn new(context: Arc<NodeContext>, tracker: TaskTracker) -> Self {
        Self { context, tracker, waiting: Mutex::default(), hurry: Notify::new() }
    }

    /// Returns when the log holds it. `running`: how many transfers could bring another.
    pub async fn commit(self: &Arc<Self>, replica: &Replica, content: Bytes, running: usize) -> Result<(), ApiError> {
        let (done, heard) = oneshot::channel();
        let waiting = {
            let mut waiting = self.waiting.lock().expect("no holder panics");
            waiting.push(Waiter { replica: replica.clone(), content, done });
            waiting.len()
        };
        if is_due(waiting, running) {
            self.hurry.notify_one();
        }
        if waiting == 1 {
            // Not a part of this transfer, which may be cancelled: the others count on it.
            let group = self.clone();
            self.tracker.spawn(async move { group.round().await });
        }
        heard.await.expect("every round tells all that it took")
    }

    async fn round(&self) {
        tokio::select! {
            () = self.hurry.notified() => {}
            () = tokio::time::sleep(WAIT_MAX) => {}
        }
        let taken = std::mem::take(&mut *self.waiting.lock().expect("no holder panics"));
        let files = taken.iter().map(|waiter| (&waiter.replica, Some(waiter.content.clone())));
        let outcome = self.context.store.commit(files, &[], Vec::new()).await;
        for waiter in taken {
            // Whose transfer was given up hears nothing; the next start of the node finds what it left.
            let _ = waiter.done.send(outcome.clone());
        }
    }
}

/// Half of what runs has come: to wait for the rest would keep what could run from starting.
fn is_due(waiting: usize, running: usize) -> bool {
    waiting >= FILES_MAX || 2 * waiting >= running
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_runs_alone_waits_for_nobody_and_many_wait_for_half_of_them() {
        assert!(is_due(1, 1) && is_due(1, 2));
        assert!(!is_due(1, 3) && !is_due(7, 16));
        assert!(is_due(8, 16) && is_due(FILES_MAX, 256));
    }
}
