//! Jobs that try to write where they may not, as root, as an ordinary user, and where the host gives one protection alone or neither.

use std::fs;
use std::os::unix::fs::{symlink, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::case::{each, is_root, As, Case};
use crate::linking::NO_NAMESPACES;
use serde_json::{json, Value};

/// Where nothing can be mounted, and Landlock is all there is.
const LANDLOCK_ALONE: &[&str] = &NO_NAMESPACES;

fn isolated(case: Case) -> Case {
    case.make_dir("sandbox/.tmp");
    let scratch = json!(case.path("sandbox/.tmp"));
    case.set("isolate", json!(true)).set("scratch_dir", scratch)
}

/// An origin's file, another job's sandbox, and a file that everybody may write, so that rights alone refuse nothing.
fn surroundings(case: &Case) {
    for name in ["origin", "other", "attempt"] {
        case.make_dir(name);
    }
    case.make_file("origin/data", "kept\n", 0o666);
    case.make_file("other/made", "theirs\n", 0o666);
}

const ATTACKS: &str = r#"
echo x > "$AT/origin/new"
echo x >> "$AT/origin/data"
true > "$AT/origin/data"
rm -f "$AT/origin/data"
mv "$AT/origin/data" taken
mv "$AT/origin" "$AT/gone"
mkdir "$AT/origin/d"
mkfifo "$AT/origin/p"
ln -s / "$AT/origin/s"
echo x > "$AT/other/made"
echo x > "$AT/other/new"
echo x > "$AT/result.json"
ln -s "$AT/origin/data" soft && echo x > soft
ln "$AT/origin/data" hard && echo x > hard
ln -s "$AT/origin" way && echo x > way/new
echo x > /proc/self/root"$AT"/origin/new
echo x > /proc/1/root"$AT"/origin/new
echo x > /proc/$PPID/root"$AT"/origin/new
echo x > /proc/self/cwd/../origin/new
truncate -s 0 "$AT/origin/data"
echo mine > moved && mv moved "$AT/origin/moved"
echo mine > linked && ln linked "$AT/origin/linked"
mount -o remount,rw / && echo x > "$AT/origin/new"
mount -o remount,bind,rw "$AT" && echo x > "$AT/origin/new"
mount --bind "$AT/origin" .tmp && echo x > .tmp/new
umount "$AT" && echo x > "$AT/origin/new"
nsenter -t 1 -m sh -c "echo x > $AT/origin/new"
unshare -Urm sh -c "mount -o remount,rw /; mount -o remount,bind,rw $AT; echo x > $AT/origin/new"
unshare -m sh -c "umount -l $AT; echo x > $AT/origin/new"
echo x > /etc/stager-was-here
echo x > /usr/stager-was-here
echo tried
"#;

fn attack(case: Case, before: &[&str]) -> (Case, Value) {
    surroundings(&case);
    let at = case.root.path().to_str().unwrap().to_string();
    let case = isolated(case).set("env", json!({"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "AT": at})).shell(ATTACKS);
    assert!(case.run_command(before).status().unwrap().success());
    let report = case.result();
    assert!(case.text("out").ends_with("tried\n"), "{report} {}", case.text("err"));
    (case, report)
}

fn untouched(case: &Case, report: &Value) {
    assert_eq!(case.text("origin/data"), "kept\n", "{report}");
    assert_eq!(case.text("other/made"), "theirs\n");
    for (name, count) in [("origin", 1), ("other", 1), ("attempt", 0)] {
        let found: Vec<_> = fs::read_dir(case.path(name)).unwrap().flatten().map(|entry| entry.file_name()).collect();
        assert_eq!(found.len(), count, "{name}: {found:?}");
    }
    for place in ["/etc/stager-was-here", "/usr/stager-was-here"] {
        // Where it was made, it is not left to tests that come later.
        assert!(fs::remove_file(place).is_err(), "{place}");
    }
    assert_eq!(report["outcome"], "exited");
}

#[test]
fn a_job_writes_nowhere_but_in_its_sandbox() {
    each(|case| {
        let user = case.user;
        let (case, report) = attack(case, &[]);
        untouched(&case, &report);
        assert_eq!(report["isolation"], if user == As::Root { "mounts+landlock" } else { "mounts" });
    });
}

#[test]
fn where_nothing_can_be_mounted_landlock_holds_it() {
    let (case, report) = attack(Case::new(As::Ordinary), LANDLOCK_ALONE);
    untouched(&case, &report);
    assert_eq!(report["isolation"], "landlock");
}

/// Shows that the attacks are ones: each of these files would be another without it.
#[test]
fn a_job_that_is_not_isolated_does_all_of_it() {
    each(|case| {
        surroundings(&case);
        let at = case.root.path().to_str().unwrap().to_string();
        let case = case
            .set("env", json!({"PATH": "/usr/bin:/bin", "AT": at}))
            .shell("echo x > $AT/origin/new; echo x > $AT/other/made; mv $AT/origin/data taken");
        let report = case.report();
        assert!(report.get("isolation").is_none(), "{report}");
        assert_eq!(
            (case.text("origin/new"), case.text("other/made"), case.text("sandbox/taken")),
            ("x\n".into(), "x\n".into(), "kept\n".into())
        );
    });
}

const USUAL: &str = r#"set -e
mkdir -p a/b "$HOME/.cache"; echo one > a/one; mv a/one a/b/two; ln a/b/two three; ln -s three four; rm four; mkfifo f; chmod 700 a; touch -d 2001-01-01 three
echo x > /dev/null; head -c 4 /dev/urandom > r; echo x > /dev/shm/stager-mine; test -w /dev/shm/stager-mine
echo said > /dev/stdout; echo wrong > /dev/stderr
(echo in a subshell) | tee piped > /dev/null
cat <<END > here
text
END
echo tmp > "$TMPDIR/t"; cat linked; : > out.txt
"#;

#[test]
fn what_programs_do_every_day_goes_on() {
    for before in [&[][..], LANDLOCK_ALONE] {
        each(|case| {
            if case.user == As::Root && !before.is_empty() {
                return;
            }
            case.make_file("stored", "given\n", 0o600);
            let case = isolated(case);
            let case = if before.is_empty() {
                case.link("stored", "linked")
            } else {
                case.make_file("sandbox/linked", "given\n", 0o600);
                case
            };
            let (home, scratch) = (case.path("sandbox"), case.path("sandbox/.tmp"));
            let case = case.set("env", json!({"PATH": "/usr/bin:/bin", "HOME": home, "TMPDIR": scratch})).shell(USUAL);
            assert!(case.run_command(before).status().unwrap().success());
            let report = case.result();
            assert_eq!(report["exit_code"], 0, "{report} {}", case.text("err"));
            assert_eq!((case.text("out").as_str(), case.text("err").as_str()), ("said\ngiven\n", "wrong\n"));
            assert!(case.path("sandbox/a/b/two").exists() && case.path("sandbox/.tmp/t").exists());
            if before.is_empty() {
                assert!(!Path::new("/dev/shm/stager-mine").exists());
            } else {
                fs::remove_file("/dev/shm/stager-mine").unwrap();
            }
        });
    }
}

/// Its sandbox is not below /tmp, as on most machines.
fn elsewhere(user: As) -> Option<Case> {
    let place = PathBuf::from("/var/lib");
    is_root().then(|| Case::new_in(user, &place))
}

#[test]
fn tmp_is_the_jobs_own_and_goes_with_it() {
    for user in [As::Root, As::Ordinary] {
        let Some(case) = elsewhere(user) else { return };
        let token = case.token(7);
        let case = isolated(case).shell(&format!("set -e; for d in /tmp /var/tmp; do echo mine > $d/{token}; mkdir $d/d.{token} || true; done; ls -A /tmp; mktemp -p /tmp > /dev/null"));
        let report = case.report();
        assert_eq!(report["exit_code"], 0, "{report} {}", case.text("err"));
        assert!(case.path(&format!("sandbox/.tmp/{token}")).exists());
        assert!(!Path::new("/tmp").join(&token).exists() && !Path::new("/var/tmp").join(&token).exists());
        let case = isolated(Case::new_in(user, Path::new("/var/lib"))).set("argv", json!(["/tmp/tool"]));
        assert!(case.report()["message"].as_str().unwrap().contains("isolate: off"));
    }
}

fn origin_with_files(case: &Case) -> PathBuf {
    for name in ["origin", "origin/deep", "origin/env", "origin/env/bin"] {
        case.make_dir(name);
    }
    case.make_file("origin/deep/secret.csv", "1\n", 0o644);
    case.make_file("origin/notes.txt", "2\n", 0o644);
    case.make_file("origin/.hidden", "3\n", 0o644);
    case.make_file("origin/tool", "#!/bin/sh\nexit 0\n", 0o755);
    case.make_file("origin/env/library", "5\n", 0o644);
    case.make_file("origin/alone", "6\n", 0o644);
    case.make_file("origin/through.txt", "7\n", 0o644);
    case.path("origin")
}

fn watched(case: Case, script: &str) -> Case {
    let origin = case.path("origin");
    // One lies in the other, as often beside a workflow file.
    let origins = json!([origin.join("deep"), origin]);
    let path = format!("/usr/bin:/bin:{}/env/bin", origin.display());
    isolated(case).set("origins", origins).set("watch", json!(true)).set("env", json!({"PATH": path})).shell(script)
}

/// As root by fanotify; as an ordinary user, with a namespace and without, by seccomp.
#[test]
fn what_it_opens_below_an_origin_is_told() {
    for before in [&[][..], LANDLOCK_ALONE] {
        each(|case| {
            if case.user == As::Root && !before.is_empty() {
                return;
            }
            let origin = origin_with_files(&case);
            let script = format!(
                "ln -s {0}/through.txt link; cat link > /dev/null; cd {0}; cat deep/secret.csv notes.txt .hidden env/library /etc/passwd > /dev/null
                 ./tool; ls -l > /dev/null; cat ./deep/../notes.txt > /dev/null; test -e alone; cat missing 2> /dev/null; exit 0",
                origin.display()
            );
            let case = watched(case, &script);
            assert!(case.run_command(before).status().unwrap().success());
            let report = case.result();
            assert_eq!(report["exit_code"], 0, "{report} {}", case.text("err"));
            let told = ["deep/secret.csv", "notes.txt", "through.txt"].map(|name| origin.join(name));
            assert_eq!((&report["opened"], report["opened_count"].as_u64()), (&json!(told), Some(3)), "{report}");
        });
    }
}

/// What it is told of changes nothing of how a job runs and ends: children, threads, signals, and what nobody answers any more.
#[test]
fn a_watched_job_runs_and_ends_as_any_other() {
    let usual = r#"
import os, signal, subprocess, sys, threading
seen = []
signal.signal(signal.SIGALRM, lambda *_: seen.append(1))
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
def read():
    for _ in range(300):
        with open(sys.argv[1]) as file: assert file.read() == "2\n"
        try: open(sys.argv[1] + ".missing")
        except FileNotFoundError: pass
threads = [threading.Thread(target=read) for _ in range(4)]
[each.start() for each in threads]; read(); [each.join() for each in threads]
assert subprocess.run(["cat", sys.argv[1]], capture_output=True, check=True).stdout == b"2\n"
open("made", "w").write("x"); assert open("made").read() == "x"
signal.setitimer(signal.ITIMER_REAL, 0)
assert seen
"#;
    each(|case| {
        let notes = origin_with_files(&case).join("notes.txt");
        let case = watched(case, "");
        let report = case.set("argv", json!(["python3", "-c", usual, notes])).report();
        assert_eq!((report["exit_code"].as_i64(), &report["opened"]), (Some(0), &json!([notes])), "{report}");
    });
    each(|case| {
        let notes = origin_with_files(&case).join("notes.txt");
        let token = case.token(3);
        let script = format!("(setsid sh -c \"trap '' TERM; while cat {0} > /dev/null; do :; done; sleep {token}\" &); while cat {0} > /dev/null; do :; done", notes.display());
        let case = watched(case, &script).set("timeout_s", json!(0.5)).set("grace_s", json!(0.2));
        let report = case.report();
        assert_eq!((report["outcome"].as_str(), report["opened_count"].as_u64()), (Some("timeout"), Some(1)), "{report}");
        assert!(!crate::case::is_running(&token) && !case.text("err").contains("not implemented"), "{}", case.text("err"));
    });
}

/// Scratch on a host is there in places.
#[test]
fn a_sandbox_in_shared_memory_is_there_for_its_job() {
    for before in [&[] as &[&str], LANDLOCK_ALONE] {
        for user in [As::Root, As::Ordinary].into_iter().filter(|user| before.is_empty() && is_root() || *user == As::Ordinary) {
            let case = isolated(Case::new_in(user, Path::new("/dev/shm")));
            case.make_file("other", "kept", 0o666);
            let other = case.path("other").display().to_string();
            let case = case.shell(&format!("echo x > made; echo x > \"{other}\""));
            assert!(case.run_command(before).status().unwrap().success());
            assert_eq!(case.text("sandbox/made"), "x\n", "{}", case.result());
            assert_eq!(case.text("other"), "kept", "{}", case.result());
        }
    }
}

#[test]
fn an_input_is_linked_from_a_store_that_lies_where_the_jobs_own_places_are() {
    for place in ["/tmp", "/dev/shm"] {
        each(|case| {
            let elsewhere = if place == "/tmp" { "/dev/shm" } else { "/tmp" };
            let store = tempfile::tempdir_in(place).unwrap();
            fs::set_permissions(store.path(), fs::Permissions::from_mode(0o755)).unwrap();
            let stored = store.path().join("stored");
            fs::write(&stored, "given").unwrap();
            fs::set_permissions(&stored, fs::Permissions::from_mode(0o444)).unwrap();
            let case = isolated(Case::new_in(case.user, Path::new(elsewhere))).link(stored.to_str().unwrap(), "in").shell("cat in");
            let report = case.report();
            assert_eq!(report["outcome"], "exited", "{report}");
            assert_eq!(case.text("out"), "given");
        });
    }
}

/// A state directory may be a link to where there is room.
#[test]
fn a_sandbox_that_a_link_leads_to_is_there_for_its_job() {
    // An ordinary user does not reach the place of the link.
    if !is_root() {
        return;
    }
    let elsewhere = env!("CARGO_TARGET_TMPDIR");
    for (from, to) in [(elsewhere, "/tmp"), ("/tmp", elsewhere)] {
        let links = tempfile::tempdir_in(from).unwrap();
        let link = links.path().join("state");
        let case = isolated(Case::new_in(As::Root, Path::new(to)));
        symlink(case.root.path(), &link).unwrap();
        let case = case.set("cwd", json!(link.join("sandbox"))).set("scratch_dir", json!(link.join("sandbox/.tmp"))).shell("echo x > made");
        let report = case.report();
        assert_eq!(report["outcome"], "exited", "{from} {report}");
        assert_eq!(case.text("sandbox/made"), "x\n");
    }
}
