//! What many want done at the same time is done once for all of them. Knows names only.
//!
//! The one rule: work that somebody joined begins after they joined: it sees all that they did before.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex};

use futures::future::{BoxFuture, WeakShared};
use futures::FutureExt;

use crate::turns::Turns;

type Wave<T> = WeakShared<BoxFuture<'static, T>>;

pub struct Waves<T: Clone> {
    /// By name: the work that has not begun. It is held by those who wait for it.
    pending: Mutex<HashMap<String, Wave<T>>>,
    turns: Turns,
}

impl<T: Clone> Default for Waves<T> {
    fn default() -> Self {
        Self { pending: Mutex::default(), turns: Turns::default() }
    }
}

impl<T: Clone + Send + Sync + 'static> Waves<T> {
    /// The outcome of `work`, or of somebody else's of the same name.
    pub async fn join<F>(self: &Arc<Self>, name: &str, work: F) -> T
    where
        F: Future<Output = T> + Send + 'static,
    {
        let wave = {
            let mut pending = self.pending.lock().expect("no holder panics");
            pending.get(name).and_then(WeakShared::upgrade).unwrap_or_else(|| {
                let wave = self.clone().wave(name.to_owned(), work).boxed().shared();
                pending.extend(wave.downgrade().map(|held| (name.to_owned(), held)));
                wave
            })
        };
        wave.await
    }

    async fn wave(self: Arc<Self>, name: String, work: impl Future<Output = T>) -> T {
        let _turn = self.turns.take(&name).await;
        self.pending.lock().expect("no holder panics").remove(&name);
        work.await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

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
