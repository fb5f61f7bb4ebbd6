//! How fast 256 MiB go over loopback, beside OpenSSH's own client in the same run. Run by hand: `cargo test --release --test
//! sftp_throughput -- --ignored --nocapture`.

mod place;
mod sshd;

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Instant;

use async_trait::async_trait;
use bytes::Bytes;
use place::DirectoryPlace;
use sshd::Sshd;
use stager_core::error::{ApiError, Code};
use stager_origins::conformance::{content, local, upload, How};
use stager_origins::{open, OriginConfig, Sink};

const SIZE_BYTES: usize = 256 << 20;

/// Writes where the bytes belong, as the node does.
struct FileSink(std::fs::File);

#[async_trait]
impl Sink for FileSink {
    async fn write_at(&self, offset: u64, chunk: Bytes) -> Result<(), ApiError> {
        use std::os::unix::fs::FileExt;
        self.0.write_all_at(&chunk, offset).map_err(|error| ApiError::new(Code::IoError, "sink", error.to_string()))
    }
}

fn rate(started: Instant) -> f64 {
    SIZE_BYTES as f64 / started.elapsed().as_secs_f64() / 1e6
}

fn openssh(sshd: &Sshd, batch: &str) -> f64 {
    let mut command = Command::new("sftp");
    command.args(["-q", "-b", "-", "-o", "BatchMode=yes", "-o", "Ciphers=aes128-gcm@openssh.com", "-P", &sshd.port.to_string()]);
    command.arg("-o").arg(format!("UserKnownHostsFile={}", sshd.known_hosts().display())).arg("-i").arg(sshd.client_key()).arg("127.0.0.1");
    let started = Instant::now();
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(batch.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    rate(started)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement, not a test"]
async fn get_and_put_beside_openssh() {
    let sshd = Sshd::start("");
    let place = DirectoryPlace::new(open(&OriginConfig::Sftp(sshd.config())).unwrap(), &sshd.base());
    let file = local(&place, &content(1, SIZE_BYTES));
    std::fs::copy(&file.path, sshd.base().join("source")).unwrap();
    let entry = place.origin.stat("source").await.unwrap();
    for round in 0..3 {
        let target = place.scratch.path().join("target");
        let sink = FileSink(std::fs::File::create(&target).unwrap());
        let started = Instant::now();
        place.origin.fetch(&entry, std::slice::from_ref(&(0..entry.size_bytes)), &sink).await.unwrap();
        let get = rate(started);
        let their_get = openssh(&sshd, &format!("get {}/source {}\n", sshd.base().display(), target.display()));
        let last_write = std::sync::Mutex::new(Instant::now());
        let started = Instant::now();
        let progress = |_| *last_write.lock().unwrap() = Instant::now();
        let path = format!("up{round}");
        stager_origins::conformance::upload_as(&*place.origin, &file, &path, How::default(), "t", &progress).await.unwrap();
        let put = SIZE_BYTES as f64 / last_write.lock().unwrap().duration_since(started).as_secs_f64() / 1e6;
        let durable = rate(started);
        let their_put = openssh(&sshd, &format!("put {} {}/theirs{round}\n", file.path.display(), sshd.base().display()));
        upload(&place, &file, &path, How::default()).await.unwrap();
        eprintln!(
            "MB/s: get {get:.0} (OpenSSH {their_get:.0})  put {put:.0} (OpenSSH {their_put:.0})  put, fsync and read back {durable:.0}"
        );
    }
}
