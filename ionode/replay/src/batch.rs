//! Many files of one specification at once: makes the inputs of a replay, checks its finals.
//!
//! One rule: every file is looked at, and all that is wrong is told together.

use crate::content::Content;
use crate::files::{self, Buffers};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;

/// `{"format": 1, "seed": N, "files": [["PATH", SIZE], ...]}`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Specification {
    pub format: u32,
    pub seed: u64,
    pub files: Vec<(String, u64)>,
}

#[derive(Debug, Default, Serialize)]
pub struct Summary {
    pub files: usize,
    pub bytes: u64,
    pub made: usize,
    pub wrong: Vec<String>,
}

impl Specification {
    pub fn parse(text: &str) -> Result<Self, String> {
        let found: Specification = serde_json::from_str(text).map_err(|error| format!("the specification cannot be read: {error}"))?;
        if found.format != 1 {
            return Err(format!(
                "the specification has format {}, this program reads format 1; use the stager that wrote it",
                found.format
            ));
        }
        Ok(found)
    }

    /// Makes what is not right already.
    pub fn make(&self, base: &Path, threads: usize) -> Summary {
        self.each(threads, |name, content, buffers| files::place(base, name).and_then(|path| files::ensure(&path, name, content, buffers)))
    }

    pub fn check(&self, base: &Path, threads: usize) -> Summary {
        self.each(threads, |name, content, buffers| {
            files::place(base, name).and_then(|path| files::check(&path, name, content, buffers)).map(|()| false)
        })
    }

    fn each(&self, threads: usize, act: impl Fn(&str, &Content, &mut Buffers) -> Result<bool, String> + Sync) -> Summary {
        let next = AtomicUsize::new(0);
        let found = Mutex::new((0usize, Vec::<(usize, String)>::new()));
        std::thread::scope(|scope| {
            for _ in 0..threads.clamp(1, self.files.len().max(1)) {
                scope.spawn(|| {
                    let mut buffers = Buffers::default();
                    while let Some((at, (name, size_bytes))) = take(&next, &self.files) {
                        let done = act(name, &Content::new(self.seed, name, *size_bytes), &mut buffers);
                        let mut found = found.lock().expect("no thread panics while it holds this");
                        match done {
                            Ok(made) => found.0 += usize::from(made),
                            Err(why) => found.1.push((at, why)),
                        }
                    }
                });
            }
        });
        let (made, mut wrong) = found.into_inner().expect("all threads have ended");
        wrong.sort();
        let bytes = self.files.iter().map(|(_, size_bytes)| size_bytes).sum();
        Summary { files: self.files.len(), bytes, made, wrong: wrong.into_iter().map(|(_, why)| why).collect() }
    }
}

fn take<'a, T>(next: &AtomicUsize, all: &'a [T]) -> Option<(usize, &'a T)> {
    let at = next.fetch_add(1, Ordering::Relaxed);
    all.get(at).map(|entry| (at, entry))
}
