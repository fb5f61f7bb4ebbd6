//! The lock, the tree that must not outlive it, and the namespaces that make sure of it.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::Command;

use crate::case::{each, is_root, is_running, signal, wait_until, As, Case};
use serde_json::json;

fn lock_is_free(case: &Case) -> bool {
    Command::new("flock").arg("-n").arg(case.path("lock")).arg("true").status().unwrap().success()
}

fn holds_open(pid: u32, path: &Path) -> bool {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    descriptors.filter_map(|entry| fs::read_link(entry.path()).ok()).any(|target| target == path)
}

#[test]
fn lock_is_held_with_the_pid_in_it_while_the_job_runs() {
    each(|case| {
        case.make_fifo("go");
        let case = case.shell("echo > ready; read line < ../go; exit 7");
        let mut reaper = case.start();
        wait_until("the job", || case.path("sandbox/ready").exists());
        assert!(!lock_is_free(&case));
        assert_eq!(case.text("lock").trim(), reaper.id().to_string());
        assert!(!case.path("result.json").exists());

        let second = case.output();
        assert_eq!(second.status.code(), Some(3), "{}", String::from_utf8_lossy(&second.stderr));
        assert_eq!(case.text("lock").trim(), reaper.id().to_string());

        OpenOptions::new().write(true).open(case.path("go")).unwrap().write_all(b"x\n").unwrap();
        assert!(reaper.wait().unwrap().success());
        assert!(lock_is_free(&case));
        assert_eq!(case.result()["exit_code"], 7);
    });
}

#[test]
fn finished_attempt_is_never_run_again() {
    each(|case| {
        let case = case.shell("echo ran");
        case.report();
        assert_eq!(case.output().status.code(), Some(3));
        assert_eq!(case.text("out"), "ran\n");
    });
}

#[test]
fn a_look_at_the_lock_does_not_keep_the_reaper_out() {
    each(|case| {
        let look = fs::File::create(case.path("lock")).unwrap();
        fs::set_permissions(case.path("lock"), std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
        look.lock().unwrap();
        let mut reaper = case.start();
        wait_until("the reaper at the lock", || reaper.try_wait().unwrap().is_some() || holds_open(reaper.id(), &case.path("lock")));
        look.unlock().unwrap();
        assert!(reaper.wait().unwrap().success());
        assert_eq!(case.result()["exit_code"], 0);
    });
}

#[test]
fn daemons_end_with_the_job() {
    each(|case| {
        let (polite, stubborn) = (case.token(1), case.token(2));
        // Two forks and a session of their own: nothing ties them to the job any more but the reaper.
        let script = format!(
            "(setsid sh -c 'echo > one; exec sleep {polite}' &); (setsid sh -c \"trap '' TERM; echo > two; sleep {stubborn}; sleep {stubborn}\" &); \
             until [ -e one ] && [ -e two ]; do sleep 0.02; done; exit 5"
        );
        let case = case.shell(&script).set("grace_s", json!(0.4));
        let report = case.report();
        assert_eq!((report["outcome"].as_str(), report["exit_code"].as_i64()), (Some("exited"), Some(5)));
        assert!(!is_running(&polite) && !is_running(&stubborn));
        assert!(report["processes"].as_u64().unwrap() >= 3, "{report}");
        // Either would sleep for most of an hour.
        assert!(report["wall_s"].as_f64().unwrap() < 60.0);
    });
}

#[test]
fn kill_9_of_the_reaper_ends_the_job() {
    each(|case| {
        let token = case.token(1);
        let case = case.set("argv", json!(["sleep", token]));
        let mut reaper = case.start();
        wait_until("the job", || is_running(&token));
        signal(reaper.id(), "KILL");
        reaper.wait().unwrap();
        wait_until("the job's end", || !is_running(&token));
        assert!(!case.path("result.json").exists());
        assert!(lock_is_free(&case));
    });
}

/// With a pid namespace (root; or an ordinary user's job with linked inputs) daemons fall with the reaper as well.
#[test]
fn kill_9_of_the_reaper_ends_the_whole_tree_in_a_pid_namespace() {
    each(|case| {
        case.make_file("stored", "x", 0o400);
        let token = case.token(1);
        let case =
            case.link("stored", "in").shell(&format!("(setsid sh -c \"trap '' TERM HUP; sleep {token}\" &); echo > ready; sleep {token}"));
        let mut reaper = case.start();
        wait_until("the daemon", || case.path("sandbox/ready").exists() && is_running(&token));
        signal(reaper.id(), "KILL");
        reaper.wait().unwrap();
        wait_until("the tree's end", || !is_running(&token));
    });
}

#[test]
fn killed_init_is_reported() {
    each(|case| {
        case.make_file("stored", "x", 0o400);
        let token = case.token(1);
        let case = case.link("stored", "in").shell(&format!("echo > ready; sleep {token}"));
        let mut reaper = case.start();
        wait_until("the job", || case.path("sandbox/ready").exists() && is_running(&token));
        let listed = Command::new("pgrep").args(["-P", &reaper.id().to_string()]).output().unwrap();
        let init: u32 = String::from_utf8(listed.stdout).unwrap().trim().parse().unwrap();
        // A lock that a child held too would prove nothing about the reaper's pid.
        assert!(!holds_open(init, &case.path("lock")));
        signal(init, "KILL");
        assert!(reaper.wait().unwrap().success());
        let report = case.result();
        assert_eq!((report["outcome"].as_str(), report["signal"].as_i64()), (Some("signalled"), Some(9)));
        assert!(report["message"].as_str().unwrap().contains("from outside"), "{report}");
        assert!(!is_running(&token));
    });
}

#[test]
fn root_job_sees_only_its_own_processes_and_cannot_end_its_keeper() {
    if !is_root() {
        return;
    }
    let case = Case::new(As::Root).shell("kill -TERM $PPID; kill -KILL $PPID; echo $$ $PPID /proc/[0-9]*");
    let report = case.report();
    assert_eq!((report["outcome"].as_str(), report["exit_code"].as_i64()), (Some("exited"), Some(0)));
    // The shell looks by itself: of two programs in a pipe the one that lists may be done before the other is there.
    assert_eq!(case.text("out"), "2 1 /proc/1 /proc/2\n");
}

#[test]
fn ordinary_job_without_links_keeps_the_hosts_user_namespace() {
    let case = Case::new(As::Ordinary).shell("readlink /proc/self/ns/user");
    case.report();
    assert_eq!(case.text("out").trim(), fs::read_link("/proc/self/ns/user").unwrap().to_str().unwrap());
}
