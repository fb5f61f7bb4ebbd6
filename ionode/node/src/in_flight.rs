//! Files that are being made here and can be read already: how a peer follows a fetch while it goes on. Knows files, nothing of HTTP.
//!
//! The one rule: a reader gets bytes that are in the file, and hears of the content's hash only when all of it was checked.

use std::collections::HashMap;
use std::fs::File;
use std::sync::{Arc, Mutex};

use stager_core::error::{ApiError, Code};
use stager_core::replica::{Replica, ReplicaKey};
use stager_core::stripes::Layout;
use tokio::sync::watch;

#[derive(Default)]
pub struct InFlightReplicas {
    known: Mutex<HashMap<ReplicaKey, InFlightReplica>>,
}

/// The reading side; it stays usable when the file got its last name.
#[derive(Clone)]
pub struct InFlightReplica {
    pub file: Arc<File>,
    /// Of the content, also where only stripes of it come.
    pub size_bytes: u64,
    pub executable: bool,
    pub stripes: Option<Layout>,
    arrived_bytes: watch::Receiver<u64>,
    verified: watch::Receiver<Option<Replica>>,
}

/// The making side. Dropped without `verified`: it ended badly, and who reads hears it.
pub struct InFlightWriter {
    registry: Arc<InFlightReplicas>,
    key: ReplicaKey,
    arrived_bytes: Arc<watch::Sender<u64>>,
    verified: watch::Sender<Option<Replica>>,
}

/// What a reader has to know beside the bytes.
#[derive(Clone, Copy)]
pub struct How {
    pub executable: bool,
    pub stripes: Option<Layout>,
}

impl InFlightReplicas {
    /// `held_bytes` are to come, the first `start` of them are there.
    pub fn begin(self: &Arc<Self>, key: &ReplicaKey, file: Arc<File>, held_bytes: u64, start: u64, how: How) -> InFlightWriter {
        let (arrived_bytes, arrived_seen) = watch::channel(start);
        let (verified, verified_seen) = watch::channel(None);
        let How { executable, stripes } = how;
        let size_bytes = stripes.map_or(held_bytes, |layout| layout.file_bytes);
        let in_flight = InFlightReplica { file, size_bytes, executable, stripes, arrived_bytes: arrived_seen, verified: verified_seen };
        self.known.lock().expect("nobody panics here").insert(key.clone(), in_flight);
        InFlightWriter { registry: self.clone(), key: key.clone(), arrived_bytes: Arc::new(arrived_bytes), verified }
    }

    pub fn get(&self, key: &ReplicaKey) -> Option<InFlightReplica> {
        self.known.lock().expect("nobody panics here").get(key).cloned()
    }
}

impl InFlightWriter {
    /// Told how many bytes are there without a hole.
    pub fn marker(&self) -> Arc<watch::Sender<u64>> {
        self.arrived_bytes.clone()
    }
    pub fn verified(&self, replica: &Replica) {
        self.verified.send_replace(Some(replica.clone()));
    }
}

impl Drop for InFlightWriter {
    fn drop(&mut self) {
        self.registry.known.lock().expect("nobody panics here").remove(&self.key);
    }
}

impl InFlightReplica {
    /// Until the first `end` bytes of the file are there. `None`: they will not come.
    pub async fn reach(&mut self, end: u64) -> Option<()> {
        self.arrived_bytes.wait_for(|arrived_bytes| *arrived_bytes >= end).await.ok().map(drop)
    }

    pub fn is_checked(&self) -> bool {
        self.verified.borrow().is_some()
    }

    /// Until all is there and checked. An error: it will not be.
    pub async fn checked(&mut self, key: &ReplicaKey) -> Result<Replica, ApiError> {
        match self.verified.wait_for(Option::is_some).await {
            Ok(replica) => Ok(replica.clone().expect("waited for")),
            Err(_) => Err(ApiError::new(
                Code::ConnectionLost,
                &key.file_id,
                format!("this node stopped making replica {key} early; ask for it again"),
            )),
        }
    }
}
