//! Listing objects and uploads in pages, in the order of their names' bytes.
//!
//! The one rule: the next page begins exactly behind the last thing of this one.

use stager_core::error::ApiError;
use stager_store::Listed;

use crate::ids::UploadId;
use crate::meta::{self, Object};
use crate::uploads::Upload;
use crate::{tables, BucketName, Name, Objects};

/// Objects and shared prefixes, each sorted; `next` is to be given as `after`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    pub objects: Vec<(String, Object)>,
    pub prefixes: Vec<String>,
    pub next: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uploading {
    pub key: String,
    pub id: UploadId,
    pub upload: Upload,
}

impl Objects {
    pub fn list(&self, bucket: &BucketName, prefix: &str, delimiter: Option<&str>, after: &str, limit: usize) -> Result<Listing, ApiError> {
        self.require_bucket(bucket)?;
        let behind = if after.is_empty() { Vec::new() } else { tables::below(bucket, after) };
        let below = tables::below(bucket, prefix);
        let page = self.log().list(tables::OBJECTS, &below, delimiter.map(str::as_bytes), &behind, limit)?;
        let without_bucket = |name: &[u8]| String::from_utf8_lossy(&name[bucket.full().len() + 1..]).into_owned();
        let mut listing = Listing { next: page.next.as_deref().map(without_bucket), ..Listing::default() };
        for listed in &page.listed {
            match listed {
                Listed::Key(name, stat) => {
                    let key = without_bucket(name);
                    listing.objects.push((key.clone(), meta::parse(&key, &stat.meta)?));
                }
                Listed::Prefix(prefix) => listing.prefixes.push(without_bucket(prefix)),
            }
        }
        Ok(listing)
    }

    /// Uploads under way, by key and id; the second value says whether there are more behind.
    pub fn uploads(
        &self,
        bucket: &BucketName,
        prefix: &str,
        after: Option<(&str, UploadId)>,
        limit: usize,
    ) -> Result<(Vec<Uploading>, bool), ApiError> {
        self.require_bucket(bucket)?;
        let behind = after.map(|(key, id)| tables::upload(&Name::new(bucket.clone(), key), id)).unwrap_or_default();
        let page = self.log().list(tables::UPLOADS, &tables::below(bucket, prefix), None, &behind, limit)?;
        let mut uploads = Vec::new();
        for listed in page.listed {
            let Listed::Key(name, stat) = listed else { continue };
            let Some((key, id)) = tables::split_upload(bucket, &name) else { continue };
            let upload = meta::parse(&key, &stat.meta)?;
            uploads.push(Uploading { key, id, upload });
        }
        Ok((uploads, page.next.is_some()))
    }
}
