//! The files of the segment log: which there are, how one is begun, read and ended. Knows bytes and frames, not what entries mean.
//!
//! The one rule: a segment is written only at its end, and only the newest one at all.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock, RwLockReadGuard};

use bytes::Bytes;
use stager_core::error::{ApiError, Code};

use crate::at_hand::{self, Buffer};
use crate::failure::at;
use crate::format::{FrameHeader, LogEntry, SegmentHeader, FRAME_HEADER_BYTES, FRAME_MAGIC, SEGMENT_HEADER_BYTES};

/// Longer values are not copied into one piece with the others: that costs more than a call to the system.
const WRITTEN_FROM_THEIR_PLACE_BYTES: usize = 32 << 10;

pub struct Segment {
    pub header: SegmentHeader,
    pub path: PathBuf,
    pub file: File,
}

impl Segment {
    /// A new file with its header; both are on disk when this returns, if `synced`.
    pub fn create(directory: &Path, header: SegmentHeader) -> Result<Self, ApiError> {
        let path = directory.join(file_name(header.number));
        let file = OpenOptions::new().create_new(true).read(true).write(true).mode(0o600).open(&path).map_err(at("making", &path))?;
        let begun = file.write_all_at(&header.to_bytes(), 0).map_err(at("writing", &path)).and_then(|()| match header.synced {
            true => file.sync_all().map_err(at("fsync of", &path)).and_then(|()| sync_directory(directory)),
            false => Ok(()),
        });
        if let Err(error) = begun {
            // Or the next try would find its name taken.
            fs::remove_file(&path).map_err(at("removing", &path))?;
            return Err(error);
        }
        Ok(Self { header, path, file })
    }

    /// `None`: its header was never finished, so nothing that was acknowledged can be in it.
    pub fn open(path: &Path) -> Result<Option<Self>, ApiError> {
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(at("opening", path))?;
        let mut bytes = [0; SEGMENT_HEADER_BYTES as usize];
        let length = file.metadata().map_err(at("stat of", path))?.len();
        if length < SEGMENT_HEADER_BYTES {
            return Ok(None);
        }
        file.read_exact_at(&mut bytes, 0).map_err(at("reading", path))?;
        let Some(header) = SegmentHeader::parse(&bytes) else {
            if length == SEGMENT_HEADER_BYTES {
                return Ok(None);
            }
            return Err(damaged(path, 0, "its header is not what was written"));
        };
        if file_name(header.number) != path.file_name().unwrap_or_default().to_string_lossy() {
            return Err(damaged(path, 0, "its name is not the one it was made with"));
        }
        Ok(Some(Self { header, path: path.to_owned(), file }))
    }

    /// A frame at the segment's end: its head, then its values. Returns where the segment ends now.
    pub fn append<'a>(&self, start: u64, head: Vec<u8>, values: impl Iterator<Item = &'a Bytes>) -> io::Result<u64> {
        let (mut at, mut waiting) = (start, head);
        let mut write = |bytes: &[u8]| {
            self.file.write_all_at(bytes, at)?;
            at += bytes.len() as u64;
            Ok::<u64, io::Error>(at)
        };
        for value in values {
            if value.len() < WRITTEN_FROM_THEIR_PLACE_BYTES {
                waiting.extend_from_slice(value);
                continue;
            }
            write(&waiting)?;
            waiting.clear();
            write(value)?;
        }
        write(&waiting)
    }

    pub fn length(&self) -> Result<u64, ApiError> {
        Ok(self.file.metadata().map_err(at("stat of", &self.path))?.len())
    }

    pub fn read(&self, offset: u64, length: usize) -> Result<Vec<u8>, ApiError> {
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, offset).map_err(at("reading", &self.path))?;
        Ok(bytes)
    }

    /// For whom memory that is used again will do.
    pub fn read_value(&self, offset: u64, length: usize) -> Result<Option<Buffer>, ApiError> {
        at_hand::waiting(&self.file, offset, length).map(Some).map_err(at("reading", &self.path))
    }

    /// `None` where the page cache has not all of it.
    pub fn read_at_hand(&self, offset: u64, length: usize) -> Result<Option<Buffer>, ApiError> {
        at_hand::now(&self.file, offset, length).map_err(at("reading", &self.path))
    }

    /// Whether every value of the frame has its checksum.
    pub fn values_are_whole(&self, frame: &Frame) -> Result<bool, ApiError> {
        for (entry, range) in &frame.entries {
            let value = self.read(range.start, (range.end - range.start) as usize)?;
            if crc_fast::crc64_nvme(&value) != entry.value_crc {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Reads a segment frame by frame, through a window: many small frames cost one call to the system.
pub struct Scanner<'a> {
    segment: &'a Segment,
    file_bytes: u64,
    window: Vec<u8>,
    window_at: u64,
}

const WINDOW_BYTES: u64 = 1 << 20;
/// Behind values that were passed over: more of them follow, and they are not read.
const SHORT_WINDOW_BYTES: u64 = 16 << 10;

impl<'a> Scanner<'a> {
    pub fn new(segment: &'a Segment) -> Result<Self, ApiError> {
        Ok(Self { segment, file_bytes: segment.length()?, window: Vec::new(), window_at: 0 })
    }
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    fn bytes(&mut self, offset: u64, length: u64) -> Result<&[u8], ApiError> {
        let window_end = self.window_at + self.window.len() as u64;
        if offset < self.window_at || offset + length > window_end {
            let window_bytes = if offset > window_end { SHORT_WINDOW_BYTES } else { WINDOW_BYTES };
            let wanted = length.max(window_bytes).min(self.file_bytes - offset);
            self.window = self.segment.read(offset, wanted as usize)?;
            self.window_at = offset;
        }
        let start = (offset - self.window_at) as usize;
        Ok(&self.window[start..start + length as usize])
    }

    /// The frame at `offset`; `None` if there is no whole one.
    pub fn frame_at(&mut self, offset: u64) -> Result<Option<Frame>, ApiError> {
        let (file_bytes, salt) = (self.file_bytes, self.segment.header.salt);
        if offset + FRAME_HEADER_BYTES > file_bytes {
            return Ok(None);
        }
        let header = FrameHeader::parse(self.bytes(offset, FRAME_HEADER_BYTES)?);
        let Some(header) = header.filter(|header| offset + header.frame_bytes() <= file_bytes) else { return Ok(None) };
        let Some(heads) = header.heads(salt, self.bytes(offset, header.values_offset())?) else { return Ok(None) };
        let placed = |range: Range<u64>| offset + range.start..offset + range.end;
        let entries = heads.into_iter().map(|(entry, range)| (entry, placed(range))).collect();
        Ok(Some(Frame { sequence: header.sequence, start: offset, end: offset + header.frame_bytes(), entries }))
    }

    /// The first whole frame behind `offset` that was written later than `sequence`.
    pub fn later_frame(&mut self, offset: u64, sequence: u64) -> Result<Option<Frame>, ApiError> {
        let mark_bytes = FRAME_MAGIC.len() as u64;
        let mut start = offset + 1;
        while start + FRAME_HEADER_BYTES <= self.file_bytes {
            let length = WINDOW_BYTES.min(self.file_bytes - start);
            let window = self.bytes(start, length)?;
            let marks = window.windows(FRAME_MAGIC.len()).enumerate().filter(|(_, bytes)| bytes == FRAME_MAGIC);
            let marks: Vec<u64> = marks.map(|(at, _)| start + at as u64).collect();
            for at in marks {
                if let Some(frame) = self.frame_at(at)?.filter(|frame| frame.sequence > sequence) {
                    return Ok(Some(frame));
                }
            }
            // The windows overlap, so that no mark is cut in two.
            start += (length - mark_bytes + 1).max(1);
        }
        Ok(None)
    }
}

/// A whole frame; ranges are those of the values in the segment's file.
pub struct Frame {
    pub sequence: u64,
    pub start: u64,
    pub end: u64,
    pub entries: Vec<(LogEntry, Range<u64>)>,
}

/// Says of a segment that bytes in it may be passed over, as if it had been written without syncing.
pub fn allow_gaps(segment: &Segment) -> Result<(), ApiError> {
    let header = SegmentHeader { synced: false, ..segment.header };
    segment.file.write_all_at(&header.to_bytes(), 0).map_err(at("writing", &segment.path))?;
    segment.file.sync_all().map_err(at("fsync of", &segment.path))
}

pub fn damaged(path: &Path, offset: u64, why: &str) -> ApiError {
    let subject = path.display().to_string();
    let message = format!(
        "the log segment {subject} is damaged at byte {offset}: {why}; nothing was changed. `stager-ionode fsck` tells what is lost and can \
         repair the rest, or restore the store from a copy"
    );
    ApiError::new(Code::ChecksumMismatch, subject, message)
}

pub fn sync_directory(path: &Path) -> Result<(), ApiError> {
    File::open(path).and_then(|directory| directory.sync_all()).map_err(at("fsync of", path))
}

fn file_name(number: u32) -> String {
    format!("{number:010}.seg")
}

/// All segments that can be read now.
pub struct Segments {
    directory: PathBuf,
    by_number: RwLock<BTreeMap<u32, Arc<Segment>>>,
}

impl Segments {
    /// What is in `directory`, and files whose header was never finished.
    pub fn open(directory: &Path) -> Result<(Self, Vec<PathBuf>), ApiError> {
        let mut by_number = BTreeMap::new();
        let mut unfinished = Vec::new();
        for entry in fs::read_dir(directory).map_err(at("listing", directory))? {
            let path = entry.map_err(at("listing", directory))?.path();
            if path.extension().is_none_or(|extension| extension != "seg") {
                continue;
            }
            match Segment::open(&path)? {
                Some(segment) => {
                    by_number.insert(segment.header.number, Arc::new(segment));
                }
                None => unfinished.push(path),
            }
        }
        Ok((Self { directory: directory.to_owned(), by_number: RwLock::new(by_number) }, unfinished))
    }

    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<u32, Arc<Segment>>> {
        self.by_number.read().expect("nobody panics here")
    }

    pub fn get(&self, number: u32) -> Option<Arc<Segment>> {
        self.read().get(&number).cloned()
    }
    pub fn newest(&self) -> Option<Arc<Segment>> {
        self.read().last_key_value().map(|(_, segment)| segment.clone())
    }
    pub fn oldest_number(&self) -> Option<u32> {
        self.read().first_key_value().map(|(number, _)| *number)
    }

    /// With this number or a higher one, in order.
    pub fn from(&self, number: u32) -> Vec<Arc<Segment>> {
        self.read().range(number..).map(|(_, segment)| segment.clone()).collect()
    }

    pub fn begin(&self, header: SegmentHeader) -> Result<Arc<Segment>, ApiError> {
        let segment = Arc::new(Segment::create(&self.directory, header)?);
        self.by_number.write().expect("nobody panics here").insert(header.number, segment.clone());
        Ok(segment)
    }

    /// Whoever reads it still may go on; its space comes back when the last one is done.
    pub fn remove(&self, number: u32) -> Result<(), ApiError> {
        let Some(segment) = self.get(number) else { return Ok(()) };
        fs::remove_file(&segment.path).map_err(at("removing", &segment.path))?;
        self.by_number.write().expect("nobody panics here").remove(&number);
        Ok(())
    }

    pub fn disk_bytes(&self) -> u64 {
        self.read().values().map(|segment| segment.length().unwrap_or(0)).sum()
    }
}
