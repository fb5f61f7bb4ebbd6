//! Watched mounts over a real sshd: what is read is right, and a dead link is an error within a bounded time.

#[path = "../../origins/tests/relay/mod.rs"]
mod relay;
#[path = "../../origins/tests/sshd/mod.rs"]
mod sshd;

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use relay::{Mischief, Relay, Way};
use sshd::Sshd;
use stager_core::error::Class;
use stager_mounts::{Mounts, State, Timing};
use stager_origins::SftpConfig;

/// ssh's own look at the server is left out: what is tested is ours.
const TIMING: Timing = Timing {
    mount_within: Duration::from_secs(60),
    probe_every: Duration::from_millis(300),
    probe_within: Duration::from_secs(60),
    alive_every: Duration::from_secs(600),
    pause: Duration::from_millis(100),
};
/// A busy machine takes its time for an answer, and is not dead.
const SHORT_TIMEOUTS: Timing = Timing { probe_within: Duration::from_secs(4), ..TIMING };
const BOUND: Duration = Duration::from_secs(50);

/// Said past the harness, which shows nothing of what passes.
fn can_mount() -> bool {
    let there = Path::new("/dev/fuse").exists() && Command::new("sshfs").arg("--version").output().is_ok();
    if !there {
        writeln!(std::io::stderr(), "NOT RUN: tests of mounts need /dev/fuse and sshfs (Debian: apt-get install sshfs)").ok();
    }
    there
}

fn mounted_below(root: &Path) -> usize {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    table.lines().filter(|line| line.contains(&format!(" {}/", root.display()))).count()
}

fn processes_about(root: &Path) -> Vec<String> {
    let lines = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        Some(String::from_utf8_lossy(&line).replace('\0', " "))
    });
    lines.filter(|line| line.contains(&root.display().to_string())).collect()
}

fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn nothing_left(root: &Path) {
    let left = std::fs::read_dir(root.join("m")).map_or(0, |entries| entries.count());
    assert_eq!((mounted_below(root), left), (0, 0), "something is left below {}", root.display());
    until("sshfs and ssh to be gone", || processes_about(root).is_empty());
}

fn content(size_bytes: usize) -> Vec<u8> {
    stager_origins::conformance::content(7, size_bytes)
}

#[test]
fn what_is_read_is_right_and_nothing_can_be_written() {
    if !can_mount() {
        return;
    }
    let (sshd, root) = (Sshd::start(""), tempfile::tempdir().unwrap());
    let bytes = content(5_000_000);
    std::fs::create_dir(sshd.base().join("a b")).unwrap();
    std::fs::write(sshd.base().join("a b/file"), &bytes).unwrap();
    std::os::unix::fs::symlink("a b/file", sshd.base().join("link")).unwrap();
    let mounts = Mounts::new(&root.path().join("m"), TIMING);
    let mount = mounts.put("lab", &sshd.config()).unwrap();
    assert_eq!((mount.state, mount.message.clone(), mounts.list()), (State::Mounted, None, vec![mount.clone()]));
    assert!(std::fs::read(mount.path.join("a b/file")).unwrap() == bytes && std::fs::read(mount.path.join("link")).unwrap() == bytes);
    assert!(mount.path.join("link").symlink_metadata().unwrap().is_file(), "links lead where the server lets them");
    let written = std::fs::write(mount.path.join("new"), "x").unwrap_err();
    assert_eq!(written.raw_os_error(), Some(nix::errno::Errno::EROFS as i32));
    assert_eq!(mounts.put("lab", &sshd.config()).unwrap(), mount, "the same again is the same");
    assert_eq!(mounted_below(root.path()), 1);
    assert!(mounts.remove("lab") && !mounts.remove("lab"));
    nothing_left(root.path());
    mounts.put("lab", &sshd.config()).unwrap();
    drop(mounts);
    nothing_left(root.path());
}

#[test]
fn what_cannot_be_mounted_says_why_and_leaves_nothing() {
    if !can_mount() {
        return;
    }
    let (sshd, root) = (Sshd::start(""), tempfile::tempdir().unwrap());
    let mounts = Mounts::new(&root.path().join("m"), TIMING);
    let other_key = sshd.base().join("other_key");
    sshd::keygen(&other_key, "");
    let cases: [(SftpConfig, &str, Class); 5] = [
        (SftpConfig { known_hosts: vec![], ..sshd.config() }, "host_key_unknown", Class::Denied),
        (SftpConfig { identity_files: vec![other_key], ..sshd.config() }, "auth_failed", Class::Denied),
        (SftpConfig { base_path: "/not/there".into(), ..sshd.config() }, "not_found", Class::InvalidInput),
        (SftpConfig { port: sshd::free_port(), known_hosts: vec![], ..sshd.config() }, "origin_unreachable", Class::Transient),
        (SftpConfig { user: "a\nProxyCommand touch /tmp/x".into(), ..sshd.config() }, "unsupported", Class::InvalidInput),
    ];
    for (config, code, class) in cases {
        let error = mounts.put("lab", &config).unwrap_err();
        assert_eq!((error.code.as_str(), error.class), (code, class), "{error:?}");
        assert!(mounts.list().is_empty());
        nothing_left(root.path());
    }
}

/// The line goes silent while a file is read: no reset, no end, nothing.
#[test]
fn a_dead_link_is_an_error_for_its_readers_and_mounted_again() {
    if !can_mount() {
        return;
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (sshd, root) = (Sshd::start(""), tempfile::tempdir().unwrap());
    let bytes = content(60 << 20);
    std::fs::write(sshd.base().join("file"), &bytes).unwrap();
    let relay = runtime.block_on(Relay::to(sshd.port));
    let mounts = Mounts::new(&root.path().join("m"), SHORT_TIMEOUTS);
    let mount = mounts.put("lab", &sshd.config_by(relay.port)).unwrap();
    for round in 1..=2 {
        relay.arm(Mischief::Stall, Way::Down, 10 << 20);
        let started = Instant::now();
        let mut cat = Command::new("cat").arg(mount.path.join("file")).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let ended = loop {
            match cat.try_wait().unwrap() {
                Some(status) => break Some(status),
                None if started.elapsed() > BOUND => break None,
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        if ended.is_none() {
            cat.kill().ok();
        }
        let status = ended.unwrap_or_else(|| panic!("cat still hangs after {BOUND:?}"));
        assert!(!status.success() && relay.struck() == round, "cat ended with {status} after {:?}", started.elapsed());
        // A reader may know of the end before the watch does, which then still calls it mounted.
        let serves = || std::fs::metadata(mount.path.join("file")).is_ok();
        until("it to be mounted again", || serves() && mounts.list()[0].state == State::Mounted && mounted_below(root.path()) == 1);
        assert!(std::fs::read(mount.path.join("file")).unwrap() == bytes, "the new mount does not read right");
    }
    drop(mounts);
    nothing_left(root.path());
}
