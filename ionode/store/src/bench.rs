//! `stager-ionode bench`: how fast this disk makes, finds, reads, lists and deletes small files in the log, without any network.
//!
//! The one rule: every figure is of work that was acknowledged under the options that are printed with it.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use stager_core::error::{ApiError, Code};

use crate::{Log, Op, Options, When};

const TABLE: u8 = 1;
const PAGE: usize = 1000;

#[derive(Clone, Debug)]
pub struct Load {
    pub files: u64,
    pub value_bytes: usize,
    pub clients: u64,
    /// Files in one call.
    pub batch: u64,
}

/// One phase: its name, how many files, how long.
#[derive(Clone, Debug)]
pub struct Phase {
    pub name: &'static str,
    pub files: u64,
    pub took: Duration,
}

impl Phase {
    pub fn per_s(&self) -> f64 {
        self.files as f64 / self.took.as_secs_f64()
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("one-directory/file.{number:010}").into_bytes()
}

/// The same order for every run, without locality.
pub fn shuffled(number: u64, files: u64) -> u64 {
    // Odd and not a factor of any round number: a full cycle over most counts, near enough for the others.
    (number.wrapping_mul(2_654_435_761) + 12_345) % files
}

/// Makes, finds, reads, lists and deletes `load.files` files in `directory`, which must be empty or of an earlier such run.
pub fn run(directory: &Path, options: Options, load: &Load) -> Result<(Vec<Phase>, Log), ApiError> {
    let (log, _) = Log::open(directory, options)?;
    let value = Bytes::from((0..load.value_bytes).map(|at| (at * 131 % 251) as u8).collect::<Vec<u8>>());
    let mut phases = Vec::new();
    phases.push(phase("create", load, |numbers| {
        let ops = numbers
            .map(|number| Op::Put {
                table: TABLE,
                key: key(number),
                meta: Vec::new(),
                value: value.clone(),
                weight_bytes: load.value_bytes as u64,
                when: When::Absent,
            })
            .collect();
        log.write_all_blocking(ops).map(drop)
    })?);
    phases.push(phase("stat", load, |numbers| {
        numbers.map(|number| shuffled(number, load.files)).try_for_each(|number| log.stat(TABLE, &key(number)).map(drop))
    })?);
    if load.value_bytes > 0 {
        phases.push(phase("get", load, |numbers| {
            numbers.map(|number| shuffled(number, load.files)).try_for_each(|number| log.get(TABLE, &key(number)).map(drop))
        })?);
    }
    phases.push(list(&log, load)?);
    Ok((phases, log))
}

/// In an order of its own.
pub fn delete_all(log: &Log, load: &Load) -> Result<Phase, ApiError> {
    phase("delete", load, |numbers| {
        let ops = numbers.map(|number| Op::Delete { table: TABLE, key: key(number), when: When::Any }).collect();
        log.write_all_blocking(ops).map(drop)
    })
}

fn list(log: &Log, load: &Load) -> Result<Phase, ApiError> {
    let started = Instant::now();
    let (mut files, mut after) = (0, Vec::new());
    loop {
        let page = log.list(TABLE, b"one-directory/", Some(b"/"), &after, PAGE)?;
        files += page.listed.len() as u64;
        match page.next {
            Some(next) => after = next,
            None => break,
        }
    }
    if files < load.files {
        return Err(ApiError::new(Code::StoreDamaged, "bench", format!("{} files were made and {files} are listed", load.files)));
    }
    Ok(Phase { name: "list", files, took: started.elapsed() })
}

/// All numbers once, handed to the clients in batches.
fn phase(
    name: &'static str,
    load: &Load,
    work: impl Fn(std::ops::Range<u64>) -> Result<(), ApiError> + Send + std::marker::Sync,
) -> Result<Phase, ApiError> {
    let started = Instant::now();
    let next = Arc::new(AtomicU64::new(0));
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..load.clients)
            .map(|_| {
                scope.spawn(|| loop {
                    let start = next.fetch_add(load.batch, Ordering::Relaxed);
                    if start >= load.files {
                        return Ok(());
                    }
                    work(start..(start + load.batch).min(load.files))?;
                })
            })
            .collect();
        clients.into_iter().try_for_each(|client| client.join().expect("a client of the benchmark does not panic"))
    })?;
    Ok(Phase { name, files: load.files, took: started.elapsed() })
}
