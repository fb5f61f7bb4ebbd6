//! kill -9 of each node of a chain at random moments: what was acknowledged is there, and asking again brings all to an end.
//! `STAGER_KILL_ROUNDS` makes it longer.
//!
//! The one rule: a round in which no kill hit a copy under way does not count.

mod cluster;
mod host;

use std::time::{Duration, Instant};

use cluster::*;
use host::*;
use serde_json::{json, Value};

const NAMES: [&str; 3] = ["a", "b", "c"];
const FILES: usize = 6;

fn rounds() -> usize {
    std::env::var("STAGER_KILL_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(4)
}

/// The same in every run for one seed.
fn dice(seed: u64, roll: u64) -> u64 {
    let digest = blake3::hash(format!("{seed} {roll}").as_bytes());
    u64::from_le_bytes(digest.as_bytes()[..8].try_into().unwrap())
}

fn ask(node: &Host, round: usize, n: usize, try_number: usize, size_bytes: usize) {
    let id = format!("t-{round}-{n}-{try_number}");
    let mut request = fetch(
        &format!("f{n}"),
        &format!("g{round}"),
        &format!("f{n}"),
        json!({"size_bytes": size_bytes, "token": null, "blake3": null, "sha256": null}),
    );
    request["replicas"] = json!({"chain": ["b", "c"], "ack": "sync"});
    // One that is still being made on the way to its end, or a node just killed, is asked again by the next try.
    let _ = node.try_call("PUT", &format!("transfers/{id}"), request);
}

/// Names of files whose end was told as done, by all events of a node.
fn acknowledged(node: &Host, round: usize) -> Vec<usize> {
    let Some((200, answer)) = node.try_call("GET", "events?after=0", Value::Null) else { return Vec::new() };
    let of_round = format!("g{round}");
    let done =
        answer["events"].as_array().unwrap().iter().filter(|event| {
            event["kind"] == "transfer_done" && event["transfer_kind"] == "fetch" && event["generation"] == of_round.as_str()
        });
    done.map(|event| event["file_id"].as_str().unwrap()[1..].parse().unwrap()).collect()
}

fn running(node: &Host) -> usize {
    let Some((200, answer)) = node.try_call("GET", "transfers", Value::Null) else { return 0 };
    answer["transfers"].as_array().unwrap().iter().filter(|transfer| transfer["state"] == "running").count()
}

#[test]
fn what_was_acknowledged_by_all_is_on_all_whoever_is_killed_when() {
    let seed = std::env::var("STAGER_KILL_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or_else(|| std::process::id() as u64);
    println!("seed {seed}");
    let root = tempfile::tempdir().unwrap();
    let lab = root.path().join("lab");
    let contents: Vec<Vec<u8>> = (0..FILES).map(|n| noise(n as u8, (dice(seed, n as u64) % (6 * MIB as u64)) as usize)).collect();
    contents.iter().enumerate().for_each(|(n, bytes)| source(&lab, &format!("f{n}"), bytes));
    let mut nodes: Vec<Option<Host>> = cluster(root.path(), &NAMES, 1 << 30).into_iter().map(Some).collect();
    let (mut hits, mut round) = (0, 0);
    while round < rounds() || hits == 0 {
        assert!(round < 10 * rounds(), "no kill hit a copy under way; seed {seed}");
        nodes[0].as_ref().unwrap().put_slow_origin(&lab, 24 << 20);
        let mut told = [false; FILES];
        let deadline = Instant::now() + 2 * DEADLINE;
        for try_number in 0.. {
            assert!(Instant::now() < deadline, "round {round} does not come to an end; seed {seed}");
            let first = nodes[0].as_ref().unwrap();
            (0..FILES).filter(|n| !told[*n]).for_each(|n| ask(first, round, n, try_number, contents[n].len()));
            if try_number == 0 {
                std::thread::sleep(Duration::from_millis(dice(seed, 100 + round as u64) % 700));
                let victim = round % NAMES.len();
                hits += usize::from(running(nodes[victim].as_ref().unwrap()) > 0);
                acknowledged(nodes[0].as_ref().unwrap(), round).into_iter().for_each(|n| told[n] = true);
                nodes[victim].take().unwrap().kill();
                nodes[victim] = Some(member(root.path(), NAMES[victim], 1 << 30));
                let all: Vec<&Host> = nodes.iter().flatten().collect();
                for (one, name) in all.iter().zip(NAMES) {
                    all.iter()
                        .zip(NAMES)
                        .filter(|(_, other)| *other != name)
                        .for_each(|(other, other_name)| tell(one, other_name, &other.root.join("sock"), &other.token));
                }
                nodes[0].as_ref().unwrap().put_file_origin(&lab);
            }
            for n in (0..FILES).filter(|n| told[*n]) {
                check(&nodes, round, n, &contents[n], seed);
            }
            if told.iter().all(|told| *told) {
                break;
            }
            std::thread::sleep(Duration::from_millis(200));
            acknowledged(nodes[0].as_ref().unwrap(), round).into_iter().for_each(|n| told[n] = true);
        }
        round += 1;
    }
    println!("{hits} of {round} kills hit copies under way");
}

fn check(nodes: &[Option<Host>], round: usize, n: usize, bytes: &[u8], seed: u64) {
    for (node, name) in nodes.iter().flatten().zip(NAMES) {
        let found = node.call("GET", &format!("replicas/f{n}/g{round}"), Value::Null);
        assert_eq!(
            (found.0, found.1["blake3"].as_str()),
            (200, Some(hash(bytes).as_str())),
            "f{n} of round {round} on {name}; seed {seed}: {}",
            found.1
        );
        assert!(node.content(&format!("f{n}"), &format!("g{round}")) == bytes, "f{n} of round {round} on {name}; seed {seed}");
    }
}
