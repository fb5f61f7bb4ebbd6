//! Packs that go on through a chain of real nodes: what is acknowledged when, and what one node that fails changes.

mod cluster;
mod host;
mod packing;

use std::path::Path;
use std::process::Command;

use cluster::*;
use host::*;
use packing::*;
use serde_json::{json, Value};
use stager_node::pack_format::{Answered, Ask};
use stager_node::wire::NotHeld;

const NAMES: [&str; 3] = ["a", "b", "c"];
const CAPACITY_BYTES: u64 = 1 << 30;

fn packs(node: &Host) -> f64 {
    node.metric("stager_node_http_requests_total{method=\"POST\",route=\"/v1/packs\",status=\"200\"}").unwrap_or(0.0)
}

fn other_calls(node: &Host) -> f64 {
    let of = |method: &str, route: &str, status: u16| {
        node.metric(&format!("stager_node_http_requests_total{{method=\"{method}\",route=\"{route}\",status=\"{status}\"}}")).unwrap_or(0.0)
    };
    of("PUT", "/v1/transfers/*", 202) + of("GET", "/v1/transfers/*", 200) + of("GET", "/v1/replicas/*/*/content", 200)
}

fn many(count: usize) -> Vec<Ask> {
    (0..count).map(|n| put(&format!("f{n}"), &noise((n % 251) as u8, n % 3000))).collect()
}

fn missing(answer: &Answer) -> &[NotHeld] {
    match answer {
        Ok(Answered::Put { missing, .. }) => missing,
        other => panic!("{other:?}"),
    }
}

fn names(missing: &[NotHeld]) -> Vec<(&str, &str)> {
    missing.iter().map(|missing| (missing.node_id.as_str(), missing.error.code.as_str())).collect()
}

fn assert_held(node: &Host, asks: &[Ask]) {
    let gets: Vec<Ask> = asks.iter().map(|ask| Ask::Get(ask.key().clone())).collect();
    for (answer, ask) in asked(node, &gets).iter().zip(asks) {
        let (Ask::Put { content, executable, .. }, Ok(Answered::Got(about, bytes))) = (ask, answer) else {
            panic!("{}: {answer:?}", ask.key())
        };
        assert!(bytes == content && about.executable == *executable, "{}", ask.key());
    }
}

#[test]
fn sync_is_answered_when_every_node_has_it_on_disk_and_each_got_one_pack() {
    let root = tempfile::tempdir().unwrap();
    let mut nodes = cluster(root.path(), &NAMES, CAPACITY_BYTES);
    let asks = many(500);
    let answers = chained(&nodes[0], &asks, &["b", "c"], "sync");
    assert!(answers.iter().all(|answer| *answer == Ok(Answered::Put { already: false, missing: vec![] })), "{:?}", answers[0]);
    // At the instant of the answer: what is killed now has it when it is started again.
    let last = nodes.pop().unwrap();
    let own = last.root.clone();
    last.kill();
    assert_held(&Host::start_with(&own, CAPACITY_BYTES, &["--node-id", "c"]), &asks);
    for node in &nodes {
        assert_eq!((packs(node), other_calls(node)), (1.0, 0.0), "nothing was asked one by one");
        assert_held(node, &asks);
    }
}

#[test]
fn what_one_node_refuses_is_told_by_its_name_and_the_same_again_goes_on_from_there() {
    let root = tempfile::tempdir().unwrap();
    let nodes = cluster(root.path(), &NAMES, CAPACITY_BYTES);
    assert!(asked(&nodes[2], &[put("f1", b"other")])[0].is_ok());
    assert!(asked(&nodes[1], &[put("f2", b"other")])[0].is_ok());
    let mut asks = vec![put("f0", b"zero"), put("f1", b"one"), put("f2", b"two"), put("f3", b"three")];
    if let Ask::Put { content, .. } = &mut asks[3] {
        *content = b"something else".to_vec().into();
    }
    let answers = chained(&nodes[0], &asks, &["b", "c"], "sync");
    assert_eq!(names(missing(&answers[0])), []);
    assert_eq!(names(missing(&answers[1])), [("c", "replica_busy")]);
    assert_eq!(names(missing(&answers[2])), [("b", "replica_busy"), ("c", "replication_failed")]);
    assert_eq!(code(&answers[3]), "checksum_mismatch", "what this node does not take goes nowhere");
    assert_eq!((nodes[1].space().0, nodes[2].space().0), (4 + 3 + 5, 4 + 5));
    assert!(asked(&nodes[2], &[Ask::Delete(key("f1"))])[0].is_ok());
    let again = chained(&nodes[0], &asks[..2], &["b", "c"], "sync");
    assert!(again.iter().all(|answer| *answer == Ok(Answered::Put { already: true, missing: vec![] })), "{again:?}");
    assert_held(&nodes[2], &asks[..2]);
}

#[test]
fn async_is_answered_by_the_first_and_its_end_is_an_event_for_each() {
    let root = tempfile::tempdir().unwrap();
    let nodes = cluster(root.path(), &NAMES, CAPACITY_BYTES);
    assert!(asked(&nodes[2], &[put("f1", b"other")])[0].is_ok());
    let signal = |signal| nix::sys::signal::kill(nix::unistd::Pid::from_raw(nodes[1].pid() as i32), signal).unwrap();
    signal(nix::sys::signal::Signal::SIGSTOP);
    let answers = chained(&nodes[0], &many(3), &["b", "c"], "async");
    assert!(answers.iter().all(Result::is_ok));
    let local = [put("l", b"local")];
    assert!(chained(&nodes[0], &local, &["b", "c"], "local")[0].is_ok());
    signal(nix::sys::signal::Signal::SIGCONT);
    let end = |file_id: &str| nodes[0].event("it is told", |event| event["kind"] == "replicated" && event["file_id"] == file_id);
    assert_eq!(end("f0")["held_by"], json!(NAMES));
    assert_eq!((&end("f1")["held_by"], &end("f1")["missing"][0]["node_id"]), (&json!(["a", "b"]), &json!("c")));
    until("the local one arrives", || asked(&nodes[2], &[Ask::Stat(key("l"))])[0].is_ok().then_some(()));
    let events = nodes[0].ok("GET", "events?after=0", Value::Null);
    assert!(!events["events"].as_array().unwrap().iter().any(|event| event["file_id"] == "l"), "nothing is told of it");
}

#[test]
fn a_node_that_is_started_again_meanwhile_gets_it_and_one_that_stays_away_is_given_up() {
    let root = tempfile::tempdir().unwrap();
    let mut nodes = cluster(root.path(), &NAMES, CAPACITY_BYTES);
    let last = nodes.pop().unwrap();
    let own = last.root.clone();
    last.kill();
    let asks = many(20);
    assert!(chained(&nodes[0], &asks, &["b", "c"], "async").iter().all(Result::is_ok));
    until("the second node has them", || asked(&nodes[1], &[Ask::Stat(key("f19"))])[0].is_ok().then_some(()));
    let again = Host::start_with(&own, CAPACITY_BYTES, &["--node-id", "c"]);
    tell(&nodes[1], "c", &again.root.join("sock"), &again.token);
    let event = nodes[0].event("the chain ends", |event| event["kind"] == "replicated" && event["file_id"] == "f19");
    assert_eq!(event["held_by"], json!(NAMES), "{event}");
    assert_held(&again, &asks);
    again.kill();
    let answers = chained(&nodes[1], &[put("x", b"x")], &["c"], "sync");
    assert_eq!(missing(&answers[0])[0].node_id, "c");
    assert_held(&nodes[1], &[put("x", b"x")]);
}

#[test]
fn only_puts_go_through_a_chain_and_only_one_that_the_first_node_knows() {
    let root = tempfile::tempdir().unwrap();
    let nodes = cluster(root.path(), &NAMES[..2], CAPACITY_BYTES);
    let answers = chained(&nodes[0], &[put("f", b"f"), Ask::Get(key("f")), Ask::Delete(key("g"))], &["b"], "sync");
    assert_eq!((missing(&answers[0]).len(), code(&answers[1]), code(&answers[2])), (0, "bad_request", "bad_request"));
    for (chain, wrong) in [(json!(["z"]), "peer_unknown"), (json!(["b", "b"]), "bad_request"), (json!(["b", "1", "2", "3"]), "bad_request")]
    {
        let mut headers = nodes[0].headers();
        headers.push(("X-Stager-Replicas".into(), json!({"chain": chain, "ack": "sync"}).to_string()));
        let reply = nodes[0].send_raw("POST", "/v1/packs", &pack(&[put("x", b"x")]), &headers).unwrap();
        assert_eq!((reply.status, reply.json()["error"]["code"].as_str()), (400, Some(wrong)), "{chain}");
    }
    assert_eq!(nodes[0].space(), (1, 0));
}

fn stage_out_of(node: &Host, root: &Path, count: usize, ack: &str) -> (Value, Vec<Ask>) {
    let sandbox = root.join(format!("sandboxes/{ack}"));
    node.ok("POST", &format!("attempts/{ack}/stage-in"), json!({"sandbox_dir": sandbox, "inputs": []}));
    node.ok("PUT", &format!("reservations/{ack}"), json!({"bytes": 20 << 20}));
    let names: Vec<String> = (0..count).map(|n| format!("{ack}{n}")).collect();
    let contents: Vec<Vec<u8>> = (0..count).map(|n| noise((n % 251) as u8, if n == 7 { 1 << 20 } else { n % 2000 })).collect();
    for (name, content) in names.iter().zip(&contents) {
        std::fs::write(sandbox.join(name), content).unwrap();
    }
    let outputs: Vec<Value> = names.iter().map(|name| output(name, name, "file", false)).collect();
    let mut request = stage_out(&sandbox, ack, json!(outputs));
    request["replicas"] = json!({"chain": ["b", "c"], "ack": ack});
    let answer = node.ok("POST", &format!("attempts/{ack}/stage-out"), request);
    let held = names.iter().zip(&contents).map(|(name, content)| {
        let Ask::Put { key, executable, blake3, content } = put(name, content) else { unreachable!() };
        Ask::Put { key: stager_core::replica::ReplicaKey { generation: "a".into(), ..key }, executable, blake3, content }
    });
    (answer, held.collect())
}

#[test]
fn small_outputs_of_a_job_go_to_other_nodes_in_packs_and_a_large_one_by_itself() {
    let root = tempfile::tempdir().unwrap();
    let nodes = cluster(root.path(), &NAMES, CAPACITY_BYTES);
    let (answer, outputs) = stage_out_of(&nodes[0], root.path(), 300, "sync");
    let told = answer["replication"].as_array().unwrap();
    assert_eq!(told.len(), 300);
    assert!(told.iter().all(|one| one["held_by"] == json!(NAMES) && one["missing"] == json!([])), "{}", told[0]);
    let (small, large): (Vec<Ask>, Vec<Ask>) = outputs.into_iter().partition(|ask| !ask.key().file_id.ends_with("sync7"));
    for node in &nodes[1..] {
        assert_eq!(packs(node), 1.0);
        assert!(node.content("sync7", "a")[..] == noise(7, 1 << 20)[..] && large.len() == 1);
        assert_held(node, &small);
    }
    let (answer, _) = stage_out_of(&nodes[0], root.path(), 5, "async");
    assert_eq!(answer["replication"], Value::Null);
    let event = nodes[0].event("it is told", |event| event["kind"] == "replicated" && event["file_id"] == "async3");
    assert_eq!(event["held_by"], json!(NAMES));
}

#[test]
fn a_directory_is_pushed_through_a_chain_in_packs_or_says_what_is_missing() {
    let root = tempfile::tempdir().unwrap();
    let nodes = cluster(root.path(), &NAMES, CAPACITY_BYTES);
    let from = root.path().join("from");
    std::fs::create_dir(&from).unwrap();
    (0..1000usize).for_each(|n| std::fs::write(from.join(format!("f{n}")), noise((n % 251) as u8, n % 3000)).unwrap());
    std::fs::write(from.join("large"), noise(1, 1 << 20)).unwrap();
    let push = |generation: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_stager-ionode"));
        command.arg("push").arg(&from).arg("--node").arg(nodes[0].root.join("store"));
        command.args(["--file", "tree", "--generation", generation, "--chain", "b,c", "--ack", "sync"]).output().unwrap()
    };
    let pushed = push("g");
    assert!(pushed.status.success(), "{}", String::from_utf8_lossy(&pushed.stderr));
    assert!((1.0..=3.0).contains(&packs(&nodes[2])), "{} packs", packs(&nodes[2]));
    let to = root.path().join("to");
    let mut fetch = Command::new(env!("CARGO_BIN_EXE_stager-ionode"));
    fetch.args(["fetch", "--tree", "--file", "tree", "--generation", "g", "--to"]).arg(&to).arg("--node").arg(nodes[2].root.join("store"));
    let fetched = fetch.output().unwrap();
    assert!(fetched.status.success(), "{}", String::from_utf8_lossy(&fetched.stderr));
    assert!((0..1000).all(|n| std::fs::read(from.join(format!("f{n}"))).unwrap() == std::fs::read(to.join(format!("f{n}"))).unwrap()));
    // What is small alone: a large file would say it first.
    std::fs::remove_file(from.join("large")).unwrap();
    nodes[1].ok("DELETE", "peers/c", Value::Null);
    let refused = push("h");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("not on") && said.contains("push it again"), "{said}");
}
