//! Which stripes of a file one node holds, and where they lie. Pure.
//!
//! The one rule: every byte of the file is in exactly one stripe, stripe `n` is on the node with `n % count`, and stripes are powers of two
//! at multiples of their own size, so that each is a subtree of the file's BLAKE3.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::error::{ApiError, Code};

pub const STRIPE_BYTES_MIN: u64 = 1 << 20;
const STRIPES_MAX: u64 = 1 << 20;
/// Of any file; the ends of all stripes then have a number.
const FILE_BYTES_MAX: u64 = i64::MAX as u64;

/// The share of one node, as it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Share {
    pub index: u64,
    pub count: u64,
    pub stripe_bytes: u64,
}

/// A share of a file of known size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    pub index: u64,
    pub count: u64,
    pub stripe_bytes: u64,
    pub file_bytes: u64,
}

impl Layout {
    pub fn new(share: Share, file_bytes: u64, subject: &str) -> Result<Self, ApiError> {
        let Share { index, count, stripe_bytes } = share;
        Self { index, count, stripe_bytes, file_bytes }.checked(subject)
    }

    /// As it came from elsewhere.
    pub fn checked(self, subject: &str) -> Result<Self, ApiError> {
        let Self { index, count, stripe_bytes, file_bytes } = self;
        let bad = |why: String| Err(ApiError::new(Code::BadRequest, subject, format!("the stripes asked of {subject} are none: {why}")));
        if !stripe_bytes.is_power_of_two() || stripe_bytes < STRIPE_BYTES_MIN {
            return bad(format!("stripe_bytes is a power of two from {STRIPE_BYTES_MIN} on, not {stripe_bytes}"));
        }
        if index >= count {
            return bad(format!("index {index} is not below count {count}"));
        }
        if file_bytes > FILE_BYTES_MAX {
            return bad(format!("no file has {file_bytes} bytes"));
        }
        if file_bytes.div_ceil(stripe_bytes) > STRIPES_MAX {
            return bad(format!("a file has at most {STRIPES_MAX} of them; make them larger"));
        }
        Ok(self)
    }

    /// Of the whole file.
    pub fn total(&self) -> u64 {
        self.file_bytes.div_ceil(self.stripe_bytes)
    }

    pub fn held(&self) -> impl Iterator<Item = u64> {
        (self.index..self.total()).step_by(self.count as usize)
    }

    /// The place of stripe `n` in the file.
    pub fn range(&self, n: u64) -> Range<u64> {
        let start = n * self.stripe_bytes;
        start..(start + self.stripe_bytes).min(self.file_bytes)
    }

    pub fn held_bytes(&self) -> u64 {
        let stripes = self.held().count() as u64;
        // Only the file's last stripe can be short.
        let last = self.total().checked_sub(1).filter(|last| last % self.count == self.index);
        stripes * self.stripe_bytes - last.map_or(0, |last| self.stripe_bytes - (self.range(last).end - self.range(last).start))
    }

    /// Where byte `offset` of the file lies among the held bytes, which are kept back to back.
    pub fn position(&self, offset: u64) -> Option<u64> {
        let n = offset / self.stripe_bytes;
        let held = offset < self.file_bytes && n % self.count == self.index;
        held.then(|| n / self.count * self.stripe_bytes + offset % self.stripe_bytes)
    }

    /// The places in the file of these held bytes, stripe by stripe.
    pub fn places(&self, held: Range<u64>) -> Vec<Range<u64>> {
        let mut places = Vec::new();
        let mut at = held.start;
        while at < held.end {
            let stripe = self.range(at / self.stripe_bytes * self.count + self.index);
            let start = stripe.start + at % self.stripe_bytes;
            let end = stripe.end.min(start + (held.end - at));
            places.push(start..end);
            at += end - start;
        }
        places
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn layout(index: u64, count: u64, file_bytes: u64) -> Layout {
        Layout::new(Share { index, count, stripe_bytes: STRIPE_BYTES_MIN }, file_bytes, "f").unwrap()
    }

    proptest! {
        /// Offsets around every border of stripes, against a walk over the file stripe by stripe.
        #[test]
        fn each_byte_is_in_one_share_and_comes_back(count in 1u64..6, stripes in 0u64..9, more in 0u64..3, cut in 0u64..2000) {
            let file_bytes = (stripes * STRIPE_BYTES_MIN + more * 700_001).saturating_sub(cut);
            let shares: Vec<Layout> = (0..count).map(|index| layout(index, count, file_bytes)).collect();
            prop_assert_eq!(shares.iter().map(Layout::held_bytes).sum::<u64>(), file_bytes);
            let mut packed = vec![0; count as usize];
            for n in 0..shares[0].total() {
                let (owner, range) = ((n % count) as usize, shares[0].range(n));
                for offset in [range.start, (range.start + range.end) / 2, range.end - 1] {
                    for (index, share) in shares.iter().enumerate() {
                        let expected = (index == owner).then(|| packed[owner] + offset - range.start);
                        prop_assert_eq!(share.position(offset), expected);
                    }
                }
                let whole = shares[owner].places(packed[owner]..packed[owner] + (range.end - range.start));
                prop_assert_eq!(whole, vec![range.clone()]);
                packed[owner] += range.end - range.start;
            }
            for share in &shares {
                let places = share.places(0..share.held_bytes());
                prop_assert_eq!(places, share.held().map(|n| share.range(n)).collect::<Vec<_>>());
                prop_assert_eq!(share.position(file_bytes), None);
            }
        }
    }

    #[test]
    fn a_range_within_held_bytes_is_cut_at_stripes() {
        let share = layout(1, 2, 5 * STRIPE_BYTES_MIN);
        let (one, end) = (STRIPE_BYTES_MIN, 2 * STRIPE_BYTES_MIN);
        assert_eq!(share.places(10..one + 10), [one + 10..end, 3 * one..3 * one + 10]);
    }

    #[test]
    fn shares_that_are_none_are_refused() {
        for (index, count, stripe_bytes) in [(0, 0, 1 << 20), (2, 2, 1 << 20), (0, 1, 3 << 20), (0, 1, 1 << 19), (0, 1, 0)] {
            assert!(Layout::new(Share { index, count, stripe_bytes }, 1, "f").is_err());
        }
        assert!(Layout::new(Share { index: 0, count: 1, stripe_bytes: 1 << 20 }, u64::MAX, "f").is_err());
        // The end of its second stripe would have no number.
        assert!(Layout::new(Share { index: 0, count: 1, stripe_bytes: 1 << 63 }, u64::MAX, "f").is_err());
    }
}
