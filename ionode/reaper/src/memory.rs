//! Whether a job's tree holds more memory than it may. May know: /proc and clocks. One rule: what the kernel could take back at any moment, pages of files, is not held.

use std::fs;
use std::time::{Duration, Instant};

use libc::pid_t;

use crate::tree::Reach;

const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Looking takes at most this part of a processor.
const COST_PART: u32 = 50;

pub struct MemoryLimit {
    bytes: u64,
    reach: Reach,
    pub look_at: Instant,
}

impl MemoryLimit {
    pub fn new(bytes: u64, reach: Reach) -> MemoryLimit {
        MemoryLimit { bytes, reach, look_at: Instant::now() + LOOK_EVERY }
    }

    /// What it holds, where that is too much.
    pub fn exceeded(&mut self, now: Instant) -> Option<u64> {
        if now < self.look_at {
            return None;
        }
        let members = self.reach.members();
        let mut held = sum(&members, resident);
        if held > self.bytes {
            // Pages that processes share were counted for each of them. Sharing them out takes longer.
            held = sum(&members, |pid| proportional(pid).or_else(|| resident(pid)));
        }
        let ended = Instant::now();
        self.look_at = ended + LOOK_EVERY.max((ended - now) * COST_PART);
        (held > self.bytes).then_some(held)
    }
}

fn sum(members: &[pid_t], measure: impl Fn(pid_t) -> Option<u64>) -> u64 {
    members.iter().filter_map(|pid| measure(*pid)).sum()
}

fn resident(pid: pid_t) -> Option<u64> {
    kib_of(&format!("/proc/{pid}/status"), &["RssAnon", "RssShmem", "VmSwap"])
}

fn proportional(pid: pid_t) -> Option<u64> {
    kib_of(&format!("/proc/{pid}/smaps_rollup"), &["Pss_Anon", "Pss_Shmem", "SwapPss"])
}

/// The sum in bytes of these lines of a file of /proc. None: it has none of them, or cannot be read.
fn kib_of(path: &str, names: &[&str]) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let found = text.lines().filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        names.contains(&name).then(|| value.trim().trim_end_matches(" kB").parse::<u64>().ok()).flatten()
    });
    found.fold(None, |total, kib| Some(total.unwrap_or(0) + kib * 1024))
}
