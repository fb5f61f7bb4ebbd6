//! Many small files at once over sftp: few round trips each, one shell a connection, and every promise of a single one.

mod place;
mod relay;
mod sshd;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use place::DirectoryPlace;
use relay::{Mischief, Relay, Way};
use sshd::Sshd;
use stager_core::error::ApiError;
use stager_origins::conformance::{self, content, local, put, upload, upload_as, How, Place};
use stager_origins::{open, OriginConfig, SftpConfig, Synced, Uploaded, Verified};

const SHELL: &str = "LogLevel VERBOSE";
const SFTP_SERVER: &str = "/usr/lib/openssh/sftp-server";

fn place(sshd: &Sshd, config: SftpConfig) -> DirectoryPlace {
    DirectoryPlace::new(open(&OriginConfig::Sftp(config)).unwrap(), &sshd.base())
}

/// An account whose shell finds this program by the name.
fn with_sha256sum(sshd: &Sshd, script: &str) -> SftpConfig {
    sshd.give_program("sha256sum", script);
    SftpConfig { shell_checksum: true, ..sshd.config() }
}

fn file_servers(sshd: &Sshd) -> usize {
    sshd.log().matches("Starting session: subsystem 'sftp'").count()
}

async fn put_many(place: &DirectoryPlace, directories: u64, files: u64, size_bytes: usize) -> Vec<Uploaded> {
    // Before anything is asked: to write thousands of files takes longer on a busy disk than a login may.
    let locals: Vec<_> = (0..files).map(|n| (format!("d{}/f{n}", n % directories), local(place, &content(n, size_bytes)))).collect();
    let one = async |(path, local): &(String, _)| upload(place, local, path, How::default()).await.expect(path);
    futures::future::join_all(locals.iter().map(one)).await
}

fn all_there(sshd: &Sshd, directories: u64, files: u64, size_bytes: usize) {
    for n in 0..files {
        let found = std::fs::read(sshd.base().join(format!("d{}/f{n}", n % directories))).unwrap();
        assert!(found == content(n, size_bytes), "f{n}");
    }
}

fn nothing_unfinished(place: &DirectoryPlace) {
    let left: Vec<String> = place.raw_names().into_iter().filter(|name| name.contains(".stager-")).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_shell_a_connection_says_the_checksums_of_hundreds() {
    let sshd = Sshd::start(SHELL);
    let config = SftpConfig { shell_checksum: true, connections_max: Some(2), ..sshd.config() };
    let place = place(&sshd, config);
    let uploaded = put_many(&place, 7, 300, 5000).await;
    assert!(uploaded.iter().all(|one| (one.verified, one.bytes_moved) == (Verified::RemoteChecksum, 5000)));
    all_there(&sshd, 7, 300, 5000);
    nothing_unfinished(&place);
    assert!((1..=2).contains(&sshd.shell_commands()), "{} shells", sshd.shell_commands());
}

/// What takes long is done while a job runs that has finals.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_got_ready_neither_logs_in_nor_starts_a_shell_when_files_come() {
    for (files, connections) in [(3, 1), (100, 2), (1000, 3)] {
        let sshd = Sshd::start(SHELL);
        let relay = Relay::to(sshd.port).await;
        let place = place(&sshd, SftpConfig { shell_checksum: true, connections_max: Some(3), ..sshd.config_by(relay.port) });
        place.origin.capabilities().get_ready.unwrap().get_ready(files).await;
        assert_eq!(relay.connections(), connections, "for {files} files");
        let give_up_at = Instant::now() + Duration::from_secs(30);
        while sshd.shell_commands() < connections && Instant::now() < give_up_at {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        place.origin.capabilities().get_ready.unwrap().get_ready(files).await;
        let before = (relay.connections(), sshd.shell_commands());
        assert_eq!(before, (connections, connections), "for {files} files");
        // The first one has more channels, as there are no others for a while.
        let channels = if files < 100 { connections } else { connections + 2 };
        while file_servers(&sshd) < channels && Instant::now() < give_up_at {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(file_servers(&sshd), channels, "for {files} files");
        assert_eq!(put(&place, "f", &content(1, 3000)).await.verified, Verified::RemoteChecksum);
        assert_eq!((relay.connections(), sshd.shell_commands()), before, "for {files} files");
    }
}

/// Behind each is a server with handles of its own. One that is opened costs three round trips, and a login ten and more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_is_written_over_several_channels_of_its_connection() {
    for (files, channels) in [(60, 1), (400, 3)] {
        let sshd = Sshd::start(SHELL);
        let relay = Relay::to(sshd.port).await;
        let place = place(&sshd, SftpConfig { shell_checksum: true, connections_max: Some(1), ..sshd.config_by(relay.port) });
        let uploaded = put_many(&place, 3, files, 2000).await;
        assert!(uploaded.iter().all(|one| one.verified == Verified::RemoteChecksum));
        all_there(&sshd, 3, files, 2000);
        nothing_unfinished(&place);
        assert_eq!((relay.connections(), file_servers(&sshd)), (1, channels), "for {files} files");
    }
}

/// Of large files no more are written over one connection than over one channel: the rest is left to the next connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn further_channels_are_for_small_files() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let sshd = Sshd::start(&format!("ForceCommand {SFTP_SERVER} -e -l INFO 2>>{}", log.path().display()));
    let relay = Relay::to(sshd.port).await;
    let place = place(&sshd, SftpConfig { connections_max: Some(1), ..sshd.config_by(relay.port) });
    let most_open = |from: usize| {
        let (mut open, mut most) = (0i64, 0);
        // Those that are written: they are read again to be verified.
        for line in std::fs::read_to_string(log.path()).unwrap()[from..].lines().filter(|line| line.contains("/.stager-")) {
            open += i64::from(line.contains("flags WRITE")) - i64::from(line.contains("bytes read 0 written"));
            most = most.max(open);
        }
        most
    };
    for directory in ["d0", "large"] {
        place.origin.make_directory(directory).await.unwrap();
    }
    put_many(&place, 1, 400, 1000).await;
    let small = most_open(0);
    let from = std::fs::metadata(log.path()).unwrap().len() as usize;
    relay.lengthen(20);
    let place = &place;
    let one = |n: u64| async move { put(place, &format!("large/f{n}"), &content(n, 200_000)).await };
    futures::future::join_all((0..150).map(one)).await;
    let large = most_open(from);
    // Each server logs for itself, so that of one line and another who was first is not certain.
    assert!(small > 150 && large < 110, "{small} small ones at once, {large} large ones");
}

/// Where the server lets us open few channels, the command for checksums has its own before there are more for files.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_two_channels_may_be_open_the_second_says_checksums() {
    for is_ready in [true, false] {
        let sshd = Sshd::start(&format!("{SHELL}\nMaxSessions 2"));
        let place = place(&sshd, SftpConfig { shell_checksum: true, connections_max: Some(1), ..sshd.config() });
        if is_ready {
            place.origin.capabilities().get_ready.unwrap().get_ready(1000).await;
        }
        let uploaded = put_many(&place, 3, 300, 2000).await;
        assert!(uploaded.iter().all(|one| one.verified == Verified::RemoteChecksum), "{is_ready}");
        all_there(&sshd, 3, 300, 2000);
        assert_eq!((file_servers(&sshd), sshd.shell_commands()), (1, 1));
    }
}

/// A large file has a command of its own. One that finds no channel for it is read back, and those after it are not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_finds_no_channel_says_nothing_of_the_shell() {
    let sshd = Sshd::start(&format!("{SHELL}\nMaxSessions 4"));
    let place = place(&sshd, SftpConfig { shell_checksum: true, connections_max: Some(1), ..sshd.config() });
    put_many(&place, 1, 300, 1000).await;
    assert_eq!((file_servers(&sshd), sshd.shell_commands()), (3, 1), "all four are taken");
    let large = put(&place, "large", &content(1, 9 << 20)).await;
    let small = put(&place, "small", &content(2, 1000)).await;
    assert_eq!((large.verified, small.verified), (Verified::Readback, Verified::RemoteChecksum));
}

/// The server behind one channel ends, and those behind the others go on: what it had open is sent again, and nobody waits for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_channel_that_ends_is_as_a_connection_that_ends() {
    let pids = tempfile::NamedTempFile::new().unwrap();
    let sshd = Sshd::start(&format!("{SHELL}\nForceCommand echo $$ >>{}; exec {SFTP_SERVER}", pids.path().display()));
    let place = place(&sshd, SftpConfig { connections_max: Some(1), ..sshd.config() });
    put_many(&place, 1, 300, 1000).await;
    let servers = || std::fs::read_to_string(pids.path()).unwrap().lines().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(servers().len(), 3);
    let (place, sshd, begun) = (&place, &sshd, AtomicUsize::new(0));
    let one = |n: u64| {
        let (begun, pid) = (&begun, servers()[2].clone());
        async move {
            let file = local(place, &content(n, 5000));
            if begun.fetch_add(1, Ordering::Relaxed) == 100 {
                assert!(std::process::Command::new("kill").args(["-9", &pid]).status().unwrap().success());
            }
            let (path, origin, mut lost) = (format!("more/f{n}"), place.origin(), 0);
            while let Err(error) = upload_as(&*origin, &file, &path, How::default(), &format!("t{n}"), &|_| {}).await {
                assert_eq!(error.code.as_str(), "connection_lost", "{error:?}");
                lost += 1;
            }
            assert_eq!(std::fs::read(sshd.base().join(format!("more/f{n}"))).unwrap(), content(n, 5000));
            lost
        }
    };
    let uploading = futures::future::join_all((0..300).map(one));
    let lost = tokio::time::timeout(Duration::from_secs(30), uploading).await.expect("somebody waits for a server that ended");
    assert!(lost.iter().any(|lost| *lost > 0) && lost.iter().all(|lost| *lost < 3), "{lost:?}");
    nothing_unfinished(place);
    assert!(servers().len() > 3, "there was no other connection");
}

/// Most wait for a place when the server goes away and does not come back: each is told, not only those who had one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_waits_for_a_place_at_a_server_that_is_gone() {
    let sshd = Sshd::start(SHELL);
    let relay = Relay::to(sshd.port).await;
    let place = place(&sshd, SftpConfig { connections_max: Some(1), ..sshd.config_by(relay.port) });
    put(&place, "first", b"logs in").await;
    relay.lengthen(50);
    let (place, running) = (&place, Mutex::new(Some(sshd)));
    let goes = async {
        tokio::time::sleep(Duration::from_millis(400)).await;
        drop(running.lock().unwrap().take());
        relay.arm(Mischief::Cut, Way::Down, 1);
    };
    let one = |n: u64| async move { upload(place, &local(place, &content(n, 2000)), &format!("f{n}"), How::default()).await.is_err() };
    let all = async { futures::join!(futures::future::join_all((0..1500).map(one)), goes).0 };
    let failed = tokio::time::timeout(Duration::from_secs(60), all).await.expect("somebody waits for ever");
    assert!(failed.iter().filter(|failed| **failed).count() > 600, "all were over before the server went");
}

/// As long as it had nothing to do, nobody was there to find out that it had ended. What is done over the others ends with it, too, and is
/// not said to be there without its name on the disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_channel_that_ends_takes_its_connection_along() {
    let pids = tempfile::NamedTempFile::new().unwrap();
    let sshd = Sshd::start(&format!("{SHELL}\nForceCommand echo $$ >>{}; exec {SFTP_SERVER}", pids.path().display()));
    let relay = Relay::to(sshd.port).await;
    let place = place(&sshd, SftpConfig { connections_max: Some(1), ..sshd.config_by(relay.port) });
    put_many(&place, 1, 300, 1000).await;
    let servers = std::fs::read_to_string(pids.path()).unwrap().lines().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(servers.len(), 3);
    assert!(std::process::Command::new("kill").args(["-9", &servers[2]]).status().unwrap().success());
    let give_up_at = Instant::now() + Duration::from_secs(30);
    let is_running = |pid: &String| std::path::Path::new(&format!("/proc/{pid}/exe")).exists();
    while servers.iter().any(is_running) && Instant::now() < give_up_at {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(!servers.iter().any(is_running), "the others go on");
    assert_eq!(put(&place, "after", &content(1, 1000)).await.synced, Synced::ContentAndName);
    assert_eq!(relay.connections(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_one_channel_may_be_open_it_is_that_of_the_files() {
    let sshd = Sshd::start(&format!("{SHELL}\nMaxSessions 1"));
    for n in 0..5 {
        let place = place(&sshd, SftpConfig { shell_checksum: true, ..sshd.config() });
        place.origin.capabilities().get_ready.unwrap().get_ready(1000).await;
        assert_eq!(put(&place, &format!("f{n}"), &content(1, 3000)).await.verified, Verified::Readback);
    }
}

#[tokio::test]
async fn a_server_that_is_away_is_nothing_to_get_ready_for() {
    let sshd = Sshd::start(SHELL);
    let place = place(&sshd, sshd.config_by(sshd::free_port()));
    place.origin.capabilities().get_ready.unwrap().get_ready(1000).await;
    assert_eq!(place.origin.stat("f").await.unwrap_err().code.as_str(), "origin_unreachable");
}

/// No names, odd names and long ones, empty files, and more at once than a server has handles for us.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_they_are_called_and_however_many_come() {
    let sshd = Sshd::start(SHELL);
    let place = place(&sshd, SftpConfig { shell_checksum: true, connections_max: Some(1), ..sshd.config() });
    let odd = ["a\nb", "back\\slash", "\\", "-n", "dev/null", "$(touch pwned)", "tab\t", "cr\rlf", "ä ö"];
    let long = "x".repeat(200);
    let names: Vec<String> = (0..300u64).map(|n| format!("{}/{long}{n}", odd[n as usize % odd.len()])).collect();
    let one = |(n, name): (usize, &String)| {
        let (place, name) = (&place, name.clone());
        async move { (name.clone(), put(place, &name, &content(n as u64, n % 3)).await, n) }
    };
    for (name, uploaded, n) in futures::future::join_all(names.iter().enumerate().map(one)).await {
        assert_eq!(uploaded.verified, Verified::RemoteChecksum, "{name:?}");
        assert_eq!(std::fs::read(sshd.base().join(&name)).unwrap(), content(n as u64, n % 3), "{name:?}");
    }
    nothing_unfinished(&place);
    assert_eq!(sshd.shell_commands(), 1);
}

/// What the account's start files, or another `sha256sum`, say: only what is equal to what was sent proves anything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shell_that_lies_or_is_silent_costs_a_reading_and_nothing_else() {
    let lie = "#!/bin/sh\nshift\nfor name; do printf '%064d  %s\\n' 0 \"$name\"; done\n";
    for (what, script) in [("a lie", lie), ("noise", "#!/bin/sh\necho hello\n"), ("an end", "#!/bin/sh\nkill $PPID\n")] {
        let sshd = Sshd::start(SHELL);
        let place = place(&sshd, with_sha256sum(&sshd, script));
        let uploaded = put_many(&place, 2, 70, 3000).await;
        assert!(uploaded.iter().all(|one| one.verified == Verified::Readback), "{what}");
        all_there(&sshd, 2, 70, 3000);
        nothing_unfinished(&place);
        assert!(sshd.shell_commands() <= 4, "{what}: {} shells", sshd.shell_commands());
    }
}

/// Many more messages than a connection keeps for one channel, while others are sent: nobody waits for nobody. By chance: a node that does
/// not take answers while it asks stood still in two of three runs, with all files in memory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shell_that_says_much_holds_up_nothing() {
    let sshd = Sshd::start(SHELL);
    let often = "{ for (n = $2 == \"/dev/null\" ? 1 : 100; n > 0; n--) { print; fflush() } }";
    let talkative = format!("#!/bin/sh\n/usr/bin/sha256sum \"$@\" | awk '{often}'\n");
    with_sha256sum(&sshd, &talkative);
    let relay = Relay::to(sshd.port).await;
    let place = place(&sshd, SftpConfig { shell_checksum: true, connections_max: Some(1), ..sshd.config_by(relay.port) });
    relay.lengthen(20);
    let begun = Instant::now();
    let uploaded = put_many(&place, 2, 6000, 1000).await;
    let others = uploaded.iter().filter(|one| one.verified != Verified::RemoteChecksum).count();
    assert_eq!(others, 0, "files whose checksums nobody said, after {:?}", begun.elapsed());
}

/// With a line that takes 40 ms each way: what does not wait for an answer goes out with what was asked before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_small_file_takes_few_round_trips() {
    let sshd = Sshd::start("ForceCommand internal-sftp");
    let relay = Relay::to(sshd.port).await;
    let place = place(&sshd, SftpConfig { connections_max: Some(1), ..sshd.config_by(relay.port) });
    put(&place, "first", b"logs in").await;
    relay.lengthen(40);
    // Opened; written and settled; opened again; read; published; the directory opened; synced.
    let enough = Duration::from_millis(80 * 9);
    let mut quickest = Duration::MAX;
    // Beside other tests many are late by themselves. One that is in time cannot have had more round trips.
    for n in 0..40u64 {
        let started = Instant::now();
        put(&place, &format!("f{n}"), &content(n, 4000)).await;
        quickest = quickest.min(started.elapsed());
        if quickest < enough {
            break;
        }
    }
    assert!(quickest < enough, "{quickest:?}");
}

/// The names of new directories are put on the disk too, each by the one above it, before a file in them counts as there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_of_new_directories_are_on_the_disk_with_the_first_file() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let sshd = Sshd::start(&format!("ForceCommand {SFTP_SERVER} -e -l DEBUG3 2>>{}", log.path().display()));
    let place = place(&sshd, sshd.config());
    let synced = |directory: &str| {
        let said = std::fs::read_to_string(log.path()).unwrap();
        let opened = format!("open \"{}\"", sshd.base().join(directory).display().to_string().trim_end_matches('/'));
        // Each directory is opened to be synced and for nothing else.
        said.contains(&opened) && said.contains("fsync")
    };
    let names: Vec<String> = (0..40).map(|n| format!("new/deep/f{n}")).collect();
    futures::future::join_all(names.iter().map(|name| put(&place, name, b"content"))).await;
    for directory in ["new/deep", "new", ""] {
        assert!(synced(directory), "{directory:?}: {}", std::fs::read_to_string(log.path()).unwrap());
    }
    place.origin.make_directory("another/one").await.unwrap();
    assert!(synced("another") && synced("another/one"));
}

/// The line is cut while a hundred are under way: each says so or has ended, and the same again ends well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_cut_in_the_middle_of_many_leaves_nothing_half_done() {
    for shell_checksum in [false, true] {
        let sshd = Sshd::start(SHELL);
        let relay = Relay::to(sshd.port).await;
        let place = place(&sshd, SftpConfig { shell_checksum, connections_max: Some(1), ..sshd.config_by(relay.port) });
        put(&place, "first", b"logs in").await;
        let files: Vec<_> =
            (0..100u64).map(|n| (local(&place, &content(n, 9000)), conformance::transfer_id(), format!("d/f{n}"))).collect();
        let send = || {
            let uploads = files.iter().map(|case| async {
                let (file, id, path) = case;
                upload_as(&*place.origin, file, path, How::default(), id, &|_| {}).await
            });
            futures::future::join_all(uploads)
        };
        relay.arm(Mischief::Cut, Way::Up, 300_000);
        let first: Vec<Result<Uploaded, ApiError>> = send().await;
        assert_eq!(relay.struck(), 1);
        let failed = first.iter().filter_map(|one| one.as_ref().err()).collect::<Vec<_>>();
        assert!(!failed.is_empty());
        for error in failed {
            assert_eq!(error.class, stager_core::error::Class::Transient, "{error:?}");
        }
        for (n, one) in send().await.into_iter().enumerate() {
            one.unwrap_or_else(|error| panic!("f{n}: {error:?}"));
            assert!(std::fs::read(sshd.base().join(format!("d/f{n}"))).unwrap() == content(n as u64, 9000));
        }
        nothing_unfinished(&place);
        let verified = put(&place, "after", &content(1, 100)).await.verified;
        assert_eq!(verified == Verified::RemoteChecksum, shell_checksum, "a broken line says nothing of the shell behind it");
    }
}

/// Many with one name: one of them is there, and the others are told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_rivals_one_is_there_and_whole() {
    let sshd = Sshd::start(SHELL);
    let places: Vec<DirectoryPlace> = (0..3).map(|_| place(&sshd, SftpConfig { shell_checksum: true, ..sshd.config() })).collect();
    let one = |n: u64| {
        let place = &places[n as usize % places.len()];
        async move {
            let file = local(place, &content(n, 4000));
            upload_as(&*place.origin, &file, "d/same", How::default(), &conformance::transfer_id(), &|_| {}).await
        }
    };
    let ended = futures::future::join_all((0..60).map(one)).await;
    assert_eq!(ended.iter().filter(|one| one.is_ok()).count(), 1);
    for error in ended.iter().filter_map(|one| one.as_ref().err()) {
        assert!(matches!(error.code.as_str(), "destination_exists" | "source_changed"), "{error:?}");
    }
    let found = std::fs::read(sshd.base().join("d/same")).unwrap();
    let winner = ended.iter().position(Result::is_ok).unwrap();
    assert!(found == content(winner as u64, 4000));
    nothing_unfinished(&places[0]);
}
