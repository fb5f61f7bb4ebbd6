//! Pushes that wait for their content, and its hand-over from the call that brings it. Knows ids and bodies, not what is made of them.
//!
//! The one rule: a content is handed over once, to the push that waits for it.

use std::collections::HashMap;
use std::sync::Mutex;

use hyper::body::Incoming;
use stager_core::error::ApiError;
use tokio::sync::{oneshot, watch};

/// Transfers that wait for their content.
#[derive(Default)]
pub struct Pushes {
    waiting: Mutex<HashMap<String, Waiting>>,
    changed: watch::Sender<()>,
}

struct Waiting {
    from_bytes: u64,
    deliver: oneshot::Sender<Delivery>,
}

pub struct Delivery {
    pub body: Incoming,
    pub taken: oneshot::Sender<Result<(), ApiError>>,
}

impl Pushes {
    pub fn wait_for(&self, transfer_id: &str, from_bytes: u64) -> oneshot::Receiver<Delivery> {
        let (deliver, delivered) = oneshot::channel();
        self.waiting.lock().expect("nobody panics here").insert(transfer_id.to_string(), Waiting { from_bytes, deliver });
        self.changed.send_replace(());
        delivered
    }

    pub fn forget(&self, transfer_id: &str) {
        self.waiting.lock().expect("nobody panics here").remove(transfer_id);
    }

    /// Told when another push waits.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Whether one waited for it: it has it now.
    pub fn hand_over(&self, transfer_id: &str, delivery: Delivery) -> bool {
        let waiting = self.waiting.lock().expect("nobody panics here").remove(transfer_id);
        waiting.is_some_and(|waiting| waiting.deliver.send(delivery).is_ok())
    }

    pub fn begins_at(&self, transfer_id: &str) -> Option<u64> {
        self.waiting.lock().expect("nobody panics here").get(transfer_id).map(|waiting| waiting.from_bytes)
    }
}
