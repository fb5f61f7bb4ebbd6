//! One file over several nodes, and the client that reads and writes files: stripes, resume, a node that is lost, a node that is wrong.

mod cluster;
mod host;

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use cluster::*;
use host::*;
use serde_json::{json, Value};

const NAMES: [&str; 3] = ["a", "b", "c"];

fn client(verb: &str, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_stager-ionode")).arg(verb).args(args).output().unwrap()
}

fn store_of(node: &Host) -> String {
    node.root.join("store").display().to_string()
}

fn fetch_to(nodes: &[&Host], to: &Path, more: &[&str]) -> Output {
    let all = nodes.iter().map(|node| store_of(node)).collect::<Vec<_>>().join(",");
    let to = to.display().to_string();
    client("fetch", &[&["--node", &all, "--file", "f1", "--generation", "g", "--to", &to], more].concat())
}

fn told(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn failed(output: &Output) -> String {
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn ask_share(node: &Host, id: &str, index: usize, count: usize, size_bytes: usize) {
    let mut request = fetch("f1", "g", "f1", json!({"size_bytes": size_bytes, "token": null, "blake3": null, "sha256": null}));
    request["stripe"] = json!({"index": index, "count": count, "stripe_bytes": MIB});
    node.ok("PUT", &format!("transfers/{id}"), request);
}

/// Three nodes, each with its stripes of the file.
fn striped(root: &Path, bytes: &[u8]) -> Vec<Host> {
    source(&root.join("lab"), "f1", bytes);
    let nodes = cluster(root, &NAMES, 1 << 30);
    for (index, node) in nodes.iter().enumerate() {
        node.put_file_origin(&root.join("lab"));
        ask_share(node, "t1", index, 3, bytes.len());
    }
    for node in &nodes {
        let event = node.ended("t1");
        assert_eq!(event["kind"], "transfer_done", "{event}");
    }
    nodes
}

fn data_file(node: &Host, name: &str) -> PathBuf {
    let shards = std::fs::read_dir(node.root.join("store/data")).unwrap();
    shards.map(|shard| shard.unwrap().path().join(name)).find(|path| path.exists()).expect("the replica has a file")
}

#[test]
fn stripes_of_all_nodes_are_the_file_and_only_what_is_held_is_counted() {
    let root = tempfile::tempdir().unwrap();
    for (n, length) in [0, 1, MIB, MIB + 1, 10 * MIB + 12345].into_iter().enumerate() {
        let own = root.path().join(n.to_string());
        std::fs::create_dir(&own).unwrap();
        let bytes = noise(n as u8, length);
        let nodes = striped(&own, &bytes);
        let used: u64 = nodes.iter().map(|node| node.space().0).sum();
        assert_eq!(used, length as u64);
        let said = told(&fetch_to(&nodes.iter().collect::<Vec<_>>(), &own.join("out"), &["--blake3", &hash(&bytes)]));
        assert_eq!((said["blake3"].as_str(), said["bytes_moved"].as_u64()), (Some(hash(&bytes).as_str()), Some(length as u64)));
        assert!(std::fs::read(own.join("out")).unwrap() == bytes);
        for node in &nodes {
            assert_eq!(said["nodes"][node.root.file_name().unwrap().to_str().unwrap()].as_u64(), Some(node.space().0));
            assert_eq!(node.ok("POST", "replicas/f1/g/verify", Value::Null)["matches"], true);
        }
    }
}

#[test]
fn a_range_that_is_not_here_is_answered_with_what_is() {
    let root = tempfile::tempdir().unwrap();
    let bytes = noise(11, 7 * MIB);
    let nodes = striped(root.path(), &bytes);
    let ranged = |range: &str| {
        let mut headers = nodes[1].headers();
        headers.push(("Range".into(), range.into()));
        nodes[1].send("GET", "replicas/f1/g/content", &Value::Null, &headers)
    };
    let held = ranged(&format!("bytes={}-{}", 4 * MIB + 5, 4 * MIB + 99));
    assert_eq!(held.status, 206);
    assert!(held.body == bytes[4 * MIB + 5..4 * MIB + 100]);
    for elsewhere in ["bytes=0-9".to_string(), format!("bytes={}-{}", 2 * MIB - 1, 2 * MIB), "bytes=0-".to_string()] {
        let reply = ranged(&elsewhere);
        let error = reply.json();
        assert_eq!((reply.status, error["error"]["code"].as_str()), (409, Some("stripe_not_here")), "{elsewhere}: {error}");
        assert_eq!(error["stripes"], json!({"index": 1, "count": 3, "stripe_bytes": MIB, "file_bytes": 7 * MIB}));
    }
    let whole = nodes[1].send("GET", "replicas/f1/g/content", &Value::Null, &nodes[1].headers());
    assert_eq!(whole.json()["error"]["code"], "stripe_not_here");
}

#[test]
fn stripes_are_no_whole_file_for_jobs_uploads_and_copies() {
    let root = tempfile::tempdir().unwrap();
    let bytes = noise(12, 3 * MIB);
    let nodes = striped(root.path(), &bytes);
    nodes[1].ok("PUT", "transfers/u1", upload("f1", "g", "out", "fail"));
    assert_eq!(nodes[1].ended("u1")["error"]["code"], "stripe_not_here");
    let input = json!([{"file_id": "f1", "generation": "g", "path": "in", "access": "copy"}]);
    nodes[1].refused(
        "POST",
        "attempts/a1/stage-in",
        json!({"sandbox_dir": root.path().join("job"), "inputs": input}),
        409,
        "stripe_not_here",
    );
    let mut request = copy("f1", "g1", &["b"], bytes.len(), &hash(&bytes));
    request["sources"][0]["generation"] = json!("g");
    nodes[0].ok("PUT", "transfers/t2", request);
    assert_eq!(nodes[0].ended("t2")["error"]["code"], "stripe_not_here");
    let mut bad = fetch("f2", "g", "f1", json!({"size_bytes": 3 * MIB, "token": null, "blake3": hash(&bytes), "sha256": null}));
    bad["stripe"] = json!({"index": 0, "count": 2, "stripe_bytes": MIB});
    nodes[0].refused("PUT", "transfers/t3", bad.clone(), 400, "bad_request");
    bad["expected"]["blake3"] = Value::Null;
    bad["stripe"]["stripe_bytes"] = json!(3 * MIB);
    nodes[0].refused("PUT", "transfers/t3", bad, 400, "bad_request");
}

#[test]
fn a_lost_node_costs_its_stripes_only() {
    let root = tempfile::tempdir().unwrap();
    let bytes = noise(13, 20 * MIB + 7);
    let mut nodes = striped(root.path(), &bytes);
    let lost = nodes.remove(1);
    let store = store_of(&lost);
    let its_bytes = lost.space().0;
    lost.kill();
    let to = root.path().join("out");
    let all = [store_of(&nodes[0]), store, store_of(&nodes[1])].join(",");
    let to_text = to.display().to_string();
    let said = failed(&client("fetch", &["--node", &all, "--file", "f1", "--generation", "g", "--to", &to_text]));
    assert!(said.contains("holds the stripes 1, 4, 7") && !to.exists(), "{said}");
    let other = member(root.path(), "d", 1 << 30);
    other.put_file_origin(&root.path().join("lab"));
    ask_share(&other, "t2", 1, 3, bytes.len());
    assert_eq!(other.ended("t2")["bytes_moved"].as_u64(), Some(its_bytes));
    let said = told(&fetch_to(&[&nodes[0], &other, &nodes[1]], &to, &["--blake3", &hash(&bytes)]));
    assert_eq!(said["nodes"]["d"].as_u64(), Some(its_bytes));
    assert!(std::fs::read(&to).unwrap() == bytes);
}

/// The client's files are where a killed client leaves them, and half of the file is on a node that has gone.
#[test]
fn a_fetch_goes_on_with_the_parts_that_are_there() {
    let root = tempfile::tempdir().unwrap();
    let bytes = noise(14, 12 * MIB);
    let nodes = striped(root.path(), &bytes);
    let liar = Liar::before(&nodes[2], Lie::CutShort, usize::MAX);
    let token = nodes[2].root.join("store/token").display().to_string();
    let all = format!("{},{},{}@{token}", store_of(&nodes[0]), store_of(&nodes[1]), liar.socket.display());
    let to = root.path().join("out");
    let to_text = to.display().to_string();
    let said = failed(&client("fetch", &["--node", &all, "--file", "f1", "--generation", "g", "--to", &to_text]));
    assert!(said.contains("the connection broke") && !to.exists(), "{said}");
    let noted = std::fs::read_to_string(root.path().join("out.stager-parts")).unwrap().lines().count() - 1;
    let moved = told(&fetch_to(&nodes.iter().collect::<Vec<_>>(), &to, &[]))["bytes_moved"].as_u64().unwrap();
    assert!(noted > 0 && moved == bytes.len() as u64 - (noted * MIB) as u64, "{moved} bytes came again, {noted} parts were there");
    assert!(std::fs::read(&to).unwrap() == bytes);
    assert!(!root.path().join("out.stager-part").exists() && !root.path().join("out.stager-parts").exists());
}

#[test]
fn a_damaged_stripe_is_taken_from_another_node_or_named() {
    use std::os::unix::fs::{FileExt, PermissionsExt};
    let root = tempfile::tempdir().unwrap();
    let bytes = noise(15, 9 * MIB);
    let nodes = striped(root.path(), &bytes);
    let path = data_file(&nodes[1], "f1@g");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().write_all_at(b"damage", MIB as u64 + 10).unwrap();
    let to = root.path().join("out");
    let said = failed(&fetch_to(&nodes.iter().collect::<Vec<_>>(), &to, &[]));
    assert!(said.contains("stripe 4 of f1 g has changed on the node b since it came there") && !to.exists(), "{said}");
    assert_eq!(nodes[1].ok("POST", "replicas/f1/g/verify", Value::Null)["matches"], false);
    let (path_of_a, whole) = (root.path().join("a2"), member(root.path(), "w", 1 << 30));
    whole.put_file_origin(&root.path().join("lab"));
    whole.ok(
        "PUT",
        "transfers/t1",
        fetch("f1", "g", "f1", json!({"size_bytes": bytes.len(), "token": null, "blake3": null, "sha256": null})),
    );
    whole.ended("t1");
    let said = told(&fetch_to(&[&nodes[0], &nodes[2], &whole], &path_of_a, &[]));
    assert!(said["nodes"].as_object().unwrap().values().all(|moved| moved.as_u64().unwrap() > 0), "{said}");
    assert!(std::fs::read(&path_of_a).unwrap() == bytes);
}

#[test]
fn a_file_on_several_nodes_is_read_from_all_and_a_liar_is_passed_over() {
    let root = tempfile::tempdir().unwrap();
    let bytes = noise(16, 70 * MIB);
    source(&root.path().join("lab"), "f1", &bytes);
    let nodes = cluster(root.path(), &NAMES, 1 << 30);
    for node in &nodes {
        node.put_file_origin(&root.path().join("lab"));
        node.ok(
            "PUT",
            "transfers/t1",
            fetch("f1", "g", "f1", json!({"size_bytes": bytes.len(), "token": null, "blake3": null, "sha256": null})),
        );
        node.ended("t1");
    }
    let said = told(&fetch_to(&nodes.iter().collect::<Vec<_>>(), &root.path().join("out"), &["--connections", "1"]));
    assert!(said["nodes"].as_object().unwrap().values().all(|moved| moved.as_u64().unwrap() > 0), "{said}");
    assert!(std::fs::read(root.path().join("out")).unwrap() == bytes);
    let liar = Liar::before(&nodes[2], Lie::FlipOnTheWay, usize::MAX);
    let token = nodes[2].root.join("store/token").display().to_string();
    let all = format!("{},{}@{token}", store_of(&nodes[0]), liar.socket.display());
    let to = root.path().join("out2").display().to_string();
    let said = told(&client("fetch", &["--node", &all, "--file", "f1", "--generation", "g", "--to", &to]));
    assert!(said["faults"].to_string().contains("does not have its checksum"), "{said}");
    assert!(std::fs::read(&to).unwrap() == bytes);
    let poison = Liar::before(&nodes[0], Lie::FlipInMemory, usize::MAX);
    let token = nodes[0].root.join("store/token").display().to_string();
    let to = root.path().join("out3");
    let said = failed(&client(
        "fetch",
        &["--node", &format!("{}@{token}", poison.socket.display()), "--file", "f1", "--generation", "g", "--to", to.to_str().unwrap()],
    ));
    assert!(said.contains("has the BLAKE3") && !to.exists(), "{said}");
    let said = failed(&fetch_to(&[&nodes[0]], &to, &["--blake3", &hash(b"another")]));
    assert!(said.contains("the call says") && !to.exists(), "{said}");
}

/// Stripes can be read while they come: a cold file costs its way over the long line only.
#[test]
fn stripes_are_read_while_they_come() {
    let root = tempfile::tempdir().unwrap();
    let bytes = noise(17, 24 * MIB);
    source(&root.path().join("lab"), "f1", &bytes);
    let nodes = cluster(root.path(), &NAMES[..2], 1 << 30);
    for (index, node) in nodes.iter().enumerate() {
        node.put_slow_origin(&root.path().join("lab"), 6 << 20);
        ask_share(node, "t1", index, 2, bytes.len());
        until("it has begun", || (node.telemetry("t1")["bytes_done"].as_u64()? > 0).then_some(()));
    }
    let said = told(&fetch_to(&nodes.iter().collect::<Vec<_>>(), &root.path().join("out"), &[]));
    assert_eq!(said["blake3"], hash(&bytes).as_str());
    assert!(std::fs::read(root.path().join("out")).unwrap() == bytes);
}

#[test]
fn stripes_survive_a_kill_and_resume() {
    let root = tempfile::tempdir().unwrap();
    let bytes = noise(18, 60 * MIB);
    source(&root.path().join("lab"), "f1", &bytes);
    let node = member(root.path(), "a", 1 << 30);
    node.put_slow_origin(&root.path().join("lab"), 2 << 20);
    ask_share(&node, "t1", 1, 2, bytes.len());
    let log = node.root.join("store/segments/0000000001.seg");
    until("a checkpoint", || String::from_utf8_lossy(&std::fs::read(&log).unwrap()).contains("prefix_blake3").then_some(()));
    node.kill();
    let node = member(root.path(), "a", 1 << 30);
    node.put_file_origin(&root.path().join("lab"));
    ask_share(&node, "t2", 1, 2, bytes.len());
    let moved = node.ended("t2")["bytes_moved"].as_u64().unwrap();
    assert!(moved > 0 && moved < 30 * MIB as u64, "{moved}");
    let other = member(root.path(), "b", 1 << 30);
    other.put_file_origin(&root.path().join("lab"));
    ask_share(&other, "t1", 0, 2, bytes.len());
    other.ended("t1");
    node.kill();
    let node = member(root.path(), "a", 1 << 30);
    told(&fetch_to(&[&node, &other], &root.path().join("out"), &["--blake3", &hash(&bytes)]));
}

fn push_to(node: &Host, path: &Path, more: &[&str]) -> Output {
    client("push", &[&[path.to_str().unwrap(), "--node", &store_of(node), "--file", "f1", "--generation", "g"], more].concat())
}

#[test]
fn a_pushed_file_is_on_every_node_of_its_chain() {
    let root = tempfile::tempdir().unwrap();
    let nodes = cluster(root.path(), &NAMES, 1 << 30);
    for (file_id, length) in [("f1", 33 * MIB + 1), ("f2", 0), ("f3", 5)] {
        let (bytes, path) = (noise(19, length), root.path().join(file_id));
        std::fs::write(&path, &bytes).unwrap();
        let said = told(&client(
            "push",
            &[path.to_str().unwrap(), "--node", &store_of(&nodes[0]), "--file", file_id, "--generation", "g", "--chain", "b,c"],
        ));
        assert_eq!(said["replication"]["held_by"], json!(NAMES), "{said}");
        assert_eq!((said["bytes_moved"].as_u64(), said["blake3"].as_str()), (Some(length as u64), Some(hash(&bytes).as_str())));
        nodes.iter().for_each(|node| assert!(node.content(file_id, "g") == bytes));
    }
    let event = nodes[0].event("the push ended", |event| event["transfer_kind"] == "push");
    assert_eq!((event["kind"].as_str(), event["file_id"].as_str()), (Some("transfer_done"), Some("f1")));
    let again = told(&push_to(&nodes[0], &root.path().join("f1"), &["--chain", "b,c"]));
    assert_eq!((again["bytes_moved"].as_u64(), &again["replication"]["held_by"]), (Some(0), &json!(NAMES)));
    let said = failed(&push_to(&nodes[0], &root.path().join("f3"), &[]));
    assert!(said.contains("another content"), "{said}");
}

/// As a scheduler does; the push hears of its end from elsewhere. Several at once, so that some hear of it late.
#[test]
fn a_push_whose_end_is_acknowledged_by_others_succeeds() {
    let root = tempfile::tempdir().unwrap();
    let node = member(root.path(), "a", 1 << 30);
    let (store, still) = (store_of(&node), AtomicUsize::new(12));
    let push = |n: u8| {
        let path = root.path().join(format!("f{n}"));
        std::fs::write(&path, noise(n, 1000)).unwrap();
        client("push", &[path.to_str().unwrap(), "--node", &store, "--file", &format!("f{n}"), "--generation", "g"])
    };
    let several = &|first: u8| {
        let pushed: Vec<Output> = (first..first + 10).map(push).collect();
        still.fetch_sub(1, Ordering::Relaxed);
        pushed
    };
    let pushed: Vec<Output> = std::thread::scope(|scope| {
        let pushing: Vec<_> = (0..12).map(|n| scope.spawn(move || several(n * 10))).collect();
        while still.load(Ordering::Relaxed) > 0 {
            let seen = node.ok("GET", "events?after=0&wait_s=0", Value::Null);
            if let Some(last) = seen["events"].as_array().and_then(|events| events.last()) {
                node.ok("POST", "events/ack", json!({"seq": last["seq"]}));
            }
        }
        pushing.into_iter().flat_map(|pushing| pushing.join().unwrap()).collect()
    });
    pushed.iter().for_each(|output| drop(told(output)));
    (0..120).for_each(|n| assert!(node.content(&format!("f{n}"), "g") == noise(n, 1000)));
}

/// Passes all on to a node; before the first request of a kind another scheduler takes over there.
struct Takeover {
    socket: PathBuf,
    real: PathBuf,
    call: String,
    /// How the first line of such a request begins and ends.
    kind: (&'static str, &'static str),
    /// So many of them came.
    seen: AtomicUsize,
}

impl Takeover {
    fn before(node: &mut Host, kind: (&'static str, &'static str)) -> Arc<Self> {
        node.epoch += 1;
        let (socket, real) = (node.root.join(format!("takeover{}", node.epoch)), node.root.join("sock"));
        let headers: String = node.headers().iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let call = format!("GET /v1/node HTTP/1.1\r\nHost: node\r\nConnection: close\r\n{headers}\r\n");
        let listener = UnixListener::bind(&socket).unwrap();
        let takeover = Arc::new(Self { socket, real, call, kind, seen: AtomicUsize::new(0) });
        let listening = takeover.clone();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (client, server) = (client.unwrap(), UnixStream::connect(&listening.real).unwrap());
                let (mut back, mut answers, takeover) = (client.try_clone().unwrap(), server.try_clone().unwrap(), listening.clone());
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut answers, &mut back);
                    let _ = back.shutdown(std::net::Shutdown::Both);
                });
                std::thread::spawn(move || takeover.pass(client, server));
            }
        });
        takeover
    }

    fn pass(&self, mut client: UnixStream, mut server: UnixStream) {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(count @ 1..) = client.read(&mut buffer) {
            let line = buffer[..count].split(|byte| *byte == b'\r').next().unwrap();
            let is_one = line.starts_with(self.kind.0.as_bytes()) && line.ends_with(self.kind.1.as_bytes());
            if is_one && self.seen.fetch_add(1, Ordering::Relaxed) == 0 {
                let mut stream = UnixStream::connect(&self.real).unwrap();
                stream.write_all(self.call.as_bytes()).unwrap();
                stream.read_to_end(&mut Vec::new()).unwrap();
            }
            if server.write_all(&buffer[..count]).is_err() {
                return;
            }
        }
        let _ = server.shutdown(std::net::Shutdown::Both);
    }

    fn client(&self, verb: &str, args: &[&str]) -> Value {
        let address = format!("{}@{}", self.socket.display(), self.real.with_file_name("store/token").display());
        let said = told(&client(verb, &[args, &["--node", &address, "--generation", "g"]].concat()));
        assert_eq!(self.seen.load(Ordering::Relaxed), 2, "what was refused was not asked for again");
        said
    }
}

/// Whoever has no term of his own began under the one before, and is refused in the middle: he asks again under the new one.
#[test]
fn clients_go_on_when_another_scheduler_takes_over_meanwhile() {
    let root = tempfile::tempdir().unwrap();
    let mut node = member(root.path(), "a", 1 << 30);
    let (path, bytes, tree) = (root.path().join("f1"), noise(23, 3 * MIB), root.path().join("tree"));
    std::fs::write(&path, &bytes).unwrap();
    std::fs::create_dir(&tree).unwrap();
    std::fs::write(tree.join("small"), b"small").unwrap();
    assert_eq!(node.ok("GET", "node", Value::Null)["epoch"], 1);
    let content = Takeover::before(&mut node, ("PUT /v1/transfers/", "/content HTTP/1.1"));
    assert_eq!(content.client("push", &[path.to_str().unwrap(), "--file", "f1"])["bytes_moved"], bytes.len());
    let range = Takeover::before(&mut node, ("GET /v1/replicas/", "/content HTTP/1.1"));
    let to = root.path().join("out");
    assert_eq!(range.client("fetch", &["--file", "f1", "--to", to.to_str().unwrap()])["bytes_moved"], bytes.len());
    assert!(std::fs::read(&to).unwrap() == bytes);
    let pack = Takeover::before(&mut node, ("POST ", "/v1/packs HTTP/1.1"));
    assert_eq!(pack.client("push", &[tree.to_str().unwrap(), "--file", "tree"])["in_packs"], 1);
}

#[test]
fn a_push_that_does_not_fit_or_is_changed_on_its_way_leaves_nothing() {
    let root = tempfile::tempdir().unwrap();
    let nodes = cluster(root.path(), &NAMES[..2], 20 * MIB as u64);
    let path = root.path().join("f1");
    std::fs::write(&path, noise(20, 21 * MIB)).unwrap();
    assert!(failed(&push_to(&nodes[0], &path, &[])).contains("bytes left"));
    std::fs::write(&path, noise(21, 5 * MIB)).unwrap();
    nodes[1].ok("PUT", "capacity", json!({"capacity_bytes": 1000}));
    assert!(failed(&push_to(&nodes[0], &path, &["--chain", "b"])).contains("the node b"));
    // By hand: a block that does not have its checksum, a hash that is not the content's, bytes that never come.
    let bytes = noise(22, 2 * MIB);
    for (id, blake3, body, code) in [
        ("p1", hash(&bytes), flipped(&bytes), "checksum_mismatch"),
        ("p2", hash(b"other"), framed(&bytes), "checksum_mismatch"),
        ("p3", hash(&bytes), framed(&bytes)[..MIB].to_vec(), "connection_lost"),
    ] {
        let expected = json!({"size_bytes": bytes.len(), "blake3": blake3});
        let request = json!({"kind": "push", "file_id": id, "generation": "g", "expected": expected, "priority": 0, "executable": false});
        nodes[0].ok("PUT", &format!("transfers/{id}"), request);
        assert_eq!(nodes[0].ok("GET", &format!("transfers/{id}/content?wait_s=20"), Value::Null)["from_bytes"], 0);
        nodes[0].send_bytes("PUT", &format!("transfers/{id}/content"), &body);
        let event = nodes[0].ended(id);
        assert_eq!(event["error"]["code"], code, "{id}: {event}");
        nodes[0].refused("GET", &format!("replicas/{id}/g"), Value::Null, 404, "replica_unknown");
    }
    assert_eq!(nodes[0].space(), (0, 0));
}

fn framed(bytes: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    for (n, payload) in bytes.chunks(MIB).enumerate() {
        all.extend(stager_node::blocks::header((n * MIB) as u64, payload));
        all.extend(payload);
    }
    all.extend(stager_node::blocks::end(bytes.len() as u64));
    all
}

fn flipped(bytes: &[u8]) -> Vec<u8> {
    let mut all = framed(bytes);
    let middle = all.len() / 2;
    all[middle] ^= 16;
    all
}
