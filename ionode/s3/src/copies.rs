//! CopyObject and UploadPartCopy: within the node, without a byte over the network.
//!
//! The one rule: a copy is what a client would have got by reading and writing; where that is one file, it is a second name of it.

use s3s::dto::{
    CopyObjectInput, CopyObjectOutput, CopyObjectResult, CopyPartResult, CopySource, MetadataDirective, Range, TaggingDirective,
    UploadPartCopyInput, UploadPartCopyOutput,
};
use s3s::{s3_error, S3Result};
use stager_objects::{Algorithm, Condition, Content, Described, Found, Incoming, Name};

use crate::attributes::timestamp;
use crate::checksums::{kind, set_checksum, Fields};
use crate::conditions::Wanted;
use crate::errors::to_s3;
use crate::reads::{check_version, etag};
use crate::uploads::{part_number, upload_id};
use crate::{attributes, checksums, tags, writes, Face};

fn source_name(face: &Face, source: &CopySource) -> S3Result<Name> {
    match source {
        CopySource::Bucket { bucket, key, version_id } => {
            check_version(version_id.as_deref())?;
            face.name(bucket, &**key)
        }
        _ => Err(s3_error!(NotImplemented, "the source of a copy is /bucket/key; access points are not offered here")),
    }
}

/// Reads are compared block by block, as for a client.
async fn pour(found: Found, range: std::ops::Range<u64>, mut incoming: Incoming) -> S3Result<Content> {
    let mut reader = found.read(range);
    while let Some(bytes) = reader.next().await.map_err(to_s3)? {
        incoming.write(bytes).await.map_err(to_s3)?;
    }
    incoming.finish().await.map_err(to_s3)
}

impl Face {
    pub async fn copy(&self, input: CopyObjectInput) -> S3Result<CopyObjectOutput> {
        attributes::check_copy(&input)?;
        writes::check_key(&input.key)?;
        let (source, replaced) = (source_name(self, &input.copy_source)?, attributes::of_copy(&input)?);
        let target = self.name(&input.bucket, input.key)?;
        let replaces = input.metadata_directive.as_ref().is_some_and(|directive| directive.as_str() == MetadataDirective::REPLACE);
        let tags = match input.tagging_directive.as_ref().map(|directive| directive.as_str()) {
            Some(TaggingDirective::REPLACE) => Some(tags::in_header(input.tagging.as_deref())?),
            _ if input.tagging.as_ref().is_some_and(|tags| !tags.is_empty()) => {
                return Err(s3_error!(InvalidArgument, "tags are given with x-amz-tagging-directive: REPLACE"));
            }
            _ => None,
        };
        if source == target && !replaces && tags.is_none() {
            return Err(s3_error!(InvalidRequest, "a copy of an object to itself changes nothing; give it new metadata (REPLACE)"));
        }
        let found = self.objects.find(&source).await.map_err(to_s3)?;
        let wanted = Wanted {
            if_match: input.copy_source_if_match,
            if_none_match: input.copy_source_if_none_match,
            if_modified_since: input.copy_source_if_modified_since,
            if_unmodified_since: input.copy_source_if_unmodified_since,
        };
        wanted.check_source(found.object())?;
        let algorithm = input.checksum_algorithm.as_ref().map(checksums::named).transpose()?;
        let attributes = if replaces { replaced } else { found.object().attributes.clone() };
        let described = Described { attributes, tags: tags.unwrap_or_else(|| found.object().tags.clone()) };
        self.objects.bucket(&target.bucket).map_err(to_s3)?;
        let content = self.duplicate(found, &target, algorithm).await?;
        let object = self.objects.put(&target, content, described, Condition::Any).await.map_err(to_s3)?;
        let mut result =
            CopyObjectResult { e_tag: Some(etag(&object)), last_modified: Some(timestamp(object.modified_ms)), ..Default::default() };
        set_checksum!(result, Fields::of(&object.checksum));
        result.checksum_type = Some(kind(object.checksum.of_parts));
        Ok(CopyObjectOutput { copy_object_result: Some(result), ..CopyObjectOutput::default() })
    }

    async fn duplicate(&self, found: Found, target: &Name, asked: Option<Algorithm>) -> S3Result<Content> {
        let (algorithm, size_bytes) = (found.object().checksum.algorithm, found.object().size_bytes);
        if asked.is_none_or(|asked| asked == algorithm) {
            if let Some(content) = self.objects.duplicate(&found, target).await.map_err(to_s3)? {
                return Ok(content);
            }
        }
        let incoming = self.objects.receive(target, size_bytes, asked.or(Some(algorithm))).await.map_err(to_s3)?;
        pour(found, 0..size_bytes, incoming).await
    }

    pub async fn copy_part(&self, input: UploadPartCopyInput) -> S3Result<UploadPartCopyOutput> {
        let (source, target) = (source_name(self, &input.copy_source)?, self.name(&input.bucket, input.key)?);
        let (id, number) = (upload_id(&input.upload_id)?, part_number(input.part_number)?);
        let found = self.objects.find(&source).await.map_err(to_s3)?;
        let wanted = Wanted {
            if_match: input.copy_source_if_match,
            if_none_match: input.copy_source_if_none_match,
            if_modified_since: input.copy_source_if_modified_since,
            if_unmodified_since: input.copy_source_if_unmodified_since,
        };
        wanted.check_source(found.object())?;
        let range = match &input.copy_source_range {
            Some(text) => {
                let size_bytes = found.object().size_bytes;
                match Range::parse(text) {
                    Ok(Range::Int { first, last: Some(last) }) if last < size_bytes => first..last + 1,
                    Ok(Range::Int { last: Some(_), .. }) => {
                        return Err(s3_error!(
                            InvalidRange,
                            "the source has {size_bytes} bytes, the range goes past its end; nothing was copied"
                        ));
                    }
                    _ => return Err(s3_error!(InvalidArgument, "x-amz-copy-source-range is bytes=FIRST-LAST")),
                }
            }
            None => 0..found.object().size_bytes,
        };
        let size_bytes = writes::announced_bytes(i64::try_from(range.end - range.start).ok())?;
        let incoming = self.objects.receive_part(&target, id, size_bytes, None).await.map_err(to_s3)?;
        let content = pour(found, range, incoming).await?;
        let part = self.objects.put_part(&target, id, number, content).await.map_err(to_s3)?;
        let mut result = CopyPartResult {
            e_tag: Some(s3s::dto::ETag::Strong(part.etag().to_string())),
            last_modified: Some(timestamp(part.modified_ms)),
            ..CopyPartResult::default()
        };
        set_checksum!(result, Fields::new(part.checksum.0, &part.checksum.1, 0));
        Ok(UploadPartCopyOutput { copy_part_result: Some(result), ..UploadPartCopyOutput::default() })
    }
}
