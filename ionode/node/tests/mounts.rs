//! Jobs that read in place: a mount of an origin, bound into a sandbox, and what is left of it whatever way the node ends.

mod host;
#[path = "../../origins/tests/sshd/mod.rs"]
mod sshd;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use host::{noise, until, Host};
use serde_json::{json, Value};
use sshd::Sshd;

const CAPACITY: u64 = 100 << 20;

/// Said past the harness, which shows nothing of what passes.
fn can_mount() -> bool {
    let there = Path::new("/dev/fuse").exists() && Command::new("sshfs").arg("--version").output().is_ok();
    if !there {
        writeln!(std::io::stderr(), "NOT RUN: tests of mounts need /dev/fuse and sshfs (Debian: apt-get install sshfs)").ok();
    }
    there
}

fn mounts_below(root: &Path) -> usize {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    table.lines().filter(|line| line.contains(&format!(" {}/", root.display()))).count()
}

fn describe(node: &Host, sshd: &Sshd) {
    let config = sshd.config();
    let body = json!({
        "kind": "sshfs", "host": config.host, "port": config.port, "user": config.user, "base_path": config.base_path,
        "known_hosts": config.known_hosts, "host_key_alias": null, "identity_files": config.identity_files, "identities_only": true,
        "agent_socket": null, "connections_max": null, "shell_checksum": false, "mount_point": null,
    });
    node.ok("PUT", "origins/lab", body);
}

/// A direct input of the file as it is now.
fn direct(node: &Host, path: &str) -> Value {
    let entry = node.stat(path);
    json!({"path": format!("in/{path}"), "origin_id": "lab", "origin_path": path, "size_bytes": entry["size_bytes"], "token": entry["token"]})
}

fn stage_in(sandbox: &Path, direct: &Value) -> Value {
    json!({"sandbox_dir": sandbox, "inputs": [], "direct": [direct]})
}

/// What a job sees of its input, by the real reaper.
fn cat_directly(root: &Path, sandbox: &Path, mounts: &Value, path: &str) -> Vec<u8> {
    let at = |name: &str| root.join(name);
    let spec = json!({
        "attempt_id": "a-1", "epoch": 1, "argv": ["/bin/cat", sandbox.join(path)], "env": {}, "cwd": sandbox, "sandbox_dir": sandbox,
        "stdin": null, "stdout": at("stdout"), "stderr": at("stderr"), "mounts": mounts, "timeout_s": 120.0, "grace_s": 1.0,
        "result_path": at("result.json"), "lock_path": at("run.lock"),
    });
    std::fs::write(at("spec.json"), spec.to_string()).unwrap();
    let done = Command::new(env!("CARGO_BIN_EXE_stager-ionode")).args(["run", "--spec"]).arg(at("spec.json")).status().unwrap();
    let result: Value = serde_json::from_slice(&std::fs::read(at("result.json")).unwrap()).unwrap();
    assert!(done.success() && result["exit_code"] == 0, "{result}: {}", std::fs::read_to_string(at("stderr")).unwrap_or_default());
    std::fs::read(at("stdout")).unwrap()
}

fn can_link(node: &Host) -> bool {
    node.ok("GET", "node", Value::Null)["can_link"] == true
}

#[test]
fn an_input_is_read_directly_and_looked_at_before_and_after() {
    if !can_mount() {
        return;
    }
    let (sshd, root) = (Sshd::start(""), tempfile::tempdir().unwrap());
    let (node, bytes) = (Host::start(root.path(), CAPACITY), noise(1, 3_000_000));
    std::fs::write(sshd.base().join("file"), &bytes).unwrap();
    describe(&node, &sshd);
    let input = direct(&node, "file");
    let sandbox = |name: &str| -> PathBuf { root.path().join("sandboxes").join(name) };
    node.refused("POST", "attempts/a-0/stage-in", stage_in(&sandbox("a-0"), &input), 400, "bad_request");
    let mount = node.ok("PUT", "mounts/lab", Value::Null);
    assert_eq!((mount["state"].as_str(), mounts_below(root.path())), (Some("mounted"), 1));
    assert_eq!(node.ok("GET", "mounts", Value::Null), json!({"mounts": [mount]}));
    let answer = node.ok("POST", "attempts/a-1/stage-in", stage_in(&sandbox("a-1"), &input));
    if can_link(&node) {
        assert!(cat_directly(root.path(), &sandbox("a-1"), &answer["mounts"], "in/file") == bytes);
    }
    assert_eq!(node.ok("POST", "attempts/a-1/release", json!({"sandbox_dir": null, "remove_sandbox": true}))["direct"][0]["state"], "same");
    node.ok("POST", "attempts/a-2/stage-in", stage_in(&sandbox("a-2"), &input));
    std::fs::write(sshd.base().join("file"), "other").unwrap();
    let released = node.ok("POST", "attempts/a-2/release", json!({"sandbox_dir": null, "remove_sandbox": true}));
    assert_eq!(released["direct"], json!([{"path": "in/file", "state": "changed"}]));
    node.refused("POST", "attempts/a-3/stage-in", stage_in(&sandbox("a-3"), &input), 409, "source_changed");
    assert!(!sandbox("a-3").exists());
    node.ok("DELETE", "mounts/lab", Value::Null);
    assert_eq!((node.ok("GET", "mounts", Value::Null), mounts_below(root.path())), (json!({"mounts": []}), 0));
    node.terminate();
}

#[test]
fn mounts_end_with_the_node_and_those_of_a_killed_one_are_swept() {
    if !can_mount() {
        return;
    }
    let (sshd, root) = (Sshd::start(""), tempfile::tempdir().unwrap());
    let node = Host::start(root.path(), CAPACITY);
    node.put_file_origin(root.path());
    node.refused("PUT", "mounts/lab", Value::Null, 400, "unsupported");
    describe(&node, &sshd);
    let path = node.ok("PUT", "mounts/lab", Value::Null)["mount_path"].as_str().unwrap().to_string();
    node.kill();
    // The kernel ends sshfs with the node: what reads there is told so.
    until("sshfs to end with its node", || std::fs::read_dir(&path).is_err().then_some(()));
    let again = Host::start(root.path(), CAPACITY);
    assert_eq!(mounts_below(root.path()), 0);
    describe(&again, &sshd);
    again.ok("PUT", "mounts/lab", Value::Null);
    assert_eq!(mounts_below(root.path()), 1);
    again.terminate();
    assert_eq!(mounts_below(root.path()), 0);
    assert!(!Path::new(&path).exists());
}
