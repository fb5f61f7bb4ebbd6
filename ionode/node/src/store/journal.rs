//! The writer of the commit log: one thread that joins what waits into one frame and one fsync. Knows the file, not what records mean.
//!
//! The one rule: a caller is answered only when its records, and the directories its files were renamed in, are on disk.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{mpsc, Arc};
use std::time::Instant;

use stager_core::error::ApiError;
use stager_core::record::Record;
use tokio::sync::oneshot;

use super::log;
use crate::failure::at;

const RECORDS_PER_FRAME_MAX: usize = 1000;

/// Whether fsync is done. Off is for benchmarks: a power loss may then take what was acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Durability(pub bool);

impl Durability {
    pub fn file(self, file: &File, path: &Path) -> Result<(), ApiError> {
        if self.0 {
            file.sync_all().map_err(at("fsync of", path))
        } else {
            Ok(())
        }
    }

    pub fn directory(self, path: &Path) -> Result<(), ApiError> {
        if !self.0 {
            return Ok(());
        }
        File::open(path).and_then(|directory| directory.sync_all()).map_err(at("fsync of", path))
    }

    /// Everything written to the file system that holds `path`: cheaper than an fsync each where a tree has many files.
    pub fn file_system(self, path: &Path) -> Result<(), ApiError> {
        if !self.0 {
            return Ok(());
        }
        let directory = File::open(path).map_err(at("opening", path))?;
        // SAFETY: the descriptor is open for as long as `directory` lives.
        if unsafe { libc::syncfs(directory.as_raw_fd()) } == 0 {
            return Ok(());
        }
        Err(at::<std::io::Error>("syncfs of", path)(std::io::Error::last_os_error()))
    }
}

struct Submission {
    records: Vec<Record>,
    directories: Vec<PathBuf>,
    answer: oneshot::Sender<Result<(), ApiError>>,
}

pub struct Journal {
    sender: mpsc::Sender<Submission>,
    broken: Arc<AtomicBool>,
}

impl Journal {
    /// Goes on behind the first `whole_bytes` of the log; what is after them is cut.
    pub fn open(path: &Path, whole_bytes: u64, durability: Durability) -> Result<Self, ApiError> {
        let mut file = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(path).map_err(at("opening", path))?;
        file.set_len(whole_bytes).map_err(at("cutting", path))?;
        file.seek(SeekFrom::End(0)).map_err(at("seeking in", path))?;
        let mut length = whole_bytes;
        if length == 0 {
            file.write_all(log::FILE_HEADER).map_err(at("writing", path))?;
            length = log::FILE_HEADER.len() as u64;
        }
        durability.file(&file, path)?;
        durability.directory(path.parent().expect("the log lies in a directory"))?;
        let (sender, receiver) = mpsc::channel();
        let broken = Arc::new(AtomicBool::new(false));
        let writer = Writer { file, path: path.to_owned(), length, durability, broken: None, told_broken: broken.clone() };
        std::thread::Builder::new()
            .name("journal".into())
            .spawn(move || writer.run(&receiver))
            .map_err(at("starting the writer of", path))?;
        Ok(Self { sender, broken })
    }

    pub fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed)
    }

    /// On disk when this returns, in the order of the calls.
    pub async fn write(&self, records: Vec<Record>, directories: Vec<PathBuf>) -> Result<(), ApiError> {
        self.submit(records, directories)?.await.map_err(|_| gone())?
    }

    /// As `write`, outside of any runtime.
    pub fn write_blocking(&self, records: Vec<Record>) -> Result<(), ApiError> {
        self.submit(records, Vec::new())?.blocking_recv().map_err(|_| gone())?
    }

    fn submit(&self, records: Vec<Record>, directories: Vec<PathBuf>) -> Result<oneshot::Receiver<Result<(), ApiError>>, ApiError> {
        let (answer, answered) = oneshot::channel();
        self.sender.send(Submission { records, directories, answer }).map_err(|_| gone())?;
        Ok(answered)
    }
}

fn gone() -> ApiError {
    ApiError::transient("draining", "journal", "the node is ending; ask it again when it has been started again")
}

struct Writer {
    file: File,
    path: PathBuf,
    length: u64,
    durability: Durability,
    /// After a failed fsync nobody knows what is on disk: nothing more is acknowledged by this process.
    broken: Option<ApiError>,
    told_broken: Arc<AtomicBool>,
}

impl Writer {
    fn run(mut self, receiver: &mpsc::Receiver<Submission>) {
        while let Ok(first) = receiver.recv() {
            let mut batch = vec![first];
            let mut records = batch[0].records.len();
            while records < RECORDS_PER_FRAME_MAX {
                let Ok(next) = receiver.try_recv() else { break };
                records += next.records.len();
                batch.push(next);
            }
            let outcome = self.write(&batch);
            for submission in batch {
                // A caller that was cancelled no longer listens; its records stand all the same.
                let _ = submission.answer.send(outcome.clone());
            }
        }
    }

    fn write(&mut self, batch: &[Submission]) -> Result<(), ApiError> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        let directories: BTreeSet<&PathBuf> = batch.iter().flat_map(|submission| &submission.directories).collect();
        for directory in directories {
            self.durability.directory(directory)?;
        }
        let records: Vec<Record> = batch.iter().flat_map(|submission| submission.records.iter().cloned()).collect();
        if records.is_empty() {
            return Ok(());
        }
        let bytes = log::frame(&records);
        if let Err(error) = self.file.write_all(&bytes) {
            self.take_back();
            return Err(at::<std::io::Error>("writing", &self.path)(error));
        }
        let synced = Instant::now();
        if let Err(error) = self.durability.file(&self.file, &self.path) {
            tracing::error!(%error, "the commit log cannot be synced; nothing more is acknowledged until a restart");
            return Err(self.break_down(error));
        }
        self.length += bytes.len() as u64;
        let counts = crate::metrics::counts();
        counts.journal_fsync.observe(synced.elapsed().as_secs_f64());
        counts.journal_writes.inc();
        counts.journal_records.inc_by(records.len() as u64);
        counts.journal_bytes.inc_by(bytes.len() as u64);
        Ok(())
    }

    fn break_down(&mut self, error: ApiError) -> ApiError {
        self.told_broken.store(true, Ordering::Relaxed);
        self.broken.insert(error).clone()
    }

    /// A half-written frame would look like damage once another follows it.
    fn take_back(&mut self) {
        let cut = self.file.set_len(self.length).and_then(|()| self.file.seek(SeekFrom::Start(self.length)));
        if let Err(error) = cut {
            let error = at::<std::io::Error>("cutting", &self.path)(error);
            tracing::error!(%error, "the commit log cannot be cut back; nothing more is acknowledged until a restart");
            self.break_down(error);
        }
    }
}
