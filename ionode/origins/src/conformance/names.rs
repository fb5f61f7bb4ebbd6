//! Promises about names: listing, stat, erasing, and what must never be reached.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

use nix::sys::stat::Mode;

use super::{code, content, get, local, nothing_but_finals, put, there, upload, How, Place};
use crate::{Entry, EntryKind, LeftOut, Listing, Why};

pub async fn odd_names_are_only_names(place: &dyn Place) {
    let origin = place.origin();
    let mut names = vec![
        "with space",
        "it's \"quoted\"",
        "$(touch pwned)`id`;rm -rf &|",
        "-rf",
        "größe-数据-🙂",
        "back\\slash\\",
        "100%25#?&+=",
        "*?[a]",
        "~tilde",
    ];
    if place.allows_newlines() {
        names.push("two\nlines");
    }
    for (seed, name) in names.iter().enumerate() {
        let path = format!("odd/{name}/{name}");
        let bytes = content(seed as u64, 1000 + seed);
        there(place, &path, &bytes).await;
        let entry = origin.stat(&path).await.unwrap();
        assert!(get(&*origin, &entry).await.unwrap() == bytes, "{path:?}");
    }
    assert!(!place.raw_names().iter().any(|name| name.ends_with("pwned")), "a name was executed");
    if place.is_read_only() {
        return;
    }
    let entries = origin.list("odd", true, 1000).await.unwrap().entries;
    let mut expected: Vec<String> = names.iter().map(|name| format!("odd/{name}/{name}")).collect();
    expected.sort();
    assert_eq!(paths(&entries), expected);
}

pub async fn paths_stay_inside(place: &dyn Place) {
    let origin = place.origin();
    let file = local(place, b"x");
    for path in ["/etc/passwd", "../outside", "a/../../outside", "a\0b"] {
        assert_eq!(code(origin.stat(path).await), "bad_request", "{path:?}");
        assert_eq!(code(origin.list(path, true, 10).await), "bad_request", "{path:?}");
        assert_eq!(code(origin.erase(path, None).await), "bad_request", "{path:?}");
        assert_eq!(code(upload(place, &file, path, How::default()).await), "bad_request", "{path:?}");
        assert_eq!(code(origin.make_directory(path).await), "bad_request", "{path:?}");
        assert!(!origin.probe(path, true).await.findings.is_empty(), "{path:?}");
    }
}

pub async fn missing_files_are_named(place: &dyn Place) {
    let origin = place.origin();
    there(place, "missing/there", b"x").await;
    for path in ["missing/not", "missing/not/deeper", "missing/there/below"] {
        let error = origin.stat(path).await.expect_err("it is not there");
        assert_eq!((error.code.as_str(), error.subject.as_str()), ("not_found", path), "{error:?}");
        assert!(error.message.contains(path), "{}", error.message);
    }
    assert!(place.is_read_only() || code(origin.list("missing/not", true, 10).await) == "not_found");
    let gone =
        Entry { path: "missing/not".into(), size_bytes: 1, token: "m=1;s=1".into(), mtime_ns: None, kind: EntryKind::File, settled: true };
    assert_eq!(code(get(&*origin, &gone).await), "not_found");
}

pub async fn many_stats_keep_their_order(place: &dyn Place) {
    let origin = place.origin();
    for i in 0..20 {
        there(place, &format!("stats/{i}"), &content(i, i as usize)).await;
    }
    let asked: Vec<String> =
        (0..700).map(|i| if i % 7 == 3 { format!("stats/missing {i}") } else { format!("stats/{}", i % 20) }).collect();
    let answers = origin.stat_many(&asked).await;
    assert_eq!(answers.len(), asked.len());
    for (i, (path, answer)) in asked.iter().zip(answers).enumerate() {
        match answer {
            Ok(entry) => assert_eq!((&entry.path, entry.size_bytes), (path, i as u64 % 20)),
            Err(error) => assert_eq!((i % 7, error.code.as_str(), &error.subject), (3, "not_found", path)),
        }
    }
    assert!(origin.stat_many(&[]).await.is_empty());
}

fn paths(entries: &[Entry]) -> Vec<String> {
    entries.iter().map(|entry| entry.path.clone()).collect()
}

pub async fn lists_are_sorted_and_limited(place: &dyn Place) {
    let origin = place.origin();
    let mut files = vec!["list/a.txt", "list/a/1", "list/a/b/2", "list/a-b/3", "list/z", "list/B"];
    for path in &files {
        put(place, path, path.as_bytes()).await;
    }
    place.write_behind("list/a/.stager-other.part", b"unfinished").await;
    files.sort_unstable();
    let Listing { entries, left_out, truncated } = origin.list("list", true, files.len()).await.unwrap();
    assert_eq!((paths(&entries), left_out, truncated), (files.iter().map(|path| path.to_string()).collect(), vec![], false));
    for entry in &entries {
        assert_eq!(*entry, Entry { settled: entry.settled, ..origin.stat(&entry.path).await.unwrap() }, "list and stat disagree");
    }
    let Listing { entries: some, truncated, .. } = origin.list("list", true, 4).await.unwrap();
    assert_eq!((some.len(), truncated), (4, true));
    assert!(some.windows(2).all(|pair| pair[0].path < pair[1].path));
    let flat = origin.list("list/", false, 100).await.unwrap().entries;
    let flat: Vec<(String, bool)> = flat.into_iter().map(|entry| (entry.path, entry.kind == EntryKind::Directory)).collect();
    let expected = [("list/B", false), ("list/a", true), ("list/a-b", true), ("list/a.txt", false), ("list/z", false)];
    assert_eq!(flat, expected.map(|(path, directory)| (path.to_owned(), directory)));
    let one = origin.list("list/a.txt", true, 10).await.unwrap().entries;
    assert_eq!(paths(&one), ["list/a.txt"]);
    assert!(origin.erase("list/a/.stager-other.part", None).await.unwrap());
}

/// What no reader can be given is told with its reason, never passed over.
pub async fn what_is_left_out_is_said(place: &dyn Place) {
    let Some(base) = place.far_directory() else {
        return;
    };
    let top = base.join("kinds");
    std::fs::create_dir_all(top.join("real")).unwrap();
    std::fs::write(top.join("real/file"), b"inside").unwrap();
    symlink("real/file", top.join("1 file")).unwrap();
    symlink("nowhere", top.join("2 dangling")).unwrap();
    symlink("3 loop", top.join("3 loop")).unwrap();
    symlink("real", top.join("4 directory")).unwrap();
    nix::unistd::mkfifo(&top.join("5 fifo"), Mode::S_IRWXU).unwrap();
    symlink("5 fifo", top.join("6 to a fifo")).unwrap();
    std::fs::write(top.join(OsStr::from_bytes(b"7 \xff")), b"x").unwrap();
    std::fs::create_dir(top.join(OsStr::from_bytes(b"8 \xff"))).unwrap();
    drop(std::os::unix::net::UnixListener::bind(top.join("9 socket")).unwrap());
    let left = |recursive: bool| {
        let mut left = vec![
            ("2 dangling", Why::LinkLeadsNowhere, false),
            ("3 loop", Why::LinkLeadsNowhere, false),
            ("4 directory", Why::LinkToDirectory, true),
            ("5 fifo", Why::SpecialFile, false),
            ("6 to a fifo", Why::SpecialFile, false),
            ("7 \u{FFFD}", Why::NotUtf8, false),
            ("9 socket", Why::SpecialFile, false),
        ];
        if recursive {
            left.insert(6, ("8 \u{FFFD}", Why::NotUtf8, true));
        }
        left.into_iter().map(|(name, why, directory)| LeftOut { path: format!("kinds/{name}"), why, directory }).collect::<Vec<_>>()
    };
    let origin = place.origin();
    let all = origin.list("kinds", true, 100).await.unwrap();
    assert_eq!((paths(&all.entries), all.left_out), (vec!["kinds/1 file".to_owned(), "kinds/real/file".to_owned()], left(true)));
    let flat = origin.list("kinds", false, 100).await.unwrap();
    assert_eq!((paths(&flat.entries), flat.left_out), (vec!["kinds/1 file".to_owned(), "kinds/real".to_owned()], left(false)));
    assert!(!all.truncated && origin.list("kinds", true, 4).await.unwrap().truncated, "what is left out counts");
    std::fs::remove_dir_all(top).unwrap();
}

/// No text names nothing at all where the origin's own directory is meant.
pub async fn the_base_itself_is_named(place: &dyn Place) {
    let origin = place.origin();
    let file = local(place, b"x");
    for said in [upload(place, &file, "", How::default()).await.unwrap_err(), origin.erase("", None).await.unwrap_err()] {
        assert!(!said.message.contains("\"\"") && said.message.contains("origin's"), "{}", said.message);
    }
    put(place, "taken", b"other").await;
    let exists = upload(place, &file, "taken", How::default()).await.unwrap_err();
    assert!(exists.message.contains("on_exists: replace"), "{}", exists.message);
}

pub async fn erasing_minds_the_token(place: &dyn Place) {
    let origin = place.origin();
    let token = put(place, "erase/file", b"some").await.token;
    assert_eq!(code(origin.erase("erase/file", Some("m=1;s=4")).await), "source_changed");
    assert_eq!(origin.stat("erase/file").await.unwrap().token, token);
    assert_eq!(origin.erase("erase/file", Some(&token)).await, Ok(true));
    assert_eq!(code(origin.stat("erase/file").await), "not_found");
    assert_eq!(origin.erase("erase/file", Some(&token)).await, Ok(false));
    assert_eq!(origin.erase("erase/never/was", None).await, Ok(false));
    put(place, "erase/other", b"some").await;
    assert_eq!(origin.erase("erase/other", None).await, Ok(true));
}

pub async fn probing_leaves_nothing(place: &dyn Place) {
    let before = place.raw_names();
    let probe = place.origin().probe("not/yet/there", true).await;
    assert!(probe.reachable && probe.writable == Some(true) && probe.findings.is_empty(), "{probe:?}");
    assert_eq!(place.raw_names(), before);
    let reading = place.origin().probe("", false).await;
    assert!(reading.reachable && reading.writable.is_none() && reading.findings.is_empty(), "{reading:?}");
    nothing_but_finals(place);
}

pub async fn directories_are_no_files(place: &dyn Place) {
    let origin = place.origin();
    origin.make_directory("directories/empty/below").await.unwrap();
    origin.make_directory("directories/empty/below").await.unwrap();
    if !place.has_directories() {
        return;
    }
    let entry = origin.stat("directories/empty/below").await.unwrap();
    assert_eq!((entry.kind, entry.size_bytes), (EntryKind::Directory, 0));
    let file = local(place, b"x");
    for replace in [false, true] {
        let onto = upload(place, &file, "directories/empty", How { replace, ..How::default() }).await;
        assert_eq!(code(onto), "destination_is_directory");
    }
    assert_eq!(code(origin.erase("directories/empty", None).await), "destination_is_directory");
    put(place, "directories/file", b"x").await;
    assert_eq!(code(upload(place, &file, "directories/file/below", How::default()).await), "denied");
    assert_eq!(code(origin.make_directory("directories/file/below").await), "denied");
}

pub async fn denied_is_said(place: &dyn Place) {
    let Some(directory) = place.denied_directory() else { return };
    let origin = place.origin();
    let inside = format!("{directory}/file");
    assert_eq!(code(origin.stat(&inside).await), "denied");
    if place.is_read_only() {
        return;
    }
    assert_eq!(code(origin.list(&directory, true, 10).await), "denied");
    assert_eq!(code(upload(place, &local(place, b"x"), &inside, How::default()).await), "denied");
    let probe = origin.probe(&directory, true).await;
    assert!(probe.reachable && probe.writable == Some(false) && probe.findings[0].code.as_str() == "denied", "{probe:?}");
}

/// What cannot be done is refused as that, with what to do instead, and nothing is tried.
pub async fn only_reading_is_said(place: &dyn Place) {
    let (origin, file) = (place.origin(), local(place, b"x"));
    place.write_behind("read only/file", b"theirs").await;
    let before = place.raw_names();
    let listed = origin.list("read only", true, 10).await.unwrap_err();
    assert!(listed.code.as_str() == "unsupported" && listed.message.contains("name the files"), "{listed:?}");
    for path in ["read only/file", "read only/new"] {
        let written = upload(place, &file, path, How { replace: true, ..How::default() }).await.unwrap_err();
        assert!(written.code.as_str() == "unsupported" && written.message.contains("only be read"), "{written:?}");
        assert_eq!(code(origin.erase(path, None).await), "unsupported");
        assert_eq!(code(origin.make_directory(path).await), "unsupported");
    }
    let probe = origin.probe("read only", true).await;
    assert!(probe.reachable && probe.writable == Some(false) && probe.findings[0].code.as_str() == "unsupported", "{probe:?}");
    let reading = origin.probe("", false).await;
    assert!(reading.reachable && reading.writable.is_none() && reading.findings.is_empty(), "{reading:?}");
    assert_eq!(
        (place.raw_names(), get(&*origin, &origin.stat("read only/file").await.unwrap()).await.unwrap()),
        (before, b"theirs".to_vec())
    );
}
