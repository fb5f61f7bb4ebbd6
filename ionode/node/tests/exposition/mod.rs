//! A strict reader of what `/metrics` answers, in both texts. Knows the formats' rules, nothing of what is measured.
//!
//! The one rule: what a lenient scraper would pass over is a failure here.
#![allow(dead_code)]

use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug)]
pub struct Family {
    pub kind: String,
    pub unit: Option<String>,
    /// By name and labels, as written.
    pub samples: BTreeMap<String, f64>,
}

#[derive(Debug)]
pub struct Exposition {
    pub families: BTreeMap<String, Family>,
}

impl Exposition {
    pub fn value(&self, series: &str) -> f64 {
        let found = self.families.values().find_map(|family| family.samples.get(series));
        *found.unwrap_or_else(|| panic!("there is no {series} in {:#?}", self.series()))
    }

    pub fn series(&self) -> BTreeSet<&String> {
        self.families.values().flat_map(|family| family.samples.keys()).collect()
    }

    /// Panics at the first line that breaks a rule.
    pub fn parse(text: &str, open: bool) -> Self {
        assert!(text.ends_with('\n') && !text.contains("\n\n") && !text.contains('\r'), "lines are not as they should be");
        let mut lines: Vec<&str> = text.lines().collect();
        if open {
            assert_eq!(lines.pop(), Some("# EOF"), "OpenMetrics ends with EOF");
        }
        let mut reader = Reader { open, families: BTreeMap::new(), current: None, help: None };
        for line in lines {
            reader.line(line);
        }
        reader.families.iter().for_each(|(name, family)| check(name, family, open));
        Self { families: reader.families }
    }
}

struct Reader {
    open: bool,
    families: BTreeMap<String, Family>,
    current: Option<String>,
    help: Option<String>,
}

impl Reader {
    fn line(&mut self, line: &str) {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap_or_else(|| panic!("no help: {line}"));
            assert!(is_name(name) && help.len() > 5 && self.help.is_none(), "{line}");
            self.help = Some(name.to_string());
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert_eq!(self.help.take().as_deref(), Some(name), "help stands right before the type");
            let kinds: &[&str] = if self.open { &["counter", "gauge", "histogram", "info"] } else { &["counter", "gauge", "histogram"] };
            assert!(kinds.contains(&kind), "{line}");
            let family = Family { kind: kind.to_string(), unit: None, samples: BTreeMap::new() };
            assert!(self.families.insert(name.to_string(), family).is_none(), "{name} is told twice");
            self.current = Some(name.to_string());
        } else if let Some(rest) = line.strip_prefix("# UNIT ") {
            let (name, unit) = rest.split_once(' ').unwrap();
            assert!(self.open && self.current.as_deref() == Some(name) && name.ends_with(&format!("_{unit}")), "{line}");
            self.families.get_mut(name).unwrap().unit = Some(unit.to_string());
        } else {
            assert!(!line.starts_with('#'), "an unknown comment: {line}");
            self.sample(line);
        }
    }

    fn sample(&mut self, line: &str) {
        let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no value: {line}"));
        let value: f64 = if value == "+Inf" { f64::INFINITY } else { value.parse().unwrap_or_else(|_| panic!("no number: {line}")) };
        let name = series.split('{').next().unwrap();
        assert!(is_name(name), "{line}");
        labels(series);
        let family_name = self.current.clone().expect("a type comes first");
        let family = self.families.get_mut(&family_name).unwrap();
        let suffix = name.strip_prefix(family_name.as_str()).unwrap_or_else(|| panic!("{line} stands in the family {family_name}"));
        let suffixes: &[&str] = match (family.kind.as_str(), self.open) {
            ("counter", true) => &["_total"],
            ("info", _) => &["_info"],
            ("histogram", _) => &["_bucket", "_sum", "_count"],
            _ => &[""],
        };
        assert!(suffixes.contains(&suffix), "{line} in a {}", family.kind);
        assert!(family.samples.insert(series.to_string(), value).is_none(), "{series} is told twice");
    }
}

fn is_name(name: &str) -> bool {
    let mut letters = name.chars();
    letters.next().is_some_and(|first| first.is_ascii_lowercase())
        && letters.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

/// Of a series as written; every label once, every value closed.
pub fn labels(series: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let Some((_, inside)) = series.split_once('{') else { return found };
    let mut rest = inside.strip_suffix('}').unwrap_or_else(|| panic!("not closed: {series}"));
    while !rest.is_empty() {
        let (name, tail) = rest.split_once("=\"").unwrap_or_else(|| panic!("no value: {series}"));
        assert!(is_name(name), "{series}");
        let mut end = None;
        let mut escaped = false;
        for (at, c) in tail.char_indices() {
            match (escaped, c) {
                (true, c) => {
                    assert!(matches!(c, '\\' | '"' | 'n'), "an escape that is none: {series}");
                    escaped = false;
                }
                (false, '\\') => escaped = true,
                (false, '"') => {
                    end = Some(at);
                    break;
                }
                _ => {}
            }
        }
        let end = end.unwrap_or_else(|| panic!("not closed: {series}"));
        assert!(found.insert(name.to_string(), tail[..end].to_string()).is_none(), "{name} twice: {series}");
        rest = &tail[end + 1..];
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
    found
}

fn check(name: &str, family: &Family, open: bool) {
    assert!(name.starts_with("stager_node_") || name.starts_with("process_"), "{name}");
    for word in ["_ms", "_millis", "_kb", "_mb", "_percent", "_minutes"] {
        assert!(!name.contains(word), "{name} is not in base units");
    }
    let counted = family.kind == "counter";
    assert_eq!(name.ends_with("_total"), counted && !open, "{name} is a {}", family.kind);
    for (series, value) in &family.samples {
        assert!(!value.is_nan() && (*value >= 0.0), "{series} {value}");
    }
    if family.kind == "histogram" {
        check_histogram(name, family);
    }
}

fn check_histogram(name: &str, family: &Family) {
    let mut buckets: BTreeMap<BTreeMap<String, String>, Vec<(f64, f64)>> = BTreeMap::new();
    for (series, value) in family.samples.iter().filter(|(series, _)| series.starts_with(&format!("{name}_bucket"))) {
        let mut labels = labels(series);
        let le = labels.remove("le").expect("a bucket has an edge");
        buckets.entry(labels).or_default().push((if le == "+Inf" { f64::INFINITY } else { le.parse().unwrap() }, *value));
    }
    for (labels, mut steps) in buckets {
        steps.sort_by(|a, b| a.0.total_cmp(&b.0));
        assert!(steps.windows(2).all(|pair| pair[0].1 <= pair[1].1), "{name} {labels:?} does not grow");
        let last = steps.last().unwrap();
        let sets: Vec<String> = labels.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
        let of = |part: &str| if sets.is_empty() { format!("{name}_{part}") } else { format!("{name}_{part}{{{}}}", sets.join(",")) };
        assert_eq!((last.0, Some(&last.1)), (f64::INFINITY, family.samples.get(&of("count"))), "{name} {labels:?}");
        assert!(family.samples.contains_key(&of("sum")), "{name} {labels:?}");
    }
}
