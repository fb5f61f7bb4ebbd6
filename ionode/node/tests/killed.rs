//! kill -9 at random moments, again and again: what the node acknowledged is there, whole; what it did not is whole or absent.
//! `STAGER_KILL_ROUNDS=200 cargo test --release -p stager-node --test killed` for more than the 20 rounds of every day.

mod host;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Mutex;
use std::time::Duration;

use host::*;
use serde_json::{json, Value};

const WRITERS: u64 = 3;
/// All content is read again at each start of so many rounds, later at each of so many starts: there is more of it with every round. What
/// was acknowledged since the last start is read at every one, and so is the sum of all.
const ALL_AT_EACH: u64 = 50;
const ALL_EVERY: u64 = 25;

/// What the test knows, outside of the node: names that were acknowledged, with the seed of their content; and names in doubt.
#[derive(Default)]
struct Manifest {
    acknowledged: BTreeMap<String, (u8, usize)>,
    /// Of these, those since the last start.
    fresh: Vec<String>,
    deleted: Vec<String>,
    in_doubt: BTreeMap<String, (u8, usize)>,
}

/// `None`: the node was gone before it answered.
fn ask(socket: &Path, headers: &str, method: &str, path: &str, body: &Value) -> Option<(u16, Value)> {
    let mut stream = UnixStream::connect(socket).ok()?;
    let body = if body.is_null() { Vec::new() } else { serde_json::to_vec(body).unwrap() };
    let head =
        format!("{method} /v1/{path} HTTP/1.1\r\nHost: node\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n", body.len());
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(&body).ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let split = answer.windows(4).position(|window| window == b"\r\n\r\n")?;
    let status = std::str::from_utf8(&answer[..split]).ok()?.split(' ').nth(1)?.parse().ok()?;
    Some((status, serde_json::from_slice(&answer[split + 4..]).ok()?))
}

struct Writer<'a> {
    root: &'a Path,
    headers: String,
    manifest: &'a Mutex<Manifest>,
    number: &'a AtomicU64,
    unanswered: &'a AtomicU64,
}

impl Writer<'_> {
    fn call(&self, method: &str, path: &str, body: Value) -> Option<Value> {
        let answer = ask(&self.root.join("sock"), &self.headers, method, path, &body);
        match answer {
            Some((status, answer)) => {
                assert!((200..300).contains(&status), "{method} {path}: {status} {answer}");
                Some(answer)
            }
            None => {
                self.unanswered.fetch_add(1, Ordering::Relaxed);
                None
            }
        }
    }

    /// Jobs that leave an output or three each, small and large, and now and then a delete; until the node is gone.
    fn run(&self) -> Option<()> {
        loop {
            let number = self.number.fetch_add(1, Ordering::Relaxed);
            let attempt = format!("a{number}");
            let sandbox = self.root.join("sandboxes").join(&attempt);
            let outputs: Vec<(String, u8, usize)> = (0..1 + number % 3)
                .map(|at| {
                    (format!("f{number}-{at}"), (number + at) as u8, [0, 70, 5000, 65_536, 65_537, 200_000][((number + at) % 6) as usize])
                })
                .collect();
            self.call("POST", &format!("attempts/{attempt}/stage-in"), json!({"sandbox_dir": sandbox, "inputs": []}))?;
            self.call("PUT", &format!("reservations/{attempt}"), json!({"bytes": 700_000}))?;
            for (name, seed, length) in &outputs {
                std::fs::write(sandbox.join(name), noise(*seed, *length)).unwrap();
                self.manifest.lock().unwrap().in_doubt.insert(name.clone(), (*seed, *length));
            }
            let declared: Vec<Value> = outputs.iter().map(|(name, _, _)| output(name, name, "file", false)).collect();
            self.call("POST", &format!("attempts/{attempt}/stage-out"), stage_out(&sandbox, &attempt, json!(declared)))?;
            {
                let mut manifest = self.manifest.lock().unwrap();
                for (name, seed, length) in &outputs {
                    manifest.in_doubt.remove(name);
                    manifest.acknowledged.insert(name.clone(), (*seed, *length));
                    manifest.fresh.push(name.clone());
                }
            }
            self.call("POST", &format!("attempts/{attempt}/release"), json!({"remove_sandbox": true, "reservation_id": attempt}))?;
            if number.is_multiple_of(4) {
                self.delete_one()?;
            }
        }
    }

    fn delete_one(&self) -> Option<()> {
        let (name, content) = self.manifest.lock().unwrap().acknowledged.pop_first()?;
        self.manifest.lock().unwrap().in_doubt.insert(name.clone(), content);
        self.call("DELETE", &format!("replicas/{name}/a"), Value::Null)?;
        // Acknowledged when it can no longer be read; on disk when its event was sent.
        let gone = || {
            self.call("GET", "events?after=0", Value::Null).map(|events| events.to_string().contains(&format!("\"file_id\":\"{name}\"")))
        };
        while !gone()? {
            std::thread::yield_now();
        }
        let mut manifest = self.manifest.lock().unwrap();
        manifest.in_doubt.remove(&name);
        manifest.deleted.push(name);
        Some(())
    }
}

fn headers(node: &Host) -> String {
    node.headers().iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect()
}

/// The manifest against the node, `all` of it or what is fresh; what was in doubt is settled by what is there.
fn check(node: &Host, manifest: &mut Manifest, all: bool) {
    let fresh = std::mem::take(&mut manifest.fresh);
    let names: Vec<&String> = if all { manifest.acknowledged.keys().collect() } else { fresh.iter().collect() };
    for name in names {
        // A fresh one may have been deleted since.
        if let Some((seed, length)) = manifest.acknowledged.get(name) {
            assert!(node.content(name, "a") == noise(*seed, *length), "{name} was acknowledged");
        }
    }
    for name in manifest.deleted.iter().rev().take(if all { usize::MAX } else { fresh.len() }) {
        node.refused("GET", &format!("replicas/{name}/a"), Value::Null, 404, "replica_unknown");
    }
    for (name, (seed, length)) in std::mem::take(&mut manifest.in_doubt) {
        if node.call("GET", &format!("replicas/{name}/a"), Value::Null).0 == 200 {
            assert!(node.content(&name, "a") == noise(seed, length), "{name} is there, so it is whole");
            manifest.acknowledged.insert(name, (seed, length));
        }
    }
    let held: u64 = manifest.acknowledged.values().map(|(_, length)| *length as u64).sum();
    assert_eq!(node.space().0, held, "nothing else takes space");
}

/// How often a start found something that the kill had left half done.
fn traces_of_kills(root: &Path) -> usize {
    let log = std::fs::read_to_string(root.join("log")).unwrap();
    let replayed = |line: &str| line.contains("opened the log") && !(line.contains("\"frames\":0") && line.contains("\"cut_bytes\":0"));
    log.lines().filter(|line| line.contains("removed files that the log does not name") || replayed(line)).count()
}

#[test]
fn what_was_acknowledged_survives_kills_at_any_moment() {
    let rounds: u64 = std::env::var("STAGER_KILL_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(20);
    let root = tempfile::tempdir().unwrap();
    let (manifest, number, unanswered) = (Mutex::new(Manifest::default()), AtomicU64::new(0), AtomicU64::new(0));
    for round in 0..rounds {
        let node = Host::start(root.path(), 10 << 30);
        check(&node, &mut manifest.lock().unwrap(), round < ALL_AT_EACH || round.is_multiple_of(ALL_EVERY));
        std::thread::scope(|scope| {
            for _ in 0..WRITERS {
                let writer =
                    Writer { root: root.path(), headers: headers(&node), manifest: &manifest, number: &number, unanswered: &unanswered };
                scope.spawn(move || writer.run());
            }
            // The moment of the kill, not a wait for anything.
            std::thread::sleep(Duration::from_millis(20 + round * 37 % 300));
            node.kill();
        });
    }
    let node = Host::start(root.path(), 10 << 30);
    let mut manifest = manifest.into_inner().unwrap();
    check(&node, &mut manifest, true);
    let (unanswered, traces) = (unanswered.into_inner(), traces_of_kills(root.path()));
    println!(
        "{rounds} kills: {} kept, {} deleted, {unanswered} calls cut off, {traces} starts with something to mend",
        manifest.acknowledged.len(),
        manifest.deleted.len()
    );
    assert!(unanswered >= rounds, "no call was under way when the node was killed: this proves nothing");
    assert!(traces > 0, "no kill left anything half done: this proves nothing");
}
