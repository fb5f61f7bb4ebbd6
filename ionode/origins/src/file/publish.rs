//! An upload to this host: temporary name, write, fsync, read back, rename, fsync of the directory. Each step runs on a blocking thread, all
//! of a small file's as one; the directory is synced once for all who published there until that begins.
//!
//! The one rule: the final name appears by one rename of bytes that were read back from the file system, and never over a file nobody
//! allowed to replace.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::SystemTime;

use nix::errno::Errno;
use nix::fcntl::{openat, posix_fadvise, renameat, renameat2, AtFlags, OFlag, PosixFadviseAdvice, RenameFlags};
use nix::sys::stat::{fchmod, fstat, Mode};
use nix::unistd::{fsync, linkat, unlinkat, UnlinkatFlags};
use stager_core::error::{ApiError, Code};

use super::{beneath, blocking, Site, READ_BYTES};
use crate::compared::{Compared, There};
use crate::failure;
use crate::local::{LocalFile, Sha256Of, SMALL_BYTES};
use crate::newer::seconds_of;
use crate::path::{split, temporary_of};
use crate::path_locks::PathGuard;
use crate::rights;
use crate::{Entry, EntryKind, Made, Pace, Synced, Upload, Uploaded, Verified};

const WRITE_BYTES: usize = 4 << 20;

/// What the blocking steps need, owned: they may outlive the future that started them.
struct Job {
    site: Arc<Site>,
    path: String,
    name: String,
    temporary: String,
    directory: OwnedFd,
    size_bytes: u64,
    blake3: blake3::Hash,
    replace: bool,
    made: Option<Made>,
    executable: bool,
    pace: Pace,
    /// Held by each running step, so that the next try of this path waits for it.
    _guard: PathGuard,
}

pub async fn upload(site: &Arc<Site>, guard: PathGuard, upload: &Upload<'_>, clean: String) -> Result<Uploaded, ApiError> {
    let expected = blake3::Hash::from_bytes(upload.blake3);
    let (size_bytes, replace, pace) = (upload.size_bytes, upload.replace, upload.pace.clone());
    let wanted = Wanted { path: clean, size_bytes, blake3: expected, replace, pace };
    if upload.size_bytes <= SMALL_BYTES {
        return small(site, guard, upload, wanted).await;
    }
    let local = LocalFile::open(upload).await?;
    let (at, sought, ours) = (site.clone(), wanted.clone(), local.handle());
    let bytes_read = match blocking(move || existing(&at, &sought, Some(&ours))).await? {
        There::Adopted(adopted) => return Ok(adopted),
        There::Other { bytes_read } => bytes_read,
    };
    let preparing = Job::preparing(site, guard, upload, wanted.clone());
    let job = Arc::new(blocking(preparing).await?);
    let result = write_and_publish(&job, local, upload).await;
    if result.is_err() {
        let job = job.clone();
        blocking(move || job.remove_temporary()).await;
    }
    match result {
        Err(error) => {
            let at = site.clone();
            blocking(move || others(&at, &wanted, error)).await
        }
        Ok(uploaded) => Ok(Uploaded { bytes_moved: uploaded.bytes_moved + bytes_read, ..uploaded }),
    }
}

/// To hand each step over to another thread would cost more than the step.
async fn small(site: &Arc<Site>, guard: PathGuard, upload: &Upload<'_>, wanted: Wanted) -> Result<Uploaded, ApiError> {
    upload.pace.pass(upload.size_bytes).await;
    let (local, shown, pace) = (upload.local.to_owned(), upload.path.to_owned(), upload.pace.clone());
    let (at, size_bytes, preparing) = (site.clone(), upload.size_bytes, Job::preparing(site, guard, upload, wanted.clone()));
    let done = blocking(move || {
        let content = LocalFile::open_here(local, shown, size_bytes, pace)?.whole(&wanted.blake3)?;
        let bytes_read = match existing(&at, &wanted, None)? {
            There::Adopted(adopted) => return Ok((adopted, None)),
            There::Other { bytes_read } => bytes_read,
        };
        let job = Arc::new(preparing()?);
        match job.write_and_publish_whole(&content) {
            Ok((directory, token)) => {
                let uploaded = job.uploaded(token);
                Ok((Uploaded { bytes_moved: uploaded.bytes_moved + bytes_read, ..uploaded }, Some((directory, job))))
            }
            Err(error) => {
                job.remove_temporary();
                others(&at, &wanted, error).map(|adopted| (adopted, None))
            }
        }
    });
    let (uploaded, published) = done.await?;
    (upload.progress)(size_bytes);
    match published {
        Some((directory, job)) => Ok(Uploaded { synced: job.sync_names(&directory).await?, ..uploaded }),
        None => Ok(uploaded),
    }
}

/// What is to be where.
#[derive(Clone)]
struct Wanted {
    path: String,
    size_bytes: u64,
    blake3: blake3::Hash,
    replace: bool,
    pace: Pace,
}

/// Adopts equal content; other content is an error unless it may be replaced. Then reading ends where it differs from `ours`.
fn existing(site: &Site, wanted: &Wanted, ours: Option<&File>) -> Result<There, ApiError> {
    let path = wanted.path.as_str();
    let entry = match site.stat(path) {
        Ok(entry) => entry,
        Err(error) if error.code == Code::NotFound => return Ok(There::Other { bytes_read: 0 }),
        Err(error) if error.code == Code::LinkLeadsOut => return Err(site.parent_failure(Errno::ELOOP, path)),
        Err(error) => return Err(error),
    };
    if entry.kind == EntryKind::Directory {
        return Err(failure::is_directory(path, &site.place));
    }
    let compared = match entry.size_bytes == wanted.size_bytes {
        true => compared(site, &entry, wanted, ours.filter(|_| wanted.replace))?,
        false => Compared::OTHER_SIZE,
    };
    if compared.is_same {
        let (verified, synced, bytes_moved) = (Verified::Adopted, put_on_disk(site, &entry)?, compared.bytes_read);
        return Ok(There::Adopted(Uploaded { token: entry.token, verified, synced, bytes_moved }));
    }
    if wanted.replace {
        Ok(There::Other { bytes_read: compared.bytes_read })
    } else {
        Err(failure::destination_exists(path, &site.place))
    }
}

/// Somebody else made the file meanwhile: theirs may be the same.
fn others(site: &Site, wanted: &Wanted, error: ApiError) -> Result<Uploaded, ApiError> {
    if error.code != Code::DestinationExists {
        return Err(error);
    }
    match existing(site, &Wanted { replace: false, ..wanted.clone() }, None)? {
        There::Adopted(adopted) => Ok(adopted),
        There::Other { .. } => Err(error),
    }
}

/// Whoever wrote it may not have done so.
fn put_on_disk(site: &Site, entry: &Entry) -> Result<Synced, ApiError> {
    let failed = |errno| site.failure(errno, &entry.path);
    match fsync(site.open_expected(entry)?) {
        Err(Errno::EINVAL | Errno::ENOTSUP) => return Ok(Synced::Nothing),
        other => other.map_err(failed)?,
    }
    let folder = site.base(&entry.path)?.open_beneath(split(&entry.path).0, OFlag::O_RDONLY | OFlag::O_DIRECTORY);
    match folder {
        // One that may be entered and not read.
        Err(Errno::EACCES) => Ok(Synced::Content),
        folder => name_synced(&folder.map_err(failed)?).map_err(failed),
    }
}

fn name_synced(folder: &OwnedFd) -> Result<Synced, Errno> {
    beneath::sync_directory(folder).map(|synced| if synced { Synced::ContentAndName } else { Synced::Content })
}

fn compared(site: &Site, entry: &Entry, wanted: &Wanted, ours: Option<&File>) -> Result<Compared, ApiError> {
    let handle = site.open_expected(entry)?;
    let (mut hasher, mut bytes_read) = (blake3::Hasher::new(), 0);
    while bytes_read < entry.size_bytes {
        let range = bytes_read..(bytes_read + READ_BYTES).min(entry.size_bytes);
        let theirs = site.read(&handle, &entry.path, range.clone())?;
        bytes_read = range.end;
        wanted.pace.was_read_back(theirs.len() as u64);
        hasher.update(&theirs);
        if ours.is_some_and(|ours| !begins_with(ours, range.start, &theirs)) {
            return Ok(Compared { is_same: false, bytes_read });
        }
    }
    site.same_token(entry, &site.stat(&entry.path)?)?;
    Ok(Compared { is_same: hasher.finalize() == wanted.blake3, bytes_read })
}

/// From there on. What cannot be read is told when it is to be sent.
fn begins_with(file: &File, offset: u64, wanted: &[u8]) -> bool {
    let mut piece = vec![0; wanted.len()];
    file.read_exact_at(&mut piece, offset).is_ok() && piece == wanted
}

fn hash_expected(site: &Site, entry: &Entry, pace: &Pace) -> Result<blake3::Hash, ApiError> {
    let handle = site.open_expected(entry)?;
    let hash = hash_handle(site, &handle, &entry.path, entry.size_bytes, pace)?;
    site.same_token(entry, &site.stat(&entry.path)?)?;
    Ok(hash)
}

fn hash_handle(site: &Site, handle: &OwnedFd, path: &str, size_bytes: u64, pace: &Pace) -> Result<blake3::Hash, ApiError> {
    let mut hasher = blake3::Hasher::new();
    let mut start = 0;
    while start < size_bytes {
        let end = (start + READ_BYTES).min(size_bytes);
        hasher.update(&site.read(handle, path, start..end)?);
        pace.was_read_back(end - start);
        start = end;
    }
    Ok(hasher.finalize())
}

async fn write_and_publish(job: &Arc<Job>, local: LocalFile, upload: &Upload<'_>) -> Result<Uploaded, ApiError> {
    let at = job.clone();
    let (file, clock_ahead_s) = blocking(move || at.begin()).await?;
    let file = Arc::new(file);
    let source = local.source(WRITE_BYTES, Sha256Of::Nothing);
    while let Some((offset, piece)) = source.next().await? {
        let (at, to, length) = (job.clone(), file.clone(), piece.len() as u64);
        blocking(move || to.write_all_at(&piece, offset).map_err(|error| at.failure(errno_of(&error)))).await?;
        (upload.progress)(length);
    }
    if source.hashes().await.blake3 != job.blake3 {
        return Err(source.damaged());
    }
    let at = job.clone();
    let seen = blocking(move || at.finish(&file)).await?;
    let at = job.clone();
    let (directory, token) = blocking(move || at.publish(&seen, clock_ahead_s)).await?;
    Ok(Uploaded { synced: job.sync_names(&directory).await?, ..job.uploaded(token) })
}

impl Job {
    /// What makes the directory that the file goes to, on a blocking thread.
    fn preparing(
        site: &Arc<Site>,
        guard: PathGuard,
        upload: &Upload<'_>,
        wanted: Wanted,
    ) -> impl FnOnce() -> Result<Self, ApiError> + Send + 'static {
        let temporary = temporary_of(&wanted.path, upload.transfer_id);
        let (site, made, executable) = (site.clone(), upload.made, upload.executable);
        move || {
            let Wanted { path, size_bytes, blake3, replace, pace } = wanted;
            let (parent, name) = split(&path);
            let directory = site.base(&path)?.directory_without_links(parent, true).map_err(|errno| site.parent_failure(errno, &path))?;
            let name = name.to_owned();
            Ok(Self { site, path, name, temporary, directory, size_bytes, blake3, replace, made, executable, pace, _guard: guard })
        }
    }

    fn write_and_publish_whole(&self, content: &[u8]) -> Result<(String, String), ApiError> {
        let (file, clock_ahead_s) = self.begin()?;
        file.write_all_at(content, 0).map_err(|error| self.failure(errno_of(&error)))?;
        self.publish(&self.finish(&file)?, clock_ahead_s)
    }

    /// Its name is not on the disk yet.
    fn uploaded(&self, token: String) -> Uploaded {
        Uploaded { token, verified: Verified::Readback, synced: Synced::Content, bytes_moved: 2 * self.size_bytes }
    }

    async fn sync_names(self: &Arc<Self>, directory: &str) -> Result<Synced, ApiError> {
        let at = self.clone();
        let syncing = async move { blocking(move || name_synced(&at.directory)).await };
        self.site.syncs.join(directory, syncing).await.map_err(|errno| self.failure(errno))
    }

    fn remove_temporary(&self) {
        unlinkat(&self.directory, self.temporary.as_str(), UnlinkatFlags::NoRemoveDir).ok();
    }

    fn failure(&self, errno: Errno) -> ApiError {
        self.site.failure(errno, &self.path)
    }

    /// A fresh inode each time: a step of a cancelled try may still write to the old one.
    fn create(&self) -> Result<File, ApiError> {
        match unlinkat(&self.directory, self.temporary.as_str(), UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(errno) => return Err(self.failure(errno)),
        }
        let mode = Mode::from_bits_truncate(0o600);
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        openat(&self.directory, self.temporary.as_str(), flags, mode).map(File::from).map_err(|errno| self.failure(errno))
    }

    /// The new file, and by how much the clock of its file system, which may be another host's, is before ours.
    fn begin(&self) -> Result<(File, i64), ApiError> {
        let file = self.create()?;
        let ahead_s = fstat(&file).map_err(|errno| self.failure(errno))?.st_mtime - seconds_of(SystemTime::now());
        self.refuse_newer(ahead_s)?;
        Ok((file, ahead_s))
    }

    fn refuse_newer(&self, clock_ahead_s: i64) -> Result<(), ApiError> {
        let Some(made) = self.made else { return Ok(()) };
        match self.site.stat(&self.path) {
            Ok(found) => made.refuse_newer(&found, seconds_of(SystemTime::now()) + clock_ahead_s, &self.site.place),
            Err(error) if error.code == Code::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Reads back through a new handle, with the written pages dropped so that they come from the disk where the kernel lets them go.
    fn finish(&self, file: &File) -> Result<Entry, ApiError> {
        fsync(file).map_err(|errno| self.failure(errno))?;
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let fresh = openat(&self.directory, self.temporary.as_str(), flags, Mode::empty()).map_err(|errno| self.failure(errno))?;
        let found = fstat(&fresh).map_err(|errno| self.failure(errno))?.st_size as u64;
        posix_fadvise(&fresh, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED).ok();
        if found != self.size_bytes || hash_handle(&self.site, &fresh, &self.path, found, &self.pace)? != self.blake3 {
            return Err(failure::written_differs(&self.path, &self.site.place));
        }
        fchmod(&fresh, rights::file_mode(self.executable)).map_err(|errno| self.failure(errno))?;
        self.site.entry(&self.path, &fstat(&fresh).map_err(|errno| self.failure(errno))?)
    }

    /// (which directory it is in, its token). `seen`: what was read back.
    fn publish(&self, seen: &Entry, clock_ahead_s: i64) -> Result<(String, String), ApiError> {
        self.refuse_newer(clock_ahead_s)?;
        self.rename().map_err(|errno| match errno {
            Errno::EEXIST => failure::destination_exists(&self.path, &self.site.place),
            other => self.failure(other),
        })?;
        let entry = self.site.stat(&self.path)?;
        // Somebody may have put another file there already.
        let hash = || hash_expected(&self.site, &entry, &self.pace);
        if entry.token != seen.token && (entry.size_bytes != seen.size_bytes || hash()? != self.blake3) {
            return Err(failure::source_changed(&self.path, &self.site.place, &seen.token, &entry.token));
        }
        // Another one may have its name meanwhile.
        let directory = fstat(&self.directory).map_err(|errno| self.failure(errno))?;
        Ok((format!("{}:{}", directory.st_dev, directory.st_ino), entry.token))
    }

    fn rename(&self) -> Result<(), Errno> {
        let (directory, from, to) = (&self.directory, self.temporary.as_str(), self.name.as_str());
        if self.replace {
            return renameat(directory, from, directory, to);
        }
        match renameat2(directory, from, directory, to, RenameFlags::RENAME_NOREPLACE) {
            Err(Errno::EINVAL | Errno::ENOSYS | Errno::ENOTSUP) => {
                linkat(directory, from, directory, to, AtFlags::empty())?;
                unlinkat(directory, from, UnlinkatFlags::NoRemoveDir)
            }
            other => other,
        }
    }
}

fn errno_of(error: &std::io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}
