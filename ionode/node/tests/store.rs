//! The store over restarts, damage and a full disk; who may call; how the node ends.

mod host;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use host::*;
use serde_json::{json, Value};

fn log(root: &Path) -> PathBuf {
    root.join("store/segments/0000000001.seg")
}

/// Commits one output of `length` bytes as `o<n> a`.
fn commit(node: &Host, n: usize, length: usize) {
    let path = node.root.join(format!("sandboxes/s{n}"));
    node.ok("POST", &format!("attempts/s{n}/stage-in"), json!({"sandbox_dir": path, "inputs": []}));
    node.ok("PUT", &format!("reservations/s{n}"), json!({"bytes": length}));
    std::fs::write(path.join("out"), noise(n as u8, length)).unwrap();
    node.ok(
        "POST",
        &format!("attempts/s{n}/stage-out"),
        stage_out(&path, &format!("s{n}"), json!([output(&format!("o{n}"), "out", "file", false)])),
    );
    node.ok("POST", &format!("attempts/s{n}/release"), json!({"sandbox_dir": path, "remove_sandbox": true}));
    node.ok("DELETE", &format!("reservations/s{n}"), Value::Null);
}

/// What `serve` says when it cannot start, and its exit code.
fn refused_start(root: &Path) -> (Option<i32>, String) {
    // Should it start all the same, it ends by itself and the test fails.
    let output = command(root, 1000, &["--idle-exit-s", "5"]).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn replicas_survive_a_kill_and_unknown_files_do_not() {
    let root = tempfile::tempdir().unwrap();
    let node = Host::start_with(root.path(), 1000, &IN_FILES);
    commit(&node, 1, 300);
    node.ok("PUT", "reservations/left", json!({"bytes": 100}));
    node.kill();
    let shard = data_file(root.path(), "o1@a").parent().unwrap().to_owned();
    std::fs::write(shard.join("unknown@x"), b"not in the log").unwrap();
    std::fs::write(root.path().join("store/partial/unknown@x"), b"not in the log").unwrap();
    let node = Host::start_with(root.path(), 1000, &IN_FILES);
    assert!(node.content("o1", "a") == noise(1, 300));
    assert_eq!(node.space(), (300, 0), "reservations are the scheduler's to say again");
    assert!(!shard.join("unknown@x").exists() && !root.path().join("store/partial/unknown@x").exists());
}

#[test]
fn a_torn_last_frame_is_cut_and_the_log_goes_on() {
    let root = tempfile::tempdir().unwrap();
    let node = Host::start(root.path(), 1000);
    commit(&node, 1, 10);
    let whole = std::fs::metadata(log(root.path())).unwrap().len();
    commit(&node, 2, 10);
    node.kill();
    let bytes = std::fs::read(log(root.path())).unwrap();
    for length in [bytes.len() - 1, whole as usize + 17, whole as usize + 3] {
        std::fs::write(log(root.path()), &bytes[..length]).unwrap();
        // It is taken into the index only when it is whole on disk.
        std::fs::remove_dir_all(root.path().join("store/index")).unwrap();
        let node = Host::start(root.path(), 1000);
        assert!(node.content("o1", "a") == noise(1, 10));
        node.refused("GET", "replicas/o2/a", Value::Null, 404, "replica_unknown");
        commit(&node, 3, 10);
        node.ok("DELETE", "replicas/o3/a", Value::Null);
        node.event("the replica is deleted", |event| event["kind"] == "replica_deleted");
        node.kill();
    }
    let node = Host::start(root.path(), 1000);
    assert_eq!(node.space(), (10, 0));
}

#[test]
fn damage_in_the_middle_of_the_log_is_no_torn_end() {
    let root = tempfile::tempdir().unwrap();
    let node = Host::start(root.path(), 1000);
    commit(&node, 1, 10);
    let middle = std::fs::metadata(log(root.path())).unwrap().len() as usize - 20;
    commit(&node, 2, 10);
    node.kill();
    let mut bytes = std::fs::read(log(root.path())).unwrap();
    bytes[middle] ^= 1;
    std::fs::write(log(root.path()), &bytes).unwrap();
    std::fs::remove_dir_all(root.path().join("store/index")).unwrap();
    let (code, message) = refused_start(root.path());
    assert_eq!(code, Some(1));
    assert!(message.contains("0000000001.seg is damaged at byte"), "{message}");
    assert_eq!(std::fs::read(log(root.path())).unwrap(), bytes, "nothing is changed in a store that is not understood");
}

#[test]
fn missing_and_wrong_sized_replicas_are_quarantined_at_the_start() {
    let root = tempfile::tempdir().unwrap();
    let node = Host::start_with(root.path(), 1000, &IN_FILES);
    for n in 1..=3 {
        commit(&node, n, 10);
    }
    node.kill();
    std::fs::remove_file(data_file(root.path(), "o1@a")).unwrap();
    let short = data_file(root.path(), "o2@a");
    std::fs::set_permissions(&short, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::write(&short, b"short").unwrap();
    let node = Host::start_with(root.path(), 1000, &IN_FILES);
    for n in 1..=2 {
        node.event("the loss is told", |event| event["kind"] == "replica_corrupt" && event["file_id"] == format!("o{n}"));
        assert_eq!(node.ok("GET", &format!("replicas/o{n}/a"), Value::Null)["state"], "quarantined");
    }
    assert_eq!(node.ok("GET", "replicas/o3/a", Value::Null)["state"], "present");
    node.ok("DELETE", "replicas/o1/a", Value::Null);
    node.event("the replica is deleted", |event| event["kind"] == "replica_deleted");
    assert_eq!(node.space(), (20, 0));
}

#[test]
fn verify_finds_bit_rot_and_quarantines_it() {
    let root = tempfile::tempdir().unwrap();
    let node = Host::start_with(root.path(), 1000, &IN_FILES);
    commit(&node, 1, 10);
    assert_eq!(node.ok("POST", "replicas/o1/a/verify", Value::Null), json!({"matches": true}));
    let path = data_file(root.path(), "o1@a");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::write(&path, b"0123456789").unwrap();
    assert_eq!(node.ok("POST", "replicas/o1/a/verify", Value::Null), json!({"matches": false}));
    node.event("the damage is told", |event| event["kind"] == "replica_corrupt");
    let reply = node.send("GET", "replicas/o1/a/content", &Value::Null, &node.headers());
    assert_eq!((reply.status, reply.json()["error"]["code"].as_str()), (500, Some("checksum_mismatch")));
    node.kill();
    let node = Host::start_with(root.path(), 1000, &IN_FILES);
    assert_eq!(node.ok("GET", "replicas/o1/a", Value::Null)["state"], "quarantined", "it stays so over a restart");
}

#[test]
fn small_replicas_lie_in_the_log_and_are_given_and_verified_from_there() {
    let root = tempfile::tempdir().unwrap();
    let node = Host::start(root.path(), 1 << 20);
    for (n, length) in [(1, 0), (2, 10), (3, 64 << 10), (4, (64 << 10) + 1)] {
        commit(&node, n, length);
    }
    let files: Vec<String> = std::fs::read_dir(root.path().join("store/data"))
        .unwrap()
        .flat_map(|shard| std::fs::read_dir(shard.unwrap().path()).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()))
        .collect();
    assert_eq!(files, ["o4@a"], "only what is larger has a file");
    node.kill();
    std::fs::remove_dir_all(root.path().join("store/index")).unwrap();
    let node = Host::start(root.path(), 1 << 20);
    for (n, length) in [(1, 0), (2, 10), (3, 64 << 10), (4, (64 << 10) + 1)] {
        assert!(node.content(&format!("o{n}"), "a") == noise(n as u8, length), "o{n}");
        assert_eq!(node.ok("POST", &format!("replicas/o{n}/a/verify"), Value::Null), json!({"matches": true}));
    }
    let path = root.path().join("sandboxes/reader");
    let input = |n: usize, access: &str| json!({"file_id": format!("o{n}"), "generation": "a", "path": format!("in{n}"), "access": access});
    let staged = node.ok(
        "POST",
        "attempts/reader/stage-in",
        json!({"sandbox_dir": path, "inputs": [input(1, "link"), input(2, "link"), input(3, "copy")]}),
    );
    assert_eq!((&staged["mounts"], &staged["copied_bytes"]), (&json!([]), &json!((64 << 10) + 10)), "a small link is a copy");
    for (n, length) in [(1, 0), (2, 10), (3, 64 << 10)] {
        assert!(std::fs::read(path.join(format!("in{n}"))).unwrap() == noise(n as u8, length));
    }
    assert_eq!(node.ok("POST", "attempts/reader/release", json!({"remove_sandbox": true})), json!({"changed": []}));
    node.ok("DELETE", "replicas/o3/a", Value::Null);
    node.event("the replica is deleted", |event| event["kind"] == "replica_deleted");
    node.refused("GET", "replicas/o3/a", Value::Null, 404, "replica_unknown");
}

#[test]
fn rot_in_the_log_is_found_and_never_given_out() {
    let root = tempfile::tempdir().unwrap();
    let node = Host::start(root.path(), 10_000);
    commit(&node, 1, 5000);
    commit(&node, 2, 5000);
    let mut bytes = std::fs::read(log(root.path())).unwrap();
    let at = bytes.windows(5000).position(|window| window == noise(1, 5000)).expect("the content is in the log");
    bytes[at + 77] ^= 4;
    std::fs::write(log(root.path()), &bytes).unwrap();
    let path = root.path().join("sandboxes/reader");
    let request = json!({"sandbox_dir": path, "inputs": [{"file_id": "o1", "generation": "a", "path": "in", "access": "copy"}]});
    node.refused("POST", "attempts/reader/stage-in", request, 500, "checksum_mismatch");
    node.event("the damage is told", |event| event["kind"] == "replica_corrupt" && event["file_id"] == "o1");
    assert_eq!(node.ok("POST", "replicas/o2/a/verify", Value::Null), json!({"matches": true}));
    let reply = node.send("GET", "replicas/o1/a/content", &Value::Null, &node.headers());
    assert_eq!((reply.status, reply.json()["error"]["code"].as_str()), (500, Some("checksum_mismatch")));
    node.kill();
    let node = Host::start(root.path(), 10_000);
    assert_eq!(node.ok("GET", "replicas/o1/a", Value::Null)["state"], "quarantined", "it stays so over a restart");
}

/// A store as version 0.1.0 of 2026-11-20 left it when it was killed: two files (one of them quarantined), a tree, a deleted file, a fetch.
#[test]
fn a_store_of_format_1_is_upgraded_and_its_log_kept() {
    let root = tempfile::tempdir().unwrap();
    let store = root.path().join("store");
    let old = include_bytes!("format1/00000001.log");
    let file = |path: &str, bytes: &[u8]| {
        let path = store.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    };
    file("VERSION", b"1\n");
    file("log/00000001.log", old);
    file("data/16/one@g", b"one\n");
    file("data/7a/two@g", b"TWO\n");
    file("data/bf/tree@g/sub/m", b"member\n");
    file("data/bf/tree@g@m", include_bytes!("format1/tree@g@m"));
    let content: Vec<u8> = (0..20 << 20).map(|at: u32| at as u8).collect();
    file("partial/big@g", &content);
    // An upgrade that was interrupted.
    file("segments/0000000001.seg", b"half of something");
    for round in 0..2 {
        let mut node = Host::start(root.path(), 50_000_000);
        node.epoch = 6;
        node.refused("GET", "state", Value::Null, 409, "stale_epoch");
        node.epoch = 7;
        assert_eq!(node.ok("GET", "node", Value::Null)["store_format"], 2);
        assert!(node.content("one", "g") == b"one\n");
        let state = |id: &str| node.ok("GET", &format!("replicas/{id}/g"), Value::Null)["state"].clone();
        assert_eq!((state("two"), state("tree")), (json!("quarantined"), json!("present")), "round {round}");
        node.refused("GET", "replicas/three/g", Value::Null, 404, "replica_unknown");
        assert_eq!(node.space().0, 15);
        node.kill();
    }
    assert_eq!(std::fs::read(store.join("log.format1/00000001.log")).unwrap(), old);
    assert!(!store.join("log").exists());
    assert_eq!(std::fs::read(store.join("partial/big@g")).unwrap().len(), 12_582_912, "cut to its last checkpoint");
}

#[test]
fn a_store_has_one_node_and_a_format_that_is_understood() {
    let root = tempfile::tempdir().unwrap();
    let node = Host::start(root.path(), 1000);
    let (code, message) = refused_start(root.path());
    assert_eq!(code, Some(3));
    assert!(message.contains("another node serves"), "{message}");
    node.kill();
    std::fs::write(root.path().join("store/VERSION"), "3\n").unwrap();
    let (code, message) = refused_start(root.path());
    assert_eq!(code, Some(1));
    assert!(message.contains("format 3") && message.contains("format 2"), "{message}");
}

#[test]
fn a_store_is_told_by_its_id_and_a_copy_of_it_has_the_same() {
    let id = |root: &Path| {
        let node = Host::start(root, 1000);
        let id = node.ok("GET", "node", Value::Null)["store_id"].as_str().unwrap().to_string();
        node.kill();
        id
    };
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let first = id(one.path());
    assert_eq!((first.len(), &first), (32, &id(one.path())), "it stays over restarts");
    assert_ne!(first, id(other.path()));
    let store = other.path().join("store");
    std::fs::remove_dir_all(&store).unwrap();
    let copied = std::process::Command::new("cp").arg("-a").arg(one.path().join("store")).arg(&store).status().unwrap();
    assert!(copied.success());
    assert_eq!(id(other.path()), first);
}

#[test]
fn what_is_secret_is_the_owners_alone() {
    let root = tempfile::tempdir().unwrap();
    let node = Host::start(root.path(), 1000);
    let secret = "very-secret-key";
    let s3 = json!({"kind": "s3", "bucket": "b", "prefix": "", "region": "r", "endpoint": "http://127.0.0.1:9", "addressing": "path",
        "access_key_id": "id", "secret_access_key": secret, "session_token": null, "allow_http": true});
    let _ = node.call("PUT", "origins/s", s3.clone());
    let mut wrong = s3;
    wrong["secret_access_key"] = json!({"oops": secret});
    let answer = node.refused("PUT", "origins/s", wrong, 400, "bad_request");
    assert!(!answer.to_string().contains(secret));
    assert!(!std::fs::read_to_string(root.path().join("log")).unwrap().contains(secret));
    for name in ["store/token", "store/rendezvous.json", "sock"] {
        assert_eq!(std::fs::metadata(root.path().join(name)).unwrap().permissions().mode() & 0o777, 0o600, "{name}");
    }
    assert_eq!(std::fs::metadata(root.path().join("store")).unwrap().permissions().mode() & 0o777, 0o700);
}

fn with(node: &Host, name: &str, value: Option<&str>) -> Vec<(String, String)> {
    let mut headers: Vec<_> = node.headers().into_iter().filter(|(header, _)| header != name).collect();
    headers.extend(value.map(|value| (name.to_string(), value.to_string())));
    headers
}

#[test]
fn callers_need_the_token_the_version_the_incarnation_and_the_epoch() {
    let root = tempfile::tempdir().unwrap();
    let mut node = Host::start(root.path(), 1000);
    let refused = |node: &Host, path: &str, headers: &[(String, String)], status: u16, code: &str| {
        let reply = node.send("GET", path, &Value::Null, headers);
        assert_eq!((reply.status, reply.json()["error"]["code"].as_str()), (status, Some(code)));
    };
    for token in [None, Some("Bearer "), Some("Bearer wrong"), Some(node.token.as_str())] {
        refused(&node, "node", &with(&node, "Authorization", token), 403, "token_wrong");
    }
    refused(&node, "node", &with(&node, "X-Stager-Api", Some("2")), 400, "api_version");
    refused(&node, "state", &with(&node, "X-Stager-Incarnation", Some("of-yesterday")), 409, "stale_incarnation");
    refused(&node, "state", &with(&node, "X-Stager-Incarnation", None), 400, "bad_request");
    assert_eq!(node.send("GET", "node", &Value::Null, &with(&node, "X-Stager-Incarnation", None)).status, 200);
    node.epoch = 7;
    assert_eq!(node.ok("GET", "node", Value::Null)["epoch"], 7);
    node.epoch = 6;
    node.refused("PUT", "reservations/r", json!({"bytes": 1}), 409, "stale_epoch");
    node.kill();
    let mut node = Host::start(root.path(), 1000);
    node.epoch = 6;
    node.refused("GET", "state", Value::Null, 409, "stale_epoch");
    node.refused("GET", "node", Value::Null, 409, "stale_epoch");
    node.epoch = 7;
    node.ok("GET", "state", Value::Null);
    node.refused("GET", "nothing/here", Value::Null, 404, "not_found");
    node.refused("PUT", "capacity", json!({"capacity_bytes": 1, "surprise": 2}), 400, "bad_request");
}

#[test]
fn capacity_can_be_set_below_what_is_used() {
    let root = tempfile::tempdir().unwrap();
    let node = Host::start(root.path(), 1000);
    commit(&node, 1, 500);
    node.ok("PUT", "capacity", json!({"capacity_bytes": 100}));
    node.refused("PUT", "reservations/r", json!({"bytes": 1}), 507, "no_space_node");
    node.ok("PUT", "capacity", json!({"capacity_bytes": 501}));
    node.ok("PUT", "reservations/r", json!({"bytes": 1}));
}

#[test]
fn a_full_disk_is_called_a_full_disk() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("not root: a file system of its own cannot be mounted");
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let small = Mounted::tmpfs(&root.path().join("store"), "size=6m");
    source(&root.path().join("lab"), "big", &noise(1, 32 << 20));
    source(&root.path().join("lab"), "small", &noise(2, 1 << 20));
    let node = Host::start(root.path(), 1 << 30);
    node.put_file_origin(&root.path().join("lab"));
    let event = node.fetched("t1", "f1", "big");
    assert_eq!((event["error"]["code"].as_str(), event["error"]["class"].as_str()), (Some("no_space_node"), Some("refused")), "{event}");
    assert_eq!(node.fetched("t2", "f2", "small")["kind"], "transfer_done", "the space of the failed one is free again");
    let path = root.path().join("sandboxes/a1");
    node.ok("POST", "attempts/a1/stage-in", json!({"sandbox_dir": path, "inputs": []}));
    node.ok("PUT", "reservations/r", json!({"bytes": 32 << 20}));
    std::fs::write(path.join("out"), noise(3, 32 << 20)).unwrap();
    let request = stage_out(&path, "r", json!([output("o1", "out", "file", false)]));
    node.refused("POST", "attempts/a1/stage-out", request, 507, "no_space_node");
    assert!(path.join("out").exists(), "the output is still the job's");
    assert_eq!(node.space(), (1 << 20, 32 << 20));
    drop(node);
    drop(small);
}

struct Mounted(PathBuf);

impl Mounted {
    fn tmpfs(at: &Path, options: &str) -> Self {
        std::fs::create_dir_all(at).unwrap();
        nix::mount::mount(Some("tmpfs"), at, Some("tmpfs"), nix::mount::MsFlags::empty(), Some(options)).unwrap();
        Self(at.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = nix::mount::umount2(&self.0, nix::mount::MntFlags::MNT_DETACH);
    }
}

#[test]
fn the_node_ends_in_order() {
    let root = tempfile::tempdir().unwrap();
    let mut node = Host::start(root.path(), 1000);
    assert_eq!(node.call("POST", "shutdown", json!({"drain_s": 0})).0, 202);
    assert!(node.wait().success());
    assert!(!root.path().join("store/rendezvous.json").exists() && !root.path().join("sock").exists());
    assert!(command(root.path(), 1000, &["--idle-exit-s", "1"]).output().unwrap().status.success(), "nobody called");
}

#[test]
fn a_waiting_reader_gets_the_next_event_and_learns_of_lost_ones() {
    let root = tempfile::tempdir().unwrap();
    let node = Host::start(root.path(), 1000);
    commit(&node, 1, 1);
    std::thread::scope(|scope| {
        let headers = node.headers();
        let (socket, incarnation) = (root.path().to_owned(), node.incarnation.clone());
        let waiting = scope.spawn(move || {
            let text = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect::<String>();
            let mut stream = std::os::unix::net::UnixStream::connect(socket.join("sock")).unwrap();
            let head = format!("GET /v1/events?after=0&wait_s=25 HTTP/1.1\r\nHost: node\r\nConnection: close\r\n{text}\r\n");
            std::io::Write::write_all(&mut stream, head.as_bytes()).unwrap();
            let mut answer = String::new();
            std::io::Read::read_to_string(&mut stream, &mut answer).unwrap();
            assert!(answer.contains("replica_deleted") && answer.contains(&incarnation), "{answer}");
        });
        node.ok("DELETE", "replicas/o1/a", Value::Null);
        waiting.join().unwrap();
    });
    node.ok("POST", "events/ack", json!({"seq": 1}));
    assert_eq!(node.ok("GET", "events?after=0", Value::Null)["gap"], true);
    let after = node.ok("GET", "events?after=1", Value::Null);
    assert_eq!((&after["gap"], &after["events"], &after["next_seq"]), (&json!(false), &json!([]), &json!(2)));
}

#[test]
fn loopback_only() {
    let root = tempfile::tempdir().unwrap();
    let output = command(root.path(), 1000, &["--tcp", "0.0.0.0:0"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no loopback address"));
    let node = Host::start_with(root.path(), 1000, &["--tcp", "127.0.0.1:0"]);
    let rendezvous: Value = serde_json::from_str(&std::fs::read_to_string(root.path().join("store/rendezvous.json")).unwrap()).unwrap();
    let mut stream = std::net::TcpStream::connect(rendezvous["tcp"].as_str().unwrap()).unwrap();
    std::io::Write::write_all(&mut stream, b"GET /v1/node HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    std::io::Read::read_to_string(&mut stream, &mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    drop(node);
}
