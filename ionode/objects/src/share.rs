//! The share of the space that objects may take: what the log says they take, and what is promised to writes under way.
//!
//! The one rule: no byte is written that was not granted before; and a write holds no more ahead of its bytes than came of them, 1 MiB at
//! least, so that nobody holds the share by announcing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use stager_core::error::{ApiError, Code};
use stager_store::Log;

use crate::tables;

/// Bodies of one owner that may be under way at a time, where keys are issued to several.
const OF_OWNER_MAX: usize = 128;

pub struct Share {
    log: Arc<Log>,
    limit_bytes: u64,
    granted_bytes: Mutex<u64>,
    under_way: Mutex<HashMap<String, usize>>,
}

/// Given back when it is dropped: by then the log counts what was written, or nothing was.
pub struct Grant {
    share: Arc<Share>,
    bytes: u64,
}

impl Share {
    pub fn new(log: Arc<Log>, limit_bytes: u64) -> Arc<Self> {
        Arc::new(Self { log, limit_bytes, granted_bytes: Mutex::new(0), under_way: Mutex::default() })
    }

    fn logged_bytes(&self) -> u64 {
        [tables::BUCKETS, tables::OBJECTS, tables::UPLOADS, tables::PARTS].iter().map(|table| self.log.totals(*table).weight_bytes).sum()
    }

    pub fn used_bytes(&self) -> u64 {
        *self.granted() + self.logged_bytes()
    }

    fn granted(&self) -> MutexGuard<'_, u64> {
        self.granted_bytes.lock().expect("nobody panics here")
    }

    pub fn grant(self: &Arc<Self>, subject: &str, bytes: u64) -> Result<Grant, ApiError> {
        let mut granted = self.granted();
        self.require(*granted, subject, bytes)?;
        *granted += bytes;
        Ok(Grant { share: self.clone(), bytes })
    }

    /// Whether so much could be granted just now.
    pub fn check(&self, subject: &str, bytes: u64) -> Result<(), ApiError> {
        self.require(*self.granted(), subject, bytes)
    }

    fn require(&self, granted: u64, subject: &str, bytes: u64) -> Result<(), ApiError> {
        // The log last: a write that ends in between is counted twice, never not at all.
        let used = granted + self.logged_bytes();
        if used.checked_add(bytes).is_none_or(|together| together > self.limit_bytes) {
            let free = self.limit_bytes.saturating_sub(used);
            let message = format!(
                "the S3 share of this node has {free} of {} bytes left and {subject} needs {bytes}; delete objects or raise --s3-share",
                self.limit_bytes
            );
            return Err(ApiError::new(Code::ShareFull, subject, message));
        }
        Ok(())
    }

    /// A body of this owner begins. Of an owner without a name there may be any number: there is nobody else.
    pub fn begin(self: &Arc<Self>, owner: &str) -> Result<UnderWay, ApiError> {
        let mut under_way = self.under_way.lock().expect("nobody panics here");
        let count = under_way.entry(owner.to_string()).or_default();
        if *count >= OF_OWNER_MAX && !owner.is_empty() {
            let message = format!("{OF_OWNER_MAX} bodies of {owner} are under way to this node; send the next when one of them has come");
            return Err(ApiError::new(Code::TooManyBodies, owner, message));
        }
        *count += 1;
        Ok(UnderWay { share: self.clone(), owner: owner.to_string() })
    }
}

impl Grant {
    pub fn grow(&mut self, subject: &str, more_bytes: u64) -> Result<(), ApiError> {
        let mut granted = self.share.granted();
        self.share.require(*granted, subject, more_bytes)?;
        *granted += more_bytes;
        self.bytes += more_bytes;
        Ok(())
    }
}

/// A body that comes in.
pub struct UnderWay {
    share: Arc<Share>,
    owner: String,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut under_way = self.share.under_way.lock().expect("nobody panics here");
        if let Some(count) = under_way.get_mut(&self.owner) {
            *count -= 1;
            if *count == 0 {
                under_way.remove(&self.owner);
            }
        }
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        *self.share.granted() -= self.bytes;
    }
}
