//! What arrived, against what its origin says of it. Knows digests and an origin's word, not where bytes lie.
//!
//! The one rule: whatever an origin can vouch for is compared; a checksum that is one is believed before the bytes are.

use std::time::Duration;

use crc_fast::CrcAlgorithm;
use stager_core::error::ApiError;
use stager_origins::{content_blake3, Entry, Origin, Said, Urgency, Verified};

use super::run::{watched, Job};
use crate::node::Node;
use crate::store::digest::{Also, Digests};
use crate::wire::Expected;

/// Reading content a second time moves no byte that we could count: it gets time by its size on top.
const READ_AGAIN_BYTES_PER_S_MIN: u64 = 8 << 20;

/// What has to be hashed along to be compared in the end.
pub fn also(origin: &dyn Origin, said: &Said, expected: &Expected) -> Also {
    let crc32 = match (said.crc32c, said.crc32) {
        (Some(_), _) => Some(CrcAlgorithm::Crc32Iscsi),
        (None, Some(_)) => Some(CrcAlgorithm::Crc32IsoHdlc),
        (None, None) => None,
    };
    Also {
        sha256: expected.sha256.is_some() || said.sha256.is_some() || origin.confirms(),
        md5: said.md5.or(said.tag_md5).is_some(),
        crc32,
    }
}

/// How the origin has vouched for it, if it does; an error where it says something else.
pub(super) async fn check(
    node: &Node,
    job: &Job,
    origin: &dyn Origin,
    entry: &Entry,
    said: &Said,
    digests: &Digests,
    stall: Duration,
) -> Result<Option<Verified>, ApiError> {
    let stall = stall + Duration::from_secs(entry.size_bytes / READ_AGAIN_BYTES_PER_S_MIN);
    let (verified, read_again) = watched(node, job, &entry.path, stall, vouched(origin, entry, said, digests, &job.urgency)).await?;
    job.arrived(read_again);
    Ok(verified)
}

/// As `check`, with the bytes that were read a second time for it.
pub async fn vouched(
    origin: &dyn Origin,
    entry: &Entry,
    said: &Said,
    digests: &Digests,
    urgency: &Urgency,
) -> Result<(Option<Verified>, u64), ApiError> {
    if let Some(kind) = differing(said, digests) {
        return Err(damaged(entry, kind));
    }
    if said.tag_md5.is_some() && said.tag_md5 != digests.md5 {
        return by_reading_again(origin, entry, digests, urgency).await;
    }
    let vouched = (*said != Said::default()).then_some(Verified::OriginChecksum);
    if !origin.confirms() {
        return Ok((vouched, 0));
    }
    let blake3 = blake3::Hash::from_hex(&digests.blake3).expect("our own digest");
    let sha256 = digests.sha256.as_deref().expect("asked for");
    let confirmed = origin.confirm(entry, blake3, sha256, urgency).await?;
    let read_again = if confirmed == Some(Verified::Readback) { entry.size_bytes } else { 0 };
    Ok((confirmed.or(vouched), read_again))
}

fn differing(said: &Said, digests: &Digests) -> Option<&'static str> {
    let sha256 = said.sha256.map(|sum| sum.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    let compared = [
        ("CRC64NVME", said.crc64nvme.is_none_or(|sum| format!("{sum:016x}") == digests.crc64nvme)),
        ("SHA-256", sha256.is_none_or(|sum| digests.sha256.as_ref() == Some(&sum))),
        ("MD5", said.md5.is_none_or(|sum| digests.md5 == Some(sum))),
        ("CRC32C", said.crc32c.is_none_or(|sum| digests.crc32 == Some(sum))),
        ("CRC32", said.crc32c.is_some() || said.crc32.is_none_or(|sum| digests.crc32 == Some(sum))),
    ];
    compared.into_iter().find(|(_, equal)| !equal).map(|(kind, _)| kind)
}

/// Where an MD5 differs and a second reading gives the same content, what was taken for one is none.
async fn by_reading_again(
    origin: &dyn Origin,
    entry: &Entry,
    digests: &Digests,
    urgency: &Urgency,
) -> Result<(Option<Verified>, u64), ApiError> {
    let again = content_blake3(origin, entry, urgency).await?;
    if again.to_hex().as_str() != digests.blake3 {
        return Err(damaged(entry, "MD5"));
    }
    tracing::info!(path = entry.path, "the origin's ETags are no MD5 of the content; they are not compared any more");
    origin.distrust_md5();
    Ok((Some(Verified::Readback), entry.size_bytes))
}

fn damaged(entry: &Entry, kind: &str) -> ApiError {
    let message = format!(
        "{} is not what its origin says it is (its {kind} differs): damaged on its way or where it lies; its bytes were deleted, it is fetched again",
        entry.path
    );
    ApiError::corrupt("checksum_mismatch", &entry.path, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::digest::Hasher;

    #[test]
    fn each_checksum_is_compared_and_what_is_not_said_is_not() {
        let digests = |crc32| {
            let mut hasher = Hasher::with(Also { sha256: true, md5: true, crc32 });
            hasher.update(b"123456789");
            hasher.finish()
        };
        let (plain, ieee, castagnoli) = (digests(None), digests(Some(CrcAlgorithm::Crc32IsoHdlc)), digests(Some(CrcAlgorithm::Crc32Iscsi)));
        let sha256 = blake3::Hash::from_hex(plain.sha256.as_ref().unwrap()).unwrap().into();
        let right = [
            (Said::default(), &plain),
            (Said { crc64nvme: Some(0xae8b_1486_0a79_9888), ..Said::default() }, &plain),
            (Said { sha256: Some(sha256), ..Said::default() }, &plain),
            (Said { md5: plain.md5, ..Said::default() }, &plain),
            (Said { crc32: Some(0xcbf4_3926), ..Said::default() }, &ieee),
            (Said { crc32c: Some(0xe306_9283), ..Said::default() }, &castagnoli),
        ];
        for (said, digests) in right {
            assert_eq!(differing(&said, digests), None, "{said:?}");
        }
        let wrong = [
            (Said { crc64nvme: Some(1), ..Said::default() }, "CRC64NVME"),
            (Said { sha256: Some([1; 32]), ..Said::default() }, "SHA-256"),
            (Said { md5: Some([1; 16]), ..Said::default() }, "MD5"),
            (Said { crc32: Some(1), ..Said::default() }, "CRC32"),
            (Said { crc32c: Some(1), ..Said::default() }, "CRC32C"),
        ];
        for (said, kind) in wrong {
            for digests in [&plain, &ieee, &castagnoli] {
                assert_eq!(differing(&said, digests), Some(kind));
            }
        }
    }
}
