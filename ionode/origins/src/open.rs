//! The factory: which implementation serves which kind of origin, and what wraps each of them. Knows all kinds.
//!
//! The one rule: nothing here touches the network: the first call connects, so a wrong configuration that only the far side can see is an
//! error of that call.

use std::sync::Arc;

use stager_core::error::ApiError;

use crate::config::OriginConfig;
use crate::file::FileOrigin;
use crate::http::HttpOrigin;
use crate::paced::Paced;
use crate::s3::S3Origin;
use crate::sftp::SftpOrigin;
use crate::Origin;

pub fn open(config: &OriginConfig) -> Result<Arc<dyn Origin>, ApiError> {
    let origin: Arc<dyn Origin> = match config {
        OriginConfig::File(c) => Arc::new(FileOrigin::new(c)?),
        OriginConfig::Sftp(c) => Arc::new(SftpOrigin::new(c)?),
        OriginConfig::Sshfs(c) => Arc::new(SftpOrigin::new(&c.sftp())?),
        OriginConfig::S3(c) => Arc::new(S3Origin::new(c)?),
        OriginConfig::Http(c) => Arc::new(HttpOrigin::new(c)?),
    };
    Ok(Arc::new(Paced::new(origin, config.bandwidth_bytes_per_s_max())))
}
