//! Promises about capabilities: what an origin says it can do is what it does.

use crc_fast::{checksum, CrcAlgorithm};
use sha2::{Digest, Sha256};

use super::{code, content, get, local, there, upload, How, Place};
use crate::{Pace, ReportedChecksum};

pub async fn what_it_says_it_does_it_does(place: &dyn Place) {
    let origin = place.origin();
    let can = origin.capabilities();
    assert_eq!(can.writes, !place.is_read_only());
    assert_eq!(code(origin.list("", false, 1).await) != "unsupported", can.lists);
    let written = [
        code(origin.make_directory("capabilities").await),
        code(origin.erase("capabilities/never there", None).await),
        code(upload(place, &local(place, b"x"), "capabilities/file", How::default()).await),
    ];
    for outcome in written {
        assert_eq!(outcome != "unsupported", can.writes, "{outcome}");
    }
    assert_eq!(origin.probe("", true).await.writable, Some(can.writes));
    if let Some(before) = can.get_ready {
        before.get_ready(1).await;
        assert!(origin.stat("").await.is_ok(), "who got ready can be asked");
    }
}

pub async fn what_it_reports_is_true(place: &dyn Place) {
    let origin = place.origin();
    let can = origin.capabilities();
    let (bytes, other) = (content(1, 3000), content(2, 3000));
    there(place, "capabilities/reported", &bytes).await;
    let entry = origin.stat("capabilities/reported").await.unwrap();
    let by_stat = can.reported_checksum(&entry);
    require_of(&bytes, &by_stat);
    assert!(get(&*origin, &entry).await.unwrap() == bytes);
    if !can.needs_stat(&entry, true) {
        assert_eq!(can.reported_checksum(&entry), by_stat, "the fetch says all that a stat does");
    }
    if let Some(again) = can.confirm {
        let (mine, theirs) = ((blake3::hash(&bytes), sha256(&bytes)), (blake3::hash(&other), sha256(&other)));
        again.confirm(&entry, mine.0, &mine.1, &Pace::default()).await.unwrap();
        assert_eq!(code(again.confirm(&entry, theirs.0, &theirs.1, &Pace::default()).await), "checksum_mismatch");
    }
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn require_of(bytes: &[u8], reported: &ReportedChecksum) {
    let crc = |algorithm| checksum(algorithm, bytes);
    assert!(reported.crc64nvme.is_none_or(|sum| sum == crc(CrcAlgorithm::Crc64Nvme)), "{reported:?}");
    assert!(reported.crc32c.is_none_or(|sum| u64::from(sum) == crc(CrcAlgorithm::Crc32Iscsi)), "{reported:?}");
    assert!(reported.crc32.is_none_or(|sum| u64::from(sum) == crc(CrcAlgorithm::Crc32IsoHdlc)), "{reported:?}");
    assert!(reported.sha256.is_none_or(|sum| sum[..] == Sha256::digest(bytes)[..]), "{reported:?}");
    assert!(reported.md5.is_none_or(|sum| sum == md5::compute(bytes).0), "{reported:?}");
}
