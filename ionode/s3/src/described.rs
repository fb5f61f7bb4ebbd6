//! Queries about objects: what is known of one, and all of a bucket with their versions.
//!
//! The one rule: each object is its only version, which has no name ("null").

use s3s::dto::{
    Checksum, GetObjectAttributesInput, GetObjectAttributesOutput, GetObjectAttributesParts, ListObjectVersionsInput,
    ListObjectVersionsOutput, ObjectAttributes, ObjectPart, ObjectVersion, ObjectVersionStorageClass, StorageClass,
};
use s3s::{s3_error, S3Response, S3Result};
use stager_objects::Object;

use crate::attributes::timestamp;
use crate::checksums::{self, kind, set_checksum, Fields};
use crate::errors::to_s3;
use crate::lists::{names_of, owner, page, prefixes, Names};
use crate::reads::{check_version, etag};
use crate::Face;

const VERSION: &str = "null";
const KNOWN: [&str; 5] = [
    ObjectAttributes::CHECKSUM,
    ObjectAttributes::ETAG,
    ObjectAttributes::OBJECT_PARTS,
    ObjectAttributes::OBJECT_SIZE,
    ObjectAttributes::STORAGE_CLASS,
];

/// The sizes of parts are kept, their checksums are not.
fn parts(object: &Object, after: i32, limit: i32) -> Option<GetObjectAttributesParts> {
    let sizes = object.part_sizes_bytes();
    let numbered = sizes.iter().zip(1..).filter(|(_, number)| *number > after);
    let shown: Vec<ObjectPart> = numbered
        .take(limit as usize)
        .map(|(size, number)| ObjectPart { part_number: Some(number), size: Some(*size as i64), ..ObjectPart::default() })
        .collect();
    let last = shown.last().and_then(|part| part.part_number).unwrap_or(after);
    let parts = GetObjectAttributesParts {
        is_truncated: Some((last as usize) < sizes.len()),
        max_parts: Some(limit),
        next_part_number_marker: Some(last),
        part_number_marker: Some(after),
        parts: Some(shown),
        total_parts_count: Some(sizes.len() as i32),
    };
    (!sizes.is_empty()).then_some(parts)
}

impl Face {
    pub fn attributes(&self, input: GetObjectAttributesInput) -> S3Result<S3Response<GetObjectAttributesOutput>> {
        check_version(input.version_id.as_deref())?;
        let asked: Vec<&str> = input.object_attributes.iter().flat_map(|names| names.as_str().split(',')).map(str::trim).collect();
        if asked.is_empty() || !asked.iter().all(|name| KNOWN.contains(name)) {
            return Err(s3_error!(InvalidArgument, "x-amz-object-attributes is a list of {}", KNOWN.join(", ")));
        }
        let limit = page(input.max_parts)?;
        let object = self.objects.head(&self.name(&input.bucket, input.key)?).map_err(to_s3)?;
        let is_asked = |name: &str| asked.contains(&name);
        let mut checksum = Checksum { checksum_type: Some(kind(object.checksum.of_parts)), ..Checksum::default() };
        set_checksum!(checksum, Fields::of(&object.checksum));
        let output = GetObjectAttributesOutput {
            checksum: is_asked(ObjectAttributes::CHECKSUM).then_some(checksum),
            e_tag: is_asked(ObjectAttributes::ETAG).then(|| etag(&object)),
            last_modified: Some(timestamp(object.modified_ms)),
            object_parts: is_asked(ObjectAttributes::OBJECT_PARTS)
                .then(|| parts(&object, input.part_number_marker.unwrap_or_default(), limit))
                .flatten(),
            object_size: is_asked(ObjectAttributes::OBJECT_SIZE).then_some(object.size_bytes as i64),
            storage_class: is_asked(ObjectAttributes::STORAGE_CLASS).then(|| StorageClass::from_static(StorageClass::STANDARD)),
            ..GetObjectAttributesOutput::default()
        };
        let more = is_asked(ObjectAttributes::CHECKSUM).then(|| checksums::as_header(object.checksum.algorithm, &object.checksum.value));
        Ok(S3Response::with_headers(output, more.unwrap_or_default()))
    }

    pub fn list_versions(&self, input: ListObjectVersionsInput) -> S3Result<ListObjectVersionsOutput> {
        let (names, limit) = (Names::new(input.encoding_type.as_ref())?, page(input.max_keys)?);
        let (prefix, after) = (input.prefix.clone().unwrap_or_default(), input.key_marker.clone().unwrap_or_default());
        let of_version = input.version_id_marker.as_deref().filter(|version| !version.is_empty());
        if of_version.is_some_and(|version| version != VERSION || after.is_empty()) {
            return Err(s3_error!(
                InvalidArgument,
                "a version-id-marker is {VERSION:?} here, beside a key-marker: objects have no versions"
            ));
        }
        let listing = self.listed(&input.bucket, &prefix, input.delimiter.as_deref(), &after, limit)?;
        let names = names.for_all(names_of(&listing, [Some(&prefix), input.delimiter.as_deref(), Some(&after)]));
        let version = |(key, object): &(String, Object)| ObjectVersion {
            checksum_algorithm: Some(vec![checksums::name(object.checksum.algorithm)]),
            checksum_type: Some(kind(object.checksum.of_parts)),
            e_tag: Some(etag(object)),
            is_latest: Some(true),
            key: Some(names.write(key)),
            last_modified: Some(timestamp(object.modified_ms)),
            owner: Some(owner()),
            size: Some(object.size_bytes as i64),
            storage_class: Some(ObjectVersionStorageClass::from_static(ObjectVersionStorageClass::STANDARD)),
            version_id: Some(VERSION.to_string()),
            ..ObjectVersion::default()
        };
        let next_is_object = listing.next.as_ref().is_some_and(|next| listing.objects.last().is_some_and(|(key, _)| key == next));
        Ok(ListObjectVersionsOutput {
            versions: Some(listing.objects.iter().map(version).collect()),
            common_prefixes: Some(prefixes(names, &listing)),
            is_truncated: Some(listing.next.is_some()),
            next_key_marker: listing.next.as_deref().map(|next| names.write(next)),
            next_version_id_marker: next_is_object.then(|| VERSION.to_string()),
            name: Some(input.bucket),
            prefix: Some(names.write(&prefix)),
            max_keys: Some(limit),
            key_marker: names.write_some(Some(after)),
            version_id_marker: input.version_id_marker,
            delimiter: names.write_some(input.delimiter),
            encoding_type: names.encoding(),
            ..ListObjectVersionsOutput::default()
        })
    }
}
