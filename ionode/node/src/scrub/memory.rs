//! When each replica was last found right, over a restart: `STORE/verified`. Knows the file, not who reads replicas.
//!
//! The one rule: it may be lost, old or torn; then replicas are read once more than needed, and nothing else happens.

use std::collections::HashMap;
use std::fmt::Write;

use stager_core::error::ApiError;
use stager_core::replica::ReplicaKey;

use crate::clock::now_s;
use crate::fingerprints::Fingerprints;
use crate::store::durability::Durability;
use crate::store::files::write_whole;

const NAME: &str = "verified";
const HEADER: &str = "stager-verified 1";

pub fn recall(fingerprints: &Fingerprints) {
    let Ok(text) = std::fs::read_to_string(fingerprints.context.store.root().join(NAME)) else { return };
    let known = parse(&text, now_s());
    let accounting = fingerprints.context.accounting();
    let there = known.into_iter().filter(|(key, _)| accounting.index.readable(key).is_ok());
    fingerprints.recall(there);
}

pub fn save(fingerprints: &Fingerprints) -> Result<(), ApiError> {
    let mut text = format!("{HEADER}\n");
    for (key, at_s) in fingerprints.times() {
        writeln!(text, "{at_s} {} {}", key.file_id, key.generation).expect("writing into a string");
    }
    write_whole(&fingerprints.context.store.root().join(NAME), text.as_bytes(), Durability(false))
}

/// A time to come (the clock was set) counts as none.
fn parse(text: &str, now_s: u64) -> HashMap<ReplicaKey, u64> {
    let mut lines = text.lines();
    if lines.next() != Some(HEADER) {
        return HashMap::new();
    }
    let one = |line: &str| {
        let mut words = line.split(' ');
        let (at_s, file_id, generation) = (words.next()?.parse().ok()?, words.next()?, words.next()?);
        (at_s <= now_s).then(|| (ReplicaKey::new(file_id, generation), at_s))
    };
    lines.filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_torn_or_odd_is_as_if_it_were_not_there() {
        let text = "stager-verified 1\n100 f g\n900 later g\nx f2 g\n100 f3\n\n50 f4 g";
        let mut known: Vec<_> = parse(text, 500).into_iter().collect();
        known.sort();
        assert_eq!(known, [(ReplicaKey::new("f", "g"), 100), (ReplicaKey::new("f4", "g"), 50)]);
        assert!(parse("stager-verified 2\n100 f g\n", 500).is_empty() && parse("", 500).is_empty());
    }
}
