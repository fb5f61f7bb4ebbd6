//! Who gets as far as the signature check: only requests that carry SigV4, in the header or in the query.
//!
//! The one rule: what is not signed with SigV4 is refused before anything of it is looked at, its body included.

use hyper::header::{AUTHORIZATION, CONTENT_TYPE};
use s3s::{s3_error, S3Error};

pub fn check<B>(request: &hyper::Request<B>) -> Result<(), S3Error> {
    let in_header = request.headers().get(AUTHORIZATION).map(|value| value.as_bytes().starts_with(b"AWS4-HMAC-SHA256"));
    let query = request.uri().query().unwrap_or_default();
    let has = |name: &str| query.split('&').any(|pair| pair.split('=').next() == Some(name));
    let is_form = request.headers().get(CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(b"multipart/form-data"));
    match in_header {
        _ if is_form => Err(s3_error!(NotImplemented, "uploads by HTML form are not offered here; use PutObject or a presigned URL")),
        // Version 2 signatures: also where a version 4 one is beside it.
        _ if has("Signature") => Err(s3_error!(AccessDenied, "only signatures of version 4 (AWS4-HMAC-SHA256) are accepted here")),
        Some(true) => Ok(()),
        Some(false) => Err(s3_error!(AccessDenied, "only signatures of version 4 (AWS4-HMAC-SHA256) are accepted here")),
        None if has("X-Amz-Signature") => Ok(()),
        None => Err(s3_error!(AccessDenied, "every request here has to be signed; nothing is public")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(uri: &str, headers: &[(&str, &str)]) -> bool {
        let request = headers.iter().fold(hyper::Request::builder().uri(uri), |request, (name, value)| request.header(*name, *value));
        check(&request.body(()).unwrap()).is_ok()
    }

    #[test]
    fn only_version_4_passes() {
        let v4 = ("authorization", "AWS4-HMAC-SHA256 Credential=...");
        assert!(checked("/b/k", &[v4]));
        assert!(checked("/b/k?X-Amz-Algorithm=x&X-Amz-Signature=y", &[]));
        assert!(!checked("/b/k", &[]));
        assert!(!checked("/b/k", &[("authorization", "AWS key:signature")]));
        assert!(!checked("/b/k?AWSAccessKeyId=a&Expires=1&Signature=s", &[]));
        assert!(!checked("/b/k?AWSAccessKeyId=a&Expires=1&Signature=s", &[v4]));
        assert!(!checked("/b", &[v4, ("content-type", "multipart/form-data; boundary=x")]));
    }
}
