//! The index: where the newest entry of each key lies in the log. An embedded LSM tree; knows tables and keys, not what they mean.
//!
//! The one rule: it holds nothing that the log does not say. It may be deleted at any time the store is closed, and is then built anew.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use stager_core::error::{ApiError, Code};

use crate::format::{Kind, LogEntry};

/// Of this layout; another number means that the index is built anew.
const INDEX_FORMAT: u32 = 1;
const FIXED_BYTES: usize = 48;
const QUARANTINED: u32 = 1;

/// The newest state of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    pub meta: Vec<u8>,
    pub value_bytes: u32,
    pub value_crc: u64,
    /// Grows with every write of any key: two states of a key never share one.
    pub version: u64,
    pub weight_bytes: u64,
    pub quarantined: bool,
    pub(crate) segment: u32,
    pub(crate) offset: u64,
    pub(crate) log_bytes: u32,
}

impl Stat {
    /// Where its value lies: segment and byte. Values of one segment in this order are read from one end to the other.
    pub fn place(&self) -> (u32, u64) {
        (self.segment, self.offset)
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(FIXED_BYTES + self.meta.len());
        bytes.extend_from_slice(&self.segment.to_le_bytes());
        bytes.extend_from_slice(&self.log_bytes.to_le_bytes());
        bytes.extend_from_slice(&self.offset.to_le_bytes());
        bytes.extend_from_slice(&self.value_crc.to_le_bytes());
        bytes.extend_from_slice(&self.version.to_le_bytes());
        bytes.extend_from_slice(&self.weight_bytes.to_le_bytes());
        bytes.extend_from_slice(&self.value_bytes.to_le_bytes());
        bytes.extend_from_slice(&(if self.quarantined { QUARANTINED } else { 0 }).to_le_bytes());
        bytes.extend_from_slice(&self.meta);
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let fixed = bytes.get(..FIXED_BYTES)?;
        Some(Self {
            segment: u32_at(fixed, 0),
            log_bytes: u32_at(fixed, 4),
            offset: u64_at(fixed, 8),
            value_crc: u64_at(fixed, 16),
            version: u64_at(fixed, 24),
            weight_bytes: u64_at(fixed, 32),
            value_bytes: u32_at(fixed, 40),
            quarantined: u32_at(fixed, 44) & QUARANTINED != 0,
            meta: bytes[FIXED_BYTES..].to_vec(),
        })
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

/// Up to where the log has been taken into the index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    pub segment: u32,
    pub offset: u64,
    /// Of the last frame.
    pub sequence: u64,
    /// The highest of any entry.
    pub version: u64,
}

/// What a segment still holds: the rest of it is garbage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// Entries that are the newest of their key.
    pub live_bytes: u64,
    /// Deletes and quarantines: needed while an older segment could bring back what they ended.
    pub mark_bytes: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub entries: u64,
    pub weight_bytes: u64,
}

/// The sums that go with the index, changed and stored together with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexCounters {
    pub applied: Applied,
    pub uses: BTreeMap<u32, Use>,
    pub totals: BTreeMap<u8, Totals>,
}

/// An entry at its place in the log.
pub struct Change {
    pub entry: LogEntry,
    pub segment: u32,
    /// Of its value in the segment's file.
    pub offset: u64,
    /// What its key was in the index, where that was looked up already.
    pub before: Option<Option<Stat>>,
}

/// What a key is after an entry whose value lies at `offset` of `segment`.
pub fn after(entry: &LogEntry, segment: u32, offset: u64, before: Option<&Stat>) -> Option<Stat> {
    match entry.kind {
        Kind::Delete => None,
        Kind::Quarantine => before.cloned().map(|before| Stat { quarantined: true, ..before }),
        Kind::Put => Some(Stat {
            meta: entry.meta.clone(),
            value_bytes: entry.value_bytes,
            value_crc: entry.value_crc,
            version: entry.version,
            weight_bytes: entry.weight_bytes,
            quarantined: false,
            segment,
            offset,
            log_bytes: entry.log_bytes() as u32,
        }),
    }
}

impl IndexCounters {
    fn change(&mut self, change: &Change, before: Option<&Stat>, after: Option<&Stat>) {
        let log_bytes = change.entry.log_bytes();
        let here = self.uses.entry(change.segment).or_default();
        match change.entry.kind {
            Kind::Put => here.live_bytes += log_bytes,
            Kind::Delete | Kind::Quarantine => here.mark_bytes += log_bytes,
        }
        self.applied.version = self.applied.version.max(change.entry.version);
        if change.entry.kind == Kind::Quarantine {
            return;
        }
        let totals = self.totals.entry(change.entry.table).or_default();
        if let Some(before) = before {
            if let Some(there) = self.uses.get_mut(&before.segment) {
                there.live_bytes -= u64::from(before.log_bytes);
            }
            totals.entries -= 1;
            totals.weight_bytes -= before.weight_bytes;
        }
        if let Some(after) = after {
            totals.entries += 1;
            totals.weight_bytes += after.weight_bytes;
        }
    }
}

pub struct Index {
    database: Database,
    names: Keyspace,
    sums: Keyspace,
}

impl Index {
    /// What is at `path`, or an empty one.
    pub fn open(path: &Path, cache_bytes: u64) -> Result<Self, ApiError> {
        let database = Database::builder(path).cache_size(cache_bytes).worker_threads(1).open().map_err(failed(path))?;
        let names = database.keyspace("names", || KeyspaceCreateOptions::default().max_memtable_size(8 << 20)).map_err(failed(path))?;
        // Few keys, written with every frame: what is not flushed soon is memory for old versions of them.
        let sums = database.keyspace("sums", || KeyspaceCreateOptions::default().max_memtable_size(1 << 20)).map_err(failed(path))?;
        let index = Self { database, names, sums };
        if index.sums.get("format").map_err(failed(path))?.is_none() {
            index.sums.insert("format", INDEX_FORMAT.to_le_bytes()).map_err(failed(path))?;
        }
        Ok(index)
    }

    /// The sums it was left with; an error if it is of another format.
    pub fn counters(&self) -> Result<IndexCounters, ApiError> {
        let mut counters = IndexCounters::default();
        for guard in self.sums.iter() {
            let (key, value) = guard.into_inner().map_err(unread)?;
            let number = |at: usize| value.get(at..at + 8).map(|_| u64_at(&value, at)).ok_or_else(damaged);
            match key.split_first() {
                Some((b'a', _)) => {
                    counters.applied =
                        Applied { segment: number(0)? as u32, offset: number(8)?, sequence: number(16)?, version: number(24)? };
                }
                Some((b's', rest)) => {
                    let segment = u32::from_be_bytes(rest.try_into().map_err(|_| damaged())?);
                    counters.uses.insert(segment, Use { live_bytes: number(0)?, mark_bytes: number(8)? });
                }
                Some((b't', [table])) => {
                    counters.totals.insert(*table, Totals { entries: number(0)?, weight_bytes: number(8)? });
                }
                _ if &key[..] == b"format" && value[..] == INDEX_FORMAT.to_le_bytes() => {}
                _ => return Err(damaged()),
            }
        }
        Ok(counters)
    }

    pub fn get(&self, table: u8, key: &[u8]) -> Result<Option<Stat>, ApiError> {
        self.get_full(&full_key(table, key))
    }

    fn get_full(&self, key: &[u8]) -> Result<Option<Stat>, ApiError> {
        let found = self.names.get(key).map_err(unread)?;
        found.map(|bytes| Stat::parse(&bytes).ok_or_else(damaged)).transpose()
    }

    /// Takes one frame in: all of its changes and the position behind it, or nothing.
    pub fn apply(&self, counters: &mut IndexCounters, changes: Vec<Change>, applied: Applied) -> Result<(), ApiError> {
        let mut next = counters.clone();
        next.applied = Applied { version: counters.applied.version.max(applied.version), ..applied };
        // A batch has one state for each key, however often the frame changed it.
        let mut states: HashMap<Vec<u8>, Option<Stat>> = HashMap::with_capacity(changes.len());
        for mut change in changes {
            let key = full_key(change.entry.table, &change.entry.key);
            let before = match (states.remove(&key), change.before.take()) {
                (Some(earlier), _) => earlier,
                (None, Some(known)) => known,
                (None, None) => self.get_full(&key)?,
            };
            let after = after(&change.entry, change.segment, change.offset, before.as_ref());
            next.change(&change, before.as_ref(), after.as_ref());
            states.insert(key, after);
        }
        let mut batch = self.database.batch().durability(Some(PersistMode::Buffer));
        for (key, state) in states {
            match state {
                Some(stat) => batch.insert(&self.names, key, stat.to_bytes()),
                None => batch.remove(&self.names, key),
            }
        }
        let position = [u64::from(next.applied.segment), next.applied.offset, next.applied.sequence, next.applied.version];
        batch.insert(&self.sums, "a", numbers(&position));
        for (segment, used) in next.uses.iter().filter(|(segment, used)| counters.uses.get(segment) != Some(used)) {
            batch.insert(&self.sums, segment_key(*segment), numbers(&[used.live_bytes, used.mark_bytes]));
        }
        for (table, totals) in next.totals.iter().filter(|(table, totals)| counters.totals.get(table) != Some(totals)) {
            batch.insert(&self.sums, [b't', *table], numbers(&[totals.entries, totals.weight_bytes]));
        }
        batch.commit().map_err(|error| ApiError::new(Code::IoError, "index", format!("the index cannot be written ({error})")))?;
        *counters = next;
        Ok(())
    }

    /// A segment that is gone.
    pub fn forget_segment(&self, counters: &mut IndexCounters, segment: u32) -> Result<(), ApiError> {
        self.sums
            .remove(segment_key(segment))
            .map_err(|error| ApiError::new(Code::IoError, "index", format!("the index cannot be written ({error})")))?;
        counters.uses.remove(&segment);
        Ok(())
    }

    /// From `start` on (with it, if there), in the order of the keys' bytes; all of one table.
    pub fn scan(&self, table: u8, start: &[u8]) -> impl Iterator<Item = Result<(Vec<u8>, Stat), ApiError>> {
        let end = match table.checked_add(1) {
            Some(next) => std::ops::Bound::Excluded(vec![next]),
            None => std::ops::Bound::Unbounded,
        };
        let range = (std::ops::Bound::Included(full_key(table, start)), end);
        self.names.range::<Vec<u8>, _>(range).map(|guard| {
            let (key, value) = guard.into_inner().map_err(unread)?;
            Ok((key[1..].to_vec(), Stat::parse(&value).ok_or_else(damaged)?))
        })
    }

    /// On disk when this returns; for an ordered end.
    pub fn persist(&self) -> Result<(), ApiError> {
        self.database.persist(PersistMode::SyncAll).map_err(unread)
    }

    pub fn disk_bytes(&self) -> u64 {
        self.database.disk_space().unwrap_or(0)
    }
}

fn full_key(table: u8, key: &[u8]) -> Vec<u8> {
    let mut full = Vec::with_capacity(1 + key.len());
    full.push(table);
    full.extend_from_slice(key);
    full
}

fn segment_key(segment: u32) -> [u8; 5] {
    let mut key = [b's'; 5];
    key[1..].copy_from_slice(&segment.to_be_bytes());
    key
}

fn numbers(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn failed(path: &Path) -> impl FnOnce(fjall::Error) -> ApiError + '_ {
    move |error| {
        ApiError::new(Code::IoError, path.display().to_string(), format!("the index {} cannot be opened ({error})", path.display()))
    }
}

fn unread(error: fjall::Error) -> ApiError {
    ApiError::new(Code::IoError, "index", format!("the index cannot be read ({error}); a restart builds it anew from the log if need be"))
}

fn damaged() -> ApiError {
    ApiError::new(Code::IoError, "index", "the index holds what it never wrote; a restart builds it anew from the log")
}
