//! The s3 origin keeps every promise against a real server, and acts on what lies in between.

mod gateway;
mod place;
mod relay;
mod sshd;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gateway::{origin, BucketPlace, Gateway};
use relay::{Mischief, Relay, Way};
use sshd::free_port;
use stager_core::error::Class;
use stager_origins::conformance::{self, content, get, local, put, upload, upload_as, How, Place};
use stager_origins::{verify_content, Listing, Pace, S3Config, Secret, Verified};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn place(gateway: &Gateway) -> BucketPlace {
    BucketPlace::new(gateway, origin(gateway.config()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keeps_every_promise() {
    let Some(gateway) = Gateway::start(free_port()) else { return };
    conformance::all(&place(&gateway)).await;
    nothing_unfinished(&gateway).await;
}

async fn nothing_unfinished(gateway: &Gateway) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !gateway.unfinished_parts().is_empty() {
        assert!(Instant::now() < deadline, "parts are left: {:?}", gateway.unfinished_parts());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_bandwidth_is_kept() {
    let Some(gateway) = Gateway::start(free_port()) else { return };
    let config = S3Config { bandwidth_bytes_per_s_max: Some(4 << 20), ..gateway.config() };
    conformance::bandwidth_is_kept(&BucketPlace::new(&gateway, origin(config))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_files_go_in_parts() {
    let Some(gateway) = Gateway::start(free_port()) else { return };
    let place = place(&gateway);
    let bytes = content(1, (40 << 20) + 5);
    let moved = std::sync::atomic::AtomicU64::new(0);
    let progress = |count| {
        moved.fetch_add(count, std::sync::atomic::Ordering::Relaxed);
    };
    let file = local(&place, &bytes);
    let uploaded = upload_as(&*place.origin, &file, "large", How::default(), "t", &progress).await.unwrap();
    assert_eq!((uploaded.verified, moved.into_inner()), (Verified::OriginChecksum, bytes.len() as u64));
    let entry = place.origin.stat("large").await.unwrap();
    assert!(get(&*place.origin, &entry).await.unwrap() == bytes);
    let mut damaged = file;
    damaged.blake3[5] ^= 1;
    let result = upload(&place, &damaged, "damaged", How::default()).await;
    assert_eq!(result.unwrap_err().code.as_str(), "checksum_mismatch");
    assert_eq!(place.origin.stat("damaged").await.unwrap_err().code.as_str(), "not_found");
    nothing_unfinished(&gateway).await;
}

/// What was asked of its server is in its log: one line for each request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_small_object_is_one_request() {
    let Some(gateway) = Gateway::start(free_port()) else { return };
    let place = place(&gateway);
    let bytes = content(1, 65_536);
    put(&place, "small", &bytes).await;
    let entry = place.origin.stat("small").await.unwrap();
    assert!(!place.origin.capabilities().needs_stat(&entry, true), "its own answer says what a stat would");
    let before = gateway.log().lines().count();
    assert!(get(&*place.origin, &entry).await.unwrap() == bytes);
    let log = gateway.log();
    let said: Vec<&str> = log.lines().skip(before).filter(|line| line.contains("small")).collect();
    assert!(said.len() == 1 && said[0].contains("GET"), "{said:?}");
}

/// Of two different contents for one name exactly one wins, small (a PUT) or large (in parts).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_race_has_one_winner() {
    let Some(gateway) = Gateway::start(free_port()) else { return };
    let (one, two) = (place(&gateway), place(&gateway));
    for (round, size_bytes) in [100_000usize, 17 << 20, 100_001, 18 << 20].into_iter().enumerate() {
        let path = format!("race/{round}");
        let (ours, theirs) = (content(1, size_bytes), content(2, size_bytes));
        let (file_one, file_two) = (local(&one, &ours), local(&two, &theirs));
        let results = tokio::join!(upload(&one, &file_one, &path, How::default()), upload(&two, &file_two, &path, How::default()));
        let expected = match results {
            (Ok(_), Err(error)) if error.code.as_str() == "destination_exists" => ours,
            (Err(error), Ok(_)) if error.code.as_str() == "destination_exists" => theirs,
            other => panic!("{size_bytes} bytes: {other:?}"),
        };
        let entry = one.origin.stat(&path).await.unwrap();
        assert!(get(&*one.origin, &entry).await.unwrap() == expected);
    }
    nothing_unfinished(&gateway).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listings_go_beyond_a_page() {
    let Some(gateway) = Gateway::start(free_port()) else { return };
    let place = place(&gateway);
    let puts = (0..1203).map(|i| {
        let place = &place;
        async move { place.write_behind(&format!("pages/{i:04}"), b"x").await }
    });
    futures::StreamExt::collect::<Vec<()>>(futures::StreamExt::buffer_unordered(futures::stream::iter(puts), 16)).await;
    let Listing { entries, truncated, .. } = place.origin.list("pages", true, 100_000).await.unwrap();
    assert_eq!((entries.len(), truncated), (1203, false));
    let Listing { entries, truncated, .. } = place.origin.list("pages", true, 1100).await.unwrap();
    assert_eq!((entries.len(), truncated, entries[1099].path.as_str()), (1100, true, "pages/1099"));
    let Listing { entries, truncated, .. } = place.origin.list("pages", true, 1203).await.unwrap();
    assert_eq!((entries.len(), truncated), (1203, false));
    let flat = place.origin.list("", false, 10).await.unwrap().entries;
    assert_eq!(flat.iter().map(|entry| entry.path.as_str()).collect::<Vec<_>>(), ["pages"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals_say_who_must_act() {
    let Some(gateway) = Gateway::start(free_port()) else { return };
    let wrong_secret = S3Config { secret_access_key: Secret::new("wrong"), ..gateway.config() };
    let error = origin(wrong_secret).stat("file").await.unwrap_err();
    assert_eq!((error.code.as_str(), error.class), ("auth_failed", Class::Denied), "{error:?}");
    assert!(!error.message.contains("wrong\""), "{}", error.message);
    let wrong_key = S3Config { access_key_id: "nobody".into(), ..gateway.config() };
    // versitygw answers 404 to a HEAD by an unknown key, so only a call whose answer has a body can tell.
    let error = origin(wrong_key).list("", true, 10).await.unwrap_err();
    assert_eq!(error.code.as_str(), "auth_failed", "{error:?}");
    let anonymous = S3Config { access_key_id: String::new(), ..gateway.config() };
    assert_eq!(origin(anonymous.clone()).stat("file").await.unwrap_err().code.as_str(), "denied");
    let probe = origin(anonymous).probe("", true).await;
    assert!(probe.reachable && probe.writable == Some(false) && probe.findings[0].code.as_str() == "denied", "{probe:?}");
    let no_bucket = S3Config { bucket: "nobody-has-this".into(), ..gateway.config() };
    assert_eq!(origin(no_bucket).list("", true, 10).await.unwrap_err().code.as_str(), "not_found");
    let nobody = origin(S3Config { endpoint: Some(format!("http://127.0.0.1:{}", free_port())), ..gateway.config() });
    let error = nobody.stat("file").await.unwrap_err();
    assert_eq!((error.code.as_str(), error.class), ("origin_unreachable", Class::Transient), "{error:?}");
    assert!(!nobody.probe("", true).await.reachable);
    let control = origin(gateway.config()).stat("a\nb").await.unwrap_err();
    assert_eq!(control.code.as_str(), "bad_request");
}

/// One byte of what the server sends is flipped on the way: no checksum of the transport sees it, ours does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lie_on_the_way_is_noticed() {
    let Some(gateway) = Gateway::start(free_port()) else { return };
    let relay = Relay::to(gateway.port).await;
    let between = S3Config { endpoint: Some(format!("http://127.0.0.1:{}", relay.port)), ..gateway.config() };
    let place = BucketPlace::new(&gateway, origin(between));
    // Its ETags prove nothing, as where a server encrypts.
    place.origin.capabilities().distrust_md5();
    for size_bytes in [5usize << 20, 20 << 20] {
        let bytes = content(1, size_bytes);
        let (file, path) = (local(&place, &bytes), format!("lied/{size_bytes}"));
        relay.arm(Mischief::Flip, Way::Down, 3 << 20);
        let error = upload(&place, &file, &path, How::default()).await.unwrap_err();
        assert_eq!((error.code.as_str(), error.class), ("checksum_mismatch", Class::Corrupt), "{error:?}");
        assert_eq!(place.origin.stat(&path).await.unwrap_err().code.as_str(), "not_found", "what could not be verified stays");
        relay.arm(Mischief::Flip, Way::Up, 3 << 20);
        let error = upload(&place, &file, &path, How::default()).await.unwrap_err();
        assert_eq!(error.code.as_str(), "checksum_mismatch", "{error:?}");
        assert_eq!(place.origin.stat(&path).await.unwrap_err().code.as_str(), "not_found");
        upload(&place, &file, &path, How::default()).await.unwrap();
        let hash = blake3::hash(&bytes).to_hex().to_string();
        relay.arm(Mischief::Flip, Way::Down, 3 << 20);
        assert!(!verify_content(&*place.origin, &path, size_bytes as u64, &hash, &Pace::default()).await.unwrap().matches);
        assert!(verify_content(&*place.origin, &path, size_bytes as u64, &hash, &Pace::default()).await.unwrap().matches);
    }
    assert_eq!(relay.struck(), 6);
    nothing_unfinished(&gateway).await;
}

/// Small or in parts: the answer proves what the server took, and nothing is asked again. What is not in order is refused by the server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_is_proven_by_its_answer() {
    let Some(gateway) = Gateway::start(free_port()) else { return };
    let relay = Relay::to(gateway.port).await;
    let between = S3Config { endpoint: Some(format!("http://127.0.0.1:{}", relay.port)), ..gateway.config() };
    let place = BucketPlace::new(&gateway, origin(between));
    for size_bytes in [0usize, 100_000, 20 << 20] {
        let bytes = content(1, size_bytes);
        let uploaded = put(&place, &format!("proven/{size_bytes}"), &bytes).await;
        assert_eq!((uploaded.verified, uploaded.bytes_moved), (Verified::OriginChecksum, size_bytes as u64));
        let entry = place.origin.stat(&format!("proven/{size_bytes}")).await.unwrap();
        assert_eq!(entry.token, uploaded.token);
        assert!(!gateway.log().contains("| GET |"), "nothing is read back");
    }
    let (file, path) = (local(&place, &content(1, 5 << 20)), "lied");
    relay.arm(Mischief::Flip, Way::Up, 3 << 20);
    assert_eq!(upload(&place, &file, path, How::default()).await.unwrap_err().code.as_str(), "checksum_mismatch");
    assert_eq!(place.origin.stat(path).await.unwrap_err().code.as_str(), "not_found");
    assert_eq!(relay.struck(), 1);
    nothing_unfinished(&gateway).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_replaced_does_not_cross_the_line_first() {
    let Some(gateway) = Gateway::start(free_port()) else { return };
    let relay = Relay::to(gateway.port).await;
    let between = S3Config { endpoint: Some(format!("http://127.0.0.1:{}", relay.port)), ..gateway.config() };
    let place = BucketPlace::new(&gateway, origin(between));
    let size_bytes = 24 << 20;
    let replace = How { replace: true, ..How::default() };
    put(&place, "large", &content(7, size_bytes)).await;
    relay.arm(Mischief::Cut, Way::Down, 12 << 20);
    upload(&place, &local(&place, &content(8, size_bytes)), "large", replace).await.unwrap();
    let mut late = content(8, size_bytes);
    late[size_bytes - 1] ^= 1;
    upload(&place, &local(&place, &late), "large", replace).await.unwrap();
    assert_eq!(relay.struck(), 0, "the old content was read");
}

/// One answer says whether it is the same, and whether it is newer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_to_be_replaced_is_looked_at_once() {
    let Some(gateway) = Gateway::start(free_port()) else { return };
    let place = place(&gateway);
    put(&place, "newer", &content(9, 4000)).await;
    let before = gateway.log().lines().count();
    let how = How { replace: true, made: Some(3600), ..How::default() };
    let error = upload(&place, &local(&place, &content(10, 5000)), "newer", how).await.unwrap_err();
    assert_eq!(error.code.as_str(), "destination_newer");
    let log = gateway.log();
    let asked: Vec<&str> = log.lines().skip(before).filter(|line| line.contains("newer")).collect();
    assert!(asked.len() == 1 && asked[0].contains("HEAD"), "{asked:?}");
}

/// As soon as the server was seen to keep to the condition of a PUT; and what is there stays, or is adopted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_small_uploads_each_is_one_request() {
    let Some(gateway) = Gateway::start(free_port()) else { return };
    let place = place(&gateway);
    let (theirs, same) = (content(99, 3000), content(98, 3000));
    place.write_behind("many/there", &theirs).await;
    place.write_behind("many/same", &same).await;
    for n in 0..20u64 {
        put(&place, &format!("first/{n}"), &content(n, 1000)).await;
    }
    let before = gateway.log().lines().count();
    futures::future::join_all((0..50u64).map(|n| {
        let place = &place;
        async move { put(place, &format!("many/{n}"), &content(n, 1000)).await }
    }))
    .await;
    let log = gateway.log();
    let asked: Vec<&str> = log.lines().skip(before).filter(|line| line.contains("/many/")).collect();
    assert!(asked.len() == 50 && asked.iter().all(|line| line.contains("PUT")), "{asked:?}");
    let error = upload(&place, &local(&place, &content(1, 3000)), "many/there", How::default()).await.unwrap_err();
    assert_eq!(error.code.as_str(), "destination_exists");
    assert_eq!(put(&place, "many/same", &same).await.verified, Verified::Adopted);
    let entry = place.origin.stat("many/there").await.unwrap();
    assert!(get(&*place.origin, &entry).await.unwrap() == theirs);
    assert!(!place.raw_names().iter().any(|name| name.contains("probe")), "{:?}", place.raw_names());
}

/// Each goes over a connection of its own, and begins slowly there: all at once they push each other out of the line.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_is_sent_at_once_than_the_line_was_seen_to_carry() {
    const FILES: u64 = 100;
    let Some(gateway) = Gateway::start(free_port()) else { return };
    let relay = Relay::to(gateway.port).await;
    let between = S3Config { endpoint: Some(format!("http://127.0.0.1:{}", relay.port)), ..gateway.config() };
    let place = BucketPlace::new(&gateway, origin(between));
    for n in 0..20u64 {
        put(&place, &format!("first/{n}"), &content(n, 1000)).await;
    }
    let before = relay.connections();
    relay.lengthen(200);
    let files: Vec<_> = (0..FILES).map(|n| local(&place, &content(n, 256 << 10))).collect();
    futures::future::join_all(files.iter().enumerate().map(|(n, file)| {
        let place = &place;
        async move { upload(place, file, &format!("many/{n}"), How::default()).await.unwrap() }
    }))
    .await;
    let made = relay.connections() - before;
    assert!((2..3 * FILES as usize / 4).contains(&made), "{made} connections");
}

/// Between our PUT and our stat of what it made, and between that stat and the DELETE of what was found to be damaged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_somebody_else_put_there_meanwhile_is_left_alone() {
    let Some(gateway) = Gateway::start(free_port()) else { return };
    let relay = Relay::to(gateway.port).await;
    let between = S3Config { endpoint: Some(format!("http://127.0.0.1:{}", relay.port)), ..gateway.config() };
    let place = BucketPlace::new(&gateway, origin(between));
    // Its ETags prove nothing, as where a server encrypts.
    place.origin.capabilities().distrust_md5();
    for (size_bytes, replace) in [(100_000usize, false), (17 << 20, false), (100_001, true)] {
        let (path, theirs) = (format!("rival/{size_bytes}"), content(2, 5000));
        let file = local(&place, &content(1, size_bytes));
        let how = How { replace, ..How::default() };
        // HEADs: is it there; of parts, again just before they become one; then the stat of what was made.
        let held = relay.hold("HEAD ", if size_bytes > 16 << 20 { 2 } else { 1 });
        let (result, ()) = tokio::join!(upload(&place, &file, &path, how), held.then(place.write_behind(&path, &theirs)));
        let error = result.unwrap_err();
        let code = if replace { "source_changed" } else { "destination_exists" };
        assert_eq!((error.code.as_str(), error.class), (code, Class::Refused), "{error:?}");
        let entry = place.origin.stat(&path).await.unwrap();
        assert!(get(&*place.origin, &entry).await.unwrap() == theirs, "{size_bytes}: theirs is gone");
    }
    // Equal content is as good as ours.
    let (ours, path) = (content(1, 100_002), "rival/equal");
    let held = relay.hold("HEAD ", 1);
    let file = local(&place, &ours);
    let (result, ()) = tokio::join!(upload(&place, &file, path, How::default()), held.then(place.write_behind(path, &ours)));
    result.unwrap();
    let (file, path, theirs) = (local(&place, &content(1, 1 << 20)), "rival/damaged", content(2, 5000));
    relay.arm(Mischief::Flip, Way::Down, 500_000);
    // The first DELETEs are those of the probe whether the server keeps to If-Match.
    let held = relay.hold("DELETE /lab-data/runs/2026/rival/damaged", 0);
    let (result, ()) = tokio::join!(upload(&place, &file, path, How::default()), held.then(place.write_behind(path, &theirs)));
    assert_eq!(result.unwrap_err().code.as_str(), "checksum_mismatch");
    let entry = place.origin.stat(path).await.unwrap();
    assert!(get(&*place.origin, &entry).await.unwrap() == theirs, "theirs is gone");
    assert_eq!(place.origin.list("", true, 100).await.unwrap().entries.len(), 5, "something of ours is left");
}

/// Finds nothing, and takes nothing. Gives its port, and the heads of the PUTs.
async fn broken_server() -> (u16, Arc<Mutex<Vec<String>>>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (port, heard) = (listener.local_addr().unwrap().port(), Arc::<Mutex<Vec<String>>>::default());
    let puts = heard.clone();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut asked = Vec::new();
            while !asked.ends_with(b"\r\n\r\n") && !asked.ends_with(b"content") {
                if client.read_buf(&mut asked).await.unwrap_or(0) == 0 {
                    break;
                }
            }
            let asked = String::from_utf8_lossy(&asked).to_lowercase();
            let status = if asked.starts_with("put ") { "500 Internal Server Error" } else { "404 Not Found" };
            if asked.starts_with("put ") {
                puts.lock().unwrap().push(asked);
            }
            let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            client.write_all(answer.as_bytes()).await.ok();
        }
    });
    (port, heard)
}

/// A key may be called like a status: no condition is left out for that, and nothing is given up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_key_is_called_says_nothing() {
    let Some(gateway) = Gateway::start(free_port()) else { return };
    let at =
        |port: u16| BucketPlace::new(&gateway, origin(S3Config { endpoint: Some(format!("http://127.0.0.1:{port}")), ..gateway.config() }));
    let (port, puts) = broken_server().await;
    let place = at(port);
    for path in ["run-501", "run-507"] {
        let error = upload(&place, &local(&place, b"content"), path, How::default()).await.unwrap_err();
        assert_eq!((error.code.as_str(), error.class), ("io_error", Class::Transient), "{error:?}");
    }
    let puts = puts.lock().unwrap().clone();
    assert!(puts.len() >= 2 && puts.iter().all(|put| put.contains("if-none-match: *")), "{puts:?}");
    let error = at(free_port()).origin.stat("redirects.csv").await.unwrap_err();
    assert_eq!((error.code.as_str(), error.class), ("origin_unreachable", Class::Transient), "{error:?}");
}

/// As after the answer of its end was lost, or by a rule of the bucket: what comes next asks for one of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_that_the_server_knows_no_longer_begins_anew() {
    let Some(gateway) = Gateway::start(free_port()) else { return };
    let relay = Relay::to(gateway.port).await;
    let between = S3Config { endpoint: Some(format!("http://127.0.0.1:{}", relay.port)), ..gateway.config() };
    let place = BucketPlace::new(&gateway, origin(between));
    let file = local(&place, &content(1, 20 << 20));
    let held = relay.hold("POST /lab-data/runs/2026/large?uploadId=", 0);
    let forgotten = async { gateway.forget_unfinished() };
    let (result, ()) = tokio::join!(upload(&place, &file, "large", How::default()), held.then(forgotten));
    let error = result.unwrap_err();
    assert_eq!((error.code.as_str(), error.class), ("io_error", Class::Transient), "{error:?}");
    assert_eq!(upload(&place, &file, "large", How::default()).await.unwrap().verified, Verified::OriginChecksum);
}

/// It removes whatever is there: so what is there is left, and the next try finds out what it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_deletes_unconditionally_is_not_asked_to() {
    let Some(gateway) = Gateway::start(free_port()) else { return };
    let relay = Relay::to(gateway.port).await;
    relay.is_unknown("if-match");
    let between = S3Config { endpoint: Some(format!("http://127.0.0.1:{}", relay.port)), ..gateway.config() };
    let place = BucketPlace::new(&gateway, origin(between));
    // Its ETags prove nothing, as where a server encrypts.
    place.origin.capabilities().distrust_md5();
    let file = local(&place, &content(1, 1 << 20));
    relay.arm(Mischief::Flip, Way::Down, 500_000);
    let error = upload(&place, &file, "left", How::default()).await.unwrap_err();
    assert_eq!((error.code.as_str(), error.class), ("checksum_mismatch", Class::Corrupt), "{error:?}");
    assert!(error.message.contains("left there"), "{}", error.message);
    assert_eq!(place.raw_names(), ["left"], "the probe, too, is gone");
    assert_eq!(upload(&place, &file, "left", How::default()).await.unwrap().verified, Verified::Adopted);
}

/// What is erased is what has the token, also where somebody writes between the stat and the DELETE.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_erased_has_the_token_that_was_named() {
    let Some(gateway) = Gateway::start(free_port()) else { return };
    let relay = Relay::to(gateway.port).await;
    let between = S3Config { endpoint: Some(format!("http://127.0.0.1:{}", relay.port)), ..gateway.config() };
    let place = BucketPlace::new(&gateway, origin(between));
    let token = put(&place, "spilled", &content(1, 5000)).await.token;
    let theirs = content(2, 6000);
    let held = relay.hold("DELETE ", 0);
    let (result, ()) = tokio::join!(place.origin.erase("spilled", Some(&token)), held.then(place.write_behind("spilled", &theirs)));
    assert_eq!(result.unwrap_err().code.as_str(), "source_changed");
    let entry = place.origin.stat("spilled").await.unwrap();
    assert!(get(&*place.origin, &entry).await.unwrap() == theirs, "theirs is gone");
    assert_eq!(place.origin.erase("spilled", Some(&entry.token)).await, Ok(true));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_connection_is_transient() {
    let Some(gateway) = Gateway::start(free_port()) else { return };
    let relay = Relay::to(gateway.port).await;
    let between = S3Config { endpoint: Some(format!("http://127.0.0.1:{}", relay.port)), ..gateway.config() };
    let place = BucketPlace::new(&gateway, origin(between));
    let bytes = content(1, 30 << 20);
    put(&place, "file", &bytes).await;
    let entry = place.origin.stat("file").await.unwrap();
    relay.arm(Mischief::Cut, Way::Down, 9 << 20);
    // object_store may take a broken body up again by itself.
    if let Err(error) = get(&*place.origin, &entry).await {
        assert_eq!(error.class, Class::Transient, "{error:?}");
    }
    assert!(get(&*place.origin, &entry).await.unwrap() == bytes);
    relay.arm(Mischief::Cut, Way::Up, 9 << 20);
    let file = local(&place, &bytes);
    if let Err(error) = upload(&place, &file, "again", How::default()).await {
        assert_eq!(error.class, Class::Transient, "{error:?}");
    }
    upload(&place, &file, "again", How::default()).await.unwrap();
    assert_eq!(relay.struck(), 2);
    nothing_unfinished(&gateway).await;
}
