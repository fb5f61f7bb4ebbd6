//! Who gets as far as the signature check: only requests that carry SigV4, in the header or in the query, over all that S3 acts upon.
//!
//! The one rule: what is not signed with SigV4 is refused before anything of it is looked at, its body included; and what a signature does
//! not cover is refused, too, since anyone may have put it there.

use std::collections::BTreeSet;

use hyper::header::{HeaderName, HeaderValue, AUTHORIZATION, CONTENT_TYPE, DATE, HOST};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method};
use s3s::{s3_error, S3Error, S3Result};

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const EXPIRES_S_MAX: u64 = 7 * 24 * 3600;
const PREFIX: &str = "x-amz-";
const CHECKSUM_MODE: &str = "x-amz-checksum-mode";
/// Of a presigned URL's query.
const OF_SIGNATURE: [&str; 8] = [
    "x-amz-algorithm",
    "x-amz-content-sha256",
    "x-amz-credential",
    "x-amz-date",
    "x-amz-expires",
    "x-amz-security-token",
    "x-amz-signature",
    "x-amz-signedheaders",
];

pub fn check<B>(request: &hyper::Request<B>) -> S3Result<()> {
    let headers = request.headers();
    if request.method() == Method::POST && is_form(headers) {
        return Err(s3_error!(NotImplemented, "uploads by HTML form are not offered here; use PutObject or a presigned URL"));
    }
    let query = Query::parse(request.uri().query().unwrap_or_default());
    let signature = match (authorization(headers)?, query.get("X-Amz-Signature")) {
        // Version 2 signatures: also where a version 4 one is beside it.
        _ if query.get("Signature").is_some() => return Err(other_version()),
        (None, None) => return Err(s3_error!(AccessDenied, "every request here has to be signed; nothing is public")),
        (Some(_), Some(_)) => return Err(s3_error!(InvalidArgument, "a request is signed in its header or in its query, not in both")),
        (Some(text), None) => Signature::in_header(text)?,
        (None, Some(_)) => Signature::in_query(&query)?,
    };
    query.check_once()?;
    if headers.contains_key("x-amz-security-token") || query.names().any(|name| name.eq_ignore_ascii_case("x-amz-security-token")) {
        return Err(s3_error!(InvalidToken, "keys of this endpoint have no session token; leave it out (AWS_SESSION_TOKEN)"));
    }
    signature.check(headers)
}

/// What SDKs move from the headers into the query of a presigned URL goes back there: the library reads headers only. It is signed with the
/// query. Checksums stay out: SDKs put that of an empty body there, since they have none when they sign.
pub fn move_to_headers(head: &mut Parts) -> S3Result<()> {
    let query = Query::parse(head.uri.query().unwrap_or_default());
    if query.get("X-Amz-Signature").is_none() {
        return Ok(());
    }
    for (name, value) in query.0 {
        let name = name.to_ascii_lowercase();
        if !name.starts_with(PREFIX) || OF_SIGNATURE.contains(&name.as_str()) || (name.contains("checksum") && name != CHECKSUM_MODE) {
            continue;
        }
        if head.headers.contains_key(&name) {
            return Err(s3_error!(InvalidArgument, "{name} stands in the query and among the headers"));
        }
        let header = (HeaderName::try_from(&name).ok()).zip(HeaderValue::from_bytes(value.as_bytes()).ok());
        let (name, value) = header.ok_or_else(|| s3_error!(InvalidArgument, "{name} of the query cannot be a header"))?;
        head.headers.insert(name, value);
    }
    Ok(())
}

fn other_version() -> S3Error {
    s3_error!(AccessDenied, "only signatures of version 4 (AWS4-HMAC-SHA256) are accepted here")
}

/// The library reads such a body whole to find a signature in it.
fn is_form(headers: &HeaderMap) -> bool {
    const FORM: &[u8] = b"multipart/form-data";
    let is = |value: &[u8]| value.trim_ascii().get(..FORM.len()).is_some_and(|start| start.eq_ignore_ascii_case(FORM));
    headers.get_all(CONTENT_TYPE).iter().any(|value| is(value.as_bytes()))
}

fn authorization(headers: &HeaderMap) -> S3Result<Option<&str>> {
    let mut given = headers.get_all(AUTHORIZATION).iter();
    match (given.next(), given.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(Some).map_err(|_| malformed()),
        _ => Err(malformed()),
    }
}

fn malformed() -> S3Error {
    s3_error!(
        AuthorizationHeaderMalformed,
        "the Authorization header is not {ALGORITHM} Credential=KEY/DATE/REGION/s3/aws4_request, SignedHeaders=..., Signature=..."
    )
}

/// Names and values as the library reads them, which decodes both.
struct Query(Vec<(String, String)>);

impl Query {
    fn parse(query: &str) -> Self {
        Self(form_urlencoded::parse(query.as_bytes()).into_owned().collect())
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// The library takes a name that is there twice for one that is not there.
    fn check_once(&self) -> S3Result<()> {
        let mut seen = BTreeSet::new();
        match self.names().find(|name| !seen.insert(*name)) {
            Some(name) => Err(s3_error!(InvalidArgument, "the query says {name:?} more than once")),
            None => Ok(()),
        }
    }
}

/// What a signature says of itself; whether it is right is found out later.
struct Signature<'a> {
    signed: Vec<&'a str>,
    /// Its date, too, stands there then.
    in_query: bool,
}

impl<'a> Signature<'a> {
    fn in_header(text: &'a str) -> S3Result<Self> {
        let (algorithm, rest) = text.trim().split_once(char::is_whitespace).unwrap_or((text, ""));
        if algorithm != ALGORITHM {
            return Err(other_version());
        }
        let [credential, signed, signature]: [&str; 3] =
            rest.split(',').map(str::trim).collect::<Vec<_>>().try_into().map_err(|_| malformed())?;
        let credential = credential.strip_prefix("Credential=").filter(|credential| is_for_s3(credential));
        match (credential, signed.strip_prefix("SignedHeaders="), signature.strip_prefix("Signature=")) {
            (Some(_), Some(signed), Some(_)) => Ok(Self { signed: signed.split(';').collect(), in_query: false }),
            _ => Err(malformed()),
        }
    }

    fn in_query(query: &'a Query) -> S3Result<Self> {
        let need = |name: &str| {
            query.get(name).ok_or_else(|| s3_error!(AuthorizationQueryParametersError, "a presigned URL has {name} in its query"))
        };
        if !is_for_s3(need("X-Amz-Credential")?) {
            let form = "KEY/DATE/REGION/s3/aws4_request";
            return Err(s3_error!(AuthorizationQueryParametersError, "X-Amz-Credential is not of the form {form}"));
        }
        let expires_s: Option<u64> = need("X-Amz-Expires")?.parse().ok();
        if expires_s.is_none_or(|expires_s| expires_s > EXPIRES_S_MAX) {
            return Err(s3_error!(AuthorizationQueryParametersError, "X-Amz-Expires is in seconds, at most {EXPIRES_S_MAX} (a week)"));
        }
        Ok(Self { signed: need("X-Amz-SignedHeaders")?.split(';').collect(), in_query: true })
    }

    fn check(&self, headers: &HeaderMap) -> S3Result<()> {
        // Of several with one name some would be signed as if they were one, and then not be found.
        let several =
            headers.keys().find(|name| (name.as_str().starts_with(PREFIX) || *name == HOST) && headers.get_all(*name).iter().count() > 1);
        if let Some(name) = several {
            return Err(s3_error!(InvalidArgument, "the header {name} is there more than once"));
        }
        let dated = self.in_query || headers.contains_key("x-amz-date");
        let acted_upon = |name: &str| name.starts_with(PREFIX) || name == HOST || (name == DATE && !dated);
        let mut needed = headers.keys().map(|name| name.as_str()).filter(|name| acted_upon(name)).chain([HOST.as_str()]);
        // The library leaves out of what it compares a value that is no text.
        let covered = |name: &str| {
            self.signed.contains(&name) && headers.get(name).is_some_and(|value| std::str::from_utf8(value.as_bytes()).is_ok())
        };
        match needed.find(|name| !covered(name)) {
            Some(name) => Err(s3_error!(AccessDenied, "the header {name} is not signed; every x-amz-* header and host has to be")),
            None => Ok(()),
        }
    }
}

fn is_for_s3(credential: &str) -> bool {
    let mut parts = credential.rsplit('/');
    (parts.next(), parts.next()) == (Some("aws4_request"), Some("s3")) && parts.count() >= 3
}

#[cfg(test)]
mod tests {
    use super::*;
    use s3s::S3ErrorCode;

    const SCOPE: &str = "key/20261123/us-east-1/s3/aws4_request";

    fn header(signed: &str) -> String {
        format!("{ALGORITHM} Credential={SCOPE}, SignedHeaders={signed}, Signature=0123")
    }

    fn url(signed: &str, expires: &str) -> String {
        let scope = SCOPE.replace('/', "%2F");
        format!("/b/k?X-Amz-Algorithm={ALGORITHM}&X-Amz-Credential={scope}&X-Amz-Date=20261123T000000Z&X-Amz-Expires={expires}&X-Amz-SignedHeaders={signed}&X-Amz-Signature=0123")
    }

    fn checked(method: Method, uri: &str, headers: &[(&str, &str)]) -> Result<(), S3ErrorCode> {
        let mut request = hyper::Request::builder().method(method).uri(uri).header("host", "here");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        check(&request.body(()).unwrap()).map_err(|error| error.code().clone())
    }

    fn get(uri: &str, headers: &[(&str, &str)]) -> Result<(), S3ErrorCode> {
        checked(Method::GET, uri, headers)
    }

    #[test]
    fn only_version_4_passes() {
        let good = header("host");
        let v4 = ("authorization", good.as_str());
        assert_eq!(get("/b/k", &[v4]), Ok(()));
        assert_eq!(get(&url("host", "60"), &[]), Ok(()));
        let denied = Err(S3ErrorCode::AccessDenied);
        assert_eq!(get("/b/k", &[]), denied);
        assert_eq!(get("/b/k", &[("authorization", "AWS key:signature")]), denied);
        for name in ["Signature", "%53ignature", "Si%67nature"] {
            assert_eq!(get(&format!("/b/k?AWSAccessKeyId=a&Expires=1&{name}=s"), &[]), denied);
            assert_eq!(get(&format!("/b/k?AWSAccessKeyId=a&Expires=1&{name}=s"), &[v4]), denied);
            assert_eq!(get(&format!("{}&{name}=s", url("host", "60")), &[]), denied);
        }
    }

    #[test]
    fn no_form_passes_however_it_is_written() {
        let good = header("host");
        for form in ["multipart/form-data; boundary=x", "Multipart/Form-Data;boundary=x", " MULTIPART/FORM-DATA", "multipart/form-data+a"] {
            let said = [("authorization", good.as_str()), ("content-type", form)];
            assert_eq!(checked(Method::POST, "/b", &said), Err(S3ErrorCode::NotImplemented), "{form}");
            // Of an object it may be the type.
            assert_eq!(checked(Method::PUT, "/b/k", &said), Ok(()), "{form}");
        }
    }

    #[test]
    fn a_request_is_signed_in_one_way() {
        let good = header("host");
        let v4 = ("authorization", good.as_str());
        assert_eq!(get(&url("host", "60"), &[v4]), Err(S3ErrorCode::InvalidArgument));
        assert_eq!(get("/b/k", &[v4, v4]), Err(S3ErrorCode::AuthorizationHeaderMalformed));
        for wrong in [
            header("host").replace("/s3/", "/sts/"),
            header("host").replace("Credential=", "Credential=x, SignedHeaders=x-amz-acl, "),
            header("host").replace("SignedHeaders=", "Signed="),
        ] {
            assert_eq!(get("/b/k", &[("authorization", &wrong)]), Err(S3ErrorCode::AuthorizationHeaderMalformed), "{wrong}");
        }
        assert_eq!(get(&url("host", "60").replace("%2Fs3%2F", "%2Fsts%2F"), &[]), Err(S3ErrorCode::AuthorizationQueryParametersError));
    }

    #[test]
    fn what_is_acted_upon_is_signed() {
        let denied = Err(S3ErrorCode::AccessDenied);
        let copy = ("X-Amz-Copy-Source", "/b/other");
        for (signed, outcome) in [("host", denied.clone()), ("host;x-amz-copy-source", Ok(())), ("host;X-Amz-Copy-Source", denied.clone())]
        {
            assert_eq!(get("/b/k", &[("authorization", &header(signed)), copy]), outcome, "{signed}");
            assert_eq!(get(&url(signed, "60"), &[copy]), outcome, "{signed}");
        }
        assert_eq!(get(&url("x-amz-copy-source", "60"), &[copy]), denied, "the host");
        assert_eq!(get("/b/k", &[("authorization", &header("host")), ("date", "x")]), denied);
        assert_eq!(get(&url("host", "60"), &[("date", "x")]), Ok(()), "the date of a presigned URL stands in it");
        assert_eq!(get("/b/k", &[("authorization", &header("host;x-amz-date")), ("date", "x"), ("x-amz-date", "x")]), Ok(()));
        assert_eq!(get("/b/k", &[("authorization", &header("host;x-amz-meta-a")), ("x-amz-meta-a", "é")]), Ok(()));
        let twice = [("x-amz-meta-a", "1"), ("x-amz-meta-a", "2")];
        assert_eq!(get(&url("host;x-amz-meta-a", "60"), &twice), Err(S3ErrorCode::InvalidArgument));
        assert_eq!(get(&url("host", "60"), &[("content-type", "a/b"), ("range", "bytes=0-1"), ("amz-sdk-request", "1")]), Ok(()));
    }

    #[test]
    fn what_a_presigned_url_says_of_its_object_is_a_header() {
        let moved = |uri: &str, headers: &[(&str, &str)]| {
            let mut request = hyper::Request::builder().uri(uri);
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            let mut head = request.body(()).unwrap().into_parts().0;
            move_to_headers(&mut head).map(|()| head.headers).map_err(|error| error.code().clone())
        };
        let hoisted = format!("{}&x-amz-meta-a=b%20c&X-Amz-Tagging=t%3D1&x-amz-checksum-crc32=AAAAAA%3D%3D", url("host", "60"));
        let headers = moved(&hoisted, &[]).unwrap();
        let mut names: Vec<&str> = headers.keys().map(|name| name.as_str()).collect();
        names.sort();
        assert_eq!(names, ["x-amz-meta-a", "x-amz-tagging"]);
        assert_eq!((&headers["x-amz-meta-a"], &headers["x-amz-tagging"]), (&"b c".parse().unwrap(), &"t=1".parse().unwrap()));
        assert!(moved("/b/k?x-amz-meta-a=b", &[]).unwrap().is_empty(), "only where the query is signed by itself");
        assert_eq!(moved(&hoisted, &[("x-amz-meta-a", "b c")]), Err(S3ErrorCode::InvalidArgument));
        assert_eq!(moved(&format!("{}&x-amz-meta-a=%0A", url("host", "60")), &[]), Err(S3ErrorCode::InvalidArgument));
    }

    #[test]
    fn a_week_is_the_longest() {
        assert_eq!(get(&url("host", "604800"), &[]), Ok(()));
        for expires in ["604801", "99999999999999999999999", "-1", "x", ""] {
            assert_eq!(get(&url("host", expires), &[]), Err(S3ErrorCode::AuthorizationQueryParametersError), "{expires}");
        }
    }

    #[test]
    fn a_query_says_a_thing_once() {
        for (query, outcome) in
            [("a=1&b=2", Ok(())), ("a=1&%61=2", Err(S3ErrorCode::InvalidArgument)), ("a&a", Err(S3ErrorCode::InvalidArgument))]
        {
            assert_eq!(get(&format!("/b?{query}"), &[("authorization", &header("host"))]), outcome, "{query}");
        }
        let twice = format!("{}&X-Amz-Signature=4567", url("host", "60"));
        assert_eq!(get(&twice, &[]), Err(S3ErrorCode::InvalidArgument));
    }

    #[test]
    fn session_tokens_are_refused() {
        let token = ("x-amz-security-token", "t");
        assert_eq!(get("/b/k", &[("authorization", &header("host;x-amz-security-token")), token]), Err(S3ErrorCode::InvalidToken));
        assert_eq!(get(&format!("{}&X-Amz-Security-Token=t", url("host", "60")), &[]), Err(S3ErrorCode::InvalidToken));
    }
}
