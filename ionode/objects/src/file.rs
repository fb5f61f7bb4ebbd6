//! Files of contents: the content, behind it a table of one crc64nvme per block. The record that names a file holds the table's checksum.
//!
//! The one rule: a block leaves here only after it was compared with its checksum.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use stager_core::error::{ApiError, Code};
use stager_store::at_hand;
use stager_store::failure::at;

use crate::ids::FileId;
use crate::meta::FilePart;
use crate::verify::Care;

pub const BLOCK_BYTES: u64 = 1 << 20;
/// Of the disk, and of the share, a content takes no more ahead of what has come of it.
const AHEAD_BYTES_MAX: u64 = 16 * BLOCK_BYTES;

fn shard_directory(directory: &Path, id: FileId) -> PathBuf {
    directory.join(format!("{:02x}", id.0[0]))
}

pub fn path(directory: &Path, id: FileId) -> PathBuf {
    shard_directory(directory, id).join(id.to_string())
}

pub fn make_shard_directories(directory: &Path, fsync: bool) -> Result<(), ApiError> {
    let make = |path: &Path| DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(at("making", path));
    make(directory)?;
    for number in 0..=255u8 {
        make(&directory.join(format!("{number:02x}")))?;
    }
    if fsync {
        sync_directory(directory)?;
        sync_directory(directory.parent().unwrap_or(directory))?;
    }
    Ok(())
}

fn sync_directory(path: &Path) -> Result<(), ApiError> {
    File::open(path).and_then(|directory| directory.sync_all()).map_err(at("fsync of", path))
}

/// What is gone already is fine; what cannot go now goes at the next start.
pub fn remove(directory: &Path, id: FileId) {
    let path = path(directory, id);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(path = %path.display(), %error, "a file of a removed object cannot be removed; the next start tries again");
        }
        _ => {}
    }
}

/// A file that no record names yet: dropped, it is removed.
pub struct NewFile {
    directory: PathBuf,
    pub part: FilePart,
    kept: bool,
}

impl NewFile {
    /// A record names it now, or may.
    pub fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.kept {
            remove(&self.directory, self.part.id);
        }
    }
}

pub struct Writer {
    new: NewFile,
    file: File,
    path: PathBuf,
    taken_bytes: u64,
    written_bytes: u64,
    block: crc_fast::Digest,
    table: Vec<u8>,
}

/// How much of a content is allocated when so much of it has come: as much again, within bounds.
pub fn ahead_of(came_bytes: u64, size_bytes: u64) -> u64 {
    size_bytes.min(came_bytes + came_bytes.clamp(BLOCK_BYTES, AHEAD_BYTES_MAX))
}

fn block_digest() -> crc_fast::Digest {
    crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc64Nvme)
}

impl Writer {
    /// Its blocks are taken from the disk ahead of its bytes: a full disk says so early.
    pub fn create(directory: &Path, size_bytes: u64) -> Result<Self, ApiError> {
        let id = FileId::new();
        let path = path(directory, id);
        let new = NewFile { directory: directory.to_owned(), part: FilePart { id, size_bytes, table_crc: 0 }, kept: false };
        let file = OpenOptions::new().create_new(true).read(true).write(true).mode(0o600).open(&path).map_err(at("making", &path))?;
        let mut writer = Self { new, file, path, taken_bytes: 0, written_bytes: 0, block: block_digest(), table: Vec::new() };
        writer.take(ahead_of(0, size_bytes))?;
        Ok(writer)
    }

    /// The blocks of so much content, and with the last of it those of the table.
    fn take(&mut self, content_bytes: u64) -> Result<(), ApiError> {
        let size_bytes = self.new.part.size_bytes;
        let table_bytes = if content_bytes >= size_bytes { size_bytes.div_ceil(BLOCK_BYTES) * 8 } else { 0 };
        let (from, to) = (self.taken_bytes, (content_bytes + table_bytes).max(1));
        // SAFETY: the descriptor is open for as long as `file` lives.
        let taken = unsafe { libc::posix_fallocate(self.file.as_raw_fd(), from as libc::off_t, (to - from) as libc::off_t) };
        // Other errors mean that the file system cannot take space ahead: the writes tell then.
        if matches!(taken, libc::ENOSPC | libc::EDQUOT | libc::EFBIG) {
            return Err(at::<io::Error>("taking space for", &self.path)(io::Error::from_raw_os_error(taken)));
        }
        self.taken_bytes = content_bytes;
        Ok(())
    }

    pub fn write(&mut self, bytes: &[u8]) -> Result<(), ApiError> {
        let comes_to = self.written_bytes + bytes.len() as u64;
        if comes_to > self.taken_bytes {
            self.take(ahead_of(comes_to, self.new.part.size_bytes))?;
        }
        self.file.write_all(bytes).map_err(at("writing", &self.path))?;
        let mut rest = bytes;
        while !rest.is_empty() {
            let left = BLOCK_BYTES - self.written_bytes % BLOCK_BYTES;
            let (now, later) = rest.split_at(rest.len().min(left as usize));
            self.block.update(now);
            self.written_bytes += now.len() as u64;
            if self.written_bytes.is_multiple_of(BLOCK_BYTES) {
                self.end_block();
            }
            rest = later;
        }
        Ok(())
    }

    fn end_block(&mut self) {
        let digest = std::mem::replace(&mut self.block, block_digest());
        self.table.extend_from_slice(&digest.finalize().to_le_bytes());
    }

    /// On disk, with its name, when this returns and `fsync` is on.
    pub fn finish(mut self, fsync: bool) -> Result<NewFile, ApiError> {
        if !self.written_bytes.is_multiple_of(BLOCK_BYTES) {
            self.end_block();
        }
        self.file.write_all(&self.table).map_err(at("writing", &self.path))?;
        self.file.set_len(self.written_bytes + self.table.len() as u64).map_err(at("cutting", &self.path))?;
        self.new.part.table_crc = crc_fast::crc64_nvme(&self.table);
        if fsync {
            self.file.sync_all().map_err(at("fsync of", &self.path))?;
            sync_directory(self.path.parent().expect("a file lies in a shard directory"))?;
        }
        Ok(self.new)
    }
}

/// The same content under another name: one more name of the same bytes where the file system allows it, else a copy of them.
pub fn duplicate(directory: &Path, part: &FilePart, fsync: bool) -> Result<NewFile, ApiError> {
    let from = path(directory, part.id);
    let new = NewFile { directory: directory.to_owned(), part: FilePart { id: FileId::new(), ..part.clone() }, kept: false };
    let to = path(directory, new.part.id);
    if fs::hard_link(&from, &to).is_err() {
        fs::copy(&from, &to).map_err(at("copying", &from))?;
        if fsync {
            File::open(&to).and_then(|file| file.sync_all()).map_err(at("fsync of", &to))?;
        }
    }
    if fsync {
        sync_directory(&shard_directory(directory, new.part.id))?;
    }
    Ok(new)
}

/// A file open for reading, its table compared.
pub struct Readable {
    file: Arc<File>,
    path: PathBuf,
    size_bytes: u64,
    table: Vec<u8>,
}

impl Readable {
    pub fn open(directory: &Path, part: &FilePart) -> Result<Self, ApiError> {
        let path = path(directory, part.id);
        let damaged = |what: &str| {
            let subject = path.display().to_string();
            ApiError::new(Code::ChecksumMismatch, &subject, format!("the content file {subject} {what}; put the object again or delete it"))
        };
        let file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(damaged("is gone")),
            opened => opened.map_err(at("opening", &path))?,
        };
        let mut table = vec![0; part.size_bytes.div_ceil(BLOCK_BYTES) as usize * 8];
        match file.read_exact_at(&mut table, part.size_bytes) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(damaged("is shorter than it was")),
            read => read.map_err(at("reading", &path))?,
        }
        if crc_fast::crc64_nvme(&table) != part.table_crc {
            return Err(damaged("has a damaged table of checksums"));
        }
        Ok(Self { file: Arc::new(file), path, size_bytes: part.size_bytes, table })
    }

    /// The block that holds this offset, and where it begins.
    pub async fn block(&self, offset: u64) -> Result<(u64, Bytes), ApiError> {
        let number = offset / BLOCK_BYTES;
        let start = number * BLOCK_BYTES;
        let length = BLOCK_BYTES.min(self.size_bytes - start) as usize;
        let block = at_hand::read(&self.file, start, length, 0).await.map_err(at("reading", &self.path))?;
        self.compare(number, &block)?;
        Ok((start, block.freeze()))
    }

    fn compare(&self, number: u64, block: &[u8]) -> Result<(), ApiError> {
        let entry = &self.table[number as usize * 8..][..8];
        let same = crc_fast::crc64_nvme(block).to_le_bytes() == entry;
        same.then_some(()).ok_or_else(|| self.damaged(number))
    }

    fn damaged(&self, number: u64) -> ApiError {
        let subject = self.path.display().to_string();
        let message = format!("block {number} of {subject} is damaged on the node's disk; it was not given out");
        ApiError::new(Code::ChecksumMismatch, subject, message)
    }

    /// Every block of it, from a thread that may wait.
    pub fn compare_all(&self, care: &mut dyn Care) -> Result<(), ApiError> {
        let mut buffer = vec![0; BLOCK_BYTES.min(self.size_bytes) as usize];
        for number in 0..self.size_bytes.div_ceil(BLOCK_BYTES) {
            let start = number * BLOCK_BYTES;
            let block = &mut buffer[..BLOCK_BYTES.min(self.size_bytes - start) as usize];
            care.before(Some(&self.file), start, block.len())?;
            match self.file.read_exact_at(block, start) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(self.damaged(number)),
                read => read.map_err(at("reading", &self.path))?,
            }
            self.compare(number, block)?;
            care.after(&self.file, start, block.len());
        }
        Ok(())
    }
}
