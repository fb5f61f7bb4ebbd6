//! Waits for the job, ends what it leaves behind, measures. May know: signals, waiting and clocks. One rule: it returns only when no process of the tree is left.

use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use libc::{c_int, pid_t};

use crate::cgroup::{Group, BY_GROUP, BY_MEASURE};
use crate::launch::Started;
use crate::memory::MemoryLimit;
use crate::opens::Opens;
use crate::report::{now_s, Outcome, Report};
use crate::spec::Spec;
use crate::sys::{self, Child};
use crate::tree::{self, Io, Reach};

/// After the first KILL: how soon it is said again to those that were born meanwhile.
const KILL_AGAIN_FIRST: Duration = Duration::from_millis(10);
const KILL_AGAIN_MAX: Duration = Duration::from_secs(1);

enum Phase {
    Running,
    /// TERM was sent; KILL follows at the instant.
    Terminating {
        until: Instant,
    },
    Killing {
        next: Instant,
        pause: Duration,
    },
}

pub struct Supervisor<'a> {
    spec: &'a Spec,
    root: pid_t,
    reach: Reach,
    /// That its first process is in.
    group: Option<&'a Group>,
    started: Instant,
    started_at_s: f64,
    phase: Phase,
    why_ended: Option<Outcome>,
    status: Option<c_int>,
    wall: Duration,
    counters: Option<File>,
    io: Option<Io>,
    processes: u32,
    opens: Option<Opens>,
    memory: Option<MemoryLimit>,
    memory_used: Option<u64>,
}

impl<'a> Supervisor<'a> {
    /// Call right before the launch, so that the clock starts with the job.
    pub fn new(spec: &'a Spec, reach: Reach, group: Option<&'a Group>) -> Self {
        Supervisor {
            spec,
            root: 0,
            reach,
            group,
            started: Instant::now(),
            started_at_s: now_s(),
            phase: Phase::Running,
            why_ended: None,
            status: None,
            wall: Duration::ZERO,
            counters: None,
            io: None,
            processes: 0,
            opens: None,
            memory: None,
            memory_used: None,
        }
    }

    /// `opens`: notes what the job opens to read.
    pub fn watch(mut self, started: Started, opens: Option<Opens>) -> Report {
        self.opens = opens.and_then(|opens| opens.listening(started.calls));
        self.root = started.root;
        self.counters = started.counters;
        self.group = self.group.filter(|_| started.grouped);
        if !self.is_limited_by_kernel() {
            self.memory = self.spec.memory_limit_bytes.map(|bytes| MemoryLimit::new(bytes, self.reach));
        }
        while self.reap_ended() {
            self.advance();
            let limit = self.next_instant().map(|at| at.saturating_duration_since(Instant::now()));
            if let Some((libc::SIGTERM | libc::SIGINT, sender)) = self.wait_signal(limit) {
                // Inside a pid namespace the reaper's own pid is 0; a job that signals its parent ends nothing but itself.
                if matches!(self.phase, Phase::Running) && (self.reach == Reach::Descendants || sender == 0) {
                    self.end(Outcome::Killed);
                }
            }
        }
        self.report()
    }

    fn wait_signal(&mut self, limit: Option<Duration>) -> Option<(c_int, pid_t)> {
        match &mut self.opens {
            Some(opens) => opens.wait_signal(limit),
            None => sys::wait_signal(limit),
        }
    }

    /// False when no child is left.
    fn reap_ended(&mut self) -> bool {
        loop {
            match sys::peek_child() {
                Child::NoneLeft => return false,
                Child::NoneEnded => return true,
                Child::Ended(pid) => self.reap_one(pid),
            }
        }
    }

    fn reap_one(&mut self, pid: pid_t) {
        if pid == self.root {
            self.wall = self.started.elapsed();
            self.io = self.counters.take().and_then(tree::read_io);
        }
        let status = sys::reap(pid, true);
        self.processes += 1;
        if pid == self.root {
            self.status = status;
        }
    }

    fn advance(&mut self) {
        let now = Instant::now();
        let is_too_large = matches!(self.phase, Phase::Running) && self.status.is_none() && self.is_too_large(now);
        match self.phase {
            Phase::Running if self.status.is_some() => self.begin_terminating(),
            Phase::Running if is_too_large => {
                self.why_ended = Some(Outcome::Memory);
                // At once: what it would do with a grace is take more.
                self.kill(KILL_AGAIN_FIRST);
            }
            Phase::Running if self.deadline().is_some_and(|at| now >= at) => self.end(Outcome::Timeout),
            Phase::Terminating { until } if now >= until => self.kill(KILL_AGAIN_FIRST),
            Phase::Killing { next, pause } if now >= next => self.kill((pause * 2).min(KILL_AGAIN_MAX)),
            _ => {}
        }
    }

    fn is_limited_by_kernel(&self) -> bool {
        self.group.is_some_and(|group| group.limits)
    }

    fn deadline(&self) -> Option<Instant> {
        self.spec.timeout_s.map(|limit| self.started + Duration::from_secs_f64(limit))
    }

    fn next_instant(&self) -> Option<Instant> {
        match self.phase {
            Phase::Running => [self.deadline(), self.memory.as_ref().map(|limit| limit.look_at)].into_iter().flatten().min(),
            Phase::Terminating { until } => Some(until),
            Phase::Killing { next, .. } => Some(next),
        }
    }

    fn is_too_large(&mut self, now: Instant) -> bool {
        self.memory_used = self.memory.as_mut().and_then(|limit| limit.exceeded(now));
        self.memory_used.is_some()
    }

    fn end(&mut self, why: Outcome) {
        self.why_ended = Some(why);
        self.begin_terminating();
    }

    fn begin_terminating(&mut self) {
        self.reach.terminate();
        self.phase = Phase::Terminating { until: Instant::now() + Duration::from_secs_f64(self.spec.grace_s) };
    }

    fn kill(&mut self, pause: Duration) {
        if let Some(group) = self.group {
            group.kill();
        }
        self.reach.signal(libc::SIGKILL);
        self.phase = Phase::Killing { next: Instant::now() + pause, pause };
    }

    fn report(self) -> Report {
        let (opened, opened_count) = self.opens.as_ref().map(|opens| opens.opened(self.spec)).unwrap_or_default();
        let memory_by = if self.is_limited_by_kernel() { BY_GROUP } else { BY_MEASURE };
        let usage = sys::usage_of_children();
        let status = self.status.map(ExitStatus::from_raw);
        let (exit_code, signal) = (status.and_then(|status| status.code()), status.and_then(|status| status.signal()));
        let outcome = self.why_ended.unwrap_or(if signal.is_some() { Outcome::Signalled } else { Outcome::Exited });
        let message = match outcome {
            Outcome::Timeout => {
                Some(format!("the job ran longer than its timeout of {} s and was ended", self.spec.timeout_s.unwrap_or_default()))
            }
            Outcome::Killed => Some("the job was ended on request".into()),
            Outcome::Memory => Some("the job used more memory than is declared and was ended".into()),
            Outcome::Signalled => signal.map(|number| format!("the job ended by signal {number}")),
            Outcome::Exited | Outcome::NotStarted => None,
        };
        Report {
            attempt_id: self.spec.attempt_id.clone(),
            outcome,
            code: None,
            exit_code,
            signal,
            message,
            started_at_s: self.started_at_s,
            wall_s: self.wall.as_secs_f64(),
            cpu_user_s: seconds(usage.ru_utime),
            cpu_system_s: seconds(usage.ru_stime),
            memory_peak_bytes: u64::try_from(usage.ru_maxrss).ok().filter(|kib| *kib > 0).map(|kib| kib * 1024),
            read_bytes: self.io.map(|io| io.read_bytes),
            written_bytes: self.io.map(|io| io.written_bytes),
            chars_read: self.io.map(|io| io.chars_read),
            chars_written: self.io.map(|io| io.chars_written),
            processes: self.processes,
            isolation: None,
            opened,
            opened_count: (opened_count > 0).then_some(opened_count),
            memory_by: self.spec.memory_limit_bytes.map(|_| memory_by.into()),
            memory_used_bytes: self.memory_used,
            memory_limit_bytes: self.memory_used.and(self.spec.memory_limit_bytes),
        }
    }
}

fn seconds(time: libc::timeval) -> f64 {
    time.tv_sec as f64 + time.tv_usec as f64 / 1e6
}

/// Ends and reaps whatever descends from this process, at once.
pub fn sweep() {
    let mut pause = KILL_AGAIN_FIRST;
    loop {
        match sys::peek_child() {
            Child::NoneLeft => return,
            Child::Ended(pid) => {
                sys::reap(pid, true);
            }
            Child::NoneEnded => {
                Reach::Descendants.signal(libc::SIGKILL);
                sys::wait_signal(Some(pause));
                pause = (pause * 2).min(KILL_AGAIN_MAX);
            }
        }
    }
}
