//! Where the bytes of a fetch or copy come from, in the order of the file they become. Knows how to ask, not what is kept.
//!
//! The one rule: a feed gives exactly the range asked for, or an error.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use stager_core::error::ApiError;
use stager_origins::{Entry, Origin, Sink};

#[async_trait]
pub(super) trait Feed: Send + Sync {
    async fn feed(&self, range: Range<u64>, sink: &dyn Sink) -> Result<(), ApiError>;
    /// For how long nothing may move.
    fn stall(&self) -> Duration;
}

pub(super) struct OriginFeed {
    pub origin: Arc<dyn Origin>,
    pub entry: Entry,
}

pub(super) const ORIGIN_STALL: Duration = Duration::from_secs(60);

#[async_trait]
impl Feed for OriginFeed {
    async fn feed(&self, range: Range<u64>, sink: &dyn Sink) -> Result<(), ApiError> {
        self.origin.fetch(&self.entry, std::slice::from_ref(&range), sink).await
    }
    fn stall(&self) -> Duration {
        ORIGIN_STALL
    }
}
