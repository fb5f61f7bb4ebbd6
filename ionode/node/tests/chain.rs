//! Copies on other nodes made while a file arrives: what is acknowledged when, what a link carries, what a peer that fails changes.

mod cluster;
mod host;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

use cluster::*;
use host::*;
use serde_json::{json, Value};

const NAMES: [&str; 3] = ["a", "b", "c"];

fn chained(file_id: &str, generation: &str, size_bytes: usize, chain: &[&str], ack: &str) -> Value {
    let mut request = fetch(file_id, generation, file_id, json!({"size_bytes": size_bytes, "token": null, "blake3": null, "sha256": null}));
    request["replicas"] = json!({"chain": chain, "ack": ack});
    request
}

fn with_source(root: &Path, bytes: &[u8], bytes_per_s: Option<u64>) -> Vec<Host> {
    source(&root.join("lab"), "f1", bytes);
    let nodes = cluster(root, &NAMES, 1 << 30);
    match bytes_per_s {
        Some(rate) => nodes[0].put_slow_origin(&root.join("lab"), rate),
        None => nodes[0].put_file_origin(&root.join("lab")),
    }
    nodes
}

fn held(event: &Value) -> Vec<&str> {
    let replication = if event["held_by"].is_array() { event } else { &event["replication"] };
    replication["held_by"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect()
}

fn done_bytes(node: &Host) -> u64 {
    let transfers = node.ok("GET", "transfers", Value::Null);
    transfers["transfers"].as_array().unwrap().iter().map(|transfer| transfer["bytes_done"].as_u64().unwrap()).sum()
}

#[test]
fn sync_is_answered_when_every_node_of_the_chain_holds_it_and_all_receive_at_once() {
    let root = tempfile::tempdir().unwrap();
    let bytes = noise(1, 24 * MIB + 9);
    let nodes = with_source(root.path(), &bytes, Some(4 << 20));
    nodes[0].ok("PUT", "transfers/t1", chained("f1", "t1", bytes.len(), &["b", "c"], "sync"));
    // Not store and forward: the last node has bytes while the first has not all of them.
    until("the last node receives", || (done_bytes(&nodes[2]) > 0).then_some(()));
    assert!(done_bytes(&nodes[0]) < bytes.len() as u64, "the first node had it all before the last one had any");
    let event = nodes[0].ended("t1");
    assert_eq!((event["kind"].as_str(), held(&event)), (Some("transfer_done"), NAMES.to_vec()), "{event}");
    for node in &nodes {
        // At the instant of the answer, not some time later.
        assert_eq!(node.ok("GET", "replicas/f1/t1", Value::Null)["blake3"], hash(&bytes).as_str());
        assert_eq!(node.ok("POST", "replicas/f1/t1/verify", Value::Null)["matches"], true);
        assert!(node.content("f1", "t1") == bytes);
        assert_eq!(node.space(), (bytes.len() as u64, 0));
    }
    let relayed = nodes[1].ok("GET", "transfers", Value::Null)["transfers"][0].clone();
    assert_eq!((relayed["kind"].as_str(), relayed["origin_id"].as_str()), (Some("copy"), Some("a")));
}

/// They lie in the log of each node and have no file that could be followed.
#[test]
fn small_and_empty_files_go_through_a_chain_too() {
    let root = tempfile::tempdir().unwrap();
    let nodes = with_source(root.path(), b"x", None);
    for (n, length) in [0, 1000, 64 << 10].into_iter().enumerate() {
        let (file_id, bytes) = (format!("s{n}"), noise(n as u8, length));
        source(&root.path().join("lab"), &file_id, &bytes);
        let id = format!("t{n}");
        nodes[0].ok("PUT", &format!("transfers/{id}"), chained(&file_id, &id, length, &["b", "c"], "sync"));
        let event = nodes[0].ended(&id);
        assert_eq!((event["kind"].as_str(), held(&event)), (Some("transfer_done"), NAMES.to_vec()), "{event}");
        nodes.iter().for_each(|node| assert!(node.content(&file_id, &id) == bytes));
    }
    for node in &nodes {
        assert_eq!(std::fs::read_dir(node.root.join("store/partial")).unwrap().count(), 0);
        let files =
            std::fs::read_dir(node.root.join("store/data")).unwrap().map(|shard| std::fs::read_dir(shard.unwrap().path()).unwrap().count());
        assert_eq!(files.sum::<usize>(), 0, "a small replica has a file of its own");
    }
    nodes[2].ok("PUT", "capacity", json!({"capacity_bytes": 10}));
    source(&root.path().join("lab"), "s9", b"does not fit there");
    nodes[0].ok("PUT", "transfers/t9", chained("s9", "t9", 18, &["b", "c"], "sync"));
    assert_eq!(nodes[0].ended("t9")["error"]["code"], "no_space_node");
    nodes[0].refused("GET", "replicas/s9/t9", Value::Null, 404, "replica_unknown");
}

#[test]
fn async_is_answered_by_this_node_alone_and_its_end_is_an_event() {
    let root = tempfile::tempdir().unwrap();
    let bytes = noise(2, 3 * MIB);
    let nodes = with_source(root.path(), &bytes, None);
    nodes[0].ok("PUT", "transfers/t1", chained("f1", "t1", bytes.len(), &["b", "c"], "async"));
    let event = nodes[0].ended("t1");
    assert_eq!((event["kind"].as_str(), &event["replication"]), (Some("transfer_done"), &Value::Null), "{event}");
    let end = nodes[0].event("the chain ends", |event| event["kind"] == "replicated");
    assert_eq!((held(&end), end["missing"].as_array().unwrap().len(), end["file_id"].as_str()), (NAMES.to_vec(), 0, Some("f1")));
    assert!(nodes[2].content("f1", "t1") == bytes);
}

#[test]
fn local_promises_nothing_and_says_nothing_of_the_chain() {
    let root = tempfile::tempdir().unwrap();
    let bytes = noise(3, MIB);
    let mut nodes = with_source(root.path(), &bytes, None);
    nodes[0].ok("PUT", "transfers/t1", chained("f1", "t1", bytes.len(), &["b"], "local"));
    assert_eq!(nodes[0].ended("t1")["kind"], "transfer_done");
    until("the peer has it all the same", || (nodes[1].call("GET", "replicas/f1/t1", Value::Null).0 == 200).then_some(()));
    nodes.remove(1).kill();
    source(&root.path().join("lab"), "f2", &bytes);
    nodes[0].ok("PUT", "transfers/t2", chained("f2", "t2", bytes.len(), &["b"], "local"));
    assert_eq!(nodes[0].ended("t2")["kind"], "transfer_done", "a dead peer is no concern of a local acknowledgement");
    let events = nodes[0].ok("GET", "events?after=0", Value::Null);
    assert!(!events.to_string().contains("replicated"), "{events}");
}

#[test]
fn a_full_node_anywhere_in_the_chain_says_so_before_a_byte_moves() {
    let root = tempfile::tempdir().unwrap();
    let bytes = noise(4, 4 * MIB);
    let nodes = with_source(root.path(), &bytes, None);
    for full in [1, 2] {
        nodes[full].ok("PUT", "reservations/r", json!({"bytes": (1u64 << 30) - 1000}));
        let id = format!("t{full}");
        nodes[0].ok("PUT", &format!("transfers/{id}"), chained("f1", &id, bytes.len(), &["b", "c"], "sync"));
        let event = nodes[0].ended(&id);
        assert_eq!((event["kind"].as_str(), event["error"]["code"].as_str()), (Some("transfer_failed"), Some("no_space_node")), "{event}");
        assert!(event["error"]["message"].as_str().unwrap().contains(&format!("the node {}", NAMES[full])), "{event}");
        assert_eq!(nodes[0].space(), (0, 0));
        assert_eq!(nodes[0].telemetry(&id)["bytes_done"], 0);
        nodes[full].ok("DELETE", "reservations/r", Value::Null);
    }
    until("nothing stays reserved", || nodes.iter().all(|node| node.space() == (0, 0)).then_some(()));
    nodes[2].ok("PUT", "capacity", json!({"capacity_bytes": 1000}));
    nodes[0].ok("PUT", "transfers/t3", chained("f1", "t3", bytes.len(), &["b", "c"], "async"));
    assert_eq!(nodes[0].ended("t3")["kind"], "transfer_done", "an async chain is told of at its end");
    let end = nodes[0].event("the chain ends", |event| event["kind"] == "replicated");
    assert_eq!((held(&end)[0], end["missing"][0]["error"]["code"].as_str()), ("a", Some("no_space_node")), "{end}");
}

#[test]
fn a_chain_that_is_none_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let nodes = with_source(root.path(), b"x", None);
    for (chain, code) in
        [(vec!["a"], "bad_request"), (vec!["b", "b"], "bad_request"), (vec!["d"], "peer_unknown"), (vec!["../b"], "bad_request")]
    {
        nodes[0].refused("PUT", "transfers/t1", chained("f1", "t1", 1, &chain, "sync"), 400, code);
    }
}

#[test]
fn a_peer_that_dies_harms_no_local_copy_and_a_new_try_resumes() {
    let root = tempfile::tempdir().unwrap();
    let bytes = noise(5, 40 * MIB);
    // The checkpoint comes after three seconds, and the disk of a busy machine takes its time to sync what it names.
    let mut nodes = with_source(root.path(), &bytes, Some(4 << 20));
    nodes[0].ok("PUT", "transfers/t1", chained("f1", "g", bytes.len(), &["b", "c"], "sync"));
    let log = nodes[1].root.join("store/segments/0000000001.seg");
    until("the peer has a checkpoint", || String::from_utf8_lossy(&std::fs::read(&log).unwrap()).contains("prefix_blake3").then_some(()));
    nodes.remove(1).kill();
    let event = nodes[0].ended("t1");
    assert_eq!((event["kind"].as_str(), event["error"]["code"].as_str()), (Some("transfer_failed"), Some("replication_failed")), "{event}");
    assert_eq!((held(&event), event["error"]["class"].as_str()), (vec!["a"], Some("transient")));
    let missing: Vec<&Value> = event["replication"]["missing"].as_array().unwrap().iter().map(|missing| &missing["node_id"]).collect();
    assert_eq!(missing, ["b", "c"]);
    assert!(nodes[0].content("f1", "g") == bytes);
    let back = member(root.path(), "b", 1 << 30);
    let nodes = [nodes.remove(0), back, nodes.remove(0)];
    introduce(&nodes, &NAMES);
    nodes[0].ok("PUT", "transfers/t2", chained("f1", "g", bytes.len(), &["b", "c"], "sync"));
    let event = nodes[0].ended("t2");
    assert_eq!(
        (event["kind"].as_str(), event["bytes_moved"].as_u64(), held(&event)),
        (Some("transfer_done"), Some(0), NAMES.to_vec()),
        "{event}"
    );
    let moved = nodes[1].event("the copy ends", |event| event["kind"] == "transfer_done")["bytes_moved"].as_u64().unwrap();
    assert!(moved > 0 && moved <= (bytes.len() - 4 * MIB) as u64, "{moved} bytes were moved again");
    assert!(nodes[1].content("f1", "g") == bytes && nodes[2].content("f1", "g") == bytes);
}

#[test]
fn a_source_that_fails_fails_the_chain_and_leaves_nothing_reserved() {
    let root = tempfile::tempdir().unwrap();
    let bytes = noise(6, 30 * MIB);
    let nodes = with_source(root.path(), &bytes, Some(4 << 20));
    nodes[0].ok("PUT", "transfers/t1", chained("f1", "t1", bytes.len(), &["b", "c"], "sync"));
    let other = noise(7, 30 * MIB);
    until("the last node receives", || (done_bytes(&nodes[2]) > 0).then_some(()));
    // Changed while it is read.
    source(&root.path().join("lab"), "f1", &other);
    std::fs::File::options().write(true).open(root.path().join("lab/f1")).unwrap().set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    assert_eq!(nodes[0].ended("t1")["error"]["code"], "source_changed");
    until("nothing stays reserved", || nodes.iter().all(|node| node.space() == (0, 0)).then_some(()));
    for node in &nodes {
        node.refused("GET", "replicas/f1/t1", Value::Null, 404, "replica_unknown");
    }
}

/// A small file whose bytes take their time: all behind the first node wait for it with their space reserved.
fn held_in_a_chain(root: &Path) -> (Vec<Host>, Vec<u8>) {
    let bytes = noise(11, 60 << 10);
    let nodes = with_source(root, &bytes, Some(256));
    nodes[0].ok("PUT", "transfers/t0", chained("f1", "g", bytes.len(), &["b", "c"], "sync"));
    until("the last node holds its copy", || {
        let transfers = nodes[2].ok("GET", "transfers", Value::Null);
        transfers["transfers"].as_array().unwrap().iter().any(|transfer| transfer["state"] == "queued").then_some(())
    });
    (nodes, bytes)
}

#[test]
fn what_is_held_for_a_node_that_was_killed_is_in_the_way_of_no_new_try() {
    let root = tempfile::tempdir().unwrap();
    let (mut nodes, bytes) = held_in_a_chain(root.path());
    nodes.remove(0).kill();
    nodes.insert(0, member(root.path(), "a", 1 << 30));
    introduce(&nodes, &NAMES);
    nodes[0].put_file_origin(&root.path().join("lab"));
    let mut tries = 1..;
    let event = until("a new try is done", || {
        let id = format!("t{}", tries.next().unwrap());
        nodes[0].ok("PUT", &format!("transfers/{id}"), chained("f1", "g", bytes.len(), &["b", "c"], "sync"));
        Some(nodes[0].ended(&id)).filter(|event| event["kind"] == "transfer_done")
    });
    assert_eq!(held(&event), NAMES.to_vec(), "{event}");
    assert!(nodes.iter().all(|node| node.content("f1", "g") == bytes));
}

#[test]
fn a_node_that_stays_away_leaves_nothing_reserved_behind_it() {
    let root = tempfile::tempdir().unwrap();
    let (mut nodes, bytes) = held_in_a_chain(root.path());
    assert_eq!([nodes[1].space(), nodes[2].space()], [(0, bytes.len() as u64); 2]);
    nodes.remove(0).kill();
    until("nothing stays reserved", || nodes.iter().all(|node| node.space() == (0, 0)).then_some(()));
}

#[test]
fn outputs_of_a_job_go_to_the_chain_too() {
    let root = tempfile::tempdir().unwrap();
    let nodes = cluster(root.path(), &NAMES, 1 << 30);
    let sandbox = root.path().join("job");
    nodes[0].ok("PUT", "reservations/r", json!({"bytes": 40 * MIB}));
    nodes[0].ok("POST", "attempts/a1/stage-in", json!({"sandbox_dir": sandbox, "inputs": []}));
    let bytes = noise(8, 9 * MIB);
    source(&sandbox, "one", &bytes);
    source(&sandbox, "tree/deep/two", b"two");
    let outputs = json!([output("o1", "one", "file", false), output("o2", "tree", "directory", false)]);
    let mut request = stage_out(&sandbox, "r", outputs);
    request["replicas"] = json!({"chain": ["b", "c"], "ack": "sync"});
    let answer = nodes[0].ok("POST", "attempts/a1/stage-out", request);
    for replication in answer["replication"].as_array().unwrap() {
        assert_eq!(held(replication), NAMES, "{answer}");
    }
    for node in &nodes {
        assert!(node.content("o1", "a") == bytes);
        assert_eq!(node.ok("POST", "replicas/o2/a/verify", Value::Null)["matches"], true);
    }
}

#[derive(Default)]
struct Passed {
    bytes: AtomicU64,
    /// After each piece of at most 64 KiB.
    pause_ms: AtomicU64,
}

/// Passes bytes on, counts them, and may be slow.
fn counting_relay(to: &str) -> (String, Arc<Passed>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (to, passed) = (to.to_string(), Arc::new(Passed::default()));
    let counted = passed.clone();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (client, Ok(server)) = (client.unwrap(), TcpStream::connect(&to)) else { return };
            for (from, into) in [(client.try_clone().unwrap(), server.try_clone().unwrap()), (server, client)] {
                let counted = counted.clone();
                std::thread::spawn(move || pass_on(from, into, &counted));
            }
        }
    });
    (address, passed)
}

fn pass_on(mut from: TcpStream, mut into: TcpStream, passed: &Passed) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(read) = from.read(&mut buffer) {
        if read == 0 || into.write_all(&buffer[..read]).is_err() {
            break;
        }
        passed.bytes.fetch_add(read as u64, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(passed.pause_ms.load(Ordering::Relaxed)));
    }
    let _ = into.shutdown(std::net::Shutdown::Both);
}

fn tcp_of(node: &Host) -> String {
    let rendezvous: Value = serde_json::from_slice(&std::fs::read(node.root.join("store/rendezvous.json")).unwrap()).unwrap();
    rendezvous["tcp"].as_str().unwrap().to_string()
}

#[test]
fn a_byte_crosses_a_link_once_for_each_copy() {
    let root = tempfile::tempdir().unwrap();
    let bytes = noise(9, 64 * MIB);
    source(&root.path().join("lab"), "f1", &bytes);
    let nodes: Vec<Host> = NAMES.iter().map(|name| member_with(root.path(), name, 1 << 30, &["--tcp", "127.0.0.1:0"])).collect();
    let mut counts = Vec::new();
    for (n, name) in NAMES.iter().enumerate() {
        let (address, passed) = counting_relay(&tcp_of(&nodes[n]));
        counts.push(passed);
        for other in nodes.iter().filter(|other| other.root != nodes[n].root) {
            other.ok("PUT", &format!("peers/{name}"), json!({"address": address, "token": nodes[n].token}));
        }
    }
    nodes[0].put_file_origin(&root.path().join("lab"));
    nodes[0].ok("PUT", "transfers/t1", chained("f1", "t1", bytes.len(), &["b", "c"], "sync"));
    assert_eq!(held(&nodes[0].ended("t1")), NAMES);
    let crossed: u64 = counts.iter().map(|passed| passed.bytes.load(Ordering::Relaxed)).sum();
    let per_byte = crossed as f64 / bytes.len() as f64;
    println!("network bytes per byte for two more copies: {per_byte:.4}");
    assert!((2.0..=2.05).contains(&per_byte), "{per_byte}");
    // All of it came from the node before: none from the first to the last.
    assert!(counts[0].bytes.load(Ordering::Relaxed) < bytes.len() as u64 * 103 / 100);
}

fn resident_bytes(node: &Host) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", node.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

#[test]
fn a_slow_peer_costs_neither_memory_nor_the_local_copy() {
    let root = tempfile::tempdir().unwrap();
    let bytes = noise(10, 192 * MIB);
    source(&root.path().join("lab"), "f1", &bytes);
    let nodes: Vec<Host> = NAMES[..2].iter().map(|name| member_with(root.path(), name, 1 << 30, &["--tcp", "127.0.0.1:0"])).collect();
    let (slow, passed) = counting_relay(&tcp_of(&nodes[0]));
    // 1 MiB/s at most, by four connections.
    passed.pause_ms.store(250, Ordering::Relaxed);
    nodes[1].ok("PUT", "peers/a", json!({"address": slow, "token": nodes[0].token}));
    nodes[0].ok("PUT", "peers/b", json!({"address": tcp_of(&nodes[1]), "token": nodes[1].token}));
    nodes[0].put_file_origin(&root.path().join("lab"));
    let before = resident_bytes(&nodes[0]);
    nodes[0].ok("PUT", "transfers/t1", chained("f1", "t1", bytes.len(), &["b"], "async"));
    assert_eq!(nodes[0].ended("t1")["kind"], "transfer_done");
    let by_then = passed.bytes.load(Ordering::Relaxed);
    assert!(by_then < bytes.len() as u64 / 2, "the peer's pace held the local copy: it had {by_then} bytes by then");
    let mut most = resident_bytes(&nodes[0]);
    passed.pause_ms.store(4, Ordering::Relaxed);
    let end = until("the chain ends", || {
        most = most.max(resident_bytes(&nodes[0]));
        let events = nodes[0].ok("GET", "events?after=0", Value::Null);
        events["events"].as_array().unwrap().iter().find(|event| event["kind"] == "replicated").cloned()
    });
    assert_eq!(held(&end), ["a", "b"]);
    let grown = most.saturating_sub(before) >> 20;
    println!("the node grew by {grown} MiB while its peer read 192 MiB slowly");
    assert!(grown < 64, "the node grew by {grown} MiB");
    assert!(nodes[1].content("f1", "t1") == bytes);
}
