//! Work that is done to its end: by the task of its connection for as long as that lives, by one of its own if the caller hangs up. Knows no
//! call.
//!
//! The one rule: what was begun is ended, and a task of its own is paid for only by those whose caller is gone.

use std::any::Any;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::future::{CatchUnwind, FutureExt};
use tokio::runtime::Handle;

type Guarded<F> = CatchUnwind<AssertUnwindSafe<F>>;

pub struct ToItsEnd<F: Future<Output: Send> + Send + 'static> {
    /// `None` once it has ended.
    work: Option<Pin<Box<Guarded<F>>>>,
}

/// Its outcome, or what it panicked with.
pub fn to_its_end<F: Future<Output: Send> + Send + 'static>(work: F) -> ToItsEnd<F> {
    ToItsEnd { work: Some(Box::pin(AssertUnwindSafe(work).catch_unwind())) }
}

impl<F: Future<Output: Send> + Send + 'static> Future for ToItsEnd<F> {
    type Output = Result<F::Output, Box<dyn Any + Send>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = self.work.as_mut().expect("nobody asks for an outcome twice").poll_unpin(context);
        if outcome.is_ready() {
            self.work = None;
        }
        outcome
    }
}

impl<F: Future<Output: Send> + Send + 'static> Drop for ToItsEnd<F> {
    fn drop(&mut self) {
        let Some(work) = self.work.take() else { return };
        // Without a runtime the process ends, and its log tells the next one what was done.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(work);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use tokio::sync::oneshot;

    const SOON: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn what_was_begun_is_ended_when_nobody_waits_any_more() {
        let (go_on, told) = oneshot::channel::<()>();
        let (end, mut ended) = oneshot::channel();
        let mut work = to_its_end(async move {
            let _ = told.await;
            let _ = end.send(());
        });
        assert!(futures::poll!(&mut work).is_pending());
        drop(work);
        assert!(ended.try_recv().is_err());
        go_on.send(()).unwrap();
        tokio::time::timeout(SOON, ended).await.expect("it ends in time").expect("it was not dropped");
    }

    #[tokio::test]
    async fn a_panic_is_an_outcome() {
        assert_eq!(to_its_end(async { 7 }).await.unwrap(), 7);
        let said = to_its_end(async { panic!("a bug") }).await.map(|()| 0).unwrap_err();
        assert_eq!(said.downcast_ref::<&str>(), Some(&"a bug"));
    }
}
