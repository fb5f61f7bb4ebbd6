//! What every byte of a replayed file is: a function of (seed, name, size), so that any part of it can be made or checked anywhere.
//!
//! One rule: docs/formats/replay.md defines this content; changing a byte here needs a new `DOMAIN`.

use sha2::{Digest, Sha256};

const DOMAIN: &[u8] = b"stager-replay-1\0";
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
/// How much is made and compared at a time; a multiple of the word, small enough for the second-level cache.
pub const CHUNK_BYTES: usize = 256 * 1024;

/// The content of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    start: u64,
    mask: u64,
    stamp: u32,
    pub size_bytes: u64,
}

impl Content {
    pub fn new(seed: u64, name: &str, size_bytes: u64) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(DOMAIN);
        hasher.update(seed.to_le_bytes());
        hasher.update(size_bytes.to_le_bytes());
        hasher.update(name.as_bytes());
        let key: [u8; 32] = hasher.finalize().into();
        let word = |at: usize| u64::from_le_bytes(key[at..at + 8].try_into().expect("eight bytes"));
        Content { start: word(0), mask: word(8), stamp: word(16) as u32, size_bytes }
    }

    /// Fills `buffer` with what lies at `offset`, a multiple of eight.
    pub fn fill(&self, offset: u64, buffer: &mut [u8]) {
        assert_eq!(offset % 8, 0, "content is made in words of eight bytes");
        let mut counter = self.start.wrapping_add((offset / 8 + 1).wrapping_mul(GOLDEN));
        let mut words = buffer.chunks_exact_mut(8);
        for word in &mut words {
            word.copy_from_slice(&(mix(counter) ^ self.mask).to_le_bytes());
            counter = counter.wrapping_add(GOLDEN);
        }
        let tail = words.into_remainder();
        let last = (mix(counter) ^ self.mask).to_le_bytes();
        let length = tail.len();
        tail.copy_from_slice(&last[..length]);
    }

    /// A time of change that belongs to this content alone: the token of an origin file is size and time, so equal tokens then
    /// mean equal bytes, also after the file was made again or with another seed. Always long past, so that it is settled.
    pub fn modified_at_s(&self) -> u64 {
        1_000_000_000 + u64::from(self.stamp) % 500_000_000
    }
}

/// The finalizer of splitmix64.
fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn whole(seed: u64, name: &str, size_bytes: usize) -> Vec<u8> {
        let mut buffer = vec![0; size_bytes];
        Content::new(seed, name, size_bytes as u64).fill(0, &mut buffer);
        buffer
    }

    /// The same bytes as tests/unit/test_replay.py makes in Python from the words of docs/formats/replay.md.
    #[test]
    fn golden() {
        let hex: String = whole(7, "inputs/a.fits", 21).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "7a04e99881c25d8eaea854d043546a3dbe81ef8a86");
    }

    #[test]
    fn seed_name_and_size_each_change_everything() {
        let first = whole(1, "work/a", 4096);
        for other in [whole(2, "work/a", 4096), whole(1, "work/b", 4096), whole(1, "work/a", 4097)] {
            let same = first.iter().zip(&other).filter(|(a, b)| a == b).count();
            assert!(same < 100, "{same} of 4096 bytes agree");
        }
    }

    proptest! {
        #[test]
        fn any_part_is_the_part_of_the_whole(seed: u64, size in 0usize..5000, word in 0usize..600, length in 0usize..300) {
            let all = whole(seed, "work/x", size);
            let from = (word * 8).min(size / 8 * 8);
            let to = (from + length).min(size);
            let mut part = vec![0; to - from];
            Content::new(seed, "work/x", size as u64).fill(from as u64, &mut part);
            prop_assert_eq!(&all[from..to], &part[..]);
        }
    }
}
