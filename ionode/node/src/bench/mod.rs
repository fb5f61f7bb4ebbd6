//! `stager-ionode bench`: how fast small files are made, found, read, listed and deleted, in a store on this disk or through a node's API.
//!
//! The one rule: it works in a directory of its own, or under names of its own, which it makes and removes.

mod caller;
mod calls;

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Instant;

use clap::Args;
use serde_json::json;
use stager_core::error::ApiError;
use stager_store::bench::{delete_all, run as measure, Load};
use stager_store::Log;

use crate::failure::at;
use crate::store::durability::Durability;
use crate::store::log_options;

const EXIT_FAULT: i32 = 2;

#[derive(Args, Debug)]
pub struct BenchOptions {
    /// Directory to work in; made, and removed at the end
    #[arg(long, value_name = "DIR", required_unless_present = "node")]
    dir: Option<PathBuf>,
    /// A node to be called instead: http://host:port, host:port, its socket, or its store directory on this host
    #[arg(long, value_name = "NODE", conflicts_with = "dir")]
    node: Option<String>,
    /// Where the node's token is, if it was not named by its store directory
    #[arg(long, value_name = "FILE", requires = "node")]
    token_file: Option<PathBuf>,
    #[arg(long, default_value_t = 100_000)]
    files: u64,
    /// Of each file's content
    #[arg(long, visible_alias = "size", value_name = "BYTES", default_value_t = 0)]
    bytes: usize,
    /// Callers at once
    #[arg(long, default_value_t = 4)]
    clients: u64,
    /// Files in one call; 1: one by one
    #[arg(long, default_value_t = 100)]
    batch: u64,
    /// Do not sync: to see what the disk's syncs cost
    #[arg(long, conflicts_with = "node")]
    no_fsync: bool,
    /// One JSON object; without it, and with --node, lines for people
    #[arg(long, requires = "node")]
    json: bool,
}

/// Of a store it prints one JSON object a phase. Returns the exit code.
pub fn run(options: &BenchOptions) -> i32 {
    let outcome = match (&options.node, &options.dir) {
        (Some(node), _) => calls::bench(options, node),
        (None, Some(dir)) => bench_in(options, dir),
        (None, None) => unreachable!("one of them is required"),
    };
    match outcome {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("stager-ionode: {error}");
            EXIT_FAULT
        }
    }
}

fn bench_in(options: &BenchOptions, dir: &Path) -> Result<(), ApiError> {
    std::fs::create_dir(dir).map_err(at("making", dir))?;
    let durability = Durability(!options.no_fsync);
    let load = Load { files: options.files, value_bytes: options.bytes, clients: options.clients.max(1), batch: options.batch.max(1) };
    let (mut phases, log) = measure(dir, log_options(durability), &load)?;
    let payload = (options.files * options.bytes as u64).max(1);
    let written = log.counters().log_bytes.load(Ordering::Relaxed);
    let (segments_bytes, index_bytes) = log.disk_bytes();
    phases.push(delete_all(&log, &load)?);
    drop(log);
    let started = Instant::now();
    drop(Log::open(dir, log_options(durability))?);
    let reopened = started.elapsed();
    std::fs::remove_dir_all(dir.join("index")).map_err(at("removing", dir))?;
    let (log, recovered) = Log::open(dir, log_options(durability))?;
    drop(log);
    for phase in &phases {
        println!("{}", json!({"phase": phase.name, "files": phase.files, "seconds": phase.took.as_secs_f64(), "per_s": phase.per_s()}));
    }
    println!(
        "{}",
        json!({"log_bytes": written, "log_bytes_per_payload_byte": written as f64 / payload as f64, "segments_bytes": segments_bytes,
            "index_bytes": index_bytes, "reopen_s": reopened.as_secs_f64(), "rebuild_s": recovered.took.as_secs_f64(),
            "rebuilt_entries": recovered.entries})
    );
    std::fs::remove_dir_all(dir).map_err(at("removing", dir))
}
