//! Tags of an object that is there already.
//!
//! The one rule: the object stays what it is, content and time of change: the same files, or the same value, under a new record.

use bytes::Bytes;
use stager_core::error::ApiError;
use stager_store::{Done, Op, When};

use crate::meta::{self, Object, Stored, Tags};
use crate::put::{no_space, unknown};
use crate::read::{quarantined, restless, TRIES_MAX};
use crate::{tables, to_the_end, Name, Objects};

impl Objects {
    pub async fn set_tags(&self, name: &Name, tags: Tags) -> Result<(), ApiError> {
        let (objects, name) = (self.clone(), name.clone());
        to_the_end(async move {
            for _ in 0..TRIES_MAX {
                if objects.set_tags_now(&name, &tags).await? {
                    return Ok(());
                }
            }
            Err(restless(&name))
        })
        .await
    }

    /// Whether it was done: not where somebody else wrote meanwhile.
    async fn set_tags_now(&self, name: &Name, tags: &Tags) -> Result<bool, ApiError> {
        let key = tables::object(name);
        let _locked = self.inner.buckets_lock.read().await;
        self.require_bucket(&name.bucket)?;
        let stat = self.log().stat(tables::OBJECTS, &key)?.ok_or_else(|| unknown(name))?;
        if stat.quarantined {
            return Err(quarantined(name));
        }
        let before: Object = meta::parse(&name.to_string(), &stat.meta)?;
        if before.tags == *tags {
            return Ok(true);
        }
        let value = match before.stored {
            Stored::Inline => self.inline(name, stat.version).await?,
            Stored::Files(_) => Bytes::new(),
        };
        let object = Object { tags: tags.clone(), ..before };
        let meta = meta::to_bytes(&object);
        // Whoever removes tags frees space: that is never refused for want of it.
        let _grant = match tags.is_empty() {
            true => None,
            false => Some(self.grant_bytes(&name.to_string(), meta::weight_bytes(&key, &meta, value.len() as u64))?),
        };
        let weight_bytes = meta::weight_bytes(&key, &meta, object.size_bytes);
        let put = Op::Put { table: tables::OBJECTS, key, meta, value, weight_bytes, when: When::Version(stat.version) };
        match self.log().write_all(vec![put]).await?.remove(0) {
            Done::Put { .. } => Ok(true),
            Done::NoSpace { free_bytes } => Err(no_space(name, free_bytes)),
            _ => Ok(false),
        }
    }
}
