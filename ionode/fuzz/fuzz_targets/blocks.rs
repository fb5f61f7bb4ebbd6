//! What a peer sends as blocks, cut anywhere: an answer, never a panic; what is handed on has its checksum; what we frame comes back.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stager_node::blocks::{self, Broken, Decoder, Parsed, Piece};

/// All pieces up to the end or what is wrong; the bytes arrive in parts of `step`.
fn taken(bytes: &[u8], step: usize) -> (Vec<Piece>, Option<Broken>, bool) {
    let mut decoder = Decoder::default();
    let mut pieces = Vec::new();
    for part in bytes.chunks(step.max(1)) {
        decoder.push(part);
        loop {
            match decoder.take() {
                Ok(Some(piece)) => pieces.push(piece),
                Ok(None) => break,
                Err(broken) => return (pieces, Some(broken), decoder.is_whole()),
            }
        }
    }
    (pieces, None, decoder.is_whole())
}

fuzz_target!(|bytes: &[u8]| {
    match blocks::parse(bytes) {
        Ok(Parsed::Needs(needed)) => assert!(needed > bytes.len()),
        Ok(Parsed::Block { offset, length }) => {
            let payload = &bytes[blocks::HEADER_BYTES..blocks::HEADER_BYTES + length];
            assert_eq!(blocks::header(offset, payload), bytes[..blocks::HEADER_BYTES]);
        }
        Ok(Parsed::End { offset }) => assert_eq!(blocks::end(offset), bytes[..blocks::HEADER_BYTES]),
        Err(_) => {}
    }
    assert_eq!(taken(bytes, bytes.len()).0, taken(bytes, 7).0, "where the bytes were cut changes nothing");
    // The same bytes as the content of two blocks, then one bit of them changed.
    let (first, second) = bytes.split_at(bytes.len() / 2);
    let mut framed = Vec::new();
    let payloads = [first, second].map(|payload| payload.to_vec());
    let mut offset = 5;
    for payload in payloads.iter().filter(|payload| !payload.is_empty()) {
        framed.extend(blocks::header(offset, payload));
        framed.extend(payload);
        offset += payload.len() as u64;
    }
    framed.extend(blocks::end(offset));
    let (pieces, broken, whole) = taken(&framed, 11);
    assert!(broken.is_none() && whole);
    let content: Vec<u8> =
        pieces.iter().flat_map(|piece| if let Piece::Block { payload, .. } = piece { payload.to_vec() } else { vec![] }).collect();
    assert_eq!(content, bytes);
    let at = bytes.iter().map(|&byte| byte as usize).sum::<usize>() % framed.len();
    framed[at] ^= 1;
    let (_, broken, whole) = taken(&framed, 11);
    assert!(broken.is_some() || !whole, "a changed bit was taken for the content");
});
