//! Buckets: names that objects lie in.
//!
//! The one rule: a bucket goes only when nothing is in it, and nothing comes into it while it goes.

use serde::{Deserialize, Serialize};
use stager_core::error::{ApiError, Code};
use stager_store::{Done, Op, When};

use crate::{meta, now_ms, tables, to_the_end, BucketName, Objects, Owner};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    pub name: BucketName,
    pub created_ms: u64,
}

#[derive(Serialize, Deserialize)]
struct Kept {
    created_ms: u64,
}

impl meta::Kept for Kept {}

impl Objects {
    pub async fn create_bucket(&self, name: &BucketName) -> Result<(), ApiError> {
        let key = name.full().as_bytes().to_vec();
        let meta = meta::to_bytes(&Kept { created_ms: now_ms() });
        let _grant = self.grant(name.full(), 0)?;
        let weight_bytes = meta::weight_bytes(&key, &meta, 0);
        let op = Op::Put { table: tables::BUCKETS, key, meta, value: Default::default(), weight_bytes, when: When::Absent };
        match self.log().write_all(vec![op]).await?.remove(0) {
            Done::NotMet { .. } => Err(ApiError::new(
                Code::BucketExists,
                name.full(),
                format!("the bucket {name} is there already; use it or take another name"),
            )),
            _ => Ok(()),
        }
    }

    pub fn bucket(&self, name: &BucketName) -> Result<Bucket, ApiError> {
        let stat = self.log().stat(tables::BUCKETS, name.full().as_bytes())?.ok_or_else(|| unknown(name))?;
        let kept: Kept = meta::parse(name.full(), &stat.meta)?;
        Ok(Bucket { name: name.clone(), created_ms: kept.created_ms })
    }

    pub(crate) fn require_bucket(&self, name: &BucketName) -> Result<(), ApiError> {
        self.log().stat(tables::BUCKETS, name.full().as_bytes())?.map(drop).ok_or_else(|| unknown(name))
    }

    /// Of all owners.
    pub(crate) fn buckets(&self) -> Result<Vec<Bucket>, ApiError> {
        let mut buckets = Vec::new();
        for found in self.log().scan(tables::BUCKETS, b"")? {
            let (key, stat) = found?;
            let name = BucketName::kept(String::from_utf8_lossy(&key).into_owned());
            let kept: Kept = meta::parse(name.full(), &stat.meta)?;
            buckets.push(Bucket { name, created_ms: kept.created_ms });
        }
        Ok(buckets)
    }

    pub fn buckets_of(&self, owner: &Owner) -> Result<Vec<Bucket>, ApiError> {
        Ok(self.buckets()?.into_iter().filter(|bucket| bucket.name.belongs_to(owner)).collect())
    }

    /// Uploads that were not completed are aborted with it.
    pub async fn delete_bucket(&self, name: &BucketName) -> Result<(), ApiError> {
        let (objects, name) = (self.clone(), name.clone());
        to_the_end(async move {
            let _locked = objects.inner.buckets_lock.write().await;
            objects.require_bucket(&name)?;
            let inside = tables::below(&name, "");
            if !objects.log().list(tables::OBJECTS, &inside, None, b"", 1)?.listed.is_empty() {
                let message = format!("the bucket {name} still holds objects; delete them first");
                return Err(ApiError::new(Code::BucketNotEmpty, name.full(), message));
            }
            for (upload_name, id) in objects.uploads_below(&inside, &name)? {
                objects.end_upload(&upload_name, id).await?;
            }
            objects
                .log()
                .write_all(vec![Op::Delete { table: tables::BUCKETS, key: name.full().as_bytes().to_vec(), when: When::Any }])
                .await?;
            Ok(())
        })
        .await
    }
}

fn unknown(name: &BucketName) -> ApiError {
    ApiError::new(Code::BucketUnknown, name.full(), format!("there is no bucket {name} on this node; create it first"))
}
