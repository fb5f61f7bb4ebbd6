//! Promises about bytes: what comes back is what went in, or an error says why not.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use stager_core::error::ApiError;
use tokio::sync::Mutex;

use super::{code, content, get, local, put, there, transfer_id, upload, upload_as, upload_at, How, Memory, Place};
use crate::{Priority, Sink, Verified};

pub async fn round_trips(place: &dyn Place) {
    let origin = place.origin();
    for (seed, size_bytes) in [0usize, 1, 255 * 1024 + 1, (8 << 20) + 3].into_iter().enumerate() {
        let bytes = content(seed as u64, size_bytes);
        let path = format!("round trips/deep/er/{size_bytes}.bin");
        let uploaded = put(place, &path, &bytes).await;
        let is_verified = matches!(uploaded.verified, Verified::Readback | Verified::RemoteChecksum | Verified::OriginChecksum);
        assert!(is_verified, "{uploaded:?} is no verification");
        assert!(uploaded.bytes_moved >= size_bytes as u64);
        let entry = origin.stat(&path).await.unwrap();
        assert_eq!((entry.size_bytes, &entry.token, &entry.path), (size_bytes as u64, &uploaded.token, &path));
        assert!(get(&*origin, &entry).await.unwrap() == bytes, "{size_bytes} bytes came back changed");
    }
}

/// Whoever put it there.
pub async fn what_is_there_comes_back(place: &dyn Place) {
    let origin = place.origin();
    for (seed, size_bytes) in [0usize, 1, 255 * 1024 + 1, (24 << 20) + 3].into_iter().enumerate() {
        let (bytes, path) = (content(5 + seed as u64, size_bytes), format!("there/{size_bytes}.bin"));
        place.write_behind(&path, &bytes).await;
        let entry = origin.stat(&path).await.unwrap();
        assert_eq!((entry.size_bytes, &entry.path), (size_bytes as u64, &path));
        assert!(get(&*origin, &entry).await.unwrap() == bytes, "{size_bytes} bytes came back changed");
        assert_eq!(origin.stat(&path).await.unwrap().token, entry.token, "the same content has another token");
    }
}

pub async fn ranges_are_exact(place: &dyn Place) {
    let origin = place.origin();
    let bytes = content(10, (1 << 20) + 17);
    there(place, "ranges/file", &bytes).await;
    let entry = origin.stat("ranges/file").await.unwrap();
    let ranges = [0..1, 5..5, 100..300_000, 1_000_000..entry.size_bytes];
    let memory = Memory::new(entry.size_bytes);
    origin.fetch(&entry, &ranges, &memory).await.unwrap();
    for range in &ranges {
        assert!(memory.range(range.clone()) == bytes[range.start as usize..range.end as usize], "{range:?} is wrong");
    }
    let asked: u64 = ranges.iter().map(|range| range.end - range.start).sum();
    assert_eq!(memory.count() as u64, asked, "more was written than asked for");
    let beyond = 0..entry.size_bytes + 1;
    assert_eq!(code(origin.fetch(&entry, &[beyond], &Memory::new(entry.size_bytes + 1)).await), "bad_request");
}

pub async fn nothing_is_clobbered(place: &dyn Place) {
    let origin = place.origin();
    let theirs = content(20, 5000);
    put(place, "clobber/file", &theirs).await;
    for size_bytes in [5000, 4000, 0, 400_000] {
        let mine = local(place, &content(21, size_bytes));
        assert_eq!(code(upload(place, &mine, "clobber/file", How::default()).await), "destination_exists");
    }
    let entry = origin.stat("clobber/file").await.unwrap();
    assert!(get(&*origin, &entry).await.unwrap() == theirs);
}

/// By whoever says when the content was made.
pub async fn what_is_newer_stays(place: &dyn Place) {
    let origin = place.origin();
    let (theirs, mine) = (content(22, 4000), local(place, &content(23, 5000)));
    put(place, "newer/file", &theirs).await;
    let late = How { replace: true, made: Some(3600), ..How::default() };
    assert_eq!(code(upload(place, &mine, "newer/file", late).await), "destination_newer");
    let entry = origin.stat("newer/file").await.unwrap();
    assert!(get(&*origin, &entry).await.unwrap() == theirs, "the newer file was replaced");
    let same = upload(place, &local(place, &theirs), "newer/file", late).await.unwrap();
    assert_eq!(same.verified, Verified::Adopted);
    upload(place, &mine, "newer/free", late).await.unwrap();
}

/// The name is free when the upload begins and taken when it ends.
pub async fn a_late_rival_is_not_clobbered(place: &dyn Place) {
    let origin = place.origin();
    for (round, theirs) in [content(25, 300_000), content(26, 300_001)].into_iter().enumerate() {
        let (mine, path) = (content(25, 300_000), format!("rival/{round}"));
        let reached = AtomicBool::new(true);
        let progress = |_: u64| reached.store(place.write_at_once(&path, &theirs), Ordering::Relaxed);
        let result = upload_as(&*origin, &local(place, &mine), &path, How::default(), &transfer_id(), &progress).await;
        if !reached.load(Ordering::Relaxed) {
            return;
        }
        match result {
            Ok(uploaded) => assert_eq!((round, uploaded.verified), (0, Verified::Adopted), "equal content is adopted, however late"),
            Err(error) => assert_eq!((round, error.code.as_str()), (1, "destination_exists")),
        }
        let entry = origin.stat(&path).await.unwrap();
        assert!(get(&*origin, &entry).await.unwrap() == theirs, "the rival's file was clobbered");
    }
}

pub async fn what_was_written_is_read_back(place: &dyn Place) {
    let origin = place.origin();
    let file = local(place, &content(28, 6 << 20));
    let reached = AtomicBool::new(true);
    let progress = |_: u64| reached.store(place.corrupt_unfinished(), Ordering::Relaxed);
    let result = upload_as(&*origin, &file, "bad disk/file", How::default(), &transfer_id(), &progress).await;
    if reached.load(Ordering::Relaxed) {
        assert_eq!(code(result), "checksum_mismatch");
        assert_eq!(code(origin.stat("bad disk/file").await), "not_found");
    }
}

pub async fn replacing_is_allowed_when_asked(place: &dyn Place) {
    let origin = place.origin();
    for size_bytes in [70_000, 700_000] {
        let path = format!("replace/{size_bytes}");
        put(place, &path, &content(30, 5000)).await;
        let mine = content(31, size_bytes);
        let uploaded = upload(place, &local(place, &mine), &path, How { replace: true, ..How::default() }).await.unwrap();
        let entry = origin.stat(&path).await.unwrap();
        assert_eq!(entry.token, uploaded.token);
        assert!(get(&*origin, &entry).await.unwrap() == mine);
    }
}

/// What a job makes anew is often as large as before: the old content is read only until it differs from the new one.
pub async fn what_is_replaced_is_read_only_until_it_differs(place: &dyn Place) {
    let origin = place.origin();
    let (size_bytes, step_bytes) = (3 << 20, 1 << 20);
    let (mut old, new) = (content(32, size_bytes), content(33, size_bytes));
    for same_bytes in [0, size_bytes / 2, size_bytes - 1] {
        old[..same_bytes].copy_from_slice(&new[..same_bytes]);
        let path = format!("until it differs/{same_bytes}");
        let first = put(place, &path, &old).await;
        let uploaded = upload(place, &local(place, &new), &path, How { replace: true, ..How::default() }).await.unwrap();
        let read_of_old = uploaded.bytes_moved - first.bytes_moved;
        assert!((1..=(same_bytes + step_bytes) as u64).contains(&read_of_old), "{same_bytes}: {read_of_old}");
        let entry = origin.stat(&path).await.unwrap();
        assert_eq!((entry.token.as_str(), uploaded.verified), (uploaded.token.as_str(), first.verified));
        assert!(get(&*origin, &entry).await.unwrap() == new);
    }
}

pub async fn equal_content_is_adopted(place: &dyn Place) {
    for (size_bytes, replace) in [(3_000, false), (3_000, true), (300_000, false), (300_000, true)] {
        let (bytes, path) = (content(40, size_bytes), format!("adopt/{size_bytes} {replace}"));
        let first = put(place, &path, &bytes).await;
        let again = upload(place, &local(place, &bytes), &path, How { replace, ..How::default() }).await.unwrap();
        assert_eq!((again.verified, &again.token), (Verified::Adopted, &first.token));
        assert_eq!(again.synced, first.synced, "what is adopted is put on the disk as what is written");
    }
}

pub async fn damaged_local_content_is_refused(place: &dyn Place) {
    let origin = place.origin();
    for size_bytes in [6_000, 600_000] {
        let bytes = content(50, size_bytes);
        let (fresh, there) = (format!("damaged/{size_bytes}"), format!("damaged/there {size_bytes}"));
        let mut damaged = local(place, &bytes);
        damaged.blake3[0] ^= 1;
        assert_eq!(code(upload(place, &damaged, &fresh, How::default()).await), "checksum_mismatch");
        let mut truncated = local(place, &bytes);
        truncated.size_bytes += 1;
        assert_eq!(code(upload(place, &truncated, &fresh, How::default()).await), "checksum_mismatch");
        assert_eq!(code(origin.stat(&fresh).await), "not_found");
        put(place, &there, &content(51, 100)).await;
        let replaced = upload(place, &damaged, &there, How { replace: true, ..How::default() }).await;
        assert_eq!(code(replaced), "checksum_mismatch");
        let entry = origin.stat(&there).await.unwrap();
        assert!(get(&*origin, &entry).await.unwrap() == content(51, 100), "the old content is gone");
    }
}

pub async fn a_changed_source_is_noticed(place: &dyn Place) {
    let origin = place.origin();
    for (path, size_bytes) in [("changed/file", 5000), ("changed/file that is larger", 6_000_000)] {
        there(place, path, &content(60, size_bytes)).await;
        let old = origin.stat(path).await.unwrap();
        place.write_behind(path, &content(61, size_bytes + 1)).await;
        let (memory, whole) = (Memory::new(old.size_bytes), 0..old.size_bytes);
        assert_eq!(code(origin.fetch(&old, &[whole], &memory).await), "source_changed");
        assert_eq!(memory.count(), 0, "bytes of the new content were passed on as the old one's");
        let new = origin.stat(path).await.unwrap();
        assert_ne!(new.token, old.token);
        assert!(get(&*origin, &new).await.unwrap() == content(61, size_bytes + 1));
    }
}

/// Changes the file when the first bytes arrive.
struct Meddler<'a> {
    place: &'a dyn Place,
    done: Mutex<bool>,
}

#[async_trait]
impl Sink for Meddler<'_> {
    async fn write_at(&self, _offset: u64, _chunk: Bytes) -> Result<(), ApiError> {
        let mut done = self.done.lock().await;
        if !*done {
            self.place.write_behind("meanwhile/file", &content(71, 40_000_001)).await;
            *done = true;
        }
        Ok(())
    }
}

pub async fn a_source_changed_meanwhile_is_noticed(place: &dyn Place) {
    let origin = place.origin();
    place.write_behind("meanwhile/file", &content(70, 40_000_000)).await;
    let entry = origin.stat("meanwhile/file").await.unwrap();
    let meddler = Meddler { place, done: Mutex::new(false) };
    let whole = 0..entry.size_bytes;
    assert_eq!(code(origin.fetch(&entry, &[whole], &meddler).await), "source_changed");
}

pub async fn a_cancelled_upload_is_taken_over(place: &dyn Place) {
    let origin = place.origin();
    let bytes = content(80, 20 << 20);
    let (file, transfer_id) = (local(place, &bytes), transfer_id());
    let begun = tokio::sync::Notify::new();
    let progress = |_: u64| begun.notify_one();
    let uploading = upload_as(&*origin, &file, "cancelled/file", How::default(), &transfer_id, &progress);
    tokio::select! {
        result = uploading => panic!("it was over before it began: {result:?}"),
        () = begun.notified() => {}
    }
    assert_eq!(code(origin.stat("cancelled/file").await), "not_found");
    upload_as(&*origin, &file, "cancelled/file", How::default(), &transfer_id, &|_| {}).await.unwrap();
    let entry = origin.stat("cancelled/file").await.unwrap();
    assert!(get(&*origin, &entry).await.unwrap() == bytes);
}

pub async fn many_uploads_at_once(place: &dyn Place) {
    let origin = place.origin();
    let uploads = (0..32u64).map(|i| async move { put(place, &format!("many/{i}"), &content(100 + i, 100_000 + i as usize)).await });
    futures::future::join_all(uploads).await;
    let paths: Vec<String> = (0..32).map(|i| format!("many/{i}")).collect();
    for (i, entry) in origin.stat_many(&paths).await.into_iter().enumerate() {
        let bytes = get(&*origin, &entry.unwrap()).await.unwrap();
        assert!(bytes == content(100 + i as u64, 100_000 + i), "{i} is wrong");
    }
}

/// Two finals may have one content, and whoever sends it names the content: neither upload may touch what the other writes.
pub async fn one_content_goes_to_two_names_at_once(place: &dyn Place) {
    let origin = place.origin();
    for (size_bytes, rounds) in [(0, 8), (4_000, 16), (6 << 20, 4)] {
        let bytes = content(120, size_bytes);
        let (file, id) = (local(place, &bytes), transfer_id());
        for round in 0..rounds {
            let directory = format!("twice/{size_bytes} {round}/");
            let paths = ["a", "b"].map(|name| format!("{directory}{name}"));
            let uploads = paths.iter().map(|path| upload_as(&*origin, &file, path, How::default(), &id, &|_| {}));
            for (path, sent) in paths.iter().zip(futures::future::join_all(uploads).await) {
                sent.unwrap_or_else(|error| panic!("{path}: {error:?}"));
                let entry = origin.stat(path).await.unwrap();
                assert!(get(&*origin, &entry).await.unwrap() == bytes, "{path} is wrong");
            }
            let mut names: Vec<String> = place.raw_names().into_iter().filter(|name| name.starts_with(&directory)).collect();
            names.sort();
            assert_eq!(names, paths);
        }
    }
}

pub async fn many_fetches_at_once(place: &dyn Place) {
    let origin = place.origin();
    for i in 0..32u64 {
        place.write_behind(&format!("fetched/{i}"), &content(200 + i, 100_000 + i as usize)).await;
    }
    let fetches = (0..32u64).map(|i| {
        let origin = origin.clone();
        async move {
            let entry = origin.stat(&format!("fetched/{i}")).await.unwrap();
            assert!(get(&*origin, &entry).await.unwrap() == content(200 + i, 100_000 + i as usize), "{i} is wrong");
        }
    });
    futures::future::join_all(fetches).await;
}

/// Whoever watches an upload sees that it goes on while it, or what was there before, is read back, and takes nothing of that for sent.
pub async fn what_is_read_back_is_told(place: &dyn Place) {
    let origin = place.origin();
    for size_bytes in [3_000, 300_000, 20 << 20] {
        let (file, path) = (local(place, &content(130, size_bytes)), format!("told/{size_bytes}"));
        for is_there in [false, true] {
            let (priority, sent) = (Priority::default(), AtomicU64::new(0));
            let progress = |bytes: u64| {
                sent.fetch_add(bytes, Ordering::Relaxed);
            };
            let pace = priority.clone().into();
            let uploaded = upload_at(&*origin, &file, &path, How::default(), &transfer_id(), pace, &progress).await.unwrap();
            assert_eq!(uploaded.verified == Verified::Adopted, is_there);
            let moved_up = if is_there { 0 } else { file.size_bytes };
            assert_eq!(priority.read_back_bytes(), uploaded.bytes_moved - moved_up, "{size_bytes} bytes, there: {is_there}");
            assert!(is_there || sent.load(Ordering::Relaxed) == file.size_bytes);
        }
    }
}

pub async fn executables_stay_so(place: &dyn Place) {
    let script = local(place, b"#!/bin/sh\n");
    upload(place, &script, "modes/run", How { executable: true, ..How::default() }).await.unwrap();
    upload(place, &script, "modes/read", How::default()).await.unwrap();
    if let (Some(run), Some(read)) = (place.mode("modes/run"), place.mode("modes/read")) {
        assert!(run & 0o100 != 0 && read & 0o111 == 0, "{run:o} {read:o}");
    }
}

/// For an origin that may move 4 MiB a second.
pub async fn bandwidth_is_kept(place: &dyn Place) {
    /// Half a second less two bursts of 100 ms: an idle origin has saved one, and one is given on trust. 10 ms are for the clocks.
    const LEAST: std::time::Duration = std::time::Duration::from_millis(290);
    let origin = place.origin();
    let bytes = content(90, 2 << 20);
    let started = std::time::Instant::now();
    there(place, "paced/file", &bytes).await;
    let took = started.elapsed();
    assert!(place.is_read_only() || took >= LEAST, "{took:?} for an upload of half a second");
    let entry = origin.stat("paced/file").await.unwrap();
    let started = std::time::Instant::now();
    assert!(get(&*origin, &entry).await.unwrap() == bytes);
    let took = started.elapsed();
    assert!(took >= LEAST, "{took:?} for a fetch of half a second");
}
