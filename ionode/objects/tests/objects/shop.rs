//! Objects on a directory of their own, and copies of that directory as a kill would leave it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use stager_core::error::ApiError;
use stager_objects::{Attributes, BucketName, Condition, Name, Object, Objects, Options, Owner};
use stager_store::{Log, Sync};

pub const INLINE: u64 = 1000;

pub struct Shop {
    pub root: tempfile::TempDir,
    pub objects: Objects,
    pub log: Arc<Log>,
    pub share_bytes: u64,
    /// Off where only kills are played, which fsync does not matter to.
    fsync: bool,
}

pub fn open(root: &Path, share_bytes: u64, fsync: bool) -> (Objects, Arc<Log>) {
    let sync = if fsync { Sync::Always } else { Sync::Never };
    let options = stager_store::Options { sync, segment_bytes: 64 << 10, index_cache_bytes: 1 << 20, ..Default::default() };
    let log = Arc::new(Log::open(root, options).unwrap().0);
    let objects = Objects::open(log.clone(), root, Options { share_bytes, fsync, inline_bytes_max: INLINE }).unwrap();
    let swept = objects.find_garbage().unwrap();
    objects.remove_garbage(swept).unwrap();
    (objects, log)
}

/// Every byte, twice different for two seeds.
pub fn content(size: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..size).map(next).collect()
}

pub fn bucket() -> BucketName {
    Owner::default().bucket("bucket").unwrap()
}

pub fn name(key: &str) -> Name {
    Name::new(bucket(), key)
}

/// In memory where there is such a place and nothing has to reach a disk.
fn directory(fsync: bool) -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if !fsync && memory.is_dir() {
        tempfile::tempdir_in(memory).unwrap()
    } else {
        tempfile::tempdir().unwrap()
    }
}

impl Shop {
    pub async fn new(share_bytes: u64) -> Self {
        Self::with(share_bytes, true).await
    }

    pub async fn with(share_bytes: u64, fsync: bool) -> Self {
        let root = directory(fsync);
        let (objects, log) = open(root.path(), share_bytes, fsync);
        objects.create_bucket(&bucket()).await.unwrap();
        Self { root, objects, log, share_bytes, fsync }
    }

    /// What a killed process leaves: everything that was written, nothing that was to be.
    pub fn killed(&self) -> Self {
        let root = directory(self.fsync);
        copy_tree(self.root.path(), root.path());
        let (objects, log) = open(root.path(), self.share_bytes, self.fsync);
        Self { root, objects, log, share_bytes: self.share_bytes, fsync: self.fsync }
    }

    pub fn files(&self) -> Vec<PathBuf> {
        let shards = std::fs::read_dir(self.root.path().join("objects")).unwrap();
        let mut files: Vec<PathBuf> =
            shards.flat_map(|shard| std::fs::read_dir(shard.unwrap().path()).unwrap().map(|file| file.unwrap().path())).collect();
        files.sort();
        files
    }

    pub fn disk_bytes(&self) -> u64 {
        use std::os::unix::fs::MetadataExt;
        self.files().iter().map(|file| file.metadata().unwrap().blocks() * 512).sum()
    }
}

fn copy_tree(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_tree(&entry.path(), &target);
        } else if let Err(error) = std::fs::copy(entry.path(), &target) {
            // The index drops a file of its own while we copy: it is built anew from the log where one is missing.
            assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{}", entry.path().display());
        }
    }
}

pub async fn put(objects: &Objects, name: &Name, bytes: &[u8], condition: Condition) -> Result<Object, ApiError> {
    let mut incoming = objects.receive(name, bytes.len() as u64, None).await?;
    for piece in bytes.chunks(300_000) {
        incoming.write(Bytes::copy_from_slice(piece)).await?;
    }
    objects.put(name, incoming.finish().await?, Attributes::default(), condition).await
}

pub async fn read(objects: &Objects, name: &Name, range: std::ops::Range<u64>) -> Result<Vec<u8>, ApiError> {
    let mut reader = objects.find(name).await?.read(range);
    let mut bytes = Vec::new();
    while let Some(block) = reader.next().await? {
        bytes.extend_from_slice(&block);
    }
    Ok(bytes)
}

pub async fn whole(objects: &Objects, name: &Name) -> Result<Vec<u8>, ApiError> {
    let size = objects.head(name)?.size_bytes;
    read(objects, name, 0..size).await
}

pub fn code<T: std::fmt::Debug>(outcome: Result<T, ApiError>) -> String {
    outcome.unwrap_err().code.to_string()
}
