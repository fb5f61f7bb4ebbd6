//! How the node ends: no new work, then what runs is finished or handed back, then nobody is answered any more. Knows signals and time.
//!
//! The one rule: whoever watches `/readyz` learns of the end before anything is turned away, and no end takes longer than was said.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{signal, SignalKind};

use crate::node::Node;
use crate::transfers;

const LOOK_EVERY: Duration = Duration::from_millis(50);
/// What a shell shows of a process that ended by a signal.
const EXIT_BY_SIGNAL: i32 = 128;
const STORE_LOOK_EVERY: Duration = Duration::from_secs(1);
/// Of a node whose store is gone: what does not end by then waits for files that are not there.
const GONE_WITHIN: Duration = Duration::from_secs(10);
const EXIT_GONE: i32 = 1;

/// The first asks for an orderly end; one more ends the process at once, as safely as a kill would.
pub async fn watch_signals(node: Arc<Node>, drain: Duration) {
    let (Ok(mut terminate), Ok(mut interrupt)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) else { return };
    let mut asked = false;
    loop {
        let number = tokio::select! {
            _ = terminate.recv() => libc::SIGTERM,
            _ = interrupt.recv() => libc::SIGINT,
        };
        if asked {
            tracing::warn!(signal = number, "a second signal: the node ends at once; transfers resume from their checkpoints");
            let _ = std::fs::remove_file(node.context.store.rendezvous_path());
            std::process::exit(EXIT_BY_SIGNAL + number);
        }
        asked = true;
        tracing::info!(signal = number, drain_s = drain.as_secs_f64(), "a signal: the node drains and ends; a second one ends it at once");
        shut_down(node.clone(), drain);
    }
}

/// Whoever removes the store under its node leaves it nothing to keep anything in: it ends, whatever runs.
pub async fn watch_store(node: Arc<Node>) {
    let held = lock_file(node.context.store.root());
    loop {
        match (lock_file(node.context.store.root()), &held) {
            (Ok(found), Ok(held)) if found != *held => break,
            (Err(error), Ok(_)) if error.kind() == ErrorKind::NotFound => break,
            // A disk or a mount that does not answer just now: nothing is known to be gone.
            (Err(error), _) => tracing::warn!(%error, store = %node.context.store.root().display(), "the store cannot be checked"),
            _ => {}
        }
        tokio::time::sleep(STORE_LOOK_EVERY).await;
    }
    tracing::error!(store = %node.context.store.root().display(), "the store was removed or replaced while this node served it: the node ends");
    shut_down(node, Duration::ZERO);
    tokio::time::sleep(GONE_WITHIN).await;
    std::process::exit(EXIT_GONE);
}

/// Which file the store's lock is; what was made anew in its place is another.
fn lock_file(root: &Path) -> std::io::Result<(u64, u64)> {
    std::fs::metadata(root.join("lock")).map(|found| (found.dev(), found.ino()))
}

/// Takes no new work from now on; ends when nothing runs any more or `drain` is over. What waits is handed back at once.
pub fn shut_down(node: Arc<Node>, drain: Duration) {
    node.context.start_draining();
    transfers::hand_back_waiting(&node.transfers);
    tokio::spawn(async move {
        let idle = async {
            while !node.transfers.is_idle() || node.calls.any_works() {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        if tokio::time::timeout(drain, idle).await.is_err() && !drain.is_zero() {
            tracing::warn!(drain_s = drain.as_secs_f64(), "not everything ended in time; the rest is cut off and can be resumed");
        }
        node.context.shutdown.cancel();
    });
}
