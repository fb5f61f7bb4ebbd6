//! Callers of every kind write by themselves or through the log's thread, and none is lost, held up for good, or answered before its time.

use std::future::Future;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use bytes::Bytes;
use stager_store::{Log, Op, Options, Sync, When};

const TABLE: u8 = 7;
const EACH: u32 = 100;
const SOON: Duration = Duration::from_secs(600);

fn put(who: u32, number: u32) -> Vec<Op> {
    let key = format!("{who}/{number}").into_bytes();
    vec![Op::Put { table: TABLE, key, meta: Vec::new(), value: Bytes::from_static(b"x"), weight_bytes: 1, when: When::Absent }]
}

fn options(sync: Sync) -> Options {
    Options { sync, segment_bytes: 4000, reclaim: false, ..Options::default() }
}

fn open(directory: &Path, sync: Sync) -> Arc<Log> {
    Arc::new(Log::open(directory, options(sync)).unwrap().0)
}

async fn written(log: &Log, who: u32) {
    for number in 0..EACH {
        let done = log.write_all(put(who, number)).await.unwrap();
        assert!(done[0].is_done(), "{who}/{number} was written twice");
        assert!(log.stat(TABLE, format!("{who}/{number}").as_bytes()).unwrap().is_some(), "{who}/{number} was answered too early");
    }
}

/// 4 threads, 8 tasks on a runtime of several threads, 4 on a runtime of one.
fn everybody_writes(log: &Arc<Log>) {
    std::thread::scope(|scope| {
        for who in 0..4 {
            scope.spawn(move || (0..EACH).for_each(|number| assert!(log.write_all_blocking(put(who, number)).unwrap()[0].is_done())));
        }
        scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
            let tasks: Vec<_> =
                (4..12).map(|who| (who, log.clone())).map(|(who, log)| runtime.spawn(async move { written(&log, who).await })).collect();
            let all = async { tokio::time::timeout(SOON, futures_of(tasks)).await.expect("everybody is answered") };
            runtime.block_on(all);
        });
        scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let all = async {
                let tasks = (12..16).map(|who| (who, log.clone())).map(|(who, log)| tokio::spawn(async move { written(&log, who).await }));
                tokio::time::timeout(SOON, futures_of(tasks.collect())).await.expect("everybody is answered")
            };
            runtime.block_on(all);
        });
    });
}

async fn futures_of(tasks: Vec<tokio::task::JoinHandle<()>>) {
    for task in tasks {
        task.await.expect("no task panics");
    }
}

#[test]
fn callers_of_every_kind_are_answered_and_kept() {
    for sync in [Sync::Always, Sync::Within(Duration::from_millis(1)), Sync::Never] {
        let place = tempfile::tempdir().unwrap();
        let log = open(place.path(), sync);
        everybody_writes(&log);
        assert_eq!(log.totals(TABLE).entries, u64::from(16 * EACH), "{sync:?}");
        let (frames, entries) = (log.counters().frames.load(Ordering::Relaxed), log.counters().entries.load(Ordering::Relaxed));
        assert!(sync != Sync::Always || frames < entries, "nobody was joined: {frames} frames of {entries} entries");
        drop(log);
        assert_eq!(open(place.path(), sync).totals(TABLE).entries, u64::from(16 * EACH), "{sync:?}, opened again");
    }
}

#[test]
fn what_was_asked_stands_when_its_caller_goes_away() {
    let place = tempfile::tempdir().unwrap();
    let log = open(place.path(), Sync::Always);
    let mut asked = Box::pin(log.write_all(put(1, 1)));
    // A thread that may wait writes at once, and answers itself.
    assert!(asked.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
    drop(asked);
    assert!(log.stat(TABLE, b"1/1").unwrap().is_some());
}

#[test]
fn a_delay_of_the_sync_is_kept_by_who_writes_alone() {
    let place = tempfile::tempdir().unwrap();
    let log = open(place.path(), Sync::Within(Duration::from_millis(20)));
    for round in 1..4 {
        log.write_all_blocking(put(1, round)).unwrap();
        let deadline = std::time::Instant::now() + SOON;
        while log.counters().syncs.load(Ordering::Relaxed) < u64::from(round) {
            assert!(std::time::Instant::now() < deadline, "nobody synced what one caller wrote");
            std::thread::yield_now();
        }
    }
}

#[test]
fn nobody_waits_for_a_sync_that_may_come_later() {
    let place = tempfile::tempdir().unwrap();
    let log = open(place.path(), Sync::Within(Duration::from_secs(3600)));
    let before = log.counters().syncs.load(Ordering::Relaxed);
    (1..4).for_each(|round| assert!(log.write_all_blocking(put(1, round)).unwrap()[0].is_done()));
    assert_eq!(log.counters().syncs.load(Ordering::Relaxed), before);
}
