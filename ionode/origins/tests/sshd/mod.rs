//! A real sshd of the test's own: free loopback port, own keys, own configuration, gone when dropped.
#![allow(dead_code)]

use std::io::Write;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use stager_origins::SftpConfig;

pub struct Sshd {
    child: Child,
    pub directory: tempfile::TempDir,
    pub port: u16,
    user: String,
}

/// Much longer than a server takes on a busy machine: only what never comes is waited for so long.
const AT_MOST: Duration = Duration::from_secs(60);

/// Nobody listens there, and nobody else is given it: a socket of ours that does not listen has it as long as this program runs. Servers
/// may listen there all the same, as they ask for SO_REUSEADDR.
pub fn free_port() -> u16 {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let port = socket.local_addr().unwrap().port();
    std::mem::forget(socket);
    port
}

pub fn keygen(path: &Path, passphrase: &str) {
    keygen_of("ed25519", path, passphrase);
}

pub fn keygen_of(kind: &str, path: &Path, passphrase: &str) {
    let made = Command::new("ssh-keygen").args(["-q", "-t", kind, "-N", passphrase, "-f"]).arg(path).stdin(Stdio::null()).status().unwrap();
    assert!(made.success());
}

const SSHD: &str = "/usr/sbin/sshd";

/// Without a server none of the tests of a file runs, which is said past the harness: it shows nothing of what passes.
fn needed() {
    if !Path::new(SSHD).exists() {
        writeln!(std::io::stderr(), "NOT RUN: these tests need {SSHD} (Debian: apt-get install openssh-server openssh-client)").ok();
        std::process::exit(0);
    }
}

/// Without PAM sshd lets nobody into an account whose password is locked, as root's is where the installer was told none.
fn is_locked(user: &str) -> bool {
    std::fs::read_to_string("/etc/shadow").is_ok_and(|shadow| shadow.lines().any(|line| line.starts_with(&format!("{user}:!"))))
}

impl Sshd {
    /// `extra`: lines of sshd_config, such as a ForceCommand.
    pub fn start(extra: &str) -> Self {
        Self::start_as(&user_name(), extra, &[])
    }

    /// Under `wrapper` (a program and its arguments) where the server needs a world of its own.
    pub fn start_as(user: &str, extra: &str, wrapper: &[&str]) -> Self {
        needed();
        let directory = tempfile::tempdir().unwrap();
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::create_dir_all("/run/sshd").ok();
        let path = |name: &str| directory.path().join(name);
        keygen(&path("host_key"), "");
        keygen(&path("client_key"), "");
        std::fs::copy(path("client_key.pub"), path("authorized_keys")).unwrap();
        let base = path("base");
        std::fs::create_dir(&base).unwrap();
        if user != user_name() {
            let id = nix::unistd::User::from_name(user).unwrap().unwrap();
            nix::unistd::chown(&base, Some(id.uid), Some(id.gid)).unwrap();
        }
        let port = free_port();
        let shown = directory.path().display();
        let pam = if is_locked(user) { "yes" } else { "no" };
        // A shell that reads what its user has for every shell (pyenv's, which waits for a lock) may not answer in time.
        let config = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {shown}/host_key\nAuthorizedKeysFile {shown}/authorized_keys\n\
             PidFile none\nStrictModes no\nUsePAM {pam}\nSetEnv HOME={shown}\n\
             PermitRootLogin prohibit-password\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
             Subsystem sftp internal-sftp\n{extra}\n"
        );
        std::fs::write(path("sshd_config"), config).unwrap();
        let log = std::fs::File::create(path("log")).unwrap();
        let mut words: Vec<String> = wrapper.iter().map(|word| word.to_string()).collect();
        words.extend([SSHD, "-D", "-e", "-f"].map(str::to_owned));
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).arg(path("sshd_config")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).process_group(0);
        let child = command.env("BASE", &base).spawn().unwrap();
        let mut sshd = Self { child, directory, port, user: user.to_owned() };
        sshd.wait_until_listening();
        sshd
    }

    /// By its log: a knock at the door would be counted as a login under way for a while.
    fn wait_until_listening(&mut self) {
        let deadline = Instant::now() + AT_MOST;
        while !self.log().contains("Server listening on") {
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none() && Instant::now() < deadline, "sshd does not listen: {ended:?} {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
        let key = std::fs::read_to_string(self.directory.path().join("host_key.pub")).unwrap();
        std::fs::write(self.known_hosts(), format!("[127.0.0.1]:{} {key}", self.port)).unwrap();
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }
    /// How often it was asked to run a command.
    pub fn shell_commands(&self) -> usize {
        self.log().matches("Starting session: command").count()
    }
    /// The account's shell finds this program by the name, before all others.
    pub fn give_program(&self, name: &str, script: &str) {
        let programs = self.directory.path().join("programs");
        std::fs::create_dir(&programs).unwrap();
        std::fs::write(programs.join(name), script).unwrap();
        std::fs::set_permissions(programs.join(name), std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::write(self.directory.path().join(".bashrc"), format!("PATH={}:$PATH\n", programs.display())).unwrap();
    }
    pub fn base(&self) -> PathBuf {
        self.directory.path().join("base")
    }
    pub fn known_hosts(&self) -> PathBuf {
        self.directory.path().join("known_hosts")
    }
    pub fn client_key(&self) -> PathBuf {
        self.directory.path().join("client_key")
    }

    pub fn config(&self) -> SftpConfig {
        SftpConfig {
            host: "127.0.0.1".into(),
            port: self.port,
            user: self.user.clone(),
            base_path: self.base().display().to_string(),
            known_hosts: vec![self.known_hosts()],
            host_key_alias: None,
            identity_files: vec![self.client_key()],
            identities_only: true,
            agent_socket: None,
            connections_max: None,
            shell_checksum: false,
            verify_source: false,
            bandwidth_bytes_per_s_max: None,
        }
    }

    /// Through a relay: another port, the same host key.
    pub fn config_by(&self, port: u16) -> SftpConfig {
        let known = std::fs::read_to_string(self.known_hosts()).unwrap();
        let file = self.directory.path().join(format!("known_hosts.{port}"));
        std::fs::write(&file, known.replace(&format!("]:{}", self.port), &format!("]:{port}"))).unwrap();
        SftpConfig { port, known_hosts: vec![file], ..self.config() }
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        // Its own process group: the listener and every session it forked.
        let group = nix::unistd::Pid::from_raw(self.child.id() as i32);
        nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL).ok();
        self.child.wait().ok();
        if std::thread::panicking() {
            eprintln!("sshd said:\n{}", self.log());
        }
    }
}

pub fn user_name() -> String {
    nix::unistd::User::from_uid(nix::unistd::geteuid()).unwrap().unwrap().name
}
