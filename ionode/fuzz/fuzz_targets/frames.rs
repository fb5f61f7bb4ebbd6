//! Headers and frames of the segment log from any bytes: an answer, never a panic; what is believed is what was written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stager_store::format::{self, FrameHeader, Kind, LogEntry, SegmentHeader};

fuzz_target!(|bytes: &[u8]| {
    let _ = SegmentHeader::parse(bytes);
    if let Some(header) = FrameHeader::parse(bytes) {
        if let Some(entries) = header.heads(1, bytes) {
            assert!(entries.iter().all(|(_, range)| range.end <= header.frame_bytes()));
        }
    }
    // The same bytes as the parts of a frame come back as they were.
    let (key, meta) = bytes.split_at(bytes.len().min(200) / 2);
    let meta = &meta[..meta.len().min(1000)];
    let entry = LogEntry {
        kind: Kind::Put,
        table: bytes.first().copied().unwrap_or(0),
        key: key.to_vec(),
        meta: meta.to_vec(),
        version: bytes.len() as u64,
        weight_bytes: 7,
        value_bytes: bytes.len() as u32,
        value_crc: 3,
    };
    let (mut frame, _) = format::frame(9, 1, std::iter::once(&entry));
    frame.extend_from_slice(bytes);
    let read = FrameHeader::parse(&frame).and_then(|header| header.heads(9, &frame)).expect("a frame that was just made");
    assert_eq!(read[0].0, entry);
});
