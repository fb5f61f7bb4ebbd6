//! What an http server says of a file, as a token: what tells two contents at one URL apart. Pure.
//!
//! The one rule: nothing is taken for the same content that the server could have meant as another.
//! A strong ETag is its word for that; a weak one is not (RFC 9110, 8.8.1: the bytes may differ), so the time of the last change goes before it,
//! and it counts only where there is none.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::prelude::{Engine, BASE64_STANDARD};
use reqwest::header::{HeaderMap, HeaderName, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, DATE, ETAG, LAST_MODIFIED};

use crate::{Entry, EntryKind, ReportedChecksum};

/// Times come in whole seconds, so two seconds of age need three of difference.
const SETTLED_AFTER: Duration = Duration::from_secs(3);

pub struct Identity {
    /// Without digests: what every answer about the content repeats.
    core: String,
    digest: Option<String>,
    modified: Option<SystemTime>,
    settled: bool,
    immutable: bool,
}

/// The precondition under which an answer is about the content that is expected.
#[derive(Debug, PartialEq, Eq)]
pub enum Condition<'a> {
    Match(&'a str),
    Unmodified(SystemTime),
    None,
}

impl Identity {
    /// `whole`: the answer is about all of the content and not about a range of it, which Content-MD5 would mean.
    pub fn of(headers: &HeaderMap, size_bytes: u64, whole: bool) -> Self {
        let modified = text(headers, LAST_MODIFIED).and_then(|text| httpdate::parse_http_date(text).ok());
        let tag = text(headers, ETAG).filter(|tag| !tag.trim_start_matches("W/").trim_matches('"').is_empty());
        let (strong, weak) = (tag.filter(|tag| !tag.starts_with("W/")), tag.filter(|tag| tag.starts_with("W/")));
        let core = match (strong, modified, weak) {
            (Some(tag), _, _) => format!("etag:{tag};s={size_bytes}"),
            (None, Some(modified), _) => format!("m={};s={size_bytes}", nanoseconds(modified)),
            (None, None, Some(tag)) => format!("etag:{tag};s={size_bytes}"),
            (None, None, None) => format!("s={size_bytes}"),
        };
        let now = text(headers, DATE).and_then(|text| httpdate::parse_http_date(text).ok()).unwrap_or_else(SystemTime::now);
        let old = |modified: SystemTime| now.duration_since(modified).is_ok_and(|age| age >= SETTLED_AFTER);
        let settled = strong.is_some() || modified.is_none_or(old);
        let immutable = strong.is_some() && has_directive(headers, "immutable");
        Self { core, digest: digest(headers, whole), modified, settled, immutable }
    }

    pub fn entry(self, path: &str, size_bytes: u64) -> Entry {
        Entry {
            path: path.to_owned(),
            size_bytes,
            token: self.core + &self.digest.unwrap_or_default(),
            mtime_ns: self.modified.map(nanoseconds),
            kind: EntryKind::File,
            settled: self.settled,
        }
    }

    /// It has a strong tag, and the server gives its word that it will not change (RFC 8246).
    pub fn is_immutable(&self) -> bool {
        self.immutable
    }

    pub fn is_core_of(&self, token: &str) -> bool {
        self.core == core(token)
    }

    pub fn shown(&self) -> &str {
        &self.core
    }
}

pub fn condition(token: &str) -> Condition<'_> {
    let core = core(token);
    if let Some(rest) = core.strip_prefix("etag:") {
        return match rest.rfind('"').map(|end| &rest[..=end]) {
            Some(tag) if !tag.starts_with("W/") => Condition::Match(tag),
            _ => Condition::None,
        };
    }
    let ns = core.strip_prefix("m=").and_then(|rest| rest.split(';').next()).and_then(|ns| ns.parse::<u64>().ok());
    ns.map_or(Condition::None, |ns| Condition::Unmodified(UNIX_EPOCH + Duration::from_nanos(ns)))
}

/// A digest in the token, which the server calls one of the content.
pub fn reported_checksum(token: &str) -> ReportedChecksum {
    let told = token.strip_prefix(core(token)).and_then(|rest| rest.strip_prefix(';')?.split_once('='));
    match told {
        Some(("sha256", hex)) => ReportedChecksum { sha256: bytes_of(hex), ..ReportedChecksum::default() },
        Some((_, hex)) => ReportedChecksum { md5: bytes_of(hex), ..ReportedChecksum::default() },
        None => ReportedChecksum::default(),
    }
}

/// As the server codes it; None where bytes come as they are.
pub fn encoding(headers: &HeaderMap) -> Option<&str> {
    text(headers, CONTENT_ENCODING).filter(|encoding| !encoding.eq_ignore_ascii_case("identity"))
}

pub fn length(headers: &HeaderMap) -> Option<u64> {
    text(headers, CONTENT_LENGTH)?.parse().ok()
}

/// `bytes 0-4/10`: where it starts, where it ends (exclusive), and of how many, where that is said.
pub fn range(headers: &HeaderMap) -> Option<(u64, u64, Option<u64>)> {
    let (span, total) = text(headers, CONTENT_RANGE)?.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = span.split_once('-')?;
    Some((first.parse().ok()?, last.parse::<u64>().ok()?.checked_add(1)?, total.parse().ok()))
}

/// `bytes */10`, of an answer that a range lies outside of the content.
pub fn length_unmet(headers: &HeaderMap) -> Option<u64> {
    text(headers, CONTENT_RANGE)?.strip_prefix("bytes */")?.parse().ok()
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

fn nanoseconds(time: SystemTime) -> i64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i64)
}

/// A digest stands last and has its length; an ETag, which may hold anything, never stands last.
fn core(token: &str) -> &str {
    let ends = |name, length| {
        token.rsplit_once(name).filter(|(_, hex): &(&str, &str)| hex.len() == length && hex.bytes().all(|byte| byte.is_ascii_hexdigit()))
    };
    ends(";sha256=", 64).or_else(|| ends(";md5=", 32)).map_or(token, |(core, _)| core)
}

/// The strongest digest that the server gives of the content itself: Repr-Digest (RFC 9530), Digest (RFC 3230), Content-MD5.
fn digest(headers: &HeaderMap, whole: bool) -> Option<String> {
    let mut found: Vec<(String, Vec<u8>)> = Vec::new();
    for name in ["repr-digest", "digest"] {
        for value in headers.get_all(name).iter().filter_map(|value| value.to_str().ok()) {
            found.extend(value.split(',').filter_map(named_digest));
        }
    }
    if let Some(md5) = headers.get("content-md5").filter(|_| whole).and_then(|value| value.to_str().ok()) {
        found.extend(BASE64_STANDARD.decode(md5.trim()).ok().map(|bytes| ("md5".to_owned(), bytes)));
    }
    let of = |algorithm: &str, length: usize| found.iter().find(|(name, bytes)| name == algorithm && bytes.len() == length);
    let (name, bytes) = of("sha-256", 32).or_else(|| of("md5", 16))?;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Some(format!(";{}={hex}", name.replace('-', "")))
}

/// `sha-256=:BASE64:` or `SHA-256=BASE64`.
fn named_digest(item: &str) -> Option<(String, Vec<u8>)> {
    let (name, value) = item.trim().split_once('=')?;
    let bytes = BASE64_STANDARD.decode(value.trim().trim_matches(':')).ok()?;
    Some((name.trim().to_ascii_lowercase(), bytes))
}

fn bytes_of<const N: usize>(hex: &str) -> Option<[u8; N]> {
    let bytes: Option<Vec<u8>> = (0..N).map(|at| u8::from_str_radix(hex.get(2 * at..2 * at + 2)?, 16).ok()).collect();
    bytes?.try_into().ok()
}

fn has_directive(headers: &HeaderMap, name: &str) -> bool {
    let lines = headers.get_all(CACHE_CONTROL).into_iter().filter_map(|value| value.to_str().ok());
    lines.flat_map(|line| line.split(',')).any(|directive| directive.trim().eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    type Pairs<'a> = &'a [(&'static str, &'a str)];

    fn headers(pairs: Pairs<'_>) -> HeaderMap {
        pairs.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    fn entry(pairs: Pairs<'_>) -> Entry {
        Identity::of(&headers(pairs), 5, true).entry("f", 5)
    }

    const OLD: (&str, &str) = ("last-modified", "Sat, 01 Jan 2000 00:00:00 GMT");

    #[test]
    fn the_strongest_word_of_the_server_is_the_token() {
        let weak = ("etag", "W/\"abc\"");
        let cases: [(Pairs<'_>, &str); 5] = [
            (&[("etag", "\"abc\""), OLD], "etag:\"abc\";s=5"),
            (&[weak, OLD], "m=946684800000000000;s=5"),
            (&[weak], "etag:W/\"abc\";s=5"),
            (&[("etag", "\"\"")], "s=5"),
            (&[], "s=5"),
        ];
        for (pairs, token) in cases {
            assert_eq!(entry(pairs).token, token);
            assert!(Identity::of(&headers(pairs), 5, false).is_core_of(token));
            assert!(!Identity::of(&headers(pairs), 6, false).is_core_of(token), "another size is another content");
        }
        assert_eq!(condition("etag:\"abc\";s=5"), Condition::Match("\"abc\""));
        assert_eq!(condition("m=946684800000000000;s=5"), Condition::Unmodified(UNIX_EPOCH + Duration::from_secs(946_684_800)));
        for uncertain in ["etag:W/\"abc\";s=5", "s=5"] {
            assert_eq!(condition(uncertain), Condition::None);
        }
    }

    #[test]
    fn only_what_was_written_just_now_is_unsettled() {
        let at = |modified| entry(&[("last-modified", modified), ("date", "Sat, 01 Jan 2000 00:00:10 GMT")]).settled;
        assert!(at("Sat, 01 Jan 2000 00:00:07 GMT") && !at("Sat, 01 Jan 2000 00:00:08 GMT") && !at("Sat, 01 Jan 2000 00:01:00 GMT"));
        assert!(
            entry(&[("etag", "\"a\""), ("last-modified", "Sat, 01 Jan 2000 00:00:09 GMT"), ("date", "Sat, 01 Jan 2000 00:00:10 GMT")])
                .settled
        );
    }

    #[test]
    fn only_a_strong_tag_and_the_servers_word_make_a_content_immutable() {
        let is = |tag, cache| Identity::of(&headers(&[("etag", tag), ("cache-control", cache), OLD]), 5, false).is_immutable();
        assert!(is("\"a\"", "public, max-age=31536000, Immutable") && is("\"a\"", "immutable"));
        assert!(!is("W/\"a\"", "immutable") && !is("\"a\"", "max-age=31536000") && !is("\"a\"", "x-immutable, private=\"a\""));
        assert!(!Identity::of(&headers(&[OLD, ("etag", "\"a\"")]), 5, false).is_immutable(), "however old it is");
    }

    #[test]
    fn digests_are_taken_where_they_are_of_the_content() {
        let (md5, sha256) = ("XUFAKrxLKna5cZ2REBfFkg==", "LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=");
        let cases: [(Pairs<'_>, bool, bool); 8] = [
            (&[("content-md5", md5)], true, false),
            (&[("digest", &format!("MD5={md5}, SHA-256={sha256}"))], false, true),
            (&[("digest", &format!("adler32=03da0195,md5={md5}"))], true, false),
            (&[("repr-digest", &format!("sha-512=:AAAA:,sha-256=:{sha256}:"))], false, true),
            (&[("content-md5", "5d41402abc4b2a76b9719d911017c592")], false, false),
            (&[("digest", "sha-256=nonsense!")], false, false),
            (&[("content-digest", &format!("sha-256=:{sha256}:"))], false, false),
            (&[], false, false),
        ];
        for (pairs, is_md5, is_sha256) in cases {
            let token = entry(&[pairs, &[("etag", "\"x;s=1\"")]].concat()).token;
            let kinds = (reported_checksum(&token).md5.is_some(), reported_checksum(&token).sha256.is_some());
            assert_eq!(kinds, (is_md5, is_sha256), "{token}");
            assert_eq!((condition(&token), core(&token)), (Condition::Match("\"x;s=1\""), "etag:\"x;s=1\";s=5"));
        }
        let token = entry(&[("content-md5", md5)]).token;
        assert_eq!(token, "s=5;md5=5d41402abc4b2a76b9719d911017c592");
        assert!(matches!(reported_checksum(&token).md5, Some([0x5d, 0x41, ..])));
        assert!(Identity::of(&headers(&[("content-md5", md5)]), 5, false).digest.is_none(), "of a range it would be the range's");
    }

    #[test]
    fn spans_are_read_or_nothing_is() {
        let of = |text| range(&headers(&[("content-range", text)]));
        assert_eq!(of("bytes 0-4/10"), Some((0, 5, Some(10))));
        assert_eq!(of("bytes 3-9/*"), Some((3, 10, None)));
        for bad in ["bytes */10", "lines 0-4/10", "bytes 4/10", "bytes 0-18446744073709551615/1"] {
            assert_eq!(of(bad), None, "{bad}");
        }
        assert_eq!(length_unmet(&headers(&[("content-range", "bytes */10")])), Some(10));
        assert_eq!(encoding(&headers(&[("content-encoding", "gzip")])), Some("gzip"));
        assert_eq!(encoding(&headers(&[("content-encoding", "Identity")])), None);
    }
}
