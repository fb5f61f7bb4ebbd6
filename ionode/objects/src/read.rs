//! Reading objects: from the log or from files, any range, block by block.
//!
//! The one rule: no byte leaves that was not compared with its checksum; an object with a wrong one is quarantined before anybody is told.

use std::ops::Range;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use stager_core::error::{ApiError, Class, Code};
use stager_store::{Op, When};

use crate::file::Readable;
use crate::leases::Lease;
use crate::meta::{self, FilePart, Object, Stored};
use crate::put::unknown;
use crate::{blocking, tables, Name, Objects};

pub(crate) const TRIES_MAX: usize = 100;

/// An object as it was at one moment; its content can be read whatever happens to its name.
pub struct Found {
    objects: Objects,
    name: Name,
    object: Object,
    version: u64,
    inline: Bytes,
    _lease: Option<Lease>,
}

impl Objects {
    /// What is known of it. A damaged one is refused here already, as its content would be.
    pub fn head(&self, name: &Name) -> Result<Object, ApiError> {
        let Some(stat) = self.log().stat(tables::OBJECTS, &tables::object(name))? else {
            self.require_bucket(&name.bucket)?;
            return Err(unknown(name));
        };
        if stat.quarantined {
            return Err(quarantined(name));
        }
        meta::parse(&name.to_string(), &stat.meta)
    }

    pub async fn find(&self, name: &Name) -> Result<Found, ApiError> {
        let key = tables::object(name);
        for _ in 0..TRIES_MAX {
            let Some(stat) = self.log().stat(tables::OBJECTS, &key)? else {
                self.require_bucket(&name.bucket)?;
                return Err(unknown(name));
            };
            if stat.quarantined {
                return Err(quarantined(name));
            }
            let object: Object = meta::parse(&name.to_string(), &stat.meta)?;
            let (inline, lease) = match &object.stored {
                Stored::Files(files) => (Bytes::new(), self.inner.leases.take(files)),
                Stored::Inline => (self.inline(name, stat.version).await?, None),
            };
            // Another version now: the files may be gone, the value may be the other one's.
            if self.log().stat(tables::OBJECTS, &key)?.is_none_or(|now| now.version != stat.version) {
                continue;
            }
            self.inner.counters.objects_read.fetch_add(1, Ordering::Relaxed);
            return Ok(Found { objects: self.clone(), name: name.clone(), object, version: stat.version, inline, _lease: lease });
        }
        Err(restless(name))
    }

    pub(crate) async fn inline(&self, name: &Name, version: u64) -> Result<Bytes, ApiError> {
        let key = tables::object(name);
        let found = match self.log().get_at_hand(tables::OBJECTS, &key) {
            Ok(None) => {
                let log = self.inner.log.clone();
                blocking(move || log.get(tables::OBJECTS, &key)).await
            }
            found => found,
        };
        match found {
            Ok(found) => Ok(found.map(|(_, value)| value).unwrap_or_default()),
            Err(error) if error.class == Class::Corrupt => Err(self.quarantine(name, version, error).await),
            Err(error) => Err(error),
        }
    }

    /// From here on nobody reads this version. Returns what to tell.
    async fn quarantine(&self, name: &Name, version: u64, error: ApiError) -> ApiError {
        let op = Op::Quarantine { table: tables::OBJECTS, key: tables::object(name), when: When::Version(version) };
        self.note_damage(name, &error);
        if let Err(error) = self.log().write_all(vec![op]).await {
            tracing::error!(object = %name, %error, "the quarantine of an object could not be written; its checksum still protects its readers");
        }
        quarantined(name)
    }

    pub(crate) fn note_damage(&self, name: &Name, error: &ApiError) {
        self.inner.counters.objects_corrupt.fetch_add(1, Ordering::Relaxed);
        tracing::error!(object = %name, %error, "quarantined an object: its content is damaged on the node's disk");
    }
}

pub(crate) fn restless(name: &Name) -> ApiError {
    ApiError::new(Code::Busy, name.to_string(), format!("{name} changes all the time; try again"))
}

pub(crate) fn quarantined(name: &Name) -> ApiError {
    let message = format!("the content of {name} is damaged on the node's disk and is not given out; put it again or delete it");
    ApiError::new(Code::ObjectCorrupt, name.to_string(), message)
}

impl Found {
    pub fn object(&self) -> &Object {
        &self.object
    }

    pub(crate) fn only_file(&self) -> Option<FilePart> {
        match self.object.stored.files() {
            [only] if self.object.etag.parts == 0 => Some(only.clone()),
            _ => None,
        }
    }

    /// Of bytes within the object.
    pub fn read(self, range: Range<u64>) -> Reader {
        Reader { at: range.start, end: range.end, found: self, open: None }
    }
}

struct Open {
    starts: u64,
    ends: u64,
    file: Readable,
}

pub struct Reader {
    found: Found,
    at: u64,
    end: u64,
    open: Option<Open>,
}

impl Reader {
    /// The next bytes, at most a block; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ApiError> {
        if self.at >= self.end {
            return Ok(None);
        }
        let bytes = match self.found.object.stored {
            Stored::Inline => self.found.inline.slice(self.at as usize..self.end as usize),
            Stored::Files(_) => match self.next_of_files().await {
                Err(error) if error.class == Class::Corrupt => {
                    return Err(self.found.objects.quarantine(&self.found.name, self.found.version, error).await);
                }
                read => read?,
            },
        };
        self.at += bytes.len() as u64;
        self.found.objects.inner.counters.read_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(Some(bytes))
    }

    async fn next_of_files(&mut self) -> Result<Bytes, ApiError> {
        let at = self.at;
        if self.open.as_ref().is_none_or(|open| at >= open.ends) {
            let mut starts = 0;
            let holds = |file: &&FilePart| {
                let here = at < starts + file.size_bytes;
                starts += if here { 0 } else { file.size_bytes };
                here
            };
            let part = self.found.object.stored.files().iter().find(holds).expect("a range lies within the object").clone();
            let directory = self.found.objects.inner.directory.clone();
            let ends = starts + part.size_bytes;
            let file = blocking(move || Readable::open(&directory, &part)).await?;
            self.open = Some(Open { starts, ends, file });
        }
        let open = self.open.as_ref().expect("opened above");
        let within = at - open.starts;
        let (block_starts, block) = open.file.block(within).await?;
        let from = (within - block_starts) as usize;
        let to = block.len().min((self.end - open.starts - block_starts).min(block.len() as u64) as usize);
        Ok(block.slice(from..to))
    }
}
