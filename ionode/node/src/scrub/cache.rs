//! What of a file is in the page cache, and letting go of what was not. Knows pages only.
//!
//! The one rule: a page that was there before is never let go; where it cannot be told, nothing is.

use std::fs::File;
use std::os::fd::AsRawFd;

use nix::fcntl::{posix_fadvise, PosixFadviseAdvice};

/// Of all systems this runs on; where pages are larger, `resident` cannot tell and nothing is let go.
pub const PAGE_BYTES: u64 = 4096;

/// Otherwise the kernel brings in pages that `resident` then takes for somebody else's.
pub fn no_read_ahead(file: &File) {
    let _ = posix_fadvise(file, 0, 0, PosixFadviseAdvice::POSIX_FADV_RANDOM);
}

/// Page by page; `offset` is a page's. Empty: it cannot be told.
pub fn resident(file: &File, offset: u64, length: usize) -> Vec<bool> {
    let mut pages = vec![0u8; length.div_ceil(PAGE_BYTES as usize)];
    // SAFETY: a new mapping that nobody reads through; mincore writes one byte for each page of it into `pages`, which has one for each.
    unsafe {
        let place = libc::mmap(std::ptr::null_mut(), length, libc::PROT_NONE, libc::MAP_SHARED, file.as_raw_fd(), offset as libc::off_t);
        if place == libc::MAP_FAILED {
            return Vec::new();
        }
        let told = libc::mincore(place, length, pages.as_mut_ptr());
        libc::munmap(place, length);
        if told != 0 {
            return Vec::new();
        }
    }
    pages.into_iter().map(|page| page & 1 == 1).collect()
}

/// Of what was read at `offset`, all pages that were not there before.
pub fn let_go(file: &File, offset: u64, length: usize, before: &[bool]) {
    let pages = &before[..before.len().min(length.div_ceil(PAGE_BYTES as usize))];
    let mut start = 0;
    for run in pages.chunk_by(|one, next| one == next) {
        let at = offset + start as u64 * PAGE_BYTES;
        if !run[0] {
            let _ = posix_fadvise(file, at as i64, (run.len() as u64 * PAGE_BYTES) as i64, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
        }
        start += run.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    const PAGES: usize = 64;

    #[test]
    fn only_pages_that_were_not_there_are_let_go() {
        let file = tempfile::tempfile().unwrap();
        let length = PAGES * PAGE_BYTES as usize;
        file.write_all_at(&vec![1; length], 0).unwrap();
        file.sync_all().unwrap();
        no_read_ahead(&file);
        posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED).unwrap();
        if resident(&file, 0, length).contains(&true) {
            eprintln!("NOT RUN: this file system keeps its pages");
            return;
        }
        let mut buffer = vec![0; length];
        file.read_exact_at(&mut buffer[..8 * PAGE_BYTES as usize], 16 * PAGE_BYTES).unwrap();
        let before = resident(&file, 0, length);
        assert_eq!(before.iter().filter(|there| **there).count(), 8);
        file.read_exact_at(&mut buffer, 0).unwrap();
        assert!(resident(&file, 0, length).iter().all(|there| *there));
        let_go(&file, 0, length, &before);
        assert_eq!(resident(&file, 0, length), before);
    }
}
