//! The keys that may call, from a file that only its owner can read: one key, or the secret by which keys are issued.
//!
//! The one rule: the secret is never part of a message, a log line or a `Debug` text.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use s3s::access::{S3Access, S3AccessContext};
use s3s::auth::{S3Auth, SecretKey};
use s3s::{s3_error, S3Result};
use serde::Deserialize;
use stager_core::error::{ApiError, Code};
use stager_objects::Owner;

use crate::connections::Caller;
use crate::issued::{secret_of, Issued};
use crate::{checksums, lists};

const SECRET_CHARACTERS_MIN: usize = 16;
/// What a key that may only read may ask; whatever else there is or comes to be, it may not.
const READING: [&str; 13] = [
    "GetBucketLocation",
    "GetBucketVersioning",
    "GetObject",
    "GetObjectAttributes",
    "GetObjectTagging",
    "HeadBucket",
    "HeadObject",
    "ListBuckets",
    "ListMultipartUploads",
    "ListObjectVersions",
    "ListObjects",
    "ListObjectsV2",
    "ListParts",
];

/// Cheap to clone.
#[derive(Clone)]
pub struct Credentials {
    kept: Arc<Kept>,
    /// Of an issuer: a file for each token whose keys hold.
    tokens: Arc<Path>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, untagged)]
enum Kept {
    One { access_key_id: String, secret_access_key: String },
    Issuer { issuer_secret: String },
}

impl Credentials {
    /// `{"access_key_id": "...", "secret_access_key": "..."}` or `{"issuer_secret": "..."}`, mode 0600 or less.
    pub fn read(path: &Path) -> Result<Self, ApiError> {
        let subject = path.display().to_string();
        let wrong = |what: String| ApiError::new(Code::BadRequest, &subject, format!("the S3 credentials file {subject} {what}"));
        let mut file = File::open(path).map_err(|error| wrong(format!("cannot be opened ({error}); name one that this user can read")))?;
        let found = file.metadata().map_err(|error| wrong(format!("cannot be checked ({error})")))?;
        if found.mode() & 0o077 != 0 {
            return Err(wrong(format!("can be read by others (mode {:04o}); chmod 600 it", found.mode() & 0o7777)));
        }
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(|error| wrong(format!("cannot be read ({error})")))?;
        // The parser's own words might hold a piece of the secret.
        let read: Kept = serde_json::from_str(&text).map_err(|_| {
            let forms = r#"{"access_key_id": "...", "secret_access_key": "..."} nor {"issuer_secret": "..."}"#;
            wrong(format!("is neither of the form {forms}; write it so"))
        })?;
        let (id, secret) = match &read {
            Kept::One { access_key_id, secret_access_key } => (access_key_id.as_str(), secret_access_key),
            Kept::Issuer { issuer_secret } => ("issuer", issuer_secret),
        };
        if id.is_empty() || secret.len() < SECRET_CHARACTERS_MIN {
            return Err(wrong(format!("has an empty key or a secret of less than {SECRET_CHARACTERS_MIN} characters; make a longer one")));
        }
        Ok(Self { kept: Arc::new(read), tokens: path.with_extension("tokens").into() })
    }

    /// Whose a key is; of a key that signed.
    pub fn owner(&self, access_key: &str) -> S3Result<Owner> {
        match &*self.kept {
            Kept::One { .. } => Ok(Owner::default()),
            Kept::Issuer { .. } => Issued::parse(access_key).map(|issued| issued.owner).ok_or_else(unknown),
        }
    }

    /// Of the one key's owner there may be as many as there may be at all.
    fn check_connections(&self, caller: &Caller, access_key: &str) -> S3Result<()> {
        match (&*self.kept, Issued::parse(access_key)) {
            (Kept::Issuer { .. }, Some(issued)) if !caller.is_known_as(&issued.owner) => {
                Err(s3_error!(SlowDown, "too many connections are open with keys of {}; close some, or wait", issued.owner))
            }
            _ => {
                caller.is_known();
                Ok(())
            }
        }
    }

    fn may(&self, access_key: &str, operation: &str) -> bool {
        match &*self.kept {
            Kept::One { .. } => true,
            Kept::Issuer { .. } => Issued::parse(access_key).is_some_and(|issued| issued.may_write || READING.contains(&operation)),
        }
    }
}

fn unknown() -> s3s::S3Error {
    s3_error!(InvalidAccessKeyId, "this node does not know the access key; use the one of its credentials file, or one it was issued")
}

#[async_trait::async_trait]
impl S3Auth for Credentials {
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        match &*self.kept {
            Kept::One { access_key_id, secret_access_key } if access_key == access_key_id => {
                Ok(SecretKey::from(secret_access_key.as_str()))
            }
            Kept::One { .. } => Err(unknown()),
            Kept::Issuer { issuer_secret } => match Issued::parse(access_key) {
                Some(issued) if issued.is_over() => Err(s3_error!(ExpiredToken, "the key has expired; ask the service for a new one")),
                Some(issued) if issued.is_held_by(&self.tokens) => Ok(SecretKey::from(secret_of(issuer_secret, access_key))),
                Some(_) => Err(s3_error!(InvalidAccessKeyId, "the token that the key was given for is revoked, or its tenant is gone")),
                None => Err(unknown()),
            },
        }
    }
}

#[async_trait::async_trait]
impl S3Access for Credentials {
    async fn check(&self, context: &mut S3AccessContext<'_>) -> S3Result<()> {
        let Some(key) = context.credentials().map(|credentials| credentials.access_key.clone()) else {
            return Err(s3_error!(AccessDenied, "every request here has to be signed; nothing is public"));
        };
        if let Some(caller) = context.extensions_mut().get::<Arc<Caller>>() {
            self.check_connections(caller, &key)?;
        }
        if self.may(&key, context.s3_op().name()) {
            checksums::check_known(context.headers())?;
            return lists::check_expected_owner(context.headers());
        }
        Err(s3_error!(AccessDenied, "this key may only read; ask for one with a token that has the scope submit"))
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

    const ISSUER: &str = r#"{"issuer_secret": "0123456789abcdef"}"#;
    const GOOD: &str = r#"{"access_key_id": "a", "secret_access_key": "0123456789abcdef"}"#;

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        assert!(read(GOOD, 0o600).is_ok() && read(ISSUER, 0o600).is_ok());
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

    #[test]
    fn a_file_says_one_thing() {
        for text in [r#"{"issuer_secret": "short"}"#, r#"{"issuer_secret": "0123456789abcdef", "more": 1}"#, "{}"] {
            assert!(read(text, 0o600).is_err(), "{text}");
        }
        let both = r#"{"access_key_id": "a", "secret_access_key": "0123456789abcdef", "issuer_secret": "0123456789abcdef"}"#;
        assert!(read(both, 0o600).is_err());
    }

    #[test]
    fn a_key_that_may_read_may_only_read() {
        let issuer = read(ISSUER, 0o600).unwrap();
        for (operation, reads) in
            [("GetObject", true), ("ListBuckets", true), ("PutObject", false), ("DeleteObjects", false), ("New", false)]
        {
            assert_eq!(issuer.may("a.r.4000000000.0123abcd", operation), reads, "{operation}");
            assert!(issuer.may("a.w.4000000000.0123abcd", operation) && read(GOOD, 0o600).unwrap().may("a", operation));
            assert!(!issuer.may("a", operation));
        }
    }
}
