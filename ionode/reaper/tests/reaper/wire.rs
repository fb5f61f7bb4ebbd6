//! The golden messages that both languages parse (tests/conformance/wire).

use std::path::PathBuf;

use serde_json::Value;
use stager_reaper::{Report, Spec};

fn golden(name: &str) -> PathBuf {
    PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("run by cargo")).join("../../tests/conformance/wire").join(name)
}

#[test]
fn golden_spec_is_understood() {
    let spec = Spec::read(&golden("reaper_spec.json")).unwrap();
    assert_eq!((spec.epoch, spec.timeout_s, spec.mounts.len()), (3, Some(3600.0), 1));
    assert_eq!(spec.sandbox(), spec.cwd);
}

#[test]
fn golden_result_is_what_is_written() {
    let text = std::fs::read(golden("reaper_result.json")).unwrap();
    let report: Report = serde_json::from_slice(&text).unwrap();
    assert_eq!(serde_json::to_value(&report).unwrap(), serde_json::from_slice::<Value>(&text).unwrap());
}
