//! The checksums that clients give and ask for, in headers and in trailers.
//!
//! The one rule: every checksum a client gives is compared before the object exists; one that we cannot compare refuses the request.

use base64::engine::general_purpose::STANDARD;
use base64::Engine;
use hyper::HeaderMap;
use s3s::dto::{ChecksumAlgorithm, ChecksumType};
use s3s::{s3_error, S3Result, TrailingHeaders};
use stager_objects::{Algorithm, Checksum, Content};

const NAMES: [(Algorithm, &str, &str); 5] = [
    (Algorithm::Crc64Nvme, "CRC64NVME", "x-amz-checksum-crc64nvme"),
    (Algorithm::Crc32, "CRC32", "x-amz-checksum-crc32"),
    (Algorithm::Crc32c, "CRC32C", "x-amz-checksum-crc32c"),
    (Algorithm::Sha1, "SHA1", "x-amz-checksum-sha1"),
    (Algorithm::Sha256, "SHA256", "x-amz-checksum-sha256"),
];

/// What a request says of its body.
pub struct Given {
    pub algorithm: Option<Algorithm>,
    value: Option<Vec<u8>>,
    md5: Option<Vec<u8>>,
    trailers: Option<TrailingHeaders>,
}

pub fn decoded(value: &[u8]) -> S3Result<Vec<u8>> {
    STANDARD.decode(value).map_err(|_| s3_error!(InvalidDigest, "a checksum of the request is not base64"))
}

pub fn encoded(value: &[u8]) -> String {
    STANDARD.encode(value)
}

pub fn named(algorithm: &ChecksumAlgorithm) -> S3Result<Algorithm> {
    let found = NAMES.iter().find(|(_, name, _)| *name == algorithm.as_str());
    found
        .map(|(algorithm, ..)| *algorithm)
        .ok_or_else(|| s3_error!(InvalidRequest, "no such checksum algorithm here; use CRC64NVME, CRC32, CRC32C, SHA1 or SHA256"))
}

pub fn name(algorithm: Algorithm) -> ChecksumAlgorithm {
    let (_, name, _) = NAMES.iter().find(|(known, ..)| *known == algorithm).expect("all are named");
    ChecksumAlgorithm::from_static(name)
}

/// The one checksum among the headers.
pub fn in_headers(headers: &HeaderMap) -> S3Result<Option<(Algorithm, Vec<u8>)>> {
    let mut found = None;
    for (algorithm, _, header) in NAMES {
        let Some(value) = headers.get(header) else { continue };
        if found.is_some() {
            return Err(s3_error!(InvalidRequest, "a request has one checksum; this one has several"));
        }
        found = Some((algorithm, decoded(value.as_bytes())?));
    }
    Ok(found)
}

impl Given {
    pub fn new(headers: &HeaderMap, trailers: Option<TrailingHeaders>, asked: Option<&ChecksumAlgorithm>) -> S3Result<Self> {
        let md5 = headers.get("content-md5").map(|value| decoded(value.as_bytes())).transpose()?;
        if md5.as_ref().is_some_and(|md5| md5.len() != 16) {
            return Err(s3_error!(InvalidDigest, "Content-MD5 is not an MD5"));
        }
        if let Some((algorithm, value)) = in_headers(headers)? {
            return Ok(Self { algorithm: Some(algorithm), value: Some(value), md5, trailers: None });
        }
        let promised = headers.get("x-amz-trailer").and_then(|value| value.to_str().ok()).unwrap_or_default();
        let in_trailer = NAMES.iter().find(|(.., header)| promised.split(',').any(|name| name.trim().eq_ignore_ascii_case(header)));
        let algorithm = match (in_trailer, asked) {
            (Some((algorithm, ..)), _) => Some(*algorithm),
            (None, Some(asked)) => Some(named(asked)?),
            (None, None) => None,
        };
        Ok(Self { algorithm, value: None, md5, trailers: trailers.filter(|_| in_trailer.is_some()) })
    }

    /// After the last byte of the body.
    pub fn compare(self, content: &Content) -> S3Result<()> {
        let wrong = || s3_error!(BadDigest, "the body does not have the checksum the request says; nothing was stored, send it again");
        if self.md5.is_some_and(|md5| md5 != content.digests.md5) {
            return Err(wrong());
        }
        let value = match (self.value, self.trailers) {
            (Some(value), _) => Some(value),
            (None, Some(trailers)) => {
                let in_trailer = trailers.take().map(|trailers| in_headers(&trailers)).transpose()?.flatten();
                Some(in_trailer.ok_or_else(|| s3_error!(InvalidRequest, "the checksum that was announced as a trailer did not come"))?.1)
            }
            (None, None) => None,
        };
        // An upload may keep another one than the request gives: that one is checked by what it is.
        match (value, self.algorithm) {
            (Some(value), Some(algorithm)) if content.digests.named.0 != algorithm || content.digests.named.1 != value => Err(wrong()),
            _ => Ok(()),
        }
    }
}

/// The fields of an answer, one of them set.
#[derive(Default)]
pub struct Fields {
    pub crc64nvme: Option<String>,
    pub crc32: Option<String>,
    pub crc32c: Option<String>,
    pub sha1: Option<String>,
    pub sha256: Option<String>,
}

impl Fields {
    pub fn new(algorithm: Algorithm, value: &[u8], of_parts: u32) -> Self {
        let text = match of_parts {
            0 => encoded(value),
            parts => format!("{}-{parts}", encoded(value)),
        };
        let mut fields = Self::default();
        *match algorithm {
            Algorithm::Crc64Nvme => &mut fields.crc64nvme,
            Algorithm::Crc32 => &mut fields.crc32,
            Algorithm::Crc32c => &mut fields.crc32c,
            Algorithm::Sha1 => &mut fields.sha1,
            Algorithm::Sha256 => &mut fields.sha256,
        } = Some(text);
        fields
    }

    pub fn of(checksum: &Checksum) -> Self {
        Self::new(checksum.algorithm, &checksum.value, checksum.of_parts)
    }
}

pub fn kind(of_parts: u32) -> ChecksumType {
    ChecksumType::from_static(if of_parts == 0 { ChecksumType::FULL_OBJECT } else { ChecksumType::COMPOSITE })
}

/// Sets the checksum fields of any answer that has them.
macro_rules! set_checksum {
    ($output:expr, $fields:expr) => {{
        let (output, fields): (_, $crate::checksums::Fields) = (&mut $output, $fields);
        output.checksum_crc64nvme = fields.crc64nvme;
        output.checksum_crc32 = fields.crc32;
        output.checksum_crc32c = fields.crc32c;
        output.checksum_sha1 = fields.sha1;
        output.checksum_sha256 = fields.sha256;
    }};
}
pub(crate) use set_checksum;

#[cfg(test)]
mod tests {
    use super::*;

    fn found(headers: &[(&'static str, &'static str)]) -> S3Result<Option<(Algorithm, Vec<u8>)>> {
        in_headers(&headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect())
    }

    #[test]
    fn one_checksum_in_base64_and_nothing_else() {
        assert_eq!(found(&[]).unwrap(), None);
        assert_eq!(found(&[("x-amz-checksum-crc32", "AAAAAQ==")]).unwrap(), Some((Algorithm::Crc32, vec![0, 0, 0, 1])));
        assert!(found(&[("x-amz-checksum-crc32", "AAAAAQ=="), ("x-amz-checksum-crc32c", "AAAAAQ==")]).is_err());
        assert!(found(&[("x-amz-checksum-sha1", "no base64!")]).is_err());
    }

    #[test]
    fn a_content_md5_that_is_none_is_refused() {
        let headers = |md5: &'static str| HeaderMap::from_iter([("content-md5".parse().unwrap(), md5.parse().unwrap())]);
        let given = |md5| Given::new(&headers(md5), None, None);
        assert!(given("CY9rzUYh03PK3k6DJie09g==").is_ok());
        assert!(given("CY9rzUYh03PK3k6DJie0").is_err() && given("?").is_err());
    }
}
