//! Copies between real nodes: who is believed, what a peer that lies can do, how a copy goes on.

mod cluster;
mod host;

use cluster::*;
use host::*;
use serde_json::{json, Value};

#[test]
fn another_network_than_loopback_has_to_be_asked_for() {
    let root = tempfile::tempdir().unwrap();
    let refused = command(root.path(), 1000, &["--tcp", "0.0.0.0:0"]).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("not encrypted") && said.contains("--trust-network"), "{said}");
    let node = Host::start_with(root.path(), 1000, &["--tcp", "0.0.0.0:0", "--trust-network"]);
    let rendezvous: Value = serde_json::from_slice(&std::fs::read(root.path().join("store/rendezvous.json")).unwrap()).unwrap();
    assert!(rendezvous["tcp"].as_str().unwrap().starts_with("0.0.0.0:"));
    drop(node);
}

#[test]
fn a_peer_is_believed_only_under_its_own_name_and_its_token_is_never_shown() {
    let root = tempfile::tempdir().unwrap();
    let nodes = cluster(root.path(), &["a", "b"], 1 << 30);
    let secret = "correct-horse-battery-staple";
    for body in [
        json!({"address": "b:1", "token": 7, "tokens": secret}),
        json!({"address": "nowhere", "token": secret}),
        json!({"address": "/x", "token": format!("{secret}\r\nX: y")}),
    ] {
        let error = nodes[1].refused("PUT", "peers/c", body, 400, "bad_request");
        assert!(!error.to_string().contains(secret), "{error}");
    }
    nodes[1].refused("PUT", "transfers/t1", copy("f1", "g1", &["c"], 1, &hash(b"1")), 400, "peer_unknown");
    placed(&nodes[0], "f1", b"content");
    tell(&nodes[1], "c", &nodes[0].root.join("sock"), &nodes[0].token);
    nodes[1].ok("PUT", "transfers/t2", copy("f1", "g1", &["c"], 7, &hash(b"content")));
    assert_eq!(nodes[1].ended("t2")["error"]["code"], "peer_unknown");
    tell(&nodes[1], "a", &nodes[0].root.join("sock"), secret);
    nodes[1].ok("PUT", "transfers/t3", copy("f1", "g1", &["a"], 7, &hash(b"content")));
    assert_eq!(nodes[1].ended("t3")["error"]["code"], "token_wrong");
    let log = std::fs::read_to_string(nodes[1].root.join("log")).unwrap();
    assert!(!log.contains(secret) && !log.contains(&nodes[0].token), "a token is in the log");
}

#[test]
fn a_copied_file_is_the_file_at_its_peer() {
    let root = tempfile::tempdir().unwrap();
    let nodes = cluster(root.path(), &["a", "b"], 1 << 30);
    for (file_id, bytes) in [("f0", Vec::new()), ("f1", b"x".to_vec()), ("f2", noise(1, 21 * MIB + 7))] {
        let there = placed_as(&nodes[0], file_id, &bytes);
        nodes[1].ok("PUT", &format!("transfers/{file_id}"), copy(file_id, "g1", &["a"], bytes.len(), &hash(&bytes)));
        let event = nodes[1].ended(file_id);
        assert_eq!((event["kind"].as_str(), event["transfer_kind"].as_str()), (Some("transfer_done"), Some("copy")), "{event}");
        assert_eq!((event["bytes_moved"].as_u64(), &event["token"]), (Some(bytes.len() as u64), &there["token"]));
        assert!(nodes[1].content(file_id, "g1") == bytes);
    }
    assert_eq!(nodes[0].space(), nodes[1].space());
}

/// As `placed`, of several files under generations of their own.
fn placed_as(node: &Host, file_id: &str, bytes: &[u8]) -> Value {
    let lab = node.root.join("lab");
    source(&lab, file_id, bytes);
    node.put_file_origin(&lab);
    let entry = node.stat(file_id);
    let expected = json!({"size_bytes": entry["size_bytes"], "token": entry["token"], "blake3": null, "sha256": null});
    node.ok("PUT", &format!("transfers/at-{file_id}"), fetch(file_id, "g0", file_id, expected));
    node.ended(&format!("at-{file_id}"))
}

/// A directory replica `d1 g0` at `node`, with 42 members: its size and BLAKE3, and the content of its member `large`.
fn placed_directory(root: &std::path::Path, node: &Host) -> (Value, Vec<u8>) {
    let sandbox = root.join("job");
    node.ok("PUT", "reservations/r", json!({"bytes": 40 * MIB}));
    node.ok("POST", "attempts/a1/stage-in", json!({"sandbox_dir": sandbox, "inputs": []}));
    let large = noise(3, 9 * MIB);
    for n in 0..40 {
        source(&sandbox, &format!("out/sub {}/ä{n}", n % 3), format!("member {n}").as_bytes());
    }
    source(&sandbox, "out/large", &large);
    source(&sandbox, "out/nothing", b"");
    std::fs::create_dir_all(sandbox.join("out/empty/below")).unwrap();
    let outputs = json!([{"file_id": "d1", "generation": "g0", "path": "out", "kind": "directory", "optional": false}]);
    (node.ok("POST", "attempts/a1/stage-out", stage_out(&sandbox, "r", outputs))["outputs"][0].clone(), large)
}

#[test]
fn a_copied_directory_is_the_directory_at_its_peer() {
    let root = tempfile::tempdir().unwrap();
    let nodes = cluster(root.path(), &["a", "b"], 1 << 30);
    let (there, large) = placed_directory(root.path(), &nodes[0]);
    let size_bytes = there["size_bytes"].as_u64().unwrap() as usize;
    let blake3 = there["blake3"].as_str().unwrap();
    nodes[1].ok("PUT", "transfers/t1", copy("d1", "g1", &["a"], size_bytes, blake3));
    let event = nodes[1].ended("t1");
    assert_eq!((event["kind"].as_str(), event["blake3"].as_str()), (Some("transfer_done"), Some(blake3)), "{event}");
    let here = nodes[1].ok("GET", "replicas/d1/g1", Value::Null);
    assert_eq!((&here["members"], &here["kind"], &here["crc64nvme"]), (&json!(42), &json!("directory"), &there["crc64nvme"]));
    assert_eq!(nodes[1].ok("POST", "replicas/d1/g1/verify", Value::Null)["matches"], true);
    let (reply, again) = ("replicas/d1/g1/content?member=large", nodes[1].headers());
    assert!(nodes[1].send("GET", reply, &Value::Null, &again).body == large);
    nodes[1].ok("PUT", "transfers/t2", copy("d1", "g2", &["a"], size_bytes, &hash(b"another manifest")));
    assert_eq!(nodes[1].ended("t2")["error"]["code"], "checksum_mismatch");
    assert_eq!(nodes[1].space(), (size_bytes as u64, 0));
    assert_eq!(std::fs::read_dir(nodes[1].root.join("store/partial")).unwrap().count(), 0);
}

#[test]
fn a_member_that_a_peer_lies_about_is_not_taken() {
    let root = tempfile::tempdir().unwrap();
    let nodes = cluster(root.path(), &["a", "b"], 1 << 30);
    let (there, _) = placed_directory(root.path(), &nodes[0]);
    let size_bytes = there["size_bytes"].as_u64().unwrap() as usize;
    let request = copy("d1", "g1", &["a"], size_bytes, there["blake3"].as_str().unwrap());
    let liar = Liar::before(&nodes[0], Lie::FlipInMemory, 1);
    tell(&nodes[1], "a", &liar.socket, &nodes[0].token);
    nodes[1].ok("PUT", "transfers/t1", request.clone());
    let event = nodes[1].ended("t1");
    assert_eq!(
        (event["error"]["code"].as_str(), event["error"]["class"].as_str()),
        (Some("checksum_mismatch"), Some("corrupt")),
        "{event}"
    );
    assert_eq!(nodes[1].space(), (0, 0));
    assert_eq!(std::fs::read_dir(nodes[1].root.join("store/partial")).unwrap().count(), 0);
    nodes[1].ok("PUT", "transfers/t2", request);
    assert_eq!(nodes[1].ended("t2")["kind"], "transfer_done");
    assert_eq!(nodes[1].ok("POST", "replicas/d1/g1/verify", Value::Null)["matches"], true);
}

fn lied_to(lie: Lie, times: usize) -> (Value, bool, Vec<u8>) {
    let root = tempfile::tempdir().unwrap();
    let nodes = cluster(root.path(), &["a", "b"], 1 << 30);
    let bytes = noise(4, 19 * MIB + 5);
    placed(&nodes[0], "f1", &bytes);
    let liar = Liar::before(&nodes[0], lie, times);
    tell(&nodes[1], "a", &liar.socket, &nodes[0].token);
    nodes[1].ok("PUT", "transfers/t1", copy("f1", "g1", &["a"], bytes.len(), &hash(&bytes)));
    let event = nodes[1].ended("t1");
    assert!(liar.lies.load(std::sync::atomic::Ordering::Relaxed) > 0, "{lie:?} was never told");
    let here = nodes[1].call("GET", "replicas/f1/g1", Value::Null).0 == 200;
    let content = if here { nodes[1].content("f1", "g1") } else { Vec::new() };
    let right = content == bytes;
    assert!(here == right, "{lie:?}: a wrong content was committed");
    if !here {
        assert_eq!(nodes[1].space(), (0, 0));
    }
    (event, right, bytes)
}

#[test]
fn a_lie_told_once_on_the_way_costs_a_block_only() {
    for lie in [Lie::FlipOnTheWay, Lie::CutShort] {
        let (event, right, bytes) = lied_to(lie, 1);
        assert!(right && event["bytes_moved"] == bytes.len() as u64, "{lie:?}: {event}");
    }
}

#[test]
fn a_peer_that_lies_is_told_and_nothing_of_it_is_kept() {
    let cases = [
        (Lie::FlipOnTheWay, "corrupt", "checksum_mismatch", "does not have its checksum"),
        (Lie::FlipInMemory, "corrupt", "checksum_mismatch", "BLAKE3 is not the expected one"),
        (Lie::CutShort, "transient", "connection_lost", "the connection broke at byte"),
        (Lie::SendMore, "corrupt", "peer_misbehaves", "was not asked for"),
        (Lie::AnotherSize, "corrupt", "checksum_mismatch", "holds another content"),
        (Lie::AnotherHash, "corrupt", "checksum_mismatch", "holds another content"),
        (Lie::Stall, "transient", "timeout", "no byte of f1 moved"),
    ];
    for (lie, class, code, words) in cases {
        let (event, right, _) = lied_to(lie, usize::MAX);
        let error = &event["error"];
        assert!(!right && error["class"] == class && error["code"] == code, "{lie:?}: {event}");
        assert!(error["message"].as_str().unwrap().contains(words), "{lie:?}: {event}");
    }
}

#[test]
fn a_copy_goes_on_from_another_source_whatever_the_first_one_did() {
    for lie in [Lie::FlipOnTheWay, Lie::FlipInMemory, Lie::CutShort, Lie::SendMore, Lie::AnotherSize, Lie::Stall] {
        let root = tempfile::tempdir().unwrap();
        let nodes = cluster(root.path(), &["a", "b", "c"], 1 << 30);
        let bytes = noise(5, 19 * MIB);
        placed(&nodes[0], "f1", &bytes);
        placed(&nodes[2], "f1", &bytes);
        let liar = Liar::before(&nodes[0], lie, usize::MAX);
        tell(&nodes[1], "a", &liar.socket, &nodes[0].token);
        nodes[1].ok("PUT", "transfers/t1", copy("f1", "g1", &["a", "c"], bytes.len(), &hash(&bytes)));
        let event = nodes[1].ended("t1");
        assert_eq!(event["kind"], "transfer_done", "{lie:?}: {event}");
        assert!(nodes[1].content("f1", "g1") == bytes);
        assert_eq!(nodes[1].ok("POST", "replicas/f1/g1/verify", Value::Null)["matches"], true);
    }
}

#[test]
fn a_source_whose_disk_is_wrong_quarantines_what_it_served() {
    use std::os::unix::fs::{FileExt, PermissionsExt};
    let root = tempfile::tempdir().unwrap();
    let nodes = cluster(root.path(), &["a", "b", "c"], 1 << 30);
    let bytes = noise(8, 9 * MIB);
    placed(&nodes[0], "f1", &bytes);
    placed(&nodes[2], "f1", &bytes);
    let shards = std::fs::read_dir(nodes[0].root.join("store/data")).unwrap();
    let path = shards.map(|shard| shard.unwrap().path().join("f1@g0")).find(|path| path.exists()).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().write_all_at(b"rot", 5 * MIB as u64).unwrap();
    nodes[1].ok("PUT", "transfers/t1", copy("f1", "g1", &["a", "c"], bytes.len(), &hash(&bytes)));
    assert_eq!(nodes[1].ended("t1")["kind"], "transfer_done");
    assert!(nodes[1].content("f1", "g1") == bytes);
    nodes[0].event("it tells of its damage", |event| event["kind"] == "replica_corrupt" && event["file_id"] == "f1");
    assert_eq!(nodes[0].ok("GET", "replicas/f1/g0", Value::Null)["state"], "quarantined");
}

/// Its first range is poisoned in a way that only the hash of the whole shows, then its source is gone.
#[test]
fn a_poisoned_beginning_does_not_spoil_an_honest_source() {
    let root = tempfile::tempdir().unwrap();
    let nodes = cluster(root.path(), &["a", "b", "c"], 1 << 30);
    let bytes = noise(6, 40 * MIB);
    placed(&nodes[0], "f1", &bytes);
    placed(&nodes[2], "f1", &bytes);
    let poison = Liar::before(&nodes[0], Lie::PoisonThenCut, usize::MAX);
    tell(&nodes[1], "a", &poison.socket, &nodes[0].token);
    nodes[1].ok("PUT", "transfers/t1", copy("f1", "g1", &["a", "c"], bytes.len(), &hash(&bytes)));
    let event = nodes[1].ended("t1");
    assert_eq!(event["kind"], "transfer_done", "{event}");
    assert_eq!(event["bytes_moved"], bytes.len(), "the poisoned bytes were to be read anew");
    assert!(nodes[1].content("f1", "g1") == bytes);
}

#[test]
fn what_does_not_fit_is_refused_before_a_byte_moves_and_a_replica_is_not_copied_twice() {
    let root = tempfile::tempdir().unwrap();
    let nodes = cluster(root.path(), &["a", "b"], 1000);
    let bytes = noise(7, 600);
    placed(&nodes[0], "f1", &bytes);
    nodes[1].ok("PUT", "reservations/r", json!({"bytes": 500}));
    nodes[1].refused("PUT", "transfers/t1", copy("f1", "g1", &["a"], 600, &hash(&bytes)), 507, "no_space_node");
    nodes[1].ok("DELETE", "reservations/r", Value::Null);
    nodes[1].ok("PUT", "transfers/t2", copy("f1", "g1", &["a"], 600, &hash(&bytes)));
    assert_eq!(nodes[1].ended("t2")["bytes_moved"], 600);
    nodes[1].ok("PUT", "transfers/t3", copy("f1", "g1", &["a"], 600, &hash(&bytes)));
    assert_eq!(nodes[1].ended("t3")["bytes_moved"], 0);
    nodes[1].ok("PUT", "transfers/t4", copy("f1", "g1", &["a"], 600, &hash(b"another")));
    assert_eq!(nodes[1].ended("t4")["error"]["class"], "corrupt", "what is here is compared with what was asked for");
}
