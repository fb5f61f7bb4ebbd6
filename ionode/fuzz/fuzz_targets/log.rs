//! A log whose newest segment ends in any bytes opens with what was acknowledged, or refuses and changes nothing; a check always answers.
#![no_main]

use std::fs;

use libfuzzer_sys::fuzz_target;
use stager_store::{fsck, Log, Op, Options, Sync, When};

fuzz_target!(|bytes: &[u8]| {
    let root = tempfile::tempdir().unwrap();
    let options = Options { sync: Sync::Never, segment_bytes: 1 << 20, index_cache_bytes: 1 << 20, reclaim: false };
    let put =
        |key: &[u8]| Op::Put { table: 1, key: key.to_vec(), meta: vec![], value: b"value"[..].into(), weight_bytes: 5, when: When::Any };
    let log = Log::open(root.path(), options).unwrap().0;
    log.write_all_blocking(vec![put(b"one")]).unwrap();
    drop(log);
    let segment = root.path().join("segments/0000000001.seg");
    let mut all = fs::read(&segment).unwrap();
    all.extend_from_slice(bytes);
    fs::write(&segment, &all).unwrap();
    fs::remove_dir_all(root.path().join("index")).unwrap();
    fsck::check(root.path()).expect("a check answers");
    assert_eq!(fs::read(&segment).unwrap(), all, "a check changes nothing");
    let log = Log::open(root.path(), options).expect("unsynced bytes are passed over").0;
    assert_eq!(&log.get(1, b"one").unwrap().expect("it was acknowledged").1[..], b"value");
});
