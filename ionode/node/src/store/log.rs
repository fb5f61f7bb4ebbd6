//! Frames of the commit log: how records lie in its file and how a file is read back. Knows bytes and offsets, not what records mean.
//!
//! The one rule: a frame that was acknowledged is read back or the node refuses to start; only the last, unacknowledged one may be cut.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use stager_core::error::ApiError;
use stager_core::record::Record;

use crate::failure::at;

pub const FILE_HEADER: &[u8; 8] = b"STGLOG1\n";
const FRAME_MAGIC: &[u8; 4] = b"STGF";
const FRAME_HEADER_BYTES: usize = 16;
const PAYLOAD_BYTES_MAX: usize = 256 << 20;

/// `STGF`, payload length (u32 LE), crc64nvme of the payload (u64 LE), payload: one JSON record a line.
pub fn frame(records: &[Record]) -> Vec<u8> {
    let mut payload = Vec::with_capacity(records.len() * 512);
    for record in records {
        serde_json::to_writer(&mut payload, record).expect("records are plain values");
        payload.push(b'\n');
    }
    assert!(payload.len() <= PAYLOAD_BYTES_MAX, "a frame is bounded");
    let mut bytes = Vec::with_capacity(FRAME_HEADER_BYTES + payload.len());
    bytes.extend_from_slice(FRAME_MAGIC);
    bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&crc_fast::crc64_nvme(&payload).to_le_bytes());
    bytes.extend_from_slice(&payload);
    bytes
}

/// What a log file says, and how many of its bytes are whole frames.
pub struct Readback {
    pub records: Vec<Record>,
    pub whole_bytes: u64,
    pub file_bytes: u64,
}

pub fn read(path: &Path) -> Result<Readback, ApiError> {
    let mut bytes = Vec::new();
    let mut file = File::open(path).map_err(at("opening", path))?;
    file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_end(&mut bytes)).map_err(at("reading", path))?;
    let file_bytes = bytes.len() as u64;
    if bytes.len() < FILE_HEADER.len() && FILE_HEADER.starts_with(&bytes) {
        return Ok(Readback { records: Vec::new(), whole_bytes: 0, file_bytes });
    }
    if !bytes.starts_with(FILE_HEADER) {
        return Err(corrupt(path, 0, "it does not begin as a log of this format"));
    }
    let mut records = Vec::new();
    let mut offset = FILE_HEADER.len();
    while let Some(payload) = payload_at(&bytes, offset) {
        for line in payload.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let record = serde_json::from_slice(line)
                .map_err(|error| corrupt(path, offset, &format!("a whole frame holds a record that is not understood ({error})")))?;
            records.push(record);
        }
        offset += FRAME_HEADER_BYTES + payload.len();
    }
    // Each frame is on disk before the next is begun, so a whole frame behind a broken one means damage, not a crash.
    if let Some(later) =
        (offset + 1..bytes.len()).filter(|at| bytes[*at..].starts_with(FRAME_MAGIC)).find(|at| payload_at(&bytes, *at).is_some())
    {
        return Err(corrupt(path, offset, &format!("a whole frame follows at byte {later}, so this one was acknowledged")));
    }
    Ok(Readback { records, whole_bytes: offset as u64, file_bytes })
}

fn payload_at(bytes: &[u8], offset: usize) -> Option<&[u8]> {
    let header = bytes.get(offset..offset + FRAME_HEADER_BYTES)?;
    if &header[..4] != FRAME_MAGIC {
        return None;
    }
    let length = u32::from_le_bytes(header[4..8].try_into().expect("4 bytes")) as usize;
    let crc = u64::from_le_bytes(header[8..16].try_into().expect("8 bytes"));
    let payload = bytes.get(offset + FRAME_HEADER_BYTES..offset + FRAME_HEADER_BYTES + length)?;
    (crc_fast::crc64_nvme(payload) == crc).then_some(payload)
}

fn corrupt(path: &Path, offset: usize, why: &str) -> ApiError {
    let subject = path.display().to_string();
    let message = format!(
        "the commit log {subject} is damaged at byte {offset}: {why}; restore it from a copy, or move the whole store away and start with an empty one"
    );
    ApiError::corrupt("checksum_mismatch", subject, message)
}
