//! Large files over sftp where no shell says anything: what is written is read back while the rest is on its way, and only what is equal
//! proves anything.

mod place;
mod relay;
mod sshd;

use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use place::DirectoryPlace;
use relay::{Mischief, Relay, Way};
use sshd::Sshd;
use stager_core::error::Code;
use stager_origins::conformance::{content, local, transfer_id, upload_as, How, Place};
use stager_origins::{open, OriginConfig, SftpConfig, Uploaded, Verified};

/// Six times what is under way at once.
const SIZE_BYTES: usize = (48 << 20) + 123;

struct Bed {
    sshd: Sshd,
    relay: Relay,
    place: DirectoryPlace,
}

impl Bed {
    async fn new() -> Self {
        Self::with("", false).await
    }

    async fn with(extra: &str, shell_checksum: bool) -> Self {
        let sshd = Sshd::start(extra);
        let relay = Relay::to(sshd.port).await;
        let config = SftpConfig { shell_checksum, connections_max: Some(2), ..sshd.config_by(relay.port) };
        let place = DirectoryPlace::new(open(&OriginConfig::Sftp(config)).unwrap(), &sshd.base());
        Self { sshd, relay, place }
    }

    /// And how much had come back when the last piece was written. `meanwhile` is told how much of it is written, after each piece.
    async fn put(&self, path: &str, bytes: &[u8], meanwhile: impl Fn(usize) + Sync) -> (Uploaded, usize) {
        let source = local(&self.place, bytes);
        let (written, back, before) = (AtomicUsize::new(0), AtomicUsize::new(0), self.relay.down_bytes());
        let progress = |more: u64| {
            let all = written.fetch_add(more as usize, Ordering::SeqCst) + more as usize;
            meanwhile(all);
            if all == bytes.len() {
                back.store(self.relay.down_bytes() - before, Ordering::SeqCst);
            }
        };
        let uploaded = upload_as(&*self.place.origin, &source, path, How::default(), &transfer_id(), &progress).await.unwrap();
        assert!(std::fs::read(self.sshd.base().join(path)).unwrap() == bytes);
        (uploaded, back.into_inner())
    }

    /// A byte of what is being written, by its place.
    fn spoil(&self, offset: u64, byte: u8) {
        for name in self.place.raw_names().into_iter().filter(|name| name.contains(".stager-")) {
            let file = std::fs::OpenOptions::new().write(true).open(self.sshd.base().join(name)).unwrap();
            file.write_all_at(&[byte], offset).unwrap();
        }
    }
}

/// A server takes requests of a channel in the order they were sent in. So by the last answer most of the file has come back, however fast
/// the line is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_file_is_read_back_while_the_rest_is_on_its_way() {
    let bed = Bed::new().await;
    let (uploaded, back) = bed.put("out/large", &content(1, SIZE_BYTES), |_| ()).await;
    assert_eq!((uploaded.verified, uploaded.bytes_moved), (Verified::Readback, 2 * SIZE_BYTES as u64));
    assert!(back > SIZE_BYTES / 2, "{back} bytes had come back when the last of {SIZE_BYTES} were written");
}

/// The shell is asked for the first range, where it may be, and there is none. Then it is asked whether it is there at all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_file_is_read_back_as_soon_as_the_shell_says_nothing() {
    let bed = Bed::with("LogLevel VERBOSE\nForceCommand internal-sftp", true).await;
    let asked = || bed.sshd.log().matches("Close session:").count();
    let until_asked = |times: usize| {
        let give_up_at = Instant::now() + Duration::from_secs(20);
        while asked() < times && Instant::now() < give_up_at {
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    let bytes = content(4, SIZE_BYTES);
    let (uploaded, back) = bed.put("first", &bytes, |written| until_asked(usize::from(written > 20 << 20))).await;
    assert_eq!((uploaded.verified, uploaded.bytes_moved), (Verified::Readback, 2 * SIZE_BYTES as u64));
    assert!(back > SIZE_BYTES / 4, "{back} bytes had come back when the last of {SIZE_BYTES} were written");
    until_asked(2);
    let (second, back) = bed.put("second", &bytes, |_| ()).await;
    assert!(second.verified == Verified::Readback && back > SIZE_BYTES / 2, "{back} bytes had come back");
    assert_eq!(asked(), 2, "{}", bed.sshd.log());
}

/// As one that never answers a read of what is being written. A line that breaks once is none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_broke_twice_while_it_was_read_is_read_when_all_is_there() {
    let bed = Bed::new().await;
    let bytes = content(5, SIZE_BYTES);
    let source = local(&bed.place, &bytes);
    let broken = || async {
        bed.relay.arm(Mischief::Cut, Way::Down, SIZE_BYTES / 4);
        let failed = upload_as(&*bed.place.origin, &source, "broken", How::default(), &transfer_id(), &|_| ()).await.unwrap_err();
        assert_eq!(failed.code, Code::ConnectionLost, "{failed:?}");
    };
    for path in ["first", "second"] {
        broken().await;
        let (_, back) = bed.put(path, &bytes, |_| ()).await;
        assert!(back > SIZE_BYTES / 2, "{path}: {back} bytes had come back");
    }
    broken().await;
    broken().await;
    let (_, back) = bed.put("third", &bytes, |_| ()).await;
    assert!(back < SIZE_BYTES / 8, "it is not read meanwhile again, but {back} bytes had come back");
}

/// As a server that keeps what is written somewhere else until the file is closed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_shows_other_bytes_meanwhile_is_read_when_all_is_there() {
    let bed = Bed::new().await;
    let bytes = content(2, SIZE_BYTES);
    let (offset, right) = (4321, bytes[4321]);
    let other_meanwhile = |written: usize| bed.spoil(offset, if written < SIZE_BYTES { !right } else { right });
    let (first, _) = bed.put("first", &bytes, other_meanwhile).await;
    assert_eq!((first.verified, first.bytes_moved), (Verified::Readback, 3 * SIZE_BYTES as u64));
    let (second, back) = bed.put("second", &bytes, |_| ()).await;
    assert_eq!((second.verified, second.bytes_moved), (Verified::Readback, 2 * SIZE_BYTES as u64));
    assert!(back < SIZE_BYTES / 8, "it is not read meanwhile again, but {back} bytes had come back");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_disk_damaged_is_found() {
    let bed = Bed::new().await;
    let bytes = content(3, SIZE_BYTES);
    let source = local(&bed.place, &bytes);
    let damaged = |_: u64| bed.spoil(4321, !bytes[4321]);
    let failed = upload_as(&*bed.place.origin, &source, "file", How::default(), &transfer_id(), &damaged).await.unwrap_err();
    assert_eq!(failed.code, Code::ChecksumMismatch, "{failed:?}");
    assert!(bed.place.raw_names().is_empty(), "{:?}", bed.place.raw_names());
}
