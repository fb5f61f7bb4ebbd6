//! How an http origin talks: timeouts, certificates, credentials, which redirects are followed. Knows reqwest's builder.
//!
//! The one rule: credentials go to the host they are for and to no other, and no answer leads us where only this machine can go.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use base64::prelude::{Engine, BASE64_STANDARD};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{HeaderMap, HeaderValue, ACCEPT_ENCODING, AUTHORIZATION};
use reqwest::redirect::{Action, Attempt, Policy};
use reqwest::{Certificate, Client, Url};
use stager_core::error::ApiError;

use super::address::Base;
use crate::config::HttpConfig;

const REDIRECTS_MAX: usize = 5;
const AGENT: &str = concat!("stager-ionode/", env!("CARGO_PKG_VERSION"));

/// How long the other side may take; tests have less patience.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    pub connect: Duration,
    /// Without a byte; a large file may take as long as it takes.
    pub silence: Duration,
}

impl Default for Patience {
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
}

impl fmt::Display for Barred {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooMany => "it redirects again and again",
            Self::Unencrypted => "it redirects from https to http, which anyone on the way can read and change",
            Self::OtherScheme => "it redirects to what is neither http nor https",
            Self::LinkLocal => "it leads to a link-local address, where this machine's own services are",
        })
    }
}

impl std::error::Error for Barred {}

pub fn client(config: &HttpConfig, base: &Base, patience: Patience) -> Result<Client, ApiError> {
    let wrong = |why: String| ApiError::invalid("bad_request", "origin", format!("The http origin {} {why}.", base.shown()));
    if is_link_local_host(base.url()) {
        return Err(wrong(format!("cannot be used: {}", Barred::LinkLocal)));
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
    let builder = Client::builder()
        .user_agent(AGENT)
        .default_headers(headers)
        .connect_timeout(patience.connect)
        .read_timeout(patience.silence)
        .redirect(Policy::custom(follow))
        .referer(false)
        .dns_resolver(NoLinkLocal)
        .tls_certs_merge(certificates(config, base)?)
        .http1_only()
        .no_gzip()
        .no_brotli()
        .no_zstd()
        .no_deflate();
    builder.build().map_err(|error| wrong(format!("cannot be used: {}", super::answer::chain(&error))))
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
    let Some(file) = &config.ca_file else { return Ok(Vec::new()) };
    let wrong =
        |why: String| ApiError::invalid("bad_request", "ca_file", format!("The ca_file {} of {} {why}.", file.display(), base.shown()));
    let pem = std::fs::read(file).map_err(|error| wrong(format!("cannot be read ({error})")))?;
    match Certificate::from_pem_bundle(&pem) {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(wrong("holds no certificate in PEM form".to_owned())),
    }
}

fn follow(attempt: Attempt<'_>) -> Action {
    match barred(attempt.previous(), attempt.url()) {
        Some(barred) => attempt.error(barred),
        None => attempt.follow(),
    }
}

fn barred(previous: &[Url], next: &Url) -> Option<Barred> {
    if previous.len() > REDIRECTS_MAX {
        Some(Barred::TooMany)
    } else if !matches!(next.scheme(), "http" | "https") {
        Some(Barred::OtherScheme)
    } else if next.scheme() == "http" && previous.iter().any(|url| url.scheme() == "https") {
        Some(Barred::Unencrypted)
    } else {
        is_link_local_host(next).then_some(Barred::LinkLocal)
    }
}

fn is_link_local_host(url: &Url) -> bool {
    let host = url.host_str().unwrap_or("");
    host.trim_matches(['[', ']']).parse().is_ok_and(is_link_local)
}

fn is_link_local(address: IpAddr) -> bool {
    let v4 = |address: Ipv6Addr| address.to_ipv4_mapped();
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local() || v4(address).is_some_and(|address| address.is_link_local()),
    }
}

/// Of a name's addresses, those that are not link-local.
struct NoLinkLocal;

impl Resolve for NoLinkLocal {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            match allowed(found) {
                Some(addresses) => Ok(Box::new(addresses.into_iter()) as Addrs),
                None => Err(Barred::LinkLocal.into()),
            }
        })
    }
}

/// None where all that there is may not be gone to.
fn allowed(found: Vec<SocketAddr>) -> Option<Vec<SocketAddr>> {
    let (barred, allowed): (Vec<_>, Vec<_>) = found.into_iter().partition(|address| is_link_local(address.ip()));
    (!allowed.is_empty() || barred.is_empty()).then_some(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn urls(texts: &[&str]) -> Vec<Url> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn some_ways_are_not_gone() {
        let of = |previous: &[&str], next: &str| barred(&urls(previous), &next.parse().unwrap());
        assert_eq!(of(&["http://a/"], "https://b/"), None);
        assert_eq!(of(&["https://a/"], "http://a/"), Some(Barred::Unencrypted));
        assert_eq!(of(&["http://a/", "https://a/"], "http://a/"), Some(Barred::Unencrypted));
        assert_eq!(of(&["http://a/"], "ftp://a/"), Some(Barred::OtherScheme));
        assert_eq!(of(&["http://a/"; 5], "http://a/"), None);
        assert_eq!(of(&["http://a/"; 6], "http://a/"), Some(Barred::TooMany));
        for metadata in ["http://169.254.169.254/latest", "http://[fe80::1]/", "http://[::ffff:169.254.169.254]/", "http://0xA9FEA9FE/"] {
            assert_eq!(of(&["http://a/"], metadata), Some(Barred::LinkLocal), "{metadata}");
        }
    }

    #[test]
    fn names_do_not_lead_there_either() {
        let of = |texts: &[&str]| allowed(texts.iter().map(|text| text.parse().unwrap()).collect());
        assert_eq!(of(&["169.254.169.254:0"]), None);
        assert_eq!(of(&["169.254.169.254:0", "127.0.0.1:0"]).unwrap().len(), 1);
        assert_eq!(of(&[]), Some(vec![]));
    }
}
