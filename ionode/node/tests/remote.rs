//! Attempts on hosts that share no files with a real node: opened, their outputs sent, committed, closed; and who tries what they may not.

mod authority;
mod cluster;
mod host;

use std::sync::Arc;

use authority::{missing, Authority};
use cluster::*;
use host::*;
use serde_json::{json, Value};
use stager_core::error::Code;
use stager_node::blocks;
use stager_node::pack_format::{Ask, Writer, MEDIA_TYPE};
use stager_node::peers::link::{Address, Link, Term};
use stager_node::tls::Anonymous;

fn request(brief: &str, bytes: u64) -> Value {
    json!({"inputs": [{"file_id": "f1", "generation": "g0", "path": "in/a", "access": "link"}],
           "outputs": [output("o1", "out/tool", "file", false), output("o2", "tree", "directory", true)],
           "reservation_id": "r1", "reservation": {"id": "r1", "bytes": bytes}, "brief": {"env": brief}})
}

/// What an attempt can do with its ticket.
struct Holder<'a> {
    node: &'a Host,
    ticket: String,
    epoch: u64,
}

impl<'a> Holder<'a> {
    fn opened(node: &'a Host, attempt: &str, request: Value) -> Self {
        let answer = node.ok("PUT", &format!("attempts/{attempt}"), request);
        Self { node, ticket: answer["ticket"].as_str().unwrap().to_string(), epoch: node.epoch }
    }

    fn headers(&self, media_type: &str) -> Vec<(String, String)> {
        [
            ("Authorization", format!("Bearer {}", self.ticket)),
            ("X-Stager-Api", "1".into()),
            ("X-Stager-Epoch", self.epoch.to_string()),
            ("Content-Type", media_type.into()),
        ]
        .map(|(name, value)| (name.to_string(), value))
        .into()
    }

    fn raw(&self, method: &str, path: &str, body: &[u8], media_type: &str) -> (u16, Vec<u8>) {
        let reply = self.node.send_raw(method, &format!("/v1/{path}"), body, &self.headers(media_type)).unwrap();
        (reply.status, reply.body)
    }

    fn call(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        let bytes = if body.is_null() { Vec::new() } else { serde_json::to_vec(&body).unwrap() };
        let (status, body) = self.raw(method, path, &bytes, "application/json");
        (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }

    fn ok(&self, method: &str, path: &str, body: Value) -> Value {
        let (status, answer) = self.call(method, path, body);
        assert!((200..300).contains(&status), "{method} {path}: {status} {answer}");
        answer
    }

    fn refused(&self, method: &str, path: &str, body: Value, status: u16, code: &str) -> Value {
        let (found, answer) = self.call(method, path, body);
        assert_eq!((found, answer["error"]["code"].as_str()), (status, Some(code)), "{method} {path}: {answer}");
        answer
    }

    fn send(&self, path: &str, bytes: &[u8]) -> (u16, Value) {
        let mut body = Vec::new();
        for (number, piece) in bytes.chunks(blocks::BLOCK_BYTES).enumerate() {
            body.extend(blocks::header((number * blocks::BLOCK_BYTES) as u64, piece));
            body.extend(piece);
        }
        body.extend(blocks::end(bytes.len() as u64));
        let (status, body) = self.raw("PUT", path, &body, blocks::MEDIA_TYPE);
        (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }
}

fn file(output: usize, path: &str, bytes: &[u8], executable: bool) -> Value {
    json!({"output": output, "path": path, "size_bytes": bytes.len(), "blake3": hash(bytes), "executable": executable})
}

fn with_input(root: &std::path::Path) -> Host {
    let node = Host::start(root, 8 << 20);
    placed(&node, "f1", b"input bytes");
    source(&node.root.join("lab"), "f2", b"of others");
    assert_eq!(node.fetched("g1", "f2", "f2")["kind"], "transfer_done");
    node
}

#[test]
fn an_attempt_is_opened_its_outputs_are_sent_and_committed_together() {
    let root = tempfile::tempdir().unwrap();
    let node = with_input(root.path());
    let opened = node.ok("PUT", "attempts/a1", request("x", 3 << 20));
    assert_eq!(opened["inputs"][0]["blake3"], hash(b"input bytes"));
    assert_eq!(node.ok("PUT", "attempts/a1", request("x", 3 << 20)), opened, "the same again is answered again");
    node.refused("PUT", "attempts/a1", request("y", 3 << 20), 400, "bad_request");
    node.refused("DELETE", "replicas/f1/g0", Value::Null, 409, "replica_busy");
    let job = Holder::opened(&node, "a1", request("x", 3 << 20));
    assert_eq!(job.ok("GET", "attempts/a1/brief", Value::Null), json!({"brief": {"env": "x"}}));
    assert_eq!(job.raw("GET", "replicas/f1/g0/content", b"", "").1, b"input bytes");
    let (tool, small) = (noise(1, 2 * MIB + 5), b"small".to_vec());
    let announced = json!({"files": [file(0, "", &tool, true), file(1, "sub/s", &small, false)],
                           "folders": [{"output": 1, "path": ""}, {"output": 1, "path": "empty"}]});
    job.refused("POST", "attempts/a1/commit", json!({"want_sha256": false}), 422, "outputs_missing");
    assert_eq!(job.ok("PUT", "attempts/a1/outputs", announced.clone()), json!({"wanted": [0, 1]}));
    job.refused("POST", "attempts/a1/commit", json!({"want_sha256": false}), 400, "bad_request");
    let (status, answer) = job.send("attempts/a1/outputs/0", &noise(2, 2 * MIB + 5));
    assert_eq!((status, answer["error"]["code"].as_str()), (500, Some("checksum_mismatch")), "{answer}");
    assert_eq!(job.send("attempts/a1/outputs/0", &tool).0, 200);
    let mut pack = Writer::default();
    let key = stager_core::replica::ReplicaKey::new("1", "sent");
    pack.ask(&Ask::Put { key, executable: false, blake3: *blake3::hash(&small).as_bytes(), content: small.clone().into() });
    assert_eq!(job.raw("POST", "attempts/a1/outputs", &pack.whole(), MEDIA_TYPE).0, 200);
    assert_eq!(job.ok("PUT", "attempts/a1/outputs", announced), json!({"wanted": []}));
    let state = node.ok("GET", "state", Value::Null);
    assert_eq!(state["replicas"].as_array().unwrap().len(), 2, "nothing that was sent counts yet: {state}");
    assert_eq!(state["attempts"], json!([{"attempt_id": "a1", "epoch": 1, "state": "open"}]));
    let committed = job.ok("POST", "attempts/a1/commit", json!({"want_sha256": true}));
    assert_eq!(committed["outputs"][0]["blake3"], hash(&tool));
    assert_eq!((&committed["outputs"][0]["executable"], &committed["outputs"][1]["members"]), (&json!(true), &json!(1)));
    assert!(node.content("o1", "a") == tool);
    assert_eq!(job.ok("POST", "attempts/a1/commit", json!({"want_sha256": true})), committed, "and so is a commit");
    assert_eq!(job.ok("POST", "attempts/a1/release", json!({"reservation_id": "r1"})), json!({"changed": []}));
    assert_eq!(job.ok("POST", "attempts/a1/release", json!({"reservation_id": "r1"})), json!({"changed": []}));
    assert_eq!(job.ok("POST", "attempts/a1/commit", json!({"want_sha256": true})), committed);
    let closed = node.ok("DELETE", "attempts/a1", Value::Null);
    assert_eq!((closed["state"].as_str(), &closed["outputs"]), (Some("committed"), &committed["outputs"]));
    assert_eq!(node.ok("DELETE", "attempts/a1", Value::Null), closed, "the commit came first, and is told again");
    job.refused("POST", "attempts/a1/commit", json!({"want_sha256": true}), 409, "ticket_closed");
    assert_eq!(node.space().1, 0, "nothing stays reserved");
    assert_eq!(node.ok("GET", "state", Value::Null).get("attempts"), None);
    node.ok("DELETE", "replicas/f1/g0", Value::Null);
}

#[test]
fn what_is_closed_takes_nothing_and_leaves_nothing() {
    let root = tempfile::tempdir().unwrap();
    let node = with_input(root.path());
    let before = node.space();
    let job = Holder::opened(&node, "..", request("x", 1000));
    let announced = json!({"files": [file(0, "", b"bytes", false)], "folders": []});
    job.ok("PUT", "attempts/../outputs", announced.clone());
    assert_eq!(job.send("attempts/../outputs/0", b"bytes").0, 200);
    assert_eq!(node.ok("DELETE", "attempts/..", Value::Null), json!({"state": "closed", "outputs": []}));
    assert_eq!(node.ok("DELETE", "attempts/..", Value::Null), json!({"state": "closed", "outputs": []}));
    for (method, path, body) in [
        ("POST", "commit", json!({"want_sha256": false})),
        ("PUT", "outputs", announced),
        ("GET", "brief", Value::Null),
        ("POST", "release", json!({})),
    ] {
        job.refused(method, &format!("attempts/../{path}"), body, 409, "ticket_closed");
    }
    assert_eq!(job.send("attempts/../outputs/0", b"bytes").1["error"]["code"], "ticket_closed");
    assert_eq!(node.space(), before);
    assert_eq!(std::fs::read_dir(root.path().join("store/remote")).unwrap().count(), 0);
    let again = Holder::opened(&node, "..", request("x", 1000));
    job.refused("GET", "attempts/../brief", Value::Null, 403, "token_wrong");
    again.ok("GET", "attempts/../brief", Value::Null);
}

#[test]
fn a_ticket_is_good_for_one_attempt_its_inputs_and_nothing_else() {
    let root = tempfile::tempdir().unwrap();
    let node = with_input(root.path());
    let mut job = Holder::opened(&node, "a1", request("secret-of-a-job", 1000));
    let mut of_another = request("x", 1000);
    of_another["inputs"] = json!([]);
    of_another["reservation_id"] = json!("r2");
    of_another["reservation"] = json!({"id": "r2", "bytes": 10});
    node.ok("PUT", "attempts/a2", of_another);
    for (method, path, body) in [
        ("GET", "attempts/a2/brief", Value::Null),
        ("POST", "attempts/a2/commit", json!({"want_sha256": false})),
        ("GET", "replicas/f2/g1/content", Value::Null),
        ("GET", "replicas/f1/g0", Value::Null),
        ("DELETE", "replicas/f1/g0", Value::Null),
        ("DELETE", "attempts/a1", Value::Null),
        ("PUT", "attempts/a1", request("x", 1000)),
        ("PUT", "reservations/r1", json!({"bytes": 1 << 20})),
        ("GET", "state", Value::Null),
        ("GET", "node", Value::Null),
        ("POST", "shutdown", json!({"drain_s": 0})),
    ] {
        job.refused(method, path, body, 403, "role_refused");
    }
    job.refused("POST", "attempts/a1/release", json!({"reservation_id": "r2"}), 400, "bad_request");
    job.epoch = 0;
    job.refused("GET", "attempts/a1/brief", Value::Null, 409, "stale_epoch");
    job.epoch = 1;
    let right = job.ticket.clone();
    job.ticket.pop();
    job.ticket.push(if right.ends_with('0') { '1' } else { '0' });
    job.refused("GET", "attempts/a1/brief", Value::Null, 403, "token_wrong");
    let log = std::fs::read_to_string(root.path().join("log")).unwrap();
    let kept = std::fs::read_to_string(root.path().join("store/remote/of-a1/record.json")).unwrap();
    let secret = right.rsplit_once(':').unwrap().1;
    for text in [log, kept] {
        assert!(!text.contains(secret) && !text.contains("secret-of-a-job"), "{text}");
    }
}

#[test]
fn only_what_was_announced_is_taken_and_only_inputs_are_given() {
    let root = tempfile::tempdir().unwrap();
    let node = with_input(root.path());
    let job = Holder::opened(&node, "a1", request("x", 1000));
    let mut pack = Writer::default();
    let key = |id: &str| stager_core::replica::ReplicaKey::new(id, if id == "f2" { "g1" } else { "g0" });
    for ask in [Ask::Get(key("f1")), Ask::Get(key("f2")), Ask::Stat(key("f2")), Ask::Delete(key("f1"))] {
        pack.ask(&ask);
    }
    let made = Ask::Put { key: key("f9"), executable: false, blake3: *blake3::hash(b"x").as_bytes(), content: b"x"[..].into() };
    pack.ask(&made);
    let (status, body) = job.raw("POST", "packs", &pack.whole(), MEDIA_TYPE);
    let text = String::from_utf8_lossy(&body);
    assert_eq!((status, text.matches("role_refused").count(), text.contains("input bytes")), (200, 4, true), "{text}");
    assert!(!text.contains("of others"));
    node.refused("GET", "replicas/f9/g0", Value::Null, 404, "replica_unknown");
    let mut large = json!({"files": [file(0, "", &[0; 1001], false)], "folders": []});
    assert_eq!(job.refused("PUT", "attempts/a1/outputs", large.clone(), 409, "exceeds_reservation")["needed_bytes"], 1001);
    node.ok("PUT", "reservations/r1", json!({"bytes": 1001}));
    job.ok("PUT", "attempts/a1/outputs", large.clone());
    for (field, bad) in [("path", json!("../x")), ("path", json!("below")), ("output", json!(2)), ("blake3", json!("xyz"))] {
        let good = large["files"][0][field].clone();
        large["files"][0][field] = bad;
        job.refused("PUT", "attempts/a1/outputs", large.clone(), 400, "bad_request");
        large["files"][0][field] = good;
    }
    let mut direct = request("x", 10);
    direct["direct"] = json!([{"path": "d", "origin_id": "lab", "origin_path": "f1", "size_bytes": 1, "token": "t"}]);
    node.refused("PUT", "attempts/a3", direct, 400, "unsupported");
}

fn holder<'a>(node: &'a Host, ticket: &str) -> Holder<'a> {
    Holder { node, ticket: ticket.to_string(), epoch: 1 }
}

#[test]
fn leases_and_what_was_sent_outlive_the_node() {
    let root = tempfile::tempdir().unwrap();
    let node = with_input(root.path());
    let ticket = Holder::opened(&node, "a1", request("x", 1000)).ticket;
    let announced = json!({"files": [file(0, "", b"bytes", false), file(1, "m", b"more", true)], "folders": []});
    holder(&node, &ticket).ok("PUT", "attempts/a1/outputs", announced.clone());
    assert_eq!(holder(&node, &ticket).send("attempts/a1/outputs/0", b"bytes").0, 200);
    node.kill();
    let mut node = Host::start(root.path(), 8 << 20);
    node.refused("DELETE", "replicas/f1/g0", Value::Null, 409, "replica_busy");
    assert_eq!(node.space().1, 1000);
    holder(&node, &ticket).refused("GET", "attempts/a1/brief", Value::Null, 503, "brief_unknown");
    node.epoch = 7;
    assert_eq!(node.ok("PUT", "attempts/a1", request("x", 1000))["ticket"], ticket.as_str());
    let job = holder(&node, &ticket);
    job.ok("GET", "attempts/a1/brief", Value::Null);
    assert_eq!(job.ok("PUT", "attempts/a1/outputs", announced), json!({"wanted": [1]}));
    assert_eq!(job.send("attempts/a1/outputs/1", b"more").0, 200);
    let committed = job.ok("POST", "attempts/a1/commit", json!({"want_sha256": false, "release": {"reservation_id": "r1"}}));
    assert_eq!(committed["released"], json!({"changed": []}));
    node.kill();
    let mut node = Host::start(root.path(), 8 << 20);
    node.epoch = 7;
    assert_eq!(holder(&node, &ticket).ok("POST", "attempts/a1/commit", json!({"want_sha256": false}))["outputs"], committed["outputs"]);
    assert_eq!(node.ok("GET", "state", Value::Null)["attempts"][0]["state"], "released");
    assert_eq!(node.ok("DELETE", "attempts/a1", Value::Null)["state"], "committed");
    assert_eq!(node.space(), (11 + 9 + 9, 0));
}

#[test]
fn a_caller_without_a_certificate_may_do_what_its_ticket_allows() {
    if missing() {
        return;
    }
    let (root, authority) = (tempfile::tempdir().unwrap(), Authority::new());
    let dir = authority.dir("a", "node/a");
    let node = member_with(root.path(), "a", 1 << 30, &["--tcp", "127.0.0.1:0", "--tls-dir", dir.to_str().unwrap()]);
    placed(&node, "f1", b"input bytes");
    let ticket = Holder::opened(&node, "a1", request("x", 1000)).ticket;
    let rendezvous: Value = serde_json::from_slice(&std::fs::read(node.root.join("store/rendezvous.json")).unwrap()).unwrap();
    let address = rendezvous["tcp"].as_str().unwrap().to_string();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let ca = |authority: &Authority| {
        std::fs::read_to_string(authority.dir("x", "node/x").join("ca.pem"))
            .map(|pem| Arc::new(Anonymous::trusting(&pem).unwrap()))
            .unwrap()
    };
    let asked = |shown: &str, trusted: &Authority, expected: &str, path: &str| {
        let link = Link::by_ticket(Address::parse(&address).unwrap(), shown, 1, Some(expected.to_string()), Some(ca(trusted)));
        runtime.block_on(link.json::<Value>("GET", path, Term::Its, None::<&Value>, DEADLINE))
    };
    assert_eq!(asked(&ticket, &authority, "a", "/v1/attempts/a1/brief").unwrap(), json!({"brief": {"env": "x"}}));
    for (shown, path, code) in [
        (ticket.as_str(), "/v1/state", Code::RoleRefused),
        (node.token.as_str(), "/v1/state", Code::RoleRefused),
        ("ticket:a1:00", "/v1/attempts/a1/brief", Code::TokenWrong),
        (ticket.as_str(), "/v1/attempts/a2/brief", Code::RoleRefused),
    ] {
        assert_eq!(asked(shown, &authority, "a", path).unwrap_err().code, code, "{path}");
    }
    assert_eq!(asked(&ticket, &authority, "b", "/v1/attempts/a1").unwrap_err().code, Code::PeerRefused);
    assert_eq!(asked(&ticket, &Authority::new(), "a", "/v1/attempts/a1").unwrap_err().code, Code::PeerRefused);
}
