//! How an http origin talks: timeouts, certificates, credentials, which redirects are followed. Knows reqwest's builder.
//!
//! The one rule: credentials go to the host they are for and to no other, and no answer leads us where only this machine can go.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use base64::prelude::{Engine, BASE64_STANDARD};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{HeaderMap, HeaderValue, ACCEPT_ENCODING, AUTHORIZATION};
use reqwest::redirect::{Action, Attempt, Policy};
use reqwest::{Certificate, Client, Url};
use stager_core::error::{ApiError, Code};
use stager_core::VERSION;

use super::address::Base;
use super::egress_filter::EgressFilter;
use crate::config::HttpConfig;

const REDIRECTS_MAX: usize = 5;

/// How long the other side may take; tests wait less.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    pub connect: Duration,
    /// Without a byte; a large file may take as long as it takes.
    pub silence: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { connect: Duration::from_secs(15), silence: Duration::from_secs(30) }
    }
}

/// A way that is not gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Barred {
    TooMany,
    Unencrypted,
    OtherScheme,
    LinkLocal,
    NotPublic,
}

impl fmt::Display for Barred {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooMany => "it redirects again and again",
            Self::Unencrypted => "it redirects from https to http, which anyone on the way can read and change",
            Self::OtherScheme => "it redirects to neither http nor https",
            Self::LinkLocal => {
                "it leads to a link-local address, or another one at which this machine's own services or its cloud's answer"
            }
            Self::NotPublic => "it leads to an address that is not of the public internet; an administrator can register that origin",
        })
    }
}

impl std::error::Error for Barred {}

pub fn client(config: &HttpConfig, base: &Base, timeouts: Timeouts) -> Result<Client, ApiError> {
    let wrong = |why: String| ApiError::new(Code::BadRequest, "origin", format!("The http origin {} {why}.", base.shown()));
    let filter = EgressFilter::of(config);
    if let Some(barred) = filter.bars_host(base.url()) {
        return Err(wrong(format!("cannot be used: {barred}")));
    }
    let mut headers = HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static("identity"))]);
    if let Some(mut authorization) = authorization(config).map_err(|why| wrong(why.to_owned()))? {
        if !base.is_encrypted() && !config.allow_http {
            return Err(wrong(
                "would send credentials over plain http, where anyone on the way can read them; use https, or allow_http".to_owned(),
            ));
        }
        authorization.set_sensitive(true);
        headers.insert(AUTHORIZATION, authorization);
    }
    let mut builder = Client::builder()
        .user_agent(format!("stager-ionode/{VERSION}"))
        .default_headers(headers)
        .connect_timeout(timeouts.connect)
        .read_timeout(timeouts.silence)
        .redirect(Policy::custom(move |attempt| follow(filter, attempt)))
        .referer(false)
        .dns_resolver(FilteredResolver(filter))
        .tls_certs_merge(certificates(config, base)?)
        .http1_only()
        .no_gzip()
        .no_brotli()
        .no_zstd()
        .no_deflate();
    if !by_proxy(filter, config, base) {
        builder = builder.no_proxy();
    }
    builder.build().map_err(|error| wrong(format!("cannot be used: {}", super::answer::chain(&error))))
}

/// A proxy resolves names itself and goes wherever it can, reads what is not encrypted, and has no way to this machine.
fn by_proxy(filter: EgressFilter, config: &HttpConfig, base: &Base) -> bool {
    let has_credentials = config.bearer_token.is_some() || config.user.is_some();
    filter != EgressFilter::Public && (base.is_encrypted() || !has_credentials) && !base.is_loopback()
}

fn authorization(config: &HttpConfig) -> Result<Option<HeaderValue>, &'static str> {
    let text = match (&config.bearer_token, &config.user, &config.password) {
        (None, None, None) => return Ok(None),
        (Some(token), None, None) => format!("Bearer {}", token.reveal()),
        (None, Some(user), Some(password)) if !user.contains(':') => {
            format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{}", password.reveal())))
        }
        _ => return Err("needs a bearer_token, or a user (without ':') and a password, not a part or both of them"),
    };
    HeaderValue::from_str(&text).map(Some).map_err(|_| "has a bearer_token with characters that no header can carry")
}

fn certificates(config: &HttpConfig, base: &Base) -> Result<Vec<Certificate>, ApiError> {
    let Some(file) = &config.ca_file else {
        return Ok(Vec::new());
    };
    let wrong =
        |why: String| ApiError::new(Code::BadRequest, "ca_file", format!("The ca_file {} of {} {why}.", file.display(), base.shown()));
    let pem = std::fs::read(file).map_err(|error| wrong(format!("cannot be read ({error})")))?;
    match Certificate::from_pem_bundle(&pem) {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(wrong("holds no certificate in PEM form".to_owned())),
    }
}

fn follow(filter: EgressFilter, attempt: Attempt<'_>) -> Action {
    match barred(filter, attempt.previous(), attempt.url()) {
        Some(barred) => attempt.error(barred),
        None => attempt.follow(),
    }
}

fn barred(filter: EgressFilter, previous: &[Url], next: &Url) -> Option<Barred> {
    if previous.len() > REDIRECTS_MAX {
        Some(Barred::TooMany)
    } else if !matches!(next.scheme(), "http" | "https") {
        Some(Barred::OtherScheme)
    } else if next.scheme() == "http" && previous.iter().any(|url| url.scheme() == "https") {
        Some(Barred::Unencrypted)
    } else {
        filter.bars_host(next)
    }
}

/// Of a name's addresses, those that may be gone to.
struct FilteredResolver(EgressFilter);

impl Resolve for FilteredResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let filter = self.0;
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let addresses = allowed(filter, found)?;
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

/// An error where all that there is may not be gone to.
fn allowed(filter: EgressFilter, found: Vec<SocketAddr>) -> Result<Vec<SocketAddr>, Barred> {
    let why = found.iter().find_map(|address| filter.bars(address.ip()));
    let allowed: Vec<_> = found.into_iter().filter(|address| filter.bars(address.ip()).is_none()).collect();
    match why {
        Some(barred) if allowed.is_empty() => Err(barred),
        _ => Ok(allowed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn urls(texts: &[&str]) -> Vec<Url> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn some_ways_are_not_gone() {
        let of = |previous: &[&str], next: &str| barred(EgressFilter::LinkLocal, &urls(previous), &next.parse().unwrap());
        assert_eq!(of(&["http://a/"], "https://b/"), None);
        assert_eq!(of(&["https://a/"], "http://a/"), Some(Barred::Unencrypted));
        assert_eq!(of(&["http://a/", "https://a/"], "http://a/"), Some(Barred::Unencrypted));
        assert_eq!(of(&["http://a/"], "ftp://a/"), Some(Barred::OtherScheme));
        assert_eq!(of(&["http://a/"; 5], "http://a/"), None);
        assert_eq!(of(&["http://a/"; 6], "http://a/"), Some(Barred::TooMany));
        for metadata in ["http://169.254.169.254/latest", "http://[fe80::1]/", "http://[::ffff:169.254.169.254]/", "http://0xA9FEA9FE/"] {
            assert_eq!(of(&["http://a/"], metadata), Some(Barred::LinkLocal), "{metadata}");
        }
        assert_eq!(of(&["http://a/"], "http://127.0.0.1/"), None);
    }

    #[test]
    fn of_an_origin_for_everybody_no_redirect_leads_off_the_public_internet() {
        for inside in ["http://127.0.0.1/", "http://2130706433/", "http://0x7f.1/", "http://[::1]:80/", "http://[::ffff:10.0.0.1]/"] {
            assert_eq!(barred(EgressFilter::Public, &urls(&["http://a/"]), &inside.parse().unwrap()), Some(Barred::NotPublic), "{inside}");
        }
    }

    #[test]
    fn names_do_not_lead_there_either() {
        let of =
            |filter, texts: &[&str]| allowed(filter, texts.iter().map(|text| text.parse().unwrap()).collect()).map(|found| found.len());
        assert_eq!(of(EgressFilter::LinkLocal, &["169.254.169.254:0"]), Err(Barred::LinkLocal));
        assert_eq!(of(EgressFilter::LinkLocal, &["169.254.169.254:0", "127.0.0.1:0"]), Ok(1));
        assert_eq!(of(EgressFilter::LinkLocal, &[]), Ok(0));
        assert_eq!(of(EgressFilter::Public, &["127.0.0.1:0", "[::1]:0"]), Err(Barred::NotPublic));
        assert_eq!(of(EgressFilter::Public, &["127.0.0.1:0", "1.1.1.1:0"]), Ok(1));
    }
}
