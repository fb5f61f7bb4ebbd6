//! The sftp origin keeps every promise against a real sshd, with and without a shell, and survives bad networks and wrong keys.

mod place;
mod relay;
mod sshd;

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use place::DirectoryPlace;
use relay::{Mischief, Relay, Way};
use sshd::{keygen, keygen_of, Sshd};
use stager_origins::conformance::{self, content, get, local, put, upload, upload_as, How, Place};
use stager_origins::{
    open, LeftOut, Listing, Origin, OriginConfig, Paced, SftpConfig, SftpOrigin, SshfsConfig, Synced, Timing, Verified, Why,
};

fn origin(config: SftpConfig) -> Arc<dyn Origin> {
    open(&OriginConfig::Sftp(config)).unwrap()
}

fn place(sshd: &Sshd) -> DirectoryPlace {
    DirectoryPlace::new(origin(sshd.config()), &sshd.base())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keeps_every_promise() {
    let sshd = Sshd::start("");
    conformance::all(&place(&sshd)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keeps_every_promise_without_a_shell() {
    let sshd = Sshd::start("ForceCommand internal-sftp");
    let config = SftpConfig { shell_checksum: true, verify_source: true, ..sshd.config() };
    let place = DirectoryPlace::new(origin(config), &sshd.base());
    assert_eq!(put(&place, "first", b"no shell answers").await.verified, Verified::Readback);
    conformance::all(&place).await;
}

/// The server says what it can do; what it was not told to put on its disk is not said to be there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_server_puts_on_its_disk_is_told() {
    for (extra, synced) in
        [("ForceCommand internal-sftp", Synced::ContentAndName), ("ForceCommand internal-sftp -P fsync", Synced::Nothing)]
    {
        let sshd = Sshd::start(extra);
        let place = place(&sshd);
        assert_eq!(put(&place, "new/deep/file", b"content").await.synced, synced, "{extra}");
        let adopted = put(&place, "new/deep/file", b"content").await;
        assert_eq!((adopted.verified, adopted.synced), (Verified::Adopted, synced), "{extra}");
    }
}

/// Root may do everything, so denial is seen by another user.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn denial_is_told_apart() {
    if !nix::unistd::geteuid().is_root() {
        return eprintln!("not run: logging in as another user needs root");
    }
    let sshd = Sshd::start_as("nobody", "ForceCommand internal-sftp", &[]);
    let mut place = place(&sshd);
    place.denied = Some("closed".into());
    std::fs::create_dir(sshd.base().join("closed")).unwrap();
    std::fs::set_permissions(sshd.base().join("closed"), std::fs::Permissions::from_mode(0o700)).unwrap();
    place.origin.make_directory("open").await.unwrap();
    conformance::denied_is_said(&place).await;
    put(&place, "open/file", b"but this works").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shell_that_answers_spares_the_read_back() {
    let sshd = Sshd::start("");
    let config = SftpConfig { shell_checksum: true, verify_source: true, ..sshd.config() };
    let place = DirectoryPlace::new(origin(config), &sshd.base());
    for name in ["plain", "$(touch pwned)`touch pwned`'; touch pwned; '", "two\nlines\\", "-n"] {
        let uploaded = put(&place, &format!("{name}/{name}"), &content(1, 300_000)).await;
        assert_eq!((uploaded.verified, uploaded.bytes_moved), (Verified::RemoteChecksum, 300_000), "{name:?}");
    }
    assert!(!place.raw_names().iter().any(|name| name.ends_with("pwned")));
    conformance::all(&place).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_bandwidth_is_kept() {
    let sshd = Sshd::start("");
    let config = SftpConfig { bandwidth_bytes_per_s_max: Some(4 << 20), ..sshd.config() };
    conformance::bandwidth_is_kept(&DirectoryPlace::new(origin(config), &sshd.base())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sshfs_moves_bytes_over_sftp() {
    let sshd = Sshd::start("ForceCommand internal-sftp");
    let c = sshd.config();
    let config = SshfsConfig {
        host: c.host,
        port: c.port,
        user: c.user,
        base_path: c.base_path,
        known_hosts: c.known_hosts,
        host_key_alias: None,
        identity_files: c.identity_files,
        identities_only: true,
        agent_socket: None,
        connections_max: Some(1),
        shell_checksum: false,
        verify_source: false,
        bandwidth_bytes_per_s_max: None,
        mount_point: Some("/nowhere".into()),
    };
    let place = DirectoryPlace::new(open(&OriginConfig::Sshfs(config)).unwrap(), &sshd.base());
    put(&place, "a/file", &content(1, 100_000)).await;
    let entry = place.origin.stat("a/file").await.unwrap();
    assert!(get(&*place.origin, &entry).await.unwrap() == content(1, 100_000));
}

#[tokio::test]
async fn host_keys_are_always_checked() {
    let sshd = Sshd::start("");
    let file = sshd.directory.path().join("other_known_hosts");
    let check = |text: String| {
        std::fs::write(&file, text).unwrap();
        origin(SftpConfig { known_hosts: vec![file.clone()], ..sshd.config() })
    };
    let unknown = check(String::new()).stat("x").await.unwrap_err();
    assert_eq!(unknown.code.as_str(), "host_key_unknown");
    assert!(unknown.message.contains("SHA256:") && unknown.message.contains("ssh-keyscan -p"), "{}", unknown.message);
    keygen(&sshd.directory.path().join("another_key"), "");
    let another = std::fs::read_to_string(sshd.directory.path().join("another_key.pub")).unwrap();
    let name = format!("[127.0.0.1]:{}", sshd.port);
    let changed = check(format!("{name} {another}")).stat("x").await.unwrap_err();
    assert_eq!(changed.code.as_str(), "host_key_changed");
    let right = std::fs::read_to_string(sshd.directory.path().join("host_key.pub")).unwrap();
    let revoked = check(format!("{name} {right}@revoked {name} {right}")).stat("x").await.unwrap_err();
    assert_eq!(revoked.code.as_str(), "host_key_changed");
    assert_eq!(check(format!("{name} {right}")).stat("x").await.unwrap_err().code.as_str(), "not_found");
    let hashed = std::process::Command::new("ssh-keygen").args(["-H", "-f"]).arg(&file).output().unwrap();
    assert!(hashed.status.success() && std::fs::read_to_string(&file).unwrap().starts_with("|1|"));
    let by_hash = origin(SftpConfig { known_hosts: vec![file.clone()], ..sshd.config() });
    assert_eq!(by_hash.stat("x").await.unwrap_err().code.as_str(), "not_found");
}

#[tokio::test]
async fn keys_come_from_files_or_the_agent() {
    let sshd = Sshd::start("");
    let path = |name: &str| sshd.directory.path().join(name);
    keygen(&path("stranger"), "");
    let refused =
        origin(SftpConfig { identity_files: vec![path("stranger"), path("missing")], ..sshd.config() }).stat("x").await.unwrap_err();
    assert_eq!(refused.code.as_str(), "auth_failed");
    assert!(refused.message.contains("stranger was refused") && refused.message.contains("missing cannot be read"), "{}", refused.message);
    keygen(&path("locked"), "a passphrase");
    let authorized = std::fs::read_to_string(path("authorized_keys")).unwrap() + &std::fs::read_to_string(path("locked.pub")).unwrap();
    std::fs::write(path("authorized_keys"), authorized).unwrap();
    let locked = SftpConfig { identity_files: vec![path("locked")], ..sshd.config() };
    let error = origin(locked.clone()).stat("x").await.unwrap_err();
    assert_eq!(error.code.as_str(), "auth_failed");
    assert!(error.message.contains("locked is encrypted") && error.message.contains("ssh-add"), "{}", error.message);
    for kind in ["rsa", "ecdsa"] {
        keygen_of(kind, &path(kind), "");
        let authorized =
            std::fs::read_to_string(path("authorized_keys")).unwrap() + &std::fs::read_to_string(path(&format!("{kind}.pub"))).unwrap();
        std::fs::write(path("authorized_keys"), authorized).unwrap();
        let config = SftpConfig { identity_files: vec![path(kind)], ..sshd.config() };
        assert_eq!(origin(config).stat("x").await.unwrap_err().code.as_str(), "not_found", "{kind} keys do not log in");
    }
    let agent = Agent::start(&path("agent"));
    agent.add(&path("stranger"));
    agent.add(&path("client_key"));
    let by_agent = SftpConfig { identity_files: vec![], identities_only: false, agent_socket: Some(path("agent")), ..sshd.config() };
    assert_eq!(origin(by_agent.clone()).stat("x").await.unwrap_err().code.as_str(), "not_found");
    let only_locked = SftpConfig { identities_only: true, identity_files: vec![path("locked")], ..by_agent };
    assert_eq!(origin(only_locked).stat("x").await.unwrap_err().code.as_str(), "auth_failed", "identities_only was not minded");
}

struct Agent {
    child: std::process::Child,
    socket: std::path::PathBuf,
}

impl Agent {
    fn start(socket: &std::path::Path) -> Self {
        let child =
            std::process::Command::new("ssh-agent").arg("-D").arg("-a").arg(socket).stdout(std::process::Stdio::null()).spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        // Its name is there a little before it can be called.
        while std::os::unix::net::UnixStream::connect(socket).is_err() {
            assert!(Instant::now() < deadline);
            std::thread::sleep(Duration::from_millis(10));
        }
        Self { child, socket: socket.to_owned() }
    }

    fn add(&self, key: &std::path::Path) {
        let added = std::process::Command::new("ssh-add").arg("-q").arg(key).env("SSH_AUTH_SOCK", &self.socket).status().unwrap();
        assert!(added.success());
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_replaced_does_not_cross_the_line_first() {
    let sshd = Sshd::start("");
    let relay = Relay::to(sshd.port).await;
    let config = SftpConfig { shell_checksum: true, ..sshd.config_by(relay.port) };
    let place = DirectoryPlace::new(origin(config), &sshd.base());
    let size_bytes = 24 << 20;
    let replace = How { replace: true, ..How::default() };
    put(&place, "large", &content(7, size_bytes)).await;
    relay.arm(Mischief::Cut, Way::Down, 12 << 20);
    upload(&place, &local(&place, &content(8, size_bytes)), "large", replace).await.unwrap();
    let mut late = content(8, size_bytes);
    late[size_bytes - 1] ^= 1;
    upload(&place, &local(&place, &late), "large", replace).await.unwrap();
    assert_eq!(relay.struck(), 0, "the old content was read");
}

/// Cut or garbled in the middle: a transient error, and the same transfer succeeds when tried again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_connection_is_transient() {
    let sshd = Sshd::start("");
    let relay = Relay::to(sshd.port).await;
    let place = DirectoryPlace::new(origin(SftpConfig { connections_max: Some(1), ..sshd.config_by(relay.port) }), &sshd.base());
    let bytes = content(1, 24 << 20);
    place.write_behind("source", &bytes).await;
    let entry = place.origin.stat("source").await.unwrap();
    let mut struck = 0;
    for mischief in [Mischief::Cut, Mischief::Flip] {
        relay.arm(mischief, Way::Down, 10 << 20);
        let error = get(&*place.origin, &entry).await.unwrap_err();
        assert!(matches!(error.code.as_str(), "connection_lost" | "origin_unreachable"), "{mischief:?}: {error:?}");
        assert_eq!(error.class, stager_core::error::Class::Transient);
        assert!(get(&*place.origin, &entry).await.unwrap() == bytes);

        let (file, id, path) = (local(&place, &bytes), conformance::transfer_id(), format!("up {mischief:?}"));
        relay.arm(mischief, Way::Up, 10 << 20);
        let error = upload_as(&*place.origin, &file, &path, How::default(), &id, &|_| {}).await.unwrap_err();
        assert_eq!(error.code.as_str(), "connection_lost", "{mischief:?}: {error:?}");
        assert_eq!(place.origin.stat(&path).await.unwrap_err().code.as_str(), "not_found");
        upload_as(&*place.origin, &file, &path, How::default(), &id, &|_| {}).await.unwrap();
        assert!(std::fs::read(sshd.base().join(&path)).unwrap() == bytes);
        struck += 2;
        assert_eq!(relay.struck(), struck);
    }
    assert!(!place.raw_names().iter().any(|name| name.contains(".stager-")), "{:?}", place.raw_names());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_server_is_given_up() {
    let sshd = Sshd::start("");
    let relay = Relay::to(sshd.port).await;
    std::fs::write(sshd.base().join("file"), content(1, 2 << 20)).unwrap();
    let timing = Timing { request_s: 4, keepalive_s: 60, ..Timing::default() };
    let silent = SftpOrigin::with_timing(&sshd.config_by(relay.port), timing).unwrap();
    let entry = silent.stat("file").await.unwrap();
    relay.arm(Mischief::Stall, Way::Down, 1 << 20);
    let started = Instant::now();
    let error = get(&silent, &entry).await.unwrap_err();
    assert_eq!(error.code.as_str(), "timeout", "{error:?}");
    // Before anything else than its own timeout would have ended it.
    assert!(started.elapsed() < Duration::from_secs(50), "{:?}", started.elapsed());
    assert!(get(&silent, &entry).await.is_ok(), "a new connection is made");
    // A line of its own: on the first one an answer that comes late could be the one that is stalled.
    let mute = Relay::to(sshd.port).await;
    mute.arm(Mischief::Stall, Way::Down, 0);
    let fresh = SftpOrigin::with_timing(&sshd.config_by(mute.port), Timing { connect_s: 2, ..timing }).unwrap();
    assert_eq!(fresh.stat("file").await.unwrap_err().code.as_str(), "origin_unreachable");
    let nobody = SftpConfig { port: sshd::free_port(), ..sshd.config() };
    assert_eq!(origin(nobody).stat("file").await.unwrap_err().code.as_str(), "origin_unreachable");
}

/// Wherever in the login a line is cut: that is no refusal, and trying again helps.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_cut_during_the_login_is_not_taken_for_a_refusal() {
    let sshd = Sshd::start("MaxStartups 100:30:200");
    std::fs::write(sshd.base().join("file"), b"x").unwrap();
    let relay = Relay::to(sshd.port).await;
    for (way, after_bytes) in (0..24).map(|n| (if n % 2 == 0 { Way::Down } else { Way::Up }, 150 * n)) {
        relay.arm(Mischief::Cut, way, after_bytes);
        match origin(sshd.config_by(relay.port)).stat("file").await {
            Ok(entry) => assert_eq!(entry.size_bytes, 1),
            Err(error) => assert_eq!(error.class, stager_core::error::Class::Transient, "{way:?} after {after_bytes}: {}", error.message),
        }
    }
    assert!(relay.struck() > 5, "{} cuts", relay.struck());
}

/// With room for a single login under way, two at once would be refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_few_and_opened_one_by_one() {
    let sshd = Sshd::start("MaxStartups 1:100:1");
    let relay = Relay::to(sshd.port).await;
    let place = DirectoryPlace::new(origin(SftpConfig { connections_max: Some(3), ..sshd.config_by(relay.port) }), &sshd.base());
    let uploads = (0..32u64).map(|i| {
        let place = &place;
        async move { put(place, &format!("many/{i}"), &content(i, 1 << 20)).await }
    });
    futures::future::join_all(uploads).await;
    assert!((2..=3).contains(&relay.connections()), "{} connections", relay.connections());
}

/// A connection that sshd greets and that does not log in.
fn let_in(port: u16) -> std::net::TcpStream {
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    let mut greeting = [0; 4];
    stream.read_exact(&mut greeting).unwrap();
    assert_eq!(&greeting, b"SSH-");
    stream
}

/// Others fill the door of a server (MaxStartups): who is turned away comes again, one for all and not often, and then as many as before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_turned_away_at_the_door_comes_again_and_does_not_hammer() {
    let sshd = Sshd::start("MaxStartups 1:100:1\nLogLevel VERBOSE");
    std::fs::write(sshd.base().join("file"), b"x").unwrap();
    let in_the_door = let_in(sshd.port);
    let turned_away = || sshd.log().matches("drop connection").count();
    let relay = Relay::to(sshd.port).await;
    let timing = Timing { grow_again: Duration::from_millis(100), ..Timing::default() };
    let config = SftpConfig { connections_max: Some(3), ..sshd.config_by(relay.port) };
    let origin: Arc<dyn Origin> = Arc::new(Paced::new(Arc::new(SftpOrigin::with_timing(&config, timing).unwrap()), None));
    let asking = futures::future::join_all((0..32).map(|_| origin.stat("file")));
    let leaving = async {
        eventually(|| turned_away() >= 2).await;
        drop(in_the_door);
    };
    let (answers, ()) = tokio::join!(asking, leaving);
    assert!(answers.iter().all(Result::is_ok), "{:?}", answers.iter().find(|answer| answer.is_err()));
    assert!(turned_away() <= 6, "{} times", turned_away());
    let place = DirectoryPlace::new(origin, &sshd.base());
    let one = async |i: u64| put(&place, &format!("many/{i}"), &content(i, 1 << 20)).await;
    let deadline = Instant::now() + Duration::from_secs(60);
    while sshd.log().matches("Accepted publickey").count() < 3 {
        assert!(Instant::now() < deadline, "it stayed with {} connections", sshd.log().matches("Accepted publickey").count());
        futures::future::join_all((0..8).map(one)).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        std::fs::remove_dir_all(sshd.base().join("many")).unwrap();
    }
}

/// Nobody is let in for longer than anybody waits: all who wait are told at once, by one who tried.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_who_wait_at_a_closed_door_are_told_by_one() {
    let relay = Relay::to(sshd::free_port()).await;
    let sshd = Sshd::start("");
    let origin = origin(sshd.config_by(relay.port));
    let answers = futures::future::join_all((0..32).map(|_| origin.stat("file"))).await;
    let told =
        |answer: &Result<_, stager_core::error::ApiError>| answer.as_ref().is_err_and(|error| error.code.as_str() == "origin_unreachable");
    assert!(answers.iter().all(told), "{:?}", answers.first());
    assert!((2..=6).contains(&relay.connections()), "{} connections", relay.connections());
}

/// A large file over a long way goes over several connections at once, in both directions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_way_is_worth_several_connections() {
    let sshd = Sshd::start("");
    let relay = Relay::to(sshd.port).await;
    relay.lengthen(4);
    let bytes = content(1, (40 << 20) + 7);
    let mut connections = (0, 0);
    // A file that is through sooner than the next login needs no further connection. On a busy machine a login takes seconds: then the
    // line is slower.
    for bytes_per_s in [10 << 20, 2 << 20] {
        let config = || SftpConfig { connections_max: Some(3), bandwidth_bytes_per_s_max: Some(bytes_per_s), ..sshd.config_by(relay.port) };
        let name = format!("file-{bytes_per_s}");
        let (place, before) = (DirectoryPlace::new(origin(config()), &sshd.base()), relay.connections());
        put(&place, &name, &bytes).await;
        connections.0 = relay.connections() - before;
        assert!(std::fs::read(sshd.base().join(&name)).unwrap() == bytes);
        let entry = place.origin.stat(&name).await.unwrap();
        let (again, before) = (DirectoryPlace::new(origin(config()), &sshd.base()), relay.connections());
        assert!(get(&*again.origin, &entry).await.unwrap() == bytes);
        connections.1 = relay.connections() - before;
        if connections == (3, 3) {
            break;
        }
    }
    assert_eq!(connections, (3, 3), "when it was sent and when it was read");
}

/// Who may read what is the server's to say, and no client can keep a link from being changed between two requests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn links_are_followed_as_the_server_follows_them() {
    let sshd = Sshd::start("");
    let place = place(&sshd);
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("file"), b"outside").unwrap();
    std::os::unix::fs::symlink(outside.path().join("file"), sshd.base().join("link")).unwrap();
    std::os::unix::fs::symlink(outside.path(), sshd.base().join("out")).unwrap();
    let listing = place.origin.list("", true, 10).await.unwrap();
    assert_eq!(listing.entries, [place.origin.stat("link").await.unwrap()]);
    assert_eq!(get(&*place.origin, &listing.entries[0]).await.unwrap(), b"outside");
    assert_eq!(listing.left_out, [LeftOut { path: "out".into(), why: Why::LinkToDirectory, directory: true }]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_that_cannot_be_written_is_called_by_its_name() {
    if !nix::unistd::geteuid().is_root() {
        return eprintln!("not run: a read-only file system needs root to mount one");
    }
    let script = "mount -t tmpfs -o ro tmpfs \"$BASE\" && exec \"$@\"";
    let sshd = Sshd::start_as(&sshd::user_name(), "", &["unshare", "-m", "sh", "-c", script, "sh"]);
    let finding = place(&sshd).origin.probe("", true).await.findings.remove(0);
    assert!(finding.message.contains("read-only") && !finding.message.contains("\"\""), "{}", finding.message);
    assert_eq!(finding.code.as_str(), "denied");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_files_take_seconds() {
    let sshd = Sshd::start("");
    let place = place(&sshd);
    for directory in 0..100 {
        std::fs::create_dir_all(sshd.base().join(format!("d{directory}"))).unwrap();
        for file in 0..100 {
            std::fs::write(sshd.base().join(format!("d{directory}/f{file}")), b"x").unwrap();
        }
    }
    place.origin.stat("d0").await.unwrap();
    let started = Instant::now();
    let Listing { entries, truncated, .. } = place.origin.list("", true, 100_000).await.unwrap();
    let listed = started.elapsed();
    assert_eq!((entries.len(), truncated), (10_000, false));
    let paths: Vec<String> = entries.into_iter().map(|entry| entry.path).collect();
    let started = Instant::now();
    let answers = place.origin.stat_many(&paths).await;
    let asked = started.elapsed();
    assert!(answers.iter().all(Result::is_ok));
    eprintln!("10,000 files in 100 directories: list {listed:?}, stat_many {asked:?}");
    assert!(listed < Duration::from_secs(10) && asked < Duration::from_secs(10), "{listed:?} {asked:?}");
}

/// sshd in a mount namespace of its own, whose base is a file system of 1 MiB.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_is_called_so() {
    if !nix::unistd::geteuid().is_root() {
        return eprintln!("not run: a full disk needs root to mount one");
    }
    let script = "mount -t tmpfs -o size=1m tmpfs \"$BASE\" && exec \"$@\"";
    let sshd = Sshd::start_as(&sshd::user_name(), "", &["unshare", "-m", "sh", "-c", script, "sh"]);
    let place = place(&sshd);
    let large = local(&place, &content(1, 3 << 20));
    assert_eq!(upload(&place, &large, "large", How::default()).await.unwrap_err().code.as_str(), "no_space_origin");
    assert!(place.origin.list("", true, 10).await.unwrap().entries.is_empty());
    assert!(place.origin.probe("", false).await.free_bytes.unwrap() > 500_000, "the temporary file is left on a full disk");
    put(&place, "small", &content(2, 1000)).await;
}

/// OpenSSH says "Failure" to most that goes wrong: it is not for good because of what a place is called.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_in_a_workspace_is_no_full_disk() {
    let sshd = Sshd::start("ForceCommand internal-sftp");
    let base = sshd.base().join("workspace");
    std::fs::create_dir(&base).unwrap();
    let config = SftpConfig { base_path: base.to_str().unwrap().into(), ..sshd.config() };
    let place = DirectoryPlace::new(origin(config), &base);
    std::os::unix::fs::symlink("nowhere", base.join("link")).unwrap();
    let error = upload(&place, &local(&place, &content(1, 1000)), "link/file", How::default()).await.unwrap_err();
    assert_eq!((error.code.as_str(), error.class), ("io_error", stager_core::error::Class::Transient), "{error:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_vanished_origin_leaves_no_session_behind() {
    let sshd = Sshd::start("");
    let relay = Relay::to(sshd.port).await;
    let place = DirectoryPlace::new(origin(sshd.config_by(relay.port)), &sshd.base());
    put(&place, "file", b"x").await;
    drop(place);
    eventually(|| sshd.log().contains("isconnected from user") || sshd.log().contains("losed by user")).await;
}

async fn eventually(condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < deadline, "it never came true");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
