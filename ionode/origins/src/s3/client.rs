//! The HTTP side of an S3 origin: how object_store is set up, and the one header it cannot be asked for. Knows object_store's builder.
//!
//! The one rule: credentials come from the configuration or not at all; environment, files and instance metadata are never looked at.

use std::time::Duration;

use async_trait::async_trait;
use object_store::aws::{AmazonS3, AmazonS3Builder, AwsCredential};
use object_store::client::{HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService};
use object_store::{ClientOptions, HeaderValue, RetryConfig};
use stager_core::error::{ApiError, Code};

use super::reported_checksum::AskingConnector;
use super::signing::{connected, Signing};
use crate::config::{Addressing, S3Config};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// Without a byte; a whole 64 MiB part may take as long as it takes.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(60);
/// Short hiccups are ours; longer ones are the caller's to wait for.
const RETRIES_MAX: usize = 3;
const RETRY_TIMEOUT: Duration = Duration::from_secs(60);

/// Two faces of one bucket.
pub struct Clients {
    pub plain: AmazonS3,
    /// Completes a multipart upload only where nothing is yet.
    pub creating: AmazonS3,
}

pub fn clients(config: &S3Config, place: &str) -> Result<Clients, ApiError> {
    let wrong = |why: String| ApiError::new(Code::BadRequest, place, format!("The {place} is configured wrongly: {why}."));
    let endpoint = endpoint(config).map_err(|why| wrong(why.to_owned()))?;
    let build = |builder: AmazonS3Builder| builder.build().map_err(|error| wrong(error.to_string()));
    let signing = signing(config);
    Ok(Clients {
        plain: build(builder(config, endpoint.as_deref()).with_http_connector(AskingConnector(signing.clone())))?,
        creating: build(builder(config, endpoint.as_deref()).with_http_connector(CreatingConnector(signing)))?,
    })
}

fn builder(config: &S3Config, endpoint: Option<&str>) -> AmazonS3Builder {
    let options = ClientOptions::new()
        .with_allow_http(config.allow_http)
        .with_connect_timeout(CONNECT_TIMEOUT)
        .with_read_timeout(SILENCE_TIMEOUT)
        .with_timeout_disabled();
    let retry = RetryConfig { max_retries: RETRIES_MAX, retry_timeout: RETRY_TIMEOUT, ..RetryConfig::default() };
    let mut builder = AmazonS3Builder::new()
        .with_bucket_name(&config.bucket)
        .with_region(&config.region)
        .with_virtual_hosted_style_request(config.addressing == Addressing::Virtual)
        .with_client_options(options)
        .with_retry(retry)
        .with_disable_bulk_delete(true);
    if let Some(endpoint) = endpoint {
        builder = builder.with_endpoint(endpoint);
    }
    if config.access_key_id.is_empty() {
        return builder.with_skip_signature(true);
    }
    builder = builder.with_access_key_id(&config.access_key_id).with_secret_access_key(config.secret_access_key.reveal());
    match &config.session_token {
        Some(token) => builder.with_token(token.reveal()),
        None => builder,
    }
}

fn signing(config: &S3Config) -> Option<Signing> {
    let credential = AwsCredential {
        key_id: config.access_key_id.clone(),
        secret_key: config.secret_access_key.reveal().to_owned(),
        token: config.session_token.as_ref().map(|token| token.reveal().to_owned()),
    };
    (!config.access_key_id.is_empty()).then(|| Signing::new(credential, config.region.clone()))
}

/// object_store wants the bucket in the endpoint's host where it is addressed that way.
fn endpoint(config: &S3Config) -> Result<Option<String>, &'static str> {
    if config.bucket.is_empty() || config.bucket.contains(['/', '?', '#', '@', ':']) {
        return Err("the bucket's name is empty or has characters no bucket has");
    }
    let Some(endpoint) = config.endpoint.as_deref().map(|endpoint| endpoint.trim_end_matches('/')) else { return Ok(None) };
    let Some((scheme, host)) = endpoint.split_once("://").filter(|(scheme, host)| matches!(*scheme, "http" | "https") && !host.is_empty())
    else {
        return Err("the endpoint must be an http or https URL");
    };
    if host.contains('@') {
        return Err("the endpoint must not hold credentials; use access_key_id and secret_access_key");
    }
    if scheme == "http" && !config.allow_http {
        return Err("the endpoint is plain http, which needs allow_http");
    }
    Ok(Some(match config.addressing {
        Addressing::Path => endpoint.to_owned(),
        Addressing::Virtual => format!("{scheme}://{}.{host}", config.bucket),
    }))
}

#[derive(Debug)]
struct CreatingConnector(Option<Signing>);

#[derive(Debug)]
struct CreatingService(HttpClient);

impl HttpConnector for CreatingConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(CreatingService(connected(options, self.0.as_ref())?)))
    }
}

#[async_trait]
impl HttpService for CreatingService {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let completes = request.uri().query().is_some_and(|query| query.starts_with("uploadId=")) && request.method().as_str() == "POST";
        if completes {
            request.headers_mut().insert("if-none-match", HeaderValue::from_static("*"));
        }
        self.0.execute(request).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(endpoint: Option<&str>, addressing: Addressing, allow_http: bool) -> S3Config {
        S3Config {
            bucket: "lab".into(),
            prefix: String::new(),
            region: "us-east-1".into(),
            endpoint: endpoint.map(str::to_owned),
            addressing,
            access_key_id: String::new(),
            secret_access_key: Default::default(),
            session_token: None,
            allow_http,
            bandwidth_bytes_per_s_max: None,
        }
    }

    #[test]
    fn endpoints_are_what_object_store_wants_or_refused() {
        let of = |text, addressing, allow| endpoint(&config(Some(text), addressing, allow));
        assert_eq!(of("https://s3.lab.org/", Addressing::Path, false), Ok(Some("https://s3.lab.org".into())));
        assert_eq!(of("https://s3.lab.org", Addressing::Virtual, false), Ok(Some("https://lab.s3.lab.org".into())));
        assert!(of("http://s3.lab.org", Addressing::Path, false).is_err());
        assert!(of("http://s3.lab.org", Addressing::Path, true).is_ok());
        assert!(of("https://key:secret@s3.lab.org", Addressing::Path, true).is_err());
        assert!(of("s3.lab.org", Addressing::Path, true).is_err());
        assert_eq!(endpoint(&config(None, Addressing::Virtual, false)), Ok(None));
    }
}
