//! Values of all sizes side by side: small ones are copied into one piece, large ones written from their place, and the log looks the same.

use bytes::Bytes;
use stager_store::{Log, Op, Options, When};

const SIZES: [usize; 9] = [0, 1, 500, (32 << 10) - 1, 32 << 10, 100_000, 1 << 20, 7, (1 << 20) + 5];

fn value(number: usize) -> Bytes {
    (0..SIZES[number]).map(|at| (at * 31 + at / 251 + number) as u8).collect()
}

fn check(log: &Log, rounds: u8) {
    for round in 0..rounds {
        for number in 0..SIZES.len() {
            let key = [round, number as u8];
            let (stat, bytes) = log.get(1, &key).unwrap().unwrap();
            assert!(bytes == value(number) && stat.meta == key, "{key:?}");
            assert!(log.get_at_hand(1, &key).unwrap().is_none_or(|(_, bytes)| bytes == value(number)), "{key:?}");
        }
    }
}

#[test]
fn values_of_all_sizes_are_found_again_and_by_an_index_that_is_built_anew() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options { segment_bytes: 3 << 20, reclaim: false, ..Options::default() };
    let put = |round: u8, number: usize| Op::Put {
        table: 1,
        key: vec![round, number as u8],
        meta: vec![round, number as u8],
        value: value(number),
        weight_bytes: 1,
        when: When::Any,
    };
    let log = Log::open(directory.path(), options).unwrap().0;
    for round in 0..4 {
        log.write_all_blocking((0..SIZES.len()).map(|number| put(round, number)).collect()).unwrap();
    }
    check(&log, 4);
    drop(log);
    std::fs::remove_dir_all(directory.path().join("index")).unwrap();
    let (log, recovered) = Log::open(directory.path(), options).unwrap();
    assert_eq!(recovered.entries, 4 * SIZES.len() as u64);
    check(&log, 4);
    // Most of it is garbage now: what still counts moves, value by value.
    log.write_all_blocking((0..3).flat_map(|round| (0..SIZES.len()).map(move |number| put(round, number))).collect()).unwrap();
    assert!(log.reclaim().unwrap() > 0);
    check(&log, 4);
}
