//! Calls about mounts: made, told of, taken away. What a mount is knows `stager-mounts`.
//!
//! The one rule: no call waits for a mount on a thread that other calls need.

use std::sync::Arc;

use stager_core::error::{ApiError, Code};

use crate::blocking::blocking;
use crate::node::Node;
use crate::wire::{MountAnswer, MountsAnswer};

pub async fn put(node: &Arc<Node>, origin_id: &str) -> Result<MountAnswer, ApiError> {
    node.context.refuse_if_draining(origin_id)?;
    let Some(config) = node.context.origin(origin_id)?.mountable else {
        let message = format!("the origin {origin_id} cannot be mounted: only those of kind sshfs can; fetch its files instead");
        return Err(ApiError::new(Code::Unsupported, origin_id, message));
    };
    let (mounts, id) = (node.mounts.clone(), origin_id.to_string());
    blocking(move || mounts.put(&id, &config)).await.map(MountAnswer::from)
}

pub async fn remove(node: &Arc<Node>, origin_id: &str) -> Result<(), ApiError> {
    let (mounts, id) = (node.mounts.clone(), origin_id.to_string());
    blocking(move || Ok(mounts.remove(&id))).await.map(drop)
}

pub fn list(node: &Node) -> MountsAnswer {
    MountsAnswer { mounts: node.mounts.list().into_iter().map(MountAnswer::from).collect() }
}
