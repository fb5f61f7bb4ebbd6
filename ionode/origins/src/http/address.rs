//! From the path of a file to its URL. Pure.
//!
//! The one rule: a name is only a name: whatever is in it, the URL stays below the base and asks for exactly this file.

use std::net::IpAddr;

use percent_encoding::{utf8_percent_encode, AsciiSet, NON_ALPHANUMERIC};
use reqwest::Url;
use stager_core::error::{ApiError, Code};

/// All but the characters that mean the same encoded or not (RFC 3986, 2.3).
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

pub struct Base {
    url: Url,
    /// A `?` in a path starts a query, which is sent as it is written.
    queries: bool,
}

impl Base {
    /// A URL with credentials is not repeated.
    pub fn new(text: &str, queries: bool) -> Result<Self, ApiError> {
        let wrong = |why: &str| ApiError::new(Code::BadRequest, "base_url", format!("The base_url of an http origin {why}."));
        let url = Url::parse(text).map_err(|_| wrong("is no URL"))?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(wrong("must be http://HOST/DIR or https://HOST/DIR"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(wrong("must not hold credentials; use bearer_token, or user and password"));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(wrong("must not hold a query or a fragment"));
        }
        Ok(Self { url, queries })
    }

    pub fn is_encrypted(&self) -> bool {
        self.url.scheme() == "https"
    }

    pub fn is_loopback(&self) -> bool {
        let host = self.url.host_str().unwrap_or("").trim_matches(['[', ']']).trim_end_matches('.');
        host.parse::<IpAddr>().map_or(host == "localhost" || host.ends_with(".localhost"), |address| address.to_canonical().is_loopback())
    }

    /// How messages call it.
    pub fn shown(&self) -> &str {
        self.url.as_str().trim_end_matches('/')
    }

    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Of a path that `checked` let pass.
    pub fn of(&self, path: &str) -> Url {
        let (names, query) = match path.split_once('?').filter(|_| self.queries) {
            Some((names, query)) => (names, Some(query)),
            None => (path, None),
        };
        let encoded: Vec<String> = names.split('/').map(|name| utf8_percent_encode(name, ENCODED).to_string()).collect();
        let mut url = self.url.clone();
        url.set_path(&format!("{}/{}", self.url.path().trim_end_matches('/'), encoded.join("/")));
        url.set_query(query);
        url
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_encoded_and_never_lead_elsewhere() {
        let base = Base::new("https://lab.example.org/data set/", false).unwrap();
        let of = |path| base.of(path).to_string();
        assert_eq!(of("a b/c"), "https://lab.example.org/data%20set/a%20b/c");
        assert_eq!(of("100%25#?&+=;"), "https://lab.example.org/data%20set/100%2525%23%3F%26%2B%3D%3B");
        assert_eq!(of("a\\..\\b"), "https://lab.example.org/data%20set/a%5C..%5Cb");
        assert_eq!(of("%2e%2e/x"), "https://lab.example.org/data%20set/%252e%252e/x");
        assert_eq!(of("größe"), "https://lab.example.org/data%20set/gr%C3%B6%C3%9Fe");
        assert_eq!(of("http://evil/x"), "https://lab.example.org/data%20set/http%3A//evil/x");
        assert_eq!(Base::new("http://h", false).unwrap().of("x").as_str(), "http://h/x");
    }

    #[test]
    fn queries_are_sent_as_written_where_they_are_meant() {
        let base = Base::new("http://h/cgi-bin", true).unwrap();
        assert_eq!(base.of("dss search?v=a+b&u=c%2Fd?e#f").as_str(), "http://h/cgi-bin/dss%20search?v=a+b&u=c%2Fd?e%23f");
        assert_eq!(base.of("plain").as_str(), "http://h/cgi-bin/plain");
    }

    #[test]
    fn what_is_no_base_is_refused_and_not_repeated() {
        for bad in
            ["lab.org/x", "ftp://h/x", "file:///x", "http://me:hunter2@h/", "http://hunter2@h/", "http://h/?k=hunter2", "http://h/#x"]
        {
            let error = Base::new(bad, false).err().unwrap();
            assert!(error.code.as_str() == "bad_request" && !error.message.contains("hunter2"), "{error:?}");
        }
    }
}
