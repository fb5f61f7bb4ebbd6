//! Reading a store of format 1, whose commit log was frames of JSON records, and writing it as format 2. Knows bytes and records.
//!
//! The one rule: the old log is only read, and kept beside the new one; until the new format is written whole, the store is still the old.

use std::fs;
use std::path::{Path, PathBuf};

use stager_core::error::{ApiError, Code};
use stager_core::index::Index;
use stager_core::record::Record;
use stager_store::{Log, Options};

use super::tables;
use crate::failure::at;

const FILE_HEADER: &[u8; 8] = b"STGLOG1\n";
const FRAME_MAGIC: &[u8; 4] = b"STGF";
const FRAME_HEADER_BYTES: usize = 16;
const OPS_AT_ONCE: usize = 1000;

/// Writes what the log of format 1 says into the segment log; what an interrupted upgrade left of that is made anew.
pub fn from_format_1(root: &Path, options: Options) -> Result<(), ApiError> {
    for below in ["segments", "index"] {
        crate::sandbox::folder::remove_tree(&root.join(below)).map_err(at("removing", &root.join(below)))?;
    }
    let mut index = Index::new(0);
    if let Some(path) = newest_log(root)? {
        read(&path)?.iter().for_each(|record| index.apply(record));
    }
    let records = index.records();
    let (log, _) = Log::open(root, options)?;
    for records in records.chunks(OPS_AT_ONCE) {
        log.write_all_blocking(records.iter().flat_map(tables::ops).collect())?;
    }
    tracing::info!(records = records.len(), "the store is being upgraded from format 1 to format 2");
    Ok(())
}

/// The old log under a name that nobody takes for a log; whoever goes back to the older version renames it.
pub fn put_aside(root: &Path) -> Result<(), ApiError> {
    let old = root.join("log");
    match old.exists() {
        true => fs::rename(&old, root.join("log.format1")).map_err(at("renaming", &old)),
        false => Ok(()),
    }
}

/// The log with the highest number; lower ones were replaced by it.
fn newest_log(root: &Path) -> Result<Option<PathBuf>, ApiError> {
    let directory = root.join("log");
    if !directory.exists() {
        return Ok(None);
    }
    let entries = super::files::list(&directory)?;
    let newest = entries.iter().filter_map(|entry| entry.strip_suffix(".log")?.parse::<u64>().ok()).max();
    Ok(newest.map(|number| directory.join(format!("{number:08}.log"))))
}

/// The records of all whole frames; an unfinished last one was never acknowledged.
fn read(path: &Path) -> Result<Vec<Record>, ApiError> {
    let bytes = fs::read(path).map_err(at("reading", path))?;
    if bytes.len() < FILE_HEADER.len() && FILE_HEADER.starts_with(&bytes) {
        return Ok(Vec::new());
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
    // Each frame was on disk before the next was begun, so a whole frame behind a broken one means damage, not a crash.
    if let Some(later) =
        (offset + 1..bytes.len()).filter(|at| bytes[*at..].starts_with(FRAME_MAGIC)).find(|at| payload_at(&bytes, *at).is_some())
    {
        return Err(corrupt(path, offset, &format!("a whole frame follows at byte {later}, so this one was acknowledged")));
    }
    Ok(records)
}

/// `STGF`, payload length (u32 LE), crc64nvme of the payload (u64 LE), payload: one JSON record a line.
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
    ApiError::new(Code::ChecksumMismatch, subject, message)
}
