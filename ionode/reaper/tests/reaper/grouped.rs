//! Attempts in control groups. Where this host's cgroup v2 has no memory controller, those that need one say so and end.

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::case::{is_root, is_running, signal, wait_until, As, Case};
use serde_json::{json, Value};

const MIB: u64 = 1 << 20;
const SHOW: &str = "grep ^0:: /proc/self/cgroup";
/// Shorter than the reaper's own measure looks.
const SPIKE: &str = "python3 -c 'held = bytearray(190 << 20)'";

/// A group as an administrator gives it away, and one below it in which the reaper is.
struct Delegated {
    path: PathBuf,
    home: PathBuf,
    memory: bool,
}

impl Delegated {
    /// `home`: the name of the reaper's own group; empty: the delegated one.
    fn new(name: &str, home: &str) -> Option<Delegated> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let is_cgroup2 = |place: &&str| {
            let told = Command::new("stat").args(["-f", "-c", "%T", place]).output().unwrap();
            told.stdout == b"cgroup2fs\n"
        };
        let found = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].into_iter().find(is_cgroup2);
        let Some(top) = found.map(Path::new).filter(|_| is_root()) else {
            eprintln!("skipped: only root makes control groups, and cgroup v2 has to be mounted");
            return None;
        };
        let _ = fs::write(top.join("cgroup.subtree_control"), "+memory");
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = top.join(format!("reaper-test-{}-{number}{name}", std::process::id()));
        fs::create_dir(&path).ok()?;
        let home = path.join(home);
        fs::create_dir_all(&home).unwrap();
        let memory = fs::read_to_string(path.join("cgroup.controllers")).unwrap().contains("memory");
        Some(Delegated { path, home, memory })
    }

    fn with_memory(name: &str, home: &str) -> Option<Delegated> {
        let made = Delegated::new(name, home).filter(|made| made.memory);
        if made.is_none() {
            eprintln!("skipped: no memory controller");
        }
        made
    }

    fn mark(&self) {
        let path = self.path.to_str().unwrap();
        let script = format!("import os; os.setxattr({path:?}, 'user.delegate', b'1')");
        assert!(Command::new("python3").args(["-c", &script]).status().unwrap().success());
    }

    fn give(&self, user: As) {
        if user == As::Ordinary {
            for directory in [&self.path, &self.home] {
                for name in ["", "cgroup.procs", "cgroup.subtree_control"] {
                    chown(directory.join(name), Some(65534), Some(65534)).unwrap();
                }
            }
        }
    }

    /// The case's reaper, begun in its home.
    fn command(&self, case: &Case, named: bool, before: &[&str]) -> Command {
        self.give(case.user);
        let plain = case.run_command(before);
        let mut command = Command::new("sh");
        command.args(["-c", r#"echo $$ > "$0/cgroup.procs" && exec "$@""#]).arg(&self.home).arg(plain.get_program()).args(plain.get_args());
        command.stdin(Stdio::null()).current_dir("/").env_remove("STAGER_CGROUP");
        if named {
            command.env("STAGER_CGROUP", &self.path);
        }
        command
    }

    fn report(&self, case: &Case, named: bool) -> Value {
        assert!(self.command(case, named, &[]).status().unwrap().success());
        case.result()
    }

    fn of_attempts(&self) -> Vec<PathBuf> {
        let names = fs::read_dir(&self.path).unwrap().flatten().map(|entry| entry.path());
        names.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("stager-")).collect()
    }
}

impl Drop for Delegated {
    fn drop(&mut self) {
        let _ = fs::write(self.path.join("cgroup.kill"), "1");
        wait_until("the groups to be empty", || {
            for entry in fs::read_dir(&self.path).into_iter().flatten().flatten() {
                let _ = fs::remove_dir(entry.path());
            }
            let _ = fs::remove_dir(&self.path);
            !self.path.exists()
        });
    }
}

fn each(test: impl Fn(Case)) {
    for user in [As::Root, As::Ordinary] {
        if is_root() {
            test(Case::new(user));
        }
    }
}

fn limited(case: Case, mib: u64, script: &str) -> Case {
    case.set("memory_limit_bytes", json!(mib * MIB)).shell(script)
}

#[test]
fn an_attempt_with_a_limit_has_a_group_of_its_own_as_long_as_it_lives() {
    each(|case| {
        let Some(given) = Delegated::new("", "home") else { return };
        let case = limited(case, 500, &format!("{SHOW}; (setsid {SHOW})"));
        let report = given.report(&case, true);
        assert_eq!(report["exit_code"], 0, "{report} {}", case.text("err"));
        assert_eq!(report["memory_by"], if given.memory { "cgroup" } else { "measured" });
        for line in case.text("out").lines() {
            assert!(line.contains(given.path.to_str().unwrap().rsplit_once('/').unwrap().1) && line.ends_with("-a1"), "{line}");
        }
        assert_eq!(given.of_attempts(), Vec::<PathBuf>::new());
    });
}

#[test]
fn what_is_not_delegated_is_left_alone_and_so_is_a_job_without_a_limit() {
    each(|case| {
        let Some(given) = Delegated::new("", "home") else { return };
        let case = limited(case, 500, SHOW);
        let report = given.report(&case, false);
        assert_eq!((report["exit_code"].as_i64(), report["memory_by"].as_str()), (Some(0), Some("measured")), "{report}");
        assert!(case.text("out").trim().ends_with("/home"), "{}", case.text("out"));
        let free = Case::new(case.user).shell(SHOW);
        let report = given.report(&free, true);
        assert!(free.text("out").trim().ends_with("/home") && report.get("memory_by").is_none(), "{report}");
    });
}

#[test]
fn what_systemd_delegates_is_found() {
    each(|case| {
        let Some(given) = Delegated::new(".service", "main") else { return };
        given.mark();
        let case = limited(case, 500, SHOW);
        assert_eq!(given.report(&case, false)["exit_code"], 0);
        assert!(case.text("out").trim().ends_with("-a1"), "{}", case.text("out"));
    });
}

/// A group with limits for its children holds no process: those that were in it go beside.
#[test]
fn in_a_scope_the_processes_make_way() {
    each(|case| {
        let Some(given) = Delegated::with_memory(".scope", "") else { return };
        given.mark();
        let case = limited(case, 500, SHOW);
        let report = given.report(&case, false);
        assert_eq!((report["exit_code"].as_i64(), report["memory_by"].as_str()), (Some(0), Some("cgroup")), "{report}");
        assert!(given.path.join("stager").exists());
        // And nothing of a service, which systemd could not start again.
        let Some(service) = Delegated::with_memory(".service", "") else { return };
        service.mark();
        let case = limited(Case::new(case.user), 500, SHOW);
        assert_eq!(service.report(&case, false)["memory_by"], "measured");
        assert!(!service.path.join("stager").exists());
    });
}

#[test]
fn the_kernel_ends_a_job_that_wants_more_than_it_may_however_quickly() {
    each(|case| {
        let Some(given) = Delegated::with_memory("", "home") else { return };
        let token = case.token(1);
        let case = limited(case, 60, &format!("sleep {token} & {SPIKE}; exit 0"));
        let report = given.report(&case, true);
        assert_eq!((report["outcome"].as_str(), report["memory_by"].as_str()), (Some("memory"), Some("cgroup")), "{report}");
        assert_eq!(report["memory_limit_bytes"], 60 * MIB);
        assert!(report["memory_used_bytes"].as_u64().unwrap() > 50 * MIB, "{report}");
        assert!(!is_running(&token));
        assert_eq!(given.of_attempts(), Vec::<PathBuf>::new());
    });
}

/// On a disk: what is in a tmpfs is memory.
#[test]
fn files_that_it_reads_and_writes_do_not_end_it() {
    each(|case| {
        let Some(given) = Delegated::with_memory("", "home") else { return };
        let case = limited(
            Case::new_in(case.user, Path::new("/var/lib")),
            60,
            "head -c 200000000 /dev/zero > large; cat large > copy; cat copy > /dev/null",
        );
        let report = given.report(&case, true);
        assert_eq!(report["exit_code"], 0, "{report} {}", case.text("err"));
    });
}

#[test]
fn a_machine_without_memory_is_no_fault_of_the_job() {
    each(|case| {
        let Some(given) = Delegated::with_memory("", "home") else { return };
        fs::write(given.path.join("memory.max"), (60 * MIB).to_string()).unwrap();
        let _ = fs::write(given.path.join("memory.swap.max"), "0");
        let case = limited(case, 500, SPIKE);
        let report = given.report(&case, true);
        assert_eq!((report["outcome"].as_str(), report["signal"].as_i64()), (Some("signalled"), Some(9)), "{report}");
        assert!(report["message"].as_str().unwrap().contains("had no memory left"), "{report}");
    });
}

/// Nobody waits for these: the kernel that counts children by their parents does not count them.
#[test]
fn processors_are_counted_for_children_that_nobody_waits_for() {
    each(|case| {
        let Some(given) = Delegated::with_memory("", "home") else { return };
        let script = "python3 -c '\nimport os, signal, time\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\nif not os.fork():\n    while time.process_time() < 2: pass\n    os._exit(0)\ntry: os.wait()\nexcept ChildProcessError: pass'";
        let report = given.report(&limited(case, 500, script), true);
        assert!(report["cpu_user_s"].as_f64().unwrap() + report["cpu_system_s"].as_f64().unwrap() > 2.0, "{report}");
    });
}

/// Processes that no namespace ended included.
#[test]
fn what_a_killed_reaper_left_goes_with_the_next_attempt() {
    each(|case| {
        let Some(given) = Delegated::new("", "home") else { return };
        let token = case.token(2);
        let case = limited(case, 500, &format!("echo > ready; sleep {token}"));
        let mut reaper = given.command(&case, true, &[]).spawn().unwrap();
        wait_until("the job", || case.path("sandbox/ready").exists());
        let [left] = &given.of_attempts()[..] else { panic!("{:?}", given.of_attempts()) };
        // One that lives is nobody's to remove.
        let beside = limited(Case::new(case.user), 500, "true");
        given.report(&beside, true);
        assert!(left.exists() && is_running(&token));
        signal(reaper.id(), "KILL");
        reaper.wait().unwrap();
        wait_until("the end of its init", || {
            Command::new("flock").args(["-n".as_ref(), left.as_os_str(), "true".as_ref()]).status().unwrap().success()
        });
        given.report(&limited(Case::new(case.user), 500, "true"), true);
        assert_eq!(given.of_attempts(), Vec::<PathBuf>::new());
        assert!(!is_running(&token));
    });
}

/// As in containers whose rules do not know the newer call.
const WITHOUT_CLONE3: &str = "
import ctypes, os, platform, struct, sys
libc = ctypes.CDLL(None)
rules = struct.pack('HBBIHBBIHBBIHBBI', 0x20, 0, 0, 0, 0x15, 0, 1, 435, 6, 0, 0, 0x50026, 6, 0, 0, 0x7fff0000)
kept = ctypes.create_string_buffer(rules)
program = struct.pack('HxxxxxxQ', 4, ctypes.addressof(kept))
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, ctypes.create_string_buffer(program), 0, 0) == 0
os.execvp(sys.argv[1], sys.argv[1:])
";

#[test]
fn where_a_child_cannot_begin_in_its_group_it_is_moved() {
    let Some(given) = Delegated::new("", "home") else { return };
    let case = limited(Case::new(As::Root), 500, SHOW);
    assert!(given.command(&case, true, &["python3", "-c", WITHOUT_CLONE3]).status().unwrap().success());
    assert!(case.text("out").trim().ends_with("-a1"), "{}", case.text("out"));
    assert_eq!(case.result()["memory_by"], if given.memory { "cgroup" } else { "measured" });
}
