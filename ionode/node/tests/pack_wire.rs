//! The format of packs: the golden ones of tests/conformance/packs, byte by byte, and whatever else can be said.
//!
//! The one rule: what was written is read back the same, and nothing else is read as a pack.

use std::path::PathBuf;

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{json, Value};
use stager_core::error::{ApiError, Code};
use stager_core::replica::{ReplicaKey, ReplicaKind, ReplicaState};
use stager_node::pack_format::{ask, said, About, Answered, Ask, Reader, Writer};
use stager_node::wire::NotHeld;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn golden(name: &str) -> Value {
    let directory = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("run by cargo")).join("../../tests/conformance/packs");
    serde_json::from_slice(&std::fs::read(directory.join(name)).unwrap()).unwrap()
}

fn key(file_id: &str) -> ReplicaKey {
    ReplicaKey::new(file_id, "g-1")
}

fn entries(bytes: &[u8]) -> Vec<Bytes> {
    let mut reader = Reader::new(bytes.len());
    reader.push(bytes).unwrap();
    reader.finish().unwrap().into_iter().map(|entry| entry.expect("whole")).collect()
}

#[test]
fn a_request_is_the_golden_one() {
    let content = Bytes::from_static(b"hello");
    let asks = [
        Ask::Put { key: key("f-1"), executable: true, blake3: *blake3::hash(&content).as_bytes(), content },
        Ask::Get(key("f-2")),
        Ask::Stat(key("f-3")),
        Ask::Delete(key("f-4")),
    ];
    let mut writer = Writer::default();
    asks.iter().for_each(|ask| writer.ask(ask));
    let bytes = writer.whole();
    let told = json!({"entries": ["put f-1 g-1, executable: hello", "get f-2 g-1", "stat f-3 g-1", "delete f-4 g-1"], "hex": hex(&bytes)});
    assert_eq!(told, golden("request.json"));
    assert_eq!(entries(&bytes).iter().map(|entry| ask(entry).unwrap()).collect::<Vec<_>>(), asks);
}

#[test]
fn an_answer_is_the_golden_one() {
    let about = About {
        kind: ReplicaKind::File,
        state: ReplicaState::Present,
        executable: true,
        striped: false,
        size_bytes: 5,
        blake3: *blake3::hash(b"hello").as_bytes(),
        crc64nvme: 0x0123_4567_89ab_cdef,
        sha256: Some([0xab; 32]),
        token: Some("m=1;s=5".into()),
    };
    let stat = About { sha256: None, token: None, executable: false, state: ReplicaState::Quarantined, ..about.clone() };
    let error = ApiError::new(Code::ReplicaUnknown, "f-4", "there is no replica f-4 g-1 on this node");
    let answers = [
        Ok(Answered::Put { already: true, missing: vec![] }),
        Ok(Answered::Put { already: false, missing: vec![NotHeld { node_id: "b".into(), error: error.clone() }] }),
        Ok(Answered::Got(about, Bytes::from_static(b"hello"))),
        Ok(Answered::Stat(stat)),
        Ok(Answered::Deleted),
        Err(error),
    ];
    let mut writer = Writer::default();
    for answer in &answers {
        match answer {
            Ok(said) => writer.say(said),
            Err(error) => writer.fail(error),
        }
    }
    let bytes = writer.whole();
    let told = json!({"entries": ["put, was here already", "put, not on b: replica_unknown", "got hello, executable, sha256 ab.., token m=1;s=5", "stat, quarantined", "deleted", "error replica_unknown"],
        "hex": hex(&bytes)});
    assert_eq!(told, golden("answer.json"));
    assert_eq!(entries(&bytes).iter().map(|entry| said(entry).unwrap()).collect::<Vec<_>>(), answers);
}

fn any_ask() -> impl Strategy<Value = Ask> {
    let id = "[A-Za-z0-9._-]{1,128}";
    let key = (id, id).prop_map(|(file_id, generation)| ReplicaKey { file_id, generation });
    let content = prop::collection::vec(any::<u8>(), 0..300);
    (key, 0..4u8, any::<bool>(), any::<[u8; 32]>(), content).prop_map(|(key, op, executable, blake3, content)| match op {
        0 => Ask::Put { key, executable, blake3, content: content.into() },
        1 => Ask::Get(key),
        2 => Ask::Stat(key),
        _ => Ask::Delete(key),
    })
}

proptest! {
    #[test]
    fn what_was_asked_is_read_however_it_is_cut(asks in prop::collection::vec(any_ask(), 0..8), step in 1usize..200) {
        let mut writer = Writer::default();
        asks.iter().for_each(|ask| writer.ask(ask));
        let bytes = writer.whole();
        let mut reader = Reader::new(bytes.len());
        bytes.chunks(step).for_each(|part| reader.push(part).unwrap());
        let read: Vec<Ask> = reader.finish().unwrap().iter().map(|entry| ask(entry.as_ref().unwrap()).unwrap()).collect();
        prop_assert_eq!(read, asks);
    }

    #[test]
    fn a_flipped_bit_is_never_taken_for_what_was_asked(asks in prop::collection::vec(any_ask(), 1..6), at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let mut writer = Writer::default();
        asks.iter().for_each(|ask| writer.ask(ask));
        let mut bytes = writer.whole().to_vec();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        let mut reader = Reader::new(bytes.len());
        let read = reader.push(&bytes).and_then(|()| reader.finish());
        if let Ok(entries) = read {
            prop_assert_eq!(entries.len(), asks.len());
            prop_assert_eq!(entries.iter().filter(|entry| entry.is_none()).count(), 1);
            for (entry, asked) in entries.iter().zip(&asks) {
                prop_assert!(entry.as_ref().is_none_or(|entry| ask(entry).unwrap() == *asked));
            }
        }
    }

    #[test]
    fn a_reader_holds_no_more_than_it_was_told_to(asks in prop::collection::vec(any_ask(), 1..6)) {
        let mut writer = Writer::default();
        asks.iter().for_each(|ask| writer.ask(ask));
        let bytes = writer.whole();
        prop_assert!(Reader::new(bytes.len() - 1).push(&bytes).is_err());
    }
}
