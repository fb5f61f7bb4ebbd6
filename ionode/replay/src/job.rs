//! One replayed job: reads all its inputs and checks every byte, works for its time, writes its outputs.
//!
//! One rule: an input that is not exactly right fails the job before anything is written.

use crate::content::Content;
use crate::files::{self, Buffers};
use std::path::Path;
use std::time::{Duration, Instant};

#[derive(Debug, PartialEq)]
pub struct Job {
    pub seed: u64,
    pub time_s: f64,
    pub spin: bool,
    pub inputs: Vec<(String, u64)>,
    pub outputs: Vec<(String, u64)>,
}

impl Job {
    /// `--seed N --time-s X [--spin] i:SIZE:PATH ... o:SIZE:PATH ...`
    pub fn parse(args: &[String]) -> Result<Self, String> {
        let mut job = Job { seed: 0, time_s: 0.0, spin: false, inputs: Vec::new(), outputs: Vec::new() };
        let mut rest = args.iter();
        while let Some(arg) = rest.next() {
            let mut value = || rest.next().ok_or(format!("{arg} needs a value"));
            match arg.as_str() {
                "--seed" => job.seed = value()?.parse().map_err(|_| "--seed needs a whole number, 0 or more".to_string())?,
                "--time-s" => job.time_s = parse_time_s(value()?)?,
                "--spin" => job.spin = true,
                entry => match parse_entry(entry)? {
                    ('i', file) => job.inputs.push(file),
                    (_, file) => job.outputs.push(file),
                },
            }
        }
        Ok(job)
    }

    /// The time counts from the start, reading included; writing comes on top.
    pub fn run(&self, sandbox: &Path) -> Result<(), Vec<String>> {
        let started = Instant::now();
        let mut buffers = Buffers::default();
        let mut wrong = Vec::new();
        for (name, size_bytes) in &self.inputs {
            let content = Content::new(self.seed, name, *size_bytes);
            let checked = files::place(sandbox, name).and_then(|path| files::check(&path, name, &content, &mut buffers));
            wrong.extend(checked.err().map(|why| format!("input {why}")));
        }
        if !wrong.is_empty() {
            return Err(wrong);
        }
        work_until(started + Duration::from_secs_f64(self.time_s), self.spin);
        for (name, size_bytes) in &self.outputs {
            let content = Content::new(self.seed, name, *size_bytes);
            let written = files::place(sandbox, name).and_then(|path| files::write(&path, name, &content, &mut buffers));
            wrong.extend(written.err().map(|why| format!("output {why}")));
        }
        if wrong.is_empty() {
            Ok(())
        } else {
            Err(wrong)
        }
    }
}

fn parse_time_s(text: &str) -> Result<f64, String> {
    let time_s: f64 = text.parse().map_err(|_| format!("--time-s {text:?} is not a number of seconds"))?;
    if time_s.is_finite() && (0.0..1e9).contains(&time_s) {
        return Ok(time_s);
    }
    Err(format!("--time-s {text:?} must be 0 or more"))
}

fn parse_entry(entry: &str) -> Result<(char, (String, u64)), String> {
    let wanted = || format!("{entry:?} is not an argument; write i:SIZE:PATH for an input, o:SIZE:PATH for an output");
    let (kind, rest) = entry.split_once(':').filter(|(kind, _)| *kind == "i" || *kind == "o").ok_or_else(wanted)?;
    let (size, name) = rest.split_once(':').ok_or_else(wanted)?;
    let size_bytes = size.parse().map_err(|_| wanted())?;
    Ok((if kind == "i" { 'i' } else { 'o' }, (name.to_string(), size_bytes)))
}

fn work_until(deadline: Instant, spin: bool) {
    let left = || deadline.saturating_duration_since(Instant::now());
    while !left().is_zero() {
        if spin {
            std::hint::black_box((0..1000u64).fold(1u64, |sum, step| sum.wrapping_mul(31).wrapping_add(step)));
        } else {
            std::thread::sleep(left());
        }
    }
}
