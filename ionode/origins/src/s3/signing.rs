//! How requests are signed, and by whose clock. Knows SigV4, headers and the credentials.
//!
//! The one rule: what object_store signed by this host's clock is signed anew by the server's where the two are too far apart for a
//! server, and nothing else of a request changes.

use std::fmt::Write;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use hmac::{Hmac, KeyInit, Mac};
use object_store::aws::{AwsAuthorizer, AwsCredential};
use object_store::client::{HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService, ReqwestConnector};
use object_store::{ClientOptions, HeaderValue};
use percent_encoding::{percent_decode_str, utf8_percent_encode, AsciiSet, NON_ALPHANUMERIC};
use sha2_011::{Digest, Sha256};

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const STAMP: &str = "x-amz-date";
const AUTHORIZATION: &str = "authorization";
/// Servers bear 15 minutes. What takes its time on the way needs a part of them.
const APART_S_MAX: u64 = 5 * 60;
/// No clock is further off: those without a battery begin at 1970.
const APART_S_BELIEVED: u64 = 100 * 365 * 86_400;
/// Since the epoch: the last second that can be written as a date.
const LAST: Duration = Duration::from_secs(253_370_764_799);
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// The credentials of a bucket, and how far its server's clock is ahead.
#[derive(Clone)]
pub struct Signing {
    credential: Arc<AwsCredential>,
    region: String,
    ahead_s: Arc<AtomicI64>,
}

impl std::fmt::Debug for Signing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Signing")
    }
}

impl Signing {
    pub fn new(credential: AwsCredential, region: String) -> Self {
        Self { credential: Arc::new(credential), region, ahead_s: Arc::default() }
    }

    /// By this host's clock. False: it cannot be.
    pub fn sign(&self, request: &mut HttpRequest) -> bool {
        AwsAuthorizer::new(&self.credential, "s3", &self.region).try_authorize(request, None).is_ok()
    }

    /// What is signed already, as if it had been at that time (`20261126T174200Z`). None: it is not signed, and left as it is.
    fn sign_anew(&self, request: &mut HttpRequest, stamp: &str) -> Option<()> {
        let signed = text_of(request, AUTHORIZATION)?;
        let names = signed.split_once("SignedHeaders=")?.1.split(',').next()?.to_owned();
        let payload = text_of(request, "x-amz-content-sha256")?.to_owned();
        request.headers_mut().insert(STAMP, HeaderValue::from_str(stamp).ok()?);
        let headers =
            names.split(';').map(|name| Some(format!("{name}:{}\n", canonical_value(request, name)?))).collect::<Option<String>>()?;
        let uri = request.uri();
        let canonical = format!(
            "{}\n{}\n{}\n{headers}\n{names}\n{payload}",
            request.method(),
            uri.path(),
            canonical_query(uri.query().unwrap_or_default())
        );
        let scope = format!("{}/{}/s3/aws4_request", &stamp[..8], self.region);
        let to_sign = format!("{ALGORITHM}\n{stamp}\n{scope}\n{}", hex(&Sha256::digest(canonical)));
        let key = [&stamp[..8], &self.region, "s3", "aws4_request"]
            .iter()
            .fold(format!("AWS4{}", self.credential.secret_key).into_bytes(), |key, word| keyed(&key, word));
        let signature = hex(&keyed(&key, &to_sign));
        let signed = format!("{ALGORITHM} Credential={}/{scope}, SignedHeaders={names}, Signature={signature}", self.credential.key_id);
        request.headers_mut().insert(AUTHORIZATION, HeaderValue::from_str(&signed).ok()?);
        Some(())
    }

    /// Signed by the server's clock, as far as it is known to be another. How far ahead it was taken to be.
    fn by_its_clock(&self, request: &mut HttpRequest) -> i64 {
        let ahead_s = self.ahead_s.load(Ordering::Relaxed);
        if ahead_s != 0 {
            self.sign_anew(request, &stamp_of(moved(SystemTime::now(), ahead_s)));
        }
        ahead_s
    }

    /// Whether the answer shows that the request was signed by a wrong clock, `taken_s` ahead. From here on requests are signed by the
    /// server's, of which others on their way may have learned meanwhile.
    fn learns_from(&self, response: &HttpResponse, taken_s: i64) -> bool {
        if response.status().as_u16() != 403 {
            return false;
        }
        let date = response.headers().get("date").and_then(|date| httpdate::parse_http_date(date.to_str().ok()?).ok());
        let Some(ahead_s) = date.map(|date| seconds_since_epoch(date) - seconds_since_epoch(SystemTime::now())) else { return false };
        if ahead_s.abs_diff(taken_s) <= APART_S_MAX || ahead_s.unsigned_abs() > APART_S_BELIEVED {
            return false;
        }
        let ahead_s = if ahead_s.unsigned_abs() <= APART_S_MAX { 0 } else { ahead_s };
        if self.ahead_s.swap(ahead_s, Ordering::Relaxed).abs_diff(ahead_s) > APART_S_MAX {
            tracing::warn!(
                server_ahead_s = ahead_s,
                "the clock of this host is not that of an S3 server; requests are signed by the server's"
            );
        }
        true
    }
}

/// `signing` None: requests are not signed.
pub fn connected(options: &ClientOptions, signing: Option<&Signing>) -> object_store::Result<HttpClient> {
    let client = ReqwestConnector::default().connect(options)?;
    Ok(match signing {
        Some(signing) => HttpClient::new(ByServersClock { client, signing: signing.clone() }),
        None => client,
    })
}

#[derive(Debug)]
struct ByServersClock {
    client: HttpClient,
    signing: Signing,
}

#[async_trait]
impl HttpService for ByServersClock {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let mut again = request.clone();
        let taken_s = self.signing.by_its_clock(&mut request);
        let response = self.client.execute(request).await?;
        if !self.signing.learns_from(&response, taken_s) {
            return Ok(response);
        }
        self.signing.by_its_clock(&mut again);
        self.client.execute(again).await
    }
}

fn text_of<'a>(request: &'a HttpRequest, name: &str) -> Option<&'a str> {
    request.headers().get(name)?.to_str().ok()
}

fn canonical_value(request: &HttpRequest, name: &str) -> Option<String> {
    if name == "host" {
        return host_of(request);
    }
    let values: Vec<&str> =
        request.headers().get_all(name).iter().map(|value| std::str::from_utf8(value.as_bytes()).ok()).collect::<Option<_>>()?;
    let folded: Vec<String> = values.iter().map(|value| value.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    (!folded.is_empty()).then(|| folded.join(","))
}

/// As a client sends it: without the port that the scheme has anyway.
fn host_of(request: &HttpRequest) -> Option<String> {
    let uri = request.uri();
    let host = uri.host()?;
    let usual = if uri.scheme_str() == Some("https") { 443 } else { 80 };
    Some(match uri.port_u16().filter(|port| *port != usual) {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    })
}

fn canonical_query(query: &str) -> String {
    let encoded = |text: &str| {
        let text = text.replace('+', " ");
        utf8_percent_encode(&percent_decode_str(&text).decode_utf8_lossy(), UNRESERVED).to_string()
    };
    let mut pairs: Vec<(String, String)> = query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(name, value)| (encoded(name), encoded(value)))
        .collect();
    pairs.sort_unstable();
    pairs.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&")
}

fn keyed(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes a key of any length");
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn seconds_since_epoch(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => after.as_secs() as i64,
        Err(before) => -(before.duration().as_secs() as i64),
    }
}

/// Either clock may be set to anything; what cannot be written as a date becomes the next that can.
fn moved(time: SystemTime, by_s: i64) -> SystemTime {
    let by = Duration::from_secs(by_s.unsigned_abs());
    let moved = if by_s < 0 { time.checked_sub(by).unwrap_or(UNIX_EPOCH) } else { time.checked_add(by).unwrap_or(UNIX_EPOCH + LAST) };
    moved.clamp(UNIX_EPOCH, UNIX_EPOCH + LAST)
}

/// `20261126T174200Z`.
fn stamp_of(time: SystemTime) -> String {
    // Sun, 06 Nov 1994 08:49:37 GMT
    let text = httpdate::fmt_http_date(time);
    let month = MONTHS.iter().position(|name| *name == &text[8..11]).expect("a month of httpdate") + 1;
    format!("{}{month:02}{}T{}Z", &text[12..16], &text[5..7], text[17..25].replace(':', ""))
}

#[cfg(test)]
mod tests {
    use object_store::client::HttpRequestBody;

    use super::*;

    fn signing(token: Option<&str>) -> Signing {
        let credential = AwsCredential { key_id: "key".into(), secret_key: "a secret/+=".into(), token: token.map(str::to_owned) };
        Signing::new(credential, "eu-north-1".into())
    }

    fn request(method: &str, uri: &str, headers: &[(&'static str, &str)], body: &'static str) -> HttpRequest {
        let mut request = HttpRequest::new(HttpRequestBody::from(body.to_owned()));
        *request.method_mut() = method.parse().unwrap();
        *request.uri_mut() = uri.parse().unwrap();
        for (name, value) in headers {
            request.headers_mut().append(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        request
    }

    #[test]
    fn what_is_signed_anew_for_the_same_time_has_the_same_signature() {
        let all = [
            request("GET", "http://127.0.0.1:9000/bucket/a%20b/%C3%A9+c", &[("range", "bytes=0-5"), ("if-match", "\"tag\"")], ""),
            request("GET", "https://lab.s3.org/?list-type=2&prefix=a%2Fb+c%26d&delimiter=%2F&start-after=%7E-_.", &[], ""),
            request("POST", "https://lab.s3.org:443/key?uploads", &[("x-amz-checksum-algorithm", "SHA256")], ""),
            request("PUT", "https://lab.s3.org:8443/key?partNumber=10&uploadId=x%3D%3D", &[("content-length", "5")], "bytes"),
            request("HEAD", "http://h:80/k", &[("x-amz-meta-note", "  two   spaces "), ("x-amz-meta-note", "twice")], ""),
        ];
        for signing in [signing(None), signing(Some("token"))] {
            for mut request in all.clone() {
                assert!(signing.sign(&mut request));
                let before = request.clone();
                signing.sign_anew(&mut request, text_of(&before, STAMP).unwrap()).unwrap();
                assert_eq!(request.headers(), before.headers(), "{} {}", before.method(), before.uri());
                signing.sign_anew(&mut request, "20000229T235959Z").unwrap();
                assert_ne!(request.headers()[AUTHORIZATION], before.headers()[AUTHORIZATION]);
            }
        }
    }

    #[test]
    fn what_is_not_signed_stays_so() {
        let mut plain = request("GET", "http://h/k", &[], "");
        assert!(signing(None).sign_anew(&mut plain, "20000229T235959Z").is_none());
        assert!(plain.headers().is_empty());
    }

    #[test]
    fn only_a_refusal_by_a_far_clock_moves_the_clock() {
        let signing = signing(None);
        let answer = |status: u16, ahead_s: i64| {
            let mut response = HttpResponse::new(Vec::new().into());
            *response.status_mut() = status.try_into().unwrap();
            let date = httpdate::fmt_http_date(moved(SystemTime::now(), ahead_s));
            response.headers_mut().insert("date", HeaderValue::from_str(&date).unwrap());
            response
        };
        assert!(!signing.learns_from(&answer(200, 7200), 0) && !signing.learns_from(&answer(403, 200), 0));
        assert!(signing.learns_from(&answer(403, -7200), 0));
        assert!(signing.ahead_s.load(Ordering::Relaxed).abs_diff(-7200) <= 2);
        // This one was on its way before that.
        assert!(signing.learns_from(&answer(403, -7200), 0));
        // Refused for another reason now.
        assert!(!signing.learns_from(&answer(403, -7200), -7200));
        // Somebody has set the clock right.
        assert!(signing.learns_from(&answer(403, 0), -7200));
        assert_eq!(signing.ahead_s.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_clock_that_cannot_be_one_is_not_believed() {
        let signing = signing(None);
        let refused = |date: &'static str| {
            let mut response = HttpResponse::new(Vec::new().into());
            *response.status_mut() = 403.try_into().unwrap();
            response.headers_mut().insert("date", HeaderValue::from_static(date));
            signing.learns_from(&response, 0)
        };
        assert!(!refused("Fri, 31 Dec 9999 23:59:59 GMT"));
        assert_eq!(signing.ahead_s.load(Ordering::Relaxed), 0);
        // Of a server whose clock has no battery.
        assert!(refused("Thu, 01 Jan 1970 00:00:00 GMT"));
    }

    #[test]
    fn every_time_can_be_written() {
        assert_eq!(stamp_of(moved(UNIX_EPOCH, -5)), "19700101T000000Z");
        assert_eq!(stamp_of(moved(UNIX_EPOCH + LAST, 5)), "99981231T235959Z");
        assert_eq!(stamp_of(moved(SystemTime::now(), i64::MAX)), "99981231T235959Z");
    }

    #[test]
    fn a_time_is_written_as_servers_read_it() {
        assert_eq!(stamp_of(UNIX_EPOCH + Duration::from_secs(951_868_799)), "20000229T235959Z");
    }
}
