//! Linked inputs: the store's own bytes, which the job can read and run but not change, whoever it is.

use std::fs;
use std::os::unix::fs::{symlink, MetadataExt};

use crate::case::{copy_program, each, is_root, As, Case};
use serde_json::{json, Value};

fn fingerprint(case: &Case, name: &str) -> (u64, u64, i64, i64, u32) {
    let found = fs::metadata(case.path(name)).unwrap();
    (found.ino(), found.size(), found.mtime(), found.mtime_nsec(), found.mode())
}

#[test]
fn linked_file_cannot_be_changed() {
    each(|case| {
        case.make_file("stored", "content\n", 0o600);
        let before = fingerprint(&case, "stored");
        let case = case.link("stored", "in").shell(
            "cat in; (: <> in) 2>&1; (echo x >> in) 2>&1; chmod 777 in 2>&1; touch in 2>&1; rm -f in 2>&1; mv in other 2>&1; ln in hard 2>&1; echo made > new; cat in",
        );
        assert_eq!(case.report()["outcome"], "exited");
        let said = case.text("out");
        assert_eq!(said.matches("Read-only file system").count(), 4, "{said}");
        assert!(said.starts_with("content\n") && said.ends_with("content\n"), "{said}");
        assert_eq!(fingerprint(&case, "stored"), before);
        assert_eq!(case.text("stored"), "content\n");
        // Outside the job's mount namespace the target stayed the empty file it was.
        assert_eq!(case.text("sandbox/in"), "");
        assert_eq!(case.text("sandbox/new"), "made\n");
    });
}

#[test]
fn linked_directory_cannot_be_changed() {
    each(|case| {
        case.make_dir("stored");
        case.make_dir("stored/sub");
        case.make_file("stored/sub/member", "m\n", 0o600);
        let case = case
            .link("stored", "in")
            .shell("cat in/sub/member; (: <> in/sub/member) 2>&1; touch in/new 2>&1; rm in/sub/member 2>&1; mkdir in/d 2>&1");
        case.report();
        let said = case.text("out");
        assert_eq!(said.matches("Read-only file system").count(), 4, "{said}");
        assert!(said.starts_with("m\n"), "{said}");
        assert_eq!(fs::read_dir(case.path("stored")).unwrap().count(), 1);
        assert_eq!(case.text("stored/sub/member"), "m\n");
    });
}

#[test]
fn links_in_deep_directories_and_many_at_once() {
    each(|mut case| {
        case.make_dir("sandbox/a");
        case.make_dir("sandbox/a/b");
        for number in 0..20 {
            case.make_file(&format!("stored{number}"), &format!("{number}\n"), 0o400);
            case = case.link(&format!("stored{number}"), &format!("a/b/in{number}"));
        }
        let case = case.shell("cat a/b/in*");
        case.report();
        assert_eq!(case.text("out").lines().count(), 20);
    });
}

#[test]
fn execute_bit_is_the_stored_files() {
    each(|case| {
        case.make_file("stored", "#!/bin/sh\necho ran\n", 0o500);
        let case = case.link("stored", "tool").set("argv", json!(["./tool"]));
        assert_eq!(case.report()["exit_code"], 0);
        assert_eq!(case.text("out"), "ran\n");
    });
    each(|case| {
        case.make_file("stored", "#!/bin/sh\necho ran\n", 0o400);
        let case = case.link("stored", "tool").set("argv", json!(["./tool"]));
        assert_eq!(case.report()["code"], "program_not_executable");
    });
}

#[test]
fn linked_setuid_program_has_no_effect() {
    if !is_root() {
        return;
    }
    let case = Case::new(As::Root);
    copy_program("/usr/bin/id", &case.path("stored"));
    fs::set_permissions(case.path("stored"), std::os::unix::fs::PermissionsExt::from_mode(0o4555)).unwrap();
    fs::set_permissions(case.root.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let case = case.link("stored", "id").shell("setpriv --reuid=65534 --regid=65534 --clear-groups ./id -u");
    case.report();
    assert_eq!(case.text("out"), "65534\n");
}

#[test]
fn stdin_may_be_a_linked_input() {
    each(|case| {
        case.make_file("stored", "line\n", 0o400);
        let stdin = json!(case.path("sandbox/in"));
        let case = case.link("stored", "in").set("argv", json!(["cat"])).set("stdin", stdin);
        case.report();
        assert_eq!(case.text("out"), "line\n");
    });
}

fn refused(case: Case) -> String {
    let case = case.set("argv", json!(["touch", "ran"]));
    let report = case.report();
    assert_eq!((report["outcome"].as_str(), report["code"].as_str()), (Some("not_started"), Some("link_failed")), "{report}");
    assert!(!case.path("sandbox/ran").exists());
    report["message"].as_str().unwrap().into()
}

fn retarget(mut case: Case, target: Value) -> Case {
    case.make_file("stored", "x", 0o400);
    case.spec["mounts"] = json!([{"source": case.path("stored"), "target": target, "directory": false}]);
    case
}

#[test]
fn no_mount_lands_outside_the_sandbox() {
    each(|case| {
        case.make_file("victim", "", 0o600);
        let target = json!(case.path("victim"));
        assert!(refused(retarget(case, target)).contains("outside the sandbox"));
    });
    each(|case| {
        case.make_file("victim", "", 0o600);
        let target = format!("{}/../victim", case.path("sandbox").display());
        assert!(refused(retarget(case, json!(target))).contains("'..'"));
    });
    each(|case| {
        case.make_dir("elsewhere");
        case.make_file("elsewhere/victim", "", 0o600);
        symlink(case.path("elsewhere"), case.path("sandbox/way")).unwrap();
        let target = json!(case.path("sandbox/way/victim"));
        assert!(refused(retarget(case, target)).contains("way"));
    });
    each(|case| {
        case.make_file("victim", "", 0o600);
        symlink(case.path("victim"), case.path("sandbox/in")).unwrap();
        let target = json!(case.path("sandbox/in"));
        assert!(refused(retarget(case, target)).contains("no regular file"));
    });
    each(|case| {
        let target = json!(case.path("sandbox"));
        assert!(refused(retarget(case, target)).contains("sandbox itself"));
    });
}

#[test]
fn source_must_be_a_real_file() {
    each(|case| {
        case.make_file("stored", "x", 0o400);
        symlink(case.path("stored"), case.path("alias")).unwrap();
        assert!(refused(case.link("alias", "in")).contains("alias"));
    });
    each(|case| {
        let case = case.link("gone", "in");
        assert!(refused(case).contains("No such file"));
    });
}

#[test]
fn cwd_may_lie_below_the_sandbox() {
    each(|case| {
        case.make_file("stored", "content\n", 0o400);
        case.make_dir("sandbox/sub");
        let (cwd, sandbox) = (json!(case.path("sandbox/sub")), json!(case.path("sandbox")));
        let case = case.link("stored", "in").set("cwd", cwd).set("sandbox_dir", sandbox).shell("cat ../in");
        case.report();
        assert_eq!(case.text("out"), "content\n");
    });
}

/// An "administrator" who allows no user namespaces, and a user without rights: uid 0 of a namespace with every capability dropped.
pub const NO_NAMESPACES: [&str; 7] = [
    "unshare",
    "-Ur",
    "sh",
    "-c",
    "echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-all --inh-caps=-all \"$@\"",
    "sh",
    "--",
];

#[test]
fn where_nothing_can_be_mounted_the_job_is_not_started() {
    let case = Case::new(As::Ordinary);
    case.make_file("stored", "x", 0o400);
    let case = case.link("stored", "in").set("argv", json!(["touch", "ran"]));
    assert!(case.run_command(&NO_NAMESPACES).status().unwrap().success());
    let report = case.result();
    assert_eq!((report["outcome"].as_str(), report["code"].as_str()), (Some("not_started"), Some("cannot_link")));
    assert!(report["message"].as_str().unwrap().contains("access copy"), "{report}");
    assert!(!case.path("sandbox/ran").exists());

    let probe = case.command(&NO_NAMESPACES, &["run", "--probe"]).output().unwrap();
    let said: Value = serde_json::from_slice(&probe.stdout).unwrap();
    assert_eq!(said["can_link"], false, "{said}");
    assert!(said["why"].as_str().unwrap().contains("clone"), "{said}");
    assert_eq!(said["isolation"], "landlock", "{said}");

    let plain = Case::new(As::Ordinary).shell("echo ran");
    assert!(plain.run_command(&NO_NAMESPACES).status().unwrap().success());
    assert_eq!((plain.result()["outcome"].as_str(), plain.text("out").as_str()), (Some("exited"), "ran\n"));
}

#[test]
fn probe_says_what_a_job_would_find() {
    each(|case| {
        let probe = case.command(&[], &["run", "--probe"]).output().unwrap();
        let said: Value = serde_json::from_slice(&probe.stdout).unwrap();
        case.make_file("stored", "x", 0o400);
        let linked = case.link("stored", "in").report()["outcome"] == "exited";
        assert_eq!(said["can_link"], linked, "{said}");
        assert!(said["isolation"].as_str().unwrap().starts_with("mounts"), "{said}");
    });
}
