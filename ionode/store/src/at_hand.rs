//! Bytes of files on their way to a network: read without a change of threads where the page cache has them, into buffers that are used
//! again. Knows files and memory, not what the bytes are.
//!
//! The one rule: nobody waits for a disk on a thread of the runtime.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use rustix::io::{preadv2, Errno, ReadWriteFlags};

/// Longer reads get memory of their own. Space for a block of 1 MiB and what is put in front of it.
const KEPT_BYTES: usize = (1 << 20) + 64;
/// Shorter ones too: it costs nothing there.
const SHORT_BYTES: usize = 32 << 10;
const KEPT_MAX: usize = 32;

/// Buffers without a user. New memory would be cleared by the kernel and again by us, for every block that is sent.
static KEPT: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

/// `length` bytes that may be written; when the last reader of its `Bytes` is gone the memory is used again.
pub struct Buffer {
    memory: Vec<u8>,
    length: usize,
}

impl Buffer {
    /// What stands in it is what its last user left: all of it has to be written over.
    pub fn new(length: usize) -> Self {
        let memory = match length {
            SHORT_BYTES..=KEPT_BYTES => KEPT.lock().expect("nobody panics here").pop().unwrap_or_else(|| vec![0; KEPT_BYTES]),
            _ => vec![0; length],
        };
        Self { memory, length }
    }

    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.memory.len() == KEPT_BYTES {
            let mut kept = KEPT.lock().expect("nobody panics here");
            if kept.len() < KEPT_MAX {
                kept.push(std::mem::take(&mut self.memory));
            }
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[..self.length]
    }
}
impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[..self.length]
    }
}
impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

/// Exactly `length` bytes from `offset` on, behind `lead` bytes that are the caller's to fill.
pub async fn read(file: &Arc<File>, offset: u64, length: usize, lead: usize) -> io::Result<Buffer> {
    let mut buffer = Buffer::new(lead + length);
    let came = read_now(file, &mut buffer[lead..], offset)?;
    if came == length {
        return Ok(buffer);
    }
    let file = file.clone();
    let rest = tokio::task::spawn_blocking(move || file.read_exact_at(&mut buffer[lead + came..], offset + came as u64).map(|()| buffer));
    rest.await.map_err(io::Error::other)?
}

/// As `read`; `None` where the page cache has not all of it.
pub fn now(file: &File, offset: u64, length: usize) -> io::Result<Option<Buffer>> {
    let mut buffer = Buffer::new(length);
    let came = read_now(file, &mut buffer, offset)?;
    Ok((came == length).then_some(buffer))
}

/// As `read`, from a thread that may wait.
pub fn waiting(file: &File, offset: u64, length: usize) -> io::Result<Buffer> {
    let mut buffer = Buffer::new(length);
    file.read_exact_at(&mut buffer, offset)?;
    Ok(buffer)
}

/// What of it the page cache has, up to the first byte it has not; less, too, at the end of the file.
fn read_now(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut came = 0;
    while came < bytes.len() {
        match preadv2(file, &mut [IoSliceMut::new(&mut bytes[came..])], offset + came as u64, ReadWriteFlags::NOWAIT) {
            // A file system that knows no such reading: nothing is at hand there.
            Ok(0) | Err(Errno::AGAIN | Errno::OPNOTSUPP) => break,
            Ok(more) => came += more,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(came)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file_of(bytes: &[u8]) -> Arc<File> {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(bytes, 0).unwrap();
        Arc::new(file)
    }

    #[tokio::test]
    async fn bytes_come_behind_their_lead_whatever_was_in_the_buffer_before() {
        let content: Vec<u8> = (0..300_000u32).map(|at| at as u8).collect();
        let file = file_of(&content);
        for (offset, length) in [(0, 300_000), (7, 40_000), (299_999, 1), (5, 0)] {
            let mut buffer = read(&file, offset, length, 9).await.unwrap();
            buffer[..9].fill(255);
            let bytes = buffer.freeze();
            assert_eq!((&bytes[..9], &bytes[9..]), (&[255; 9][..], &content[offset as usize..offset as usize + length]));
        }
    }

    #[tokio::test]
    async fn a_file_that_ends_before_is_an_error_and_not_what_the_buffer_held() {
        let file = file_of(&[1; 50_000]);
        drop(read(&file, 0, 50_000, 0).await.unwrap());
        assert_eq!(read(&file, 10, 50_000, 0).await.err().unwrap().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn what_was_just_written_is_at_hand() {
        let (file, mut bytes) = (file_of(&[7; 100]), [0; 100]);
        let came = read_now(&file, &mut bytes, 0).unwrap();
        assert!(bytes[..came].iter().all(|byte| *byte == 7));
    }
}
