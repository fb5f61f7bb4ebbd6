//! Several real nodes that know one another, and a peer that lies: a relay in front of a real node that changes what passes.
//!
//! The one rule: a lie is told in one place of an answer that is otherwise the real node's.
#![allow(dead_code)]

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{json, Value};
use stager_node::blocks::{self, Decoder, Piece};

use crate::host::*;

pub const MIB: usize = 1 << 20;

pub fn member(root: &Path, name: &str, capacity_bytes: u64) -> Host {
    member_with(root, name, capacity_bytes, &[])
}

pub fn member_with(root: &Path, name: &str, capacity_bytes: u64, more: &[&str]) -> Host {
    let own = root.join(name);
    std::fs::create_dir_all(&own).unwrap();
    Host::start_with(&own, capacity_bytes, &[&["--node-id", name], more].concat())
}

pub fn tell(node: &Host, name: &str, address: &Path, token: &str) {
    node.ok("PUT", &format!("peers/{name}"), json!({"address": address, "token": token}));
}

/// Nodes of these names, each told of all others.
pub fn cluster(root: &Path, names: &[&str], capacity_bytes: u64) -> Vec<Host> {
    let nodes: Vec<Host> = names.iter().map(|name| member(root, name, capacity_bytes)).collect();
    introduce(&nodes, names);
    nodes
}

pub fn introduce(nodes: &[Host], names: &[&str]) {
    for (one, name) in nodes.iter().zip(names) {
        for (other, other_name) in nodes.iter().zip(names).filter(|(_, other)| other != &name) {
            tell(one, other_name, &other.root.join("sock"), &other.token);
        }
    }
}

/// A file that lies at `node` as (`file_id`, "g0"), fetched from an origin beside it.
pub fn placed(node: &Host, file_id: &str, bytes: &[u8]) -> Value {
    let lab = node.root.join("lab");
    source(&lab, file_id, bytes);
    node.put_file_origin(&lab);
    let event = node.fetched("g0", file_id, file_id);
    assert_eq!(event["kind"], "transfer_done", "{event}");
    event
}

pub fn copy(file_id: &str, generation: &str, sources: &[&str], size_bytes: usize, blake3: &str) -> Value {
    let sources: Vec<Value> = sources.iter().map(|node_id| json!({"node_id": node_id, "generation": "g0"})).collect();
    json!({"kind": "copy", "file_id": file_id, "generation": generation, "sources": sources,
           "expected": {"size_bytes": size_bytes, "blake3": blake3}, "priority": 5})
}

pub fn hash(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex().to_string()
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Lie {
    /// A bit of the content, its block's checksum left as it was: as a bad line does.
    FlipOnTheWay,
    /// A bit of the content, with the right checksum for it: as bad memory does.
    FlipInMemory,
    CutShort,
    SendMore,
    Stall,
    AnotherSize,
    AnotherHash,
    /// The beginning with bad memory's bits, and all behind it cut short.
    PoisonThenCut,
}

/// Answers under the real node's name, with one lie.
pub struct Liar {
    pub socket: PathBuf,
    pub lies: Arc<AtomicUsize>,
    end: Arc<AtomicBool>,
}

impl Liar {
    /// Lies in the first `times` answers it could lie in.
    pub fn before(node: &Host, lie: Lie, times: usize) -> Self {
        let socket = node.root.join("liar");
        let listener = UnixListener::bind(&socket).unwrap();
        let (lies, end) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (real, told, over) = (node.root.join("sock"), lies.clone(), end.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let (real, told, over) = (real.clone(), told.clone(), over.clone());
                std::thread::spawn(move || relay(stream.unwrap(), &real, lie, times, &told, &over));
            }
        });
        Self { socket, lies, end }
    }
}

impl Drop for Liar {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        let _ = UnixStream::connect(&self.socket);
    }
}

fn relay(mut client: UnixStream, real: &Path, lie: Lie, times: usize, told: &AtomicUsize, over: &AtomicBool) {
    while let Some(head) = head_of(&mut client) {
        let mut server = UnixStream::connect(real).unwrap();
        server.write_all(head.replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n").as_bytes()).unwrap();
        let Some(answer_head) = head_of(&mut server) else { return };
        let mut body = Vec::new();
        server.read_to_end(&mut body).unwrap();
        let path = head.split(' ').nth(1).unwrap().to_string();
        let concerned = match lie {
            Lie::AnotherSize | Lie::AnotherHash => path.contains("/source"),
            _ => path.contains("/content"),
        };
        let lying = concerned && told.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| (n < times).then_some(n + 1)).is_ok();
        let lie = match lie {
            Lie::PoisonThenCut if head.to_lowercase().contains("range: bytes=0-") => Lie::FlipInMemory,
            Lie::PoisonThenCut => Lie::CutShort,
            lie => lie,
        };
        let sent = if lying { twisted(lie, body) } else { Twisted::Whole(body) };
        if !pass(&mut client, &answer_head, sent, over) {
            return;
        }
    }
}

enum Twisted {
    Whole(Vec<u8>),
    /// Of the length first given; then the connection ends.
    Cut(Vec<u8>, usize),
    Silence(Vec<u8>, usize),
}

fn twisted(lie: Lie, mut body: Vec<u8>) -> Twisted {
    let length = body.len();
    match lie {
        Lie::FlipOnTheWay => body[length / 2] ^= 4,
        Lie::FlipInMemory => body = reframed(&body),
        Lie::CutShort => {
            body.truncate(length / 2);
            return Twisted::Cut(body, length);
        }
        Lie::Stall => {
            body.truncate(length / 2);
            return Twisted::Silence(body, length);
        }
        Lie::SendMore => {
            let end = body.split_off(length - blocks::HEADER_BYTES);
            let offset = u64::from_le_bytes(end[8..16].try_into().unwrap());
            body.extend(blocks::header(offset, b"more"));
            body.extend(b"more");
            body.extend(blocks::end(offset + 4));
        }
        Lie::AnotherSize => body = changed(&body, |said| said["size_bytes"] = json!(said["size_bytes"].as_u64().unwrap() + 1)),
        Lie::AnotherHash => body = changed(&body, |said| said["blake3"] = json!("ab".repeat(32))),
        Lie::PoisonThenCut => unreachable!("it is one of the others by now"),
    }
    Twisted::Whole(body)
}

fn changed(body: &[u8], change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let mut said: Value = serde_json::from_slice(body).unwrap();
    change(&mut said);
    serde_json::to_vec(&said).unwrap()
}

fn reframed(body: &[u8]) -> Vec<u8> {
    let (mut decoder, mut bytes) = (Decoder::default(), Vec::new());
    decoder.push(body);
    while let Some(piece) = decoder.take().unwrap() {
        match piece {
            Piece::Block { offset, payload } => {
                let mut payload = payload.to_vec();
                payload[0] ^= 1;
                bytes.extend(blocks::header(offset, &payload));
                bytes.extend(payload);
            }
            Piece::End { offset } => bytes.extend(blocks::end(offset)),
        }
    }
    bytes
}

fn pass(client: &mut UnixStream, answer_head: &str, sent: Twisted, over: &AtomicBool) -> bool {
    let (body, length) = match &sent {
        Twisted::Whole(body) => (body, body.len()),
        Twisted::Cut(body, length) | Twisted::Silence(body, length) => (body, *length),
    };
    let kept = answer_head.lines().filter(|line| !line.is_empty()).filter(|line| {
        let line = line.to_lowercase();
        !line.starts_with("content-length") && !line.starts_with("connection") && !line.starts_with("transfer-encoding")
    });
    let head: String = kept.map(|line| format!("{line}\r\n")).collect();
    let whole = client.write_all(format!("{head}content-length: {length}\r\n\r\n").as_bytes()).and_then(|()| client.write_all(body));
    if let Twisted::Silence(..) = sent {
        while !over.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    whole.is_ok() && matches!(sent, Twisted::Whole(_))
}

/// Up to and with the empty line; `None` at the end of the stream. Requests here have no bodies.
fn head_of(stream: &mut UnixStream) -> Option<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return None,
        }
    }
    Some(String::from_utf8(head).unwrap())
}
