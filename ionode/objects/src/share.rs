//! The share of the space that objects may take: what the log says they take, and what is promised to writes under way.
//!
//! The one rule: a write is granted its whole size before its first byte moves, or refused.

use std::sync::{Arc, Mutex};

use stager_core::error::ApiError;
use stager_store::Log;

use crate::tables;

pub struct Share {
    log: Arc<Log>,
    limit_bytes: u64,
    granted_bytes: Mutex<u64>,
}

/// Given back when it is dropped: by then the log counts what was written, or nothing was.
pub struct Grant {
    share: Arc<Share>,
    bytes: u64,
}

impl Share {
    pub fn new(log: Arc<Log>, limit_bytes: u64) -> Arc<Self> {
        Arc::new(Self { log, limit_bytes, granted_bytes: Mutex::new(0) })
    }

    fn logged_bytes(&self) -> u64 {
        [tables::BUCKETS, tables::OBJECTS, tables::UPLOADS, tables::PARTS].iter().map(|table| self.log.totals(*table).weight_bytes).sum()
    }

    pub fn used_bytes(&self) -> u64 {
        *self.granted() + self.logged_bytes()
    }

    fn granted(&self) -> std::sync::MutexGuard<'_, u64> {
        self.granted_bytes.lock().expect("nobody panics here")
    }

    pub fn grant(self: &Arc<Self>, subject: &str, bytes: u64) -> Result<Grant, ApiError> {
        let mut granted = self.granted();
        // The log last: a write that ends in between is counted twice, never not at all.
        let used = *granted + self.logged_bytes();
        if used.checked_add(bytes).is_none_or(|together| together > self.limit_bytes) {
            let free = self.limit_bytes.saturating_sub(used);
            let message = format!(
                "the S3 share of this node has {free} of {} bytes left and {subject} needs {bytes}; delete objects or raise --s3-share",
                self.limit_bytes
            );
            return Err(ApiError::refused("share_full", subject, message));
        }
        *granted += bytes;
        Ok(Grant { share: self.clone(), bytes })
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        *self.share.granted() -= self.bytes;
    }
}
