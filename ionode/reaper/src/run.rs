//! One attempt from its spec to its result. May know: everything in this crate. One rule: nothing is started before the lock is held and no result is there.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::time::{Duration, Instant};

use libc::pid_t;
use serde::{Deserialize, Serialize};

use crate::cgroup::Group;
use crate::confine::{self, Confinement};
use crate::isolate::Mode;
use crate::launch::{launch, Logs};
use crate::opens::Opens;
use crate::report::{now_s, Outcome, Report};
use crate::spec::{Container, Spec};
use crate::supervise::{sweep, Supervisor};
use crate::tree::Reach;
use crate::{container, links, lock, sys, watch, EXIT_NO_RESULT, EXIT_RESULT_WRITTEN, EXIT_TAKEN, EXIT_USAGE};

/// Beyond the grace: how long the init may take to end the tree before it is killed itself, and the tree with it.
const INIT_MARGIN: Duration = Duration::from_secs(5);

pub struct Stop {
    pub message: String,
    pub exit_code: i32,
}

pub fn run(spec_path: &Path) -> Result<i32, Stop> {
    let stop = |exit_code| move |message: String| Stop { message, exit_code };
    sys::close_inherited();
    let spec = Spec::read(spec_path).map_err(stop(EXIT_USAGE))?;
    sys::lead_session();
    sys::block_signals();
    sys::set_umask(0o022);
    sys::forbid_core_dumps();
    sys::become_subreaper().map_err(|error| stop(EXIT_USAGE)(format!("orphans cannot be adopted on this kernel: {error}")))?;
    let held = lock::take(&spec.lock_path)
        .map_err(|error| stop(EXIT_USAGE)(format!("the lock {} cannot be taken: {error}", spec.lock_path.display())))?;
    let Some(lock) = held else {
        return Err(stop(EXIT_TAKEN)(format!(
            "attempt {} is running already: its lock {} is held",
            spec.attempt_id,
            spec.lock_path.display()
        )));
    };
    if spec.result_path.symlink_metadata().is_ok() {
        return Err(stop(EXIT_TAKEN)(format!("attempt {} has a result already: {}", spec.attempt_id, spec.result_path.display())));
    }
    let report = attempt(&spec, &lock);
    report
        .write(&spec.result_path)
        .map_err(|error| stop(EXIT_NO_RESULT)(format!("the result {} cannot be written: {error}", spec.result_path.display())))?;
    drop(lock);
    Ok(EXIT_RESULT_WRITTEN)
}

fn attempt(spec: &Spec, lock: &File) -> Report {
    let logs = match Logs::open(spec) {
        Ok(logs) => logs,
        Err(refusal) => return Report::not_started(&spec.attempt_id, refusal.code, refusal.message),
    };
    let group = Group::make(spec);
    let mut report = in_some_mode(spec, &logs, lock, group.as_ref());
    if let Some(group) = group {
        group.judge(&mut report);
        group.remove();
    }
    report
}

fn in_some_mode(spec: &Spec, logs: &Logs, lock: &File, group: Option<&Group>) -> Report {
    let mut why_not = Vec::new();
    for mode in Mode::worth_trying(spec.isolate || spec.container.is_some() || !spec.mounts.is_empty()) {
        match isolated(spec, mode, logs, lock, group) {
            Answer::Report(report) => return *report,
            Answer::NoNamespace(why) => why_not.push(why),
        }
    }
    if spec.container.is_some() {
        why_not.dedup();
        let message =
            format!("containers cannot be run on this host, since it gives this user no mount namespace ({})", why_not.join("; "));
        return Report::not_started(&spec.attempt_id, "no_container", message);
    }
    if spec.mounts.is_empty() {
        return supervised(spec, logs, Reach::Descendants, false, group, false);
    }
    why_not.dedup();
    let message = format!(
        "inputs cannot be linked on this host, since it gives this user no mount namespace ({}); stage them in with access copy",
        why_not.join("; ")
    );
    Report::not_started(&spec.attempt_id, "cannot_link", message)
}

/// What the init says to the reaper, once.
#[derive(Serialize, Deserialize)]
enum Answer {
    Report(Box<Report>),
    NoNamespace(String),
}

fn isolated(spec: &Spec, mode: Mode, logs: &Logs, lock: &File, group: Option<&Group>) -> Answer {
    let (uid, gid) = sys::user_and_group();
    // Nobody reads the answer before the init has ended: a pipe would be full one day, and the init wait for ever.
    let made = sys::memory_file().and_then(|answer| Ok((File::from(answer), sys::pipe()?)));
    let (mut answer, (life_in, life_out)) = match made {
        Ok(made) => made,
        Err(error) => return Answer::NoNamespace(error.to_string()),
    };
    let started = (Instant::now(), now_s());
    let init = match mode.fork() {
        Ok(pid) => pid,
        Err(error) => return Answer::NoNamespace(format!("clone: {error}")),
    };
    if init == 0 {
        drop(life_out);
        // SAFETY: this copy of the descriptor is never used again: the child leaves by `exit_now`. Only the reaper itself may hold the lock.
        unsafe { libc::close(lock.as_raw_fd()) };
        let said = serve_as_init(spec, mode, logs, &life_in, (uid, gid), group);
        let _ = answer.write_all(&serde_json::to_vec(&said).unwrap_or_default());
        sys::exit_now(0);
    }
    drop(life_in);
    let (status, asked) = guard(init, spec);
    if !mode.pid {
        sweep();
    }
    read_answer(answer).unwrap_or_else(|| Answer::Report(Box::new(lost_init(spec, status, asked, started))))
}

/// In the child: the job's init, or its subreaper where there is no pid namespace.
fn serve_as_init(spec: &Spec, mode: Mode, logs: &Logs, life: &OwnedFd, ids: (libc::uid_t, libc::gid_t), group: Option<&Group>) -> Answer {
    let reach = if mode.pid { Reach::Namespace } else { Reach::Descendants };
    let ready = sys::die_with_parent().and_then(|()| sys::become_subreaper());
    if let Err(error) = ready {
        return Answer::NoNamespace(error.to_string());
    }
    // A reaper that died before the line above sends no signal any more.
    if sys::is_hung_up(life) {
        sys::exit_now(1);
    }
    if let Err(why) = mode.settle(ids.0, ids.1) {
        return Answer::NoNamespace(why);
    }
    let refused = |code, message| Answer::Report(Box::new(Report::not_started(&spec.attempt_id, code, message)));
    // Before the sandbox is mounted on itself: it may lie below one of these, and what the job does in it is its own affair.
    let watch = if spec.isolate && spec.watch && spec.container.is_none() { watch::begin(&spec.origins) } else { None };
    let confined = match spec.isolate.then(|| confine::by_mounts(spec)).transpose() {
        Ok(confined) => confined.unwrap_or(false),
        Err(message) => return refused("isolation_failed", message),
    };
    if let Err(message) = links::bind_all(spec.sandbox(), &spec.mounts) {
        return refused("link_failed", message);
    }
    if let Some(Err(message)) = confined.then(|| confine::own_places(spec)) {
        return refused("isolation_failed", message);
    }
    let contained = match spec.container.as_ref().map(|container| contained(spec, container, logs)).transpose() {
        Ok(contained) => contained,
        Err(message) => return refused("container_failed", message),
    };
    let seen = watch.is_some();
    let mut report = supervised(contained.as_ref().unwrap_or(spec), logs, reach, confined || contained.is_some(), group, seen);
    if let Some((opened, count)) = watch.map(|watch| watch.opened(spec)).filter(|(_, count)| *count > 0) {
        (report.opened, report.opened_count) = (opened, Some(count));
    }
    Answer::Report(Box::new(report))
}

/// What it is to run once the image is its root directory: its logs are known by their descriptors alone then.
fn contained(spec: &Spec, container: &Container, logs: &Logs) -> Result<Spec, String> {
    container::enter(spec, container)?;
    let (stdout, stderr) = logs.paths();
    Ok(Spec { stdout, stderr, ..spec.inside(container) })
}

/// `mounts`: its namespace keeps it to its sandbox already. `seen`: what it opens is seen already.
fn supervised(spec: &Spec, logs: &Logs, reach: Reach, mounts: bool, group: Option<&Group>, seen: bool) -> Report {
    let refused = |code, message| Report::not_started(&spec.attempt_id, code, message);
    // Root could mount all of it anew; for everybody else that is as good as it gets, and containers can still be started.
    let rules = if spec.isolate && (!mounts || sys::user_and_group().0 == 0) { confine::by_landlock(spec, mounts) } else { Ok(None) };
    let rules = match rules {
        Ok(rules) => rules,
        Err(message) => return refused("isolation_failed", message),
    };
    let held = Confinement { mounts, landlock: rules.is_some() };
    let is_to_be_seen = spec.isolate && spec.watch && spec.container.is_none() && !seen;
    let opens = if is_to_be_seen { Opens::new(&spec.origins) } else { None };
    let supervisor = Supervisor::new(spec, reach, group);
    let mut report = match launch(spec, logs, rules, group, opens.is_some()) {
        Ok(started) => supervisor.watch(started, opens),
        Err(refusal) => refused(refusal.code, refusal.message),
    };
    report.isolation = spec.isolate.then(|| held.name().into());
    report
}

/// Waits for the init and hands TERM on to it. (wait status, whether TERM came)
fn guard(init: pid_t, spec: &Spec) -> (i32, bool) {
    let mut kill_at: Option<Instant> = None;
    loop {
        if let Some(status) = sys::reap(init, false) {
            return (status, kill_at.is_some());
        }
        let limit = kill_at.map(|at| at.saturating_duration_since(Instant::now()));
        match sys::wait_signal(limit) {
            Some((libc::SIGTERM | libc::SIGINT, _)) if kill_at.is_none() => {
                sys::kill(init, libc::SIGTERM);
                kill_at = Some(Instant::now() + Duration::from_secs_f64(spec.grace_s) + INIT_MARGIN);
            }
            None if kill_at.is_some_and(|at| Instant::now() >= at) => {
                sys::kill(init, libc::SIGKILL);
                kill_at = Some(Instant::now() + INIT_MARGIN);
            }
            _ => {}
        }
    }
}

fn read_answer(mut from: File) -> Option<Answer> {
    let mut text = Vec::new();
    from.rewind().ok()?;
    from.read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

/// The init was killed from outside (by hand, or for want of memory), and its whole tree with it.
fn lost_init(spec: &Spec, status: i32, asked: bool, started: (Instant, f64)) -> Report {
    let signal = std::process::ExitStatus::from_raw(status).signal();
    let message =
        "the process that holds the job's tree together was ended from outside, and the tree with it; was the host out of memory?";
    Report {
        outcome: if asked { Outcome::Killed } else { Outcome::Signalled },
        code: None,
        signal,
        started_at_s: started.1,
        wall_s: started.0.elapsed().as_secs_f64(),
        ..Report::not_started(&spec.attempt_id, "", message.into())
    }
}
