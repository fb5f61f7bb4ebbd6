//! Real web servers of the test's own over a temporary directory: nginx, and Python's, which knows no ranges. Gone when dropped.
#![allow(dead_code)]

use std::io::Write;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use stager_origins::conformance::Place;
use stager_origins::{open, HttpConfig, HttpOrigin, Origin, OriginConfig, Paced, Timeouts};

use super::place::{files_below, write_file};
use super::sshd::free_port;

static MARKS: AtomicUsize = AtomicUsize::new(0);

pub struct Web {
    child: Child,
    directory: tempfile::TempDir,
    pub port: u16,
    pub tls_port: u16,
}

fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]).map(|place| place.join(name)).find(|file| file.is_file())
}

/// Said past the harness, which shows nothing of what passes.
fn missing(what: &str) -> Option<Web> {
    assert!(std::env::var("STAGER_REQUIRE_HTTP").as_deref() != Ok("1"), "STAGER_REQUIRE_HTTP=1, but there is no {what}");
    writeln!(std::io::stderr(), "NOT RUN: http tests need {what} (Debian: apt-get install nginx-light openssl python3)").ok();
    None
}

impl Web {
    /// `locations`: what the server does besides serving `data`. None, and a word about it, where there is no nginx.
    pub fn nginx(locations: &str) -> Option<Self> {
        let (Some(nginx), Some(openssl)) = (program("nginx"), program("openssl")) else { return missing("nginx and openssl") };
        let directory = directory();
        let (port, tls_port, place) = (free_port(), free_port(), directory.path().display().to_string());
        authority(&openssl, directory.path());
        let user = if nix::unistd::geteuid().is_root() { "user root;" } else { "" };
        let config = format!(
            "{user} daemon off; pid {place}/pid; error_log stderr; worker_processes 1; events {{ worker_connections 256; }}\n\
             http {{ log_format said '$request_method $status $request_uri $http_authorization';\n\
             access_log {place}/access said; default_type application/octet-stream;\n\
             client_body_temp_path {place}/t1; proxy_temp_path {place}/t2; fastcgi_temp_path {place}/t3;\n\
             uwsgi_temp_path {place}/t4; scgi_temp_path {place}/t5; etag on;\n\
             server {{ listen 127.0.0.1:{port}; listen 127.0.0.1:{tls_port} ssl;\n\
             ssl_certificate {place}/server.pem; ssl_certificate_key {place}/server.key;\n\
             root {place}/data; location /denied/ {{ deny all; }}\n{locations} }} }}\n"
        );
        std::fs::write(directory.path().join("nginx.conf"), config).unwrap();
        let mut command = Command::new(nginx);
        command.arg("-p").arg(directory.path()).arg("-c").arg(directory.path().join("nginx.conf")).args(["-e", "stderr"]);
        Some(Self::start(command, directory, port, tls_port))
    }

    /// Answers every GET with the whole file.
    pub fn without_ranges() -> Option<Self> {
        let Some(python) = program("python3") else { return missing("python3") };
        let (directory, port) = (directory(), free_port());
        let mut command = Command::new(python);
        command.args(["-m", "http.server", "--bind", "127.0.0.1", &port.to_string(), "--directory"]).arg(directory.path().join("data"));
        Some(Self::start(command, directory, port, 0))
    }

    fn start(mut command: Command, directory: tempfile::TempDir, port: u16, tls_port: u16) -> Self {
        let log = std::fs::File::create(directory.path().join("log")).unwrap();
        let child = command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        let web = Self { child, directory, port, tls_port };
        let deadline = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < deadline, "the web server does not listen: {}", web.log());
            std::thread::sleep(Duration::from_millis(20));
        }
        web
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    /// `GET 206 /file AUTHORIZATION` for each request so far of which that holds this.
    pub fn requests(&self, about: &str) -> Vec<String> {
        // A line is written when its answer is on its way: one that was asked for later stands behind it.
        let mark = format!("/mark-{}", MARKS.fetch_add(1, Ordering::Relaxed));
        let mut asked = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        asked.write_all(format!("GET {mark} HTTP/1.0\r\n\r\n").as_bytes()).unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        let said = loop {
            let said = std::fs::read_to_string(self.directory.path().join("access")).unwrap();
            if said.contains(&mark) {
                break said;
            }
            assert!(Instant::now() < deadline, "nginx does not log: {}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        };
        said.lines().filter(|line| line.contains(about) && !line.contains("/mark-")).map(str::to_owned).collect()
    }

    pub fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    pub fn ca_file(&self) -> PathBuf {
        self.directory.path().join("ca.pem")
    }

    pub fn write(&self, path: &str, content: &[u8]) {
        write_file(&self.data(), path, content, None);
    }

    pub fn config(&self) -> HttpConfig {
        HttpConfig { base_url: format!("http://127.0.0.1:{}", self.port), ..HttpConfig::default() }
    }

    pub fn tls_config(&self) -> HttpConfig {
        let base_url = format!("https://localhost:{}", self.tls_port);
        HttpConfig { base_url, ca_file: Some(self.ca_file()), ..HttpConfig::default() }
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        // nginx's workers end with their master only where it is asked to end.
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.child.id() as i32), nix::sys::signal::Signal::SIGTERM).ok();
        self.child.wait().ok();
        if std::thread::panicking() {
            let log = self.log();
            eprintln!("the web server said:\n{}", &log[log.len().saturating_sub(3000)..]);
        }
    }
}

fn directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::create_dir(directory.path().join("data")).unwrap();
    directory
}

/// An authority nobody knows, and a certificate of its for `localhost`.
fn authority(openssl: &Path, place: &Path) {
    let run = |args: &str| {
        let mut command = Command::new(openssl);
        let made = command.args(args.split(' ')).current_dir(place).stdin(Stdio::null()).output().unwrap();
        assert!(made.status.success(), "openssl {args}: {}", String::from_utf8_lossy(&made.stderr));
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2";
    run(&format!("req -x509 {key} -subj /CN=stager-test-authority -keyout ca.key -out ca.pem"));
    run(&format!("req {key} -subj /CN=localhost -keyout server.key -out server.csr"));
    std::fs::write(place.join("names"), "subjectAltName=DNS:localhost\nextendedKeyUsage=serverAuth\n").unwrap();
    run("x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out server.pem");
}

pub fn origin(config: HttpConfig) -> Arc<dyn Origin> {
    open(&OriginConfig::Http(config)).unwrap()
}

/// For a server that falls silent: whoever does not wants to be waited for on a busy machine.
pub fn impatient_origin(config: HttpConfig) -> Arc<dyn Origin> {
    let timeouts = Timeouts { silence: Duration::from_secs(4), ..Timeouts::default() };
    Arc::new(Paced::new(Arc::new(HttpOrigin::with_timeouts(&config, timeouts).unwrap()), config.bandwidth_bytes_per_s_max))
}

pub struct WebPlace {
    pub origin: Arc<dyn Origin>,
    base: PathBuf,
    scratch: tempfile::TempDir,
    denies: bool,
}

impl WebPlace {
    pub fn new(web: &Web, origin: Arc<dyn Origin>) -> Self {
        Self { origin, base: web.data(), scratch: tempfile::tempdir().unwrap(), denies: web.tls_port > 0 }
    }
}

#[async_trait]
impl Place for WebPlace {
    fn origin(&self) -> Arc<dyn Origin> {
        self.origin.clone()
    }
    fn scratch(&self) -> &Path {
        self.scratch.path()
    }
    fn raw_names(&self) -> Vec<String> {
        files_below(&self.base)
    }
    fn mode(&self, _path: &str) -> Option<u32> {
        None
    }
    async fn write_behind(&self, path: &str, content: &[u8]) {
        write_file(&self.base, path, content, None);
    }
    fn write_at_once(&self, _path: &str, _content: &[u8]) -> bool {
        false
    }
    fn corrupt_unfinished(&self) -> bool {
        false
    }
    fn denied_directory(&self) -> Option<String> {
        self.denies.then(|| "denied".to_owned())
    }
    fn far_directory(&self) -> Option<&Path> {
        None
    }
    fn has_directories(&self) -> bool {
        false
    }
    fn allows_newlines(&self) -> bool {
        true
    }
    fn is_read_only(&self) -> bool {
        true
    }
}
