//! `stager-ionode fsck` and `bench`, as a person calls them.

mod host;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use host::*;
use serde_json::{json, Value};

fn stager_ionode(args: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_stager-ionode")).args(args).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr))
}

fn fsck(root: &Path, more: &[&str]) -> (Option<i32>, String) {
    let store = root.join("store");
    stager_ionode(&[&["fsck", "--store", store.to_str().unwrap()], more].concat())
}

/// A store with a small replica `small a` and a large one `large a`; nobody serves it.
fn store_of_two(root: &Path) -> PathBuf {
    let node = Host::start(root, 1 << 20);
    let path = root.join("sandboxes/s");
    node.ok("POST", "attempts/s/stage-in", json!({"sandbox_dir": path, "inputs": []}));
    node.ok("PUT", "reservations/s", json!({"bytes": 200_000}));
    std::fs::write(path.join("small"), noise(1, 5000)).unwrap();
    std::fs::write(path.join("large"), noise(2, 100_000)).unwrap();
    let outputs = json!([output("small", "small", "file", false), output("large", "large", "file", false)]);
    node.ok("POST", "attempts/s/stage-out", stage_out(&path, "s", outputs));
    node.kill();
    let shards = std::fs::read_dir(root.join("store/data")).unwrap();
    shards.map(|shard| shard.unwrap().path().join("large@a")).find(|path| path.exists()).unwrap()
}

fn flip(path: &Path, at: usize) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_sound_store_is_said_to_be_so_and_a_served_one_is_left_alone() {
    let root = tempfile::tempdir().unwrap();
    store_of_two(root.path());
    let (code, said) = fsck(root.path(), &["--content"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("nothing is wrong") && said.contains("2 replicas"), "{said}");
    let (_, said) = fsck(root.path(), &["--json", "--content"]);
    let findings: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&findings["problems"], &findings["files_read_bytes"]), (&json!([]), &json!(100_000)));
    let node = Host::start(root.path(), 1 << 20);
    let (code, said) = fsck(root.path(), &[]);
    assert_eq!(code, Some(3), "{said}");
    drop(node);
    assert_eq!(fsck(&root.path().join("nowhere"), &[]).0, Some(2));
    assert!(!root.path().join("nowhere").exists());
}

#[test]
fn damage_is_named_repaired_where_it_can_be_and_told_by_the_node_after_that() {
    let root = tempfile::tempdir().unwrap();
    let large = store_of_two(root.path());
    flip(&large, 50_000);
    let segment = root.path().join("store/segments/0000000001.seg");
    let at = std::fs::read(&segment).unwrap().windows(5000).position(|window| window == noise(1, 5000)).unwrap();
    flip(&segment, at + 9);
    assert_eq!(fsck(root.path(), &[]).0, Some(1));
    let before = std::fs::read(&segment).unwrap();
    let (code, said) = fsck(root.path(), &[]);
    assert!(code == Some(1) && said.contains("value_broken: small a") && said.contains("nothing was changed"), "{said}");
    assert_eq!(std::fs::read(&segment).unwrap(), before);
    let (code, said) = fsck(root.path(), &["--content", "--repair"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("value_broken: small a") && said.contains("replica_broken: large a") && said.contains("repaired"), "{said}");
    let (code, said) = fsck(root.path(), &["--content"]);
    assert_eq!(code, Some(0), "{said}");
    let node = Host::start(root.path(), 1 << 20);
    for name in ["small", "large"] {
        assert_eq!(node.ok("GET", &format!("replicas/{name}/a"), Value::Null)["state"], "quarantined");
    }
}

#[test]
fn a_bench_tells_each_phase_and_leaves_nothing() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("bench");
    let (code, said) = stager_ionode(&["bench", "--dir", dir.to_str().unwrap(), "--files", "2000", "--size", "100"]);
    assert_eq!(code, Some(0), "{said}");
    let lines: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let phases: Vec<_> = lines.iter().filter_map(|line| line["phase"].as_str()).collect();
    assert_eq!(phases, ["create", "stat", "get", "list", "delete"]);
    assert!(lines.iter().filter(|line| !line["phase"].is_null()).all(|line| line["files"] == 2000 && line["per_s"].as_f64() > Some(0.0)));
    assert_eq!(lines.last().unwrap()["rebuilt_entries"], 4000, "each file made and deleted");
    assert!(!dir.exists());
}
