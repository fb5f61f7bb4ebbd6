//! `stager-ionode fsck`: looks a store through that no node serves, tells what is wrong, and repairs what can be repaired.
//!
//! The one rule: without `--repair` nothing in the store is changed; with it, nothing is removed that could still be somebody's only copy.

use std::fs::File;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use stager_core::error::{ApiError, Code};
use stager_core::replica::{Replica, ReplicaKind, ReplicaState};
use stager_objects::Care;
use stager_store::fsck::{self, What};
use stager_store::{Log, Op, Options, When};

use crate::store::recovery::{self, is_there, Unopened};
use crate::store::{self, digest, tables, tree};

pub const EXIT_FOUND: i32 = 1;
pub const EXIT_FAULT: i32 = 2;
pub const EXIT_LOCKED: i32 = 3;

#[derive(Args, Debug)]
pub struct FsckOptions {
    /// Directory of the store
    #[arg(long, value_name = "DIR")]
    store: PathBuf,
    /// Read the content of every file too, not only its size
    #[arg(long)]
    content: bool,
    /// Repair what can be repaired; segments that are changed are copied first
    #[arg(long)]
    repair: bool,
    /// One JSON document instead of lines for people
    #[arg(long)]
    json: bool,
}

#[derive(Serialize, Default)]
struct Findings {
    store: String,
    format: u32,
    segments: usize,
    frames: u64,
    entries: u64,
    keys: u64,
    value_bytes: u64,
    replicas: u64,
    files_read_bytes: u64,
    index_missing: bool,
    problems: Vec<Problem>,
    repaired: bool,
}

#[derive(Serialize)]
struct Problem {
    kind: &'static str,
    subject: String,
    message: String,
}

/// Returns the exit code: 0 nothing wrong, 1 something was found, 2 it could not be looked through, 3 a node serves it.
pub fn run(options: &FsckOptions) -> i32 {
    match check(options) {
        Ok(findings) => {
            tell(&findings, options.json);
            if findings.problems.is_empty() {
                0
            } else {
                EXIT_FOUND
            }
        }
        Err(Unopened::Locked(message)) => {
            eprintln!("stager-ionode: {message}");
            EXIT_LOCKED
        }
        Err(Unopened::Fault(error)) => {
            eprintln!("stager-ionode: {error}");
            EXIT_FAULT
        }
    }
}

fn check(options: &FsckOptions) -> Result<Findings, Unopened> {
    let root = options.store.as_path();
    let format = recovery::format_of(root)?;
    let _lock = recovery::lock(root)?;
    if format != store::FORMAT {
        let message = format!(
            "the store {} has format {format}; start a node on it once, which upgrades it, or use the version that wrote it",
            root.display()
        );
        return Err(ApiError::new(Code::Unsupported, root.display().to_string(), message).into());
    }
    let report = fsck::check(root)?;
    let mut findings = Findings {
        store: root.display().to_string(),
        format,
        segments: report.segments,
        frames: report.frames,
        entries: report.entries,
        keys: report.keys,
        value_bytes: report.value_bytes,
        index_missing: report.index_missing,
        ..Findings::default()
    };
    findings.problems.extend(report.broken.iter().map(|broken| Problem {
        kind: "log_broken",
        subject: broken.path.display().to_string(),
        message: format!("bytes {} to {} are no whole frame", broken.bytes.start, broken.bytes.end),
    }));
    findings.problems.extend(report.wrong.iter().map(|wrong| Problem {
        kind: kind_of(wrong.what),
        subject: shown(wrong.table, &wrong.key),
        message: meaning(wrong.what).to_string(),
    }));
    if options.repair && !report.is_clean() {
        fsck::repair(root, &report)?;
        findings.repaired = true;
    }
    if report.is_clean() || options.repair {
        files(root, options, &mut findings)?;
    }
    Ok(findings)
}

fn kind_of(what: What) -> &'static str {
    match what {
        What::EntryBroken => "entry_broken",
        What::Lost => "lost",
        What::ValueBroken => "value_broken",
        What::IndexDiffers => "index_differs",
    }
}

fn meaning(what: What) -> &'static str {
    match what {
        What::EntryBroken => "its entry is broken and its content whole; a repair writes it again",
        What::Lost => "its entry and its content are broken; a repair can only forget it",
        What::ValueBroken => "its content does not have its checksum; a repair quarantines it, so that stager makes it again",
        What::IndexDiffers => "the index differs from the log; a repair builds it anew",
    }
}

/// Names of replicas are an id and a generation with a NUL between.
fn shown(table: u8, key: &[u8]) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(key).replace('\0', " "),
        if table == tables::REPLICAS { String::new() } else { format!(" (table {table})") }
    )
}

/// The replicas that lie in files of their own.
fn files(root: &Path, options: &FsckOptions, findings: &mut Findings) -> Result<(), ApiError> {
    let settings = Options { reclaim: false, ..Options::default() };
    let (log, _) = Log::open(root, settings)?;
    let mut wrong = Vec::new();
    for kept in tables::replicas(&log)? {
        let tables::Kept { replica, in_log } = kept?;
        findings.replicas += 1;
        if in_log || replica.state == ReplicaState::Quarantined {
            continue;
        }
        let why = match is_there(root, &replica) {
            false => Some("is missing, or has another size"),
            true if options.content => {
                findings.files_read_bytes += replica.size_bytes;
                (!matches(root, &replica)?).then_some("does not have the content it was committed with")
            }
            true => None,
        };
        if let Some(why) = why {
            let message = format!(
                "{} {why}; {}",
                store::data_path(root, &replica.key()).display(),
                "a repair quarantines it, so that stager makes it again"
            );
            findings.problems.push(Problem { kind: "replica_broken", subject: replica.key().to_string(), message });
            wrong.push(replica.key());
        }
    }
    if options.repair {
        for key in wrong {
            log.write_all_blocking(vec![Op::Quarantine { table: tables::REPLICAS, key: tables::name(&key), when: When::Any }])?;
            findings.repaired = true;
        }
    }
    objects(&log, root, options, findings)
}

/// Counts what is read; a store that no node serves is read as fast as it goes.
struct Reading(u64);

impl Care for Reading {
    fn before(&mut self, _: Option<&File>, _: u64, length: usize) -> Result<(), ApiError> {
        self.0 += length as u64;
        Ok(())
    }
    fn after(&mut self, _: &File, _: u64, _: usize) {}
}

/// The objects of the S3 endpoint that lie in files of their own.
fn objects(log: &Log, root: &Path, options: &FsckOptions, findings: &mut Findings) -> Result<(), ApiError> {
    let mut reading = Reading(0);
    let damaged = stager_objects::scan(log, root, if options.content { Some(&mut reading) } else { None })?;
    findings.files_read_bytes += reading.0;
    findings.problems.extend(damaged.iter().map(|damaged| Problem {
        kind: "object_broken",
        subject: damaged.name.to_string(),
        message: format!("{}; a repair quarantines it", damaged.error.message),
    }));
    if options.repair && !damaged.is_empty() {
        stager_objects::quarantine(log, &damaged)?;
        findings.repaired = true;
    }
    Ok(())
}

fn matches(root: &Path, replica: &Replica) -> Result<bool, ApiError> {
    let path = store::data_path(root, &replica.key());
    let found = match replica.kind {
        ReplicaKind::File => {
            let file = File::open(&path).map_err(crate::failure::at("opening", &path))?;
            Some(digest::of_file(&file, &path, false)?)
        }
        ReplicaKind::Directory => {
            tree::verify(&path, &store::manifest_path(root, &replica.key()), &mut |file, path| digest::of_file(file, path, false))?
        }
    };
    Ok(found.is_some_and(|found| (found.size_bytes, &found.blake3) == (replica.size_bytes, &replica.blake3)))
}

fn tell(findings: &Findings, json: bool) {
    if json {
        println!("{}", serde_json::to_string(findings).expect("findings are plain values"));
        return;
    }
    println!(
        "{}: format {}, {} segments with {} frames and {} entries, {} keys with {} bytes of content, {} replicas",
        findings.store,
        findings.format,
        findings.segments,
        findings.frames,
        findings.entries,
        findings.keys,
        findings.value_bytes,
        findings.replicas
    );
    if findings.index_missing {
        println!("the index is missing or unreadable; the next start builds it anew");
    }
    for Problem { kind, subject, message } in &findings.problems {
        println!("{kind}: {subject}: {message}");
    }
    match (findings.problems.is_empty(), findings.repaired) {
        (true, _) => println!("nothing is wrong"),
        (false, true) => println!("repaired; the next run that needs a lost file makes it again"),
        (false, false) => println!("nothing was changed; --repair mends what can be mended"),
    }
}
