//! A check finds every damaged byte and changes nothing; a repair loses no more than what is damaged.

use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use stager_store::fsck::{self, What};
use stager_store::{Log, Op, Options, When};

const TABLE: u8 = 7;

fn options() -> Options {
    Options { segment_bytes: 3000, reclaim: false, ..Options::default() }
}

fn value(number: u8) -> Vec<u8> {
    (0..500u32).map(|at| (at * 7) as u8 ^ number).collect()
}

/// Twenty keys of 500 bytes in several segments, one deleted, one put twice.
fn filled(directory: &Path) {
    let log = Log::open(directory, options()).unwrap().0;
    let put = |number: u8| Op::Put {
        table: TABLE,
        key: vec![number],
        meta: vec![number; 60],
        value: Bytes::from(value(number)),
        weight_bytes: 500,
        when: When::Any,
    };
    for number in (0..20).chain([5]) {
        log.write_all_blocking(vec![put(number)]).unwrap();
    }
    log.write_all_blocking(vec![Op::Delete { table: TABLE, key: vec![6], when: When::Any }]).unwrap();
}

/// Of the segment that holds this value, and where in it.
fn place(directory: &Path, number: u8) -> (PathBuf, usize) {
    let files = fs::read_dir(directory.join("segments")).unwrap().map(|entry| entry.unwrap().path());
    let mut found = files.filter_map(|path| {
        let bytes = fs::read(&path).unwrap();
        bytes.windows(500).position(|window| window == value(number)).map(|at| (path, at))
    });
    found.next().expect("the value is in the log")
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 8;
    fs::write(path, bytes).unwrap();
}

fn keys(directory: &Path) -> Vec<(u8, Result<Vec<u8>, String>)> {
    let log = Log::open(directory, options()).unwrap().0;
    let found: Vec<Vec<u8>> = log.scan(TABLE, b"").unwrap().map(|found| found.unwrap().0).collect();
    let read = |key: &[u8]| log.get(TABLE, key).map(|found| found.unwrap().1.to_vec()).map_err(|error| error.code.to_string());
    found.iter().map(|key| (key[0], read(key))).collect()
}

#[test]
fn a_sound_log_is_called_clean_and_is_not_changed() {
    let root = tempfile::tempdir().unwrap();
    filled(root.path());
    let newest = place(root.path(), 19).0;
    let before = fs::read(&newest).unwrap();
    let report = fsck::check(root.path()).unwrap();
    assert!(report.is_clean(), "{report:?}");
    assert_eq!((report.keys, report.entries, report.value_bytes), (19, 22, 19 * 500));
    assert!(report.segments > 3 && !report.index_missing);
    assert_eq!(fs::read(&newest).unwrap(), before);
    assert!(!root.path().join("index.fsck").exists());
}

#[test]
fn a_broken_value_is_found_and_quarantined() {
    let root = tempfile::tempdir().unwrap();
    filled(root.path());
    let (path, at) = place(root.path(), 3);
    flip(&path, at + 100);
    let report = fsck::check(root.path()).unwrap();
    let wrong: Vec<_> = report.wrong.iter().map(|wrong| (wrong.key.clone(), wrong.what)).collect();
    assert_eq!((wrong, report.broken.len()), (vec![(vec![3], What::ValueBroken)], 0));
    fsck::repair(root.path(), &report).unwrap();
    assert!(fsck::check(root.path()).unwrap().is_clean());
    for (key, read) in keys(root.path()) {
        match key {
            3 => assert_eq!(read, Err("checksum_mismatch".into())),
            key => assert_eq!(read, Ok(value(key))),
        }
    }
}

#[test]
fn a_broken_entry_is_written_again_from_the_index() {
    let root = tempfile::tempdir().unwrap();
    filled(root.path());
    let (path, at) = place(root.path(), 3);
    flip(&path, at - 10);
    let report = fsck::check(root.path()).unwrap();
    assert_eq!(report.wrong.iter().map(|wrong| (wrong.key.clone(), wrong.what)).collect::<Vec<_>>(), [(vec![3], What::EntryBroken)]);
    assert_eq!(report.broken.len(), 1);
    fsck::repair(root.path(), &report).unwrap();
    assert!(path.with_extension("seg.damaged").exists());
    let found = keys(root.path());
    assert_eq!(found.len(), 19);
    assert!(found.iter().all(|(key, read)| *read == Ok(value(*key))), "{found:?}");
}

#[test]
fn without_an_index_the_rest_is_kept_and_the_loss_is_told() {
    let root = tempfile::tempdir().unwrap();
    filled(root.path());
    let (path, at) = place(root.path(), 3);
    flip(&path, at - 10);
    fs::remove_dir_all(root.path().join("index")).unwrap();
    assert!(Log::open(root.path(), options()).is_err(), "damage is not passed over in silence");
    fs::remove_dir_all(root.path().join("index")).unwrap();
    let report = fsck::check(root.path()).unwrap();
    assert_eq!((report.broken.len(), report.index_missing, report.keys), (1, true, 18));
    fsck::repair(root.path(), &report).unwrap();
    let found = keys(root.path());
    assert_eq!(found.iter().map(|(key, _)| *key).collect::<Vec<_>>(), (0..20).filter(|key| ![3, 6].contains(key)).collect::<Vec<u8>>());
    assert!(found.iter().all(|(key, read)| *read == Ok(value(*key))));
}

/// The last frame was acknowledged: rot in it is no unfinished write.
#[test]
fn rot_in_the_last_frame_costs_its_value_only() {
    for head in [false, true] {
        let root = tempfile::tempdir().unwrap();
        filled(root.path());
        let log = Log::open(root.path(), options()).unwrap().0;
        let put = |key: u8| Op::Put {
            table: TABLE,
            key: vec![key],
            meta: vec![],
            value: Bytes::from(value(key)),
            weight_bytes: 500,
            when: When::Any,
        };
        log.write_all_blocking(vec![put(30), put(31)]).unwrap();
        drop(log);
        let (path, at) = place(root.path(), 31);
        flip(&path, if head { at - 510 } else { at + 3 });
        fs::write(root.path().join("index.open"), "another boot").unwrap();
        if head {
            assert!(Log::open(root.path(), options()).is_err(), "what the index had is not cut off");
            continue;
        }
        let found = keys(root.path());
        let expected = [(30, Ok(value(30))), (31, Err("checksum_mismatch".into()))];
        assert_eq!(found.iter().filter(|(key, _)| *key >= 30).cloned().collect::<Vec<_>>(), expected);
        let report = fsck::check(root.path()).unwrap();
        fsck::repair(root.path(), &report).unwrap();
        assert_eq!(keys(root.path()).iter().filter(|(key, _)| *key >= 30).cloned().collect::<Vec<_>>(), expected, "a repair takes no more");
    }
}
