//! How many files and directories a link may have open at once. Knows counts only.
//!
//! The one rule: uploads never take all that there are: who reads, or puts names on the disk, waits behind no crowd of them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A larger file takes as many places to write as there are channels: as many are written at once as over one channel, and the others are
/// left to the next connection.
const SMALL_BYTES: u64 = 64 << 10;

pub struct Places {
    handles: Arc<Semaphore>,
    writing: Arc<Semaphore>,
    /// Of each channel: handles, and of these how many for files that are written.
    handles_each: usize,
    writing_each: usize,
    channels: AtomicUsize,
}

impl Places {
    /// Of one channel that holds so many handles.
    pub fn new(handles: usize) -> Self {
        let writing = (handles * 4 / 5).max(1);
        Self {
            handles: Arc::new(Semaphore::new(handles)),
            writing: Arc::new(Semaphore::new(writing)),
            handles_each: handles,
            writing_each: writing,
            channels: AtomicUsize::new(1),
        }
    }

    /// There is one channel more.
    pub fn add_channel(&self) {
        self.channels.fetch_add(1, Ordering::Relaxed);
        self.handles.add_permits(self.handles_each);
        self.writing.add_permits(self.writing_each);
    }

    /// Waits until the server can hold one more open file or directory.
    pub async fn for_handle(&self) -> OwnedSemaphorePermit {
        self.handles.clone().acquire_owned().await.expect("never closed")
    }

    /// None: it would be waited for, or be one of those that uploads leave to others.
    pub fn spare_for_handle(&self) -> Option<OwnedSemaphorePermit> {
        let left_to_others = self.channels() * (self.handles_each - self.writing_each);
        (self.handles.available_permits() > left_to_others).then(|| self.handles.clone().try_acquire_owned().ok()).flatten()
    }

    /// For one more file that is being written, its handle besides.
    pub fn to_write(&self, size_bytes: u64) -> Option<OwnedSemaphorePermit> {
        let places = if size_bytes <= SMALL_BYTES { 1 } else { self.channels() as u32 };
        self.writing.clone().try_acquire_many_owned(places).ok()
    }

    /// For a file of any size.
    pub fn has_one_to_write(&self) -> bool {
        self.writing.available_permits() >= self.channels()
    }

    /// How many files may be written over one channel at once.
    pub fn to_write_each(&self) -> usize {
        self.writing_each
    }

    fn channels(&self) -> usize {
        self.channels.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn of_two_channels() -> Places {
        let places = Places::new(10);
        places.add_channel();
        places
    }

    fn taken<T>(take: impl FnMut() -> Option<T>) -> Vec<T> {
        std::iter::from_fn(take).take(100).collect()
    }

    #[test]
    fn uploads_leave_handles_to_others() {
        let places = of_two_channels();
        let written = taken(|| places.to_write(1));
        let handles = taken(|| places.for_handle().now_or_never()).len();
        assert_eq!((written.len(), handles, places.has_one_to_write()), (16, 20, false));
    }

    #[test]
    fn a_large_file_takes_a_place_of_each_channel() {
        let places = of_two_channels();
        assert_eq!(taken(|| places.to_write(SMALL_BYTES + 1)).len(), 8);
    }

    #[test]
    fn what_is_read_behind_an_upload_takes_no_handle_that_uploads_leave_to_others() {
        let places = of_two_channels();
        let spare = taken(|| places.spare_for_handle());
        assert_eq!(spare.len(), 16);
        assert_eq!(taken(|| places.for_handle().now_or_never()).len(), 4, "for whoever reads, or puts names on the disk");
        drop(spare);
        assert!(places.spare_for_handle().is_some());
    }

    #[test]
    fn a_server_that_holds_one_handle_gets_uploads_too() {
        let places = Places::new(1);
        assert!(places.to_write(1).is_some() && places.for_handle().now_or_never().is_some());
    }
}
