//! The framed content of internal traffic, `application/x-stager-blocks`: what nodes send one another. Pure functions over bytes.
//!
//! The one rule: a byte is handed on only from a whole block whose checksum is right, and a stream without its end mark is cut short.
//!
//! A block: `STGB`, length (u32 LE), offset of its first byte in the content (u64 LE), crc64nvme (u64 LE) of these 16 bytes and the payload,
//! payload. A block of length 0 is the end mark; its offset is where the range that was asked for ends.

use bytes::{Bytes, BytesMut};

pub const MEDIA_TYPE: &str = "application/x-stager-blocks";
pub const BLOCK_BYTES: usize = 1 << 20;
pub const BLOCK_BYTES_MAX: usize = 4 << 20;
pub const HEADER_BYTES: usize = 24;
const MAGIC: &[u8; 4] = b"STGB";
const CHECKED_HEADER_BYTES: usize = 16;

/// How many bytes a range takes as blocks of `BLOCK_BYTES`, its end mark included.
pub fn framed_bytes(range_bytes: u64) -> u64 {
    range_bytes + (range_bytes.div_ceil(BLOCK_BYTES as u64) + 1) * HEADER_BYTES as u64
}

pub fn header(offset: u64, payload: &[u8]) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..4].copy_from_slice(MAGIC);
    header[4..8].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    header[8..16].copy_from_slice(&offset.to_le_bytes());
    let crc = checksum(&header[..CHECKED_HEADER_BYTES], payload);
    header[CHECKED_HEADER_BYTES..].copy_from_slice(&crc.to_le_bytes());
    header
}

pub fn end(offset: u64) -> Bytes {
    Bytes::copy_from_slice(&header(offset, &[]))
}

fn checksum(header: &[u8], payload: &[u8]) -> u64 {
    let mut crc = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc64Nvme);
    crc.update(header);
    crc.update(payload);
    crc.finalize()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// It does not begin as a block, or says more than a block may hold.
    NoBlock,
    /// The block at this offset has another checksum.
    Checksum(u64),
    /// Bytes behind the end mark.
    AfterEnd,
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoBlock => f.write_str("its bytes are no block"),
            Self::Checksum(offset) => write!(f, "its block at byte {offset} does not have its checksum"),
            Self::AfterEnd => f.write_str("it sent more behind the end"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// No whole block is here yet: so many bytes are needed.
    Needs(usize),
    Block {
        offset: u64,
        length: usize,
    },
    End {
        offset: u64,
    },
}

/// What `bytes` begin with.
pub fn parse(bytes: &[u8]) -> Result<Parsed, Broken> {
    let seen = bytes.len().min(MAGIC.len());
    if bytes[..seen] != MAGIC[..seen] {
        return Err(Broken::NoBlock);
    }
    let Some(header) = bytes.get(..HEADER_BYTES) else { return Ok(Parsed::Needs(HEADER_BYTES)) };
    let length = said_length(header);
    let offset = u64::from_le_bytes(header[8..16].try_into().expect("8 bytes"));
    let crc = u64::from_le_bytes(header[16..24].try_into().expect("8 bytes"));
    if length > BLOCK_BYTES_MAX {
        return Err(Broken::NoBlock);
    }
    let Some(payload) = bytes.get(HEADER_BYTES..HEADER_BYTES + length) else { return Ok(Parsed::Needs(HEADER_BYTES + length)) };
    if checksum(&header[..CHECKED_HEADER_BYTES], payload) != crc {
        return Err(Broken::Checksum(offset));
    }
    Ok(if length == 0 { Parsed::End { offset } } else { Parsed::Block { offset, length } })
}

/// The length that a block says it has, whatever its checksum says; the block's header has to be there.
pub fn said_length(bytes: &[u8]) -> usize {
    u32::from_le_bytes(bytes[4..8].try_into().expect("4 bytes")) as usize
}

#[derive(Debug, PartialEq, Eq)]
pub enum Piece {
    Block { offset: u64, payload: Bytes },
    End { offset: u64 },
}

/// Takes bytes as they come and gives whole blocks. Holds less than one block and what came last.
#[derive(Default)]
pub struct Decoder {
    buffer: BytesMut,
    ended: bool,
}

impl Decoder {
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    pub fn take(&mut self) -> Result<Option<Piece>, Broken> {
        if self.ended {
            return if self.buffer.is_empty() { Ok(None) } else { Err(Broken::AfterEnd) };
        }
        match parse(&self.buffer)? {
            Parsed::Needs(needed) => {
                self.buffer.reserve(needed - self.buffer.len());
                Ok(None)
            }
            Parsed::Block { offset, length } => {
                let payload = self.buffer.split_to(HEADER_BYTES + length).freeze().slice(HEADER_BYTES..);
                Ok(Some(Piece::Block { offset, payload }))
            }
            Parsed::End { offset } => {
                let _ = self.buffer.split_to(HEADER_BYTES);
                self.ended = true;
                Ok(Some(Piece::End { offset }))
            }
        }
    }

    /// Whether the end mark came and nothing behind it.
    pub fn is_whole(&self) -> bool {
        self.ended && self.buffer.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn framed(payloads: &[Vec<u8>]) -> (Vec<u8>, u64) {
        let (mut bytes, mut offset) = (Vec::new(), 7);
        for payload in payloads.iter().filter(|payload| !payload.is_empty()) {
            bytes.extend(header(offset, payload));
            bytes.extend(payload);
            offset += payload.len() as u64;
        }
        bytes.extend(end(offset));
        (bytes, offset)
    }

    fn decoded(bytes: &[u8], step: usize) -> Result<(Vec<u8>, bool), Broken> {
        let (mut decoder, mut content) = (Decoder::default(), Vec::new());
        for part in bytes.chunks(step) {
            decoder.push(part);
            while let Some(piece) = decoder.take()? {
                if let Piece::Block { payload, .. } = piece {
                    content.extend(payload);
                }
            }
        }
        Ok((content, decoder.is_whole()))
    }

    proptest! {
        #[test]
        fn what_was_framed_comes_out_however_it_is_cut(payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 0..6), step in 1usize..90) {
            let (bytes, _) = framed(&payloads);
            prop_assert_eq!(decoded(&bytes, step).unwrap(), (payloads.concat(), true));
        }

        #[test]
        fn a_flipped_bit_or_a_cut_is_never_taken_for_whole(payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..50), 1..4), at in any::<prop::sample::Index>(), bit in 0u8..8) {
            let (mut bytes, _) = framed(&payloads);
            let at = at.index(bytes.len());
            let cut = decoded(&bytes[..at], 64).unwrap();
            prop_assert!(!cut.1 && payloads.concat().starts_with(&cut.0));
            bytes[at] ^= 1 << bit;
            if let Ok((content, whole)) = decoded(&bytes, 64) {
                prop_assert!(!whole && payloads.concat().starts_with(&content));
            }
        }

        #[test]
        fn no_bytes_break_the_parser(bytes in prop::collection::vec(any::<u8>(), 0..200), lead in 0usize..5) {
            let bytes = [&MAGIC[..lead.min(4)], &bytes].concat();
            let _ = parse(&bytes);
            let _ = decoded(&bytes, 16);
        }
    }

    #[test]
    fn bytes_behind_the_end_and_blocks_too_long_are_refused() {
        let (mut bytes, _) = framed(&[vec![1, 2, 3]]);
        bytes.push(b'S');
        assert_eq!(decoded(&bytes, 1000), Err(Broken::AfterEnd));
        let mut long = header(0, &[]).to_vec();
        long[4..8].copy_from_slice(&(BLOCK_BYTES_MAX as u32 + 1).to_le_bytes());
        assert_eq!(parse(&long), Err(Broken::NoBlock));
    }
}
