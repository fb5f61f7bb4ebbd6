//! Bytes of a file into memory of their own. Knows a descriptor, not whose it is.
//!
//! The one rule: nobody clears memory that is about to be written over. Cleared memory comes from the kernel page by page, and for a file of
//! some 100 KiB that takes as long as all else.

use std::os::fd::AsFd;

use rustix::buffer::spare_capacity;
use rustix::io::{pread, Errno};

/// Fewer than `length` only where the file ends.
pub fn read(file: impl AsFd, offset: u64, length: usize) -> Result<Vec<u8>, Errno> {
    let mut bytes = Vec::with_capacity(length);
    while bytes.len() < length {
        let next = offset + bytes.len() as u64;
        match pread(&file, spare_capacity(&mut bytes), next) {
            Ok(0) => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    // There may be room for more than was asked for.
    bytes.truncate(length);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn what_is_there_is_read_and_no_more() {
        let mut file = tempfile::tempfile().unwrap();
        let content: Vec<u8> = (0..100_000u32).map(|at| (at % 251) as u8).collect();
        file.write_all(&content).unwrap();
        for (offset, length) in [(0, 100_000), (7, 40_000), (99_999, 1), (5, 0)] {
            assert_eq!(read(&file, offset, length).unwrap(), content[offset as usize..offset as usize + length]);
        }
        assert_eq!(read(&file, 99_990, 1000).unwrap(), content[99_990..]);
        assert!(read(&file, 200_000, 10).unwrap().is_empty());
    }
}
