//! Requests whose signature is right, said in a way that the library reads: a region of any letters, a `Date`, a range that is none.
//!
//! The one rule: nothing that is signed is changed unless its signature was found right; it is then signed anew, with the same key.

use hmac::{Hmac, KeyInit, Mac};
use hyper::header::{HeaderName, HeaderValue, AUTHORIZATION, DATE, RANGE};
use hyper::http::request::Parts;
use hyper::Method;
use percent_encoding::{percent_decode_str, utf8_percent_encode, AsciiSet, NON_ALPHANUMERIC};
use s3s::auth::S3Auth;
use s3s::dto::{Range, Timestamp, TimestampFormat};
use sha2_011::{Digest, Sha256};

use crate::credentials::Credentials;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const AMZ_DATE: HeaderName = HeaderName::from_static("x-amz-date");
/// Any that the library takes.
const REGION: &str = "us-east-1";
const NAME: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
const PATH: AsciiSet = NAME.remove(b'/');

fn hmac(key: &[u8], text: &str) -> Hmac<Sha256> {
    let mut code = Hmac::<Sha256>::new_from_slice(key).expect("any length is a key");
    code.update(text.as_bytes());
    code
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u32>> = text.chars().map(|digit| digit.to_digit(16)).collect();
    digits.filter(|digits| digits.len() % 2 == 0).map(|digits| digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect())
}

/// What a request says of its signature.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Signature {
    access_key: String,
    day: String,
    region: String,
    signed: Vec<String>,
    signature: String,
    /// Of a presigned URL all that is signed stands in the query.
    in_query: bool,
}

impl Signature {
    fn of(head: &Parts) -> Option<Self> {
        let query = pairs(head);
        let in_query = |name: &str| query.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str());
        let header = head.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        match header {
            Some(text) => {
                let parts: Vec<&str> = text.strip_prefix(ALGORITHM)?.split(',').map(str::trim).collect();
                let part = |name: &str| parts.iter().find_map(|part| part.strip_prefix(name));
                Self::new(part("Credential=")?, part("SignedHeaders=")?, part("Signature=")?, false)
            }
            None => Self::new(in_query("X-Amz-Credential")?, in_query("X-Amz-SignedHeaders")?, in_query("X-Amz-Signature")?, true),
        }
    }

    fn new(credential: &str, signed: &str, signature: &str, in_query: bool) -> Option<Self> {
        let [access_key, day, region, "s3", "aws4_request"] = credential.split('/').collect::<Vec<_>>()[..] else { return None };
        let signed = signed.split(';').map(str::to_string).collect();
        let (access_key, day, region) = (access_key.to_string(), day.to_string(), region.to_string());
        Some(Self { access_key, day, region, signed, signature: signature.to_string(), in_query })
    }

    fn is_of_a_region(&self) -> bool {
        self.region.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    }

    fn credential(&self) -> String {
        format!("{}/{}/{}/s3/aws4_request", self.access_key, self.day, self.region)
    }

    fn code(&self, head: &Parts, secret: &str) -> Option<Hmac<Sha256>> {
        let date = if self.in_query { query_value(head, "X-Amz-Date")? } else { head.headers.get(AMZ_DATE)?.to_str().ok()?.to_string() };
        let canonical = hex(&Sha256::digest(self.canonical(head)?.as_bytes()));
        let scope = format!("{}/{}/s3/aws4_request", self.day, self.region);
        let mut key = format!("AWS4{secret}").into_bytes();
        for part in [self.day.as_str(), &self.region, "s3", "aws4_request"] {
            key = hmac(&key, part).finalize().into_bytes().to_vec();
        }
        Some(hmac(&key, &format!("{ALGORITHM}\n{date}\n{scope}\n{canonical}")))
    }

    fn canonical(&self, head: &Parts) -> Option<String> {
        let path = percent_decode_str(head.uri.path()).decode_utf8().ok()?;
        let mut query: Vec<(String, String)> = pairs(head).iter().map(|(name, value)| (written(name), written(value))).collect();
        query.retain(|(name, _)| name != "X-Amz-Signature");
        query.sort();
        let query: Vec<String> = query.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
        let mut headers = String::new();
        for name in &self.signed {
            let values: Option<Vec<_>> =
                head.headers.get_all(name).iter().map(|value| std::str::from_utf8(value.as_bytes()).ok()).collect();
            let values: Vec<_> = values?.iter().map(|value| value.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
            headers += &format!("{name}:{}\n", values.join(","));
        }
        let payload = match head.headers.get("x-amz-content-sha256") {
            Some(value) if !self.in_query => value.to_str().ok()?,
            _ => "UNSIGNED-PAYLOAD",
        };
        let path = utf8_percent_encode(&path, &PATH);
        Some(format!("{}\n{path}\n{}\n{headers}\n{}\n{payload}", head.method, query.join("&"), self.signed.join(";")))
    }

    /// Writes it into the request, signed anew.
    fn sign(mut self, head: &mut Parts, secret: &str) -> Option<()> {
        if self.in_query {
            let mut query = pairs(head);
            query.retain(|(name, _)| name != "X-Amz-Signature");
            for (name, value) in &mut query {
                match name.as_str() {
                    "X-Amz-Credential" => *value = self.credential(),
                    "X-Amz-SignedHeaders" => *value = self.signed.join(";"),
                    _ => {}
                }
            }
            set_query(head, &query)?;
            query.push(("X-Amz-Signature".to_string(), hex(&self.code(head, secret)?.finalize().into_bytes())));
            return set_query(head, &query);
        }
        self.signature = hex(&self.code(head, secret)?.finalize().into_bytes());
        let (credential, signed, signature) = (self.credential(), self.signed.join(";"), &self.signature);
        let text = format!("{ALGORITHM} Credential={credential}, SignedHeaders={signed}, Signature={signature}");
        head.headers.insert(AUTHORIZATION, HeaderValue::from_str(&text).ok()?);
        Some(())
    }
}

fn written(text: &str) -> String {
    utf8_percent_encode(text, &NAME).to_string()
}

fn pairs(head: &Parts) -> Vec<(String, String)> {
    form_urlencoded::parse(head.uri.query().unwrap_or_default().as_bytes()).into_owned().collect()
}

fn query_value(head: &Parts, name: &str) -> Option<String> {
    pairs(head).into_iter().find(|(found, _)| found == name).map(|(_, value)| value)
}

fn set_query(head: &mut Parts, query: &[(String, String)]) -> Option<()> {
    let query: Vec<String> = query.iter().map(|(name, value)| format!("{}={}", written(name), written(value))).collect();
    let mut parts = head.uri.clone().into_parts();
    parts.path_and_query = Some(format!("{}?{}", head.uri.path(), query.join("&")).parse().ok()?);
    head.uri = hyper::Uri::from_parts(parts).ok()?;
    Some(())
}

/// SigV4 takes the time from `Date` where there is no `x-amz-date`.
fn add_date(head: &mut Parts) -> Option<()> {
    if head.headers.contains_key(AMZ_DATE) || !head.headers.contains_key(AUTHORIZATION) {
        return None;
    }
    let date = Timestamp::parse(TimestampFormat::HttpDate, head.headers.get(DATE)?.to_str().ok()?).ok()?;
    let mut text = Vec::new();
    date.format(TimestampFormat::DateTime, &mut text).ok()?;
    // 2026-11-23T01:02:03.000Z: as 20261123T010203Z.
    let digits: String = String::from_utf8(text).ok()?.split('.').next()?.chars().filter(|letter| !matches!(letter, '-' | ':')).collect();
    head.headers.insert(AMZ_DATE, HeaderValue::from_str(&format!("{}Z", digits.trim_end_matches('Z'))).ok()?);
    Some(())
}

/// As HTTP has it: what is no range, or several, is as if it were not there.
fn has_no_range(head: &Parts) -> bool {
    let reads = matches!(head.method, Method::GET | Method::HEAD);
    let mut ranges = head.headers.get_all(RANGE).iter();
    let is_range = |value: &HeaderValue| value.to_str().is_ok_and(|text| Range::parse(text).is_ok());
    reads && ranges.next().is_some_and(|first| !is_range(first) || ranges.next().is_some())
}

/// Chunks are signed one by one, with the region among what is signed.
fn has_signed_chunks(head: &Parts) -> bool {
    head.headers.get("x-amz-content-sha256").is_some_and(|value| value.as_bytes().starts_with(b"STREAMING-AWS4-HMAC"))
}

async fn rewrite(head: &mut Parts, credentials: &Credentials) -> Option<()> {
    let mut said = Signature::of(head)?;
    let (no_range, no_region) = (has_no_range(head), !said.is_of_a_region() && !has_signed_chunks(head));
    let range_is_signed = said.signed.iter().any(|name| name == RANGE.as_str());
    if no_region || (no_range && range_is_signed) {
        let secret = credentials.get_secret_key(&said.access_key).await.ok()?;
        said.code(head, secret.expose())?.verify_slice(&unhex(&said.signature)?).ok()?;
        if no_range {
            head.headers.remove(RANGE);
            said.signed.retain(|name| name != RANGE.as_str());
        }
        if no_region {
            said.region = REGION.to_string();
        }
        return said.sign(head, secret.expose());
    }
    if no_range {
        head.headers.remove(RANGE);
    }
    Some(())
}

/// What cannot be rewritten is left as it is: the library says what is wrong with it.
pub async fn make(head: &mut Parts, credentials: &Credentials) {
    add_date(head);
    rewrite(head, credentials).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(uri: &str, headers: &[(&str, &str)]) -> Parts {
        let request = headers.iter().fold(hyper::Request::builder().uri(uri), |request, (name, value)| request.header(*name, *value));
        request.body(()).unwrap().into_parts().0
    }

    /// The example of AWS's documentation of SigV4 in headers.
    #[test]
    fn a_signature_is_what_aws_says_it_is() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let said = "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,\
                    SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,\
                    Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41";
        let head = head(
            "/test.txt",
            &[
                ("host", "examplebucket.s3.amazonaws.com"),
                ("range", "bytes=0-9"),
                ("x-amz-content-sha256", empty),
                ("x-amz-date", "20130524T000000Z"),
                ("authorization", said),
            ],
        );
        let (said, secret) = (Signature::of(&head).unwrap(), "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY");
        let code = said.code(&head, secret).unwrap();
        assert!(code.clone().verify_slice(&unhex(&said.signature).unwrap()).is_ok());
        assert!(code.verify_slice(&[0; 32]).is_err());
    }

    /// The example of AWS's documentation of presigned URLs.
    #[test]
    fn so_is_that_of_an_address_and_it_is_written_back() {
        let uri = "/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2F\
                   aws4_request&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host\
                   &X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404";
        let mut head = head(uri, &[("host", "examplebucket.s3.amazonaws.com")]);
        let (said, secret) = (Signature::of(&head).unwrap(), "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY");
        assert!(said.code(&head, secret).unwrap().verify_slice(&unhex(&said.signature).unwrap()).is_ok());
        Signature { region: "elsewhere".to_string(), ..said }.sign(&mut head, secret).unwrap();
        let again = Signature::of(&head).unwrap();
        assert_eq!(again.region, "elsewhere");
        assert!(again.code(&head, secret).unwrap().verify_slice(&unhex(&again.signature).unwrap()).is_ok());
    }

    #[test]
    fn a_date_is_a_date() {
        let mut dated = head("/", &[("authorization", "x"), ("date", "Mon, 23 Nov 2026 01:02:03 GMT")]);
        add_date(&mut dated);
        assert_eq!(dated.headers[AMZ_DATE], "20261123T010203Z");
        for headers in [&[("authorization", "x"), ("date", "yesterday")][..], &[("date", "Mon, 23 Nov 2026 01:02:03 GMT")]] {
            let mut other = head("/", headers);
            add_date(&mut other);
            assert!(!other.headers.contains_key(AMZ_DATE));
        }
    }

    #[test]
    fn ranges() {
        for (said, none) in [("bytes=0-1", false), ("bytes=-5", false), ("bytes=0-1,3-4", true), ("bytes=a-", true), ("lines=1-2", true)] {
            assert_eq!(has_no_range(&head("/", &[("range", said)])), none, "{said}");
        }
        assert!(has_no_range(&head("/", &[("range", "bytes=0-1"), ("range", "bytes=3-4")])) && !has_no_range(&head("/", &[])));
    }
}
