//! The Range header of a content, from any text and for any length: a part lies inside, and what is asked for by numbers is what is given.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stager_node::http::range::{parse, Asked};

fn inside(text: &str, size_bytes: u64) {
    if let Asked::Part(start, end) = parse(text, size_bytes) {
        assert!(start <= end && end <= size_bytes, "{text:?} of {size_bytes} gave {start}..{end}");
    }
}

fuzz_target!(|asked: (String, u64, u64, u64)| {
    let (text, size_bytes, first, last) = asked;
    inside(&text, size_bytes);
    inside(&format!("bytes={text}"), size_bytes);
    let expected = match (first <= last, first < size_bytes) {
        (false, _) => Asked::Ignored,
        (true, false) => Asked::Unsatisfiable,
        (true, true) => Asked::Part(first, last.saturating_add(1).min(size_bytes)),
    };
    assert_eq!(parse(&format!("bytes={first}-{last}"), size_bytes), expected);
});
