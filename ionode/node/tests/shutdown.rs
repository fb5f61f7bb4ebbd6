//! How the node ends, and what it writes to its log meanwhile.

mod host;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use host::*;
use serde_json::{json, Value};

const MIB: usize = 1 << 20;

/// A node whose fetch `t1` of 8 MiB is under way at this rate; `t2` and more wait behind a lane full of others.
fn fetching(root: &std::path::Path, bytes_per_s: u64, more: &[&str]) -> Host {
    source(&root.join("lab"), "big", &noise(1, 8 * MIB));
    let node = Host::start_with(root, 1 << 30, more);
    node.put_slow_origin(&root.join("lab"), bytes_per_s);
    assert_eq!(node.ask_fetch("t1", "f1", "big").0, 202);
    until("the fetch moves", || node.telemetry("t1")["bytes_done"].as_u64().filter(|done| *done > 0));
    node
}

#[test]
fn a_drain_turns_readiness_first_and_lets_running_transfers_end() {
    let root = tempfile::tempdir().unwrap();
    let mut node = fetching(root.path(), MIB as u64, &["--drain-s", "60"]);
    node.ask_to_end();
    until("it says it is not ready", || (node.plain("/readyz", &[]).status == 503).then_some(()));
    assert_eq!(node.plain("/readyz", &[]).json(), json!({"state": "not_ready", "because": ["draining"]}));
    assert_eq!(node.plain("/healthz", &[]).status, 200);
    let expected = json!({"size_bytes": 8 * MIB, "token": null, "blake3": null, "sha256": null});
    node.refused("PUT", "transfers/late", fetch("f2", "late", "big", expected), 503, "draining");
    // Who asks it how the transfer ended may come when it has gone already; the next one holds what had time enough.
    assert!(node.wait().success());
    let node = Host::start(root.path(), 1 << 30);
    assert!(node.content("f1", "t1") == noise(1, 8 * MIB));
}

#[test]
fn what_waits_is_handed_back_and_what_runs_too_long_is_cut_off_and_resumes() {
    let root = tempfile::tempdir().unwrap();
    let mut node = fetching(root.path(), 300_000, &["--drain-s", "3600"]);
    let entry = node.stat("big");
    for n in 2..=17 {
        let expected = json!({"size_bytes": entry["size_bytes"], "token": entry["token"], "blake3": null, "sha256": null});
        node.ok("PUT", &format!("transfers/t{n}"), fetch(&format!("f{n}"), &format!("t{n}"), "big", expected));
    }
    assert_eq!(node.telemetry("t17")["state"], "queued");
    until("there is something to resume", || node.telemetry("t1")["bytes_done"].as_u64().filter(|done| *done > 500_000));
    assert_eq!(node.call("POST", "shutdown", json!({"drain_s": 3600})).0, 202);
    let event = node.ended("t17");
    assert_eq!((event["error"]["code"].as_str(), event["error"]["class"].as_str()), (Some("draining"), Some("transient")), "{event}");
    assert_eq!(node.telemetry("t1")["state"], "running");
    let asked = Instant::now();
    assert_eq!(node.call("POST", "shutdown", json!({"drain_s": 2})).0, 202, "asked again, it ends sooner");
    assert!(node.wait().success());
    assert!(asked.elapsed() < Duration::from_secs(60) && asked.elapsed() >= Duration::from_secs(2), "{:?}", asked.elapsed());
    let node = Host::start(root.path(), 1 << 30);
    node.put_file_origin(&root.path().join("lab"));
    assert!(node.fetched("t1b", "f1", "big")["bytes_moved"].as_u64().unwrap() < 8 * MIB as u64, "it began anew");
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let root = tempfile::tempdir().unwrap();
    let mut node = fetching(root.path(), 100_000, &["--drain-s", "3600"]);
    node.ask_to_end();
    until("it drains", || (node.plain("/readyz", &[]).status == 503).then_some(()));
    let asked = Instant::now();
    node.ask_to_end();
    assert_eq!(node.wait().code(), Some(143));
    // Sooner than the transfer would have ended.
    assert!(asked.elapsed() < Duration::from_secs(30), "{:?}", asked.elapsed());
    assert!(!root.path().join("store/rendezvous.json").exists());
    let node = Host::start(root.path(), 1 << 30);
    assert_eq!(node.space().1, 0);
}

#[test]
fn a_reader_of_content_is_waited_for() {
    let root = tempfile::tempdir().unwrap();
    let bytes = noise(2, 64 * MIB);
    source(&root.path().join("lab"), "big", &bytes);
    let mut node = Host::start_with(root.path(), 1 << 30, &["--drain-s", "300"]);
    node.put_file_origin(&root.path().join("lab"));
    node.fetched("t1", "f1", "big");
    let mut stream = UnixStream::connect(root.path().join("sock")).unwrap();
    let headers: String = node.headers().iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let head = format!("GET /v1/replicas/f1/t1/content HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut first = [0; 1000];
    stream.read_exact(&mut first).unwrap();
    node.ask_to_end();
    until("it drains", || (node.plain("/readyz", &[]).status == 503).then_some(()));
    // Longer than answers get once the node no longer listens.
    std::thread::sleep(Duration::from_secs(6));
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert!(rest.ends_with(&bytes[bytes.len() - 1000..]), "the answer was cut off");
    assert!(node.wait().success());
}

#[test]
fn lines_of_the_log_name_what_they_are_about() {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("lab")).unwrap();
    let node = Host::start(root.path(), 1000);
    node.put_file_origin(&root.path().join("lab"));
    let expected = json!({"size_bytes": 1, "token": null, "blake3": null, "sha256": null});
    node.ok("PUT", "transfers/t1", fetch("f1", "g1", "gone", expected));
    let command_id = node.ended("t1")["command_id"].clone();
    let lines = node.log_lines();
    let failed = lines.iter().find(|line| line["fields"]["message"] == "a transfer failed").expect("the failure is logged");
    let told = |key: &str| failed["span"][key].as_str().unwrap_or_else(|| panic!("no {key}: {failed}"));
    assert_eq!((told("transfer_id"), told("file_id"), told("generation"), told("origin_id")), ("t1", "f1", "g1", "lab"));
    assert_eq!(
        (&failed["span"]["command_id"], &failed["fields"]["code"], &failed["level"]),
        (&command_id, &json!("not_found"), &json!("WARN"))
    );
    let described = lines.iter().find(|line| line["fields"]["message"] == "an origin was described").expect("it is logged");
    assert_eq!((&described["span"]["name"], &described["span"]["command_id"]), (&json!("call"), &json!("c1")));
}

#[test]
fn a_line_that_repeats_is_counted_not_written() {
    let root = tempfile::tempdir().unwrap();
    let node = Host::start(root.path(), 1000);
    let started = Instant::now();
    for bytes_per_s in 1..=100 {
        // One that is described as before is none of the log's business.
        node.put_slow_origin(root.path(), bytes_per_s);
    }
    // Twenty lines in each ten seconds.
    let most = 20 * (1 + started.elapsed().as_secs() / 10);
    let of = |text: &str| node.log_lines().into_iter().filter(|line| line["fields"]["message"] == text).collect::<Vec<Value>>();
    let said = until("the rest is counted", || {
        let counted = of("this line would have come more often; it was left out");
        let left_out: u64 = counted.iter().map(|line| line["fields"]["left_out"].as_u64().unwrap()).sum();
        let said = of("an origin was described").len() as u64;
        (said + left_out == 100).then_some(said)
    });
    assert!((20..=most).contains(&said), "{said} lines of 100, {most} at most");
}

#[test]
fn a_node_whose_store_is_removed_says_so_and_ends_whatever_runs() {
    let root = tempfile::tempdir().unwrap();
    let mut node = fetching(root.path(), 100_000, &["--drain-s", "3600"]);
    let asked = Instant::now();
    // The node may be writing to it.
    until("the store is removed", || std::fs::remove_dir_all(root.path().join("store")).is_ok().then_some(()));
    node.wait();
    assert!(asked.elapsed() < Duration::from_secs(30), "{:?}", asked.elapsed());
    let said = node.log_lines().iter().any(|line| line.to_string().contains("the store was removed or replaced"));
    assert!(said, "{:?}", node.log_lines());
}
