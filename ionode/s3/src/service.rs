//! S3's operations by name. Parses and calls; what is not here is answered with NotImplemented.
//!
//! The one rule: no decisions.

use s3s::auth;
use s3s::dto::*;
use s3s::{s3_error, S3Request, S3Response, S3Result, S3};
use stager_core::error::Code;
use stager_objects::{Condition, Objects};

use crate::conditions::outcome;
use crate::credentials::Credentials;
use crate::errors::to_s3;
use crate::reads::check_version;
use crate::xml::is_writable;
use crate::{documents, tags, Face};

const DELETES_MAX: usize = 1000;

type Answer<T> = S3Result<S3Response<T>>;

fn answer<T>(output: T) -> Answer<T> {
    Ok(S3Response::new(output))
}

/// Where requests come in. It has the objects of all, and gives each request those of its key's owner.
pub struct Door {
    pub objects: Objects,
    pub credentials: Credentials,
}

impl Door {
    fn face(&self, signed: Option<&auth::Credentials>) -> S3Result<Face> {
        let signed = signed.ok_or_else(|| s3_error!(AccessDenied, "every request here has to be signed; nothing is public"))?;
        Ok(Face { objects: self.objects.clone(), owner: self.credentials.owner(&signed.access_key)? })
    }
}

#[async_trait::async_trait]
impl S3 for Door {
    async fn list_buckets(&self, request: S3Request<ListBucketsInput>) -> Answer<ListBucketsOutput> {
        let face = self.face(request.credentials.as_ref())?;
        answer(face.list_buckets(request.input)?)
    }

    async fn create_bucket(&self, request: S3Request<CreateBucketInput>) -> Answer<CreateBucketOutput> {
        let face = self.face(request.credentials.as_ref())?;
        documents::check(&request)?;
        let input = request.input;
        if input.object_lock_enabled_for_bucket == Some(true) {
            return Err(s3_error!(NotImplemented, "object locks are not offered here"));
        }
        if input.acl.as_ref().is_some_and(|acl| acl.as_str() != BucketCannedACL::PRIVATE) {
            return Err(s3_error!(NotImplemented, "access lists are not offered here: every bucket is private"));
        }
        face.objects.create_bucket(&face.bucket(&input.bucket)?).await.map_err(to_s3)?;
        answer(CreateBucketOutput { location: Some(format!("/{}", input.bucket)) })
    }

    async fn head_bucket(&self, request: S3Request<HeadBucketInput>) -> Answer<HeadBucketOutput> {
        let face = self.face(request.credentials.as_ref())?;
        face.objects.bucket(&face.bucket(&request.input.bucket)?).map_err(to_s3)?;
        answer(HeadBucketOutput::default())
    }

    async fn delete_bucket(&self, request: S3Request<DeleteBucketInput>) -> Answer<DeleteBucketOutput> {
        let face = self.face(request.credentials.as_ref())?;
        face.objects.delete_bucket(&face.bucket(&request.input.bucket)?).await.map_err(to_s3)?;
        answer(DeleteBucketOutput::default())
    }

    async fn get_bucket_location(&self, request: S3Request<GetBucketLocationInput>) -> Answer<GetBucketLocationOutput> {
        let face = self.face(request.credentials.as_ref())?;
        face.objects.bucket(&face.bucket(&request.input.bucket)?).map_err(to_s3)?;
        answer(GetBucketLocationOutput::default())
    }

    async fn get_bucket_versioning(&self, request: S3Request<GetBucketVersioningInput>) -> Answer<GetBucketVersioningOutput> {
        let face = self.face(request.credentials.as_ref())?;
        face.objects.bucket(&face.bucket(&request.input.bucket)?).map_err(to_s3)?;
        answer(GetBucketVersioningOutput::default())
    }

    async fn list_objects(&self, request: S3Request<ListObjectsInput>) -> Answer<ListObjectsOutput> {
        let face = self.face(request.credentials.as_ref())?;
        answer(face.list_v1(request.input)?)
    }

    async fn list_objects_v2(&self, request: S3Request<ListObjectsV2Input>) -> Answer<ListObjectsV2Output> {
        let face = self.face(request.credentials.as_ref())?;
        answer(face.list_v2(request.input)?)
    }

    async fn put_object(&self, request: S3Request<PutObjectInput>) -> Answer<PutObjectOutput> {
        let face = self.face(request.credentials.as_ref())?;
        face.put(request).await
    }

    async fn get_object(&self, request: S3Request<GetObjectInput>) -> Answer<GetObjectOutput> {
        let face = self.face(request.credentials.as_ref())?;
        face.get(request).await
    }

    async fn head_object(&self, request: S3Request<HeadObjectInput>) -> Answer<HeadObjectOutput> {
        let face = self.face(request.credentials.as_ref())?;
        face.head(request)
    }

    async fn delete_object(&self, request: S3Request<DeleteObjectInput>) -> Answer<DeleteObjectOutput> {
        let face = self.face(request.credentials.as_ref())?;
        let input = request.input;
        check_version(input.version_id.as_deref())?;
        if input.if_match_last_modified_time.is_some() || input.if_match_size.is_some() {
            return Err(s3_error!(NotImplemented, "a delete takes If-Match: an ETag, nothing else"));
        }
        let condition = crate::conditions::of_write(input.if_match, None)?;
        match face.objects.delete(&face.name(&input.bucket, input.key)?, condition.clone()).await {
            Err(error) if error.code == Code::ObjectUnknown && condition == Condition::Any => answer(DeleteObjectOutput::default()),
            deleted => {
                outcome(deleted, &condition)?;
                answer(DeleteObjectOutput::default())
            }
        }
    }

    async fn delete_objects(&self, request: S3Request<DeleteObjectsInput>) -> Answer<DeleteObjectsOutput> {
        let face = self.face(request.credentials.as_ref())?;
        documents::check(&request)?;
        let DeleteObjectsInput { bucket, delete, .. } = request.input;
        if delete.objects.len() > DELETES_MAX {
            return Err(s3_error!(MalformedXML, "at most {DELETES_MAX} objects are deleted at once"));
        }
        if delete.objects.iter().any(|object| object.e_tag.is_some() || object.last_modified_time.is_some() || object.size.is_some()) {
            return Err(s3_error!(NotImplemented, "deletes of many objects have no conditions here"));
        }
        delete.objects.iter().try_for_each(|object| check_version(object.version_id.as_deref()))?;
        if delete.quiet != Some(true) && !delete.objects.iter().all(|object| is_writable(&object.key)) {
            let message = "XML cannot say all of these names in the answer; nothing was deleted, ask quietly or delete them one by one";
            return Err(s3_error!(InvalidRequest, "{message}"));
        }
        let keys: Vec<String> = delete.objects.into_iter().map(|object| object.key).collect();
        face.objects.delete_many(&face.bucket(&bucket)?, keys.clone()).await.map_err(to_s3)?;
        let gone = keys.into_iter().map(|key| DeletedObject { key: Some(key), ..DeletedObject::default() }).collect();
        let deleted = (delete.quiet != Some(true)).then_some(gone);
        answer(DeleteObjectsOutput { deleted, ..DeleteObjectsOutput::default() })
    }

    async fn copy_object(&self, request: S3Request<CopyObjectInput>) -> Answer<CopyObjectOutput> {
        let face = self.face(request.credentials.as_ref())?;
        answer(face.copy(request.input).await?)
    }

    async fn get_object_tagging(&self, request: S3Request<GetObjectTaggingInput>) -> Answer<GetObjectTaggingOutput> {
        let face = self.face(request.credentials.as_ref())?;
        check_version(request.input.version_id.as_deref())?;
        let object = face.objects.head(&face.name(&request.input.bucket, request.input.key)?).map_err(to_s3)?;
        answer(GetObjectTaggingOutput { tag_set: tags::to_document(&object.tags), version_id: None })
    }

    async fn put_object_tagging(&self, request: S3Request<PutObjectTaggingInput>) -> Answer<PutObjectTaggingOutput> {
        let face = self.face(request.credentials.as_ref())?;
        documents::check(&request)?;
        let input = request.input;
        check_version(input.version_id.as_deref())?;
        let tags = tags::in_document(input.tagging.tag_set)?;
        face.objects.set_tags(&face.name(&input.bucket, input.key)?, tags).await.map_err(to_s3)?;
        answer(PutObjectTaggingOutput::default())
    }

    async fn delete_object_tagging(&self, request: S3Request<DeleteObjectTaggingInput>) -> Answer<DeleteObjectTaggingOutput> {
        let face = self.face(request.credentials.as_ref())?;
        let input = request.input;
        check_version(input.version_id.as_deref())?;
        face.objects.set_tags(&face.name(&input.bucket, input.key)?, Vec::new()).await.map_err(to_s3)?;
        answer(DeleteObjectTaggingOutput::default())
    }

    async fn get_object_attributes(&self, request: S3Request<GetObjectAttributesInput>) -> Answer<GetObjectAttributesOutput> {
        let face = self.face(request.credentials.as_ref())?;
        face.attributes(request.input)
    }

    async fn list_object_versions(&self, request: S3Request<ListObjectVersionsInput>) -> Answer<ListObjectVersionsOutput> {
        let face = self.face(request.credentials.as_ref())?;
        answer(face.list_versions(request.input)?)
    }

    async fn create_multipart_upload(&self, request: S3Request<CreateMultipartUploadInput>) -> Answer<CreateMultipartUploadOutput> {
        let face = self.face(request.credentials.as_ref())?;
        answer(face.create_upload(request.input).await?)
    }

    async fn upload_part(&self, request: S3Request<UploadPartInput>) -> Answer<UploadPartOutput> {
        let face = self.face(request.credentials.as_ref())?;
        face.put_part(request).await
    }

    async fn upload_part_copy(&self, request: S3Request<UploadPartCopyInput>) -> Answer<UploadPartCopyOutput> {
        let face = self.face(request.credentials.as_ref())?;
        answer(face.copy_part(request.input).await?)
    }

    async fn complete_multipart_upload(&self, request: S3Request<CompleteMultipartUploadInput>) -> Answer<CompleteMultipartUploadOutput> {
        let face = self.face(request.credentials.as_ref())?;
        answer(face.complete(request).await?)
    }

    async fn abort_multipart_upload(&self, request: S3Request<AbortMultipartUploadInput>) -> Answer<AbortMultipartUploadOutput> {
        let face = self.face(request.credentials.as_ref())?;
        face.abort(request.input).await?;
        answer(AbortMultipartUploadOutput::default())
    }

    async fn list_parts(&self, request: S3Request<ListPartsInput>) -> Answer<ListPartsOutput> {
        let face = self.face(request.credentials.as_ref())?;
        answer(face.list_parts(request.input)?)
    }

    async fn list_multipart_uploads(&self, request: S3Request<ListMultipartUploadsInput>) -> Answer<ListMultipartUploadsOutput> {
        let face = self.face(request.credentials.as_ref())?;
        answer(face.list_uploads(request.input)?)
    }
}
