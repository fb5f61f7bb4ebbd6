//! The transfer agent over a file origin: orders, answers, and what is left behind.

use std::ops::Range;

use async_trait::async_trait;
use stager_origins::{Capabilities, Entry, Listing, Probe, Sink, Synced, Upload, Uploaded};

use super::*;

fn ask(agent: &TransferAgent, order: Value) -> Value {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(agent.answer(&order.to_string()))
}

#[test]
fn files_go_both_ways_and_are_hashed() {
    let place = tempfile::tempdir().unwrap();
    let (far, here) = (place.path().join("far"), place.path().join("here"));
    std::fs::create_dir(&far).unwrap();
    std::fs::write(&here, b"abc").unwrap();
    let agent = TransferAgent::default();
    let order = |transfer_job: Value| json!({ "id": 7, "origin": { "kind": "file", "base_path": far }, "transfer_job": transfer_job });
    let sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let put = ask(&agent, order(json!({ "put": { "from": here, "path": "d/f" } })));
    assert_eq!((&put["id"], &put["done"]["size_bytes"], &put["done"]["sha256"]), (&json!(7), &json!(3), &json!(sha256)), "{put}");
    assert_eq!(std::fs::read(far.join("d/f")).unwrap(), b"abc");
    let to = place.path().join("to");
    let get = ask(&agent, order(json!({ "get": { "path": "d/f", "to": to } })));
    assert_eq!(get["done"]["sha256"], sha256, "{get}");
    assert_eq!(std::fs::read(&to).unwrap(), b"abc");
    let again = ask(&agent, order(json!({ "get": { "path": "d/f", "to": to } })));
    assert!(again["error"]["message"].as_str().unwrap().contains("to"), "what is there is not written over: {again}");
    assert_eq!(ask(&agent, order(json!({ "erase": { "path": "d/f" } })))["done"], json!({ "erased": true }));
    assert_eq!(ask(&agent, order(json!({ "erase": { "path": "d/f" } })))["done"], json!({ "erased": false }));
    let none = ask(&agent, order(json!({ "get": { "path": "d/f", "to": place.path().join("none") } })));
    assert_eq!((&none["error"]["code"], none["id"].as_u64()), (&json!("not_found"), Some(7)));
    assert!(!place.path().join("none").exists(), "no file is made of what is not there");
    assert_eq!(ask(&agent, order(json!({ "make_directory": { "path": "x/y" } })))["done"], json!({}));
    assert!(far.join("x/y").is_dir());
    assert_eq!(agent.origins.lock().unwrap().len(), 1, "one origin, opened once");
}

#[test]
fn an_empty_file_is_a_file() {
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("empty"), b"").unwrap();
    let to = place.path().join("to");
    let origin = json!({ "kind": "file", "base_path": place.path() });
    let answer =
        ask(&TransferAgent::default(), json!({ "id": 1, "origin": origin, "transfer_job": { "get": { "path": "empty", "to": to } } }));
    assert_eq!(answer["done"]["size_bytes"], 0, "{answer}");
    assert_eq!(std::fs::metadata(&to).unwrap().len(), 0);
}

#[test]
fn what_is_not_understood_is_said_without_secrets() {
    let origin = json!({ "kind": "s3", "bucket": "b", "region": "r", "access_key_id": "k", "secret_access_key": 987654321 });
    let order = json!({ "id": 3, "origin": origin, "transfer_job": { "erase": { "path": "x" } } });
    let answer = ask(&TransferAgent::default(), order);
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(3), &json!("bad_request")));
    assert!(!answer.to_string().contains("987654321"), "{answer}");
    let answer = ask(&TransferAgent::default(), json!({ "id": 4, "dance": true }));
    assert_eq!((&answer["id"], &answer["error"]["class"]), (&Value::Null, &json!("invalid_input")));
}

/// Has the content already, and takes its time to show it.
struct SlowToShow;

#[async_trait]
impl Origin for SlowToShow {
    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities::PLAIN
    }
    async fn stat(&self, _path: &str) -> Result<Entry, ApiError> {
        unreachable!()
    }
    async fn stat_many(&self, _paths: &[String]) -> Vec<Result<Entry, ApiError>> {
        unreachable!()
    }
    async fn list(&self, _prefix: &str, _recursive: bool, _limit: usize) -> Result<Listing, ApiError> {
        unreachable!()
    }
    async fn fetch(&self, _expected: &Entry, _ranges: &[Range<u64>], _sink: &dyn Sink) -> Result<(), ApiError> {
        unreachable!()
    }
    async fn upload(&self, upload: Upload<'_>) -> Result<Uploaded, ApiError> {
        for _ in 0..upload.size_bytes {
            tokio::time::sleep(Duration::from_millis(100)).await;
            upload.pace.was_read_back(1);
        }
        let (verified, synced) = (Verified::Adopted, Synced::Nothing);
        Ok(Uploaded { token: String::new(), verified, synced, bytes_moved: upload.size_bytes })
    }
    async fn make_directory(&self, _path: &str) -> Result<(), ApiError> {
        unreachable!()
    }
    async fn erase(&self, _path: &str, _token: Option<&str>) -> Result<bool, ApiError> {
        unreachable!()
    }
    async fn probe(&self, _path: &str, _write: bool) -> Probe {
        unreachable!()
    }
}

#[tokio::test]
async fn bytes_that_are_read_back_keep_a_put_alive() {
    let place = tempfile::tempdir().unwrap();
    let from = place.path().join("f");
    std::fs::write(&from, [7; 25]).unwrap();
    let moved = put::put(&SlowToShow, from, "f", Duration::from_secs(1)).await.unwrap();
    assert_eq!(moved.verified, Some(Verified::Adopted));
}
