//! How the segment log lies on disk: segment headers, frames, entries. A pure function of bytes; knows no files.
//!
//! The one rule: whatever the bytes are, parsing ends in an answer; only what has its checksum is believed.

use std::ops::Range;

pub const SEGMENT_MAGIC: &[u8; 8] = b"STGSEG2\n";
pub const SEGMENT_HEADER_BYTES: u64 = 48;
pub const FRAME_MAGIC: &[u8; 4] = b"SGF2";
pub const FRAME_HEADER_BYTES: u64 = 40;
pub const ENTRY_HEAD_BYTES: u64 = 40;
pub const KEY_BYTES_MAX: usize = 4096;
pub const META_BYTES_MAX: usize = 1 << 20;
/// Of one frame, heads and values together: what a reader has to hold at once.
pub const FRAME_BYTES_MAX: u64 = 80 << 20;

/// What an entry says of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Put,
    Delete,
    /// The value that was put does not have its content any more.
    Quarantine,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Put),
            2 => Some(Self::Delete),
            3 => Some(Self::Quarantine),
            _ => None,
        }
    }

    fn byte(self) -> u8 {
        match self {
            Self::Put => 1,
            Self::Delete => 2,
            Self::Quarantine => 3,
        }
    }
}

/// One entry without its value: the value lies in the values part of the frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    pub kind: Kind,
    pub table: u8,
    pub key: Vec<u8>,
    pub meta: Vec<u8>,
    pub version: u64,
    /// What the entry counts for in the totals of its table.
    pub weight_bytes: u64,
    pub value_bytes: u32,
    pub value_crc: u64,
}

impl LogEntry {
    /// What it takes in the log.
    pub fn log_bytes(&self) -> u64 {
        ENTRY_HEAD_BYTES + (self.key.len() + self.meta.len()) as u64 + u64::from(self.value_bytes)
    }

    fn write_to(&self, heads: &mut Vec<u8>) {
        heads.push(self.kind.byte());
        heads.push(self.table);
        heads.extend_from_slice(&(self.key.len() as u16).to_le_bytes());
        heads.extend_from_slice(&(self.meta.len() as u32).to_le_bytes());
        heads.extend_from_slice(&self.value_bytes.to_le_bytes());
        heads.extend_from_slice(&[0; 4]);
        heads.extend_from_slice(&self.version.to_le_bytes());
        heads.extend_from_slice(&self.weight_bytes.to_le_bytes());
        heads.extend_from_slice(&self.value_crc.to_le_bytes());
        heads.extend_from_slice(&self.key);
        heads.extend_from_slice(&self.meta);
    }
}

/// `number` is in the file's name too; `synced`: each frame was on disk before the next was begun. `salt` is the store's own random
/// number, part of every frame's checksum: a frame inside of somebody's value is never taken for one of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    pub number: u32,
    pub synced: bool,
    pub salt: u64,
    /// Of the last frame and of the newest entry before this segment: neither is ever given twice, whatever was collected since.
    pub sequence: u64,
    pub version: u64,
}

impl SegmentHeader {
    pub fn to_bytes(self) -> [u8; SEGMENT_HEADER_BYTES as usize] {
        let mut bytes = [0; SEGMENT_HEADER_BYTES as usize];
        bytes[..8].copy_from_slice(SEGMENT_MAGIC);
        bytes[8..12].copy_from_slice(&self.number.to_le_bytes());
        bytes[12] = u8::from(self.synced);
        bytes[16..24].copy_from_slice(&self.salt.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.version.to_le_bytes());
        let crc = crc_fast::crc64_nvme(&bytes[..40]);
        bytes[40..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..SEGMENT_HEADER_BYTES as usize)?;
        let whole = bytes.starts_with(SEGMENT_MAGIC) && crc_fast::crc64_nvme(&bytes[..40]) == u64_at(bytes, 40);
        whole.then(|| Self {
            number: u32_at(bytes, 8),
            synced: bytes[12] == 1,
            salt: u64_at(bytes, 16),
            sequence: u64_at(bytes, 24),
            version: u64_at(bytes, 32),
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    pub heads_bytes: u32,
    pub entries: u32,
    pub values_bytes: u64,
    /// Counts frames over the whole life of the store.
    pub sequence: u64,
    crc: u64,
}

impl FrameHeader {
    /// Believed only with its heads: `heads` checks the checksum over both.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..FRAME_HEADER_BYTES as usize)?;
        if !bytes.starts_with(FRAME_MAGIC) {
            return None;
        }
        let header = Self {
            heads_bytes: u32_at(bytes, 8),
            entries: u32_at(bytes, 12),
            values_bytes: u64_at(bytes, 16),
            sequence: u64_at(bytes, 24),
            crc: u64_at(bytes, 32),
        };
        let plausible = header.body_bytes().is_some_and(|length| length <= FRAME_BYTES_MAX)
            && u64::from(header.entries) * ENTRY_HEAD_BYTES <= u64::from(header.heads_bytes);
        plausible.then_some(header)
    }

    fn body_bytes(&self) -> Option<u64> {
        u64::from(self.heads_bytes).checked_add(self.values_bytes)
    }

    /// Header, heads and values.
    pub fn frame_bytes(&self) -> u64 {
        FRAME_HEADER_BYTES + u64::from(self.heads_bytes) + self.values_bytes
    }

    /// Where the values begin, from the start of the frame.
    pub fn values_offset(&self) -> u64 {
        FRAME_HEADER_BYTES + u64::from(self.heads_bytes)
    }

    /// The entries, if header and heads (`bytes` holds both) are what was written; each with the range of its value from the start of
    /// the frame.
    pub fn heads(&self, salt: u64, bytes: &[u8]) -> Option<Vec<(LogEntry, Range<u64>)>> {
        let end = self.values_offset() as usize;
        let heads = bytes.get(FRAME_HEADER_BYTES as usize..end)?;
        if checksum(salt, &bytes[..FRAME_HEADER_BYTES as usize], heads) != self.crc {
            return None;
        }
        let mut entries = Vec::with_capacity(self.entries as usize);
        let (mut rest, mut value_at) = (heads, self.values_offset());
        for _ in 0..self.entries {
            let (entry, after) = parse_entry(rest)?;
            let value_end = value_at.checked_add(u64::from(entry.value_bytes))?;
            entries.push((entry, value_at..value_end));
            (rest, value_at) = (after, value_end);
        }
        (rest.is_empty() && value_at == self.frame_bytes()).then_some(entries)
    }
}

fn parse_entry(bytes: &[u8]) -> Option<(LogEntry, &[u8])> {
    let head = bytes.get(..ENTRY_HEAD_BYTES as usize)?;
    let key_end = ENTRY_HEAD_BYTES as usize + usize::from(u16::from_le_bytes([head[2], head[3]]));
    let meta_end = key_end.checked_add(u32_at(head, 4) as usize)?;
    let entry = LogEntry {
        kind: Kind::from_byte(head[0])?,
        table: head[1],
        key: bytes.get(ENTRY_HEAD_BYTES as usize..key_end)?.to_vec(),
        meta: bytes.get(key_end..meta_end)?.to_vec(),
        value_bytes: u32_at(head, 8),
        version: u64_at(head, 16),
        weight_bytes: u64_at(head, 24),
        value_crc: u64_at(head, 32),
    };
    Some((entry, &bytes[meta_end..]))
}

/// What of a frame goes to disk in front of the values, which follow one after the other, and where each of them begins in the frame.
pub fn frame<'a>(salt: u64, sequence: u64, entries: impl ExactSizeIterator<Item = &'a LogEntry> + Clone) -> (Vec<u8>, Vec<u64>) {
    let mut heads = Vec::new();
    entries.clone().for_each(|entry| entry.write_to(&mut heads));
    let values_bytes: u64 = entries.clone().map(|entry| u64::from(entry.value_bytes)).sum();
    let mut bytes = Vec::with_capacity(FRAME_HEADER_BYTES as usize + heads.len());
    bytes.extend_from_slice(FRAME_MAGIC);
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&(heads.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&(entries.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&values_bytes.to_le_bytes());
    bytes.extend_from_slice(&sequence.to_le_bytes());
    bytes.extend_from_slice(&[0; 8]);
    let crc = checksum(salt, &bytes, &heads);
    bytes[32..40].copy_from_slice(&crc.to_le_bytes());
    bytes.extend_from_slice(&heads);
    let mut begins = bytes.len() as u64;
    let mut offsets = Vec::with_capacity(entries.len());
    for entry in entries {
        offsets.push(begins);
        begins += u64::from(entry.value_bytes);
    }
    (bytes, offsets)
}

/// Of the salt, a frame's header up to its own checksum, and its heads. Values carry their own.
fn checksum(salt: u64, header: &[u8], heads: &[u8]) -> u64 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc64Nvme);
    digest.update(&salt.to_le_bytes());
    digest.update(&header[..32]);
    digest.update(heads);
    digest.finalize()
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(key: &[u8], value: &[u8]) -> LogEntry {
        LogEntry {
            kind: Kind::Put,
            table: 3,
            key: key.to_vec(),
            meta: b"meta".to_vec(),
            version: 7,
            weight_bytes: 9,
            value_bytes: value.len() as u32,
            value_crc: crc_fast::crc64_nvme(value),
        }
    }

    #[test]
    fn a_frame_is_read_as_it_was_written() {
        let (one, two) = (entry(b"a", b"first"), entry(b"\xff\0b", b""));
        let (mut bytes, offsets) = frame(5, 42, [&one, &two].into_iter());
        bytes.extend_from_slice(b"first");
        let header = FrameHeader::parse(&bytes).unwrap();
        assert_eq!((header.sequence, header.frame_bytes()), (42, bytes.len() as u64));
        assert!(header.heads(6, &bytes).is_none(), "a frame of another store");
        let read = header.heads(5, &bytes).unwrap();
        assert_eq!(read[0], (one, offsets[0]..offsets[0] + 5));
        assert_eq!(read[1].0, two);
        assert_eq!(&bytes[read[0].1.start as usize..read[0].1.end as usize], b"first");
    }

    #[test]
    fn segment_headers_hold_their_number() {
        let header = SegmentHeader { number: 77, synced: true, salt: 9, sequence: 3, version: 4 };
        assert_eq!(SegmentHeader::parse(&header.to_bytes()), Some(header));
        let mut bytes = header.to_bytes();
        bytes[9] ^= 1;
        assert_eq!(SegmentHeader::parse(&bytes), None);
    }

    proptest! {
        #[test]
        fn any_flipped_bit_before_the_values_is_seen(at in 0usize..2000, bit in 0u8..8) {
            let (one, two) = (entry(b"some key", b"value"), entry(b"another", b"x"));
            let (mut bytes, _) = frame(5, 1, [&one, &two].into_iter());
            bytes.extend_from_slice(b"valuex");
            let heads_end = FrameHeader::parse(&bytes).unwrap().values_offset() as usize;
            let at = at % heads_end;
            bytes[at] ^= 1 << bit;
            let read = FrameHeader::parse(&bytes).and_then(|header| header.heads(5, &bytes));
            prop_assert!(read.is_none());
        }

        #[test]
        fn garbage_is_answered(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut framed = FRAME_MAGIC.to_vec();
            framed.extend(&bytes);
            for bytes in [&bytes, &framed] {
                let _ = SegmentHeader::parse(bytes);
                if let Some(header) = FrameHeader::parse(bytes) {
                    let _ = header.heads(5, bytes);
                }
            }
        }
    }
}
