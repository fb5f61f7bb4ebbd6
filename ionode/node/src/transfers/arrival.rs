//! What arrived becomes a replica, where all that is known of its content agrees. Knows digests and requests, not where bytes lie.
//!
//! The one rule: no replica is made of a content that its origin, or who asked for it, says is another.

use std::time::Duration;

use stager_core::error::{ApiError, Code};
use stager_core::replica::{Replica, ReplicaKind, ReplicaState};
use stager_origins::{Entry, Origin, ReportedChecksum, Verified};

use super::feed::ORIGIN_STALL;
use super::job::Job;
use crate::origin_checksums::verify_by_origin;
use crate::store::digest::Digests;
use crate::wire::{Expected, FetchRequest};

/// A server that hashes content itself moves no byte that we could count: it gets time by its size on top.
const READ_AGAIN_BYTES_PER_S_MIN: u64 = 8 << 20;

/// How an origin checksum verified it, if there is one. An error where the checksum differs.
pub(super) async fn check(
    job: &Job,
    origin: &dyn Origin,
    entry: &Entry,
    reported: &ReportedChecksum,
    digests: &Digests,
    stall: Duration,
) -> Result<Option<Verified>, ApiError> {
    let stall = stall + Duration::from_secs(entry.size_bytes / READ_AGAIN_BYTES_PER_S_MIN);
    job.watched(&entry.path, stall, verify_by_origin(origin, entry, reported, digests, &job.priority.clone().into())).await
}

/// Who can say what the content is.
pub(super) struct Witness<'a> {
    pub origin: &'a dyn Origin,
    pub entry: &'a Entry,
    pub reported: ReportedChecksum,
}

/// The replica that these digests make, if everything that is known of the content agrees. Who read it saw that it did not change meanwhile.
pub(super) async fn judge(
    job: &Job,
    request: &FetchRequest,
    witness: Witness<'_>,
    digests: Digests,
) -> Result<(Replica, Option<Verified>), ApiError> {
    let Witness { origin, entry, reported } = witness;
    let verified = match request.stripe {
        Some(_) => None,
        None => check(job, origin, entry, &reported, &digests, ORIGIN_STALL).await?,
    };
    check_content(&request.expected, &entry.path, &digests)?;
    let replica = Replica {
        file_id: request.file_id.clone(),
        generation: request.generation.clone(),
        kind: ReplicaKind::File,
        size_bytes: digests.size_bytes,
        blake3: digests.blake3,
        crc64nvme: digests.crc64nvme,
        sha256: digests.sha256,
        executable: request.executable,
        members: None,
        token: Some(entry.token.clone()),
        state: ReplicaState::Present,
        stripes: None,
    };
    Ok((replica, verified))
}

fn check_content(expected: &Expected, path: &str, digests: &Digests) -> Result<(), ApiError> {
    let differs = |wanted: &Option<String>, found: Option<&str>| {
        wanted.as_deref().is_some_and(|wanted| found.is_none_or(|found| !found.eq_ignore_ascii_case(wanted)))
    };
    let kind = match (differs(&expected.blake3, Some(&digests.blake3)), differs(&expected.sha256, digests.sha256.as_deref())) {
        (true, _) => "BLAKE3",
        (_, true) => "SHA-256",
        _ => return Ok(()),
    };
    let message = format!(
        "{path} does not have the expected {kind}: the file at the origin, or the checksum declared for it, is wrong; its bytes were deleted"
    );
    Err(ApiError::new(Code::ChecksumMismatch, path, message))
}
