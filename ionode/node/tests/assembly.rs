//! A file that several nodes fetch in parts, made whole at one of them while the parts come: exact, once, whatever happens to a part.

mod cluster;
mod host;

use std::path::Path;

use cluster::*;
use host::*;
use serde_json::{json, Value};

const NAMES: [&str; 3] = ["a", "b", "c"];
/// Of each node's way to the origin, so that there is time to do something meanwhile.
const SLOW: u64 = 4 << 20;

fn expected(node: &Host, size_bytes: usize) -> Value {
    json!({"size_bytes": size_bytes, "token": node.stat("f1")["token"], "blake3": null, "sha256": null})
}

fn ask_part(node: &Host, index: usize, size_bytes: usize) {
    let mut request = fetch("f1", &format!("t1.{index}"), "f1", expected(node, size_bytes));
    request["stripe"] = json!({"index": index, "count": 3, "stripe_bytes": MIB});
    node.ok("PUT", &format!("transfers/t1.{index}"), request);
}

fn assembly(node: &Host, generation: &str, size_bytes: usize) -> Value {
    let mut request = fetch("f1", generation, "f1", expected(node, size_bytes));
    let part = |(index, name): (usize, &&str)| json!({"node_id": name, "generation": format!("t1.{index}")});
    let held_by: Vec<Value> = NAMES.iter().enumerate().map(part).collect();
    request["parts"] = json!({"stripe_bytes": MIB, "held_by": held_by});
    request
}

fn assemble(node: &Host, id: &str, size_bytes: usize) {
    node.ok("PUT", &format!("transfers/{id}"), assembly(node, id, size_bytes));
}

/// Three nodes that know one another and the origin, over which each gets so much.
fn nodes(root: &Path, bytes: &[u8], bytes_per_s: u64) -> Vec<Host> {
    source(&root.join("lab"), "f1", bytes);
    let nodes = cluster(root, &NAMES, 1 << 30);
    for node in &nodes {
        node.put_slow_origin(&root.join("lab"), bytes_per_s);
    }
    nodes
}

/// Nodes whose parts are complete.
fn parted(root: &Path, bytes: &[u8]) -> Vec<Host> {
    let nodes = nodes(root, bytes, 1 << 30);
    for (index, node) in nodes.iter().enumerate() {
        ask_part(node, index, bytes.len());
        assert_eq!(node.ended(&format!("t1.{index}"))["kind"], "transfer_done");
    }
    nodes
}

fn began(node: &Host, id: &str, past_bytes: usize) {
    until("it has begun", || (node.telemetry(id)["bytes_done"].as_u64()? > past_bytes as u64).then_some(()));
}

fn from_lab(node: &Host) -> u64 {
    let series = |line: &str| line.contains("direction=\"in\"") && !line.contains("origin=\"other\"");
    let token = format!("Bearer {}", node.token);
    let text = String::from_utf8(node.plain("/metrics", &[("Authorization", &token)]).body).unwrap();
    let lines = text.lines().filter(|line| line.contains("transferred_bytes_total{") && series(line));
    lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap() as u64).sum()
}

fn is_whole(node: &Host, generation: &str, bytes: &[u8]) {
    assert!(node.content("f1", generation) == bytes);
    assert_eq!(node.ok("POST", &format!("replicas/f1/{generation}/verify"), Value::Null)["matches"], true);
}

#[test]
fn a_file_is_made_of_its_parts_while_they_come_and_each_byte_crosses_the_line_once() {
    let root = tempfile::tempdir().unwrap();
    let bytes = noise(1, 20 * MIB + 12345);
    let nodes = nodes(root.path(), &bytes, SLOW);
    // Asked before its parts are: nobody orders calls to several nodes.
    assemble(&nodes[0], "t1", bytes.len());
    for (index, node) in nodes.iter().enumerate() {
        ask_part(node, index, bytes.len());
    }
    began(&nodes[0], "t1", 0);
    assert_eq!(nodes[0].call("GET", "replicas/f1/t1", Value::Null).0, 404, "it can be seen before it is whole");
    assert!(nodes.iter().zip(0..).all(|(node, n)| node.telemetry(&format!("t1.{n}"))["state"] == "running"));
    let event = nodes[0].ended("t1");
    assert_eq!((&event["kind"], &event["blake3"]), (&json!("transfer_done"), &json!(hash(&bytes))), "{event}");
    assert_eq!(event["size_bytes"].as_u64(), Some(bytes.len() as u64));
    is_whole(&nodes[0], "t1", &bytes);
    assert_eq!(nodes.iter().map(from_lab).sum::<u64>(), bytes.len() as u64);
}

#[test]
fn sizes_around_a_stripe_and_parts_that_are_there_already() {
    for (n, length) in [MIB, MIB + 1, 3 * MIB, 10 * MIB + 7].into_iter().enumerate() {
        let root = tempfile::tempdir().unwrap();
        let bytes = noise(n as u8, length);
        let nodes = parted(root.path(), &bytes);
        assemble(&nodes[1], "t1", length);
        assert_eq!(nodes[1].ended("t1")["blake3"], hash(&bytes).as_str());
        is_whole(&nodes[1], "t1", &bytes);
        // Again: nothing is left to be done.
        assemble(&nodes[1], "t1", length);
        assert_eq!(nodes.iter().map(from_lab).sum::<u64>(), length as u64);
    }
}

#[test]
fn the_part_of_a_node_that_is_killed_comes_from_the_origin_from_there_on() {
    let root = tempfile::tempdir().unwrap();
    let bytes = noise(2, 30 * MIB);
    let mut nodes = nodes(root.path(), &bytes, SLOW);
    for (index, node) in nodes.iter().enumerate() {
        ask_part(node, index, bytes.len());
    }
    assemble(&nodes[0], "t1", bytes.len());
    began(&nodes[0], "t1", 6 * MIB);
    nodes.remove(1).kill();
    let event = nodes[0].ended("t1");
    assert_eq!((&event["kind"], &event["blake3"]), (&json!("transfer_done"), &json!(hash(&bytes))), "{event}");
    is_whole(&nodes[0], "t1", &bytes);
    // Its own third, and less than the other's: what had come from there stays.
    let own = from_lab(&nodes[0]);
    assert!(own > 10 * MIB as u64 && own < 20 * MIB as u64, "{own}");
}

#[test]
fn a_stripe_that_rotted_at_its_node_comes_from_the_origin_and_the_part_is_quarantined() {
    let root = tempfile::tempdir().unwrap();
    let bytes = noise(3, 9 * MIB);
    let nodes = parted(root.path(), &bytes);
    for (index, node) in nodes.iter().enumerate() {
        rot(&data_file(&node.root, &format!("f1@t1.{index}")), MIB as u64 + 10);
    }
    let before = from_lab(&nodes[0]);
    assemble(&nodes[0], "t1", bytes.len());
    assert_eq!(nodes[0].ended("t1")["blake3"], hash(&bytes).as_str());
    is_whole(&nodes[0], "t1", &bytes);
    // The stripe behind a rotted one comes from there, too, where its part was quarantined before it was read.
    let again = from_lab(&nodes[0]) - before;
    assert!((3 * MIB as u64..=6 * MIB as u64).contains(&again), "{again}");
    for (index, node) in nodes.iter().enumerate() {
        let told = node.event("the part is quarantined", |event| event["kind"] == "replica_corrupt");
        assert_eq!(told["generation"], format!("t1.{index}"));
    }
}

/// Wrong bytes with right checksums on the way, of a part of which nothing is noted yet: only the notes of the end tell.
#[test]
fn wrong_bytes_of_a_part_that_still_comes_are_found_when_it_is_complete() {
    let root = tempfile::tempdir().unwrap();
    let bytes = noise(4, 9 * MIB);
    let nodes = nodes(root.path(), &bytes, SLOW);
    let liar = Liar::before(&nodes[1], Lie::FlipInMemory, 1);
    tell(&nodes[0], "b", &liar.socket, &nodes[1].token);
    assemble(&nodes[0], "t1", bytes.len());
    for (index, node) in nodes.iter().enumerate() {
        ask_part(node, index, bytes.len());
    }
    assert_eq!(nodes[0].ended("t1")["blake3"], hash(&bytes).as_str());
    assert_eq!(liar.lies.load(std::sync::atomic::Ordering::Relaxed), 1);
    is_whole(&nodes[0], "t1", &bytes);
    assert_eq!(from_lab(&nodes[0]), 4 * MIB as u64, "its own part, and the one stripe again");
}

#[test]
fn a_file_that_changes_at_its_origin_meanwhile_is_told_and_nothing_of_it_stays() {
    let root = tempfile::tempdir().unwrap();
    let bytes = noise(5, 20 * MIB);
    let nodes = nodes(root.path(), &bytes, SLOW);
    for (index, node) in nodes.iter().enumerate() {
        ask_part(node, index, bytes.len());
    }
    assemble(&nodes[0], "t1", bytes.len());
    began(&nodes[0], "t1", MIB);
    std::fs::write(root.path().join("lab/f1"), noise(6, 20 * MIB)).unwrap();
    let event = nodes[0].ended("t1");
    assert_eq!((&event["kind"], &event["error"]["code"]), (&json!("transfer_failed"), &json!("source_changed")), "{event}");
    assert_eq!(nodes[0].call("GET", "replicas/f1/t1", Value::Null).0, 404);
    until("nothing stays of the parts either", || nodes.iter().all(|node| node.space() == (0, 0)).then_some(()));
}

#[test]
fn a_part_of_another_content_is_not_taken() {
    let root = tempfile::tempdir().unwrap();
    let bytes = noise(7, 6 * MIB);
    let nodes = parted(root.path(), &noise(8, 6 * MIB));
    std::fs::write(root.path().join("lab/f1"), &bytes).unwrap();
    assemble(&nodes[0], "t1", bytes.len());
    assert_eq!(nodes[0].ended("t1")["blake3"], hash(&bytes).as_str());
    is_whole(&nodes[0], "t1", &bytes);
}

#[test]
fn what_was_assembled_is_gone_on_with_by_a_fetch_after_a_cancel() {
    let root = tempfile::tempdir().unwrap();
    let bytes = noise(9, 30 * MIB);
    let nodes = nodes(root.path(), &bytes, SLOW);
    for (index, node) in nodes.iter().enumerate() {
        ask_part(node, index, bytes.len());
    }
    assemble(&nodes[0], "t1", bytes.len());
    began(&nodes[0], "t1", 12 * MIB);
    nodes[0].ok("DELETE", "transfers/t1", Value::Null);
    assert_eq!(nodes[0].ended("t1")["kind"], "transfer_cancelled");
    nodes[0].ok("DELETE", "transfers/t1.0", Value::Null);
    nodes[0].ended("t1.0");
    nodes[0].put_file_origin(&root.path().join("lab"));
    nodes[0].ok("PUT", "transfers/t2", fetch("f1", "t2", "f1", expected(&nodes[0], bytes.len())));
    let event = nodes[0].ended("t2");
    assert_eq!(event["blake3"], hash(&bytes).as_str(), "{event}");
    assert!(event["bytes_moved"].as_u64().unwrap() < 24 * MIB as u64, "{event}");
    is_whole(&nodes[0], "t2", &bytes);
}

/// Where `word` begins in `bytes`.
fn places<'a>(bytes: &'a [u8], word: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
    bytes.windows(word.len()).enumerate().filter_map(move |(at, found)| (found == word).then_some(at))
}

#[test]
fn a_node_that_is_killed_while_it_assembles_goes_on_where_it_was() {
    let root = tempfile::tempdir().unwrap();
    let bytes = noise(10, 45 * MIB);
    let mut nodes = nodes(root.path(), &bytes, 2 << 20);
    for (index, node) in nodes.iter().enumerate() {
        ask_part(node, index, bytes.len());
    }
    assemble(&nodes[0], "t1", bytes.len());
    let log = nodes[0].root.join("store/segments/0000000001.seg");
    // Of the assembly, not of the part. The log holds bytes, not text, and is searched as bytes.
    let checkpoint =
        |log: &[u8]| places(log, b"prefix_blake3").any(|at| places(&log[at.saturating_sub(400)..at], b"#stripe=").next().is_none());
    until("a checkpoint", || checkpoint(&std::fs::read(&log).unwrap()).then_some(()));
    nodes.remove(0).kill();
    let node = member(root.path(), "a", 1 << 30);
    node.put_file_origin(&root.path().join("lab"));
    for (name, other) in ["b", "c"].iter().zip(&nodes) {
        tell(&node, name, &other.root.join("sock"), &other.token);
    }
    assert_eq!(node.call("GET", "replicas/f1/t1", Value::Null).0, 404);
    ask_part(&node, 0, bytes.len());
    assemble(&node, "t2", bytes.len());
    let event = node.ended("t2");
    assert_eq!(event["blake3"], hash(&bytes).as_str(), "{event}");
    assert!(event["bytes_moved"].as_u64().unwrap() < bytes.len() as u64, "{event}");
    is_whole(&node, "t2", &bytes);
}

#[test]
fn what_is_no_assembly_is_refused_before_anything_is_reserved() {
    let root = tempfile::tempdir().unwrap();
    let bytes = noise(11, 3 * MIB);
    let nodes = nodes(root.path(), &bytes, 1 << 30);
    let good = assembly(&nodes[0], "t1", bytes.len());
    let changed = |place: &str, value: Value| {
        let mut request = good.clone();
        *request.pointer_mut(place).unwrap() = value;
        request
    };
    let mut striped = good.clone();
    striped["stripe"] = json!({"index": 0, "count": 3, "stripe_bytes": MIB});
    for request in [
        striped,
        changed("/expected/token", Value::Null),
        changed("/parts/held_by", json!([])),
        changed("/parts/stripe_bytes", json!(64 * MIB)),
        changed("/parts/stripe_bytes", json!(3 * MIB)),
        changed("/parts/held_by/1/generation", json!("no id")),
    ] {
        nodes[0].refused("PUT", "transfers/t1", request, 400, "bad_request");
    }
    nodes[0].refused("PUT", "transfers/t1", changed("/parts/held_by/1/node_id", json!("nobody")), 400, "peer_unknown");
    assert_eq!(nodes[0].space(), (0, 0));
}

#[test]
fn what_waits_for_its_turn_is_busy_and_not_unknown() {
    let root = tempfile::tempdir().unwrap();
    let nodes = cluster(root.path(), &NAMES[..2], 1 << 30);
    let mut held = copy("f1", "g1", &["b"], 10, &hash(b"0123456789"));
    held["hold"] = json!(true);
    nodes[0].ok("PUT", "transfers/t1", held);
    nodes[0].refused("GET", "replicas/f1/g1/source", Value::Null, 409, "replica_busy");
    nodes[0].refused("GET", "replicas/f1/g2/source", Value::Null, 404, "replica_unknown");
}
