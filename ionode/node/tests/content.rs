//! Reading replicas: what guards the way from the disk to the reader, and what happens when it fires.

mod host;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use host::*;
use serde_json::Value;

const MIB: usize = 1 << 20;

fn crc(bytes: &[u8]) -> String {
    format!("{:016x}", crc_fast::crc64_nvme(bytes))
}

fn header(reply: &Reply) -> Option<String> {
    reply.head.lines().find_map(|line| line.strip_prefix("x-stager-crc64nvme: ").map(str::to_string))
}

fn read(node: &Host, path: &str, more: &[(&str, &str)]) -> Reply {
    let mut headers = node.headers();
    headers.extend(more.iter().map(|(name, value)| (name.to_string(), value.to_string())));
    node.send("GET", &format!("replicas/{path}"), &Value::Null, &headers)
}

fn fetched(root: &Path, bytes: &[u8]) -> Host {
    source(&root.join("lab"), "one", bytes);
    let node = Host::start(root, 1 << 30);
    node.put_file_origin(&root.join("lab"));
    assert_eq!(node.fetched("g", "f", "one")["kind"], "transfer_done");
    node
}

#[test]
fn every_body_says_its_checksum_where_it_can() {
    let root = tempfile::tempdir().unwrap();
    let bytes = noise(1, 5 * MIB + 3);
    let node = fetched(root.path(), &bytes);
    let whole = read(&node, "f/g/content", &[]);
    assert_eq!((header(&whole), crc(&whole.body)), (Some(crc(&bytes)), crc(&bytes)));
    let small = read(&node, "f/g/content", &[("Range", "bytes=1000-5000")]);
    assert_eq!((small.status, header(&small), &small.body[..]), (206, Some(crc(&bytes[1000..=5000])), &bytes[1000..=5000]));
    let all = read(&node, "f/g/content", &[("Range", "bytes=0-")]);
    assert_eq!((all.status, header(&all)), (206, Some(crc(&bytes))));
    let large = read(&node, "f/g/content", &[("Range", "bytes=7-3000000")]);
    assert_eq!((header(&large), &large.body[..]), (None, &bytes[7..=3_000_000]));
    let trailed = read(&node, "f/g/content", &[("Range", "bytes=7-3000000"), ("TE", "trailers")]);
    assert!(
        trailed.head.contains("trailer: x-stager-crc64nvme") && trailed.head.contains("transfer-encoding: chunked"),
        "{}",
        trailed.head
    );
    let end = format!("0\r\nx-stager-crc64nvme: {}\r\n\r\n", crc(&bytes[7..=3_000_000]));
    assert!(trailed.body.ends_with(end.as_bytes()), "{}", String::from_utf8_lossy(&trailed.body[trailed.body.len() - 80..]));
}

#[test]
fn a_member_of_a_tree_says_its_own() {
    let root = tempfile::tempdir().unwrap();
    let node = Host::start(root.path(), 1 << 30);
    tree(&node, &[("a/one", &noise(1, 1000)), ("two", &noise(2, 2 * MIB))]);
    for (member, bytes) in [("a/one", noise(1, 1000)), ("two", noise(2, 2 * MIB))] {
        let reply = read(&node, &format!("o/a/content?member={member}"), &[]);
        assert_eq!((header(&reply), reply.body == bytes), (Some(crc(&bytes)), true), "{member}");
    }
    rot(&data_file(root.path(), "o@a").join("two"), 2 * MIB as u64 - 1);
    assert!(read(&node, "o/a/content?member=two", &[]).body.len() < 2 * MIB);
    quarantined(&node, "o", "a");
}

fn quarantined(node: &Host, file_id: &str, generation: &str) {
    let told = |event: &Value| event["kind"] == "replica_corrupt" && event["file_id"] == file_id;
    let event = node.event("the damage is told", told);
    assert_eq!((event["error"]["class"].as_str(), event["error"]["code"].as_str()), (Some("corrupt"), Some("checksum_mismatch")));
    node.refused("GET", &format!("replicas/{file_id}/{generation}/content"), Value::Null, 500, "checksum_mismatch");
}

#[test]
fn rot_is_never_served_to_its_end() {
    for (length, at) in [(100_000, 99_999u64), (5 * MIB, 10), (5 * MIB, 5 * MIB as u64 - 1)] {
        let root = tempfile::tempdir().unwrap();
        let node = fetched(root.path(), &noise(1, length));
        rot(&data_file(root.path(), "f@g"), at);
        // The connection may break before so much as the head of the answer was sent.
        let reply = node.send_raw("GET", "/v1/replicas/f/g/content", b"", &node.headers());
        let served_bytes = reply.map_or(0, |reply| reply.body.len());
        assert!(served_bytes < length, "{length} bytes with a turned bit at {at} were served whole");
        quarantined(&node, "f", "g");
    }
}

#[test]
fn a_replica_cut_short_is_found_by_who_reads_it() {
    let root = tempfile::tempdir().unwrap();
    let node = fetched(root.path(), &noise(1, 5 * MIB));
    let path = data_file(root.path(), "f@g");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_len(3 * MIB as u64).unwrap();
    assert!(read(&node, "f/g/content", &[]).body.len() <= 3 * MIB);
    quarantined(&node, "f", "g");
}
