//! Packs for tests: sent as bytes, so that they can be damaged, and read as a client reads them.
//!
//! The one rule: what a node answers is read by the node's own reader, entry by entry.
#![allow(dead_code)]

use serde_json::{json, Value};
use stager_core::error::ApiError;
use stager_core::replica::ReplicaKey;
use stager_node::pack_format::{self, Answered, Ask, Reader, Writer};

use crate::host::*;

pub type Answer = Result<Answered, ApiError>;

pub fn key(file_id: &str) -> ReplicaKey {
    ReplicaKey::new(file_id, "g0")
}

pub fn put(file_id: &str, content: &[u8]) -> Ask {
    let blake3 = *blake3::hash(content).as_bytes();
    Ask::Put { key: key(file_id), executable: false, blake3, content: content.to_vec().into() }
}

pub fn pack(asks: &[Ask]) -> Vec<u8> {
    let mut writer = Writer::default();
    asks.iter().for_each(|ask| writer.ask(ask));
    writer.whole().to_vec()
}

/// The answers of a pack that was taken.
pub fn asked(node: &Host, asks: &[Ask]) -> Vec<Answer> {
    let answers = sent(node, &pack(asks));
    assert_eq!(answers.len(), asks.len());
    answers
}

pub fn sent(node: &Host, pack: &[u8]) -> Vec<Answer> {
    read(node.send_bytes("POST", "packs", pack))
}

/// The answers of puts that go on through a chain.
pub fn chained(node: &Host, asks: &[Ask], chain: &[&str], ack: &str) -> Vec<Answer> {
    let mut headers = node.headers();
    headers.push(("X-Stager-Replicas".into(), json!({"chain": chain, "ack": ack}).to_string()));
    read(node.send_raw("POST", "/v1/packs", &pack(asks), &headers))
}

fn read(reply: Option<Reply>) -> Vec<Answer> {
    let reply = reply.expect("the node answers");
    assert_eq!(reply.status, 200, "{}", String::from_utf8_lossy(&reply.body));
    let mut reader = Reader::new(usize::MAX);
    reader.push(&plain(&reply)).unwrap();
    let entries = reader.finish().unwrap();
    entries.into_iter().map(|entry| pack_format::said(&entry.expect("nothing was damaged")).expect("an answer")).collect()
}

/// The error of a pack that was refused as a whole.
pub fn refused(node: &Host, pack: &[u8]) -> (u16, Value) {
    let reply = node.send_bytes("POST", "packs", pack).expect("the node answers");
    (reply.status, reply.json())
}

/// A body without its chunks.
fn plain(reply: &Reply) -> Vec<u8> {
    if !reply.head.contains("transfer-encoding: chunked") {
        return reply.body.clone();
    }
    let (mut rest, mut bytes) = (&reply.body[..], Vec::new());
    loop {
        let line = rest.windows(2).position(|window| window == b"\r\n").expect("a chunk has a head");
        let length = usize::from_str_radix(std::str::from_utf8(&rest[..line]).unwrap(), 16).unwrap();
        if length == 0 {
            return bytes;
        }
        bytes.extend(&rest[line + 2..line + 2 + length]);
        rest = &rest[line + 4 + length..];
    }
}

/// The code of an entry that failed.
pub fn code(answer: &Answer) -> &str {
    answer.as_ref().map_or_else(|error| error.code.as_str(), |said| panic!("it was done: {said:?}"))
}
