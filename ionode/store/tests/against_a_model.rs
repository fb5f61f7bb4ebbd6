//! The log against a map: whatever is written, collected, copied while open (a kill) or cut (a power loss), it says what the map says.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use proptest::prelude::*;
use stager_store::{Done, Listed, Log, Op, Options, Sync, When};

const TABLE: u8 = 7;

#[derive(Clone, Debug)]
enum Step {
    Put {
        key: u8,
        size: usize,
        when: u8,
    },
    Delete {
        key: u8,
    },
    Quarantine {
        key: u8,
    },
    /// Several at once, all or none.
    Together {
        keys: Vec<u8>,
        only_if_absent: bool,
    },
    Reclaim,
    /// Opens a copy made while the log is open, as after kill -9.
    Kill,
    /// As `Kill`, after a power cut: the index is not trusted, a half-written frame lies at the end.
    PowerCut {
        torn: Vec<u8>,
    },
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0u8..12, 0usize..3000, 0u8..4).prop_map(|(key, size, when)| Step::Put { key, size, when }),
        4 => (0u8..12).prop_map(|key| Step::Delete { key }),
        1 => (0u8..12).prop_map(|key| Step::Quarantine { key }),
        2 => (proptest::collection::vec(0u8..12, 1..5), any::<bool>()).prop_map(|(keys, only_if_absent)| Step::Together { keys, only_if_absent }),
        2 => Just(Step::Reclaim),
        1 => Just(Step::Kill),
        1 => proptest::collection::vec(any::<u8>(), 0..200).prop_map(|torn| Step::PowerCut { torn }),
        1 => Just(Step::Reopen),
    ];
    proptest::collection::vec(step, 1..60)
}

#[derive(Clone, Debug, PartialEq)]
struct Known {
    value: Vec<u8>,
    version: u64,
    quarantined: bool,
}

type Model = BTreeMap<Vec<u8>, Known>;

fn options() -> Options {
    Options { sync: Sync::Always, segment_bytes: 4000, index_cache_bytes: 1 << 20, reclaim: false }
}

fn key(number: u8) -> Vec<u8> {
    let mut key = format!("d{}/", number % 3).into_bytes();
    key.extend([number, 0xff, 0]);
    key
}

fn value(size: usize, seed: u64) -> Vec<u8> {
    (0..size as u64).map(|at| (at.wrapping_mul(31) ^ seed) as u8).collect()
}

fn put(key: Vec<u8>, value: &[u8], when: When) -> Op {
    let weight_bytes = value.len() as u64;
    Op::Put {
        table: TABLE,
        meta: b"m".iter().chain(&key).copied().collect(),
        key,
        value: Bytes::copy_from_slice(value),
        weight_bytes,
        when,
    }
}

struct Bench {
    root: tempfile::TempDir,
    directory: PathBuf,
    log: Option<Log>,
    model: Model,
    writes: u64,
}

impl Bench {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("0");
        let log = Some(Log::open(&directory, options()).unwrap().0);
        Self { root, directory, log, model: Model::new(), writes: 0 }
    }

    fn log(&self) -> &Log {
        self.log.as_ref().unwrap()
    }

    fn put_one(&mut self, key: Vec<u8>, size: usize, when: u8) {
        self.writes += 1;
        let value = value(size, self.writes);
        let known = self.model.get(&key).cloned();
        let (when, met) = match when {
            0 => (When::Absent, known.is_none()),
            1 => (When::Present, known.is_some()),
            2 => (When::Version(known.as_ref().map_or(1, |known| known.version)), known.is_some()),
            _ => (When::Any, true),
        };
        let done = self.log().write_all_blocking(vec![put(key.clone(), &value, when)]).unwrap();
        match &done[0] {
            Done::Put { version, before } => {
                assert!(met);
                assert_eq!(before.as_ref().map(|before| before.version), known.map(|known| known.version));
                assert!(self.model.values().all(|known| known.version < *version), "versions only grow");
                self.model.insert(key, Known { value, version: *version, quarantined: false });
            }
            Done::NotMet { found } => {
                assert!(!met);
                assert_eq!(found.is_some(), known.is_some());
            }
            other => panic!("{other:?}"),
        }
    }

    fn together(&mut self, numbers: &[u8], only_if_absent: bool) {
        let when = if only_if_absent { When::Absent } else { When::Any };
        let seed = self.writes + 1;
        self.writes += numbers.len() as u64;
        let values: Vec<Vec<u8>> = (0..numbers.len()).map(|at| value(40 * at, seed + at as u64)).collect();
        let ops = numbers.iter().zip(&values).map(|(number, value)| put(key(*number), value, when)).collect();
        let done = self.log().write_all_blocking(ops).unwrap();
        let mut distinct = numbers.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        let met =
            !only_if_absent || (distinct.len() == numbers.len() && numbers.iter().all(|number| !self.model.contains_key(&key(*number))));
        assert_eq!(done.iter().all(Done::is_done), met);
        if met {
            for ((number, value), done) in numbers.iter().zip(values).zip(done) {
                let Done::Put { version, .. } = done else { panic!("{done:?}") };
                self.model.insert(key(*number), Known { value, version, quarantined: false });
            }
        }
    }

    fn reopen_at(&mut self, directory: PathBuf) {
        self.log = None;
        self.directory = directory;
        self.log = Some(Log::open(&self.directory, options()).unwrap().0);
    }

    fn copy(&self) -> PathBuf {
        let to = self.root.path().join(format!("{}", fs::read_dir(self.root.path()).unwrap().count()));
        copy_tree(&self.directory, &to);
        to
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Put { key: number, size, when } => self.put_one(key(number), size, when),
            Step::Delete { key: number } => {
                let done = self.log().write_all_blocking(vec![Op::Delete { table: TABLE, key: key(number), when: When::Any }]).unwrap();
                let known = self.model.remove(&key(number));
                assert!(matches!(&done[0], Done::Deleted { before } if before.is_some() == known.is_some()));
            }
            Step::Quarantine { key: number } => {
                let done = self.log().write_all_blocking(vec![Op::Quarantine { table: TABLE, key: key(number), when: When::Any }]).unwrap();
                match self.model.get_mut(&key(number)) {
                    Some(known) => known.quarantined = true,
                    None => assert!(!done[0].is_done()),
                }
            }
            Step::Together { keys, only_if_absent } => self.together(&keys, only_if_absent),
            Step::Reclaim => drop(self.log().reclaim().unwrap()),
            Step::Kill => {
                let copy = self.copy();
                self.reopen_at(copy);
            }
            Step::PowerCut { torn } => {
                let copy = self.copy();
                fs::write(copy.join("index.open"), "another boot").unwrap();
                append(&newest_segment(&copy), &torn);
                self.reopen_at(copy);
            }
            Step::Reopen => self.reopen_at(self.directory.clone()),
        }
    }

    fn check(&self) {
        let log = self.log();
        let found: Vec<Vec<u8>> = log.scan(TABLE, b"").unwrap().map(|found| found.unwrap().0).collect();
        assert_eq!(found, self.model.keys().cloned().collect::<Vec<_>>());
        for (key, known) in &self.model {
            let stat = log.stat(TABLE, key).unwrap().unwrap();
            assert_eq!((stat.version, stat.quarantined, &stat.meta[1..]), (known.version, known.quarantined, &key[..]));
            match log.get(TABLE, key) {
                Ok(read) => assert_eq!((read.unwrap().1.to_vec(), known.quarantined), (known.value.clone(), false)),
                Err(error) => assert!(known.quarantined, "{error}"),
            }
        }
        let totals = log.totals(TABLE);
        let weight: u64 = self.model.values().map(|known| known.value.len() as u64).sum();
        assert_eq!((totals.entries, totals.weight_bytes), (self.model.len() as u64, weight));
        self.check_listing();
    }

    fn check_listing(&self) {
        let mut expected: Vec<Vec<u8>> = self.model.keys().map(|key| key[..3].to_vec()).collect();
        expected.dedup();
        let (mut listed, mut after) = (Vec::new(), Vec::new());
        loop {
            let page = self.log().list(TABLE, b"d", Some(b"/"), &after, 1).unwrap();
            listed.extend(page.listed.iter().map(|listed| match listed {
                Listed::Prefix(prefix) => prefix.clone(),
                Listed::Key(key, _) => panic!("{key:?}"),
            }));
            match page.next {
                Some(next) => after = next,
                None => break,
            }
        }
        assert_eq!(listed, expected);
    }
}

fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy_tree(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}

fn newest_segment(directory: &Path) -> PathBuf {
    fs::read_dir(directory.join("segments")).unwrap().map(|entry| entry.unwrap().path()).max().unwrap()
}

fn append(path: &Path, bytes: &[u8]) {
    let mut all = fs::read(path).unwrap();
    all.extend(bytes);
    fs::write(path, all).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: std::env::var("STAGER_STORE_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(24), ..ProptestConfig::default() })]

    #[test]
    fn it_says_what_the_map_says(steps in steps()) {
        let mut bench = Bench::new();
        for step in steps {
            bench.run(step);
            bench.check();
        }
        bench.run(Step::PowerCut { torn: Vec::new() });
        bench.check();
    }

    /// Cut at any byte of what was written last: what was acknowledged before is there, the last write wholly or not at all.
    #[test]
    fn a_cut_anywhere_in_the_last_frame_takes_that_frame_only(sizes in proptest::collection::vec(0usize..500, 1..6), cut in 0.0f64..1.0, garbage in any::<bool>()) {
        let mut bench = Bench::new();
        for (at, size) in sizes.iter().enumerate() {
            bench.put_one(key(at as u8), *size, 3);
        }
        let before = bench.model.clone();
        let copy = bench.copy();
        let segment = newest_segment(&copy);
        let length_before = fs::metadata(&segment).unwrap().len() as usize;
        bench.together(&[1, 9, 10], false);
        let newest = newest_segment(&bench.directory);
        prop_assume!(newest.file_name() == segment.file_name());
        // The index as it was before: the frame is taken in only when it is whole on disk.
        let bytes = fs::read(newest).unwrap();
        let kept = length_before + ((bytes.len() - length_before) as f64 * cut) as usize;
        let mut torn = bytes[..kept].to_vec();
        if garbage {
            torn.resize(bytes.len(), 0);
        }
        fs::write(&segment, &torn).unwrap();
        fs::write(copy.join("index.open"), "another boot").unwrap();
        bench.model = before;
        bench.reopen_at(copy);
        bench.check();
        bench.together(&[1, 9, 10], false);
        bench.check();
    }
}
