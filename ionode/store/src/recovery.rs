//! Opening the log: which segments there are, where the index stands, what has to be taken in, and where writing goes on.
//!
//! The one rule: what was acknowledged is read back, or the log refuses to open and changes nothing.

use std::fs::{self, DirBuilder};
use std::io::Write;
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, RwLock, Weak};
use std::time::{Duration, Instant};

use stager_core::error::{ApiError, Code};

use crate::failure::at;
use crate::format::{SegmentHeader, SEGMENT_HEADER_BYTES};
use crate::index::{Applied, Change, Index, IndexCounters};
use crate::segments::{damaged, sync_directory, Frame, Scanner, Segment, Segments};
use crate::writer::Position;
use crate::{Counters, Health, Options, Shared, Sync};

/// Taken into the index at once while the log is read.
const ENTRIES_AT_ONCE: usize = 20_000;

/// What opening found.
#[derive(Clone, Debug, Default)]
pub struct Recovered {
    pub index_rebuilt: bool,
    /// Read from the log, because the index did not have them.
    pub frames: u64,
    pub entries: u64,
    /// Of a last frame that was never finished, so never acknowledged.
    pub cut_bytes: u64,
    pub took: Duration,
}

pub fn index_path(directory: &Path) -> PathBuf {
    directory.join("index")
}

/// Says by which boot of the system the index is open: after another one, a power cut may have torn it.
pub fn mark_path(directory: &Path) -> PathBuf {
    directory.join("index.open")
}

/// `acknowledged`: up to where nothing can be an unfinished write, where the caller knows more than the index.
pub fn open(directory: &Path, options: Options, acknowledged: Option<Applied>) -> Result<(Shared, Position, Recovered), ApiError> {
    let started = Instant::now();
    let below = directory.join("segments");
    DirBuilder::new().recursive(true).mode(0o700).create(&below).map_err(at("making", &below))?;
    let (segments, unfinished) = Segments::open(&below)?;
    for path in unfinished {
        fs::remove_file(&path).map_err(at("removing", &path))?;
    }
    let salt = common_salt(&segments)?;
    let Found { index, counters, rebuilt, acknowledged: by_index } = trusted_index(directory, &segments, options)?;
    let mut replay = Replay::new(&index, counters, acknowledged.unwrap_or(by_index));
    replay.recovered.index_rebuilt = rebuilt;
    replay.run(&segments)?;
    let Replay { counters, mut recovered, .. } = replay;
    let newest = segments.newest();
    let applied = counters.applied;
    let position = match newest.filter(|newest| newest.header.synced == (options.sync == Sync::Always)) {
        Some(active) => Position {
            length: active.length()?,
            sequence: applied.sequence.max(active.header.sequence),
            version: applied.version.max(active.header.version),
            active,
        },
        None => first_segment(&segments, salt, options, applied)?,
    };
    recovered.took = started.elapsed();
    let shared = Shared {
        directory: directory.to_owned(),
        options,
        segments,
        index: RwLock::new(Some(Arc::new(index))),
        index_before: Mutex::new(Weak::new()),
        index_counters: Mutex::new(counters),
        limits: Mutex::new([None; 256]),
        health: Mutex::new(Health::Ready),
        counters: Counters::default(),
        salt,
    };
    Ok((shared, position, recovered))
}

/// After the last writer: the index is whole on disk, and need not be looked through at the next start.
pub fn close(shared: &Shared) {
    let Ok(index) = shared.index() else { return };
    let mark = mark_path(&shared.directory);
    let closed = index.persist().and_then(|()| fs::remove_file(&mark).map_err(at("removing", &mark)));
    if let Err(error) = closed {
        tracing::warn!(%error, "the index could not be closed in order; it may be built anew at the next start");
    }
}

fn common_salt(segments: &Segments) -> Result<u64, ApiError> {
    let all = segments.from(0);
    let Some(first) = all.first() else { return Ok(random()) };
    match all.iter().find(|segment| segment.header.salt != first.header.salt) {
        Some(foreign) => Err(damaged(&foreign.path, 0, "it belongs to another store")),
        None => Ok(first.header.salt),
    }
}

fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    // The standard library seeds it from the system's random numbers.
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

struct Found {
    index: Index,
    counters: IndexCounters,
    rebuilt: bool,
    /// Up to where the index that was there had taken the log in: all of that was on disk, and acknowledged.
    acknowledged: Applied,
}

/// The index as it was left, if nothing speaks against it; else an empty one.
fn trusted_index(directory: &Path, segments: &Segments, options: Options) -> Result<Found, ApiError> {
    let boot = boot_id();
    let mark = mark_path(directory);
    let path = index_path(directory);
    let torn = fs::read_to_string(&mark).is_ok_and(|by| by != boot);
    let mut file = fs::OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&mark).map_err(at("making", &mark))?;
    file.write_all(boot.as_bytes()).and_then(|()| file.sync_all()).map_err(at("writing", &mark))?;
    sync_directory(directory)?;
    let mut acknowledged = Applied::default();
    if path.exists() {
        let opened = Index::open(&path, options.index_cache_bytes).and_then(|index| Ok((index.counters()?, index)));
        match opened {
            Ok((counters, index)) if !torn && is_covered(segments, &counters)? => {
                return Ok(Found { index, acknowledged: counters.applied, counters, rebuilt: false });
            }
            Ok((counters, _)) => {
                tracing::warn!(torn, "the index is of another boot, or knows more than the log has; it is built anew");
                acknowledged = counters.applied;
            }
            Err(error) => tracing::warn!(%error, "the index cannot be used; it is built anew"),
        }
    }
    let (index, counters) = empty_index(&path, options)?;
    Ok(Found { index, counters, rebuilt: segments.newest().is_some(), acknowledged })
}

fn empty_index(path: &Path, options: Options) -> Result<(Index, IndexCounters), ApiError> {
    if path.exists() {
        fs::remove_dir_all(path).map_err(at("removing", path))?;
    }
    Ok((Index::open(path, options.index_cache_bytes)?, IndexCounters::default()))
}

/// Whether the log reaches as far as the index says, and has every segment that the index counts on.
fn is_covered(segments: &Segments, counters: &IndexCounters) -> Result<bool, ApiError> {
    if counters.uses.iter().any(|(number, used)| used.live_bytes > 0 && segments.get(*number).is_none()) {
        return Ok(false);
    }
    match segments.get(counters.applied.segment) {
        Some(segment) => Ok(segment.length()? >= counters.applied.offset),
        None => Ok(true),
    }
}

/// Where it cannot be read, every start counts as one after a power cut.
fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_else(|_| format!("unknown {:x}", random()))
}

fn first_segment(segments: &Segments, salt: u64, options: Options, applied: Applied) -> Result<Position, ApiError> {
    let before = segments.newest().map(|segment| segment.header);
    let header = SegmentHeader {
        number: before.map_or(1, |before| before.number + 1),
        synced: options.sync == Sync::Always,
        salt,
        sequence: applied.sequence.max(before.map_or(0, |before| before.sequence)),
        version: applied.version.max(before.map_or(0, |before| before.version)),
    };
    let active = segments.begin(header)?;
    Ok(Position { active, length: SEGMENT_HEADER_BYTES, sequence: header.sequence, version: header.version })
}

/// Opens the index again after it failed, and takes in what the log has since.
pub fn reopen_index(shared: &Shared) -> Result<(), ApiError> {
    if shared.index_before.lock().expect("nobody panics here").strong_count() > 0 {
        return Err(ApiError::new(Code::IoError, "index", "the index that failed is still being read; it is opened again after that"));
    }
    let path = index_path(&shared.directory);
    let opened = Index::open(&path, shared.options.index_cache_bytes).and_then(|index| Ok((index.counters()?, index)));
    let (index, counters) = match opened {
        Ok((counters, index)) if is_covered(&shared.segments, &counters)? => (index, counters),
        _ => empty_index(&path, shared.options)?,
    };
    let acknowledged = shared.index_counters.lock().expect("nobody panics here").applied;
    let mut replay = Replay::new(&index, counters, acknowledged);
    replay.run(&shared.segments)?;
    *shared.index_counters.lock().expect("nobody panics here") = replay.counters;
    *shared.index.write().expect("nobody panics here") = Some(Arc::new(index));
    Ok(())
}

/// Bytes of a segment that are no whole frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    pub path: PathBuf,
    pub segment: u32,
    pub bytes: Range<u64>,
}

/// Takes frames of the log into the index, from where it stands.
pub struct Replay<'a> {
    index: &'a Index,
    pub counters: IndexCounters,
    pub recovered: Recovered,
    /// Pass over whatever is broken, change nothing, and tell it here.
    pub lenient: Option<Vec<Broken>>,
    acknowledged: Applied,
}

impl<'a> Replay<'a> {
    pub fn new(index: &'a Index, counters: IndexCounters, acknowledged: Applied) -> Self {
        Self { index, counters, recovered: Recovered::default(), lenient: None, acknowledged }
    }

    fn is_acknowledged(&self, segment: &Segment, offset: u64) -> bool {
        (segment.header.number, offset) <= (self.acknowledged.segment, self.acknowledged.offset)
    }

    pub fn run(&mut self, segments: &Segments) -> Result<(), ApiError> {
        let from = self.counters.applied;
        let all = segments.from(from.segment);
        for (at, segment) in all.iter().enumerate() {
            let start = if segment.header.number == from.segment { from.offset } else { SEGMENT_HEADER_BYTES };
            self.segment(segment, start.max(SEGMENT_HEADER_BYTES), at + 1 == all.len())?;
        }
        Ok(())
    }

    fn segment(&mut self, segment: &Segment, start: u64, newest: bool) -> Result<(), ApiError> {
        let mut scanner = Scanner::new(segment)?;
        let mut changes = Vec::new();
        let mut position = Applied { segment: segment.header.number, offset: start, ..self.counters.applied };
        position.sequence = position.sequence.max(segment.header.sequence);
        position.version = position.version.max(segment.header.version);
        while position.offset < scanner.file_bytes() {
            let found = scanner.frame_at(position.offset)?.filter(|frame| frame.sequence == position.sequence + 1);
            let last = found.as_ref().is_some_and(|frame| newest && frame.end == scanner.file_bytes());
            let whole = match &found {
                // A value that was acknowledged and has rotted is found by its reader; it takes nothing else with it.
                Some(frame) if last && !self.is_acknowledged(segment, frame.end) => segment.values_are_whole(frame)?,
                found => found.is_some(),
            };
            let Some(frame) = found.filter(|_| whole) else {
                match self.behind_the_broken(segment, &mut scanner, &position, newest)? {
                    Some(later) => {
                        position.offset = later.start;
                        position.sequence = later.sequence - 1;
                        continue;
                    }
                    None => break,
                }
            };
            self.recovered.frames += 1;
            position.offset = frame.end;
            position.sequence = frame.sequence;
            self.recovered.entries += frame.entries.len() as u64;
            let number = segment.header.number;
            changes.extend(frame.entries.into_iter().map(|(entry, range)| Change {
                entry,
                segment: number,
                offset: range.start,
                before: None,
            }));
            if changes.len() >= ENTRIES_AT_ONCE {
                self.index.apply(&mut self.counters, std::mem::take(&mut changes), position)?;
            }
        }
        self.index.apply(&mut self.counters, changes, position)
    }

    /// What to do about bytes that are no whole frame: cut them off (`None`), go on behind them, or refuse.
    fn behind_the_broken(
        &mut self,
        segment: &Segment,
        scanner: &mut Scanner<'_>,
        position: &Applied,
        newest: bool,
    ) -> Result<Option<Frame>, ApiError> {
        let later = scanner.later_frame(position.offset, position.sequence)?;
        let broken = position.offset..later.as_ref().map_or(scanner.file_bytes(), |later| later.start);
        if let Some(all) = &mut self.lenient {
            all.push(Broken { path: segment.path.clone(), segment: segment.header.number, bytes: broken });
            return Ok(later);
        }
        let broken_bytes = broken.end - broken.start;
        if segment.header.synced {
            // Each frame was on disk before the next was begun: behind an unfinished one there is nothing.
            if let Some(later) = &later {
                return Err(damaged(
                    &segment.path,
                    position.offset,
                    &format!("a whole frame follows at byte {}, so this one was acknowledged", later.start),
                ));
            }
            if !newest {
                return Err(damaged(&segment.path, position.offset, "a newer segment follows, so this one had been finished"));
            }
            if self.is_acknowledged(segment, position.offset + 1) {
                return Err(damaged(&segment.path, position.offset, "the index had it, so it was acknowledged"));
            }
        }
        tracing::warn!(segment = %segment.path.display(), at = position.offset, broken_bytes, "bytes of the log that were never synced are gone");
        self.recovered.cut_bytes += broken_bytes;
        if later.is_none() && newest {
            segment.file.set_len(position.offset).map_err(at("cutting", &segment.path))?;
            segment.file.sync_all().map_err(at("fsync of", &segment.path))?;
        }
        Ok(later)
    }
}
