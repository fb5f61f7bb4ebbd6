//! What many want done at the same time is done once for all of them. Knows names only.
//!
//! The one rule: work that somebody joined begins after they joined: it sees all that they did before. What prepares it may have begun.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex};

use futures::future::{BoxFuture, WeakShared};
use futures::FutureExt;

use crate::path_locks::PathLocks;

type Wave<T> = WeakShared<BoxFuture<'static, T>>;

pub struct Waves<T: Clone> {
    /// By name: the work that has not begun. It is held by those who wait for it.
    pending: Mutex<HashMap<String, Wave<T>>>,
    locks: PathLocks,
}

impl<T: Clone> Default for Waves<T> {
    fn default() -> Self {
        Self { pending: Mutex::default(), locks: PathLocks::default() }
    }
}

impl<T: Clone + Send + Sync + 'static> Waves<T> {
    /// The outcome of `work`, or of somebody else's of the same name. One at a time: who comes meanwhile is in the next.
    pub async fn join<F>(self: &Arc<Self>, name: &str, work: F) -> T
    where
        F: Future<Output = T> + Send + 'static,
    {
        let (waves, own) = (self.clone(), name.to_owned());
        let guard = async move { waves.locks.lock(&own).await };
        let work = |guard| async move {
            let outcome = work.await;
            drop(guard);
            outcome
        };
        self.join_while(name, guard, work).await
    }

    /// As `join`, with others who come while `preparing` lasts. What needs what was prepared is `work`.
    pub async fn join_while<P, W, F>(self: &Arc<Self>, name: &str, preparing: P, work: W) -> T
    where
        P: Future + Send + 'static,
        P::Output: Send,
        W: FnOnce(P::Output) -> F + Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let wave = {
            let mut pending = self.pending.lock().expect("no holder panics");
            pending.get(name).and_then(WeakShared::upgrade).unwrap_or_else(|| {
                let (waves, own) = (self.clone(), name.to_owned());
                let wave = async move {
                    let prepared = preparing.await;
                    waves.pending.lock().expect("no holder panics").remove(&own);
                    work(prepared).await
                };
                let wave = wave.boxed().shared();
                pending.extend(wave.downgrade().map(|held| (name.to_owned(), held)));
                wave
            })
        };
        wave.await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn work_is_done_once_for_all_who_came_before_it_began() {
        let (waves, begun, done) = (Arc::new(Waves::default()), Arc::new(AtomicUsize::new(0)), AtomicUsize::new(0));
        let joined = |late_ms: u64| {
            let (waves, begun) = (waves.clone(), begun.clone());
            let done = &done;
            async move {
                tokio::time::sleep(Duration::from_millis(late_ms)).await;
                let before = begun.load(Ordering::SeqCst);
                let work = async move {
                    let number = begun.fetch_add(1, Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_millis(200)).await;
                    number
                };
                let number = waves.join("a", work).await;
                assert!(number >= before, "it had begun when this one came");
                done.fetch_add(1, Ordering::SeqCst);
            }
        };
        futures::future::join_all((0..20).map(|n| joined(if n < 10 { 0 } else { 50 }))).await;
        assert_eq!((begun.load(Ordering::SeqCst), done.load(Ordering::SeqCst)), (2, 20));
    }

    #[tokio::test]
    async fn who_comes_while_it_is_prepared_is_in_it_and_the_next_is_not_kept_waiting() {
        let waves = Arc::new(Waves::default());
        let ((prepare, prepared), (end, ended)) = (oneshot::channel::<()>(), oneshot::channel::<()>());
        let wave = |number, prepared: oneshot::Receiver<()>, ended: oneshot::Receiver<()>| {
            let preparing = async move { prepared.await.map(|()| number) };
            Box::pin(waves.join_while("a", preparing, |number| async move { ended.await.and(number) }))
        };
        let over = || {
            let (tell, told) = oneshot::channel();
            tell.send(()).unwrap();
            told
        };
        let mut first = wave(1, prepared, ended);
        assert!(futures::poll!(&mut first).is_pending());
        let mut second = wave(2, over(), over());
        assert!(futures::poll!(&mut second).is_pending(), "the first had not begun");
        prepare.send(()).unwrap();
        assert!(futures::poll!(&mut first).is_pending());
        assert_eq!(wave(3, over(), over()).await, Ok(3), "the first had begun, and lasts");
        end.send(()).unwrap();
        assert_eq!((first.await, second.await), (Ok(1), Ok(1)));
    }

    #[tokio::test]
    async fn who_goes_away_takes_nothing_from_those_who_stay() {
        let waves = Arc::new(Waves::default());
        let slow = || async { tokio::time::sleep(Duration::from_millis(50)).await };
        let mut first = Box::pin(waves.join("a", slow()));
        assert!(futures::poll!(&mut first).is_pending());
        let mut second = Box::pin(waves.join("a", slow()));
        assert!(futures::poll!(&mut second).is_pending());
        drop(second);
        let third = waves.join("a", slow());
        drop(first);
        tokio::time::timeout(Duration::from_secs(30), third).await.expect("it was left waiting");
    }
}
