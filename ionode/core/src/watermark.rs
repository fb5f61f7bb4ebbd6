//! Which bytes of a file have arrived, and up to where without a hole. May know nothing of where they are written.
//!
//! The one rule: a byte is counted once, and a chunk outside the file or over bytes already here is a fault of the sender.

use std::collections::BTreeMap;

#[derive(Clone, Debug, Default)]
pub struct Watermark {
    contiguous: u64,
    size_bytes: u64,
    /// Start -> end of what lies beyond the first hole. Invariant: disjoint, not touching, all above `contiguous`.
    beyond: BTreeMap<u64, u64>,
    arrived_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misplaced {
    OutOfBounds,
    Overlap,
}

impl Watermark {
    pub fn new(start: u64, size_bytes: u64) -> Self {
        Self { contiguous: start, size_bytes, beyond: BTreeMap::new(), arrived_bytes: start }
    }
    pub fn contiguous(&self) -> u64 {
        self.contiguous
    }
    pub fn arrived_bytes(&self) -> u64 {
        self.arrived_bytes
    }
    pub fn is_complete(&self) -> bool {
        self.contiguous == self.size_bytes
    }

    pub fn arrive(&mut self, offset: u64, length: u64) -> Result<(), Misplaced> {
        let end = offset.checked_add(length).filter(|end| *end <= self.size_bytes).ok_or(Misplaced::OutOfBounds)?;
        if length == 0 {
            return Ok(());
        }
        let before = self.beyond.range(..end).next_back();
        if offset < self.contiguous || before.is_some_and(|(_, before_end)| *before_end > offset) {
            return Err(Misplaced::Overlap);
        }
        self.arrived_bytes += length;
        let mut start = offset;
        let mut end = end;
        if let Some((before_start, _)) = before.filter(|(_, before_end)| **before_end == offset).map(|(s, e)| (*s, *e)) {
            self.beyond.remove(&before_start);
            start = before_start;
        }
        if let Some(after_end) = self.beyond.remove(&end) {
            end = after_end;
        }
        if start == self.contiguous {
            self.contiguous = end;
        } else {
            self.beyond.insert(start, end);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a plain array of booleans.
        #[test]
        fn agrees_with_a_bitmap(size in 1u64..200, start_part in 0u64..200, chunks in prop::collection::vec((0u64..220, 0u64..40), 0..80)) {
            let start = start_part % (size + 1);
            let mut mark = Watermark::new(start, size);
            let mut bitmap: Vec<bool> = (0..size).map(|byte| byte < start).collect();
            for (offset, length) in chunks {
                let fits = offset + length <= size;
                let fresh = fits && !bitmap[offset as usize..(offset + length) as usize].iter().any(|byte| *byte);
                prop_assert_eq!(mark.arrive(offset, length).is_ok(), fits && (fresh || length == 0));
                if fits && fresh { bitmap[offset as usize..(offset + length) as usize].fill(true); }
                prop_assert_eq!(mark.contiguous(), bitmap.iter().take_while(|byte| **byte).count() as u64);
                prop_assert_eq!(mark.arrived_bytes(), bitmap.iter().filter(|byte| **byte).count() as u64);
                prop_assert_eq!(mark.is_complete(), bitmap.iter().all(|byte| *byte));
            }
        }
    }
}
