//! Work that waits for the disk, off the threads that serve calls. Knows the runtime only.
//!
//! The one rule: whatever ends such work, its caller hears of it.

use stager_core::error::{ApiError, Code};

/// Disk work off the runtime's threads. A panic there is a bug and comes back as one.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, ApiError> + Send + 'static) -> Result<T, ApiError> {
    let span = tracing::Span::current();
    match tokio::task::spawn_blocking(move || span.in_scope(work)).await {
        Ok(outcome) => outcome,
        Err(error) => Err(ApiError::new(Code::IoError, "node", format!("a disk task of the node ended early ({error}); look at its log"))),
    }
}
