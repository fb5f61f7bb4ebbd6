//! Small files made, looked at, read and deleted through a node's API, in packs: one entry a call is one by one.
//!
//! The one rule: an entry that fails ends the measurement, and what was made is deleted whatever happened.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::try_join_all;
use nix::sys::resource::{getrusage, UsageWho};
use nix::sys::time::TimeValLike;
use serde_json::{json, Map, Value};
use stager_core::error::ApiError;
use stager_core::replica::ReplicaKey;
use stager_store::bench::shuffled;

use super::caller::Caller;
use super::BenchOptions;
use crate::client::link;
use crate::failure::{at, bad_request};
use crate::pack_format::{Ask, CONTENT_BYTES_MAX};
use crate::peers::link::{Link, Term};
use crate::peers::pack::{ENTRIES, WITHIN};

const GENERATION: &str = "bench";
/// Requests of one client ahead of their sender's turn would only be latency: each client waits for its answer.
const PACK_CONTENT_BYTES_MAX: u64 = 12 << 20;

type Make = dyn Fn(&Load, u64) -> Ask + Sync;

struct Load {
    link: Link,
    /// What the names of this run begin with.
    run: String,
    files: u64,
    content: Bytes,
    blake3: [u8; 32],
    clients: u64,
    batch: u64,
}

/// One phase as it went.
struct Phase {
    name: &'static str,
    seconds: f64,
    files: u64,
    latencies: Vec<Duration>,
    client_cpu_s: f64,
    node_cpu_s: f64,
}

pub fn bench(options: &BenchOptions, node: &str) -> Result<(), ApiError> {
    // One thread: what is to be measured is the node, which often shares the processors with it.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(at::<std::io::Error>("starting threads for", std::path::Path::new("the benchmark")))?;
    let load = Load::new(options, node)?;
    let phases = runtime.block_on(load.run())?;
    if options.json {
        let told: Map<String, Value> = phases.iter().map(|phase| (phase.name.to_string(), phase.json())).collect();
        let answer =
            json!({"files": load.files, "bytes": load.content.len(), "batch": load.batch, "clients": load.clients, "phases": told});
        println!("{answer}");
        return Ok(());
    }
    println!("{} files of {} bytes, {} in a call, {} clients", load.files, load.content.len(), load.batch, load.clients);
    for phase in &phases {
        println!(
            "{:<7} {:>10.0} ops/s {:>9.3} s  p50 {:>9.3} ms  p99 {:>9.3} ms  CPU client {:>7.2} s, node {:>7.2} s",
            phase.name,
            phase.per_s(),
            phase.seconds,
            phase.quantile_ms(0.5),
            phase.quantile_ms(0.99),
            phase.client_cpu_s,
            phase.node_cpu_s
        );
    }
    Ok(())
}

impl Load {
    fn new(options: &BenchOptions, node: &str) -> Result<Self, ApiError> {
        let link = match &options.token_file {
            Some(token_file) => link(&format!("{node}@{}", token_file.display()))?,
            None => link(node)?,
        };
        let (batch, bytes) = (options.batch.max(1), options.bytes);
        if batch > ENTRIES as u64 || bytes > CONTENT_BYTES_MAX || batch * bytes as u64 > PACK_CONTENT_BYTES_MAX {
            let message = format!(
                "{batch} files of {bytes} bytes are more than a call may hold: {ENTRIES} files, {CONTENT_BYTES_MAX} bytes each, \
                 {PACK_CONTENT_BYTES_MAX} together; choose a smaller --batch"
            );
            return Err(bad_request("--batch", message));
        }
        let content: Vec<u8> = (0..bytes).map(|at| (at * 131 % 251) as u8).collect();
        Ok(Self {
            link,
            run: format!("bench-{:016x}", rand::random::<u64>()),
            files: options.files.max(1),
            blake3: *blake3::hash(&content).as_bytes(),
            content: content.into(),
            clients: options.clients.max(1),
            batch,
        })
    }

    fn key(&self, number: u64) -> ReplicaKey {
        ReplicaKey::new(format!("{}.{number:010}", self.run), GENERATION)
    }

    fn put(&self, number: u64) -> Ask {
        Ask::Put { key: self.key(number), executable: false, blake3: self.blake3, content: self.content.clone() }
    }

    /// An order without locality, the same in every run.
    fn any(&self, number: u64) -> ReplicaKey {
        self.key(shuffled(number, self.files))
    }

    async fn run(&self) -> Result<Vec<Phase>, ApiError> {
        let reads: [(&'static str, &Make); 3] = [
            ("create", &|load, number| load.put(number)),
            ("stat", &|load, number| Ask::Stat(load.any(number))),
            ("get", &|load, number| Ask::Get(load.any(number))),
        ];
        let mut phases = Vec::new();
        let mut failed = None;
        for (name, make) in reads {
            match self.phase(name, make).await {
                Ok(phase) => phases.push(phase),
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        phases.push(self.phase("delete", &|load, number| Ask::Delete(load.key(number))).await?);
        failed.map_or(Ok(phases), Err)
    }

    async fn phase(&self, name: &'static str, make: &Make) -> Result<Phase, ApiError> {
        let next = AtomicU64::new(0);
        let latencies = Mutex::new(Vec::new());
        let (node_before_s, client_before_s, started) = (self.node_cpu_s().await?, client_cpu_s(), Instant::now());
        try_join_all((0..self.clients).map(|_| self.client(make, &next, &latencies))).await?;
        let seconds = started.elapsed().as_secs_f64();
        let client_cpu_s = client_cpu_s() - client_before_s;
        let mut latencies = latencies.into_inner().expect("nobody panics here");
        latencies.sort();
        let node_cpu_s = self.node_cpu_s().await? - node_before_s;
        Ok(Phase { name, seconds, files: self.files, latencies, client_cpu_s, node_cpu_s })
    }

    async fn client(&self, make: &Make, next: &AtomicU64, latencies: &Mutex<Vec<Duration>>) -> Result<(), ApiError> {
        let mut mine = Vec::new();
        let mut caller = Caller::to(&self.link).await?;
        loop {
            let start = next.fetch_add(self.batch, Ordering::Relaxed);
            if start >= self.files {
                break;
            }
            let numbers: Range<u64> = start..(start + self.batch).min(self.files);
            let asks: Vec<Ask> = numbers.map(|number| make(self, number)).collect();
            let content_bytes = (asks.len() * self.content.len()) as u64;
            let asked = Instant::now();
            let answers = self.link.within(WITHIN, caller.pack(&asks, content_bytes)).await?;
            mine.push(asked.elapsed());
            answers.into_iter().collect::<Result<Vec<_>, _>>()?;
        }
        latencies.lock().expect("nobody panics here").extend(mine);
        Ok(())
    }

    /// Of the node's process, by its own metrics.
    async fn node_cpu_s(&self) -> Result<f64, ApiError> {
        let metrics = self.link.bytes("GET", "/metrics", Term::Its, Duration::from_secs(30)).await?;
        let text = String::from_utf8_lossy(&metrics);
        let said = text.lines().find_map(|line| line.strip_prefix("process_cpu_seconds_total ")?.parse().ok());
        said.ok_or_else(|| bad_request("metrics", "the node does not tell its processor time; it needs /proc"))
    }
}

fn client_cpu_s() -> f64 {
    getrusage(UsageWho::RUSAGE_SELF)
        .map_or(0.0, |usage| (usage.user_time().num_microseconds() + usage.system_time().num_microseconds()) as f64 / 1e6)
}

impl Phase {
    fn per_s(&self) -> f64 {
        self.files as f64 / self.seconds
    }

    /// Of calls.
    fn quantile_ms(&self, share: f64) -> f64 {
        let at = ((self.latencies.len() as f64 * share) as usize).min(self.latencies.len() - 1);
        self.latencies[at].as_secs_f64() * 1e3
    }

    fn json(&self) -> Value {
        json!({"ops_per_s": self.per_s(), "seconds": self.seconds, "p50_ms": self.quantile_ms(0.5), "p99_ms": self.quantile_ms(0.99),
            "client_cpu_s": self.client_cpu_s, "node_cpu_s": self.node_cpu_s})
    }
}
