//! Packs where they are used: copies between real nodes, and directories pushed and fetched by the command line.

mod cluster;
mod host;
mod packing;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use cluster::*;
use host::*;
use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;
use packing::*;
use serde_json::{json, Value};
use stager_node::pack_format::Ask;

const CAPACITY_BYTES: u64 = 1 << 30;

fn calls(node: &Host, method: &str, route: &str) -> f64 {
    let of =
        |status: u16| node.metric(&format!("stager_node_http_requests_total{{method=\"{method}\",route=\"{route}\",status=\"{status}\"}}"));
    [200, 206].into_iter().filter_map(of).sum()
}

fn signal(node: &Host, signal: Signal) {
    kill(Pid::from_raw(node.pid() as i32), signal).unwrap();
}

/// No two begin alike.
fn content(n: usize) -> Vec<u8> {
    let mut bytes = format!("{n} ").into_bytes();
    bytes.extend(noise((n % 251) as u8, n % 4000));
    bytes.truncate(n % 4000);
    bytes
}

#[test]
fn a_thousand_small_copies_from_one_peer_come_in_a_few_packs() {
    let root = tempfile::tempdir().unwrap();
    let nodes = cluster(root.path(), &["a", "b"], CAPACITY_BYTES);
    let asks: Vec<Ask> = (0..1000).map(|n| put(&format!("f{n}"), &content(n))).collect();
    assert!(asked(&nodes[0], &asks).iter().all(Result::is_ok));
    // One is gone, and one is damaged where it lies: each fails by itself, as a copy does.
    assert!(asked(&nodes[0], &[Ask::Delete(key("f500"))])[0].is_ok());
    let (segment, bad) = (nodes[0].root.join("store/segments/0000000001.seg"), content(600));
    let at = std::fs::read(&segment).unwrap().windows(100).position(|window| window == &bad[..100]).unwrap();
    rot(&segment, at as u64 + 50);
    // What is asked for while the peer does not answer waits: fifteen seconds at most, so a hundred are asked for at once.
    signal(&nodes[0], Signal::SIGSTOP);
    let ask = |n: &usize| {
        let request = copy(&format!("f{n}"), "g1", &["a"], content(*n).len(), &hash(&content(*n)));
        nodes[1].begin("PUT", &format!("/v1/transfers/t{n}"), request.to_string().as_bytes(), &nodes[1].headers())
    };
    for some in (0..1000).collect::<Vec<usize>>().chunks(100) {
        let asked: Vec<Begun> = some.iter().map(ask).collect();
        asked.into_iter().for_each(|begun| assert_eq!(begun.reply().expect("the node answers").status, 202));
    }
    nodes[1].ok("DELETE", "transfers/t700", Value::Null);
    signal(&nodes[0], Signal::SIGCONT);
    let events = until("all have ended", || {
        let answer = nodes[1].ok("GET", "transfers", Value::Null);
        let ended = |transfer: &&Value| !transfer["event"].is_null();
        let transfers = answer["transfers"].as_array().unwrap().clone();
        (transfers.iter().filter(ended).count() == 1000).then_some(transfers)
    });
    let by_id: BTreeMap<&str, &Value> =
        events.iter().map(|transfer| (transfer["transfer_id"].as_str().unwrap(), &transfer["event"])).collect();
    assert_eq!(by_id["t500"]["error"]["code"], "replica_unknown", "{}", by_id["t500"]);
    assert_eq!(by_id["t600"]["error"]["class"], "corrupt", "{}", by_id["t600"]);
    assert_eq!(by_id["t700"]["kind"], "transfer_cancelled");
    let (packs, single) = (calls(&nodes[0], "POST", "/v1/packs"), calls(&nodes[0], "GET", "/v1/replicas/*/*/content"));
    // Two packs were the test's own.
    assert!((3.0..=22.0).contains(&packs) && single <= 20.0, "{packs} packs, {single} contents");
    let done = (0..1000).filter(|n| ![500, 600, 700].contains(n));
    let gets: Vec<Ask> = done.clone().map(|n| Ask::Get(stager_core::replica::ReplicaKey::new(format!("f{n}"), "g1"))).collect();
    for (n, answer) in done.zip(asked(&nodes[1], &gets)) {
        assert_eq!(by_id[format!("t{n}").as_str()]["bytes_moved"], content(n).len(), "f{n}");
        let Ok(stager_node::pack_format::Answered::Got(_, bytes)) = answer else { panic!("f{n}: {answer:?}") };
        assert!(bytes[..] == content(n), "f{n}");
    }
    let used: usize = (0..1000).filter(|n| ![500, 600, 700].contains(n)).map(|n| content(n).len()).sum();
    assert_eq!(nodes[1].space(), (used as u64, 0));
}

fn client(arguments: &[&OsStr]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_stager-ionode")).args(arguments).output().unwrap()
}

fn push(node: &Host, path: &Path) -> Output {
    let store = node.root.join("store");
    let words = [OsStr::new("push"), path.as_os_str(), "--node".as_ref(), store.as_os_str()];
    client(&[&words[..], &["--file", "tree", "--generation", "g"].map(OsStr::new)].concat())
}

fn fetch_tree(node: &Host, to: &Path) -> Output {
    let store = node.root.join("store");
    let words = ["fetch", "--tree", "--file", "tree", "--generation", "g", "--node"].map(OsStr::new);
    client(&[&words[..], &[store.as_os_str(), "--to".as_ref(), to.as_os_str()]].concat())
}

fn told(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// All below: path, whether it is a directory, can be executed, and its content.
fn seen(top: &Path) -> BTreeMap<PathBuf, (bool, bool, Vec<u8>)> {
    let (mut seen, mut open) = (BTreeMap::new(), vec![top.to_owned()]);
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let metadata = path.symlink_metadata().unwrap();
            let bytes = if metadata.is_dir() { Vec::new() } else { std::fs::read(&path).unwrap() };
            let executable = metadata.is_file() && metadata.permissions().mode() & 0o100 != 0;
            seen.insert(path.strip_prefix(top).unwrap().to_owned(), (metadata.is_dir(), executable, bytes));
            if metadata.is_dir() {
                open.push(path);
            }
        }
    }
    seen
}

fn made(top: &Path) {
    for (n, odd) in [&b"\xff\xfe not utf-8"[..], b"new\nline", b"per%cent", b"..", b"-n", b" ", "ä/ö".as_bytes()].into_iter().enumerate()
    {
        let below = top.join(format!("sub {}", n % 3)).join(OsStr::from_bytes(&[b"x", odd].concat()));
        std::fs::create_dir_all(below.parent().unwrap()).unwrap();
        std::fs::write(below, odd).unwrap();
    }
    for n in 0..2000 {
        let path = top.join(format!("d{}/e{}", n % 7, n % 3));
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join(format!("f{n}")), if n % 50 == 0 { Vec::new() } else { content(n) }).unwrap();
    }
    std::fs::create_dir_all(top.join("empty/emptier")).unwrap();
    std::fs::write(top.join("large"), noise(3, 3 << 20)).unwrap();
    std::fs::write(top.join("run"), b"#!/bin/sh\n").unwrap();
    std::fs::set_permissions(top.join("run"), PermissionsExt::from_mode(0o755)).unwrap();
}

#[test]
fn a_directory_of_many_files_is_pushed_and_fetched_in_a_few_packs() {
    let root = tempfile::tempdir().unwrap();
    let node = Host::start(root.path(), CAPACITY_BYTES);
    let (from, to) = (root.path().join("from"), root.path().join("to"));
    made(&from);
    let pushed = told(&push(&node, &from));
    assert_eq!((&pushed["files"], &pushed["in_packs"]), (&json!(2009), &json!(2008)), "{pushed}");
    let packs = calls(&node, "POST", "/v1/packs");
    assert!((1.0..=3.0).contains(&packs), "{packs} packs");
    let fetched = told(&fetch_tree(&node, &to));
    assert_eq!((&fetched["files"], &fetched["bytes_moved"]), (&json!(2009), &pushed["size_bytes"]), "{fetched}");
    let packs = calls(&node, "POST", "/v1/packs") - packs;
    assert!((1.0..=3.0).contains(&packs), "{packs} packs");
    assert!(seen(&from) == seen(&to), "the directories differ");
    let beside: Vec<_> = std::fs::read_dir(root.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!beside.iter().any(|name| name.to_string_lossy().contains("stager")), "{beside:?}");
    // The same again moves nothing; a directory that is there is never written into.
    assert_eq!(told(&push(&node, &from))["bytes_moved"], 0);
    assert!(String::from_utf8_lossy(&fetch_tree(&node, &to).stderr).contains("there already"));
}

#[test]
fn what_an_earlier_try_left_is_taken_only_where_it_is_right() {
    let root = tempfile::tempdir().unwrap();
    let node = Host::start(root.path(), CAPACITY_BYTES);
    let (from, to, part) = (root.path().join("from"), root.path().join("to"), root.path().join(".to.stager-tree"));
    std::fs::create_dir_all(&from).unwrap();
    for n in 1..20 {
        std::fs::write(from.join(format!("f{n}")), noise(n, 1000)).unwrap();
    }
    told(&push(&node, &from));
    std::fs::create_dir(&part).unwrap();
    std::fs::write(part.join("f1"), noise(1, 1000)).unwrap();
    std::fs::write(part.join("f2"), noise(99, 1000)).unwrap();
    std::fs::write(part.join("f3"), noise(3, 500)).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", part.join("f4")).unwrap();
    assert_eq!(told(&fetch_tree(&node, &to))["bytes_moved"], 18_000);
    assert!(seen(&from) == seen(&to), "the directories differ");
}

#[test]
fn links_are_not_pushed_and_no_list_leads_out_of_its_directory() {
    let root = tempfile::tempdir().unwrap();
    let node = Host::start(root.path(), CAPACITY_BYTES);
    let from = root.path().join("from");
    std::fs::create_dir(&from).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", from.join("link")).unwrap();
    let refused = push(&node, &from);
    assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("from/link is neither"), "{refused:?}");
    assert_eq!(node.space(), (0, 0));
    std::fs::write(root.path().join("content"), b"evil").unwrap();
    let list = json!({"format": 1, "directories": [], "files": [{"path": "../out", "file_id": "x", "size_bytes": 4, "blake3": hash(b"evil"), "executable": false}]});
    std::fs::write(root.path().join("list"), list.to_string()).unwrap();
    told(&push(&node, &root.path().join("list")));
    let refused = fetch_tree(&node, &root.path().join("to"));
    assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("leads out"), "{refused:?}");
    assert!(!root.path().join("out").exists() && !root.path().join(".to.stager-tree").exists());
}
