//! `/metrics` and health of a real node: what they say, to whom, and what they keep to themselves.

mod exposition;
mod host;

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use exposition::Exposition;
use host::*;
use serde_json::{json, Value};

const MIB: usize = 1 << 20;

fn scraped(node: &Host, open: bool) -> (String, Exposition) {
    let token = format!("Bearer {}", node.token);
    let accept = if open { "application/openmetrics-text;version=1.0.0,text/plain;q=0.5" } else { "text/plain" };
    let reply = node.plain("/metrics", &[("Authorization", &token), ("Accept", accept)]);
    assert_eq!(reply.status, 200);
    let content_type =
        if open { "content-type: application/openmetrics-text; version=1.0.0" } else { "content-type: text/plain; version=0.0.4" };
    assert!(reply.head.contains(content_type), "{}", reply.head);
    let text = String::from_utf8(reply.body).unwrap();
    let parsed = Exposition::parse(&text, open);
    (text, parsed)
}

#[test]
fn what_happened_is_counted_and_both_texts_say_the_same() {
    let root = tempfile::tempdir().unwrap();
    let (lab, bytes) = (root.path().join("private-place"), noise(1, 3 * MIB));
    source(&lab, "secret-name", &bytes);
    let node = Host::start(root.path(), 1 << 30);
    node.put_file_origin(&lab);
    node.fetched("t-fetch", "f-file", "secret-name");
    node.ok("PUT", "transfers/t-upload", upload("f-file", "t-fetch", "secret-copy", "fail"));
    node.ended("t-upload");
    let expected = json!({"size_bytes": 1, "token": null, "blake3": null, "sha256": null});
    node.ok("PUT", "transfers/t-gone", fetch("f-gone", "t-gone", "gone", expected));
    node.ended("t-gone");
    node.ok("PUT", "reservations/r-mine", json!({"bytes": 1000}));
    node.refused("GET", "replicas/f/g", Value::Null, 404, "replica_unknown");
    // A connection whose caller has gone is open until the node sees that.
    let alone = |found: &Exposition| found.value("stager_node_http_connections{listener=\"unix\"}") == 1.0;
    let (text, found) = until("the connections before have ended", || Some(scraped(&node, true)).filter(|(_, found)| alone(found)));
    for (series, value) in [
        ("stager_node_space_capacity_bytes", (1u64 << 30) as f64),
        ("stager_node_space_used_bytes", (3 * MIB) as f64),
        ("stager_node_space_reserved_bytes", 1000.0),
        ("stager_node_replicas{state=\"present\"}", 1.0),
        ("stager_node_replicas{state=\"quarantined\"}", 0.0),
        ("stager_node_transfers{kind=\"fetch\",state=\"done\"}", 1.0),
        ("stager_node_transfers{kind=\"fetch\",state=\"running\"}", 0.0),
        ("stager_node_transfers_ended_total{kind=\"fetch\",outcome=\"done\"}", 1.0),
        ("stager_node_transfers_ended_total{kind=\"upload\",outcome=\"done\"}", 1.0),
        ("stager_node_transfers_failed_total{kind=\"fetch\",code=\"not_found\"}", 1.0),
        ("stager_node_transfer_duration_seconds_count{kind=\"fetch\"}", 2.0),
        // The upload was read back.
        ("stager_node_transferred_bytes_total{origin=\"file\",direction=\"in\"}", (6 * MIB) as f64),
        ("stager_node_transferred_bytes_total{origin=\"file\",direction=\"out\"}", (3 * MIB) as f64),
        ("stager_node_lane_transfers{origin=\"file\",state=\"running\"}", 0.0),
        ("stager_node_lane_limit{origin=\"file\"}", 16.0),
        ("stager_node_quarantines_total", 0.0),
        ("stager_node_http_requests_total{method=\"GET\",route=\"/v1/replicas/*/*\",status=\"404\"}", 1.0),
        ("stager_node_http_requests_total{method=\"PUT\",route=\"/v1/transfers/*\",status=\"202\"}", 3.0),
        ("stager_node_not_ready{reason=\"draining\"}", 0.0),
        ("stager_node_http_connections{listener=\"unix\"}", 1.0),
    ] {
        assert_eq!(found.value(series), value, "{series}");
    }
    let syncs = found.value("stager_node_log_fsyncs_total");
    assert!(syncs >= 1.0 && syncs == found.value("stager_node_log_frames_total"));
    assert!(found.value("process_resident_memory_bytes") > 1e6 && found.value("process_open_fds") > 5.0);
    assert!(text.contains(&format!("stager_node_build_info{{version=\"{}\"", env!("CARGO_PKG_VERSION"))));
    for secret in [node.token.as_str(), "private-place", "secret-", "t-fetch", "t-gone", "f-file", "r-mine", root.path().to_str().unwrap()]
    {
        assert!(!text.contains(secret), "{secret} is in the metrics");
    }
    let (older_text, older) = scraped(&node, false);
    let names = |exposition: &Exposition| {
        exposition.series().into_iter().filter(|series| !series.contains("/metrics")).cloned().collect::<Vec<_>>()
    };
    assert_eq!(names(&found), names(&older));
    promtool_agrees(&older_text);
}

/// Prometheus' own checker, where it is installed.
fn promtool_agrees(text: &str) {
    let Ok(mut child) = Command::new("promtool").args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn() else {
        writeln!(std::io::stderr(), "NOT RUN: promtool is not installed (apt install prometheus); the strict parser was").ok();
        return;
    };
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn labels_do_not_grow_with_callers_names() {
    let root = tempfile::tempdir().unwrap();
    let node = Host::start(root.path(), 1000);
    let series = |node: &Host| scraped(node, true).1.series().into_iter().filter(|series| !series.contains("/metrics")).count();
    let some = |node: &Host, from: usize| {
        for n in from..from + 100 {
            node.call("GET", &format!("replicas/f{n}/g"), Value::Null);
            node.call("GET", &format!("nonsense{n}/x"), Value::Null);
            node.send("BREW", &format!("tea{n}"), &Value::Null, &[]);
            node.ok("PUT", &format!("origins/o{n}"), json!({"kind": "file", "base_path": root.path()}));
            let mut request = fetch(&format!("f{n}"), "g", "gone", json!({"size_bytes": 1, "token": null, "blake3": null, "sha256": null}));
            request["source"]["origin_id"] = json!(format!("o{n}"));
            node.ok("PUT", &format!("transfers/t{n}"), request);
            node.ended(&format!("t{n}"));
        }
    };
    some(&node, 0);
    let before = series(&node);
    some(&node, 100);
    assert_eq!(series(&node), before);
}

#[test]
fn who_may_ask_for_what() {
    let root = tempfile::tempdir().unwrap();
    let node = Host::start_with(root.path(), 1000, &["--tcp", "127.0.0.1:0"]);
    for headers in [vec![], vec![("Authorization", "Bearer wrong")], vec![("Authorization", "Bearer ")]] {
        let reply = node.plain("/metrics", &headers);
        assert_eq!((reply.status, reply.json()["error"]["code"].as_str()), (403, Some("token_wrong")));
    }
    for (path, answer) in [("/healthz", json!({"state": "alive"})), ("/readyz", json!({"state": "ready"}))] {
        let reply = node.plain(path, &[]);
        assert_eq!((reply.status, reply.json()), (200, answer));
    }
    for path in ["/", "/metrics/x", "/healthz/"] {
        assert_eq!(node.plain(path, &[]).status, 403, "{path}: nothing else is answered without a token");
    }
    let rendezvous: Value = serde_json::from_slice(&std::fs::read(root.path().join("store/rendezvous.json")).unwrap()).unwrap();
    let mut stream = std::net::TcpStream::connect(rendezvous["tcp"].as_str().unwrap()).unwrap();
    stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    std::io::Read::read_to_string(&mut stream, &mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[test]
fn a_scrape_keeps_no_idle_node_alive() {
    // Where one scrape comes long after the other, on a busy machine, the node may have been idle in between: then once more, and longer.
    assert!([2, 10, 60].into_iter().any(|idle_s| scraped_to_its_end(idle_s) < Duration::from_secs(idle_s)), "this proves nothing");
}

/// How long at most nobody scraped.
fn scraped_to_its_end(idle_s: u64) -> Duration {
    let root = tempfile::tempdir().unwrap();
    let started = Instant::now();
    let mut node = Host::start_with(root.path(), 1000, &["--idle-exit-s", &idle_s.to_string()]);
    let token = format!("Bearer {}", node.token);
    let socket = root.path().join("sock");
    std::thread::scope(|scope| {
        let scraping = scope.spawn(|| {
            let (mut last, mut longest) = (started, Duration::ZERO);
            while let Ok(mut stream) = std::os::unix::net::UnixStream::connect(&socket) {
                if started.elapsed() > DEADLINE {
                    break;
                }
                let head = format!("GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: {token}\r\n\r\n");
                let mut answer = Vec::new();
                if stream.write_all(head.as_bytes()).is_err() || std::io::Read::read_to_end(&mut stream, &mut answer).is_err() {
                    break;
                }
                longest = longest.max(last.elapsed());
                last = Instant::now();
                std::thread::sleep(Duration::from_millis(50));
            }
            longest.max(last.elapsed())
        });
        assert!(node.wait().success());
        scraping.join().unwrap()
    })
}

#[test]
fn a_full_disk_is_why_a_node_is_not_ready() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("not root: a file system of its own cannot be mounted");
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let store = root.path().join("store");
    std::fs::create_dir_all(&store).unwrap();
    nix::mount::mount(Some("tmpfs"), &store, Some("tmpfs"), nix::mount::MsFlags::empty(), Some("size=40m")).unwrap();
    let _unmount = Unmount(store.clone());
    let node = Host::start(root.path(), 1 << 30);
    assert_eq!(node.plain("/readyz", &[]).status, 200);
    std::fs::write(store.join("unknown"), vec![1; 30 * MIB]).unwrap();
    let reply = node.plain("/readyz", &[]);
    assert_eq!((reply.status, reply.json()), (503, json!({"state": "not_ready", "because": ["disk_full"]})));
    assert_eq!(node.plain("/healthz", &[]).status, 200, "it lives");
    assert_eq!(scraped(&node, true).1.value("stager_node_not_ready{reason=\"disk_full\"}"), 1.0);
    std::fs::remove_file(store.join("unknown")).unwrap();
    assert_eq!(node.plain("/readyz", &[]).status, 200, "it is ready again by itself");
    drop(node);
}

struct Unmount(std::path::PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        let _ = nix::mount::umount2(&self.0, nix::mount::MntFlags::MNT_DETACH);
    }
}
