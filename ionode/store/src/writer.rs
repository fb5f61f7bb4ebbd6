//! The one writer of the log: decides each operation by the newest state of its key, joins all that wait into one frame, one fsync.
//!
//! The one rule: a caller is answered as done only when its frame is on disk and in the index.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use stager_core::error::{ApiError, Code};
use tokio::sync::oneshot;

use crate::failure::{at, is_full};
use crate::format::{self, Kind, LogEntry, SegmentHeader, KEY_BYTES_MAX, META_BYTES_MAX};
use crate::index::{self, Applied, Change, Index, Stat, Totals};
use crate::recovery;
use crate::segments::{sync_directory, Segment};
use crate::{Done, Health, Op, Shared, Sync, When};

/// A group ends when it holds so much; a single larger submission is a group by itself.
const GROUP_BYTES: usize = 8 << 20;
const GROUP_OPS: usize = 20_000;
const SUBMISSION_BYTES_MAX: usize = 64 << 20;
/// How long a disk that fails is left alone before it is tried again.
const MEND_EVERY: Duration = Duration::from_secs(1);

pub type Answer = Result<Vec<Done>, ApiError>;

pub struct Submission {
    pub ops: Vec<Op>,
    /// All or none.
    pub whole: bool,
    /// To be synced before the frame is written.
    pub directories: Vec<PathBuf>,
    pub answer: oneshot::Sender<Answer>,
}

/// An entry that the collector saw at this place: it is written again if it is still the newest of its key.
pub struct Moving {
    pub entry: LogEntry,
    pub value: Bytes,
    pub segment: u32,
    pub offset: u64,
}

pub enum Message {
    Write(Submission),
    Move {
        moving: Vec<Moving>,
        answer: oneshot::Sender<Result<(), ApiError>>,
    },
    /// The segment holds nothing that counts any more.
    Drop {
        segment: u32,
        answer: oneshot::Sender<Result<(), ApiError>>,
    },
    /// The newest segment is mostly garbage: what comes goes into a new one.
    RollOver {
        answer: oneshot::Sender<Result<(), ApiError>>,
    },
    Stop,
}

pub fn gone() -> ApiError {
    ApiError::new(Code::Draining, "log", "the node is ending; ask it again when it has been started again")
}

/// What no disk could take.
pub fn check(ops: &[Op]) -> Result<(), ApiError> {
    let mut together = 0;
    for op in ops {
        let (key, meta, value) = match op {
            Op::Put { key, meta, value, .. } => (key, meta.len(), value.len()),
            Op::Delete { key, .. } | Op::Quarantine { key, .. } => (key, 0, 0),
        };
        if key.len() > KEY_BYTES_MAX || meta > META_BYTES_MAX {
            let subject = String::from_utf8_lossy(&key[..key.len().min(200)]).into_owned();
            let message =
                format!("a name of {} bytes with {meta} bytes of metadata is more than {KEY_BYTES_MAX} and {META_BYTES_MAX}", key.len());
            return Err(ApiError::new(Code::BadRequest, subject, message));
        }
        together += key.len() + meta + value + format::ENTRY_HEAD_BYTES as usize;
    }
    if together > SUBMISSION_BYTES_MAX {
        let message = format!("{together} bytes in one write are more than {SUBMISSION_BYTES_MAX}; write in several steps");
        return Err(ApiError::new(Code::BadRequest, "log", message));
    }
    Ok(())
}

/// Where the log ends.
pub struct Position {
    pub active: Arc<Segment>,
    pub length: u64,
    pub sequence: u64,
    pub version: u64,
}

pub struct Writer {
    shared: Arc<Shared>,
    position: Position,
    unsynced_since: Option<Instant>,
    mend_after: Instant,
}

type Name = (u8, Vec<u8>);

/// An entry to be written, with what its key is in the index.
struct Chosen {
    entry: LogEntry,
    value: Bytes,
    before: Option<Option<Stat>>,
}

/// Entries chosen so far, and what their keys are after them.
#[derive(Default)]
struct Group {
    entries: Vec<Chosen>,
    states: HashMap<Name, Option<Stat>>,
    totals: HashMap<u8, Totals>,
    directories: BTreeSet<PathBuf>,
    /// What the states were before each entry of the submission at hand; the inner `None`: not known to the group.
    undo: Vec<(Name, Option<Option<Stat>>)>,
}

impl Group {
    fn roll_back(&mut self, entries: usize, totals: HashMap<u8, Totals>) {
        self.entries.truncate(entries);
        self.totals = totals;
        for (name, state) in self.undo.drain(..).rev() {
            match state {
                Some(state) => self.states.insert(name, state),
                None => self.states.remove(&name),
            };
        }
    }
}

impl Writer {
    pub fn new(shared: Arc<Shared>, position: Position) -> Self {
        Self { shared, position, unsynced_since: None, mend_after: Instant::now() }
    }

    pub fn directory(&self) -> &Path {
        &self.shared.directory
    }

    /// In how long there is something to do even if nobody asks.
    pub fn due(&self) -> Option<Duration> {
        match (self.shared.options.sync, self.unsynced_since) {
            _ if self.is_failing() => Some(MEND_EVERY),
            (Sync::Within(most), Some(since)) => Some(most.saturating_sub(since.elapsed())),
            _ => None,
        }
    }

    /// What was due.
    pub fn catch_up(&mut self) {
        let done = if self.is_failing() { self.mend_if_due().map(drop) } else { self.sync() };
        if let Err(error) = done {
            tracing::error!(%error, "the log cannot be written");
        }
    }

    /// Everything but writes, which come in groups.
    pub fn perform(&mut self, message: Message) {
        match message {
            Message::Move { moving, answer } => drop(answer.send(self.move_entries(moving))),
            Message::Drop { segment, answer } => drop(answer.send(self.drop_segment(segment))),
            Message::RollOver { answer } => drop(answer.send(self.roll_over())),
            Message::Write(_) | Message::Stop => unreachable!("who has the writer does these itself"),
        }
    }

    pub fn end(&mut self) {
        if let Err(error) = self.sync() {
            tracing::error!(%error, "the log could not be synced at the end");
        }
    }

    fn is_failing(&self) -> bool {
        matches!(*self.shared.health.lock().expect("nobody panics here"), Health::Failing(_))
    }

    /// `first` and those that come after it, in one frame.
    pub fn write_group(&mut self, first: Submission, mut more: impl FnMut() -> Option<Submission>) {
        let mut group = Group::default();
        let mut answers = Vec::new();
        let mut next = Some(first);
        let (mut ops, mut bytes) = (0, 0);
        let healthy = self.mend_if_due();
        while let Some(submission) = next.take() {
            ops += submission.ops.len();
            bytes += submission.ops.iter().map(|op| if let Op::Put { value, .. } = op { value.len() } else { 0 }).sum::<usize>();
            group.directories.extend(submission.directories);
            let decided = match &healthy {
                Ok(index) => self.decide(index, &mut group, submission.ops, submission.whole),
                Err(error) => Err(error.clone()),
            };
            answers.push((submission.answer, decided));
            if ops >= GROUP_OPS || bytes >= GROUP_BYTES {
                break;
            }
            next = more();
        }
        let written = match healthy {
            Ok(index) if !group.entries.is_empty() => {
                self.sync_directories(&group.directories).and_then(|()| self.append(&index, std::mem::take(&mut group.entries)))
            }
            _ => Ok(()),
        };
        for (answer, decided) in answers {
            // A caller that was cancelled no longer listens; what it wrote stands all the same.
            let _ = answer.send(written.clone().and(decided));
        }
    }

    fn decide(&mut self, index: &Index, group: &mut Group, ops: Vec<Op>, whole: bool) -> Result<Vec<Done>, ApiError> {
        let (entries, totals) = (group.entries.len(), group.totals.clone());
        group.undo.clear();
        let done: Result<Vec<Done>, ApiError> = ops.into_iter().map(|op| self.decide_one(index, group, op)).collect();
        let stands = done.as_ref().is_ok_and(|done| !whole || done.iter().all(Done::is_done));
        if !stands {
            group.roll_back(entries, totals);
        }
        done
    }

    fn decide_one(&mut self, index: &Index, group: &mut Group, op: Op) -> Result<Done, ApiError> {
        let (kind, table, key, meta, value, weight_bytes, when) = match op {
            Op::Put { table, key, meta, value, weight_bytes, when } => (Kind::Put, table, key, meta, value, weight_bytes, when),
            Op::Delete { table, key, when } => (Kind::Delete, table, key, Vec::new(), Bytes::new(), 0, when),
            Op::Quarantine { table, key, when } => (Kind::Quarantine, table, key, Vec::new(), Bytes::new(), 0, when),
        };
        let name = (table, key);
        let (before, in_index) = match group.states.get(&name) {
            Some(state) => (state.clone(), None),
            None => {
                let found = index.get(table, &name.1)?;
                (found.clone(), Some(found))
            }
        };
        let met = match when {
            When::Any => kind != Kind::Quarantine || before.is_some(),
            When::Absent => before.is_none(),
            When::Present => before.is_some(),
            When::Version(version) => before.as_ref().is_some_and(|before| before.version == version),
        };
        if !met {
            return Ok(Done::NotMet { found: before });
        }
        if kind == Kind::Delete && before.is_none() {
            return Ok(Done::Deleted { before });
        }
        if kind == Kind::Put {
            if let Some(free_bytes) = self.no_space(group, table, weight_bytes, before.as_ref()) {
                return Ok(Done::NoSpace { free_bytes });
            }
        }
        self.position.version += 1;
        let value_crc = crc_fast::crc64_nvme(&value);
        let entry = LogEntry {
            kind,
            table,
            key: name.1.clone(),
            meta,
            version: self.position.version,
            weight_bytes,
            value_bytes: value.len() as u32,
            value_crc,
        };
        // Its place is not known yet, and nobody asks for it within the group.
        let known = group.states.insert(name.clone(), index::after(&entry, 0, 0, before.as_ref()));
        group.undo.push((name, known));
        let version = self.position.version;
        group.entries.push(Chosen { entry, value, before: in_index });
        Ok(match kind {
            Kind::Put => Done::Put { version, before },
            Kind::Delete => Done::Deleted { before },
            Kind::Quarantine => Done::Quarantined,
        })
    }

    /// What is free where the put does not fit; the group's totals follow where it does.
    fn no_space(&self, group: &mut Group, table: u8, weight_bytes: u64, before: Option<&Stat>) -> Option<u64> {
        let limit = self.shared.limits.lock().expect("nobody panics here")[usize::from(table)]?;
        let now = group.totals.entry(table).or_insert_with(|| {
            self.shared.index_counters.lock().expect("nobody panics here").totals.get(&table).copied().unwrap_or_default()
        });
        let rest = now.weight_bytes - before.map_or(0, |before| before.weight_bytes);
        if weight_bytes > 0 && rest + weight_bytes > limit {
            return Some(limit.saturating_sub(rest));
        }
        now.weight_bytes = rest + weight_bytes;
        None
    }

    fn sync_directories(&self, directories: &BTreeSet<PathBuf>) -> Result<(), ApiError> {
        if self.shared.options.sync != Sync::Always {
            return Ok(());
        }
        directories.iter().try_for_each(|directory| sync_directory(directory))
    }

    /// One frame: on disk as the options say, then in the index.
    fn append(&mut self, index: &Index, entries: Vec<Chosen>) -> Result<(), ApiError> {
        self.roll_over_if_full()?;
        let sequence = self.position.sequence + 1;
        let (head, offsets) = format::frame(self.shared.salt, sequence, entries.iter().map(|chosen| &chosen.entry));
        let (segment, start) = (self.position.active.clone(), self.position.length);
        let end = match segment.append(start, head, entries.iter().map(|chosen| &chosen.value)) {
            Ok(end) => end,
            Err(error) => return Err(self.take_back(&segment, &error, "writing")),
        };
        self.position.length = end;
        self.unsynced_since = self.unsynced_since.or_else(|| Some(Instant::now()));
        let synced = match self.shared.options.sync {
            Sync::Always => self.sync(),
            Sync::Within(most) if self.unsynced_since.is_some_and(|since| since.elapsed() >= most) => self.sync(),
            Sync::Within(_) | Sync::Never => Ok(()),
        };
        if let Err(error) = synced {
            self.position.length = start;
            return Err(error);
        }
        self.position.sequence = sequence;
        let counters = &self.shared.counters;
        counters.frames.fetch_add(1, Ordering::Relaxed);
        counters.entries.fetch_add(entries.len() as u64, Ordering::Relaxed);
        counters.log_bytes.fetch_add(end - start, Ordering::Relaxed);
        self.shared.set_health(Health::Ready);
        let number = segment.header.number;
        let placed = entries.into_iter().zip(offsets);
        let changes = placed
            .map(|(Chosen { entry, before, .. }, offset)| Change { entry, segment: number, offset: start + offset, before })
            .collect();
        let applied = Applied { segment: number, offset: self.position.length, sequence, version: self.position.version };
        let applied = index.apply(&mut self.shared.index_counters.lock().expect("nobody panics here"), changes, applied);
        if let Err(error) = &applied {
            // The frame is in the log: the index catches up with it when it can be opened again.
            self.fail(&format!("the index cannot be written: {error}"));
            self.shared.give_up_index();
        }
        applied
    }

    fn sync(&mut self) -> Result<(), ApiError> {
        if self.unsynced_since.is_none() {
            return Ok(());
        }
        let segment = self.position.active.clone();
        let started = Instant::now();
        if let Err(error) = segment.file.sync_data() {
            return Err(self.take_back(&segment, &error, "fsync of"));
        }
        self.unsynced_since = None;
        let counters = &self.shared.counters;
        counters.syncs.fetch_add(1, Ordering::Relaxed);
        counters.sync_ns.fetch_add(started.elapsed().as_nanos() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// A write that failed: what it left is cut off before anything follows it. Where even that fails, nothing is written until it works.
    fn take_back(&mut self, segment: &Segment, error: &std::io::Error, what: &str) -> ApiError {
        let told = crate::failure::disk(what, &segment.path, error);
        let cut = what == "writing" && segment.file.set_len(self.position.length).is_ok();
        match (is_full(error), cut) {
            (true, true) => self.shared.set_health(Health::Full),
            (false, true) => self.shared.set_health(Health::Failing(told.message.clone())),
            // After a failed fsync nobody knows what is on disk.
            (_, false) => self.fail(&told.message),
        }
        told
    }

    fn fail(&mut self, why: &str) {
        self.shared.set_health(Health::Failing(why.to_owned()));
        self.mend_after = Instant::now() + MEND_EVERY;
    }

    /// The index to write to; an error while the disk is not back.
    fn mend_if_due(&mut self) -> Result<Arc<Index>, ApiError> {
        if self.is_failing() {
            if Instant::now() < self.mend_after {
                let Health::Failing(why) = self.shared.health.lock().expect("nobody panics here").clone() else {
                    return self.shared.index();
                };
                return Err(ApiError::new(Code::IoError, "log", format!("{why}; the node retries every second")));
            }
            self.mend_after = Instant::now() + MEND_EVERY;
            self.mend()?;
            self.shared.set_health(Health::Ready);
        }
        self.shared.index()
    }

    /// Cuts what a failed fsync left in doubt, begins a new segment behind it, and opens the index again if it was given up.
    fn mend(&mut self) -> Result<(), ApiError> {
        let segment = self.position.active.clone();
        segment.file.set_len(self.position.length).map_err(at("cutting", &segment.path))?;
        segment.file.sync_all().map_err(at("fsync of", &segment.path))?;
        self.unsynced_since = None;
        self.begin_segment()?;
        if self.shared.index().is_err() {
            recovery::reopen_index(&self.shared)?;
        }
        Ok(())
    }

    fn roll_over_if_full(&mut self) -> Result<(), ApiError> {
        if self.position.length < self.shared.options.segment_bytes {
            return Ok(());
        }
        self.roll_over()
    }

    fn roll_over(&mut self) -> Result<(), ApiError> {
        if self.shared.options.sync != Sync::Never {
            self.sync()?;
        }
        self.begin_segment()
    }

    fn begin_segment(&mut self) -> Result<(), ApiError> {
        let synced = self.shared.options.sync == Sync::Always;
        let Position { sequence, version, .. } = self.position;
        let header = SegmentHeader { number: self.position.active.header.number + 1, synced, salt: self.shared.salt, sequence, version };
        self.position.active = self.shared.segments.begin(header)?;
        self.position.length = format::SEGMENT_HEADER_BYTES;
        Ok(())
    }

    fn move_entries(&mut self, moving: Vec<Moving>) -> Result<(), ApiError> {
        let index = self.mend_if_due()?;
        let oldest = self.shared.segments.oldest_number();
        let mut entries = Vec::new();
        for Moving { entry, value, segment, offset } in moving {
            let now = index.get(entry.table, &entry.key)?;
            let is_newest = now.as_ref().is_some_and(|now| (now.segment, now.offset) == (segment, offset) && now.version == entry.version);
            let elsewhere = oldest.is_some_and(|oldest| oldest < segment);
            let keep = match entry.kind {
                Kind::Put => is_newest,
                Kind::Delete => now.is_none() && elsewhere,
                Kind::Quarantine => now.as_ref().is_some_and(|now| now.quarantined && now.segment != segment),
            };
            if !keep {
                continue;
            }
            let mark = (entry.kind == Kind::Put && now.as_ref().is_some_and(|now| now.quarantined)).then(|| LogEntry {
                kind: Kind::Quarantine,
                meta: Vec::new(),
                value_bytes: 0,
                value_crc: crc_fast::crc64_nvme(b""),
                weight_bytes: 0,
                ..entry.clone()
            });
            self.shared.counters.moved_bytes.fetch_add(entry.log_bytes(), Ordering::Relaxed);
            entries.push(Chosen { entry, value, before: Some(now) });
            entries.extend(mark.map(|entry| Chosen { entry, value: Bytes::new(), before: None }));
        }
        if entries.is_empty() {
            return Ok(());
        }
        self.append(&index, entries)
    }

    /// What it held has moved: on disk at its new place before the old one goes.
    fn drop_segment(&mut self, segment: u32) -> Result<(), ApiError> {
        let index = self.mend_if_due()?;
        self.sync()?;
        let live_bytes = {
            let counters = self.shared.index_counters.lock().expect("nobody panics here");
            counters.uses.get(&segment).map_or(0, |used| used.live_bytes)
        };
        if segment == self.position.active.header.number || live_bytes > 0 {
            let message = format!("segment {segment} still holds {live_bytes} bytes that count; it stays");
            return Err(ApiError::new(Code::IoError, segment.to_string(), message));
        }
        self.shared.segments.remove(segment)?;
        self.shared.counters.segments_dropped.fetch_add(1, Ordering::Relaxed);
        index.forget_segment(&mut self.shared.index_counters.lock().expect("nobody panics here"), segment)
    }
}
