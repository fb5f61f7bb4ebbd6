//! What a node says of its stripes of a file: a chaining value and a checksum for each, and how those of all nodes make the file's BLAKE3.
//!
//! The one rule: chaining values are taken when the bytes came, and kept; a stripe that has changed since cannot speak for itself.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use blake3::hazmat::{self, HasherExt, Mode};
use serde::{Deserialize, Serialize};
use stager_core::error::{ApiError, Code};
use stager_core::stripes::Layout;

use crate::failure::at;

const FORMAT: u32 = 1;

/// Lies beside the replica; its name is that of a directory's manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StripeManifest {
    format: u32,
    pub layout: Layout,
    /// In the order of the file.
    pub stripes: Vec<Stripe>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stripe {
    /// The BLAKE3 chaining value of this subtree; of a file that is one stripe, its BLAKE3.
    pub blake3_cv: String,
    pub crc64nvme: String,
}

impl StripeManifest {
    fn check(&self, subject: &str) -> Result<(), ApiError> {
        let layout = self.layout.checked(subject)?;
        if self.format != FORMAT {
            return Err(damaged(subject, &format!("it has format {} and not {FORMAT}", self.format)));
        }
        match self.stripes.len() == layout.held().count() {
            true => Ok(()),
            false => Err(damaged(subject, "it does not name each stripe")),
        }
    }

    /// Of stripes that lie back to back in `file`.
    pub fn of(layout: &Layout, file: &File, path: &Path) -> Result<Self, ApiError> {
        let mut stripes = Vec::new();
        let mut buffer = Vec::new();
        for n in layout.held() {
            let range = layout.range(n);
            buffer.resize((range.end - range.start) as usize, 0);
            let position = layout.position(range.start).expect("a held stripe has a place");
            file.read_exact_at(&mut buffer, position).map_err(at("reading", path))?;
            let crc64nvme = format!("{:016x}", crc_fast::crc64_nvme(&buffer));
            stripes.push(Stripe { blake3_cv: hex(chaining_value(layout, n, &buffer)), crc64nvme });
        }
        Ok(Self { format: FORMAT, layout: *layout, stripes })
    }

    pub fn read(path: &Path) -> Result<Self, ApiError> {
        let bytes = std::fs::read(path).map_err(at("reading", path))?;
        Self::parse(&bytes, &path.display().to_string())
    }

    pub fn parse(bytes: &[u8], subject: &str) -> Result<Self, ApiError> {
        let manifest: Self = serde_json::from_slice(bytes).map_err(|error| damaged(subject, &error.to_string()))?;
        manifest.check(subject)?;
        Ok(manifest)
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a manifest is plain values")
    }
}

fn damaged(subject: &str, why: &str) -> ApiError {
    ApiError::new(Code::ChecksumMismatch, subject, format!("the record of the stripes of {subject} is damaged ({why}); fetch them again"))
}

pub fn hex(value: [u8; 32]) -> String {
    blake3::Hash::from_bytes(value).to_hex().to_string()
}

pub fn from_hex(text: &str) -> Option<[u8; 32]> {
    blake3::Hash::from_hex(text).ok().map(|hash| *hash.as_bytes())
}

/// Of the bytes of stripe `n`.
pub fn chaining_value(layout: &Layout, n: u64, bytes: &[u8]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    if layout.total() == 1 {
        return *hasher.update(bytes).finalize().as_bytes();
    }
    hasher.set_input_offset(layout.range(n).start);
    hasher.update(bytes).finalize_non_root()
}

/// The file's BLAKE3 from the values of all of its stripes, in order.
pub fn merged(values: &[[u8; 32]], stripe_bytes: u64, file_bytes: u64) -> [u8; 32] {
    match values {
        [] => *blake3::hash(b"").as_bytes(),
        [one] => *one,
        many => {
            let (left, right) = halves(many, stripe_bytes, file_bytes);
            *hazmat::merge_subtrees_root(&left, &right, Mode::Hash).as_bytes()
        }
    }
}

fn halves(values: &[[u8; 32]], stripe_bytes: u64, bytes: u64) -> ([u8; 32], [u8; 32]) {
    let left_bytes = hazmat::left_subtree_len(bytes);
    let (left, right) = values.split_at((left_bytes / stripe_bytes) as usize);
    (subtree(left, stripe_bytes, left_bytes), subtree(right, stripe_bytes, bytes - left_bytes))
}

fn subtree(values: &[[u8; 32]], stripe_bytes: u64, bytes: u64) -> [u8; 32] {
    if let [one] = values {
        return *one;
    }
    let (left, right) = halves(values, stripe_bytes, bytes);
    hazmat::merge_subtrees_non_root(&left, &right, Mode::Hash)
}

#[cfg(test)]
mod tests {
    use super::*;
    use stager_core::stripes::{Share, STRIPE_BYTES_MIN};

    #[test]
    fn the_values_of_all_stripes_make_the_hash_of_the_file() {
        for length in [
            0,
            1,
            STRIPE_BYTES_MIN - 1,
            STRIPE_BYTES_MIN,
            STRIPE_BYTES_MIN + 1,
            3 * STRIPE_BYTES_MIN,
            7 * STRIPE_BYTES_MIN + 5,
            8 * STRIPE_BYTES_MIN,
        ] {
            let bytes: Vec<u8> = (0..length).map(|n| (n * 31 % 251) as u8).collect();
            let whole = Layout::new(Share { index: 0, count: 1, stripe_bytes: STRIPE_BYTES_MIN }, length, "f").unwrap();
            let values: Vec<[u8; 32]> = whole
                .held()
                .map(|n| chaining_value(&whole, n, &bytes[whole.range(n).start as usize..whole.range(n).end as usize]))
                .collect();
            assert_eq!(merged(&values, STRIPE_BYTES_MIN, length), *blake3::hash(&bytes).as_bytes(), "{length}");
        }
    }

    #[test]
    fn a_manifest_of_another_format_or_without_a_stripe_is_refused() {
        let layout = Layout::new(Share { index: 0, count: 1, stripe_bytes: STRIPE_BYTES_MIN }, 1, "f").unwrap();
        let stripe = Stripe { blake3_cv: hex([1; 32]), crc64nvme: "0".repeat(16) };
        let made = StripeManifest { format: FORMAT, layout, stripes: vec![stripe] };
        assert_eq!(StripeManifest::parse(&made.to_bytes(), "f").unwrap(), made);
        let newer = StripeManifest { format: FORMAT + 1, ..made.clone() };
        let short = StripeManifest { stripes: vec![], ..made };
        for refused in [newer, short] {
            assert_eq!(StripeManifest::parse(&refused.to_bytes(), "f").unwrap_err().code.as_str(), "checksum_mismatch");
        }
    }
}
