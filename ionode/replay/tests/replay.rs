//! A replayed job and its files, end to end in a directory: right content passes, one wrong byte anywhere fails and is named.

use stager_replay::{cli, Content, Job, Specification};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

const BIG: u64 = 700_001;

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_string).collect()
}

fn specification(files: &str) -> Specification {
    Specification::parse(&format!("{{\"format\": 1, \"seed\": 5, \"files\": [{files}]}}")).unwrap()
}

fn sandbox() -> (tempfile::TempDir, Specification, Job) {
    let directory = tempfile::tempdir().unwrap();
    let inputs = specification(&format!("[\"inputs/a\", {BIG}], [\"inputs/deep/b\", 3], [\"inputs/empty\", 0]"));
    let job = Job::parse(&words(&format!(
        "--seed 5 --time-s 0.05 i:{BIG}:inputs/a i:3:inputs/deep/b i:0:inputs/empty o:{BIG}:finals/x/y:z o:0:work/none"
    )))
    .unwrap();
    (directory, inputs, job)
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 0x40;
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_job_checks_reads_works_and_writes() {
    let (directory, inputs, job) = sandbox();
    let made = inputs.make(directory.path(), 3);
    assert_eq!((made.files, made.made, made.bytes, made.wrong.len()), (3, 3, BIG + 3, 0));
    let started = Instant::now();
    job.run(directory.path()).unwrap();
    assert!(started.elapsed() >= Duration::from_millis(50));
    let finals = specification(&format!("[\"finals/x/y:z\", {BIG}], [\"work/none\", 0]"));
    assert!(finals.check(directory.path(), 2).wrong.is_empty());
}

#[test]
fn one_wrong_byte_of_an_input_fails_the_job_and_nothing_is_written() {
    for at in [0, 262_143, 262_144, BIG as usize - 1] {
        let (directory, inputs, job) = sandbox();
        inputs.make(directory.path(), 1);
        flip(&directory.path().join("inputs/a"), at);
        let wrong = job.run(directory.path()).unwrap_err();
        assert!(wrong.len() == 1 && wrong[0].contains(&format!("input inputs/a is wrong from byte {at}:")), "{wrong:?}");
        assert!(!directory.path().join("finals").exists());
    }
}

#[test]
fn short_and_missing_inputs_are_all_named() {
    let (directory, inputs, job) = sandbox();
    inputs.make(directory.path(), 1);
    fs::write(directory.path().join("inputs/deep/b"), b"ab").unwrap();
    fs::remove_file(directory.path().join("inputs/empty")).unwrap();
    let wrong = job.run(directory.path()).unwrap_err();
    assert!(wrong[0].contains("inputs/deep/b has 2 bytes, it must have 3"), "{wrong:?}");
    assert!(wrong[1].contains("inputs/empty cannot be read"), "{wrong:?}");
}

#[test]
fn what_is_right_is_kept_and_what_is_wrong_is_made_again() {
    let (directory, inputs, _) = sandbox();
    inputs.make(directory.path(), 2);
    let times = |name: &str| fs::metadata(directory.path().join(name)).unwrap().modified().unwrap();
    let before = times("inputs/a");
    flip(&directory.path().join("inputs/deep/b"), 1);
    assert_eq!(inputs.make(directory.path(), 2).made, 1);
    assert_eq!(inputs.make(directory.path(), 2).made, 0);
    assert_eq!(times("inputs/a"), before);
    let names: Vec<_> = fs::read_dir(directory.path().join("inputs")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 3, "nothing temporary stays: {names:?}");
}

#[test]
fn the_time_of_change_tells_contents_apart_and_is_long_past() {
    let one = Content::new(1, "inputs/a", 10).modified_at_s();
    assert_ne!(one, Content::new(2, "inputs/a", 10).modified_at_s());
    assert!((1_000_000_000..1_500_000_000).contains(&one));
    let (directory, inputs, _) = sandbox();
    inputs.make(directory.path(), 1);
    let path = directory.path().join("inputs/a");
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    let since = modified.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    assert_eq!(since, Content::new(5, "inputs/a", BIG).modified_at_s());
}

#[test]
fn names_that_leave_the_directory_are_refused() {
    for name in ["../x", "/etc/x", "a/../../x", "", "a/", "."] {
        let directory = tempfile::tempdir().unwrap();
        let wrong = specification(&format!("[\"{name}\", 1]")).make(directory.path(), 1).wrong;
        assert!(wrong.len() == 1 && wrong[0].contains("not a relative path"), "{name:?}: {wrong:?}");
    }
}

#[test]
fn wrong_usage_and_newer_formats_are_told() {
    assert_eq!(cli(&words("replay-job --seed x")), 2);
    assert_eq!(cli(&words("replay-job --time-s -1")), 2);
    assert_eq!(cli(&words("replay-job --time-s nan")), 2);
    assert_eq!(cli(&words("replay-job q:1:a")), 2);
    assert_eq!(cli(&words("replay-make --dir /nowhere")), 2);
    assert_eq!(cli(&words("replay-job i:1:there/is/no/such/input")), 1);
    assert!(Specification::parse("{\"format\": 2, \"seed\": 1, \"files\": []}").unwrap_err().contains("format 2"));
}
