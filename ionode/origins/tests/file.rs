//! The file origin keeps every promise, and never leaves its base.

mod place;

use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use place::DirectoryPlace;
use stager_core::error::Class;
use stager_origins::conformance::{self, content, get, local, put, upload, How};
use stager_origins::{open, FileConfig, Origin, OriginConfig, Why};

fn origin(base: &Path) -> Arc<dyn Origin> {
    open(&OriginConfig::File(FileConfig { base_path: base.to_owned(), bandwidth_bytes_per_s_max: None })).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keeps_every_promise() {
    let base = tempfile::tempdir().unwrap();
    conformance::all(&DirectoryPlace::new(origin(base.path()), base.path())).await;
}

#[tokio::test]
async fn the_bandwidth_is_kept() {
    let base = tempfile::tempdir().unwrap();
    let config = FileConfig { base_path: base.path().to_owned(), bandwidth_bytes_per_s_max: Some(4 << 20) };
    conformance::bandwidth_is_kept(&DirectoryPlace::new(open(&OriginConfig::File(config)).unwrap(), base.path())).await;
}

#[tokio::test]
async fn links_are_followed_inside_and_never_out() {
    let (base, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let place = DirectoryPlace::new(origin(base.path()), base.path());
    std::fs::write(outside.path().join("secret"), b"secret").unwrap();
    put(&place, "real/file", b"inside").await;
    symlink("real/file", base.path().join("link")).unwrap();
    symlink("real", base.path().join("directory link")).unwrap();
    symlink(outside.path().join("secret"), base.path().join("stolen")).unwrap();
    symlink(outside.path(), base.path().join("out")).unwrap();
    symlink("nowhere", base.path().join("dangling")).unwrap();
    let origin = &place.origin;
    let entry = origin.stat("link").await.unwrap();
    assert_eq!(get(&**origin, &entry).await.unwrap(), b"inside");
    assert_eq!(origin.stat("directory link/file").await.unwrap().size_bytes, 6);
    for path in ["stolen", "out/secret", "out"] {
        let error = origin.stat(path).await.unwrap_err();
        assert_eq!((error.code.as_str(), error.class), ("link_leads_out", Class::InvalidInput), "{path}");
    }
    assert_eq!(origin.stat("dangling").await.unwrap_err().code.as_str(), "not_found");
    let listing = origin.list("", true, 100).await.unwrap();
    assert_eq!(listing.entries.into_iter().map(|entry| entry.path).collect::<Vec<_>>(), ["link", "real/file"]);
    let left: Vec<_> = listing.left_out.iter().map(|left| (left.path.as_str(), left.why, left.directory)).collect();
    let expected = [
        ("dangling", Why::LinkLeadsNowhere, false),
        ("directory link", Why::LinkToDirectory, true),
        ("out", Why::LinkLeadsOut, true),
        ("stolen", Why::LinkLeadsOut, false),
    ];
    assert_eq!(left, expected);
    let file = local(&place, b"new");
    for path in ["out/new", "directory link/new", "directory link/deeper/new"] {
        let error = upload(&place, &file, path, How::default()).await.unwrap_err();
        assert_eq!((error.code.as_str(), error.class), ("link_not_followed", Class::InvalidInput), "{path}");
        let link = path.split('/').next().unwrap();
        assert!(error.message.contains(&format!("{link:?} at")), "{}", error.message);
        let (directory, _) = path.rsplit_once('/').unwrap();
        assert_eq!(origin.probe(directory, true).await.findings[0].code.as_str(), "link_not_followed", "{directory}");
        assert_eq!(origin.make_directory(path).await.unwrap_err().code.as_str(), "link_not_followed", "{path}");
    }
    assert_eq!(origin.erase("directory link/file", None).await.unwrap_err().code.as_str(), "link_not_followed");
    assert_eq!(upload(&place, &file, "dangling", How::default()).await.unwrap_err().code.as_str(), "destination_exists");
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1);
}

#[tokio::test]
async fn a_missing_base_and_special_files_are_named() {
    let base = tempfile::tempdir().unwrap();
    let missing = origin(&base.path().join("not mounted"));
    let error = missing.stat("file").await.unwrap_err();
    assert_eq!(error.code.as_str(), "not_found");
    assert!(error.message.contains("base directory"), "{}", error.message);
    let itself = missing.probe("", true).await.findings.remove(0);
    assert!(!itself.message.contains("\"\""), "{}", itself.message);
    nix::unistd::mkfifo(&base.path().join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert_eq!(origin(base.path()).stat("fifo").await.unwrap_err().code.as_str(), "unsupported");
    let relative = OriginConfig::File(FileConfig { base_path: "relative".into(), bandwidth_bytes_per_s_max: None });
    assert_eq!(open(&relative).err().unwrap().code.as_str(), "bad_request");
}

#[tokio::test]
async fn a_fresh_file_is_not_settled() {
    let base = tempfile::tempdir().unwrap();
    let place = DirectoryPlace::new(origin(base.path()), base.path());
    put(&place, "file", b"x").await;
    let file = std::fs::File::open(base.path().join("file")).unwrap();
    loop {
        let now = std::time::SystemTime::now();
        file.set_modified(now).unwrap();
        let entry = place.origin.stat("file").await.unwrap();
        // On a machine that did something else meanwhile it has become an old one.
        if now.elapsed().unwrap() < std::time::Duration::from_millis(1900) {
            break assert!(!entry.settled);
        }
    }
    file.set_modified(std::time::SystemTime::now() - std::time::Duration::from_secs(3)).unwrap();
    assert!(place.origin.stat("file").await.unwrap().settled);
}

/// A small file system of its own, seen by this thread and those it starts, gone with them.
#[test]
fn a_full_disk_is_called_so() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("not run: a full disk needs root to mount one");
        return;
    }
    let body = || {
        use nix::mount::{mount, MsFlags};
        use nix::sched::{unshare, CloneFlags};
        if let Err(error) = unshare(CloneFlags::CLONE_NEWNS) {
            return eprintln!("not run: no mount namespace here ({error})");
        }
        mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>).unwrap();
        let base = tempfile::tempdir().unwrap();
        mount(Some("tmpfs"), base.path(), Some("tmpfs"), MsFlags::empty(), Some("size=1m")).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let place = DirectoryPlace::new(origin(base.path()), base.path());
            let large = local(&place, &content(1, 3 << 20));
            assert_eq!(upload(&place, &large, "large", How::default()).await.unwrap_err().code.as_str(), "no_space_origin");
            assert!(place::files_below(base.path()).is_empty(), "the temporary file is left on a full disk");
            put(&place, "small", &content(2, 1000)).await;
            assert!(place.origin.probe("", false).await.free_bytes.unwrap() <= 1 << 20);
        });
        drop(runtime);
        nix::mount::umount(base.path()).unwrap();
    };
    std::thread::spawn(body).join().unwrap();
}
