//! Files of known content: writes them and checks them, in chunks, byte by byte.
//!
//! One rule: a file that is not exactly right is an error that names the file and the first wrong byte.

use crate::content::{Content, CHUNK_BYTES};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Two buffers of one thread, used again for every file.
pub struct Buffers {
    expected: Vec<u8>,
    found: Vec<u8>,
}

impl Default for Buffers {
    fn default() -> Self {
        Buffers { expected: vec![0; CHUNK_BYTES], found: vec![0; CHUNK_BYTES] }
    }
}

/// The place of `name` below `base`. Refuses names that could leave it.
pub fn place(base: &Path, name: &str) -> Result<PathBuf, String> {
    let plain = Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
    if name.is_empty() || name.ends_with('/') || !plain {
        return Err(format!("{name:?} is not a relative path without '..'"));
    }
    Ok(base.join(name))
}

/// Reads the whole file and compares every byte.
pub fn check(path: &Path, name: &str, content: &Content, buffers: &mut Buffers) -> Result<(), String> {
    let mut file = File::open(path).map_err(|error| format!("{name} cannot be read: {error}"))?;
    let found_size = file.metadata().map_err(|error| format!("{name} cannot be asked: {error}"))?.len();
    if found_size != content.size_bytes {
        return Err(format!("{name} has {found_size} bytes, it must have {}", content.size_bytes));
    }
    let mut offset = 0;
    while offset < content.size_bytes {
        let length = CHUNK_BYTES.min((content.size_bytes - offset) as usize);
        let found = &mut buffers.found[..length];
        file.read_exact(found).map_err(|error| format!("{name} cannot be read at byte {offset}: {error}"))?;
        let expected = &mut buffers.expected[..length];
        content.fill(offset, expected);
        if found != expected {
            let at = found.iter().zip(expected.iter()).position(|(a, b)| a != b).expect("they differ");
            return Err(format!(
                "{name} is wrong from byte {}: 0x{:02x} is there, 0x{:02x} must be",
                offset + at as u64,
                found[at],
                expected[at]
            ));
        }
        offset += length as u64;
    }
    Ok(())
}

/// Writes the whole file. Makes the directories above it.
pub fn write(path: &Path, name: &str, content: &Content, buffers: &mut Buffers) -> Result<File, String> {
    let fail = |error: std::io::Error| format!("{name} cannot be written: {error}");
    if let Some(above) = path.parent() {
        fs::create_dir_all(above).map_err(fail)?;
    }
    let mut file = File::create(path).map_err(fail)?;
    let mut offset = 0;
    while offset < content.size_bytes {
        let chunk = &mut buffers.expected[..CHUNK_BYTES.min((content.size_bytes - offset) as usize)];
        content.fill(offset, chunk);
        file.write_all(chunk).map_err(fail)?;
        offset += chunk.len() as u64;
    }
    Ok(file)
}

/// Makes the file at an origin unless it is right already; true when it was made. A reader never sees half of it.
pub fn ensure(path: &Path, name: &str, content: &Content, buffers: &mut Buffers) -> Result<bool, String> {
    let stamp = SystemTime::UNIX_EPOCH + Duration::from_secs(content.modified_at_s());
    let stamped = |file: &File| file.set_modified(stamp).map_err(|error| format!("{name}: its time cannot be set: {error}"));
    if check(path, name, content, buffers).is_ok() {
        let times_agree = fs::metadata(path).and_then(|found| found.modified()).is_ok_and(|found| found == stamp);
        if !times_agree {
            stamped(&File::options().append(true).open(path).map_err(|error| format!("{name}: its time cannot be set: {error}"))?)?;
        }
        return Ok(false);
    }
    let base = path.file_name().unwrap_or_default().as_encoded_bytes();
    let short = String::from_utf8_lossy(&base[..base.len().min(100)]).into_owned();
    let temporary = path.with_file_name(format!(".{short}.{}.part", std::process::id()));
    let made = write(&temporary, name, content, buffers).and_then(|file| stamped(&file));
    let made = made.and_then(|()| fs::rename(&temporary, path).map_err(|error| format!("{name} cannot be put in place: {error}")));
    if made.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    made.map(|()| true)
}
