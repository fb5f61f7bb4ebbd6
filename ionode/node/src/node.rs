//! The node as its calls see it: what all of it shares, and the subsystems that `serve` put together. Decides nothing.
//!
//! The one rule: only who answers calls, tells or ends the whole node takes it; a subsystem takes the ones that it needs.

use std::sync::{Arc, OnceLock};

use stager_mounts::Mounts;
use stager_objects::Objects;

use crate::attempts::Attempts;
use crate::calls::Calls;
use crate::context::NodeContext;
use crate::fingerprints::Fingerprints;
use crate::packs::Packs;
use crate::peers::Peers;
use crate::store::FORMAT;
use crate::transfers::Transfers;
use crate::wire::{NodeStatus, API};

pub struct Node {
    pub context: Arc<NodeContext>,
    pub can_link: bool,
    pub can_reflink: bool,
    pub calls: Arc<Calls>,
    pub peers: Arc<Peers>,
    pub fingerprints: Arc<Fingerprints>,
    pub transfers: Arc<Transfers>,
    pub packs: Arc<Packs>,
    pub mounts: Arc<Mounts>,
    pub attempts: Arc<Attempts>,
    /// Of the S3 endpoint, where there is one.
    pub objects: OnceLock<Objects>,
}

impl Node {
    pub fn status(&self) -> NodeStatus {
        let space = self.context.space();
        NodeStatus {
            api: API,
            node_id: self.context.node_id.clone(),
            incarnation: self.context.incarnation.clone(),
            epoch: self.context.accounting().index.epoch(),
            version: stager_core::VERSION.to_string(),
            store_format: FORMAT,
            store_id: self.context.store.id(),
            pid: std::process::id(),
            capacity_bytes: space.capacity_bytes,
            used_bytes: space.used_bytes,
            reserved_bytes: space.reserved_bytes,
            can_link: self.can_link,
            can_reflink: self.can_reflink,
            can_assemble: true,
            draining: self.context.is_draining(),
        }
    }

    /// The events up to this one have been taken note of, and how the transfers ended that they told of.
    pub fn acknowledge(&self, seq: u64) {
        self.context.accounting().events.ack(seq);
        self.transfers.forget_through(seq);
    }
}
