//! Jobs' stays on the host of a real node: staged in, staged out, released.

mod faults;
mod host;

use std::os::unix::fs::{symlink, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use faults::Faults;
use host::*;
use serde_json::{json, Value};

fn sandbox(root: &Path, attempt: &str) -> PathBuf {
    root.join("sandboxes").join(attempt)
}

fn staged_in(node: &Host, attempt: &str, inputs: Value) -> (PathBuf, Value) {
    let path = sandbox(&node.root, attempt);
    let answer = node.ok("POST", &format!("attempts/{attempt}/stage-in"), json!({"sandbox_dir": path, "inputs": inputs}));
    (path, answer)
}

fn input(file_id: &str, path: &str, access: &str) -> Value {
    json!({"file_id": file_id, "generation": "t1", "path": path, "access": access})
}

/// A node that holds `f1 t1`: "input bytes".
fn with_input(root: &Path) -> Host {
    source(&root.join("lab"), "one", b"input bytes");
    let node = Host::start_with(root, 1 << 20, &IN_FILES);
    node.put_file_origin(&root.join("lab"));
    assert_eq!(node.fetched("t1", "f1", "one")["kind"], "transfer_done");
    node
}

fn release(node: &Host, attempt: &str) -> Value {
    node.ok("POST", &format!("attempts/{attempt}/release"), json!({"sandbox_dir": sandbox(&node.root, attempt), "remove_sandbox": true}))
}

#[test]
fn inputs_are_copied_or_given_a_target_to_mount_on() {
    let root = tempfile::tempdir().unwrap();
    let node = with_input(root.path());
    let (path, answer) = staged_in(&node, "a1", json!([input("f1", "in/linked", "link"), input("f1", "in/deep/copied", "copy")]));
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(std::fs::read(path.join("in/deep/copied")).unwrap(), b"input bytes");
    assert_eq!(std::fs::read(path.join("in/linked")).unwrap(), b"");
    let mount = &answer["mounts"][0];
    assert_eq!((mount["target"].as_str(), mount["directory"].as_bool()), (path.join("in/linked").to_str(), Some(false)));
    let origin = Path::new(mount["source"].as_str().unwrap());
    assert_eq!(std::fs::read(origin).unwrap(), b"input bytes");
    assert_eq!(origin.metadata().unwrap().permissions().mode() & 0o777, 0o400);
    assert_eq!(answer["copied_bytes"], 11);
    let (_, again) = staged_in(&node, "a1", json!([input("f1", "in/linked", "link"), input("f1", "in/deep/copied", "copy")]));
    assert_eq!(again, answer, "the same call again is answered again");
    assert_eq!(release(&node, "a1"), json!({"changed": []}));
    assert!(!path.exists());
    assert_eq!(release(&node, "a1"), json!({"changed": []}), "released twice is released");
}

#[test]
fn a_stage_in_that_fails_leaves_nothing() {
    let root = tempfile::tempdir().unwrap();
    let node = with_input(root.path());
    let path = sandbox(root.path(), "a1");
    let call = |inputs: Value| json!({"sandbox_dir": path, "inputs": inputs});
    node.refused("POST", "attempts/a1/stage-in", call(json!([input("gone", "x", "copy")])), 404, "replica_unknown");
    for bad in ["../x", "/x", "a/../../x", ""] {
        node.refused("POST", "attempts/a1/stage-in", call(json!([input("f1", bad, "copy")])), 400, "bad_request");
    }
    node.refused("POST", "attempts/a1/stage-in", call(json!([input("f1", "x", "copy"), input("f1", "x/y", "copy")])), 400, "bad_request");
    assert!(!path.exists());
    std::fs::create_dir_all(&path).unwrap();
    std::fs::write(path.join("mine"), b"mine").unwrap();
    node.refused("POST", "attempts/a1/stage-in", call(json!([])), 409, "destination_exists");
    assert!(path.join("mine").exists(), "a directory of somebody else is left alone");
    assert_eq!(node.ok("GET", "state", Value::Null)["leases"], json!([]));
    let inside = root.path().join("store/data/x");
    node.refused("POST", "attempts/a1/stage-in", json!({"sandbox_dir": inside, "inputs": []}), 400, "bad_request");
}

#[test]
fn a_leased_replica_is_busy_over_a_kill_of_the_node_too() {
    let root = tempfile::tempdir().unwrap();
    let node = with_input(root.path());
    staged_in(&node, "a1", json!([input("f1", "x", "link")]));
    node.refused("DELETE", "replicas/f1/t1", Value::Null, 409, "replica_busy");
    node.kill();
    let node = Host::start(root.path(), 1 << 20);
    node.refused("DELETE", "replicas/f1/t1", Value::Null, 409, "replica_busy");
    assert_eq!(node.ok("GET", "state", Value::Null)["leases"][0]["attempt_id"], "a1");
    release(&node, "a1");
    node.ok("DELETE", "replicas/f1/t1", Value::Null);
    node.event("the replica is deleted", |event| event["kind"] == "replica_deleted");
    node.ok("DELETE", "replicas/f1/t1", Value::Null);
    assert_eq!(node.space(), (0, 0));
}

#[test]
fn outputs_become_replicas_and_the_reservation_shrinks() {
    let root = tempfile::tempdir().unwrap();
    let node = Host::start(root.path(), 1000);
    let (path, _) = staged_in(&node, "a1", json!([]));
    node.ok("PUT", "reservations/r1", json!({"bytes": 900}));
    std::fs::create_dir_all(path.join("out/tree/sub/empty")).unwrap();
    std::fs::write(path.join("out/tool"), noise(1, 500)).unwrap();
    std::fs::set_permissions(path.join("out/tool"), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::write(path.join("out/tree/sub/b"), b"b").unwrap();
    std::fs::write(path.join("out/tree/a"), b"aa").unwrap();
    std::fs::write(path.join("stray"), b"").unwrap();
    std::fs::write(path.join("kept"), b"").unwrap();
    let outputs = json!([
        output("o1", "out/tool", "file", false),
        output("o2", "out/tree", "directory", false),
        output("o3", "out/no", "file", true)
    ]);
    let mut request = stage_out(&path, "r1", outputs);
    request["keep"] = json!(["kept"]);
    request["want_sha256"] = json!(true);
    let answer = node.ok("POST", "attempts/a1/stage-out", request.clone());
    assert_eq!(answer["undeclared"], json!(["stray"]));
    let found = answer["outputs"].as_array().unwrap();
    assert_eq!(found.len(), 2);
    assert_eq!((found[0]["size_bytes"].as_u64(), found[0]["executable"].as_bool()), (Some(500), Some(true)));
    assert_eq!(found[0]["sha256"].as_str().map(str::len), Some(64));
    assert_eq!((found[1]["members"].as_u64(), found[1]["size_bytes"].as_u64()), (Some(2), Some(3)));
    assert_eq!(node.space(), (503, 397));
    assert!(!path.join("out/tool").exists() && !path.join("out/tree").exists(), "the job keeps no name of a replica");
    assert!(node.content("o1", "a") == noise(1, 500));
    let member = node.send("GET", "replicas/o2/a/content?member=sub%2Fb", &Value::Null, &node.headers());
    assert_eq!((member.status, member.body.as_slice()), (200, &b"b"[..]));
    release(&node, "a1");
    let again = node.ok("POST", "attempts/a1/stage-out", request);
    assert_eq!(again["outputs"], answer["outputs"], "what is committed is answered again, sandbox or not");
    assert_eq!(node.space(), (503, 397));
}

#[test]
fn a_tree_goes_out_and_in_as_it_was() {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("lab")).unwrap();
    let node = Host::start(root.path(), 1 << 20);
    node.put_file_origin(&root.path().join("lab"));
    let (path, _) = staged_in(&node, "a1", json!([]));
    node.ok("PUT", "reservations/r1", json!({"bytes": 1000}));
    std::fs::create_dir_all(path.join("tree/sub/empty")).unwrap();
    for n in 0..40 {
        std::fs::write(path.join(format!("tree/sub/{n}")), format!("file {n}")).unwrap();
    }
    std::fs::write(path.join("tree/run.sh"), b"#!/bin/sh\n").unwrap();
    std::fs::set_permissions(path.join("tree/run.sh"), std::fs::Permissions::from_mode(0o700)).unwrap();
    node.ok("POST", "attempts/a1/stage-out", stage_out(&path, "r1", json!([output("o1", "tree", "directory", false)])));
    let copied = json!([{"file_id": "o1", "generation": "a", "path": "in", "access": "copy"}]);
    let (second, _) = staged_in(&node, "a2", copied);
    node.ok("PUT", "transfers/u1", upload("o1", "a", "res/tree", "fail"));
    assert_eq!(node.ended("u1")["kind"], "transfer_done");
    for top in [second.join("in"), root.path().join("lab/res/tree")] {
        assert_eq!(std::fs::read(top.join("sub/39")).unwrap(), b"file 39");
        assert!(top.join("sub/empty").is_dir());
        assert_ne!(top.join("run.sh").metadata().unwrap().permissions().mode() & 0o100, 0, "{top:?}");
        assert_eq!(top.join("sub/1").metadata().unwrap().permissions().mode() & 0o111, 0);
    }
    assert_eq!(node.ok("POST", "replicas/o1/a/verify", Value::Null), json!({"matches": true}));
}

#[test]
fn outputs_that_lead_out_of_the_sandbox_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let node = Host::start(root.path(), 1000);
    std::fs::create_dir_all(root.path().join("secret")).unwrap();
    std::fs::write(root.path().join("secret/file"), b"secret").unwrap();
    let (path, _) = staged_in(&node, "a1", json!([]));
    node.ok("PUT", "reservations/r1", json!({"bytes": 900}));
    symlink(root.path().join("secret/file"), path.join("link")).unwrap();
    symlink(root.path().join("secret"), path.join("linked_dir")).unwrap();
    std::fs::create_dir(path.join("tree")).unwrap();
    symlink("../../secret/file", path.join("tree/link")).unwrap();
    nix::unistd::mkfifo(&path.join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    std::fs::write(path.join("plain"), b"plain").unwrap();
    let cases = [
        ("link", "file", "link"),
        ("linked_dir/file", "file", "linked_dir/file"),
        ("linked_dir", "directory", "linked_dir"),
        ("tree", "directory", "tree/link"),
        ("fifo", "file", "fifo"),
        ("plain", "directory", "plain"),
        ("tree", "file", "tree"),
    ];
    for (declared, kind, named) in cases {
        let outputs = json!([output("o1", declared, kind, true), output("o2", "plain", "file", false)]);
        let outputs = if declared == "plain" { json!([outputs[0]]) } else { outputs };
        let answer = node.refused("POST", "attempts/a1/stage-out", stage_out(&path, "r1", outputs), 422, "output_escapes");
        assert_eq!(answer["paths"], json!([named]));
    }
    assert_eq!(node.space(), (0, 900));
    assert!(path.join("plain").exists(), "nothing has been taken");
}

#[test]
fn a_hard_link_to_a_file_outside_is_copied() {
    let root = tempfile::tempdir().unwrap();
    let node = Host::start(root.path(), 1000);
    std::fs::write(root.path().join("outside"), b"shared").unwrap();
    let (path, _) = staged_in(&node, "a1", json!([]));
    node.ok("PUT", "reservations/r1", json!({"bytes": 6}));
    std::fs::hard_link(root.path().join("outside"), path.join("out")).unwrap();
    node.ok("POST", "attempts/a1/stage-out", stage_out(&path, "r1", json!([output("o1", "out", "file", false)])));
    std::fs::write(root.path().join("outside"), b"edited").unwrap();
    assert_eq!(node.content("o1", "a"), b"shared");
    assert_eq!(root.path().join("outside").metadata().unwrap().nlink(), 1);
}

#[test]
fn missing_and_too_large_outputs_are_named_and_nothing_is_taken() {
    let root = tempfile::tempdir().unwrap();
    let node = Host::start(root.path(), 1000);
    let (path, _) = staged_in(&node, "a1", json!([]));
    std::fs::write(path.join("here"), noise(1, 101)).unwrap();
    let outputs =
        json!([output("o1", "here", "file", false), output("o2", "no/way", "file", false), output("o3", "nor", "directory", false)]);
    let answer = node.refused("POST", "attempts/a1/stage-out", stage_out(&path, "r1", outputs), 422, "outputs_missing");
    assert_eq!(answer["paths"], json!(["no/way", "nor"]));
    node.ok("PUT", "reservations/r1", json!({"bytes": 100}));
    let request = stage_out(&path, "r1", json!([output("o1", "here", "file", false)]));
    let answer = node.refused("POST", "attempts/a1/stage-out", request.clone(), 409, "exceeds_reservation");
    assert_eq!(answer["needed_bytes"], 101);
    assert!(path.join("here").exists());
    assert_eq!(node.space(), (0, 100));
    node.ok("PUT", "reservations/r1", json!({"bytes": 101}));
    node.ok("POST", "attempts/a1/stage-out", request);
    assert_eq!(node.space(), (101, 0));
}

#[test]
fn one_call_begins_an_attempt_and_one_ends_it() {
    let root = tempfile::tempdir().unwrap();
    let node = Host::start(root.path(), 1000);
    let path = sandbox(root.path(), "a1");
    let begin = json!({"sandbox_dir": path, "inputs": [], "reservation": {"id": "r1", "bytes": 300}});
    node.ok("POST", "attempts/a1/stage-in", begin.clone());
    assert_eq!(node.space(), (0, 300));
    let too_much = json!({"sandbox_dir": sandbox(root.path(), "a2"), "inputs": [], "reservation": {"id": "r2", "bytes": 701}});
    node.refused("POST", "attempts/a2/stage-in", too_much, 507, "no_space_node");
    assert!(!sandbox(root.path(), "a2").exists());
    std::fs::write(path.join("out"), b"0123456789").unwrap();
    let mut end = stage_out(&path, "r1", json!([output("o1", "out", "file", false)]));
    end["release"] = json!({"sandbox_dir": path, "remove_sandbox": true, "reservation_id": "r1"});
    for _ in 0..2 {
        let answer = node.ok("POST", "attempts/a1/stage-out", end.clone());
        assert_eq!((&answer["released"], &answer["outputs"][0]["size_bytes"]), (&json!({"changed": []}), &json!(10)));
        assert_eq!(node.space(), (10, 0));
        assert!(!path.exists());
    }
}

#[test]
fn outputs_stay_committed_when_the_release_that_follows_fails() {
    let root = tempfile::tempdir().unwrap();
    let node = Host::start_with(root.path(), 1000, &IN_FILES);
    let path = sandbox(root.path(), "a1");
    node.ok("POST", "attempts/a1/stage-in", json!({"sandbox_dir": path, "inputs": [], "reservation": {"id": "r1", "bytes": 300}}));
    std::fs::write(path.join("out"), b"0123456789").unwrap();
    let mut end = stage_out(&path, "r1", json!([output("o1", "out", "file", false)]));
    end["release"] = json!({"sandbox_dir": root.path(), "remove_sandbox": true});
    let answer = node.ok("POST", "attempts/a1/stage-out", end);
    assert_eq!((&answer["released"], &answer["outputs"][0]["state"]), (&Value::Null, &json!("present")));
    assert_eq!(node.space(), (10, 290));
    assert!(path.exists(), "not released yet");
}

#[test]
fn a_replica_changed_through_a_link_is_found_out() {
    let root = tempfile::tempdir().unwrap();
    let node = with_input(root.path());
    let (_, answer) = staged_in(&node, "a1", json!([input("f1", "x", "link")]));
    let path = PathBuf::from(answer["mounts"][0]["source"].as_str().unwrap());
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::write(&path, b"INPUT BYTES").unwrap();
    assert_eq!(release(&node, "a1"), json!({"changed": [{"file_id": "f1", "generation": "t1"}]}));
    node.event("the replica is told to be corrupt", |event| event["kind"] == "replica_corrupt" && event["generation"] == "t1");
    let body = json!({"sandbox_dir": sandbox(root.path(), "a2"), "inputs": [input("f1", "x", "copy")]});
    node.refused("POST", "attempts/a2/stage-in", body, 500, "checksum_mismatch");
}

/// Whoever may write may also set the time back. New rights alone are no change.
#[test]
fn a_change_that_hides_its_time_is_found_out() {
    let root = tempfile::tempdir().unwrap();
    let node = with_input(root.path());
    for (attempt, content, changed) in
        [("a1", None, json!([])), ("a2", Some(b"INPUT BYTES"), json!([{"file_id": "f1", "generation": "t1"}]))]
    {
        let (_, answer) = staged_in(&node, attempt, json!([input("f1", "x", "link")]));
        let path = PathBuf::from(answer["mounts"][0]["source"].as_str().unwrap());
        let before = path.metadata().unwrap().modified().unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        content.iter().for_each(|content| std::os::unix::fs::FileExt::write_all_at(&file, *content, 0).unwrap());
        file.set_modified(before).unwrap();
        assert_eq!(release(&node, attempt), json!({"changed": changed}));
    }
}

/// A process that the job left behind, or that of an engine's task, still writes while the output is taken: it is refused, or, where the
/// write came later, no job reads what was written.
#[test]
fn an_output_that_is_still_written_is_not_taken_for_what_was_hashed() {
    let root = tempfile::tempdir().unwrap();
    let node = Host::start_with(root.path(), 1 << 30, &IN_FILES);
    let bytes = noise(1, 48 << 20);
    let mut refused = 0;
    for round in 0..6 {
        let (attempt, reservation, file_id) = (format!("w{round}"), format!("r{round}"), format!("o{round}"));
        let (path, _) = staged_in(&node, &attempt, json!([]));
        node.ok("PUT", &format!("reservations/{reservation}"), json!({"bytes": bytes.len()}));
        let kind = if round % 2 == 0 { "file" } else { "directory" };
        let name = if kind == "file" { "out" } else { "out/member" };
        std::fs::create_dir_all(path.join(name).parent().unwrap()).unwrap();
        std::fs::write(path.join(name), &bytes).unwrap();
        let writer = std::fs::OpenOptions::new().write(true).open(path.join(name)).unwrap();
        let taken = format!("{file_id}@a{}", name.strip_prefix("out").unwrap());
        let shards = node.root.join("store/data");
        let outputs = json!([output(&file_id, "out", kind, false)]);
        let answer = std::thread::scope(|scope| {
            let writing = scope.spawn(|| {
                let deadline = std::time::Instant::now() + DEADLINE;
                let begun =
                    || std::fs::read_dir(&shards).unwrap().flatten().any(|shard| shard.path().join(&taken).symlink_metadata().is_ok());
                while !begun() {
                    assert!(std::time::Instant::now() < deadline, "it is never taken");
                }
                std::os::unix::fs::FileExt::write_all_at(&writer, b"later", 0).unwrap();
            });
            let answer =
                node.send("POST", &format!("attempts/{attempt}/stage-out"), &stage_out(&path, &reservation, outputs), &node.headers());
            writing.join().unwrap();
            answer
        });
        if answer.status == 200 {
            let call = json!({"sandbox_dir": sandbox(root.path(), "reads"), "inputs": [{"file_id": file_id, "generation": "a", "path": "x", "access": "link"}]});
            node.refused("POST", &format!("attempts/reads{round}/stage-in"), call, 500, "checksum_mismatch");
        } else {
            assert!(answer.json()["error"]["message"].as_str().unwrap().contains("changed while it was taken"), "{}", answer.json());
            refused += 1;
        }
    }
    assert!(refused > 0, "it was never written to while it was taken");
}

#[test]
fn only_the_sandbox_of_the_attempt_is_removed_and_nothing_through_a_link() {
    let root = tempfile::tempdir().unwrap();
    let node = Host::start(root.path(), 1000);
    let (path, _) = staged_in(&node, "a1", json!([]));
    std::fs::create_dir(root.path().join("precious")).unwrap();
    std::fs::write(root.path().join("precious/file"), b"precious").unwrap();
    for attempt in ["a1", "a9"] {
        let body = json!({"sandbox_dir": root.path().join("precious"), "remove_sandbox": true});
        node.refused("POST", &format!("attempts/{attempt}/release"), body, 400, "bad_request");
    }
    symlink(root.path().join("precious"), path.join("way_out")).unwrap();
    std::fs::create_dir_all(path.join("locked/inner")).unwrap();
    std::fs::set_permissions(path.join("locked"), std::fs::Permissions::from_mode(0o000)).unwrap();
    release(&node, "a1");
    assert!(!path.exists());
    assert!(root.path().join("precious/file").exists());
}

/// The bytes of an output are in the sandbox or in the log, whenever the node is killed.
#[test]
fn a_kill_during_stage_out_loses_no_output() {
    let root = tempfile::tempdir().unwrap();
    for round in 0..6u64 {
        let node = Host::start(root.path(), 1 << 30);
        let attempt = format!("a{round}");
        let path = sandbox(root.path(), &attempt);
        node.ok("POST", &format!("attempts/{attempt}/stage-in"), json!({"sandbox_dir": path, "inputs": []}));
        node.ok("PUT", &format!("reservations/{attempt}"), json!({"bytes": 64 << 20}));
        let names: Vec<String> = (0..8).map(|n| format!("out{n}")).collect();
        for name in &names {
            std::fs::write(path.join(name), noise(round as u8, 4 << 20)).unwrap();
        }
        let outputs: Vec<Value> = names.iter().map(|name| output(&format!("{attempt}-{name}"), name, "file", false)).collect();
        let request = stage_out(&path, &attempt, json!(outputs));
        let headers = node.headers();
        let mut stream = std::os::unix::net::UnixStream::connect(root.path().join("sock")).unwrap();
        std::thread::scope(|scope| {
            let calling = scope.spawn(|| {
                let body = serde_json::to_vec(&request).unwrap();
                let mut head =
                    format!("POST /v1/attempts/{attempt}/stage-out HTTP/1.1\r\nHost: node\r\nContent-Length: {}\r\n", body.len());
                headers.iter().for_each(|(name, value)| head.push_str(&format!("{name}: {value}\r\n")));
                // Whether it is heard or answered before the kill is what the rounds differ in.
                let _ = std::io::Write::write_all(&mut stream, format!("{head}\r\n").as_bytes());
                let _ = std::io::Write::write_all(&mut stream, &body);
                let _ = std::io::Read::read(&mut stream, &mut [0; 1]);
            });
            std::thread::sleep(std::time::Duration::from_millis(round * 15));
            node.kill();
            calling.join().unwrap();
        });
        let node = Host::start(root.path(), 1 << 30);
        node.ok("PUT", &format!("reservations/{attempt}"), json!({"bytes": 64 << 20}));
        node.ok("POST", &format!("attempts/{attempt}/stage-out"), request.clone());
        for name in &names {
            assert!(node.content(&format!("{attempt}-{name}"), "a") == noise(round as u8, 4 << 20), "round {round}: {name}");
        }
        assert!(node.terminate().success());
    }
}

/// The file of `f1 t1`, with one bit turned, in place.
fn flip(node: &Host) {
    use std::os::unix::fs::FileExt;
    let found = std::fs::read_dir(node.root.join("store/data"))
        .unwrap()
        .flatten()
        .map(|shard| shard.path().join("f1@t1"))
        .find(|path| path.exists());
    let path = found.expect("f1 t1 is in a shard directory");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let file = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 5).unwrap();
    file.write_all_at(&[byte[0] ^ 1], 5).unwrap();
}

#[test]
fn what_changed_on_the_disk_is_found_before_a_job_reads_it() {
    for size in [100, 1 << 20] {
        for restarts in [false, true] {
            let root = tempfile::tempdir().unwrap();
            source(&root.path().join("lab"), "one", &noise(1, size));
            let mut node = Host::start_with(root.path(), 1 << 22, &IN_FILES);
            node.put_file_origin(&root.path().join("lab"));
            node.fetched("t1", "f1", "one");
            staged_in(&node, "a0", json!([input("f1", "x", "link")]));
            release(&node, "a0");
            if restarts {
                node.kill();
                flip(&Host::start_with(root.path(), 1 << 22, &IN_FILES));
                node = Host::start_with(root.path(), 1 << 22, &IN_FILES);
            } else {
                flip(&node);
            }
            let call = json!({"sandbox_dir": sandbox(root.path(), "a1"), "inputs": [input("f1", "x", "link")]});
            node.refused("POST", "attempts/a1/stage-in", call, 500, "checksum_mismatch");
            assert!(!sandbox(root.path(), "a1").exists());
            let told = node.event("the damage is told", |event| event["kind"] == "replica_corrupt");
            assert_eq!((told["file_id"].as_str(), told["generation"].as_str()), (Some("f1"), Some("t1")), "{size} {restarts}");
            assert_eq!(node.ok("GET", "replicas/f1/t1", Value::Null)["state"], "quarantined");
            node.ok("DELETE", "replicas/f1/t1", Value::Null);
        }
    }
}

#[test]
fn many_outputs_that_become_files_are_synced_together_and_stay_with_the_job_where_that_fails() {
    let root = tempfile::tempdir().unwrap();
    let Some(faults) = Faults::prepare(root.path()) else { return };
    let node = Host::start_in(root.path(), 100 << 20, &[], &faults.environment());
    let (path, _) = staged_in(&node, "a1", json!([]));
    node.ok("PUT", "reservations/r1", json!({"bytes": 50 << 20}));
    let names: Vec<String> = (0..20).map(|n| format!("o{n}")).collect();
    names.iter().enumerate().for_each(|(n, name)| std::fs::write(path.join(name), noise(n as u8, 100_000)).unwrap());
    let outputs: Vec<Value> = names.iter().map(|name| output(name, name, "file", false)).collect();
    faults.fail_syncs_of_the_file_system();
    node.refused("POST", "attempts/a1/stage-out", stage_out(&path, "r1", json!(outputs)), 503, "io_error");
    node.refused("GET", "replicas/o3/a", Value::Null, 404, "replica_unknown");
    assert!(names.iter().enumerate().all(|(n, name)| std::fs::read(path.join(name)).unwrap() == noise(n as u8, 100_000)));
    assert_eq!(node.space(), (0, 50 << 20));
    faults.mend();
    node.ok("POST", "attempts/a1/stage-out", stage_out(&path, "r1", json!(outputs)));
    assert!(names.iter().enumerate().all(|(n, name)| node.content(name, "a") == noise(n as u8, 100_000)));
}
