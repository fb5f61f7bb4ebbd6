//! Cutting byte ranges into requests. Pure.
//!
//! The one rule: every byte asked for is in exactly one piece, and a range outside the file is an error, never a shorter answer.

use std::ops::Range;

use stager_core::error::ApiError;

use crate::{failure, Entry};

pub fn pieces(expected: &Entry, ranges: &[Range<u64>], piece_bytes: u64) -> Result<Vec<Range<u64>>, ApiError> {
    let mut pieces = Vec::new();
    for range in ranges {
        if range.start > range.end || range.end > expected.size_bytes {
            return Err(failure::bad_range(&expected.path));
        }
        let mut start = range.start;
        while start < range.end {
            let end = (start + piece_bytes).min(range.end);
            pieces.push(start..end);
            start = end;
        }
    }
    Ok(pieces)
}
