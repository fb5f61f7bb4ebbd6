//! The checksums that an S3 server keeps of an object: asked for with each request about all of it, signed, and read from the answer. Knows
//! headers.
//!
//! The one rule: only a checksum of the whole content says something of it; one of parts, or one that cannot be read, is as if unsaid.

use std::time::SystemTime;

use async_trait::async_trait;
use base64::prelude::{Engine, BASE64_STANDARD};
use object_store::client::{HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService};
use object_store::{Attribute, Attributes, ClientOptions, HeaderValue};

use super::exact;
use super::signing::{connected, Signing};
use crate::ReportedChecksum;

const MODE: &str = "x-amz-checksum-mode";
const TYPE: &str = "x-amz-checksum-type";
/// In the order they are preferred: the strongest that costs nothing first.
const CHECKSUMS: [&str; 4] = ["x-amz-checksum-crc64nvme", "x-amz-checksum-sha256", "x-amz-checksum-crc32c", "x-amz-checksum-crc32"];
/// object_store hands on headers of metadata only: the checksum travels to `of` under this one.
const CARRIER: &str = "x-amz-meta-stager-checksum";
const CARRIED: &str = "stager-checksum";
/// And so does the server's clock.
const CLOCK_CARRIER: &str = "x-amz-meta-stager-date";
const CLOCK_CARRIED: &str = "stager-date";

/// None: requests are not signed.
#[derive(Debug)]
pub struct AskingConnector(pub Option<Signing>);

#[derive(Debug)]
struct Asking {
    client: HttpClient,
    signing: Option<Signing>,
}

impl HttpConnector for AskingConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Asking { client: connected(options, self.0.as_ref())?, signing: self.0.clone() }))
    }
}

#[async_trait]
impl HttpService for Asking {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let asks = is_about_a_whole_object(&request);
        if asks {
            let plain = request.headers().clone();
            request.headers_mut().insert(MODE, HeaderValue::from_static("ENABLED"));
            // A header of this kind has to be under the signature. Where it cannot be, the question is left out.
            if self.signing.as_ref().is_some_and(|signing| !signing.sign(&mut request)) {
                *request.headers_mut() = plain;
            }
        }
        if request.method().as_str() == "DELETE" {
            exact::narrow(&mut request, self.signing.as_ref())?;
        }
        let mut response = self.client.execute(request).await?;
        if asks {
            let headers = response.headers_mut();
            headers.remove(CARRIER);
            headers.remove(CLOCK_CARRIER);
            if let Some(date) = headers.get("date").cloned() {
                headers.insert(CLOCK_CARRIER, date);
            }
            let of_parts = headers.get(TYPE).is_some_and(|kind| kind.as_bytes().eq_ignore_ascii_case(b"COMPOSITE"));
            let named = CHECKSUMS.into_iter().find_map(|name| Some((name, headers.get(name)?.to_str().ok()?)));
            if let Some((name, value)) = named.filter(|_| !of_parts) {
                if let Ok(carried) = HeaderValue::from_str(&format!("{name}:{value}")) {
                    headers.insert(CARRIER, carried);
                }
            }
        }
        Ok(response)
    }
}

/// Listings have a query; the answer to a range would be compared with the whole.
fn is_about_a_whole_object(request: &HttpRequest) -> bool {
    match request.method().as_str() {
        "HEAD" => true,
        "GET" => request.uri().query().is_none() && !request.headers().contains_key("range"),
        _ => false,
    }
}

/// What an answer about all of an object said.
pub fn of(attributes: &Attributes) -> ReportedChecksum {
    let carried = attributes.get(&Attribute::Metadata(CARRIED.into())).map(|value| value.as_ref());
    carried.and_then(|text| text.split_once(':')).map_or(ReportedChecksum::default(), |(name, value)| parsed(name, value))
}

/// The server's clock when it answered, where it tells.
pub fn clock(attributes: &Attributes) -> Option<SystemTime> {
    let carried = attributes.get(&Attribute::Metadata(CLOCK_CARRIED.into()))?;
    httpdate::parse_http_date(carried.as_ref()).ok()
}

fn parsed(name: &str, value: &str) -> ReportedChecksum {
    // What is made of parts has a dash and their number behind it, which is no base64.
    let bytes = BASE64_STANDARD.decode(value).unwrap_or_default();
    let mut reported = ReportedChecksum::default();
    match name {
        "x-amz-checksum-crc64nvme" => reported.crc64nvme = bytes.try_into().ok().map(u64::from_be_bytes),
        "x-amz-checksum-sha256" => reported.sha256 = bytes.try_into().ok(),
        "x-amz-checksum-crc32c" => reported.crc32c = bytes.try_into().ok().map(u32::from_be_bytes),
        "x-amz-checksum-crc32" => reported.crc32 = bytes.try_into().ok().map(u32::from_be_bytes),
        _ => {}
    }
    reported
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_checksum_of_the_whole_says_something() {
        assert_eq!(parsed("x-amz-checksum-crc32", "y/Q5Jg==").crc32, Some(0xcbf4_3926));
        assert_eq!(parsed("x-amz-checksum-crc64nvme", "rosUhgp5mIg=").crc64nvme, Some(0xae8b_1486_0a79_9888));
        for (name, value) in [
            ("x-amz-checksum-crc32", "y/Q5Jg==-3"),
            ("x-amz-checksum-crc32", "not base64!"),
            ("x-amz-checksum-sha256", "y/Q5Jg=="),
            ("x-amz-checksum-md2", "y/Q5Jg=="),
        ] {
            assert_eq!(parsed(name, value), ReportedChecksum::default(), "{name} {value}");
        }
    }
}
