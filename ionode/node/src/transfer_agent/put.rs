//! One file of this machine to an origin, in the place of what is there.
//!
//! The one rule: it is hashed before it is sent, so that what is verified at the origin is what lay here.

use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use stager_core::error::{ApiError, Code};
use stager_origins::{stalled_by, Origin, Priority, Upload};

use super::{Moved, VERIFY_BYTES_PER_S_MIN};
use crate::blocking::blocking;
use crate::failure::at;
use crate::store::digest::{of_file, Digests};

const EXECUTABLE: u32 = 0o111;

pub(super) async fn put(origin: &dyn Origin, from: PathBuf, path: &str, stall: Duration) -> Result<Moved, ApiError> {
    let place = from.clone();
    let (digests, executable) = blocking(move || seen(&place)).await?;
    let (sent, priority) = (AtomicU64::new(0), Priority::default());
    let upload = Upload {
        local: &from,
        path,
        size_bytes: digests.size_bytes,
        blake3: *blake3::Hash::from_hex(&digests.blake3).expect("our own digest").as_bytes(),
        crc64nvme: u64::from_str_radix(&digests.crc64nvme, 16).expect("our own digest"),
        replace: true,
        made: None,
        executable,
        // The next try of the same content takes over what this one left.
        transfer_id: &digests.blake3[..32],
        pace: priority.clone().into(),
        progress: &|bytes| {
            sent.fetch_add(bytes, Ordering::Relaxed);
        },
    };
    let stall = stall + Duration::from_secs(digests.size_bytes / VERIFY_BYTES_PER_S_MIN);
    let uploaded = tokio::select! {
        outcome = origin.upload(upload) => outcome?,
        () = stalled_by(|| sent.load(Ordering::Relaxed) + priority.read_back_bytes(), stall) => {
            let message = format!("no byte of {path} moved for {} s; look at the origin and its network", stall.as_secs());
            return Err(ApiError::new(Code::Timeout, path, message));
        }
    };
    Ok(Moved { size_bytes: digests.size_bytes, sha256: digests.sha256.expect("asked for"), verified: Some(uploaded.verified) })
}

fn seen(place: &PathBuf) -> Result<(Digests, bool), ApiError> {
    let file = File::open(place).map_err(at("opening", place))?;
    let executable = file.metadata().map_err(at("stat of", place))?.permissions().mode() & EXECUTABLE != 0;
    Ok((of_file(&file, place, true)?, executable))
}
