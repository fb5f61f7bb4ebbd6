//! Cutting byte ranges into requests. Pure.
//!
//! The one rule: every byte asked for is in exactly one piece, and a range outside the file is an error, never a shorter answer.

use std::collections::VecDeque;
use std::ops::Range;

use stager_core::error::ApiError;

use crate::{failure, Entry};

/// Takes the next piece off them.
pub fn cut(ranges: &mut VecDeque<Range<u64>>, piece_bytes: u64) -> Option<Range<u64>> {
    let mut range = ranges.pop_front()?;
    let piece = range.start..range.end.min(range.start + piece_bytes);
    range.start = piece.end;
    if !range.is_empty() {
        ranges.push_front(range);
    }
    Some(piece)
}

pub fn checked(expected: &Entry, ranges: &[Range<u64>]) -> Result<VecDeque<Range<u64>>, ApiError> {
    if ranges.iter().any(|range| range.start > range.end || range.end > expected.size_bytes) {
        return Err(failure::bad_range(&expected.path));
    }
    Ok(ranges.iter().filter(|range| !range.is_empty()).cloned().collect())
}

pub fn pieces(expected: &Entry, ranges: &[Range<u64>], piece_bytes: u64) -> Result<Vec<Range<u64>>, ApiError> {
    let mut left = checked(expected, ranges)?;
    Ok(std::iter::from_fn(|| cut(&mut left, piece_bytes)).collect())
}
