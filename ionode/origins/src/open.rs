//! The factory: which implementation serves which kind of origin. Knows all kinds.
//!
//! The one rule: nothing here touches the network: the first call connects, so a wrong configuration that only the far side can see is an
//! error of that call.

use std::sync::Arc;

use stager_core::error::ApiError;

use crate::config::OriginConfig;
use crate::file::FileOrigin;
use crate::http::HttpOrigin;
use crate::s3::S3Origin;
use crate::sftp::SftpOrigin;
use crate::Origin;

pub fn open(config: &OriginConfig) -> Result<Arc<dyn Origin>, ApiError> {
    match config {
        OriginConfig::File(c) => Ok(Arc::new(FileOrigin::new(c)?)),
        OriginConfig::Sftp(c) => Ok(Arc::new(SftpOrigin::new(c)?)),
        OriginConfig::Sshfs(c) => Ok(Arc::new(SftpOrigin::new(&c.sftp())?)),
        OriginConfig::S3(c) => Ok(Arc::new(S3Origin::new(c)?)),
        OriginConfig::Http(c) => Ok(Arc::new(HttpOrigin::new(c)?)),
    }
}
