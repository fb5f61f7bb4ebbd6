//! What became of the job. May know: JSON and how a file appears at once. One rule: what was not seen is null, never 0.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Exited,
    Signalled,
    Timeout,
    Killed,
    /// It held more memory than it may, and was ended.
    Memory,
    NotStarted,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    pub attempt_id: String,
    pub outcome: Outcome,
    /// Only with `not_started`: program_not_found, program_not_executable, cannot_link, link_failed, no_container, container_failed, stdin_unreadable, start_failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    pub message: Option<String>,
    pub started_at_s: f64,
    /// From the start of the job's first process to its end (not to the end of what it left behind).
    pub wall_s: f64,
    pub cpu_user_s: f64,
    pub cpu_system_s: f64,
    /// The largest resident set of any one process of the tree (ru_maxrss): not their sum, and never below the few MB of the reaper it was forked from.
    pub memory_peak_bytes: Option<u64>,
    pub read_bytes: Option<u64>,
    pub written_bytes: Option<u64>,
    pub chars_read: Option<u64>,
    pub chars_written: Option<u64>,
    /// Processes the reaper itself reaped: the job's first one and every one that lost its parent.
    pub processes: u32,
    /// Of a job that was to be isolated: mounts, landlock, mounts+landlock, or none, since this host gives this user neither.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<String>,
    /// Files below the origins that it opened, the first of them; and how many in all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub opened: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opened_count: Option<u64>,
    /// Of a job with a limit: `cgroup`, the kernel holds it to it; `measured`, the reaper does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_by: Option<String>,
    /// With the outcome `memory`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_used_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit_bytes: Option<u64>,
}

impl Report {
    pub fn not_started(attempt_id: &str, code: &str, message: String) -> Report {
        Report {
            attempt_id: attempt_id.into(),
            outcome: Outcome::NotStarted,
            code: Some(code.into()),
            exit_code: None,
            signal: None,
            message: Some(message),
            started_at_s: now_s(),
            wall_s: 0.0,
            cpu_user_s: 0.0,
            cpu_system_s: 0.0,
            memory_peak_bytes: None,
            read_bytes: None,
            written_bytes: None,
            chars_read: None,
            chars_written: None,
            processes: 0,
            isolation: None,
            opened: Vec::new(),
            opened_count: None,
            memory_by: None,
            memory_used_bytes: None,
            memory_limit_bytes: None,
        }
    }

    /// By rename, so a reader sees all of it or nothing. Not fsynced: a power cut loses the sandbox's outputs as well, and the job runs again.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{}.new", std::process::id()));
        let fresh = Path::new(&name);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(fresh)?;
        let written = file.write_all(&serde_json::to_vec(self)?).and_then(|()| fs::rename(fresh, path));
        if written.is_err() {
            let _ = fs::remove_file(fresh);
        }
        written
    }
}

pub fn now_s() -> f64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}
