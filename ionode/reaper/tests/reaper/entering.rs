//! A person's command in a sandbox that a job left: with the job's environment and inputs, and nothing of ours.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Output, Stdio};

use crate::case::{each, Case};
use serde_json::json;

/// The orders come on descriptor 9.
fn enter(case: &Case) -> Output {
    case.write_spec();
    let orders = File::open(case.path("spec.json")).unwrap();
    let fd = orders.as_raw_fd();
    let mut command = case.command(&[], &["run", "--enter", "9"]);
    // SAFETY: one system call between fork and exec, with plain integers.
    unsafe {
        command.pre_exec(move || if libc::dup2(fd, 9) < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) });
    }
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.clone(), output.stderr.clone()].concat()).into_owned()
}

#[test]
fn inputs_are_there_and_cannot_be_changed_and_the_exit_code_is_the_commands() {
    each(|case| {
        case.make_file("stored", "content\n", 0o600);
        let case = case
            .link("stored", "in")
            .shell("cat in; (echo x >> in) 2>&1; echo new > new; test -e /proc/self/fd/9 && echo orders; id -u; exit 7");
        let case = case.set("env", json!({"PATH": "/usr/bin:/bin", "OWN": "1"}));
        let output = enter(&case);
        assert_eq!(output.status.code(), Some(7), "{}", said(&output));
        assert!(said(&output).starts_with("content\n") && said(&output).contains("Read-only file system"), "{}", said(&output));
        assert!(!said(&output).contains("orders"), "the orders hold an environment");
        assert_eq!(
            (case.text("stored").as_str(), case.text("sandbox/in").as_str(), case.text("sandbox/new").as_str()),
            ("content\n", "", "new\n")
        );
    });
}

#[test]
fn the_environment_is_the_jobs_and_signals_are_as_for_any_program() {
    each(|case| {
        let case = case
            .shell("env | grep -v -e ^PWD= -e ^_= -e ^SHLVL= | sort; yes | head -1")
            .set("env", json!({"PATH": "/usr/bin:/bin", "OWN": "1"}));
        let output = enter(&case);
        assert_eq!((output.status.code(), said(&output).as_str()), (Some(0), "OWN=1\nPATH=/usr/bin:/bin\ny\n"));
    });
}

#[test]
fn what_cannot_be_entered_is_told() {
    each(|case| {
        let output = enter(&case.set("argv", json!(["no-such-program"])));
        assert_eq!(output.status.code(), Some(126));
        assert!(said(&output).contains("no-such-program"), "{}", said(&output));
    });
    each(|case| {
        case.make_file("stored", "content\n", 0o600);
        let case = case.link("stored", "in");
        std::fs::remove_file(case.path("sandbox/in")).unwrap();
        let output = enter(&case);
        assert!(output.status.code() == Some(126) && said(&output).contains("cannot be linked"), "{}", said(&output));
    });
}
