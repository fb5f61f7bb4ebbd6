//! A real S3 server of the test's own: versitygw over a temporary directory, on a free loopback port, gone when dropped.
#![allow(dead_code)]

use std::io::Write;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use stager_origins::conformance::{local, upload_as, How, Place};
use stager_origins::{open, Addressing, Origin, OriginConfig, S3Config, Secret};

pub struct Gateway {
    child: Child,
    pub root: tempfile::TempDir,
    pub port: u16,
}

pub const BUCKET: &str = "lab-data";

/// STAGER_TEST_S3, where `make setup` put it, or the PATH.
fn binary() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    let tools = variable("STAGER_TEST_TOOLS").or_else(|| variable("HOME").map(|home| home.join(".cache/stager")));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = tools.map(|tools| tools.join("bin")).into_iter().chain(std::env::split_paths(&path));
    variable("STAGER_TEST_S3").or_else(|| places.map(|place| place.join("versitygw")).find(|file| file.is_file()))
}

impl Gateway {
    /// None, and a word about it, where there is no server to test against.
    pub fn start(port: u16) -> Option<Self> {
        let Some(binary) = binary() else {
            assert!(std::env::var("STAGER_REQUIRE_S3").as_deref() != Ok("1"), "STAGER_REQUIRE_S3=1, but there is no versitygw");
            // Past the harness, which shows nothing of what passes.
            writeln!(std::io::stderr(), "NOT RUN: s3 tests need versitygw (STAGER_TEST_S3=/path/to/versitygw, or on the PATH)").ok();
            return None;
        };
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join(BUCKET)).unwrap();
        let log = std::fs::File::create(root.path().join("log")).unwrap();
        let mut command = Command::new(binary);
        command.args(["--port", &format!("127.0.0.1:{port}"), "--keep-alive", "posix"]).arg(root.path());
        command.env("ROOT_ACCESS_KEY", "tester").env("ROOT_SECRET_KEY", "a-long-test-secret").stdin(Stdio::null());
        let child = command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        let gateway = Self { child, root, port };
        let deadline = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < deadline, "versitygw does not listen: {}", gateway.log());
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(gateway)
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.root.path().join("log")).unwrap_or_default()
    }

    pub fn config(&self) -> S3Config {
        S3Config {
            bucket: BUCKET.into(),
            prefix: "runs/2026".into(),
            region: "us-east-1".into(),
            endpoint: Some(format!("http://127.0.0.1:{}", self.port)),
            addressing: Addressing::Path,
            access_key_id: "tester".into(),
            secret_access_key: Secret::new("a-long-test-secret"),
            session_token: None,
            allow_http: true,
            bandwidth_bytes_per_s_max: None,
        }
    }

    pub fn base(&self) -> PathBuf {
        self.root.path().join(BUCKET).join("runs/2026")
    }

    /// Parts of multipart uploads that were begun and neither completed nor aborted.
    pub fn unfinished_parts(&self) -> Vec<String> {
        super::place::files_below(&self.unfinished())
    }

    /// As a rule of the bucket does with old ones.
    pub fn forget_unfinished(&self) {
        std::fs::remove_dir_all(self.unfinished()).unwrap();
    }

    fn unfinished(&self) -> PathBuf {
        self.root.path().join(BUCKET).join(".sgwtmp")
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
        if std::thread::panicking() {
            let log = self.log();
            eprintln!("versitygw said:\n{}", &log[log.len().saturating_sub(3000)..]);
        }
    }
}

pub fn origin(config: S3Config) -> Arc<dyn Origin> {
    open(&OriginConfig::S3(config)).unwrap()
}

pub struct BucketPlace {
    pub origin: Arc<dyn Origin>,
    behind: Arc<dyn Origin>,
    base: PathBuf,
    pub scratch: tempfile::TempDir,
}

impl BucketPlace {
    pub fn new(gateway: &Gateway, origin_under_test: Arc<dyn Origin>) -> Self {
        Self { origin: origin_under_test, behind: origin(gateway.config()), base: gateway.base(), scratch: tempfile::tempdir().unwrap() }
    }
}

#[async_trait]
impl Place for BucketPlace {
    fn origin(&self) -> Arc<dyn Origin> {
        self.origin.clone()
    }
    fn scratch(&self) -> &Path {
        self.scratch.path()
    }
    fn raw_names(&self) -> Vec<String> {
        super::place::files_below(&self.base)
    }
    fn mode(&self, _path: &str) -> Option<u32> {
        None
    }
    async fn write_behind(&self, path: &str, content: &[u8]) {
        let how = How { replace: true, ..How::default() };
        upload_as(&*self.behind, &local(self, content), path, how, "behind", &|_| {}).await.unwrap();
    }
    fn write_at_once(&self, _path: &str, _content: &[u8]) -> bool {
        false
    }
    fn corrupt_unfinished(&self) -> bool {
        false
    }
    fn denied_directory(&self) -> Option<String> {
        None
    }
    fn far_directory(&self) -> Option<&Path> {
        None
    }
    fn has_directories(&self) -> bool {
        false
    }
    fn allows_newlines(&self) -> bool {
        false
    }
}
