//! TLS between hosts: who is let in, who may call what, who is believed to be a peer. Real nodes, certificates of openssl.

mod authority;
mod cluster;
mod host;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use authority::{missing, Authority};
use cluster::*;
use host::*;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::CertificateDer;
use serde_json::{json, Value};
use stager_core::error::{ApiError, Code};
use stager_node::peers::link::{Address, Link, Term};
use stager_node::tls::Tls;

const EXPIRED: &str = "20200201000000Z";

fn tls_node(root: &Path, name: &str, dir: &Path) -> Host {
    member_with(root, name, 1 << 30, &["--tcp", "127.0.0.1:0", "--tls-dir", dir.to_str().unwrap()])
}

fn tcp_of(node: &Host) -> String {
    let rendezvous: Value = serde_json::from_slice(&std::fs::read(node.root.join("store/rendezvous.json")).unwrap()).unwrap();
    rendezvous["tcp"].as_str().unwrap().to_string()
}

/// A caller's side, as another host has it.
struct Caller {
    link: Link,
    runtime: tokio::runtime::Runtime,
}

impl Caller {
    fn of(dir: &Path, node: &Host, expected: Option<&str>) -> Self {
        Self::at(dir, &tcp_of(node), expected)
    }

    fn at(dir: &Path, address: &str, expected: Option<&str>) -> Self {
        let tls = Arc::new(Tls::open(dir, None, Arc::default()).unwrap());
        let link = Link::new(expected.map(str::to_string), Address::parse(address).unwrap(), None).with_tls(Some(tls));
        Self { link, runtime: tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap() }
    }

    fn call(&self, method: &str, path: &str, term: Term, body: Value) -> Result<Value, ApiError> {
        let asked = async {
            let bytes = if body.is_null() { Vec::new() } else { serde_json::to_vec(&body).unwrap() };
            let call = stager_node::peers::link::Call {
                method,
                path: format!("/v1/{path}"),
                headers: Vec::new(),
                body: stager_node::peers::link::bytes_body(bytes),
                term,
            };
            let mut reply = self.link.send(call).await?;
            let mut read = Vec::new();
            while let Some(bytes) = reply.next().await {
                read.extend_from_slice(&bytes.unwrap());
            }
            Ok(serde_json::from_slice(&read).unwrap_or(Value::Null))
        };
        self.runtime.block_on(async { tokio::time::timeout(DEADLINE, asked).await.unwrap() })
    }

    fn ok(&self, method: &str, path: &str, body: Value) -> Value {
        self.call(method, path, Term::Its, body).unwrap_or_else(|error| panic!("{method} {path}: {error:?}"))
    }

    fn refused(&self, method: &str, path: &str, body: Value) -> ApiError {
        self.call(method, path, Term::Its, body).expect_err(path)
    }
}

fn logs(node: &Host, words: &str) {
    until(words, || node.log_lines().iter().any(|line| line.to_string().contains(words)).then_some(()));
}

#[test]
fn each_role_may_call_what_its_list_says() {
    if missing() {
        return;
    }
    let (root, authority) = (tempfile::tempdir().unwrap(), Authority::new());
    let node = tls_node(root.path(), "a", &authority.dir("a", "node/a"));
    placed(&node, "f1", b"content");
    let scheduler = Caller::of(&authority.dir("s", "scheduler"), &node, Some("a"));
    scheduler.ok("PUT", "reservations/r", json!({"bytes": 1000}));
    assert_eq!(scheduler.ok("GET", "state", Value::Null)["reservations"][0]["id"], "r");
    let peer = Caller::of(&authority.dir("b", "node/b"), &node, Some("a"));
    assert_eq!(peer.ok("GET", "replicas/f1/g0/source", Value::Null)["size_bytes"], 7);
    assert_eq!(peer.ok("POST", "replicas/f1/g0/verify", Value::Null)["matches"], true);
    for (method, path, body) in [
        ("GET", "state", Value::Null),
        ("GET", "events", Value::Null),
        ("DELETE", "replicas/f1/g0", Value::Null),
        ("PUT", "origins/o", json!({"kind": "file", "base_path": "/"})),
        ("PUT", "peers/c", json!({"address": "h:1"})),
        ("PUT", "capacity", json!({"capacity_bytes": 1})),
        ("POST", "shutdown", json!({"drain_s": 0})),
        ("PUT", "transfers/t1", copy("f2", "g0", &["c"], 7, &hash(b"content"))),
        ("PUT", "transfers/t1", fetch("f2", "g0", "f1", json!({"size_bytes": 7, "token": "t", "blake3": null, "sha256": null}))),
        ("GET", "transfers/g0", Value::Null),
        ("DELETE", "transfers/g0", Value::Null),
    ] {
        let error = peer.refused(method, path, body);
        assert_eq!(error.code, Code::RoleRefused, "{method} {path}: {error}");
        assert!(error.message.contains("the node b"), "{error}");
    }
    let pool = Caller::of(&authority.dir("p", "pool/alice"), &node, Some("a"));
    assert_eq!(pool.refused("GET", "state", Value::Null).code, Code::RoleRefused);
    assert_eq!(node.ok("GET", "replicas/f1/g0", Value::Null)["size_bytes"], 7);
}

/// The digest of the public key in the certificate of a `--tls-dir`.
fn key_of(dir: &Path) -> String {
    let certificate = CertificateDer::from_pem_file(dir.join("cert.pem")).unwrap();
    stager_node::tls::forgotten::key_of(&certificate)
}

#[test]
fn a_node_that_was_forgotten_is_refused_by_name_on_both_sides_and_after_a_restart() {
    if missing() {
        return;
    }
    let (root, authority) = (tempfile::tempdir().unwrap(), Authority::new());
    let (a, b) = (authority.dir("a", "node/a"), authority.dir("b", "node/b"));
    let (mut node, other) = (tls_node(root.path(), "a", &a), tls_node(root.path(), "b", &b));
    placed(&node, "f1", b"content");
    placed(&other, "f2", b"others'");
    let scheduler = authority.dir("s", "scheduler");
    Caller::of(&scheduler, &node, Some("a")).ok("PUT", "peers/b", json!({"address": tcp_of(&other)}));
    // Open since before, as connections between nodes are.
    let peer = Caller::of(&b, &node, Some("a"));
    peer.ok("GET", "replicas/f1/g0/source", Value::Null);
    assert_eq!(peer.refused("PUT", "forgotten", json!({"nodes": []})).code, Code::RoleRefused);
    let forgotten = json!({"nodes": [{"node_id": "b", "key_sha256": key_of(&b)}]});
    Caller::of(&scheduler, &node, Some("a")).ok("PUT", "forgotten", forgotten);
    for restarted in [false, true] {
        if restarted {
            node.kill();
            node = tls_node(root.path(), "a", &a);
            Caller::of(&scheduler, &node, Some("a")).ok("PUT", "peers/b", json!({"address": tcp_of(&other)}));
        }
        let fresh = Caller::of(&b, &node, Some("a"));
        for caller in if restarted { vec![&fresh] } else { vec![&peer, &fresh] } {
            let error = caller.refused("GET", "replicas/f1/g0/source", Value::Null);
            assert!(error.message.contains("that of the node b, which the scheduler has forgotten"), "{error}");
        }
        let transfer = format!("t{restarted}");
        node.ok("PUT", &format!("transfers/{transfer}"), copy("f2", "g0", &["b"], 7, &hash(b"others'")));
        let failed = node.ended(&transfer);
        assert_eq!(failed["error"]["code"], "peer_refused", "{failed}");
        assert!(failed["error"]["message"].as_str().unwrap().contains("the node b, which the scheduler has forgotten"), "{failed}");
        // Another key, or the scheduler's word that it is good again.
        let again = authority.dir(&format!("again{restarted}"), "node/b");
        Caller::of(&again, &node, Some("a")).ok("GET", "replicas/f1/g0/source", Value::Null);
    }
    Caller::of(&scheduler, &node, Some("a")).ok("PUT", "forgotten", json!({"nodes": []}));
    Caller::of(&b, &node, Some("a")).ok("GET", "replicas/f1/g0/source", Value::Null);
}

#[test]
fn a_node_does_not_begin_a_term_at_another() {
    if missing() {
        return;
    }
    let (root, authority) = (tempfile::tempdir().unwrap(), Authority::new());
    let node = tls_node(root.path(), "a", &authority.dir("a", "node/a"));
    placed(&node, "f1", b"content");
    let peer = Caller::of(&authority.dir("b", "node/b"), &node, None);
    assert_eq!(peer.call("GET", "replicas/f1/g0/source", Term::Of(u64::MAX), Value::Null).unwrap()["size_bytes"], 7);
    assert_eq!(node.ok("GET", "node", Value::Null)["epoch"], 1);
    let scheduler = Caller::of(&authority.dir("s", "scheduler"), &node, None);
    scheduler.call("GET", "state", Term::Of(5), Value::Null).unwrap();
    assert_eq!(peer.call("GET", "replicas/f1/g0/source", Term::Of(1), Value::Null).unwrap_err().code, Code::StaleEpoch);
}

#[test]
fn a_caller_without_a_good_certificate_is_refused_by_name_on_both_sides() {
    if missing() {
        return;
    }
    let (root, authority, foreign) = (tempfile::tempdir().unwrap(), Authority::new(), Authority::new());
    let node = tls_node(root.path(), "a", &authority.dir("a", "node/a"));
    // Each trusts this cluster's authority, so that only the node can refuse it.
    let trusting = |dir: std::path::PathBuf, from: &Path| {
        std::fs::copy(from.join("ca.pem"), dir.join("ca.pem")).unwrap();
        dir
    };
    let own = authority.dir("own", "scheduler");
    let expired = authority.dir("expired", "scheduler");
    let caller = Caller::of(&expired, &node, None);
    authority.sign(&expired, "URI:stager://c1/scheduler", EXPIRED);
    let error = Tls::open(&expired, None, Arc::default()).err().unwrap();
    assert!(error.message.contains("has expired"), "{error}");
    drop(caller);
    for (words, args) in [
        ("has expired", format!("-cert {0}/cert.pem -key {0}/key.pem", expired.display())),
        ("not of this cluster's authority", {
            let dir = trusting(foreign.dir("foreign", "scheduler"), &own);
            format!("-cert {0}/cert.pem -key {0}/key.pem", dir.display())
        }),
    ] {
        let said = s_client(&node, &own, &args);
        assert!(said.contains("alert"), "{words}: {said}");
        logs(&node, words);
    }
    let said = s_client(&node, &own, "");
    assert!(said.contains("role_refused") && said.contains("neither a certificate nor a ticket"), "{said}");
    for (names, words) in [
        ("DNS:scheduler", "names no role"),
        ("URI:stager://c1/scheduler,URI:stager://c1/node/b", "names no role"),
        ("URI:stager://c2/scheduler", "the cluster c2"),
    ] {
        let dir = authority.dir_until("odd", names, "20491231235959Z");
        let said = s_client(&node, &own, &format!("-cert {0}/cert.pem -key {0}/key.pem", dir.display()));
        assert!(said.contains("role_refused") && said.contains(words), "{said}");
        logs(&node, words);
    }
    let mut plain = TcpStream::connect(tcp_of(&node)).unwrap();
    plain.write_all(format!("GET /v1/node HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {}\r\n\r\n", node.token).as_bytes()).unwrap();
    let mut said = String::new();
    plain.read_to_string(&mut said).unwrap();
    assert!(said.starts_with("HTTP/1.1 403") && said.contains("tls_required"), "{said}");
    logs(&node, "it speaks no TLS");
    Caller::of(&own, &node, Some("a")).ok("GET", "state", Value::Null);
}

/// What openssl prints of one call, to its end.
fn s_client(node: &Host, ca: &Path, args: &str) -> String {
    let mut command = std::process::Command::new("openssl");
    command.args(["s_client", "-quiet", "-connect", &tcp_of(node), "-CAfile", ca.join("ca.pem").to_str().unwrap()]);
    command.args(args.split(' ').filter(|word| !word.is_empty()));
    let stdio = std::process::Stdio::piped;
    let mut child = command.stdin(stdio()).stdout(stdio()).stderr(stdio()).spawn().unwrap();
    // It may have been refused by now.
    let _ = child.stdin.as_mut().unwrap().write_all(b"GET /v1/node HTTP/1.1\r\nhost: a\r\nx-stager-api: 1\r\nconnection: close\r\n\r\n");
    let output = child.wait_with_output().unwrap();
    [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat()
}

#[test]
fn a_peer_is_believed_by_its_certificate_alone() {
    if missing() {
        return;
    }
    let (root, authority, foreign) = (tempfile::tempdir().unwrap(), Authority::new(), Authority::new());
    let (a, b) = (tls_node(root.path(), "a", &authority.dir("a", "node/a")), tls_node(root.path(), "b", &authority.dir("b", "node/b")));
    let content = noise(4, 9 * MIB + 1);
    placed(&a, "f1", &content);
    let tell = |node: &Host, name: &str, address: &str| node.ok("PUT", &format!("peers/{name}"), json!({"address": address}));
    let mut tried = 0;
    let mut fails = |name: &str, words: &str| {
        tried += 1;
        let transfer_id = format!("w{tried}");
        b.ok("PUT", &format!("transfers/{transfer_id}"), copy("f1", &transfer_id, &[name], content.len(), &hash(&content)));
        let event = b.ended(&transfer_id);
        assert_eq!(event["error"]["code"], "peer_refused", "{event}");
        assert!(event["error"]["message"].as_str().unwrap().contains(words), "{event}");
    };
    tell(&b, "c", &tcp_of(&a));
    fails("c", "that of the node a");
    let plain = member_with(root.path(), "plain", 1 << 20, &["--tcp", "127.0.0.1:0"]);
    tell(&b, "plain", &tcp_of(&plain));
    fails("plain", "speaks no TLS");
    let other = tls_node(root.path(), "other", &foreign.dir("other", "node/other"));
    tell(&b, "other", &tcp_of(&other));
    fails("other", "not of this cluster's authority");
    tell(&b, "a", &tcp_of(&a));
    b.ok("PUT", "transfers/t1", copy("f1", "g1", &["a"], content.len(), &hash(&content)));
    assert_eq!(b.ended("t1")["kind"], "transfer_done");
    assert!(b.content("f1", "g1") == content);
}

#[test]
fn a_chain_of_nodes_works_under_tls() {
    if missing() {
        return;
    }
    let (root, authority) = (tempfile::tempdir().unwrap(), Authority::new());
    let nodes: Vec<Host> = ["a", "b", "c"].map(|name| tls_node(root.path(), name, &authority.dir(name, &format!("node/{name}")))).into();
    for node in &nodes {
        for (name, other) in ["a", "b", "c"].iter().zip(&nodes).filter(|(_, other)| other.root != node.root) {
            node.ok("PUT", &format!("peers/{name}"), json!({"address": tcp_of(other)}));
        }
    }
    let content = noise(5, 5 * MIB + 3);
    let lab = nodes[0].root.join("lab");
    source(&lab, "f1", &content);
    nodes[0].put_file_origin(&lab);
    let entry = nodes[0].stat("f1");
    let mut request =
        fetch("f1", "g0", "f1", json!({"size_bytes": entry["size_bytes"], "token": entry["token"], "blake3": null, "sha256": null}));
    request["replicas"] = json!({"chain": ["b", "c"], "ack": "sync"});
    nodes[0].ok("PUT", "transfers/t1", request);
    let event = nodes[0].ended("t1");
    assert_eq!(event["replication"]["held_by"], json!(["a", "b", "c"]), "{event}");
    let pushed = std::process::Command::new(env!("CARGO_BIN_EXE_stager-ionode"))
        .args(["push", lab.join("f1").to_str().unwrap(), "--file", "f2", "--generation", "g", "--chain", "b,c"])
        .arg("--node")
        .arg(format!("{}@{}", tcp_of(&nodes[0]), authority.dir("s", "scheduler").display()))
        .output()
        .unwrap();
    assert!(pushed.status.success(), "{}", String::from_utf8_lossy(&pushed.stderr));
    for node in &nodes {
        assert!(node.content("f1", "g0") == content && node.content("f2", "g") == content);
    }
}

#[test]
fn a_certificate_is_renewed_without_a_restart() {
    if missing() {
        return;
    }
    let (root, authority) = (tempfile::tempdir().unwrap(), Authority::new());
    let (dir, scheduler) = (authority.dir("a", "node/a"), authority.dir("s", "scheduler"));
    let node = tls_node(root.path(), "a", &dir);
    let shown = || Caller::of(&scheduler, &node, Some("a")).ok("GET", "node", Value::Null)["incarnation"].clone();
    let before = shown();
    let hang_up = || nix_kill(node.pid());
    authority.sign(&dir, "URI:stager://c1/node/a", EXPIRED);
    hang_up();
    logs(&node, "the one before stays in force");
    assert_eq!(shown(), before);
    authority.sign(&dir, "URI:stager://c1/node/b", "20491231235959Z");
    hang_up();
    logs(&node, "start the node again for that");
    assert_eq!(shown(), before);
    // The new one is of another authority: nobody could be let in if it had not been taken up.
    let next = Authority::new();
    let renewed = next.dir("a", "node/a");
    for name in ["ca.pem", "cert.pem", "key.pem"] {
        std::fs::copy(renewed.join(name), dir.join(name)).unwrap();
    }
    logs(&node, "the certificate was read again");
    let again = Caller::of(&next.dir("s", "scheduler"), &node, Some("a"));
    assert_eq!(again.ok("GET", "node", Value::Null)["incarnation"], before);
    assert_eq!(Caller::of(&scheduler, &node, Some("a")).refused("GET", "node", Value::Null).code, Code::PeerRefused);
}

fn nix_kill(pid: u32) {
    assert!(std::process::Command::new("kill").args(["-HUP", &pid.to_string()]).status().unwrap().success());
}

#[test]
fn a_node_does_not_start_with_a_key_that_others_can_read_or_a_certificate_of_another() {
    if missing() {
        return;
    }
    let (root, authority) = (tempfile::tempdir().unwrap(), Authority::new());
    let dir = authority.dir("a", "node/a");
    let start = |name: &str| {
        let args = ["--node-id", name, "--tcp", "127.0.0.1:0", "--tls-dir", dir.to_str().unwrap()];
        let output = command(root.path(), 1000, &args).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(start("b").contains("is that of the node a, and this is the node b"));
    std::fs::set_permissions(dir.join("key.pem"), std::fs::Permissions::from_mode(0o640)).unwrap();
    assert!(start("a").contains("chmod 600"));
    authority.sign(&dir, "URI:stager://c1/node/a", EXPIRED);
    assert!(start("a").contains("has expired"));
    authority.sign(&dir, "DNS:a", "20491231235959Z");
    assert!(start("a").contains("names no role"));
    std::fs::remove_file(dir.join("ca.pem")).unwrap();
    assert!(start("a").contains("ca.pem cannot be used"));
}

#[test]
fn a_secret_is_not_taken_in_plain_text_from_the_network() {
    let address = std::net::UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
        socket.connect("192.0.2.1:9")?;
        socket.local_addr()
    });
    let Some(address) = address.ok().map(|address| address.ip()).filter(|address| !address.is_loopback()) else {
        writeln!(std::io::stderr(), "NOT RUN: the test needs an address that is not loopback").ok();
        return;
    };
    let root = tempfile::tempdir().unwrap();
    let node = Host::start_with(root.path(), 1000, &["--tcp", "0.0.0.0:0", "--trust-network"]);
    let port = tcp_of(&node).rsplit_once(':').unwrap().1.to_string();
    let secret = "correct-horse-battery-staple";
    let put = |host: &str, config: Value| {
        let mut stream = TcpStream::connect(format!("{host}:{port}")).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let body = config.to_string();
        let mut head = format!("PUT /v1/origins/o HTTP/1.1\r\nhost: n\r\nconnection: close\r\ncontent-length: {}\r\n", body.len());
        node.headers().iter().for_each(|(name, value)| head.push_str(&format!("{name}: {value}\r\n")));
        stream.write_all(format!("{head}\r\n{body}").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let s3 = json!({"kind": "s3", "bucket": "b", "region": "r", "access_key_id": "k", "secret_access_key": secret});
    let refused = put(&address.to_string(), s3.clone());
    assert!(refused.starts_with("HTTP/1.1 403") && refused.contains("not_encrypted") && !refused.contains(secret), "{refused}");
    let taken = put("127.0.0.1", s3);
    assert!(taken.starts_with("HTTP/1.1 200"), "loopback is no network: {taken}");
    assert!(put(&address.to_string(), json!({"kind": "file", "base_path": root.path()})).starts_with("HTTP/1.1 200"));
    assert!(!std::fs::read_to_string(root.path().join("log")).unwrap().contains(secret));
}
