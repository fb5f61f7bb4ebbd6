//! Large files over sftp: the shell is asked for the checksum of each range while the rest is on its way, and only what is equal proves
//! anything.

mod place;
mod sshd;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use place::DirectoryPlace;
use sshd::Sshd;
use stager_core::error::Code;
use stager_origins::conformance::{content, local, put, transfer_id, upload_as, How, Place};
use stager_origins::{open, OriginConfig, SftpConfig, Verified};

/// Three ranges of 16 MiB, the last one short.
const SIZE_BYTES: usize = (40 << 20) + 123;

/// An account whose shell finds this program by the name of `sha256sum`.
fn place(sshd: &Sshd, script: &str) -> DirectoryPlace {
    sshd.give_program("sha256sum", script);
    let config = SftpConfig { shell_checksum: true, connections_max: Some(2), ..sshd.config() };
    DirectoryPlace::new(open(&OriginConfig::Sftp(config)).unwrap(), &sshd.base())
}

fn lines_of(log: &std::path::Path) -> usize {
    std::fs::read_to_string(log).map_or(0, |text| text.lines().count())
}

/// The last piece does not count as sent until a checksum has been asked for. One that is asked for only then would never be.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ranges_are_hashed_while_the_rest_is_on_its_way() {
    let sshd = Sshd::start("LogLevel VERBOSE");
    let log = sshd.directory.path().join("asked");
    let place = place(&sshd, &format!("#!/bin/sh\necho one >>{}\nexec /usr/bin/sha256sum \"$@\"\n", log.display()));
    let bytes = content(1, SIZE_BYTES);
    let (sent_bytes, asked) = (AtomicU64::new(0), AtomicUsize::new(0));
    let progress = |more: u64| {
        if sent_bytes.fetch_add(more, Ordering::SeqCst) + more == SIZE_BYTES as u64 {
            let give_up_at = Instant::now() + Duration::from_secs(20);
            while lines_of(&log) == 0 && Instant::now() < give_up_at {
                std::thread::sleep(Duration::from_millis(5));
            }
            asked.store(lines_of(&log), Ordering::SeqCst);
        }
    };
    let odd = "out/it's $(touch pwned)\n-n";
    let source = local(&place, &bytes);
    let uploaded = upload_as(&*place.origin, &source, odd, How::default(), &transfer_id(), &progress).await.unwrap();
    assert_eq!((uploaded.verified, uploaded.bytes_moved), (Verified::RemoteChecksum, SIZE_BYTES as u64));
    assert!(asked.load(Ordering::SeqCst) > 0, "none was asked for before the last byte was there");
    assert_eq!((lines_of(&log), sshd.shell_commands()), (3, 1), "(checksums, shells)");
    assert!(std::fs::read(sshd.base().join(odd)).unwrap() == bytes);
    assert_eq!(place.raw_names(), [odd]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shell_that_lies_of_a_range_costs_a_reading() {
    let sshd = Sshd::start("LogLevel VERBOSE");
    let log = sshd.directory.path().join("asked");
    let second = format!(
        "#!/bin/sh\necho one >>{0}\n[ $(wc -l <{0}) = 2 ] && printf '%064d  -\\n' 0 || exec /usr/bin/sha256sum \"$@\"\n",
        log.display()
    );
    let place = place(&sshd, &second);
    let bytes = content(2, SIZE_BYTES);
    assert_eq!(put(&place, "first", &bytes).await.verified, Verified::Readback);
    assert!(std::fs::read(sshd.base().join("first")).unwrap() == bytes);
    let asked = lines_of(&log);
    assert_eq!(put(&place, "second", &bytes).await.verified, Verified::RemoteChecksum);
    assert_eq!(lines_of(&log), asked + 1, "it is asked for the whole file");
}

/// A shell without `dd`, or with a command that says nothing of standard input.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shell_that_says_nothing_of_ranges_is_asked_for_whole_files() {
    let sshd = Sshd::start("LogLevel VERBOSE");
    let log = sshd.directory.path().join("asked");
    let script = format!("#!/bin/sh\necho one >>{}\n[ $# = 0 ] && exit 1\nexec /usr/bin/sha256sum \"$@\"\n", log.display());
    let place = place(&sshd, &script);
    let bytes = content(3, SIZE_BYTES);
    assert_eq!(put(&place, "first", &bytes).await.verified, Verified::Readback);
    assert_eq!(put(&place, "second", &bytes).await.verified, Verified::RemoteChecksum);
    assert!(std::fs::read(sshd.base().join("second")).unwrap() == bytes);
    let asked = lines_of(&log);
    assert_eq!(put(&place, "third", &bytes).await.verified, Verified::RemoteChecksum);
    assert_eq!(lines_of(&log), asked + 1, "for the whole file");
}

/// What is not what was sent is found, by the range that it lies in.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_range_that_the_disk_damaged_is_found() {
    let sshd = Sshd::start("LogLevel VERBOSE");
    let place = place(&sshd, "#!/bin/sh\nexec /usr/bin/sha256sum \"$@\"\n");
    let bytes = content(4, SIZE_BYTES);
    let source = local(&place, &bytes);
    // Again and again, so also after all of its range was written and before the range is read.
    let progress = |_: u64| assert!(place.corrupt_unfinished());
    let failed = upload_as(&*place.origin, &source, "file", How::default(), &transfer_id(), &progress).await.unwrap_err();
    assert_eq!(failed.code, Code::ChecksumMismatch, "{failed:?}");
    assert!(place.raw_names().is_empty(), "{:?}", place.raw_names());
}
