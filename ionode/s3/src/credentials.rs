//! The key that may call, from a file that only its owner can read.
//!
//! The one rule: the secret is never part of a message, a log line or a `Debug` text.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use s3s::auth::{S3Auth, SecretKey};
use s3s::{s3_error, S3Result};
use serde::Deserialize;
use stager_core::error::ApiError;

const SECRET_CHARACTERS_MIN: usize = 16;

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Credentials {
    access_key_id: String,
    secret_access_key: String,
}

impl Credentials {
    /// `{"access_key_id": "...", "secret_access_key": "..."}`, mode 0600 or less.
    pub fn read(path: &Path) -> Result<Self, ApiError> {
        let subject = path.display().to_string();
        let wrong = |what: String| ApiError::invalid("bad_request", &subject, format!("the S3 credentials file {subject} {what}"));
        let mut file = File::open(path).map_err(|error| wrong(format!("cannot be opened ({error}); name one that this user can read")))?;
        let found = file.metadata().map_err(|error| wrong(format!("cannot be looked at ({error})")))?;
        if found.mode() & 0o077 != 0 {
            return Err(wrong(format!("can be read by others (mode {:04o}); chmod 600 it", found.mode() & 0o7777)));
        }
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(|error| wrong(format!("cannot be read ({error})")))?;
        // The parser's own words might hold a piece of the secret.
        let read: Self = serde_json::from_str(&text)
            .map_err(|_| wrong(r#"is not of the form {"access_key_id": "...", "secret_access_key": "..."}; write it so"#.to_string()))?;
        if read.access_key_id.is_empty() || read.secret_access_key.len() < SECRET_CHARACTERS_MIN {
            return Err(wrong(format!("has an empty key or a secret of less than {SECRET_CHARACTERS_MIN} characters; make a longer one")));
        }
        Ok(read)
    }
}

#[async_trait::async_trait]
impl S3Auth for Credentials {
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        if access_key == self.access_key_id {
            return Ok(SecretKey::from(self.secret_access_key.as_str()));
        }
        Err(s3_error!(InvalidAccessKeyId, "this node does not know the access key; use the one of its credentials file"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn read(text: &str, mode: u32) -> Result<Credentials, ApiError> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        Credentials::read(&path)
    }

    const GOOD: &str = r#"{"access_key_id": "a", "secret_access_key": "0123456789abcdef"}"#;

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        assert_eq!(read(GOOD, 0o600).unwrap().access_key_id, "a");
        for mode in [0o640, 0o604, 0o660] {
            assert!(read(GOOD, mode).is_err_and(|error| error.message.contains("chmod 600")));
        }
    }

    #[test]
    fn what_is_wrong_is_said_without_the_secret() {
        for text in [r#"{"access_key_id": "a", "secret_access_key": 0123456789abcdef}"#, "0123456789abcdef", GOOD.trim_end_matches('}')] {
            let Err(error) = read(text, 0o600) else { panic!("{text} was taken") };
            assert!(!error.message.contains("0123"), "{error}");
        }
        assert!(read(r#"{"access_key_id": "a", "secret_access_key": "short"}"#, 0o600).is_err());
    }
}
