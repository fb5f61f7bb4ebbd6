//! The scrubber against damage that nothing but reading can find, and against being in anybody's way.

mod faults;
mod host;

use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::{Duration, Instant};

use faults::Faults;
use host::*;
use serde_json::{json, Value};
use stager_node::scrub::cache;

const MIB: usize = 1 << 20;
/// Some replica is always due, as fast as the disk allows.
const EAGER: [&str; 4] = ["--scrub-bytes-per-s", "1000000000", "--scrub-every-s", "0"];
const SOUND: &str = "stager_node_scrub_replicas_total{result=\"sound\"}";
const CORRUPT: &str = "stager_node_scrub_replicas_total{result=\"corrupt\"}";
const UNREADABLE: &str = "stager_node_scrub_replicas_total{result=\"unreadable\"}";
const READ: &str = "stager_node_scrub_read_bytes_total";
const ROUNDS: &str = "stager_node_scrub_rounds_total";

/// A node with replicas `f1 t1`, `f2 t2`... of these sizes.
fn holding(root: &Path, sizes: &[usize], more: &[&str], environment: &[(String, String)]) -> Host {
    for (n, size) in sizes.iter().enumerate() {
        source(&root.join("lab"), &format!("file{}", n + 1), &noise(n as u8 + 1, *size));
    }
    let node = Host::start_in(root, 1 << 30, more, environment);
    node.put_file_origin(&root.join("lab"));
    for n in 1..=sizes.len() {
        assert_eq!(node.fetched(&format!("t{n}"), &format!("f{n}"), &format!("file{n}"))["kind"], "transfer_done");
    }
    node
}

fn found(node: &Host, file_id: &str) -> Value {
    node.event(&format!("the damage of {file_id} is told"), |event| event["kind"] == "replica_corrupt" && event["file_id"] == file_id)
}

fn rounds_more(node: &Host, more: f64) {
    let before = node.metric(ROUNDS).unwrap();
    until("the scrubber goes through all", || node.metric(ROUNDS).filter(|now| *now >= before + more));
}

fn rot_in_log(root: &Path, content: &[u8]) {
    for segment in std::fs::read_dir(root.join("store/segments")).unwrap() {
        let path = segment.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        if let Some(at) = bytes.windows(content.len()).position(|window| window == content) {
            return rot(&path, at as u64 + 10);
        }
    }
    panic!("no segment holds it");
}

#[test]
fn silent_rot_is_found_quarantined_and_told_and_the_sound_stay() {
    let root = tempfile::tempdir().unwrap();
    let node = holding(root.path(), &[3 * MIB + 5, 1000, 0], &EAGER, &[]);
    rounds_more(&node, 2.0);
    assert!(node.metric(SOUND).unwrap() >= 3.0 && node.metric(CORRUPT).is_none());
    rot(&data_file(root.path(), "f1@t1"), 3 * MIB as u64);
    let event = found(&node, "f1");
    assert_eq!((event["generation"].as_str(), event["error"]["code"].as_str()), (Some("t1"), Some("checksum_mismatch")), "{event}");
    assert_eq!((event["error"]["class"].as_str(), event["epoch"].as_u64()), (Some("corrupt"), Some(0)));
    assert_eq!(node.ok("GET", "replicas/f1/t1", Value::Null)["state"], "quarantined");
    rounds_more(&node, 2.0);
    assert_eq!(node.metric(CORRUPT), Some(1.0), "it is found once");
    for n in 2..=3 {
        assert_eq!(node.ok("GET", &format!("replicas/f{n}/t{n}"), Value::Null)["state"], "present");
    }
    rot_in_log(root.path(), &noise(2, 1000));
    found(&node, "f2");
    assert_eq!(node.ok("GET", "replicas/f2/t2", Value::Null)["state"], "quarantined", "small ones lie in the log");
    node.ok("DELETE", "replicas/f1/t1", Value::Null);
    node.event("it is gone", |event| event["kind"] == "replica_deleted");
    node.put_file_origin(&root.path().join("lab"));
    assert_eq!(node.fetched("t9", "f1", "file1")["kind"], "transfer_done", "it is made again under a new generation");
}

#[test]
fn members_manifests_and_what_is_gone_are_found() {
    let of = |damage: &dyn Fn(&Path)| {
        let root = tempfile::tempdir().unwrap();
        let node = Host::start_with(root.path(), 1 << 30, &EAGER);
        tree(&node, &[("a/one", &noise(1, 700_000)), ("two", &noise(2, 10))]);
        rounds_more(&node, 2.0);
        assert_eq!(node.metric(CORRUPT), None);
        damage(root.path());
        found(&node, "o");
        assert_eq!(node.ok("GET", "replicas/o/a", Value::Null)["state"], "quarantined");
    };
    of(&|root| rot(&data_file(root, "o@a").join("a/one"), 699_999));
    of(&|root| rot(&data_file(root, "o@a@m"), 30));
    of(&|root| std::fs::remove_file(data_file(root, "o@a").join("two")).unwrap());
    of(&|root| std::fs::remove_file(data_file(root, "o@a@m")).unwrap());
}

#[test]
fn the_rate_is_kept_and_nothing_is_in_the_way() {
    let root = tempfile::tempdir().unwrap();
    let bytes_per_s = 2 * MIB;
    let rate = bytes_per_s.to_string();
    let node = holding(root.path(), &[40 * MIB], &["--scrub-every-s", "0", "--scrub-bytes-per-s", &rate], &[]);
    let started = until("it reads", || {
        // Not later than what it had read by then: a busy machine may take its time to tell.
        let now = Instant::now();
        node.metric(READ).filter(|read| *read > 0.0).map(|read| (read, now))
    });
    until("it has read for a while", || node.metric(READ).filter(|read| *read > started.0 + (6 * MIB) as f64));
    let (read, time) = (node.metric(READ).unwrap() - started.0, started.1.elapsed().as_secs_f64());
    assert!(read / time < 1.3 * bytes_per_s as f64, "{read} bytes in {time} s");
    let sandbox = root.path().join("sandboxes/a");
    let inputs = json!([{"file_id": "f1", "generation": "t1", "path": "in", "access": "copy"}]);
    node.ok("POST", "attempts/a/stage-in", json!({"sandbox_dir": sandbox, "inputs": inputs}));
    node.ok("POST", "attempts/a/release", json!({"sandbox_dir": sandbox, "remove_sandbox": true}));
    node.ok("DELETE", "replicas/f1/t1", Value::Null);
    node.event("it is gone", |event| event["kind"] == "replica_deleted");
    let read = node.metric(READ).unwrap();
    assert!(read < (40 * MIB) as f64, "they waited until it was read to its end: {read} bytes");
    rounds_more(&node, 2.0);
    let events = node.ok("GET", "events?after=0", Value::Null);
    assert!(!events.to_string().contains("replica_corrupt"), "what was deleted under its hands is not damaged: {events}");
    assert_eq!((node.metric(CORRUPT), node.metric(UNREADABLE)), (None, None));
}

#[test]
fn it_ends_with_the_node_and_remembers_what_it_has_read() {
    let root = tempfile::tempdir().unwrap();
    let slow = ["--scrub-bytes-per-s", "1000000", "--scrub-every-s", "3600"];
    let node = holding(root.path(), &[300_000, 300_000], &slow, &[]);
    assert!(node.terminate().success());
    let node = Host::start_with(root.path(), 1 << 30, &slow);
    until("it has looked which is due", || node.metric(ROUNDS).filter(|rounds| *rounds >= 1.0));
    assert_eq!(node.metric(READ), Some(0.0), "all were verified when they were committed");
    node.kill();
    std::fs::write(root.path().join("store/verified"), "torn").unwrap();
    let node = Host::start_with(root.path(), 1 << 30, &slow);
    until("all is read again", || node.metric(SOUND).filter(|sound| *sound == 2.0));
    rounds_more(&node, 0.0);
    let asked = Instant::now();
    assert!(node.terminate().success());
    // Sooner than the next look would have been due.
    assert!(asked.elapsed() < Duration::from_secs(60));
    let text = std::fs::read_to_string(root.path().join("store/verified")).unwrap();
    assert_eq!(text.lines().count(), 3, "{text}");
}

#[test]
fn the_longest_not_verified_comes_first() {
    let root = tempfile::tempdir().unwrap();
    let node = holding(root.path(), &[100_000; 4], &["--scrub-bytes-per-s", "0"], &[]);
    assert!(node.terminate().success());
    std::fs::write(root.path().join("store/verified"), "stager-verified 1\n3000 f1 t1\n1000 f2 t2\n2000 f4 t4\n").unwrap();
    for n in 1..=4 {
        rot(&data_file(root.path(), &format!("f{n}@t{n}")), 7);
    }
    let node = Host::start_with(root.path(), 1 << 30, &EAGER);
    let events = until("all is told", || {
        let events = node.ok("GET", "events?after=0", Value::Null)["events"].as_array().unwrap().clone();
        (events.len() == 4).then_some(events)
    });
    let order: Vec<&str> = events.iter().filter_map(|event| event["file_id"].as_str()).collect();
    assert_eq!(order, ["f3", "f2", "f4", "f1"], "never verified, then by time");
}

#[test]
fn the_page_cache_is_left_as_it_was() {
    let root = tempfile::tempdir().unwrap();
    let node = holding(root.path(), &[4 * MIB], &["--scrub-bytes-per-s", "0"], &[]);
    assert!(node.terminate().success());
    let there = |file: &std::fs::File| cache::resident(file, 0, 4 * MIB).iter().filter(|page| **page).count();
    let one_of_four_in_the_cache = |path: &Path| {
        let file = std::fs::File::open(path).unwrap();
        nix::fcntl::posix_fadvise(&file, 0, 0, nix::fcntl::PosixFadviseAdvice::POSIX_FADV_DONTNEED).unwrap();
        if there(&file) > 0 {
            eprintln!("NOT RUN: this file system keeps its pages ({})", file.as_raw_fd());
            return None;
        }
        cache::no_read_ahead(&file);
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut vec![0; MIB], MIB as u64).unwrap();
        assert_eq!(there(&file), MIB / 4096);
        Some(file)
    };
    // One that nobody looks at: what it loses, a machine short of memory let go of.
    let beside = root.path().join("beside");
    std::fs::write(&beside, noise(9, 4 * MIB)).unwrap();
    std::fs::File::open(&beside).unwrap().sync_all().unwrap();
    let Some(beside) = one_of_four_in_the_cache(&beside) else { return };
    let Some(file) = one_of_four_in_the_cache(&data_file(root.path(), "f1@t1")) else { return };
    let before = there(&file);
    assert!(!root.path().join("store/verified").exists());
    let node = Host::start_with(root.path(), 1 << 30, &["--scrub-bytes-per-s", "100000000"]);
    until("it is read", || node.metric(SOUND));
    let (now, let_go) = (there(&file), MIB / 4096 - there(&beside));
    assert!(now <= before && now + let_go > before * 9 / 10, "{now} of {before} pages, and {let_go} of others that nobody read");
}

#[test]
fn what_the_disk_does_not_give_back_is_made_again() {
    let root = tempfile::tempdir().unwrap();
    let Some(faults) = Faults::prepare(root.path()) else { return };
    let node = holding(root.path(), &[100_000, 100_000], &EAGER, &faults.environment());
    rounds_more(&node, 1.0);
    faults.fail_reads_of("f1@t1");
    let event = found(&node, "f1");
    assert!(event["error"]["message"].as_str().unwrap().contains("cannot be read"), "{event}");
    assert_eq!(node.metric(UNREADABLE), Some(1.0));
    rounds_more(&node, 2.0);
    assert_eq!(node.ok("GET", "replicas/f2/t2", Value::Null)["state"], "present");
}

#[test]
fn a_log_that_cannot_be_synced_is_told_and_nothing_is_acknowledged() {
    let root = tempfile::tempdir().unwrap();
    let Some(faults) = Faults::prepare(root.path()) else { return };
    let node = holding(root.path(), &[1000, 1000], &["--scrub-bytes-per-s", "0"], &faults.environment());
    faults.fail_syncs_of_the_log();
    assert_eq!(node.fetched("t3", "f3", "file1")["kind"], "transfer_failed", "nobody knows what is on disk");
    until("it is not ready", || (node.plain("/readyz", &[]).status == 503).then_some(()));
    assert_eq!(node.plain("/readyz", &[]).json()["because"], json!(["log_failing"]));
    assert!(node.content("f2", "t2") == noise(2, 1000), "what is here can be read");
    faults.mend();
    let mut tries = 3;
    until("it goes on", || {
        tries += 1;
        (node.fetched(&format!("t{tries}"), "f4", "file1")["kind"] == "transfer_done").then_some(())
    });
    assert_eq!(node.plain("/readyz", &[]).status, 200);
    node.kill();
    let node = Host::start(root.path(), 1 << 30);
    assert!(node.content("f2", "t2") == noise(2, 1000) && node.content("f4", &format!("t{tries}")) == noise(1, 1000));
    node.refused("GET", "replicas/f3/t3", Value::Null, 404, "replica_unknown");
}
