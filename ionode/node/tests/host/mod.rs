//! A real `stager-ionode serve` process under a temporary directory, and a small client for it.
//!
//! The one rule: tests wait for conditions with a deadline, and no process outlives its test.
#![allow(dead_code)]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::{json, Value};

/// Every replica becomes a file, however small.
pub const IN_FILES: [&str; 2] = ["--inline-bytes-max", "0"];
pub const DEADLINE: Duration = Duration::from_secs(120);

pub struct Host {
    pub root: PathBuf,
    pub incarnation: String,
    pub token: String,
    pub epoch: u64,
    child: Child,
    commands: std::cell::Cell<u64>,
}

pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

/// A call whose answer was not read yet.
pub struct Begun {
    stream: UnixStream,
    sent: bool,
}

impl Begun {
    pub fn reply(mut self) -> Option<Reply> {
        let mut answer = Vec::new();
        let read = self.stream.read_to_end(&mut answer);
        let split = answer.windows(4).position(|window| window == b"\r\n\r\n")?;
        // Who is refused by the head of its request may be hung up on before its body is taken.
        if self.sent {
            read.unwrap();
        }
        let head = String::from_utf8(answer[..split].to_vec()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Some(Reply { status, head: head.to_lowercase(), body: answer[split + 4..].to_vec() })
    }
}

impl Reply {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&self.body)))
    }
}

pub fn command(root: &Path, capacity_bytes: u64, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stager-ionode"));
    command.arg("serve").arg("--store").arg(root.join("store")).args(["--capacity", &capacity_bytes.to_string()]);
    if !more.contains(&"--node-id") {
        command.args(["--node-id", "node0"]);
    }
    command.arg("--socket").arg(root.join("sock")).args(more);
    command
}

impl Host {
    pub fn start(root: &Path, capacity_bytes: u64) -> Self {
        Self::start_with(root, capacity_bytes, &[])
    }

    pub fn start_with(root: &Path, capacity_bytes: u64, more: &[&str]) -> Self {
        Self::start_in(root, capacity_bytes, more, &[])
    }

    pub fn start_in(root: &Path, capacity_bytes: u64, more: &[&str], environment: &[(String, String)]) -> Self {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(root.join("log")).unwrap();
        let mut child =
            command(root, capacity_bytes, more).envs(environment.iter().cloned()).stderr(log).stdin(Stdio::null()).spawn().unwrap();
        let pid = child.id();
        let rendezvous = until("the node listens", || {
            if let Some(status) = child.try_wait().unwrap() {
                panic!("the node ended with {status}: {}", std::fs::read_to_string(root.join("log")).unwrap());
            }
            let text = std::fs::read_to_string(root.join("store/rendezvous.json")).ok()?;
            serde_json::from_str::<Value>(&text).ok().filter(|found| found["pid"] == pid)
        });
        let token = std::fs::read_to_string(rendezvous["token_file"].as_str().unwrap()).unwrap();
        let incarnation = rendezvous["incarnation"].as_str().unwrap().to_string();
        Self { root: root.to_owned(), incarnation, token, epoch: 1, child, commands: std::cell::Cell::new(0) }
    }

    pub fn headers(&self) -> Vec<(String, String)> {
        self.commands.set(self.commands.get() + 1);
        let pairs = [
            ("Authorization", format!("Bearer {}", self.token)),
            ("X-Stager-Api", "1".into()),
            ("X-Stager-Epoch", self.epoch.to_string()),
            ("X-Stager-Incarnation", self.incarnation.clone()),
            ("X-Stager-Command", format!("c{}", self.commands.get())),
        ];
        pairs.into_iter().map(|(name, value)| (name.to_string(), value)).collect()
    }

    pub fn send(&self, method: &str, path: &str, body: &Value, headers: &[(String, String)]) -> Reply {
        self.ask(method, &format!("/v1/{path}"), body, headers)
    }

    /// Health and metrics: a path of its own, with at most the token.
    pub fn plain(&self, path: &str, headers: &[(&str, &str)]) -> Reply {
        let headers: Vec<(String, String)> = headers.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        self.ask("GET", path, &Value::Null, &headers)
    }

    fn ask(&self, method: &str, path: &str, body: &Value, headers: &[(String, String)]) -> Reply {
        let body = if body.is_null() { Vec::new() } else { serde_json::to_vec(body).unwrap() };
        self.send_raw(method, path, &body, headers).expect("an answer has a head")
    }

    /// A body that is no JSON; a node may hang up before it has read all of it.
    pub fn send_bytes(&self, method: &str, path: &str, body: &[u8]) -> Option<Reply> {
        self.send_raw(method, &format!("/v1/{path}"), body, &self.headers())
    }

    pub fn send_raw(&self, method: &str, path: &str, body: &[u8], headers: &[(String, String)]) -> Option<Reply> {
        self.begin(method, path, body, headers).reply()
    }

    /// For several calls at once: what is sent now, the answer is asked for later.
    pub fn begin(&self, method: &str, path: &str, body: &[u8], headers: &[(String, String)]) -> Begun {
        let mut stream = UnixStream::connect(self.root.join("sock")).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let mut request = format!("{method} {path} HTTP/1.1\r\nHost: node\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
        for (name, value) in headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        let sent = stream.write_all(&[request.as_bytes(), b"\r\n", body].concat()).is_ok();
        Begun { stream, sent }
    }

    pub fn call(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        let reply = self.send(method, path, &body, &self.headers());
        (reply.status, reply.json())
    }

    /// As `call`; `None` where nobody answers.
    pub fn try_call(&self, method: &str, path: &str, body: Value) -> Option<(u16, Value)> {
        UnixStream::connect(self.root.join("sock")).ok().map(|_| self.call(method, path, body))
    }

    /// The answer of a call that has to succeed.
    pub fn ok(&self, method: &str, path: &str, body: Value) -> Value {
        let (status, answer) = self.call(method, path, body);
        assert!((200..300).contains(&status), "{method} {path}: {status} {answer}");
        answer
    }

    /// The error of a call that has to fail so.
    pub fn refused(&self, method: &str, path: &str, body: Value, status: u16, code: &str) -> Value {
        let (found, answer) = self.call(method, path, body);
        assert_eq!((found, answer["error"]["code"].as_str()), (status, Some(code)), "{method} {path}: {answer}");
        answer
    }

    pub fn put_file_origin(&self, base: &Path) {
        self.ok("PUT", "origins/lab", json!({"kind": "file", "base_path": base}));
    }

    /// A file origin so slow that a fetch can be watched.
    pub fn put_slow_origin(&self, base: &Path, bytes_per_s: u64) {
        self.ok("PUT", "origins/lab", json!({"kind": "file", "base_path": base, "bandwidth_bytes_per_s_max": bytes_per_s}));
    }

    pub fn stat(&self, path: &str) -> Value {
        self.ok("POST", "origins/lab/stat", json!({"paths": [path]}))["entries"][0].clone()
    }

    pub fn ask_fetch(&self, id: &str, file_id: &str, path: &str) -> (u16, Value) {
        let entry = self.stat(path);
        let expected = json!({"size_bytes": entry["size_bytes"], "token": entry["token"], "blake3": null, "sha256": null});
        self.call("PUT", &format!("transfers/{id}"), fetch(file_id, id, path, expected))
    }

    /// Fetches and waits; the event that tells how it ended.
    pub fn fetched(&self, id: &str, file_id: &str, path: &str) -> Value {
        let (status, answer) = self.ask_fetch(id, file_id, path);
        assert_eq!(status, 202, "{answer}");
        self.ended(id)
    }

    /// The event of a transfer, once there is one.
    pub fn ended(&self, id: &str) -> Value {
        self.event(&format!("transfer {id} ends"), |event| {
            event["transfer_id"] == id && event["kind"].as_str().is_some_and(|kind| kind.starts_with("transfer_"))
        })
    }

    pub fn event(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        until(what, || {
            let answer = self.ok("GET", "events?after=0", Value::Null);
            answer["events"].as_array().unwrap().iter().find(|event| wanted(event)).cloned()
        })
    }

    pub fn telemetry(&self, id: &str) -> Value {
        let answer = self.ok("GET", "transfers", Value::Null);
        answer["transfers"].as_array().unwrap().iter().find(|transfer| transfer["transfer_id"] == id).cloned().unwrap_or(Value::Null)
    }

    pub fn space(&self) -> (u64, u64) {
        let node = self.ok("GET", "node", Value::Null);
        (node["used_bytes"].as_u64().unwrap(), node["reserved_bytes"].as_u64().unwrap())
    }

    /// The value of one series of `/metrics`; None: it is not there yet.
    pub fn metric(&self, series: &str) -> Option<f64> {
        let token = format!("Bearer {}", self.token);
        let text = String::from_utf8(self.plain("/metrics", &[("Authorization", &token)]).body).unwrap();
        text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
    }

    pub fn content(&self, file_id: &str, generation: &str) -> Vec<u8> {
        let reply = self.send("GET", &format!("replicas/{file_id}/{generation}/content"), &Value::Null, &self.headers());
        assert_eq!(reply.status, 200, "{}", String::from_utf8_lossy(&reply.body));
        reply.body
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn terminate(mut self) -> ExitStatus {
        self.ask_to_end();
        self.wait()
    }

    /// Sends SIGTERM and does not wait.
    pub fn ask_to_end(&self) {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.child.id() as i32), nix::sys::signal::Signal::SIGTERM).unwrap();
    }

    /// What it wrote to stderr, line by line; the last one may be under way.
    pub fn log_lines(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.root.join("log")).unwrap();
        let read = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        text.split_inclusive('\n').filter(|line| line.ends_with('\n')).map(read).collect()
    }

    pub fn wait(&mut self) -> ExitStatus {
        until("the node ends", || self.child.try_wait().unwrap())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn fetch(file_id: &str, generation: &str, path: &str, expected: Value) -> Value {
    json!({"kind": "fetch", "file_id": file_id, "generation": generation, "source": {"origin_id": "lab", "path": path},
           "expected": expected, "priority": 5, "executable": false})
}

pub fn upload(file_id: &str, generation: &str, path: &str, on_exists: &str) -> Value {
    json!({"kind": "upload", "file_id": file_id, "generation": generation, "destination": {"origin_id": "lab", "path": path},
           "on_exists": on_exists, "verify": "auto", "priority": 12, "make_executable": false})
}

pub fn output(file_id: &str, path: &str, kind: &str, optional: bool) -> Value {
    json!({"file_id": file_id, "generation": "a", "path": path, "kind": kind, "optional": optional})
}

pub fn stage_out(sandbox: &Path, reservation_id: &str, outputs: Value) -> Value {
    json!({"sandbox_dir": sandbox, "reservation_id": reservation_id, "outputs": outputs, "mounts": [], "keep": [], "want_sha256": false})
}

pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited {DEADLINE:?} in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Bytes that no compression or sparse hole could fake, the same in every run.
pub fn noise(seed: u8, length: usize) -> Vec<u8> {
    let mut reader = blake3::Hasher::new().update(&[seed]).finalize_xof();
    let mut bytes = vec![0; length];
    reader.fill(&mut bytes);
    bytes
}

/// A settled source file: old enough that its token can be trusted.
pub fn source(base: &Path, path: &str, bytes: &[u8]) {
    let full = base.join(path);
    std::fs::create_dir_all(full.parent().unwrap()).unwrap();
    std::fs::write(&full, bytes).unwrap();
    let old = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    std::fs::File::options().write(true).open(&full).unwrap().set_modified(old).unwrap();
}

/// The file of a file replica, or the top of a tree.
pub fn data_file(root: &Path, name: &str) -> PathBuf {
    let shards = std::fs::read_dir(root.join("store/data")).unwrap();
    shards.map(|shard| shard.unwrap().path().join(name)).find(|path| path.exists()).expect("the replica is there")
}

/// One bit, with size and mtime as they were: what a failing disk does, and nobody sees who does not read.
pub fn rot(path: &Path, at: u64) {
    use std::os::unix::fs::{FileExt, PermissionsExt};
    let before = std::fs::metadata(path).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
    file.set_modified(before.modified().unwrap()).unwrap();
    std::fs::set_permissions(path, before.permissions()).unwrap();
}

/// Commits a directory of these members as `o a`.
pub fn tree(node: &Host, members: &[(&str, &[u8])]) {
    let path = node.root.join("sandboxes/s");
    node.ok("POST", "attempts/s/stage-in", json!({"sandbox_dir": path, "inputs": []}));
    node.ok("PUT", "reservations/s", json!({"bytes": 100 << 20}));
    for (name, bytes) in members {
        let file = path.join("out").join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, bytes).unwrap();
    }
    node.ok("POST", "attempts/s/stage-out", stage_out(&path, "s", json!([output("o", "out", "directory", false)])));
    node.ok("POST", "attempts/s/release", json!({"sandbox_dir": path, "remove_sandbox": true}));
}
