//! Where the bytes of a fetch or copy come from, in the order of the file they become. Knows how to ask, not what is kept.
//!
//! The one rule: a feed gives exactly the range asked for, or an error.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use stager_core::error::{ApiError, Code};
use stager_core::stripes::Layout;
use stager_origins::{Entry, EntryKind, Origin, Pace, Sink};

#[async_trait]
pub(super) trait Feed: Send + Sync {
    async fn feed(&self, range: Range<u64>, sink: &dyn Sink) -> Result<(), ApiError>;
    /// Nothing is left to be asked for: is the source still what it was when the rest came?
    async fn check_unchanged(&self) -> Result<(), ApiError> {
        Ok(())
    }
    /// For how long nothing may move.
    fn stall(&self) -> Duration;
}

pub(super) struct OriginFeed {
    pub origin: Arc<dyn Origin>,
    pub entry: Entry,
}

/// Only a share of the file, its stripes back to back.
pub(super) struct StripeFeed {
    pub whole: OriginFeed,
    pub layout: Layout,
}

#[async_trait]
impl Feed for StripeFeed {
    async fn feed(&self, range: Range<u64>, sink: &dyn Sink) -> Result<(), ApiError> {
        let places = self.layout.places(range);
        self.whole.origin.fetch(&self.whole.entry, &places, &Packed { layout: self.layout, sink }).await
    }
    async fn check_unchanged(&self) -> Result<(), ApiError> {
        self.whole.check_unchanged().await
    }
    fn stall(&self) -> Duration {
        ORIGIN_STALL
    }
}

/// Puts what has a place in the file where the share has it.
struct Packed<'a> {
    layout: Layout,
    sink: &'a dyn Sink,
}

#[async_trait]
impl Sink for Packed<'_> {
    async fn write_at(&self, offset: u64, mut chunk: Bytes) -> Result<(), ApiError> {
        let mut offset = offset;
        while !chunk.is_empty() {
            let unasked = || {
                ApiError::new(
                    Code::OriginMisbehaves,
                    "stripes",
                    format!("the origin sent byte {offset}, which is in no stripe of this node; fetch the stripes anew"),
                )
            };
            let position = self.layout.position(offset).ok_or_else(unasked)?;
            let in_stripe = (self.layout.stripe_bytes - offset % self.layout.stripe_bytes).min(chunk.len() as u64);
            self.sink.write_at(position, chunk.split_to(in_stripe as usize)).await?;
            offset += in_stripe;
        }
        Ok(())
    }

    fn pace(&self) -> Pace {
        self.sink.pace()
    }
}

pub(super) const ORIGIN_STALL: Duration = Duration::from_secs(60);

#[async_trait]
impl Feed for OriginFeed {
    async fn feed(&self, range: Range<u64>, sink: &dyn Sink) -> Result<(), ApiError> {
        self.origin.fetch(&self.entry, std::slice::from_ref(&range), sink).await
    }
    async fn check_unchanged(&self) -> Result<(), ApiError> {
        unchanged(self.origin.as_ref(), &self.entry).await
    }
    fn stall(&self) -> Duration {
        ORIGIN_STALL
    }
}

pub(super) async fn unchanged(origin: &dyn Origin, entry: &Entry) -> Result<(), ApiError> {
    let now = origin.stat(&entry.path).await?;
    if now.kind == EntryKind::File && now.token == entry.token {
        return Ok(());
    }
    Err(source_changed(&entry.path, &entry.token, &now.token))
}

pub(super) fn source_changed(path: &str, was: &str, is: &str) -> ApiError {
    ApiError::new(
        Code::SourceChanged,
        path,
        format!("{path} changed at its origin: expected {was}, found {is}; plan again with what is there now"),
    )
}

pub(super) fn short(path: &str) -> ApiError {
    ApiError::new(Code::ShortRead, path, format!("fewer bytes of {path} came than it has; stager retries"))
}

pub(super) fn misplaced(path: &str, offset: u64, length: u64) -> ApiError {
    let message =
        format!("the origin sent {length} bytes at {offset} of {path}, which were not asked for or came twice; stager fetches it anew");
    ApiError::new(Code::OriginMisbehaves, path, message)
}

#[cfg(test)]
mod tests {
    use stager_core::stripes::Share;
    use stager_origins::{open, FileConfig, OriginConfig, Priority};

    use super::*;

    struct Wanted(Priority);

    #[async_trait]
    impl Sink for Wanted {
        async fn write_at(&self, _offset: u64, _chunk: Bytes) -> Result<(), ApiError> {
            Ok(())
        }
        fn pace(&self) -> Pace {
            self.0.clone().into()
        }
    }

    #[test]
    fn stripes_are_as_urgent_as_what_they_are_for() {
        let layout = Layout::new(Share { index: 1, count: 2, stripe_bytes: 4 << 20 }, 64 << 20, "f").unwrap();
        let sink = Wanted(Priority::default());
        let packed = Packed { layout, sink: &sink };
        assert!(!packed.pace().priority().is_urgent());
        sink.0.set(true);
        assert!(packed.pace().priority().is_urgent());
    }

    #[tokio::test]
    async fn what_is_complete_already_is_looked_at_again() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("f"), b"one").unwrap();
        let config = FileConfig { base_path: place.path().to_owned(), bandwidth_bytes_per_s_max: None };
        let origin = open(&OriginConfig::File(config)).unwrap();
        let entry = origin.stat("f").await.unwrap();
        let layout = Layout::new(Share { index: 0, count: 2, stripe_bytes: 4 << 20 }, entry.size_bytes, "f").unwrap();
        let whole = OriginFeed { origin: origin.clone(), entry: entry.clone() };
        let stripes = StripeFeed { whole: OriginFeed { origin, entry }, layout };
        let feeds: [&dyn Feed; 2] = [&whole, &stripes];
        for feed in feeds {
            assert!(feed.check_unchanged().await.is_ok());
        }
        std::fs::write(place.path().join("f"), b"three").unwrap();
        for feed in feeds {
            assert_eq!(feed.check_unchanged().await.unwrap_err().code.as_str(), "source_changed");
        }
    }
}
