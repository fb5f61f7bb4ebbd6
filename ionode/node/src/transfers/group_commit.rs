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

use crate::node::Node;

/// Less than a round trip of the lines where this pays, so that these stay full.
const WAIT_MAX: Duration = Duration::from_millis(25);
const FILES_MAX: usize = 64;

#[derive(Default)]
pub struct GroupCommit {
    waiting: Mutex<Vec<Waiter>>,
    hurry: Notify,
}

struct Waiter {
    replica: Replica,
    content: Bytes,
    done: oneshot::Sender<Result<(), ApiError>>,
}

/// Returns when the log holds it.
pub(super) async fn commit(node: &Arc<Node>, replica: &Replica, content: Bytes) -> Result<(), ApiError> {
    let running = node.transfers.table().queue.running();
    let group = &node.transfers.group_commit;
    let (done, heard) = oneshot::channel();
    let waiting = {
        let mut waiting = group.waiting.lock().expect("no holder panics");
        waiting.push(Waiter { replica: replica.clone(), content, done });
        waiting.len()
    };
    if is_due(waiting, running) {
        group.hurry.notify_one();
    }
    if waiting == 1 {
        // Not a part of this transfer, which may be cancelled: the others count on it.
        node.transfers.follow(round(node.clone()));
    }
    heard.await.expect("every round tells all that it took")
}

/// Half of what runs has come: to wait for the rest would keep what could run from starting.
fn is_due(waiting: usize, running: usize) -> bool {
    waiting >= FILES_MAX || 2 * waiting >= running
}

async fn round(node: Arc<Node>) {
    let group = &node.transfers.group_commit;
    tokio::select! {
        () = group.hurry.notified() => {}
        () = tokio::time::sleep(WAIT_MAX) => {}
    }
    let taken = std::mem::take(&mut *group.waiting.lock().expect("no holder panics"));
    let files = taken.iter().map(|waiter| (&waiter.replica, Some(waiter.content.clone())));
    let outcome = node.store.commit(files, &[], Vec::new()).await;
    for waiter in taken {
        // Whose transfer was given up hears nothing; the next start of the node finds what it left.
        let _ = waiter.done.send(outcome.clone());
    }
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
