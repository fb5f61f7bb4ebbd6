//! Jobs that take more memory than they may.

use crate::case::{each, is_running, Case};
use serde_json::{json, Value};

const MIB: u64 = 1 << 20;

fn limited(case: Case, mib: u64, script: &str) -> (Case, Value) {
    let case = case.set("memory_limit_bytes", json!(mib * MIB)).shell(script);
    let report = case.report();
    (case, report)
}

#[test]
fn a_job_that_takes_more_than_it_may_is_ended_and_said_so() {
    each(|case| {
        let token = case.token(1);
        let (_, report) = limited(case, 60, &format!("sleep {token} & head -c 200000000 /dev/zero | tail -c 190000000 | sleep 100"));
        assert_eq!(report["outcome"], "memory", "{report}");
        assert!(report["memory_used_bytes"].as_u64().unwrap() > 60 * MIB, "{report}");
        assert_eq!(report["memory_limit_bytes"], 60 * MIB);
        assert!(!is_running(&token));
    });
}

/// Two that hold 40 MiB each are 80 together; and a job that stays below is left alone, also where its processes share what they hold.
#[test]
fn the_whole_tree_counts_and_what_is_shared_counts_once() {
    let hold = "python3 -c 'import time; held = bytearray(40 << 20); time.sleep(100)'";
    each(|case| {
        let (_, report) = limited(case, 70, &format!("{hold} & {hold}"));
        assert_eq!(report["outcome"], "memory", "{report}");
    });
    let fork = "python3 -c '\nimport os, time\nheld = bytearray(40 << 20)\nfor _ in range(4):\n    if not os.fork():\n        time.sleep(1)\n        os._exit(0)\ntime.sleep(1)'";
    each(|case| {
        let (_, report) = limited(case, 100, fork);
        assert_eq!((report["outcome"].as_str(), report["exit_code"].as_i64()), (Some("exited"), Some(0)), "{report}");
        assert!(report.get("memory_used_bytes").is_none(), "{report}");
    });
}

/// Pages of a file that it mapped are not held: the kernel takes them back when it needs them.
#[test]
fn a_mapped_file_is_no_memory() {
    each(|case| {
        let script = "head -c 100000000 /dev/zero > large; python3 -c '\nimport mmap, time\nwith open(\"large\", \"rb\") as file:\n    seen = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)\n    sum(seen[at] for at in range(0, len(seen), 4096))\n    time.sleep(0.5)'";
        let (_, report) = limited(case, 50, script);
        assert_eq!((report["outcome"].as_str(), report["exit_code"].as_i64()), (Some("exited"), Some(0)), "{report}");
    });
}
