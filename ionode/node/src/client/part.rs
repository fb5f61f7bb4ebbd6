//! The file that a fetch makes, while it is not whole: its bytes, and a list of the parts that are there with what they hashed to.
//!
//! The one rule: a part on the list is hashed again before it is believed.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};
use stager_core::error::ApiError;
use stager_core::stripes::Layout;

use crate::failure::at;
use crate::stripes::{chaining_value, hex};

/// What the parts belong to: of another content or cut otherwise nothing is gone on with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Heading {
    pub file_id: String,
    pub generation: String,
    pub layout: Layout,
}

/// A part that is there, and its chaining value.
pub type Known = (u64, [u8; 32]);

#[derive(Serialize, Deserialize)]
struct PartLine {
    part: u64,
    blake3_cv: String,
}

pub struct PartFile {
    pub file: Arc<File>,
    pub path: PathBuf,
    list: Mutex<File>,
    list_path: PathBuf,
    target: PathBuf,
}

fn beside(target: &Path, suffix: &str) -> PathBuf {
    let mut name = target.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

impl PartFile {
    /// With the values of the parts that are there.
    pub fn open(target: &Path, heading: &Heading) -> Result<(Self, Vec<Known>), ApiError> {
        let (path, list_path) = (beside(target, ".stager-part"), beside(target, ".stager-parts"));
        let known = listed(&list_path, heading);
        let file =
            OpenOptions::new().create(true).truncate(false).read(true).write(true).mode(0o600).open(&path).map_err(at("making", &path))?;
        file.set_len(heading.layout.file_bytes).map_err(at("extending", &path))?;
        let there: Vec<Known> =
            known.into_iter().filter_map(|line| hashed(&file, heading, &line).map(|value| (line.part, value))).collect();
        let list =
            OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&list_path).map_err(at("making", &list_path))?;
        let part_file = Self { file: Arc::new(file), path, list: Mutex::new(list), list_path, target: target.to_owned() };
        part_file.write_line(heading)?;
        there.iter().try_for_each(|(part, value)| part_file.note(*part, *value))?;
        Ok((part_file, there))
    }

    pub fn note(&self, part: u64, value: [u8; 32]) -> Result<(), ApiError> {
        self.write_line(&PartLine { part, blake3_cv: hex(value) })
    }

    fn write_line(&self, line: &impl Serialize) -> Result<(), ApiError> {
        let mut text = serde_json::to_vec(line).expect("plain values");
        text.push(b'\n');
        self.list.lock().expect("nobody panics here").write_all(&text).map_err(at("writing", &self.list_path))
    }

    /// On disk and under its name, which nobody may have taken meanwhile.
    pub fn finish(self) -> Result<(), ApiError> {
        self.file.sync_all().map_err(at("fsync of", &self.path))?;
        std::fs::hard_link(&self.path, &self.target).map_err(at("naming", &self.target))?;
        self.drop_all()?;
        let parent = self.target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(parent).and_then(|folder| folder.sync_all()).map_err(at("fsync of", parent))
    }

    /// Nothing of it is any good.
    pub fn drop_all(&self) -> Result<(), ApiError> {
        [&self.path, &self.list_path].into_iter().try_for_each(|path| std::fs::remove_file(path).map_err(at("removing", path)))
    }
}

fn listed(path: &Path, heading: &Heading) -> Vec<PartLine> {
    let Ok(file) = File::open(path) else { return Vec::new() };
    let mut lines = BufReader::new(file).lines().map_while(Result::ok);
    let same = lines.next().and_then(|first| serde_json::from_str::<Heading>(&first).ok()).is_some_and(|found| found == *heading);
    if !same {
        return Vec::new();
    }
    lines.map_while(|line| serde_json::from_str(&line).ok()).collect()
}

fn hashed(file: &File, heading: &Heading, line: &PartLine) -> Option<[u8; 32]> {
    if line.part >= heading.layout.total() {
        return None;
    }
    let range = heading.layout.range(line.part);
    let mut buffer = vec![0; (range.end - range.start) as usize];
    file.read_exact_at(&mut buffer, range.start).ok()?;
    let value = chaining_value(&heading.layout, line.part, &buffer);
    (hex(value) == line.blake3_cv).then_some(value)
}
