//! Deletes that remove one content and no other: by the version, or the ETag, that the server answered when it was written.
//!
//! The one rule: a delete of what was written under a name that others may write to, too, is left out where the server cannot keep to
//! that.

use object_store::client::{HttpError, HttpErrorKind, HttpRequest};
use object_store::path::Path as Key;
use object_store::{Error, HeaderValue, ObjectStore, ObjectStoreExt, PutResult};
use percent_encoding::{utf8_percent_encode, NON_ALPHANUMERIC};
use stager_core::error::{ApiError, Code};

use super::signing::Signing;
use super::{put_options, quoted, S3Origin};
use crate::path::temporary_name;

const IF_MATCH: &str = "if-match";
/// Of no content.
const NO_TAG: &str = "\"00000000000000000000000000000000\"";

/// What the server answered to the request that made an object.
#[derive(Clone, Debug, Default)]
pub struct Written {
    pub tag: Option<String>,
    version: Option<String>,
}

impl From<PutResult> for Written {
    fn from(answer: PutResult) -> Self {
        let tag = answer.e_tag.filter(|tag| !tag.trim_matches('"').is_empty()).map(|tag| quoted(&tag));
        Self { tag, version: answer.version.filter(|version| !version.is_empty() && version != "null") }
    }
}

/// What a DELETE may remove.
#[derive(Clone, Debug)]
enum Only {
    Tag(String),
    Version(String),
}

tokio::task_local! {
    /// object_store has no words for it: `narrow` finds it when the request leaves.
    static ONLY: Only;
}

/// To the request of a delete, before it leaves.
pub fn narrow(request: &mut HttpRequest, signing: Option<&Signing>) -> Result<(), HttpError> {
    let Ok(only) = ONLY.try_with(Only::clone) else { return Ok(()) };
    let failed = |why: &'static str| HttpError::new(HttpErrorKind::Unknown, std::io::Error::other(why));
    match only {
        Only::Tag(tag) => {
            let tag = HeaderValue::from_str(&tag).map_err(|_| failed("the ETag cannot be sent"))?;
            request.headers_mut().insert(IF_MATCH, tag);
            Ok(())
        }
        Only::Version(version) => {
            let version = utf8_percent_encode(&version, NON_ALPHANUMERIC);
            let narrowed = format!("{}?versionId={version}", request.uri());
            *request.uri_mut() = narrowed.parse().map_err(|_| failed("the version cannot be sent"))?;
            match signing.is_none_or(|signing| signing.sign(request)) {
                true => Ok(()),
                false => Err(failed("the delete of a version cannot be signed")),
            }
        }
    }
}

async fn delete(origin: &S3Origin, path: &str, only: Only) -> Result<(), Error> {
    let key = origin.key(path).map_err(|error| Error::Generic { store: "S3", source: error.message.into() })?;
    ONLY.scope(only, origin.clients.plain.delete(&key)).await
}

/// Whether it is gone; false: it, or what somebody else put in its place, is there as it was.
pub async fn take_back(origin: &S3Origin, path: &str, written: Written) -> Result<bool, ApiError> {
    if let Some(version) = written.version {
        match taken_back(origin, path, Only::Version(version)).await {
            // Fewer keys may remove versions than may delete; a delete hides this one, too.
            Err(error) if error.code == Code::Denied => {}
            outcome => return outcome,
        }
    }
    match written.tag {
        Some(tag) if keeps_to_conditions(origin).await? => taken_back(origin, path, Only::Tag(tag)).await,
        _ => Ok(false),
    }
}

async fn taken_back(origin: &S3Origin, path: &str, only: Only) -> Result<bool, ApiError> {
    match delete(origin, path, only).await {
        Ok(()) | Err(Error::NotFound { .. }) => Ok(true),
        Err(Error::Precondition { .. }) => Ok(false),
        Err(error) => Err(origin.failure(&error, path)),
    }
}

/// Where the server keeps to conditions; where it does not, the caller's stat just before has to do. Whether it had that ETag.
pub async fn erase(origin: &S3Origin, path: &str, tag: &str) -> Result<bool, ApiError> {
    match delete(origin, path, Only::Tag(tag.to_owned())).await {
        Ok(()) | Err(Error::NotFound { .. }) => Ok(true),
        Err(Error::Precondition { .. }) => Ok(false),
        Err(error) if origin.failure(&error, path).code == Code::Unsupported => {
            origin.clients.plain.delete(&origin.key(path)?).await.map_err(|error| origin.failure(&error, path)).map(|()| true)
        }
        Err(error) => Err(origin.failure(&error, path)),
    }
}

/// Asked once, by an object of our own: many servers take no notice of If-Match on a DELETE.
async fn keeps_to_conditions(origin: &S3Origin) -> Result<bool, ApiError> {
    let asked = origin.deletes_on_condition.get_or_try_init(|| async {
        let (path, key) = made_to_ask(origin).await?;
        let kept = delete(origin, &path, Only::Tag(NO_TAG.to_owned())).await;
        if kept.is_err() {
            origin.clients.plain.delete(&key).await.map_err(|error| origin.failure(&error, &path))?;
        }
        match kept {
            Err(Error::Precondition { .. }) => Ok(true),
            Ok(()) | Err(Error::NotFound { .. }) => Ok(false),
            Err(error) => match origin.failure(&error, &path) {
                error if error.code == Code::Unsupported => Ok(false),
                error => Err(error),
            },
        }
    });
    asked.await.copied()
}

/// Whether a PUT with If-None-Match leaves what is there alone.
pub async fn keeps_to_creating(origin: &S3Origin) -> Result<bool, ApiError> {
    let (path, key) = made_to_ask(origin).await?;
    let again = origin.clients.plain.put_opts(&key, "y".into(), put_options(false)).await;
    origin.clients.plain.delete(&key).await.map_err(|error| origin.failure(&error, &path))?;
    Ok(matches!(again, Err(Error::AlreadyExists { .. } | Error::Precondition { .. } | Error::NotModified { .. })))
}

async fn made_to_ask(origin: &S3Origin) -> Result<(String, Key), ApiError> {
    let path = temporary_name(&format!("probe-{:016x}", rand::random::<u64>()));
    let key = origin.key(&path)?;
    origin.clients.plain.put(&key, "x".into()).await.map_err(|error| origin.failure(&error, &path))?;
    Ok((path, key))
}
