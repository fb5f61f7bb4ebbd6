//! Packs against a real node: each entry is judged for itself, what is acknowledged stays, what is damaged on its way is not taken.

mod host;
mod packing;

use host::*;
use packing::*;
use serde_json::{json, Value};
use stager_core::replica::ReplicaState;
use stager_node::blocks;
use stager_node::pack_format::{Answered, Ask, CONTENT_BYTES_MAX, ENTRIES_MAX, PACK_BYTES_MAX};

const CAPACITY_BYTES: u64 = 1 << 30;

#[test]
fn a_mixed_pack_is_answered_entry_by_entry_and_one_that_is_wrong_fails_alone() {
    let root = tempfile::tempdir().unwrap();
    let node = Host::start(root.path(), CAPACITY_BYTES);
    assert!(asked(&node, &[put("old", b"old")])[0].is_ok());
    let mut executable = put("run", b"#!");
    if let Ask::Put { executable, .. } = &mut executable {
        *executable = true;
    }
    let mut wrong = put("wrong", b"what was meant");
    if let Ask::Put { content, .. } = &mut wrong {
        *content = b"what came".to_vec().into();
    }
    let answers = asked(
        &node,
        &[
            put("a", b"content of a"),
            Ask::Stat(key("a")),
            wrong,
            put("empty", b""),
            Ask::Get(key("a")),
            Ask::Get(key("nothing")),
            Ask::Delete(key("old")),
            Ask::Stat(key("old")),
            put("old", b"another"),
            executable,
            Ask::Stat(key("run")),
            Ask::Delete(key("never")),
            Ask::Get(key("empty")),
        ],
    );
    let (Answered::Stat(a), Answered::Got(about, content)) = (answers[1].as_ref().unwrap(), answers[4].as_ref().unwrap()) else { panic!() };
    assert_eq!((a, &content[..]), (about, &b"content of a"[..]));
    assert_eq!((a.size_bytes, a.blake3, a.state), (12, *blake3::hash(b"content of a").as_bytes(), ReplicaState::Present));
    assert_eq!(answers[0], Ok(Answered::Put { already: false, missing: vec![] }));
    assert_eq!((code(&answers[2]), code(&answers[5]), code(&answers[7])), ("checksum_mismatch", "replica_unknown", "replica_unknown"));
    assert_eq!((&answers[6], &answers[11]), (&Ok(Answered::Deleted), &Ok(Answered::Deleted)));
    assert_eq!(code(&answers[8]), "bad_request", "it is deleted in the same pack");
    assert!(matches!(answers[10].as_ref(), Ok(Answered::Stat(run)) if run.executable));
    assert!(matches!(answers[12].as_ref(), Ok(Answered::Got(_, content)) if content.is_empty()));
    // The same again changes nothing; another content under the same key is refused.
    let again = asked(&node, &[put("a", b"content of a"), put("empty", b""), put("run", b"other")]);
    assert_eq!(again[..2], [Ok(Answered::Put { already: true, missing: vec![] }), Ok(Answered::Put { already: true, missing: vec![] })]);
    assert_eq!(code(&again[2]), "replica_busy");
    // They are replicas as all others.
    assert_eq!(node.content("a", "g0"), b"content of a");
    assert_eq!(node.space(), (14, 0));
    node.event("the delete is told", |event| event["kind"] == "replica_deleted" && event["file_id"] == "old");
    node.refused("GET", "replicas/wrong/g0", Value::Null, 404, "replica_unknown");
}

#[test]
fn a_flipped_bit_damages_its_entry_and_no_other() {
    let root = tempfile::tempdir().unwrap();
    let node = Host::start(root.path(), CAPACITY_BYTES);
    let asks: Vec<Ask> = (0..9).map(|n| put(&format!("f{n}"), &noise(n, 1000))).collect();
    let whole = pack(&asks);
    let starts: Vec<usize> =
        asks.iter().scan(0, |at, ask| Some(std::mem::replace(at, *at + pack(std::slice::from_ref(ask)).len() - 24))).collect();
    for (entry, byte) in [(3, blocks::HEADER_BYTES + 500), (4, blocks::HEADER_BYTES), (5, 9), (6, 17)] {
        let mut damaged = whole.clone();
        damaged[starts[entry] + byte] ^= 1;
        let answers = sent(&node, &damaged);
        for (n, answer) in answers.iter().enumerate() {
            match n == entry {
                true => assert_eq!(code(answer), "checksum_mismatch", "byte {byte} of entry {entry}"),
                false => assert!(answer.is_ok(), "byte {byte} of entry {entry}: {n} is {answer:?}"),
            }
        }
        let keys: Vec<Ask> = (0..9).map(|n| Ask::Delete(key(&format!("f{n}")))).collect();
        let there = asked(&node, &[Ask::Stat(key(&format!("f{entry}")))]);
        assert_eq!(code(&there[0]), "replica_unknown");
        assert!(asked(&node, &keys).iter().all(Result::is_ok));
    }
    // A length that leads nowhere, bytes that are no blocks, a cut: nothing of that is done.
    let (mut length, mut cut) = (whole.clone(), whole.clone());
    length[starts[2] + 4] ^= 0x40;
    cut.truncate(whole.len() - 10);
    for broken in [length, cut, b"POST".to_vec(), Vec::new(), [whole, b"more".to_vec()].concat()] {
        let (status, error) = refused(&node, &broken);
        assert_eq!((status, error["error"]["class"].as_str()), (500, Some("corrupt")), "{error}");
    }
    assert_eq!(node.space(), (0, 0));
}

#[test]
fn entries_without_space_are_refused_by_name_and_smaller_ones_behind_them_fit() {
    let root = tempfile::tempdir().unwrap();
    let node = Host::start(root.path(), 10_000);
    let answers = asked(&node, &[put("a", &noise(1, 6000)), put("b", &noise(2, 6000)), put("c", &noise(3, 4000)), put("d", b"")]);
    assert_eq!(code(&answers[1]), "no_space_node");
    assert!(answers[1].as_ref().unwrap_err().message.contains("b needs"), "{answers:?}");
    assert!([0, 2, 3].iter().all(|n| answers[*n].is_ok()), "{answers:?}");
    assert_eq!(node.space(), (10_000, 0));
    // What is reserved for others is theirs; what is freed in one pack is there for the next.
    assert!(asked(&node, &[Ask::Delete(key("a"))])[0].is_ok());
    node.ok("PUT", "reservations/r", json!({"bytes": 5000}));
    assert_eq!(code(&asked(&node, &[put("b", &noise(2, 6000))])[0]), "no_space_node");
    node.ok("DELETE", "reservations/r", Value::Null);
    assert!(asked(&node, &[put("b", &noise(2, 6000))])[0].is_ok());
}

#[test]
fn a_delete_respects_the_leases_of_jobs() {
    let root = tempfile::tempdir().unwrap();
    let node = Host::start(root.path(), CAPACITY_BYTES);
    asked(&node, &[put("a", b"a"), put("b", b"b")]);
    let inputs = json!([{"file_id": "a", "generation": "g0", "path": "in", "access": "copy"}]);
    node.ok("POST", "attempts/j/stage-in", json!({"sandbox_dir": root.path().join("box"), "inputs": inputs}));
    let answers = asked(&node, &[Ask::Delete(key("a")), Ask::Delete(key("b"))]);
    assert_eq!((code(&answers[0]), &answers[1]), ("replica_busy", &Ok(Answered::Deleted)));
    node.ok("POST", "attempts/j/release", json!({"sandbox_dir": root.path().join("box"), "remove_sandbox": true}));
    assert!(asked(&node, &[Ask::Delete(key("a"))])[0].is_ok());
    assert_eq!(node.space(), (0, 0));
}

fn files_below(directory: &std::path::Path) -> usize {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| if path.is_dir() { files_below(&path) } else { 1 }).sum()
}

#[test]
fn a_delete_takes_the_file_of_a_large_replica_with_it() {
    let root = tempfile::tempdir().unwrap();
    source(&root.path().join("lab"), "big", &noise(3, 200_000));
    let node = Host::start(root.path(), CAPACITY_BYTES);
    node.put_file_origin(&root.path().join("lab"));
    node.fetched("g0", "big", "big");
    assert!(asked(&node, &[put("small", b"s")])[0].is_ok());
    let data = root.path().join("store/data");
    assert_eq!(files_below(&data), 1);
    assert_eq!(asked(&node, &[Ask::Delete(key("small")), Ask::Delete(key("big"))]), [Ok(Answered::Deleted), Ok(Answered::Deleted)]);
    assert_eq!((files_below(&data), node.space()), (0, (0, 0)));
}

#[test]
fn what_is_too_large_is_refused_with_what_to_do() {
    let root = tempfile::tempdir().unwrap();
    let mut node = Host::start(root.path(), CAPACITY_BYTES);
    let many: Vec<Ask> = (0..=ENTRIES_MAX).map(|n| Ask::Stat(key(&format!("f{n}")))).collect();
    let large: Vec<Ask> = (0..=PACK_BYTES_MAX / 60_000).map(|n| put(&format!("f{n}"), &noise(1, 60_000))).collect();
    for asks in [many, large] {
        let (status, error) = refused(&node, &pack(&asks));
        assert_eq!((status, error["error"]["code"].as_str()), (400, Some("too_large")), "{error}");
        assert!(error["error"]["message"].as_str().unwrap().contains("send this one as several"), "{error}");
    }
    assert_eq!(node.space(), (0, 0));
    // An entry that the log does not take, and one that no answer would hold.
    let large = noise(7, CONTENT_BYTES_MAX + 1);
    source(&root.path().join("lab"), "large", &large);
    node.put_file_origin(&root.path().join("lab"));
    node.fetched("g0", "large", "large");
    let answers = asked(&node, &[put("f", &noise(1, 65_537)), Ask::Get(key("large")), put("g", b"g"), Ask::Stat(key("large"))]);
    assert_eq!((code(&answers[0]), code(&answers[1])), ("too_large", "too_large"));
    assert!(answers[2].is_ok() && matches!(answers[3].as_ref(), Ok(Answered::Stat(about)) if about.size_bytes == large.len() as u64));
    // Without the right token nothing is even read.
    node.token = "0".repeat(64);
    node.refused("POST", "packs", Value::Null, 403, "token_wrong");
}

#[test]
fn ten_thousand_in_one_pack_outlive_a_kill_after_their_acknowledgement() {
    let root = tempfile::tempdir().unwrap();
    let node = Host::start(root.path(), CAPACITY_BYTES);
    let content = |n: usize| noise((n % 250) as u8, n % 1500);
    let asks: Vec<Ask> = (0..10_000).map(|n| put(&format!("f{n}"), &content(n))).collect();
    let frames = || node.metric("stager_node_log_frames_total").unwrap();
    // The epoch is written with the first call.
    assert_eq!(node.space(), (0, 0));
    let before = frames();
    assert!(asked(&node, &asks).iter().all(|answer| *answer == Ok(Answered::Put { already: false, missing: vec![] })));
    assert_eq!(frames() - before, 1.0, "one write of the log for all of them");
    node.kill();
    let node = Host::start(root.path(), CAPACITY_BYTES);
    let gets: Vec<Ask> = (0..10_000).map(|n| Ask::Get(key(&format!("f{n}")))).collect();
    for (n, answer) in asked(&node, &gets).into_iter().enumerate() {
        assert!(matches!(&answer, Ok(Answered::Got(_, bytes)) if bytes[..] == content(n)), "f{n}: {answer:?}");
    }
    let rss = node.metric("process_resident_memory_bytes").unwrap();
    // Forty packs of 12 MB, all at once: no more of them are in memory than there is memory for.
    let large: Vec<u8> = pack(&(0..200).map(|n| put(&format!("l{n}"), &noise(n as u8, 60_000))).collect::<Vec<_>>());
    std::thread::scope(|scope| {
        for _ in 0..40 {
            let (large, node) = (&large, root.path().join("sock"));
            let headers = header_lines(&gate(root.path()));
            scope.spawn(move || post(&node, &headers, large));
        }
    });
    let grown = node.metric("process_resident_memory_bytes").unwrap() - rss;
    assert!(grown < 300e6, "{grown} bytes more than before are in memory");
}

/// What a caller needs, from the node's own files: a `Host` is for one thread.
fn gate(root: &std::path::Path) -> Value {
    serde_json::from_slice(&std::fs::read(root.join("store/rendezvous.json")).unwrap()).unwrap()
}

fn header_lines(rendezvous: &Value) -> String {
    let token = std::fs::read_to_string(rendezvous["token_file"].as_str().unwrap()).unwrap();
    let incarnation = rendezvous["incarnation"].as_str().unwrap();
    format!("Authorization: Bearer {token}\r\nX-Stager-Api: 1\r\nX-Stager-Epoch: 1\r\nX-Stager-Incarnation: {incarnation}\r\n")
}

fn post(socket: &std::path::Path, headers: &str, body: &[u8]) {
    use std::io::{Read, Write};
    let mut stream = std::os::unix::net::UnixStream::connect(socket).unwrap();
    let head = format!("POST /v1/packs HTTP/1.1\r\nHost: n\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n", body.len());
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer[..answer.len().min(300)]));
}

#[test]
fn a_damaged_replica_is_not_given_out_and_is_quarantined() {
    let root = tempfile::tempdir().unwrap();
    let node = Host::start(root.path(), CAPACITY_BYTES);
    let content = noise(9, 3000);
    assert!(asked(&node, &[put("a", &content), put("b", b"b")]).iter().all(Result::is_ok));
    let segment = root.path().join("store/segments/0000000001.seg");
    let at = std::fs::read(&segment).unwrap().windows(64).position(|window| window == &content[..64]).unwrap();
    rot(&segment, at as u64 + 1000);
    let answers = asked(&node, &[Ask::Get(key("a")), Ask::Get(key("b"))]);
    assert_eq!(code(&answers[0]), "checksum_mismatch");
    assert!(answers[1].is_ok());
    node.event("it is told", |event| event["kind"] == "replica_corrupt" && event["file_id"] == "a");
    assert!(
        matches!(asked(&node, &[Ask::Stat(key("a"))])[0].as_ref(), Ok(Answered::Stat(about)) if about.state == ReplicaState::Quarantined)
    );
}
