//! Looking a closed log through, and mending what can be mended. For `stager-ionode fsck`.
//!
//! The one rule: a check changes nothing of the log; a repair keeps a copy of what it changes and tells everything that is lost.

use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use stager_core::error::ApiError;

use crate::failure::at;
use crate::index::{Applied, Index, IndexCounters, Stat};
use crate::recovery::{index_path, mark_path, Broken, Replay};
use crate::segments::{allow_gaps, Segments};
use crate::{Log, Op, Options, When};

const CACHE_BYTES: u64 = 32 << 20;

/// A key that something is wrong with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    pub table: u8,
    pub key: Vec<u8>,
    pub what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Its newest entry lies in broken bytes; the index still knows it, and its value is whole.
    EntryBroken,
    /// Its newest entry lies in broken bytes, its value too.
    Lost,
    /// Its value does not have its checksum.
    ValueBroken,
    /// The index says something else than the log.
    IndexDiffers,
}

#[derive(Clone, Debug, Default)]
pub struct Report {
    pub segments: usize,
    pub frames: u64,
    pub entries: u64,
    pub keys: u64,
    pub value_bytes: u64,
    pub broken: Vec<Broken>,
    /// Segments whose header was never finished: an interrupted start left them; they hold nothing.
    pub unfinished: Vec<PathBuf>,
    /// The index could not be read, so names that lie in broken bytes are not known.
    pub index_missing: bool,
    pub wrong: Vec<Wrong>,
}

impl Report {
    pub fn is_clean(&self) -> bool {
        self.broken.is_empty() && self.wrong.is_empty()
    }
}

/// All segments, all values, and the index against them. Nobody may have the log open.
pub fn check(directory: &Path) -> Result<Report, ApiError> {
    let scratch = directory.join("index.fsck");
    let outcome = remove_tree(&scratch).and_then(|()| scan(directory, &scratch));
    remove_tree(&scratch)?;
    outcome
}

fn remove_tree(path: &Path) -> Result<(), ApiError> {
    match path.exists() {
        true => fs::remove_dir_all(path).map_err(at("removing", path)),
        false => Ok(()),
    }
}

fn scan(directory: &Path, scratch: &Path) -> Result<Report, ApiError> {
    let (segments, unfinished) = Segments::open(&directory.join("segments"))?;
    let path = index_path(directory);
    let left = path.exists().then(|| Index::open(&path, CACHE_BYTES).and_then(|index| Ok((index.counters()?.applied, index))));
    let (acknowledged, index) = left.and_then(Result::ok).map_or((Applied::default(), None), |(applied, index)| (applied, Some(index)));
    let truth = Index::open(scratch, CACHE_BYTES)?;
    let mut replay = Replay::new(&truth, IndexCounters::default(), acknowledged);
    replay.lenient = Some(Vec::new());
    replay.run(&segments)?;
    let mut report = Report {
        segments: segments.from(0).len(),
        frames: replay.recovered.frames,
        entries: replay.recovered.entries,
        broken: replay.lenient.take().unwrap_or_default(),
        unfinished,
        ..Report::default()
    };
    let tables: Vec<u8> = (0..=u8::MAX).collect();
    for table in &tables {
        for found in truth.scan(*table, b"") {
            let (key, stat) = found?;
            report.keys += 1;
            report.value_bytes += u64::from(stat.value_bytes);
            if !stat.quarantined && read_value(&segments, &stat)?.is_none() {
                report.wrong.push(Wrong { table: *table, key, what: What::ValueBroken });
            }
        }
    }
    match index {
        Some(index) => compare(&segments, &truth, &index, &tables, &mut report)?,
        None => report.index_missing = true,
    }
    Ok(report)
}

/// `None`: it does not have its checksum, or is not there.
fn read_value(segments: &Segments, stat: &Stat) -> Result<Option<Vec<u8>>, ApiError> {
    let Some(segment) = segments.get(stat.segment) else { return Ok(None) };
    if stat.offset + u64::from(stat.value_bytes) > segment.length()? {
        return Ok(None);
    }
    let value = segment.read(stat.offset, stat.value_bytes as usize)?;
    Ok((crc_fast::crc64_nvme(&value) == stat.value_crc).then_some(value))
}

/// Where the index knows more than the log could be read for, it tells what the broken bytes held.
fn compare(segments: &Segments, truth: &Index, index: &Index, tables: &[u8], report: &mut Report) -> Result<(), ApiError> {
    for table in tables {
        for found in index.scan(*table, b"") {
            let (key, stat) = found?;
            let in_log = truth.get(*table, &key)?;
            if in_log.as_ref() == Some(&stat) {
                continue;
            }
            let in_broken = report.broken.iter().any(|broken| broken.segment == stat.segment && broken.bytes.contains(&stat.offset));
            let what = match in_broken {
                true if read_value(segments, &stat)?.is_some() => What::EntryBroken,
                true => What::Lost,
                false => What::IndexDiffers,
            };
            report.wrong.push(Wrong { table: *table, key, what });
        }
        for found in truth.scan(*table, b"") {
            let (key, _) = found?;
            if index.get(*table, &key)?.is_none() {
                report.wrong.push(Wrong { table: *table, key, what: What::IndexDiffers });
            }
        }
    }
    Ok(())
}

/// Mends what `check` found: entries in broken bytes are written again from the index where their value is whole, values without their
/// checksum are quarantined, broken bytes are passed over from now on, and the index is built anew. Damaged segments are copied first,
/// to `NAME.seg.damaged`.
pub fn repair(directory: &Path, report: &Report) -> Result<(), ApiError> {
    let (segments, unfinished) = Segments::open(&directory.join("segments"))?;
    for path in unfinished {
        fs::remove_file(&path).map_err(at("removing", &path))?;
    }
    let mut again = Vec::new();
    if report.wrong.iter().any(|wrong| wrong.what == What::EntryBroken) {
        let index = Index::open(&index_path(directory), CACHE_BYTES)?;
        for Wrong { table, key, .. } in report.wrong.iter().filter(|wrong| wrong.what == What::EntryBroken) {
            let Some(stat) = index.get(*table, key)? else { continue };
            let Some(value) = read_value(&segments, &stat)? else { continue };
            let value = Bytes::from(value);
            again.push(Op::Put {
                table: *table,
                key: key.clone(),
                meta: stat.meta,
                value,
                weight_bytes: stat.weight_bytes,
                when: When::Any,
            });
        }
    }
    for broken in &report.broken {
        let copy = broken.path.with_extension("seg.damaged");
        if !copy.exists() {
            fs::copy(&broken.path, &copy).map_err(at("copying", &broken.path))?;
        }
        if let Some(segment) = segments.get(broken.segment) {
            allow_gaps(&segment)?;
        }
    }
    drop(segments);
    remove_tree(&index_path(directory))?;
    match fs::remove_file(mark_path(directory)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(at::<std::io::Error>("removing", directory)(error)),
        _ => {}
    }
    // What the check took for whole is whole, also the last frame: no start after it may call it unfinished.
    let all = Applied { segment: u32::MAX, offset: u64::MAX, ..Applied::default() };
    let (log, _) = Log::open_knowing(directory, Options { reclaim: false, ..Options::default() }, Some(all))?;
    for ops in again.chunks(100) {
        log.write_all_blocking(ops.to_vec())?;
    }
    for Wrong { table, key, .. } in report.wrong.iter().filter(|wrong| wrong.what == What::ValueBroken) {
        log.write_all_blocking(vec![Op::Quarantine { table: *table, key: key.clone(), when: When::Any }])?;
    }
    Ok(())
}
