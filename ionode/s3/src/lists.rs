//! Buckets, and lists of objects in pages.
//!
//! The one rule: where a client asks for encoding, every name in the answer is encoded: XML cannot hold all that a name can.

use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use base64::Engine;
use hyper::HeaderMap;
use s3s::dto::{
    Bucket, CommonPrefix, EncodingType, ListBucketsInput, ListBucketsOutput, ListObjectsInput, ListObjectsOutput, ListObjectsV2Input,
    ListObjectsV2Output, Object, ObjectStorageClass, Owner,
};
use s3s::{s3_error, S3Result};
use stager_objects::Listing;

use crate::attributes::timestamp;
use crate::checksums::{kind, name};
use crate::errors::to_s3;
use crate::reads::etag;
use crate::xml::is_writable;
use crate::Face;

const PAGE_MAX: i32 = 1000;
const BUCKETS_MAX: i32 = 10_000;
/// Of everything a key sees: nothing here is shared.
const OWNER: &str = "stager";

pub fn owner() -> Owner {
    Owner { display_name: Some(OWNER.to_string()), id: Some(OWNER.to_string()) }
}

/// Whom a client thinks the buckets belong to.
pub fn check_expected_owner(headers: &HeaderMap) -> S3Result<()> {
    let mut expected =
        ["x-amz-expected-bucket-owner", "x-amz-source-expected-bucket-owner"].into_iter().flat_map(|name| headers.get_all(name));
    match expected.all(|owner| owner.as_bytes() == OWNER.as_bytes()) {
        true => Ok(()),
        false => Err(s3_error!(AccessDenied, "the bucket is not of the owner that the request expects: all here are of {OWNER:?}")),
    }
}

pub fn page(asked: Option<i32>) -> S3Result<i32> {
    match asked {
        Some(..=-1) => Err(s3_error!(InvalidArgument, "a page cannot have less than no entries")),
        asked => Ok(asked.unwrap_or(PAGE_MAX).min(PAGE_MAX)),
    }
}

/// How names go into an answer.
#[derive(Clone, Copy)]
pub struct Names {
    encode: bool,
}

impl Names {
    pub fn new(asked: Option<&EncodingType>) -> S3Result<Self> {
        match asked.map(EncodingType::as_str) {
            None => Ok(Self { encode: false }),
            Some(EncodingType::URL) => Ok(Self { encode: true }),
            Some(_) => Err(s3_error!(InvalidArgument, "the only encoding of names is url")),
        }
    }

    /// Encoded even unasked where XML cannot say one of them as it is; the answer tells.
    pub fn for_all<'a>(self, mut names: impl Iterator<Item = &'a str>) -> Self {
        Self { encode: self.encode || !names.all(is_writable) }
    }

    pub fn encoding(self) -> Option<EncodingType> {
        self.encode.then(|| EncodingType::from_static(EncodingType::URL))
    }

    pub fn write(self, name: &str) -> String {
        if !self.encode {
            return name.to_string();
        }
        let mut text = String::with_capacity(name.len());
        for byte in name.bytes() {
            match byte {
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b'/' => text.push(byte as char),
                _ => text.push_str(&format!("%{byte:02X}")),
            }
        }
        text
    }

    pub fn write_some(self, name: Option<String>) -> Option<String> {
        name.map(|name| self.write(&name))
    }
}

fn object(names: Names, key: &str, object: &stager_objects::Object, with_owner: bool) -> Object {
    Object {
        checksum_algorithm: Some(vec![name(object.checksum.algorithm)]),
        checksum_type: Some(kind(object.checksum.of_parts)),
        e_tag: Some(etag(object)),
        key: Some(names.write(key)),
        last_modified: Some(timestamp(object.modified_ms)),
        owner: with_owner.then(owner),
        restore_status: None,
        size: Some(object.size_bytes as i64),
        storage_class: Some(ObjectStorageClass::from_static(ObjectStorageClass::STANDARD)),
    }
}

fn contents(names: Names, listing: &Listing, with_owner: bool) -> Vec<Object> {
    listing.objects.iter().map(|(key, found)| object(names, key, found, with_owner)).collect()
}

pub fn prefixes(names: Names, listing: &Listing) -> Vec<CommonPrefix> {
    listing.prefixes.iter().map(|prefix| CommonPrefix { prefix: Some(names.write(prefix)) }).collect()
}

/// Where the next page begins, in a form that any transport carries.
fn token(next: &str) -> String {
    URL_SAFE_NO_PAD.encode(next)
}

fn from_token(token: &str) -> S3Result<String> {
    let name = URL_SAFE_NO_PAD.decode(token).ok().and_then(|name| String::from_utf8(name).ok());
    name.ok_or_else(|| s3_error!(InvalidArgument, "the continuation token is none of this node"))
}

/// All names in a list.
pub fn names_of<'a>(listing: &'a Listing, asked: [Option<&'a str>; 3]) -> impl Iterator<Item = &'a str> {
    let found = listing.objects.iter().map(|(key, _)| key.as_str()).chain(listing.prefixes.iter().map(String::as_str));
    found.chain(listing.next.as_deref()).chain(asked.into_iter().flatten())
}

impl Face {
    pub fn listed(&self, bucket: &str, prefix: &str, delimiter: Option<&str>, after: &str, limit: i32) -> S3Result<Listing> {
        let delimiter = delimiter.filter(|delimiter| !delimiter.is_empty());
        self.objects.list(&self.bucket(bucket)?, prefix, delimiter, after, limit as usize).map_err(to_s3)
    }

    pub fn list_v2(&self, input: ListObjectsV2Input) -> S3Result<ListObjectsV2Output> {
        let (names, limit) = (Names::new(input.encoding_type.as_ref())?, page(input.max_keys)?);
        let after = match &input.continuation_token {
            Some(token) => from_token(token)?,
            None => input.start_after.clone().unwrap_or_default(),
        };
        let prefix = input.prefix.clone().unwrap_or_default();
        let listing = self.listed(&input.bucket, &prefix, input.delimiter.as_deref(), &after, limit)?;
        let names = names.for_all(names_of(&listing, [Some(&prefix), input.delimiter.as_deref(), input.start_after.as_deref()]));
        Ok(ListObjectsV2Output {
            key_count: Some((listing.objects.len() + listing.prefixes.len()) as i32),
            contents: Some(contents(names, &listing, input.fetch_owner == Some(true))),
            common_prefixes: Some(prefixes(names, &listing)),
            is_truncated: Some(listing.next.is_some()),
            next_continuation_token: listing.next.as_deref().map(token),
            name: Some(input.bucket),
            prefix: Some(names.write(&prefix)),
            max_keys: Some(limit),
            continuation_token: input.continuation_token,
            delimiter: names.write_some(input.delimiter),
            start_after: names.write_some(input.start_after),
            encoding_type: names.encoding(),
            ..ListObjectsV2Output::default()
        })
    }

    pub fn list_v1(&self, input: ListObjectsInput) -> S3Result<ListObjectsOutput> {
        let (names, limit) = (Names::new(input.encoding_type.as_ref())?, page(input.max_keys)?);
        let (prefix, after) = (input.prefix.clone().unwrap_or_default(), input.marker.clone().unwrap_or_default());
        let listing = self.listed(&input.bucket, &prefix, input.delimiter.as_deref(), &after, limit)?;
        let names = names.for_all(names_of(&listing, [Some(&prefix), input.delimiter.as_deref(), Some(&after)]));
        Ok(ListObjectsOutput {
            contents: Some(contents(names, &listing, true)),
            common_prefixes: Some(prefixes(names, &listing)),
            is_truncated: Some(listing.next.is_some()),
            next_marker: listing.next.as_deref().map(|next| names.write(next)),
            name: Some(input.bucket),
            prefix: Some(names.write(&prefix)),
            max_keys: Some(limit),
            marker: names.write_some(Some(after)),
            delimiter: names.write_some(input.delimiter),
            encoding_type: names.encoding(),
            ..ListObjectsOutput::default()
        })
    }

    pub fn list_buckets(&self, input: ListBucketsInput) -> S3Result<ListBucketsOutput> {
        if input.bucket_region.is_some() {
            return Err(s3_error!(NotImplemented, "buckets have no region here; list them without one"));
        }
        let most = match input.max_buckets {
            None => usize::MAX,
            Some(most @ 1..=BUCKETS_MAX) => most as usize,
            Some(_) => return Err(s3_error!(InvalidArgument, "max-buckets is 1 to {BUCKETS_MAX}")),
        };
        let prefix = input.prefix.clone().unwrap_or_default();
        let after = input.continuation_token.as_deref().map(from_token).transpose()?.unwrap_or_default();
        let mut found = self.objects.buckets_of(&self.owner).map_err(to_s3)?;
        found.retain(|bucket| bucket.name.own().starts_with(&prefix) && bucket.name.own() > after.as_str());
        found.sort_by(|one, other| one.name.cmp(&other.name));
        let more = found.len() > most;
        found.truncate(most);
        let buckets = found.iter().map(|bucket| Bucket {
            bucket_region: None,
            creation_date: Some(timestamp(bucket.created_ms)),
            name: Some(bucket.name.own().to_string()),
        });
        Ok(ListBucketsOutput {
            buckets: Some(buckets.collect()),
            owner: Some(owner()),
            prefix: input.prefix,
            continuation_token: found.last().filter(|_| more).map(|last| token(last.name.own())),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_any_bytes_are_encoded() {
        let names = Names { encode: true };
        assert_eq!(names.write("a b/+%é\u{1}"), "a%20b/%2B%25%C3%A9%01");
        assert_eq!(from_token(&token("a/\u{0}é")).unwrap(), "a/\u{0}é");
        assert!(from_token("not one of ours!").is_err());
    }
}
