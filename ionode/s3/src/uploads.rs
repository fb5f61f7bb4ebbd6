//! Uploads in parts.
//!
//! The one rule: an upload's checksum is decided when it begins; parts and completion are held to it.

use s3s::dto::{
    AbortMultipartUploadInput, ChecksumType, CompleteMultipartUploadInput, CompleteMultipartUploadOutput, CreateMultipartUploadInput,
    CreateMultipartUploadOutput, ETag, Initiator, ListMultipartUploadsInput, ListMultipartUploadsOutput, ListPartsInput, ListPartsOutput,
    MultipartUpload, Part, UploadPartInput, UploadPartOutput,
};
use s3s::{s3_error, S3Request, S3Response, S3Result};
use stager_objects::{Algorithm, CompletedPart, Upload, UploadId, PART_NUMBER_MAX};

use crate::attributes::timestamp;
use crate::checksums::{self, kind, set_checksum, Fields, Given};
use crate::conditions::{of_write, outcome};
use crate::errors::to_s3;
use crate::lists::{owner, page, Names};
use crate::reads::etag;
use crate::writes::{announced_bytes, check_key, decoded_bytes, take_in};
use crate::xml::is_writable;
use crate::{attributes, documents, tags, Face};

pub fn upload_id(text: &str) -> S3Result<UploadId> {
    UploadId::parse(text).ok_or_else(|| s3_error!(NoSuchUpload, "there is no upload of this id"))
}

pub fn part_number(number: i32) -> S3Result<u16> {
    let within = u16::try_from(number).ok().filter(|number| (1..=PART_NUMBER_MAX).contains(number));
    within.ok_or_else(|| s3_error!(InvalidArgument, "parts are numbered from 1 to {PART_NUMBER_MAX}"))
}

/// As S3 has it: CRC64NVME is always of the content, SHA always of the parts, the others of the parts unless asked otherwise.
fn is_full(algorithm: Option<Algorithm>, asked: Option<&ChecksumType>) -> S3Result<bool> {
    let asked = asked.map(ChecksumType::as_str);
    match (algorithm, asked) {
        (None | Some(Algorithm::Crc64Nvme), None | Some(ChecksumType::FULL_OBJECT)) => Ok(true),
        (Some(algorithm), Some(ChecksumType::FULL_OBJECT)) if algorithm.combines() => Ok(true),
        (Some(Algorithm::Crc32 | Algorithm::Crc32c | Algorithm::Sha1 | Algorithm::Sha256), None | Some(ChecksumType::COMPOSITE)) => {
            Ok(false)
        }
        _ => Err(s3_error!(
            InvalidRequest,
            "uploads in parts have CRC64NVME (FULL_OBJECT), CRC32 or CRC32C (of both types), SHA1 or SHA256 (COMPOSITE)"
        )),
    }
}

fn type_of(upload: &Upload) -> ChecksumType {
    kind(u32::from(!upload.full_checksum))
}

impl Face {
    pub async fn create_upload(&self, input: CreateMultipartUploadInput) -> S3Result<CreateMultipartUploadOutput> {
        attributes::check_upload(&input)?;
        check_key(&input.key)?;
        let algorithm = input.checksum_algorithm.as_ref().map(checksums::named).transpose()?;
        let upload = Upload {
            started_ms: std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_millis() as u64,
            attributes: attributes::of_upload(&input)?,
            algorithm,
            full_checksum: is_full(algorithm, input.checksum_type.as_ref())?,
            tags: tags::in_header(input.tagging.as_deref())?,
        };
        let name = self.name(&input.bucket, input.key)?;
        let checksum_type = algorithm.is_some().then(|| type_of(&upload));
        let id = self.objects.create_upload(&name, upload).await.map_err(to_s3)?;
        Ok(CreateMultipartUploadOutput {
            bucket: Some(input.bucket),
            key: Some(name.key).filter(|key| is_writable(key)),
            upload_id: Some(id.to_string()),
            checksum_algorithm: input.checksum_algorithm,
            checksum_type,
            ..CreateMultipartUploadOutput::default()
        })
    }

    pub async fn put_part(&self, request: S3Request<UploadPartInput>) -> S3Result<S3Response<UploadPartOutput>> {
        let S3Request { input, headers, trailing_headers, .. } = request;
        let (id, number) = (upload_id(&input.upload_id)?, part_number(input.part_number)?);
        let given = Given::new(&headers, trailing_headers, input.checksum_algorithm.as_ref())?;
        let (name, size_bytes) =
            (self.name(&input.bucket, input.key)?, announced_bytes(input.content_length.or_else(|| decoded_bytes(&headers)))?);
        let upload = self.objects.upload(&name, id).map_err(to_s3)?;
        if upload.algorithm.zip(given.algorithm).is_some_and(|(begun, now)| begun != now) {
            return Err(s3_error!(InvalidRequest, "the upload began with another checksum algorithm than this part has"));
        }
        let incoming = self.objects.receive_part(&name, id, size_bytes, given.algorithm).await.map_err(to_s3)?;
        let content = take_in(incoming, input.body, given).await?;
        let part = self.objects.put_part(&name, id, number, content).await.map_err(to_s3)?;
        let mut output = UploadPartOutput { e_tag: Some(ETag::Strong(part.etag().to_string())), ..UploadPartOutput::default() };
        set_checksum!(output, Fields::new(part.checksum.0, &part.checksum.1, 0));
        Ok(S3Response::with_headers(output, checksums::as_header(part.checksum.0, &part.checksum.1)))
    }

    pub async fn complete(&self, request: S3Request<CompleteMultipartUploadInput>) -> S3Result<CompleteMultipartUploadOutput> {
        documents::check_md5(&request)?;
        let S3Request { input, headers, .. } = request;
        let id = upload_id(&input.upload_id)?;
        let condition = of_write(input.if_match, input.if_none_match)?;
        let expected = checksums::of_whole(&headers, input.checksum_type.as_ref(), input.mpu_object_size)?;
        let mut listed = Vec::new();
        for part in input.multipart_upload.and_then(|upload| upload.parts).unwrap_or_default() {
            let texts = [
                (Algorithm::Crc64Nvme, part.checksum_crc64nvme),
                (Algorithm::Crc32, part.checksum_crc32),
                (Algorithm::Crc32c, part.checksum_crc32c),
                (Algorithm::Sha1, part.checksum_sha1),
                (Algorithm::Sha256, part.checksum_sha256),
            ];
            let given = texts.into_iter().filter_map(|(algorithm, text)| Some((algorithm, text?)));
            listed.push(CompletedPart {
                number: part_number(part.part_number.unwrap_or_default())?,
                etag: part.e_tag.map(ETag::into_value),
                checksums: given.map(|(algorithm, text)| Ok((algorithm, checksums::decoded(text.as_bytes())?))).collect::<S3Result<_>>()?,
            });
        }
        let name = self.name(&input.bucket, input.key)?;
        let object = outcome(self.objects.complete_upload(&name, id, listed, condition.clone(), expected).await, &condition)?;
        let mut output = CompleteMultipartUploadOutput {
            location: Some(format!(
                "/{}/{}",
                input.bucket,
                Names::new(Some(&s3s::dto::EncodingType::from_static("url")))?.write(&name.key)
            )),
            bucket: Some(input.bucket),
            key: Some(name.key).filter(|key| is_writable(key)),
            e_tag: Some(etag(&object)),
            ..CompleteMultipartUploadOutput::default()
        };
        set_checksum!(output, Fields::of(&object.checksum));
        output.checksum_type = Some(kind(object.checksum.of_parts));
        Ok(output)
    }

    pub async fn abort(&self, input: AbortMultipartUploadInput) -> S3Result<()> {
        let id = upload_id(&input.upload_id)?;
        self.objects.abort_upload(&self.name(&input.bucket, input.key)?, id).await.map_err(to_s3)
    }

    pub fn list_parts(&self, input: ListPartsInput) -> S3Result<ListPartsOutput> {
        let (id, limit) = (upload_id(&input.upload_id)?, page(input.max_parts)?);
        let name = self.name(&input.bucket, input.key)?;
        let upload = self.objects.upload(&name, id).map_err(to_s3)?;
        let after = input.part_number_marker.unwrap_or_default();
        let all = self.objects.parts(id).map_err(to_s3)?;
        let behind: Vec<_> = all.into_iter().filter(|(number, _)| i32::from(*number) > after).collect();
        let shown = &behind[..behind.len().min(limit as usize)];
        let part = |(number, part): &(u16, stager_objects::Part)| {
            let mut listed = Part {
                e_tag: Some(ETag::Strong(part.etag().to_string())),
                last_modified: Some(timestamp(part.modified_ms)),
                part_number: Some(i32::from(*number)),
                size: Some(part.size_bytes() as i64),
                ..Part::default()
            };
            set_checksum!(listed, Fields::new(part.checksum.0, &part.checksum.1, 0));
            listed
        };
        let truncated = shown.len() < behind.len();
        Ok(ListPartsOutput {
            bucket: Some(input.bucket),
            key: Some(name.key).filter(|key| is_writable(key)),
            upload_id: Some(id.to_string()),
            checksum_algorithm: upload.algorithm.map(checksums::name),
            checksum_type: upload.algorithm.map(|_| type_of(&upload)),
            is_truncated: Some(truncated),
            next_part_number_marker: shown.last().filter(|_| truncated).map(|(number, _)| i32::from(*number)),
            max_parts: Some(limit),
            part_number_marker: Some(after),
            parts: Some(shown.iter().map(part).collect()),
            owner: Some(owner()),
            initiator: Some(Initiator { display_name: owner().display_name, id: owner().id }),
            ..ListPartsOutput::default()
        })
    }

    pub fn list_uploads(&self, input: ListMultipartUploadsInput) -> S3Result<ListMultipartUploadsOutput> {
        if input.delimiter.as_ref().is_some_and(|delimiter| !delimiter.is_empty()) {
            return Err(s3_error!(NotImplemented, "uploads are listed without a delimiter here"));
        }
        let (names, limit) = (Names::new(input.encoding_type.as_ref())?, page(input.max_uploads)?);
        let prefix = input.prefix.unwrap_or_default();
        let marker = match (&input.key_marker, &input.upload_id_marker) {
            (Some(key), Some(id)) if !id.is_empty() => Some((key.as_str(), upload_id(id)?)),
            // Behind every upload of this key.
            (Some(key), _) if !key.is_empty() => Some((key.as_str(), UploadId([0xff; 16]))),
            _ => None,
        };
        let (found, more) = self.objects.uploads(&self.bucket(&input.bucket)?, &prefix, marker, limit as usize).map_err(to_s3)?;
        let last = found.last().filter(|_| more);
        let said = found.iter().map(|found| found.key.as_str()).chain([prefix.as_str()]).chain(input.key_marker.as_deref());
        let names = names.for_all(said);
        Ok(ListMultipartUploadsOutput {
            is_truncated: Some(more),
            next_key_marker: last.map(|last| names.write(&last.key)),
            next_upload_id_marker: last.map(|last| last.id.to_string()),
            uploads: Some(
                found
                    .iter()
                    .map(|uploading| MultipartUpload {
                        checksum_algorithm: uploading.upload.algorithm.map(checksums::name),
                        checksum_type: uploading.upload.algorithm.map(|_| type_of(&uploading.upload)),
                        initiated: Some(timestamp(uploading.upload.started_ms)),
                        key: Some(names.write(&uploading.key)),
                        upload_id: Some(uploading.id.to_string()),
                        owner: Some(owner()),
                        ..MultipartUpload::default()
                    })
                    .collect(),
            ),
            bucket: Some(input.bucket),
            prefix: Some(names.write(&prefix)),
            max_uploads: Some(limit),
            key_marker: names.write_some(input.key_marker),
            upload_id_marker: input.upload_id_marker,
            encoding_type: names.encoding(),
            ..ListMultipartUploadsOutput::default()
        })
    }
}
