//! Digests of what came, against what its origin says of it. Knows digests and an origin's word, not where bytes lie.
//!
//! The one rule: whatever checksum an origin reports is compared; a checksum that is one is believed before the bytes are.

use crc_fast::CrcAlgorithm;
use stager_core::error::{ApiError, Code};
use stager_origins::{content_blake3, Entry, Origin, Pace, ReportedChecksum, Verified};

use crate::store::digest::{Also, Digests};
use crate::wire::Expected;

/// What has to be hashed along to be compared in the end.
pub fn also(origin: &dyn Origin, reported: &ReportedChecksum, expected: &Expected) -> Also {
    let crc32 = match (reported.crc32c, reported.crc32) {
        (Some(_), _) => Some(CrcAlgorithm::Crc32Iscsi),
        (None, Some(_)) => Some(CrcAlgorithm::Crc32IsoHdlc),
        (None, None) => None,
    };
    Also {
        sha256: expected.sha256.is_some() || reported.sha256.is_some() || origin.capabilities().confirm.is_some(),
        md5: reported.md5.or(reported.tag_md5).is_some(),
        crc32,
    }
}

/// How an origin checksum verified it, if there is one. An error where the checksum differs.
pub async fn verify_by_origin(
    origin: &dyn Origin,
    entry: &Entry,
    reported: &ReportedChecksum,
    digests: &Digests,
    pace: &Pace,
) -> Result<Option<Verified>, ApiError> {
    if let Some(kind) = differing(reported, digests) {
        return Err(damaged(entry, kind));
    }
    if reported.tag_md5.is_some() && reported.tag_md5 != digests.md5 {
        return by_reading_again(origin, entry, digests, pace).await;
    }
    let by_checksum = (*reported != ReportedChecksum::default()).then_some(Verified::OriginChecksum);
    let Some(again) = origin.capabilities().confirm else { return Ok(by_checksum) };
    let blake3 = blake3::Hash::from_hex(&digests.blake3).expect("our own digest");
    let sha256 = digests.sha256.as_deref().expect("asked for");
    again.confirm(entry, blake3, sha256, pace).await.map(Some)
}

fn differing(reported: &ReportedChecksum, digests: &Digests) -> Option<&'static str> {
    let sha256 = reported.sha256.map(|sum| sum.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    let compared = [
        ("CRC64NVME", reported.crc64nvme.is_none_or(|sum| format!("{sum:016x}") == digests.crc64nvme)),
        ("SHA-256", sha256.is_none_or(|sum| digests.sha256.as_ref() == Some(&sum))),
        ("MD5", reported.md5.is_none_or(|sum| digests.md5 == Some(sum))),
        ("CRC32C", reported.crc32c.is_none_or(|sum| digests.crc32 == Some(sum))),
        ("CRC32", reported.crc32c.is_some() || reported.crc32.is_none_or(|sum| digests.crc32 == Some(sum))),
    ];
    compared.into_iter().find(|(_, equal)| !equal).map(|(kind, _)| kind)
}

/// Where an MD5 differs and a second reading gives the same content, what was taken for one is none.
async fn by_reading_again(origin: &dyn Origin, entry: &Entry, digests: &Digests, pace: &Pace) -> Result<Option<Verified>, ApiError> {
    let again = content_blake3(origin, entry, pace).await?;
    if again.to_hex().as_str() != digests.blake3 {
        return Err(damaged(entry, "MD5"));
    }
    tracing::info!(path = entry.path, "the origin's ETags are no MD5 of the content; the node no longer compares them");
    origin.capabilities().distrust_md5();
    Ok(Some(Verified::Readback))
}

fn damaged(entry: &Entry, kind: &str) -> ApiError {
    let message = format!(
        "{} does not have the {kind} that its origin reports: it was damaged on its way or at the origin; its bytes were deleted, stager fetches it again",
        entry.path
    );
    ApiError::new(Code::ChecksumMismatch, &entry.path, message)
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
            (ReportedChecksum::default(), &plain),
            (ReportedChecksum { crc64nvme: Some(0xae8b_1486_0a79_9888), ..ReportedChecksum::default() }, &plain),
            (ReportedChecksum { sha256: Some(sha256), ..ReportedChecksum::default() }, &plain),
            (ReportedChecksum { md5: plain.md5, ..ReportedChecksum::default() }, &plain),
            (ReportedChecksum { crc32: Some(0xcbf4_3926), ..ReportedChecksum::default() }, &ieee),
            (ReportedChecksum { crc32c: Some(0xe306_9283), ..ReportedChecksum::default() }, &castagnoli),
        ];
        for (reported, digests) in right {
            assert_eq!(differing(&reported, digests), None, "{reported:?}");
        }
        let wrong = [
            (ReportedChecksum { crc64nvme: Some(1), ..ReportedChecksum::default() }, "CRC64NVME"),
            (ReportedChecksum { sha256: Some([1; 32]), ..ReportedChecksum::default() }, "SHA-256"),
            (ReportedChecksum { md5: Some([1; 16]), ..ReportedChecksum::default() }, "MD5"),
            (ReportedChecksum { crc32: Some(1), ..ReportedChecksum::default() }, "CRC32"),
            (ReportedChecksum { crc32c: Some(1), ..ReportedChecksum::default() }, "CRC32C"),
        ];
        for (reported, kind) in wrong {
            for digests in [&plain, &ieee, &castagnoli] {
                assert_eq!(differing(&reported, digests), Some(kind));
            }
        }
    }
}
