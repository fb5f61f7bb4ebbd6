//! Directories one in another, deeper than a stack, a limit of open files or a path would go: what jobs leave, and what they may declare.

mod host;

use std::os::fd::OwnedFd;
use std::path::Path;

use host::*;
use nix::fcntl::{openat, OFlag};
use nix::sys::stat::{mkdirat, Mode};
use serde_json::{json, Value};

/// As `DEPTH_MAX` of the sandbox: directories, with the outermost one.
const DEPTH_MAX: usize = 128;

/// `levels` directories, the first of them in `top`, with a file in the last.
fn chain(top: &Path, levels: usize) {
    let directory = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
    let mut here: OwnedFd = nix::fcntl::open(top, directory, Mode::empty()).unwrap();
    for _ in 0..levels {
        mkdirat(&here, "d", Mode::S_IRWXU).unwrap();
        here = openat(&here, "d", directory, Mode::empty()).unwrap();
    }
    drop(openat(&here, "file", OFlag::O_WRONLY | OFlag::O_CREAT, Mode::S_IRWXU).unwrap());
}

fn staged_in(node: &Host, attempt: &str, inputs: Value) -> std::path::PathBuf {
    let path = node.root.join("sandboxes").join(attempt);
    node.ok("POST", &format!("attempts/{attempt}/stage-in"), json!({"sandbox_dir": path, "inputs": inputs}));
    path
}

fn release(node: &Host, attempt: &str, path: &Path) {
    node.ok("POST", &format!("attempts/{attempt}/release"), json!({"sandbox_dir": path, "remove_sandbox": true}));
    assert!(!path.exists());
}

#[test]
fn what_a_job_left_is_looked_through_and_removed_however_deep_it_is() {
    let root = tempfile::tempdir().unwrap();
    let node = Host::start(root.path(), 1000);
    let path = staged_in(&node, "a1", json!([]));
    // Two that come up, before what is called as they would be called there.
    std::fs::create_dir_all(path.join("+a/b")).unwrap();
    for top in ["+a", "+a/b"] {
        chain(&path.join(top), 3_000);
    }
    for name in [".stager-raised-0", ".stager-raised-1"] {
        std::fs::create_dir(path.join(name)).unwrap();
        std::fs::write(path.join(name).join("file"), b"").unwrap();
    }
    std::fs::write(path.join("out"), b"out").unwrap();
    node.ok("PUT", "reservations/r1", json!({"bytes": 900}));
    let answer = node.ok("POST", "attempts/a1/stage-out", stage_out(&path, "r1", json!([output("o1", "out", "file", false)])));
    let below = |top: &str, above: usize| json!(format!("{top}{}", "/d".repeat(DEPTH_MAX + 1 - above)));
    let told = json!([below("+a/b", 2), below("+a", 1), ".stager-raised-0/file", ".stager-raised-1/file"]);
    assert_eq!((&answer["undeclared"], answer["undeclared_count"].as_u64()), (&told, Some(4)));
    release(&node, "a1", &path);
    assert_eq!(node.space().0, 3, "the node is there");
}

#[test]
fn a_declared_directory_may_be_as_deep_as_the_limit_and_no_deeper() {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("lab")).unwrap();
    let node = Host::start(root.path(), 1 << 20);
    node.put_file_origin(&root.path().join("lab"));
    let path = staged_in(&node, "a1", json!([]));
    node.ok("PUT", "reservations/r1", json!({"bytes": 1000}));
    for (name, levels) in [("tree", DEPTH_MAX - 1), ("deeper", DEPTH_MAX)] {
        std::fs::create_dir(path.join(name)).unwrap();
        chain(&path.join(name), levels);
    }
    let asked = |name: &str| stage_out(&path, "r1", json!([output("o1", name, "directory", false)]));
    let answer = node.refused("POST", "attempts/a1/stage-out", asked("deeper"), 422, "output_escapes");
    assert_eq!(answer["paths"], json!([format!("deeper{}", "/d".repeat(DEPTH_MAX))]));
    node.ok("POST", "attempts/a1/stage-out", asked("tree"));
    release(&node, "a1", &path);
    let second = staged_in(&node, "a2", json!([{"file_id": "o1", "generation": "a", "path": "in", "access": "copy"}]));
    node.ok("PUT", "transfers/u1", upload("o1", "a", "res", "fail"));
    assert_eq!(node.ended("u1")["kind"], "transfer_done");
    for top in [second.join("in"), root.path().join("lab/res")] {
        assert!(top.join("d/".repeat(DEPTH_MAX - 1)).join("file").exists(), "{top:?}");
    }
    release(&node, "a2", &second);
    node.ok("DELETE", "replicas/o1/a", Value::Null);
}
