//! Transfers against a real node and a real directory: ended well, cut short, resumed, refused.

mod host;

use host::*;
use serde_json::{json, Value};

const MIB: usize = 1 << 20;

#[test]
fn a_fetched_file_is_the_file_at_the_origin() {
    let root = tempfile::tempdir().unwrap();
    let bytes = noise(1, 9 * MIB + 7);
    source(&root.path().join("lab"), "raw/one", &bytes);
    let node = Host::start(root.path(), 1 << 30);
    node.put_file_origin(&root.path().join("lab"));
    let event = node.fetched("t1", "f1", "raw/one");
    assert_eq!(event["kind"], "transfer_done");
    assert_eq!(event["blake3"], blake3::hash(&bytes).to_hex().as_str());
    assert_eq!(event["crc64nvme"], format!("{:016x}", crc_fast::crc64_nvme(&bytes)));
    assert_eq!((event["bytes_moved"].as_u64(), event["command_id"].as_str()), (Some(bytes.len() as u64), Some("c3")));
    assert!(node.content("f1", "t1") == bytes, "the content served is another one");
    assert_eq!(node.space(), (bytes.len() as u64, 0));
    let again = node.ok(
        "PUT",
        "transfers/t1",
        fetch("f1", "t1", "raw/one", json!({"size_bytes": 1, "token": null, "blake3": null, "sha256": null})),
    );
    assert_eq!((again["state"].as_str(), &again["event"]), (Some("done"), &event));
    node.ok("POST", "events/ack", json!({"seq": event["seq"]}));
    assert_eq!(node.telemetry("t1"), Value::Null, "an acknowledged transfer is forgotten");
    let (_, once_more) = node.ask_fetch("t1", "f1", "raw/one");
    assert_eq!(once_more["state"], "done", "what is here is not fetched again");
    assert_eq!(once_more["event"]["bytes_moved"], 0);
}

#[test]
fn transfers_asked_for_in_one_call_are_accepted_or_refused_each_for_itself() {
    let root = tempfile::tempdir().unwrap();
    source(&root.path().join("lab"), "one", b"one");
    let node = Host::start(root.path(), 1000);
    node.put_file_origin(&root.path().join("lab"));
    let unknown = json!({"size_bytes": 3, "token": null, "blake3": null, "sha256": null});
    let too_large = json!({"size_bytes": 2000, "token": null, "blake3": null, "sha256": null});
    let asked = |id: &str, command: &str, expected: &Value| json!({"transfer_id": id, "command_id": command, "request": fetch("f-refused", id, "one", expected.clone())});
    let good = |id: &str, file: &str| json!({"transfer_id": id, "command_id": format!("c-{id}"), "request": fetch(file, id, "one", unknown.clone())});
    let body = json!({"transfers": [
        good("t1", "f1"), asked("t2", "c-t2", &too_large), asked("../t", "c-t3", &unknown), asked("t4", "no id", &unknown), good("t5", "f5"),
    ]});
    let answers = node.ok("POST", "transfers", body)["answers"].as_array().unwrap().clone();
    let codes: Vec<_> = answers.iter().map(|answer| answer["error"]["code"].as_str().unwrap_or("")).collect();
    assert_eq!(codes, ["", "no_space_node", "bad_request", "bad_request", ""], "{answers:?}");
    for (id, file) in [("t1", "f1"), ("t5", "f5")] {
        let event = node.ended(id);
        assert_eq!((event["kind"].as_str(), event["command_id"].as_str()), (Some("transfer_done"), Some(format!("c-{id}").as_str())));
        assert_eq!(node.content(file, id), b"one");
    }
    assert_eq!(node.telemetry("t2"), Value::Null, "what was refused is not there");
}

#[test]
fn an_empty_file_is_a_file() {
    let root = tempfile::tempdir().unwrap();
    source(&root.path().join("lab"), "empty", b"");
    let node = Host::start(root.path(), 0);
    node.put_file_origin(&root.path().join("lab"));
    assert_eq!(node.fetched("t1", "f1", "empty")["blake3"], blake3::hash(b"").to_hex().as_str());
    assert_eq!(node.content("f1", "t1"), b"");
}

#[test]
fn content_is_served_in_ranges() {
    let root = tempfile::tempdir().unwrap();
    let bytes = noise(2, 3 * MIB);
    source(&root.path().join("lab"), "one", &bytes);
    let node = Host::start(root.path(), 1 << 30);
    node.put_file_origin(&root.path().join("lab"));
    node.fetched("t1", "f1", "one");
    let mut headers = node.headers();
    headers.push(("Range".into(), "bytes=1048570-2097160".into()));
    let reply = node.send("GET", "replicas/f1/t1/content", &Value::Null, &headers);
    assert_eq!(reply.status, 206);
    assert!(reply.head.contains("content-range: bytes 1048570-2097160/3145728"), "{}", reply.head);
    assert!(reply.body == bytes[1048570..=2097160]);
}

#[test]
fn a_wrong_checksum_fails_and_leaves_nothing() {
    let root = tempfile::tempdir().unwrap();
    source(&root.path().join("lab"), "one", b"what the origin holds");
    let node = Host::start(root.path(), 1000);
    node.put_file_origin(&root.path().join("lab"));
    let other = blake3::hash(b"what was declared").to_hex().to_string();
    let sha = "0".repeat(64);
    for (id, blake3, sha256) in [("t1", json!(other), Value::Null), ("t2", Value::Null, json!(sha))] {
        let expected = json!({"size_bytes": 21, "token": null, "blake3": blake3, "sha256": sha256});
        node.ok("PUT", &format!("transfers/{id}"), fetch("f1", id, "one", expected));
        let event = node.ended(id);
        assert_eq!((event["kind"].as_str(), event["error"]["code"].as_str()), (Some("transfer_failed"), Some("checksum_mismatch")));
        assert_eq!(event["error"]["class"], "corrupt");
        node.refused("GET", &format!("replicas/f1/{id}"), Value::Null, 404, "replica_unknown");
    }
    assert_eq!(node.space(), (0, 0));
    assert_eq!(std::fs::read_dir(root.path().join("store/partial")).unwrap().count(), 0);
}

#[test]
fn a_sha256_is_computed_where_it_is_asked_for() {
    let root = tempfile::tempdir().unwrap();
    source(&root.path().join("lab"), "one", b"hello");
    let node = Host::start(root.path(), 1000);
    node.put_file_origin(&root.path().join("lab"));
    let sha = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    node.ok("PUT", "transfers/t1", fetch("f1", "t1", "one", json!({"size_bytes": 5, "token": null, "blake3": null, "sha256": sha})));
    assert_eq!(node.ended("t1")["sha256"], sha);
}

#[test]
fn a_changed_source_fails_before_a_byte_is_kept() {
    let root = tempfile::tempdir().unwrap();
    source(&root.path().join("lab"), "one", b"first");
    let node = Host::start(root.path(), 1000);
    node.put_file_origin(&root.path().join("lab"));
    let expected = json!({"size_bytes": 5, "token": "m=1;s=5", "blake3": null, "sha256": null});
    node.ok("PUT", "transfers/t1", fetch("f1", "t1", "one", expected));
    assert_eq!(node.ended("t1")["error"]["code"], "source_changed");
    assert_eq!(node.space(), (0, 0));
}

#[test]
fn what_does_not_fit_is_refused_at_once() {
    let root = tempfile::tempdir().unwrap();
    source(&root.path().join("lab"), "one", &noise(3, 600));
    source(&root.path().join("lab"), "two", &noise(4, 600));
    let node = Host::start(root.path(), 1000);
    node.put_file_origin(&root.path().join("lab"));
    assert_eq!(node.fetched("t1", "f1", "one")["kind"], "transfer_done");
    let (status, answer) = node.ask_fetch("t2", "f2", "two");
    assert_eq!((status, answer["error"]["code"].as_str()), (507, Some("no_space_node")));
    node.refused("PUT", "reservations/r", json!({"bytes": 401}), 507, "no_space_node");
    node.ok("PUT", "reservations/r", json!({"bytes": 400}));
    assert_eq!(node.space(), (600, 400));
    node.ok("DELETE", "replicas/f1/t1", Value::Null);
    node.event("the replica is deleted", |event| event["kind"] == "replica_deleted");
    assert_eq!(node.fetched("t3", "f2", "two")["kind"], "transfer_done");
    assert_eq!(node.space(), (600, 400));
}

/// Fetches slowly until a checkpoint is in the log.
fn half_fetched(root: &std::path::Path, bytes: &[u8]) -> Host {
    source(&root.join("lab"), "big", bytes);
    let node = Host::start(root, 1 << 30);
    node.put_slow_origin(&root.join("lab"), 2 * MIB as u64);
    assert_eq!(node.ask_fetch("t1", "f1", "big").0, 202);
    let log = root.join("store/segments/0000000001.seg");
    until("a checkpoint is logged", || String::from_utf8_lossy(&std::fs::read(&log).unwrap()).contains("prefix_blake3").then_some(()));
    node
}

#[test]
fn a_fetch_goes_on_where_it_was_when_the_node_was_killed() {
    let root = tempfile::tempdir().unwrap();
    let bytes = noise(5, 40 * MIB);
    half_fetched(root.path(), &bytes).kill();
    let node = Host::start(root.path(), 1 << 30);
    assert_eq!(node.space(), (0, 0), "what nobody works on is not reserved");
    node.put_file_origin(&root.path().join("lab"));
    let event = node.fetched("t2", "f1", "big");
    assert_eq!(event["kind"], "transfer_done", "{event}");
    let moved = event["bytes_moved"].as_u64().unwrap();
    assert!(moved > 0 && moved <= (bytes.len() - 4 * MIB) as u64, "{moved} bytes were moved again");
    assert_eq!(event["blake3"], blake3::hash(&bytes).to_hex().as_str());
    assert!(node.content("f1", "t2") == bytes);
    assert_eq!(node.space(), (bytes.len() as u64, 0));
}

#[test]
fn a_damaged_partial_is_fetched_anew() {
    use std::os::unix::fs::FileExt;
    let root = tempfile::tempdir().unwrap();
    let bytes = noise(6, 40 * MIB);
    half_fetched(root.path(), &bytes).kill();
    let partial = root.path().join("store/partial/f1@t1");
    std::fs::File::options().write(true).open(partial).unwrap().write_all_at(b"damage", 1000).unwrap();
    let node = Host::start(root.path(), 1 << 30);
    node.put_file_origin(&root.path().join("lab"));
    let event = node.fetched("t2", "f1", "big");
    assert_eq!(
        (event["bytes_moved"].as_u64(), event["blake3"].as_str()),
        (Some(bytes.len() as u64), Some(blake3::hash(&bytes).to_hex().as_str()))
    );
}

#[test]
fn a_partial_of_another_content_is_not_joined() {
    let root = tempfile::tempdir().unwrap();
    half_fetched(root.path(), &noise(7, 40 * MIB)).kill();
    let bytes = noise(8, 40 * MIB);
    std::fs::write(root.path().join("lab/big"), &bytes).unwrap();
    let node = Host::start(root.path(), 1 << 30);
    node.put_file_origin(&root.path().join("lab"));
    let event = node.fetched("t1", "f1", "big");
    assert_eq!(
        (event["bytes_moved"].as_u64(), event["blake3"].as_str()),
        (Some(bytes.len() as u64), Some(blake3::hash(&bytes).to_hex().as_str()))
    );
    assert_eq!(std::fs::read_dir(root.path().join("store/partial")).unwrap().count(), 0);
}

#[test]
fn a_cancelled_fetch_can_be_resumed_and_gives_way_to_a_reservation() {
    let root = tempfile::tempdir().unwrap();
    let bytes = noise(9, 40 * MIB);
    let node = half_fetched(root.path(), &bytes);
    assert!(node.space().1 == bytes.len() as u64);
    node.ok("DELETE", "transfers/t1", Value::Null);
    assert_eq!(node.ended("t1")["kind"], "transfer_cancelled");
    assert_eq!(node.space(), (0, 0));
    assert_eq!(std::fs::read_dir(root.path().join("store/partial")).unwrap().count(), 1);
    node.put_file_origin(&root.path().join("lab"));
    // The origin's bandwidth is not part of what it is: the bytes are joined.
    node.ok("PUT", "reservations/r", json!({"bytes": 1u64 << 30}));
    assert_eq!(std::fs::read_dir(root.path().join("store/partial")).unwrap().count(), 0, "all space was asked for");
    node.ok("DELETE", "reservations/r", Value::Null);
    assert_eq!(node.fetched("t2", "f1", "big")["bytes_moved"], bytes.len() as u64);
}

#[test]
fn a_fetch_in_the_way_of_an_ordered_end_resumes() {
    let root = tempfile::tempdir().unwrap();
    let bytes = noise(10, 40 * MIB);
    let node = half_fetched(root.path(), &bytes);
    assert!(node.terminate().success());
    let node = Host::start(root.path(), 1 << 30);
    node.put_file_origin(&root.path().join("lab"));
    assert!(node.fetched("t2", "f1", "big")["bytes_moved"].as_u64().unwrap() < bytes.len() as u64);
    assert!(node.content("f1", "t2") == bytes);
}

/// Fetches `s0` to `s19` from an origin that gives them next to nothing.
fn stalled(root: &std::path::Path) -> Host {
    source(&root.join("slow"), "big", &noise(11, 8 * MIB));
    let node = Host::start(root, 1 << 30);
    node.ok("PUT", "origins/slow", json!({"kind": "file", "base_path": root.join("slow"), "bandwidth_bytes_per_s_max": 1000}));
    let expected = json!({"size_bytes": 8 * MIB, "token": null, "blake3": null, "sha256": null});
    for n in 0..20 {
        let mut request = fetch(&format!("s{n}"), "g", "big", expected.clone());
        request["source"]["origin_id"] = json!("slow");
        node.ok("PUT", &format!("transfers/s{n}"), request);
    }
    node
}

#[test]
fn one_stalled_origin_holds_nobody_else() {
    let root = tempfile::tempdir().unwrap();
    source(&root.path().join("lab"), "small", b"small");
    let node = stalled(root.path());
    node.put_file_origin(&root.path().join("lab"));
    assert_eq!(node.fetched("t1", "f1", "small")["kind"], "transfer_done");
    assert_eq!(node.telemetry("s19")["state"], "queued", "a lane runs sixteen at once to start with");
    node.ok("DELETE", "transfers/s19", Value::Null);
    assert_eq!(node.ended("s19")["kind"], "transfer_cancelled");
}

#[test]
fn small_files_that_arrive_together_are_committed_together() {
    let root = tempfile::tempdir().unwrap();
    let files = 64;
    (0..files).for_each(|n| source(&root.path().join("lab"), &format!("small{n}"), &noise(n, 1000)));
    // So many others under way that each small one waits a moment for more.
    let node = stalled(root.path());
    node.put_file_origin(&root.path().join("lab"));
    let frames = || node.metric("stager_node_log_frames_total").unwrap();
    let before = frames();
    // They are asked for together, however busy the machine is.
    let signal = |signal| nix::sys::signal::kill(nix::unistd::Pid::from_raw(node.pid() as i32), signal).unwrap();
    signal(nix::sys::signal::Signal::SIGSTOP);
    let ask = |n: u8| {
        let expected = json!({"size_bytes": 1000, "token": null, "blake3": null, "sha256": null});
        let request = fetch(&format!("f{n}"), "g", &format!("small{n}"), expected);
        node.begin("PUT", &format!("/v1/transfers/t{n}"), request.to_string().as_bytes(), &node.headers())
    };
    let asked: Vec<Begun> = (0..files).map(ask).collect();
    signal(nix::sys::signal::Signal::SIGCONT);
    asked.into_iter().for_each(|begun| assert_eq!(begun.reply().expect("the node answers").status, 202));
    for n in 0..files {
        assert_eq!(node.ended(&format!("t{n}"))["kind"], "transfer_done");
        assert!(node.content(&format!("f{n}"), "g") == noise(n, 1000));
    }
    let frames = frames() - before;
    assert!(2.0 * frames < f64::from(files), "{frames} frames of the log for {files} files");
}

#[test]
fn an_upload_arrives_is_adopted_and_does_not_overwrite() {
    let root = tempfile::tempdir().unwrap();
    let bytes = noise(12, 9 * MIB + 7);
    source(&root.path().join("lab"), "one", &bytes);
    let node = Host::start(root.path(), 1 << 30);
    node.put_file_origin(&root.path().join("lab"));
    node.fetched("t1", "f1", "one");
    node.ok("PUT", "transfers/u1", upload("f1", "t1", "out/copy", "fail"));
    let event = node.ended("u1");
    assert_eq!((event["kind"].as_str(), event["transfer_kind"].as_str()), (Some("transfer_done"), Some("upload")), "{event}");
    assert!(event["verified"].is_string() && event["token"].is_string());
    assert_eq!(node.telemetry("u1")["bytes_done"], bytes.len(), "not what was sent, but the last piece");
    assert!(std::fs::read(root.path().join("lab/out/copy")).unwrap() == bytes);
    node.ok("PUT", "transfers/u2", upload("f1", "t1", "out/copy", "fail"));
    assert_eq!(node.ended("u2")["verified"], "adopted");
    std::fs::write(root.path().join("lab/out/copy"), b"somebody else's").unwrap();
    node.ok("PUT", "transfers/u3", upload("f1", "t1", "out/copy", "fail"));
    assert_eq!(node.ended("u3")["error"]["code"], "destination_exists");
    assert_eq!(std::fs::read(root.path().join("lab/out/copy")).unwrap(), b"somebody else's");
    node.ok("PUT", "transfers/u4", upload("f1", "t1", "out/copy", "replace"));
    assert_eq!(node.ended("u4")["kind"], "transfer_done");
    assert!(std::fs::read(root.path().join("lab/out/copy")).unwrap() == bytes);
}

#[test]
fn an_upload_of_a_damaged_replica_quarantines_it() {
    use std::os::unix::fs::PermissionsExt;
    let root = tempfile::tempdir().unwrap();
    source(&root.path().join("lab"), "one", b"good content");
    let node = Host::start_with(root.path(), 1000, &IN_FILES);
    node.put_file_origin(&root.path().join("lab"));
    node.fetched("t1", "f1", "one");
    let path = data_file(root.path(), "f1@t1");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::write(&path, b"BAD! content").unwrap();
    node.ok("PUT", "transfers/u1", upload("f1", "t1", "out/one", "fail"));
    assert_eq!(node.ended("u1")["kind"], "transfer_failed");
    assert!(!root.path().join("lab/out/one").exists());
    node.event("the replica is told to be corrupt", |event| event["kind"] == "replica_corrupt" && event["file_id"] == "f1");
    assert_eq!(node.ok("GET", "replicas/f1/t1", Value::Null)["state"], "quarantined");
}

#[test]
fn unknown_origins_replicas_and_paths_are_refused_by_name() {
    let root = tempfile::tempdir().unwrap();
    let node = Host::start(root.path(), 1000);
    let expected = json!({"size_bytes": 1, "token": null, "blake3": null, "sha256": null});
    node.refused("PUT", "transfers/t1", fetch("f1", "t1", "one", expected.clone()), 400, "origin_unknown");
    std::fs::create_dir(root.path().join("lab")).unwrap();
    node.put_file_origin(&root.path().join("lab"));
    for bad in ["../one", "/one", "a//b", ""] {
        node.refused("PUT", "transfers/t1", fetch("f1", "t1", bad, expected.clone()), 400, "bad_request");
    }
    node.refused("PUT", "transfers/u1", upload("f1", "t1", "one", "fail"), 404, "replica_unknown");
    node.ok("PUT", "transfers/t2", fetch("f1", "t2", "gone", expected));
    assert_eq!(node.ended("t2")["error"]["code"], "not_found");
    assert_eq!(node.space(), (0, 0));
}
