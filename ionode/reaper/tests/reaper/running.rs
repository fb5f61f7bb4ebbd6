//! What a job is given, how it ends, what is measured.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use crate::case::{each, is_root, is_running, is_stopped, signal, wait_until, As, Case};
use serde_json::{json, Value};

fn mode(case: &Case, name: &str) -> u32 {
    fs::metadata(case.path(name)).unwrap().permissions().mode() & 0o7777
}

#[test]
fn result_appears_by_rename_and_all_files_are_private() {
    each(|case| {
        let case = case.shell("echo said; echo wrong >&2; exit 3");
        let report = case.report();
        assert_eq!((report["outcome"].as_str(), report["exit_code"].as_i64(), report["signal"].as_i64()), (Some("exited"), Some(3), None));
        assert_eq!(report["attempt_id"], "a1");
        assert_eq!((case.text("out").as_str(), case.text("err").as_str()), ("said\n", "wrong\n"));
        for name in ["result.json", "out", "err", "lock"] {
            assert_eq!(mode(&case, name), 0o600, "{name}");
        }
        let left: Vec<_> = fs::read_dir(case.root.path())
            .unwrap()
            .flatten()
            .filter(|entry| entry.file_name().to_string_lossy().contains(".new"))
            .collect();
        assert!(left.is_empty(), "{left:?}");
    });
}

#[test]
fn what_is_said_of_a_job_may_be_longer_than_a_pipe_holds() {
    each(|case| {
        let program = format!("/{}", "x".repeat(100_000));
        let report = case.set("isolate", json!(true)).set("argv", json!([program])).report();
        assert_eq!((report["outcome"].as_str(), report["code"].as_str()), (Some("not_started"), Some("start_failed")));
        assert!(report["message"].as_str().unwrap().contains(&program));
    });
}

#[test]
fn environment_is_exactly_as_given() {
    each(|case| {
        let case = case.set("argv", json!(["env"])).set("env", json!({"PATH": "/usr/bin:/bin", "ONE": "a b=c\n'\""}));
        case.report();
        assert_eq!(case.text("out"), "ONE=a b=c\n'\"\nPATH=/usr/bin:/bin\n");
    });
}

#[test]
fn job_starts_with_a_clean_process() {
    each(|case| {
        let case = case.shell("umask; ulimit -c; pwd; grep -E '^Sig(Blk|Ign)' /proc/self/status; exec ls /proc/self/fd");
        case.write_spec();
        // The starter leaks descriptors and ignores signals.
        let status = case
            .run_command(&["sh", "-c", "ulimit -c unlimited && trap '' HUP USR1 PIPE; exec 7</etc/passwd; exec 9<&7; exec \"$@\"", "sh"])
            .status()
            .unwrap();
        assert!(status.success());
        let cwd = case.path("sandbox");
        let clean = "0000000000000000";
        assert_eq!(case.text("out"), format!("0022\n0\n{}\nSigBlk:\t{clean}\nSigIgn:\t{clean}\n0\n1\n2\n3\n", cwd.display()));
    });
}

#[test]
fn starter_with_closed_standard_descriptors_does_no_harm() {
    each(|case| {
        let case = case.shell("cat; echo said; echo wrong >&2");
        assert!(case.run_command(&["sh", "-c", "exec \"$@\" <&- >&- 2>&-", "sh"]).status().unwrap().success());
        assert_eq!((case.text("out").as_str(), case.text("err").as_str()), ("said\n", "wrong\n"));
    });
}

#[test]
fn stdin_comes_from_the_file_or_is_empty() {
    each(|case| {
        case.make_file("input", "line\n", 0o400);
        let input = json!(case.path("input"));
        let case = case.set("argv", json!(["cat"])).set("stdin", input);
        case.report();
        assert_eq!(case.text("out"), "line\n");
    });
    each(|case| {
        let case = case.set("argv", json!(["cat"]));
        assert_eq!(case.report()["exit_code"], 0);
        assert_eq!(case.text("out"), "");
    });
    each(|case| {
        case.make_fifo("fifo");
        let fifo = json!(case.path("fifo"));
        let case = case.set("argv", json!(["cat"])).set("stdin", fifo);
        assert_eq!(case.report()["code"], "stdin_unreadable");
    });
}

#[test]
fn logs_are_appended_to_never_followed() {
    each(|case| {
        case.make_file("out", "before\n", 0o600);
        let case = case.set("argv", json!(["echo", "after"]));
        case.report();
        assert_eq!(case.text("out"), "before\nafter\n");
    });
    each(|case| {
        case.make_file("victim", "", 0o600);
        std::os::unix::fs::symlink(case.path("victim"), case.path("out")).unwrap();
        let case = case.set("argv", json!(["echo", "x"]));
        assert_eq!(case.report()["code"], "start_failed");
        assert_eq!(case.text("victim"), "");
    });
}

fn refusal(case: Case, argv: Value, env: Value) -> (String, String) {
    let report = case.set("argv", argv).set("env", env).report();
    assert_eq!(report["outcome"], "not_started");
    assert_eq!((&report["exit_code"], &report["chars_read"], &report["memory_peak_bytes"]), (&Value::Null, &Value::Null, &Value::Null));
    (report["code"].as_str().unwrap().into(), report["message"].as_str().unwrap().into())
}

#[test]
fn program_that_cannot_start_is_named() {
    each(|case| {
        let (code, message) = refusal(case, json!(["no-such-tool", "x"]), json!({"PATH": "/usr/bin:/bin"}));
        assert_eq!(code, "program_not_found");
        assert!(message.contains("\"no-such-tool\"") && message.contains("/usr/bin:/bin"), "{message}");
    });
    each(|case| assert!(refusal(case, json!(["true"]), json!({})).1.contains("no PATH")));
    each(|case| assert!(refusal(case, json!(["./tool"]), json!({})).1.contains("\"./tool\" does not exist")));
    each(|case| {
        case.make_file("sandbox/tool", "#!/no/such/shell\n", 0o700);
        assert!(refusal(case, json!(["./tool"]), json!({})).1.contains("interpreter"));
    });
    each(|case| {
        case.make_file("sandbox/tool", "echo\n", 0o700);
        let (code, message) = refusal(case, json!(["./tool"]), json!({}));
        assert_eq!(code, "program_not_executable");
        assert!(message.contains("#!"), "{message}");
    });
    each(|case| {
        case.make_file("sandbox/tool", "#!/bin/sh\n", 0o600);
        assert_eq!(refusal(case, json!(["tool"]), json!({"PATH": "/nowhere::/usr/bin"})).0, "program_not_executable");
    });
}

#[test]
fn bare_name_is_looked_up_in_the_path_given() {
    each(|case| {
        case.make_file("sandbox/tool", "#!/bin/sh\necho mine\n", 0o700);
        let path = format!("/nowhere:{}", case.path("sandbox").display());
        let case = case.set("argv", json!(["tool"])).set("env", json!({"PATH": path}));
        assert_eq!(case.report()["exit_code"], 0);
        assert_eq!(case.text("out"), "mine\n");
    });
}

#[test]
fn death_by_signal_is_told_apart_from_an_exit_code() {
    each(|case| {
        let report = case.shell("kill -SEGV $$").report();
        assert_eq!(
            (report["outcome"].as_str(), report["exit_code"].as_i64(), report["signal"].as_i64()),
            (Some("signalled"), None, Some(11))
        );
    });
}

/// Of a job that says `ready` and is then out of time. One that was not yet ready, on a busy machine, gets more time and begins anew.
fn out_of_time(case: Case, grace_s: f64, script: impl Fn(&str) -> String) -> (Case, Value, f64) {
    let user = case.user;
    for timeout_s in [0.3, 2.5, 20.0, 120.0] {
        let case = Case::new(user);
        let script = script(&case.token(1));
        let case = case.shell(&script).set("timeout_s", json!(timeout_s)).set("grace_s", json!(grace_s));
        let report = case.report();
        if case.path("sandbox/ready").exists() {
            return (case, report, timeout_s);
        }
    }
    panic!("the job was never ready");
}

#[test]
fn timeout_asks_first_and_reports_itself() {
    each(|case| {
        let script = |_: &str| "trap 'echo asked; exit 4' TERM; echo > ready; sleep 1000 & wait".to_string();
        let (case, report, timeout_s) = out_of_time(case, 100.0, script);
        assert_eq!((report["outcome"].as_str(), report["exit_code"].as_i64()), (Some("timeout"), Some(4)));
        assert!(report["message"].as_str().unwrap().contains(&format!("{timeout_s} s")), "{report}");
        assert_eq!(case.text("out"), "asked\n");
        let wall_s = report["wall_s"].as_f64().unwrap();
        assert!((timeout_s..timeout_s + 60.0).contains(&wall_s), "{wall_s}");
    });
}

#[test]
fn timeout_kills_a_tree_that_does_not_listen() {
    each(|case| {
        let script = |token: &str| {
            let inner = format!("trap '' TERM; echo > ready; sleep {token}; sleep {token}");
            format!("trap '' TERM; setsid sh -c \"{inner}\" & sleep {token}; sleep {token}")
        };
        let (case, report, _) = out_of_time(case, 0.3, script);
        assert_eq!((report["outcome"].as_str(), report["signal"].as_i64()), (Some("timeout"), Some(9)));
        assert!(!is_running(&case.token(1)));
    });
}

#[test]
fn term_to_the_reaper_ends_the_job() {
    each(|case| {
        let token = case.token(1);
        let script =
            format!("for i in 1 2 3 4 5 6 7 8; do sh -c 'setsid sh -c \"sleep {token}; :\"; :' & done; echo ready > ready; sleep {token}");
        let case = case.shell(&script).set("grace_s", json!(100));
        let mut reaper = case.start();
        wait_until("the job", || case.path("sandbox/ready").exists() && is_running(&token));
        let begun = Instant::now();
        signal(reaper.id(), "TERM");
        assert!(reaper.wait().unwrap().success());
        // TERM was enough for all, those included that lost their parents to it.
        assert!(begun.elapsed() < Duration::from_secs(60));
        assert_eq!(case.result()["outcome"], "killed");
        assert_eq!(case.result()["signal"], 15);
        assert!(!is_running(&token));
    });
}

#[test]
fn stopped_job_can_be_ended_too() {
    each(|case| {
        let token = case.token(1);
        let case = case.shell(&format!("trap 'exit 0' TERM; kill -STOP $$; : {token}")).set("grace_s", json!(100));
        let mut reaper = case.start();
        // Not when it says that it will be: one that stops behind TERM stays so for the whole grace.
        wait_until("the job to be stopped", || is_stopped(&token));
        let begun = Instant::now();
        signal(reaper.id(), "TERM");
        reaper.wait().unwrap();
        assert!(begun.elapsed() < Duration::from_secs(60));
        assert_eq!(case.result()["outcome"], "killed");
    });
}

#[test]
fn measures_are_of_the_whole_tree() {
    each(|case| {
        let script = "head -c 30000000 /dev/zero > made; cat made > copy; tail -c 30000000 /dev/zero </dev/null >/dev/null; head -c 40000000 /dev/zero | tail -c 39000000 >/dev/null";
        let case = case.shell(script);
        let report = case.report();
        let number = |key: &str| report[key].as_f64().unwrap_or_else(|| panic!("{key} in {report}"));
        assert!(number("chars_written") >= 60e6 && number("chars_read") >= 100e6, "{report}");
        assert!(number("written_bytes") >= 60e6 && report["read_bytes"].is_u64(), "{report}");
        assert!(number("memory_peak_bytes") > 39e6 && number("memory_peak_bytes") < 300e6, "{report}");
        assert!(number("cpu_system_s") + number("cpu_user_s") > 0.005 && number("wall_s") > 0.005, "{report}");
        assert_eq!(report["processes"], 1);
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
        assert!((now - 600.0..now).contains(&number("started_at_s")));
    });
}

#[test]
fn cpu_of_orphans_is_counted() {
    each(|case| {
        let spin = "i=0; while [ $i -lt 150000 ]; do i=$((i+1)); done; echo > ../done";
        let script = format!("(setsid sh -c '{spin}' &) ; until [ -e ../done ]; do sleep 0.02; done");
        let report = case.shell(&script).report();
        assert!(report["cpu_user_s"].as_f64().unwrap() > 0.02, "{report}");
        assert_eq!(report["processes"], 2);
    });
}

#[test]
fn bad_spec_starts_nothing() {
    for (key, value, says) in [
        ("argv", json!([]), "no program"),
        ("cwd", json!("sandbox"), "not an absolute path"),
        ("cwd", json!("/tmp/../tmp"), "not an absolute path"),
        ("timeout_s", json!(-1), "number of seconds"),
        ("env", json!({"A=B": "x"}), "environment variable"),
        ("argv", json!(["echo", "a\u{0}b"]), "NUL"),
        ("surprise", json!(1), "surprise"),
    ] {
        let case = Case::new(As::Ordinary).set(key, value);
        let output = case.output();
        let said = String::from_utf8_lossy(&output.stderr).to_string();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(says), "{said}");
        assert!(!case.path("result.json").exists() && !case.path("out").exists());
    }
}

#[test]
fn command_line_is_explained() {
    let case = Case::new(As::Ordinary);
    let output = case.command(&[], &["run", "--help"]).output().unwrap();
    assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains("--spec FILE"));
    assert_eq!(case.command(&[], &["run", "--spec"]).output().unwrap().status.code(), Some(2));
}

/// Of root, too: what is read of another user's file is what its mode allows everybody.
#[test]
fn an_unprivileged_job_has_no_capability_and_gets_none() {
    for linked in [false, true] {
        each(|case| {
            case.make_file("stored", "x", 0o400);
            let case = if linked { case.link("stored", "in") } else { case };
            let case = case.set("unprivileged", json!(true)).shell("grep -E '^(Cap|NoNewPrivs)' /proc/self/status");
            assert_eq!(case.report()["exit_code"], 0);
            let said = case.text("out");
            assert!(said.contains("NoNewPrivs:\t1"), "{said}");
            for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
                assert!(said.contains(&format!("{set}:\t0000000000000000")), "{said}");
            }
        });
    }
    if is_root() {
        let case = Case::new(As::Root);
        case.make_file("stored", "theirs", 0o600);
        std::os::unix::fs::chown(case.path("stored"), Some(65534), Some(65534)).unwrap();
        let path = case.path("stored").display().to_string();
        let case = case.set("unprivileged", json!(true)).shell(&format!("cat {path} || echo refused"));
        case.report();
        assert_eq!(case.text("out"), "refused\n");
    }
}
