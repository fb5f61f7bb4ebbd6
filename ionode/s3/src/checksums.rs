//! The checksums that clients give and ask for, in headers and in trailers.
//!
//! The one rule: every checksum a client gives is compared before the object exists; one that we cannot compare refuses the request.

use base64::engine::general_purpose::STANDARD;
use base64::Engine;
use hyper::header::{HeaderName, HeaderValue};
use hyper::HeaderMap;
use s3s::dto::{ChecksumAlgorithm, ChecksumType};
use s3s::{s3_error, S3Result, TrailingHeaders};
use stager_objects::{Algorithm, Checksum, Digests, Whole};

const NAMES: [(Algorithm, &str, &str); 10] = [
    (Algorithm::Crc64Nvme, "CRC64NVME", "x-amz-checksum-crc64nvme"),
    (Algorithm::Crc32, "CRC32", "x-amz-checksum-crc32"),
    (Algorithm::Crc32c, "CRC32C", "x-amz-checksum-crc32c"),
    (Algorithm::Sha1, "SHA1", "x-amz-checksum-sha1"),
    (Algorithm::Sha256, "SHA256", "x-amz-checksum-sha256"),
    (Algorithm::Sha512, "SHA512", "x-amz-checksum-sha512"),
    (Algorithm::Md5, "MD5", "x-amz-checksum-md5"),
    (Algorithm::Xxhash64, "XXHASH64", "x-amz-checksum-xxhash64"),
    (Algorithm::Xxhash3, "XXHASH3", "x-amz-checksum-xxhash3"),
    (Algorithm::Xxhash128, "XXHASH128", "x-amz-checksum-xxhash128"),
];
const PREFIX: &str = "x-amz-checksum-";
/// Headers that begin like those of checksums and hold none.
const NO_VALUES: [&str; 3] = ["x-amz-checksum-algorithm", "x-amz-checksum-mode", "x-amz-checksum-type"];

/// What a request says of its body.
#[derive(Default)]
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
    found.map(|(algorithm, ..)| *algorithm).ok_or_else(|| {
        let known = NAMES.map(|(_, name, _)| name).join(", ");
        s3_error!(InvalidRequest, "there is no checksum algorithm {:?} here; use one of {known}", algorithm.as_str())
    })
}

pub fn name(algorithm: Algorithm) -> ChecksumAlgorithm {
    let (_, name, _) = NAMES.iter().find(|(known, ..)| *known == algorithm).expect("all are named");
    ChecksumAlgorithm::from_static(name)
}

fn unknown(header: &str) -> s3s::S3Error {
    s3_error!(InvalidRequest, "{header} cannot be compared here; nothing was done, use a checksum that is known")
}

/// Of headers and of trailers: what cannot be compared is refused.
pub fn check_known(headers: &HeaderMap) -> S3Result<()> {
    let is_known = |name: &str| NAMES.iter().any(|(.., known)| *known == name) || NO_VALUES.contains(&name);
    match headers.keys().map(HeaderName::as_str).find(|name| name.starts_with(PREFIX) && !is_known(name)) {
        Some(name) => Err(unknown(name)),
        None => Ok(()),
    }
}

/// The one checksum among the headers, as text.
fn text_in(headers: &HeaderMap) -> S3Result<Option<(Algorithm, &[u8])>> {
    check_known(headers)?;
    let mut found = None;
    for (algorithm, _, header) in NAMES {
        for value in headers.get_all(header) {
            if found.is_some() {
                return Err(s3_error!(InvalidRequest, "a request has one checksum; this one has several"));
            }
            found = Some((algorithm, value.as_bytes()));
        }
    }
    Ok(found)
}

pub fn in_headers(headers: &HeaderMap) -> S3Result<Option<(Algorithm, Vec<u8>)>> {
    text_in(headers)?.map(|(algorithm, text)| Ok((algorithm, decoded(text)?))).transpose()
}

/// What the headers say of an object that is made of parts. A checksum of parts may end in how many they are.
pub fn of_whole(headers: &HeaderMap, checksum_type: Option<&ChecksumType>, size_bytes: Option<i64>) -> S3Result<Whole> {
    let full_checksum = match checksum_type.map(ChecksumType::as_str) {
        None => None,
        Some(ChecksumType::FULL_OBJECT) => Some(true),
        Some(ChecksumType::COMPOSITE) => Some(false),
        Some(_) => return Err(s3_error!(InvalidRequest, "the type of a checksum is FULL_OBJECT or COMPOSITE")),
    };
    let size_bytes = size_bytes.map(u64::try_from).transpose().map_err(|_| s3_error!(InvalidArgument, "a size below zero"))?;
    let Some((algorithm, text)) = text_in(headers)? else {
        return Ok(Whole { full_checksum, size_bytes, ..Whole::default() });
    };
    let at = text.iter().position(|byte| *byte == b'-');
    let (value, parts) = at.map_or((text, None), |at| (&text[..at], Some(&text[at + 1..])));
    let parts = parts.map(|parts| std::str::from_utf8(parts).ok().and_then(|parts| parts.parse().ok()).filter(|parts| *parts > 0));
    let of_parts = parts.map_or(Ok(0), |parts| parts.ok_or_else(|| s3_error!(InvalidDigest, "no number of parts behind the checksum")))?;
    Ok(Whole { checksum: Some((algorithm, decoded(value)?)), of_parts, full_checksum, size_bytes })
}

/// Of the trailers that are announced: the algorithm of the one that is a checksum.
fn promised(headers: &HeaderMap) -> S3Result<Option<Algorithm>> {
    let mut found = None;
    for said in headers.get_all("x-amz-trailer") {
        for name in said.to_str().unwrap_or_default().split(',').map(|name| name.trim().to_ascii_lowercase()) {
            if !name.starts_with(PREFIX) {
                continue;
            }
            let Some((algorithm, ..)) = NAMES.iter().find(|(.., known)| *known == name) else { return Err(unknown(&name)) };
            if found.replace(*algorithm).is_some() {
                return Err(s3_error!(InvalidRequest, "a request has one checksum; this one announces several"));
            }
        }
    }
    Ok(found)
}

fn content_md5(headers: &HeaderMap) -> S3Result<Option<Vec<u8>>> {
    let md5 = headers.get("content-md5").map(|value| decoded(value.as_bytes())).transpose()?;
    if md5.as_ref().is_some_and(|md5| md5.len() != 16) {
        return Err(s3_error!(InvalidDigest, "Content-MD5 is not an MD5"));
    }
    Ok(md5)
}

/// What an SDK says it computes.
fn by_sdk(headers: &HeaderMap) -> S3Result<Option<Algorithm>> {
    let text = headers.get("x-amz-sdk-checksum-algorithm").map(|value| String::from_utf8_lossy(value.as_bytes()).to_uppercase());
    text.map(|text| named(&ChecksumAlgorithm::from(text))).transpose()
}

impl Given {
    pub fn md5_of(headers: &HeaderMap) -> S3Result<Self> {
        Ok(Self { md5: content_md5(headers)?, ..Self::default() })
    }

    pub fn new(headers: &HeaderMap, trailers: Option<TrailingHeaders>, asked: Option<&ChecksumAlgorithm>) -> S3Result<Self> {
        let md5 = content_md5(headers)?;
        let asked = asked.map(named).transpose()?.into_iter().chain(by_sdk(headers)?).collect::<Vec<_>>();
        let (in_header, promised) = (in_headers(headers)?, promised(headers)?);
        if in_header.is_some() && promised.is_some() {
            return Err(s3_error!(InvalidRequest, "a request has one checksum; this one has one as a header and one as a trailer"));
        }
        if promised.is_some() && trailers.is_none() {
            let message = "a checksum is announced as a trailer, but the body is not of a kind that has trailers (x-amz-content-sha256)";
            return Err(s3_error!(InvalidRequest, "{message}"));
        }
        let said = in_header.as_ref().map(|(algorithm, _)| *algorithm).or(promised);
        let algorithm = said.or(asked.first().copied());
        if asked.iter().any(|asked| Some(*asked) != algorithm) {
            return Err(s3_error!(BadDigest, "the checksum of the request is of another algorithm than the request names"));
        }
        let value = in_header.map(|(_, value)| value);
        Ok(Self { algorithm, value, md5, trailers: trailers.filter(|_| promised.is_some()) })
    }

    pub fn says_nothing(&self) -> bool {
        self.value.is_none() && self.md5.is_none() && self.trailers.is_none()
    }

    /// After the last byte of the body.
    pub fn compare(self, digests: &Digests) -> S3Result<()> {
        let wrong = || s3_error!(BadDigest, "the body does not have the checksum the request says; nothing was done, send it again");
        if self.md5.is_some_and(|md5| md5 != digests.md5) {
            return Err(wrong());
        }
        let value = match (self.value, self.trailers) {
            (Some(value), _) => Some(value),
            (None, Some(trailers)) => {
                let in_trailer = trailers.take().map(|trailers| in_headers(&trailers)).transpose()?.flatten();
                let (algorithm, value) =
                    in_trailer.ok_or_else(|| s3_error!(InvalidRequest, "the checksum that was announced as a trailer did not come"))?;
                if Some(algorithm) != self.algorithm {
                    return Err(s3_error!(InvalidRequest, "another checksum came as a trailer than was announced"));
                }
                Some(value)
            }
            (None, None) => None,
        };
        // An upload may keep another one than the request gives: that one is checked by what it is.
        match (value, self.algorithm) {
            (Some(value), Some(algorithm)) if digests.named.0 != algorithm || digests.named.1 != value => Err(wrong()),
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
        let field = match algorithm {
            Algorithm::Crc64Nvme => &mut fields.crc64nvme,
            Algorithm::Crc32 => &mut fields.crc32,
            Algorithm::Crc32c => &mut fields.crc32c,
            Algorithm::Sha1 => &mut fields.sha1,
            Algorithm::Sha256 => &mut fields.sha256,
            // The library has no fields for these: `as_header`.
            Algorithm::Sha512 | Algorithm::Md5 | Algorithm::Xxhash64 | Algorithm::Xxhash3 | Algorithm::Xxhash128 => return fields,
        };
        *field = Some(text);
        fields
    }

    pub fn of(checksum: &Checksum) -> Self {
        Self::new(checksum.algorithm, &checksum.value, checksum.of_parts)
    }
}

/// For answers, where the library has no field for the algorithm.
pub fn as_header(algorithm: Algorithm, value: &[u8]) -> HeaderMap {
    let (.., header) = NAMES.iter().find(|(known, ..)| *known == algorithm).expect("all are named");
    let text = HeaderValue::from_str(&encoded(value)).ok().filter(|_| !algorithm.is_of_first_version());
    text.into_iter().map(|text| (HeaderName::from_static(header), text)).collect()
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
        assert!(found(&[("x-amz-checksum-crc32", "AAAAAQ=="), ("x-amz-checksum-crc32", "AAAAAQ==")]).is_err());
        assert!(found(&[("x-amz-checksum-blake3", "AAAAAQ==")]).is_err());
        assert_eq!(found(&[("x-amz-checksum-mode", "ENABLED"), ("x-amz-checksum-type", "COMPOSITE")]).unwrap(), None);
    }

    fn given(headers: &[(&'static str, &'static str)], asked: Option<&'static str>) -> S3Result<Given> {
        let headers = headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
        Given::new(&headers, None, asked.map(ChecksumAlgorithm::from_static).as_ref())
    }

    #[test]
    fn what_is_announced_is_one_checksum_that_is_known() {
        let announced = |said: &str| promised(&HeaderMap::from_iter([("x-amz-trailer".parse().unwrap(), said.parse().unwrap())]));
        assert_eq!(announced("x-amz-checksum-crc32, x-other").unwrap(), Some(Algorithm::Crc32));
        assert_eq!(announced("x-amz-checksum-sha512").unwrap(), Some(Algorithm::Sha512));
        // There are none to come.
        assert!(given(&[("x-amz-trailer", "x-amz-checksum-crc32")], None).is_err());
        for wrong in ["x-amz-checksum-blake3", "x-amz-checksum-crc32,x-amz-checksum-crc32c"] {
            assert!(given(&[("x-amz-trailer", wrong)], None).is_err(), "{wrong}");
        }
        assert!(given(&[("x-amz-trailer", "x-amz-checksum-crc32"), ("x-amz-checksum-crc32", "AAAAAQ==")], None).is_err());
        assert!(given(&[("x-amz-checksum-crc32", "AAAAAQ==")], Some("CRC32")).is_ok());
        assert!(given(&[("x-amz-checksum-crc32", "AAAAAQ==")], Some("SHA256")).is_err());
        assert!(given(&[], Some("BLAKE3")).is_err());
    }

    #[test]
    fn a_checksum_of_parts_may_say_of_how_many() {
        let whole = |value: &'static str| {
            of_whole(&HeaderMap::from_iter([("x-amz-checksum-crc32".parse().unwrap(), value.parse().unwrap())]), None, None)
        };
        assert_eq!(whole("AAAAAQ==").unwrap().of_parts, 0);
        assert_eq!(whole("AAAAAQ==-12").unwrap(), Whole { of_parts: 12, ..whole("AAAAAQ==").unwrap() });
        for wrong in ["AAAAAQ==-", "AAAAAQ==-0", "AAAAAQ==-x", "-3-3"] {
            assert!(whole(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_content_md5_that_is_none_is_refused() {
        let headers = |md5: &'static str| HeaderMap::from_iter([("content-md5".parse().unwrap(), md5.parse().unwrap())]);
        let given = |md5| Given::new(&headers(md5), None, None);
        assert!(given("CY9rzUYh03PK3k6DJie09g==").is_ok());
        assert!(given("CY9rzUYh03PK3k6DJie0").is_err() && given("?").is_err());
    }
}
