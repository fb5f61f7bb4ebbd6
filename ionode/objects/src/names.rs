//! Names of buckets and objects. Every bucket belongs to an owner, and only who says whose it means can name one.
//!
//! The one rule: a full name is made of an owner and what the owner calls the bucket: by no name does anybody reach a bucket of another.

use std::fmt;

use stager_core::error::{ApiError, Code};

/// Neither in names of buckets nor in those of owners.
const BETWEEN: char = '/';

/// Whose buckets: the one key of a node has no name, keys that were issued name their owner.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Owner(String);

impl Owner {
    /// `None`: no name of an owner.
    pub fn named(name: &str) -> Option<Self> {
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        (!name.is_empty() && name.bytes().all(fits)).then(|| Self(name.to_string()))
    }

    /// What the full names of all its buckets begin with.
    pub(crate) fn prefix(&self) -> String {
        if self.0.is_empty() {
            String::new()
        } else {
            format!("{}{BETWEEN}", self.0)
        }
    }

    pub fn bucket(&self, name: &str) -> Result<BucketName, ApiError> {
        if name.is_empty() || name.contains([BETWEEN, '\0']) {
            return Err(ApiError::new(Code::BucketUnknown, name, format!("{name:?} is no name of a bucket; list yours")));
        }
        Ok(BucketName(self.prefix() + name))
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The full name of a bucket, `OWNER/NAME`, or `NAME` where the owner has no name. It is a part of the keys on disk.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BucketName(String);

impl BucketName {
    pub(crate) fn kept(full: String) -> Self {
        Self(full)
    }
    pub(crate) fn full(&self) -> &str {
        &self.0
    }
    /// Of an owner without a name: nothing.
    pub(crate) fn owner(&self) -> &str {
        self.0.rsplit_once(BETWEEN).map_or("", |(owner, _)| owner)
    }
    /// As its owner calls it.
    pub fn own(&self) -> &str {
        self.0.rsplit(BETWEEN).next().unwrap_or_default()
    }
    pub(crate) fn belongs_to(&self, owner: &Owner) -> bool {
        self.0.strip_prefix(&owner.prefix()).is_some_and(|rest| !rest.contains(BETWEEN))
    }
}

impl fmt::Display for BucketName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An object's full name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Name {
    pub bucket: BucketName,
    pub key: String,
}

impl Name {
    pub fn new(bucket: BucketName, key: impl Into<String>) -> Self {
        Self { bucket, key: key.into() }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.bucket, self.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_reaches_a_bucket_of_another() {
        let (nobody, alice, bob) = (Owner::default(), Owner::named("alice").unwrap(), Owner::named("bob").unwrap());
        let buckets: Vec<_> = [&nobody, &alice, &bob].iter().map(|owner| owner.bucket("data").unwrap()).collect();
        assert_eq!(buckets.iter().map(|bucket| bucket.full()).collect::<Vec<_>>(), ["data", "alice/data", "bob/data"]);
        assert!(buckets.iter().all(|bucket| bucket.own() == "data"));
        for (at, owner) in [&nobody, &alice, &bob].iter().enumerate() {
            let belonging: Vec<_> = buckets.iter().map(|bucket| bucket.belongs_to(owner)).collect();
            assert_eq!(belonging, (0..3).map(|other| other == at).collect::<Vec<_>>());
            for name in ["", "bob/data", "/data", "../bob/data", "data\0x"] {
                assert!(owner.bucket(name).is_err(), "{name:?}");
            }
        }
        for name in ["", "a/b", "Alice", "a\0", "a.b"] {
            assert!(Owner::named(name).is_none(), "{name:?}");
        }
    }
}
