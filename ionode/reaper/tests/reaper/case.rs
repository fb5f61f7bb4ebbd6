//! One attempt in a directory of its own, run by the real binary, as root and as an ordinary user.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{chown, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{json, Value};

const NOBODY: u32 = 65534;
pub const DEADLINE: Duration = Duration::from_secs(120);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum As {
    Root,
    Ordinary,
}

pub struct Case {
    pub user: As,
    pub root: tempfile::TempDir,
    pub spec: Value,
}

/// Runs the test for every user this test may become.
pub fn each(test: impl Fn(Case)) {
    if is_root() {
        test(Case::new(As::Root));
    }
    test(Case::new(As::Ordinary));
}

pub fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

/// An ordinary user cannot reach into root's build directory.
fn place_binary(to: &Path) {
    let binary = env!("CARGO_BIN_EXE_stager-reaper");
    if fs::hard_link(binary, to).is_err() {
        copy_program(binary, to);
    }
}

/// By another process: see `write_program`.
pub fn copy_program(from: &str, to: &Path) {
    assert!(Command::new("cp").arg(from).arg(to).status().unwrap().success());
}

/// By another process: a file that this one wrote may still be open in another test's fork when it is to be run, which is then refused.
fn write_program(to: &Path, text: &str) {
    let mut writer = Command::new("dd").arg("status=none").arg(format!("of={}", to.display())).stdin(Stdio::piped()).spawn().unwrap();
    writer.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(writer.wait().unwrap().success());
}

impl Case {
    pub fn new(user: As) -> Case {
        Case::new_in(user, Path::new("/tmp"))
    }

    pub fn new_in(user: As, place: &Path) -> Case {
        let root = tempfile::Builder::new().prefix("reaper").tempdir_in(place).unwrap();
        place_binary(&root.path().join("reaper"));
        let at = |name: &str| root.path().join(name).to_str().unwrap().to_string();
        let spec = json!({
            "attempt_id": "a1", "epoch": 1, "argv": ["true"], "env": {"PATH": "/usr/bin:/bin"}, "cwd": at("sandbox"), "stdin": null,
            "stdout": at("out"), "stderr": at("err"), "mounts": [], "timeout_s": null, "grace_s": 5, "result_path": at("result.json"), "lock_path": at("lock")
        });
        let case = Case { user, root, spec };
        case.make_dir("sandbox");
        case.give(case.root.path());
        case
    }

    pub fn shell(mut self, script: &str) -> Case {
        self.spec["argv"] = json!(["/bin/sh", "-c", script]);
        self
    }

    pub fn set(mut self, key: &str, value: Value) -> Case {
        self.spec[key] = value;
        self
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn give(&self, path: &Path) {
        if is_root() && self.user == As::Ordinary {
            chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
    }

    pub fn make_dir(&self, name: &str) {
        fs::create_dir(self.path(name)).unwrap();
        self.give(&self.path(name));
    }

    pub fn make_file(&self, name: &str, text: &str, mode: u32) {
        if mode & 0o111 == 0 {
            fs::write(self.path(name), text).unwrap();
        } else {
            write_program(&self.path(name), text);
        }
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(mode)).unwrap();
        self.give(&self.path(name));
    }

    pub fn make_fifo(&self, name: &str) {
        assert!(Command::new("mkfifo").arg(self.path(name)).status().unwrap().success());
        self.give(&self.path(name));
    }

    /// An empty target in the sandbox, as the node makes it, and the link to it.
    pub fn link(mut self, source: &str, target: &str) -> Case {
        let directory = self.path(source).is_dir();
        if directory {
            self.make_dir(&format!("sandbox/{target}"));
        } else {
            self.make_file(&format!("sandbox/{target}"), "", 0o600);
        }
        let link = json!({"source": self.path(source), "target": self.path(&format!("sandbox/{target}")), "directory": directory});
        self.spec["mounts"].as_array_mut().unwrap().push(link);
        self
    }

    pub fn write_spec(&self) {
        self.make_file("spec.json", &self.spec.to_string(), 0o600);
    }

    /// `reaper ARGS` as the case's user; `before` is what runs it (setpriv, sh, unshare and the like).
    pub fn command(&self, before: &[&str], args: &[&str]) -> Command {
        let mut words: Vec<String> = Vec::new();
        if is_root() && self.user == As::Ordinary {
            words.extend(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"].map(String::from));
        }
        words.extend(before.iter().map(|word| word.to_string()));
        words.push(self.path("reaper").to_str().unwrap().into());
        words.extend(args.iter().map(|word| word.to_string()));
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::null()).current_dir("/");
        command
    }

    pub fn run_command(&self, before: &[&str]) -> Command {
        self.write_spec();
        self.command(before, &["run", "--spec", self.path("spec.json").to_str().unwrap()])
    }

    pub fn start(&self) -> Child {
        self.run_command(&[]).spawn().unwrap()
    }

    pub fn output(&self) -> Output {
        self.run_command(&[]).output().unwrap()
    }

    /// To its end; the result must be there.
    pub fn report(&self) -> Value {
        let output = self.output();
        assert!(output.status.success(), "{:?}: {}", output.status, String::from_utf8_lossy(&output.stderr));
        self.result()
    }

    pub fn result(&self) -> Value {
        serde_json::from_slice(&fs::read(self.path("result.json")).unwrap()).unwrap()
    }

    pub fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name))
            .unwrap_or_else(|error| panic!("{name}: {error}; stderr: {:?}", fs::read_to_string(self.path("err"))))
    }

    /// A duration that no other sleep on this host has: how a process is found again from outside its pid namespace.
    pub fn token(&self, number: u32) -> String {
        let name = self.root.path().file_name().unwrap().to_str().unwrap();
        let sum = name.bytes().fold(0u64, |sum, byte| sum * 31 % 1_000_000_007 + u64::from(byte));
        format!("{}.{sum}{number}", 3000 + number)
    }
}

pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !holds() {
        assert!(Instant::now() < end, "waited {DEADLINE:?} for: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether any process but a zombie has the token among its arguments as a word of its own.
pub fn is_running(token: &str) -> bool {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries
        .filter_map(|entry| fs::read(entry.path().join("cmdline")).ok())
        .any(|line| line.split(|byte| *byte == 0).any(|word| word == token.as_bytes()))
}

/// Whether a process that names the token anywhere in its arguments is stopped.
pub fn is_stopped(token: &str) -> bool {
    let entries = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let names_it = |path: &PathBuf| fs::read(path.join("cmdline")).is_ok_and(|line| String::from_utf8_lossy(&line).contains(token));
    entries.filter(names_it).any(|path| fs::read_to_string(path.join("stat")).is_ok_and(|stat| stat.contains(") T ")))
}

pub fn signal(pid: u32, name: &str) {
    assert!(Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().unwrap().success());
}
