//! Objects in a bucket of any S3 server. Knows object_store; keys are the prefix and the path, nothing encoded.
//!
//! The one rule: every read names the ETag it expects, so bytes of two contents are never mixed.

mod answer;
mod client;
mod exact;
mod publish;
mod reported_checksum;
mod signing;

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use async_trait::async_trait;
use futures::stream::BoxStream;
use futures::{stream, StreamExt, TryStreamExt};
use object_store::path::Path as Key;
use object_store::{GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions};
use stager_core::error::{ApiError, Code};
use tokio::sync::{OnceCell, Semaphore};

use crate::capabilities::{Capabilities, ReportedChecksum, ReportsChecksums, StatBeforeFetch, TakesTagsForMd5};
use crate::coalescing_buffer::CoalescingBuffer;
use crate::config::S3Config;
use crate::failure;
use crate::pacer::Permit;
use crate::path::{checked, checked_file, is_temporary, join, split, temporary_name};
use crate::path_locks::PathLocks;
use crate::ranges;
use crate::{Entry, EntryKind, Listing, Origin, Probe, Sink, Upload, Uploaded};
use client::Clients;

/// How large a range is asked for: small ones where the line is narrow, so that urgent bytes come soon.
/// Up to so many bytes are one answer, and larger objects come in pieces of half of that at least: a few large ones end together, and the line
/// is idle until the next are under way.
const ONE_ANSWER_BYTES_MAX: u64 = 1 << 20;
const READ_BYTES_MIN: u64 = 512 << 10;
const READ_BYTES_MAX: u64 = 8 << 20;
const READS_IN_FLIGHT: usize = 32;
const STATS_IN_FLIGHT: usize = 64;
/// Many more than fetches run at once; each stats just before it asks.
const HEARD_MAX: usize = 4096;
/// Without an ETag: times come in whole seconds, so two seconds of age need three of difference.
const SETTLED_AFTER_S: u64 = 3;

pub struct S3Origin {
    clients: Clients,
    place: String,
    prefix: String,
    locks: PathLocks,
    /// An ETag is the MD5 of what was put in one piece, unless the server encrypts by keys of its own.
    tags_are_md5: AtomicBool,
    /// What answers about whole contents have said of them, by path: of its token, where it was something.
    heard: Mutex<HashMap<String, (String, ReportedChecksum)>>,
    /// Whether a DELETE with If-Match leaves another content alone; unknown until it matters.
    deletes_on_condition: OnceCell<bool>,
    /// Whether a PUT that may only create does so; unknown until there were some uploads.
    creates_on_condition: OnceCell<bool>,
    uploads: AtomicUsize,
    /// MiB of local files in memory on their way there.
    held: Arc<Semaphore>,
}

impl S3Origin {
    pub fn new(config: &S3Config) -> Result<Self, ApiError> {
        let prefix = checked(config.prefix.trim_start_matches('/'))?;
        let place = match &config.endpoint {
            Some(endpoint) => format!("s3://{}/{prefix} at {}", config.bucket, endpoint.rsplit('@').next().unwrap_or_default()),
            None => format!("s3://{}/{prefix}", config.bucket),
        };
        Ok(Self {
            clients: client::clients(config, &place)?,
            place,
            prefix,
            locks: PathLocks::default(),
            tags_are_md5: AtomicBool::new(true),
            heard: Mutex::default(),
            deletes_on_condition: OnceCell::new(),
            creates_on_condition: OnceCell::new(),
            uploads: AtomicUsize::new(0),
            held: Arc::new(Semaphore::new(publish::HELD_MIB_MAX as usize)),
        })
    }

    fn failure(&self, error: &object_store::Error, path: &str) -> ApiError {
        answer::failure_of(error, path, &self.place)
    }

    fn key(&self, path: &str) -> Result<Key, ApiError> {
        let full = if path.is_empty() { self.prefix.clone() } else { join(&self.prefix, path) };
        Key::parse(full).map_err(|error| self.failure(&error.into(), path))
    }

    fn path_of<'a>(&self, key: &'a Key) -> &'a str {
        let raw: &str = key.as_ref();
        raw.strip_prefix(self.prefix.as_str()).unwrap_or(raw).trim_start_matches('/')
    }

    fn entry(&self, path: &str, meta: &ObjectMeta) -> Entry {
        // HEAD gives whole seconds, a listing more: the same object is said the same way.
        let mtime_ns = meta.last_modified.timestamp() * 1_000_000_000;
        // A gateway has none for files that came by other ways than through it, and may say so by an empty one.
        let tag = meta.e_tag.as_deref().filter(|tag| !tag.trim_matches('"').is_empty());
        let token = match tag {
            Some(tag) => token_of(&quoted(tag), meta.size),
            None => format!("m={mtime_ns};s={}", meta.size),
        };
        let age_s = || SystemTime::now().duration_since(meta.last_modified.into()).map_or(0, |age| age.as_secs());
        Entry {
            path: path.to_owned(),
            size_bytes: meta.size,
            token,
            mtime_ns: Some(mtime_ns),
            kind: EntryKind::File,
            settled: tag.is_some() || age_s() >= SETTLED_AFTER_S,
        }
    }

    async fn head(&self, path: &str) -> Result<Entry, ApiError> {
        self.head_at(path).await.map(|(entry, _)| entry)
    }

    /// And the server's clock, where it tells.
    async fn head_at(&self, path: &str) -> Result<(Entry, Option<SystemTime>), ApiError> {
        let key = self.key(path)?;
        let options = GetOptions { head: true, ..GetOptions::default() };
        match self.clients.plain.get_opts(&key, options).await {
            Ok(answer) => {
                let entry = self.entry(path, &answer.meta);
                self.hear(&entry, reported_checksum::of(&answer.attributes));
                Ok((entry, reported_checksum::clock(&answer.attributes)))
            }
            Err(error @ object_store::Error::PermissionDenied { .. }) => Err(self.explained(&key, path, &error).await),
            Err(error) => Err(self.failure(&error, path)),
        }
    }

    fn hear(&self, entry: &Entry, reported: ReportedChecksum) {
        if reported == ReportedChecksum::default() {
            return;
        }
        let mut heard = self.heard.lock().expect("no holder panics");
        if heard.len() >= HEARD_MAX {
            heard.clear();
        }
        heard.insert(entry.path.clone(), (entry.token.clone(), reported));
    }

    /// The answer to a HEAD has no body; a GET's says whether the credentials are wrong or only the rights.
    async fn explained(&self, key: &Key, path: &str, error: &object_store::Error) -> ApiError {
        let options = GetOptions { range: Some(GetRange::Bounded(0..1)), ..GetOptions::default() };
        match self.clients.plain.get_opts(key, options).await {
            Err(better @ (object_store::Error::PermissionDenied { .. } | object_store::Error::Unauthenticated { .. })) => {
                self.failure(&better, path)
            }
            _ => self.failure(error, path),
        }
    }

    /// The pieces, each with its permit.
    fn asked<'a>(&'a self, expected: &Entry, left: VecDeque<Range<u64>>, sink: &'a dyn Sink) -> BoxStream<'a, (Range<u64>, Permit)> {
        let least = if expected.size_bytes <= ONE_ANSWER_BYTES_MAX { ONE_ANSWER_BYTES_MAX } else { READ_BYTES_MIN };
        let next = move |mut left| async move {
            let piece = ranges::cut(&mut left, sink.pace().piece_bytes(least, READ_BYTES_MAX))?;
            Some((piece, left))
        };
        sink.pace().permitted(stream::unfold(left, next))
    }

    async fn read_piece(&self, expected: &Entry, piece: Range<u64>, sink: &dyn Sink, permit: &Permit) -> Result<(), ApiError> {
        let path = expected.path.as_str();
        let key = self.key(&checked_file(path)?)?;
        let tag = tag_of(&expected.token);
        // An answer about all of it tells the server's checksum of it, too.
        let whole = piece == (0..expected.size_bytes);
        let range = (!whole).then(|| GetRange::Bounded(piece.clone()));
        let options = GetOptions { if_match: tag.map(str::to_owned), range, ..GetOptions::default() };
        let result = self.clients.plain.get_opts(&key, options).await.map_err(|error| self.failure(&error, path))?;
        permit.answered();
        // Servers that do not know If-Match answer with what they have.
        let found = self.entry(path, &result.meta);
        if found.token != expected.token {
            return Err(failure::source_changed(path, &self.place, &expected.token, &found.token));
        }
        if whole {
            self.hear(expected, reported_checksum::of(&result.attributes));
        }
        let mut buffer = CoalescingBuffer::new(sink, piece, path, &self.place);
        let mut body = result.into_stream();
        // Read to its end, so that its connection serves the next.
        while let Some(chunk) = body.try_next().await.map_err(|error| self.failure(&error, path))? {
            buffer.push(&chunk).await?;
        }
        match buffer.is_full() {
            true => Ok(()),
            false => Err(failure::short_read(path, &self.place, buffer.reached())),
        }
    }

    async fn expect(&self, expected: &Entry) -> Result<(), ApiError> {
        let found = self.head(&checked_file(&expected.path)?).await?;
        if found.token == expected.token {
            Ok(())
        } else {
            Err(failure::source_changed(&expected.path, &self.place, &expected.token, &found.token))
        }
    }

    /// Directory markers ("a/" as an empty object) lose their slash in object_store's listing: an empty object is asked for by name.
    async fn without_markers(&self, metas: Vec<ObjectMeta>) -> Vec<Entry> {
        let asked = stream::iter(metas).map(|meta| async move {
            let path = self.path_of(&meta.location).to_owned();
            let entry = self.entry(&path, &meta);
            let marker = meta.size == 0 && self.head(&path).await.is_err_and(|error| error.code == Code::NotFound);
            (!marker && !path.is_empty() && !is_temporary(split(&path).1)).then_some(entry)
        });
        asked.buffered(STATS_IN_FLIGHT).filter_map(std::future::ready).collect().await
    }

    async fn list_all(&self, path: &str, limit: usize) -> Result<Vec<Entry>, ApiError> {
        let key = self.key(path)?;
        let prefix = (!key.as_ref().is_empty()).then_some(&key);
        let mut pages = self.clients.plain.list(prefix).map_err(|error| self.failure(&error, path)).try_chunks(1000);
        let mut entries = Vec::new();
        while entries.len() <= limit {
            match pages.next().await {
                Some(page) => entries.extend(self.without_markers(page.map_err(|failed| failed.1)?).await),
                None => break,
            }
        }
        Ok(entries)
    }

    async fn list_flat(&self, path: &str) -> Result<Vec<Entry>, ApiError> {
        let key = self.key(path)?;
        let prefix = (!key.as_ref().is_empty()).then_some(&key);
        let found = self.clients.plain.list_with_delimiter(prefix).await.map_err(|error| self.failure(&error, path))?;
        let mut entries = self.without_markers(found.objects).await;
        entries.extend(found.common_prefixes.iter().map(|key| directory(self.path_of(key))));
        Ok(entries)
    }

    async fn try_probe(&self, path: &str, write: bool, probe: &mut Probe) -> Result<(), ApiError> {
        let clean = checked(path)?;
        let key = self.key(&clean)?;
        let prefix = (!key.as_ref().is_empty()).then_some(&key);
        let listed = self.clients.plain.list(prefix).next().await.transpose().map_err(|error| self.failure(&error, path));
        probe.reachable =
            listed.as_ref().err().is_none_or(|error| !matches!(error.code, Code::OriginUnreachable | Code::Timeout | Code::ConnectionLost));
        if !write {
            return listed.map(|_| ());
        }
        if !probe.reachable {
            return listed.map(|_| ());
        }
        probe.writable = Some(false);
        let key = self.key(&join(&clean, &temporary_name(&format!("probe-{:016x}", rand::random::<u64>()))))?;
        self.clients.plain.put(&key, "x".into()).await.map_err(|error| self.failure(&error, path))?;
        self.clients.plain.delete(&key).await.map_err(|error| self.failure(&error, path))?;
        probe.writable = Some(true);
        Ok(())
    }
}

fn directory(path: &str) -> Entry {
    Entry {
        path: path.to_owned(),
        size_bytes: 0,
        token: "etag:\"\";s=0".to_owned(),
        mtime_ns: None,
        kind: EntryKind::Directory,
        settled: true,
    }
}

/// Some servers leave the quotes out.
fn quoted(tag: &str) -> String {
    if tag.ends_with('"') {
        tag.to_owned()
    } else {
        format!("\"{tag}\"")
    }
}

/// `tag` in its quotes.
fn token_of(tag: &str, size_bytes: u64) -> String {
    format!("etag:{tag};s={size_bytes}")
}

/// The ETag of a token, as If-Match wants it.
fn tag_of(token: &str) -> Option<&str> {
    let rest = token.strip_prefix("etag:")?;
    rest.rfind('"').map(|end| &rest[..=end])
}

#[async_trait]
impl Origin for S3Origin {
    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities {
            stat_before_fetch: StatBeforeFetch::UnlessOneAnswer { bytes_max: ONE_ANSWER_BYTES_MAX },
            checksums: Some(self),
            tags_as_md5: Some(self),
            ..Capabilities::PLAIN
        }
    }

    async fn stat(&self, path: &str) -> Result<Entry, ApiError> {
        let clean = checked(path)?;
        if clean.is_empty() {
            return Ok(directory(path));
        }
        self.head(&clean)
            .await
            .map(|entry| Entry { path: path.to_owned(), ..entry })
            .map_err(|error| ApiError { subject: path.to_owned(), ..error })
    }

    async fn stat_many(&self, paths: &[String]) -> Vec<Result<Entry, ApiError>> {
        stream::iter(paths.to_vec()).map(|path| async move { self.stat(&path).await }).buffered(STATS_IN_FLIGHT).collect().await
    }

    async fn list(&self, prefix: &str, recursive: bool, limit: usize) -> Result<Listing, ApiError> {
        let clean = checked(prefix)?;
        let entries = if recursive { self.list_all(&clean, limit).await? } else { self.list_flat(&clean).await? };
        if entries.is_empty() && !clean.is_empty() {
            return Ok(Listing { entries: vec![self.head(&clean).await?], ..Listing::default() });
        }
        Ok(Listing::cut(entries, Vec::new(), limit))
    }

    async fn fetch(&self, expected: &Entry, ranges: &[Range<u64>], sink: &dyn Sink) -> Result<(), ApiError> {
        let left = ranges::checked(expected, ranges)?;
        let each_was_checked = !left.is_empty() && tag_of(&expected.token).is_some();
        let reads = self.asked(expected, left, sink).map(|(piece, permit)| async {
            self.read_piece(expected, piece, sink, &permit).await?;
            permit.complete();
            Ok(())
        });
        reads.buffer_unordered(READS_IN_FLIGHT).try_for_each(|()| std::future::ready(Ok(()))).await?;
        // All answers had one ETag: they are of one content. A time stamp in whole seconds does not prove as much.
        if each_was_checked {
            return Ok(());
        }
        self.expect(expected).await
    }

    async fn upload(&self, upload: Upload<'_>) -> Result<Uploaded, ApiError> {
        let clean = checked_file(upload.path)?;
        let _guard = self.locks.lock(&clean).await;
        publish::upload(self, &upload, &clean).await
    }

    /// Objects need none.
    async fn make_directory(&self, path: &str) -> Result<(), ApiError> {
        self.key(&checked(path)?).map(|_| ())
    }

    async fn erase(&self, path: &str, token: Option<&str>) -> Result<bool, ApiError> {
        let clean = checked_file(path)?;
        let found = match self.head(&clean).await {
            Ok(entry) => entry,
            Err(error) if error.code == Code::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        if let Some(token) = token.filter(|token| *token != found.token) {
            return Err(failure::source_changed(path, &self.place, token, &found.token));
        }
        if let Some((token, tag)) = token.and_then(|token| Some((token, tag_of(token)?))) {
            return match exact::erase(self, &clean, tag).await? {
                true => Ok(true),
                false => Err(failure::source_changed(path, &self.place, token, "another content")),
            };
        }
        self.clients.plain.delete(&self.key(&clean)?).await.map_err(|error| self.failure(&error, path))?;
        Ok(true)
    }

    async fn probe(&self, path: &str, write: bool) -> Probe {
        let mut probe = Probe::default();
        if let Err(error) = self.try_probe(path, write, &mut probe).await {
            probe.findings.push(error);
        }
        probe
    }
}

impl ReportsChecksums for S3Origin {
    fn reported(&self, entry: &Entry) -> ReportedChecksum {
        let heard = self.heard.lock().expect("no holder panics").get(&entry.path).cloned();
        match heard.filter(|(token, _)| *token == entry.token) {
            Some((_, reported)) => reported,
            None if self.tags_are_md5.load(Ordering::Relaxed) => {
                ReportedChecksum { tag_md5: md5_of(&entry.token), ..ReportedChecksum::default() }
            }
            None => ReportedChecksum::default(),
        }
    }
}

impl TakesTagsForMd5 for S3Origin {
    fn distrust(&self) {
        self.tags_are_md5.store(false, Ordering::Relaxed);
    }
}

/// Of a token whose ETag has the form of an MD5; that of a multipart upload has a dash and a number behind it.
fn md5_of(token: &str) -> Option<[u8; 16]> {
    let tag = tag_of(token)?.trim_matches('"');
    if tag.len() != 32 || !tag.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    u128::from_str_radix(tag, 16).ok().map(u128::to_be_bytes)
}

/// Creates only where nothing is, unless it may be replaced.
fn put_options(replace: bool) -> PutOptions {
    PutOptions { mode: if replace { PutMode::Overwrite } else { PutMode::Create }, ..PutOptions::default() }
}

#[cfg(test)]
mod tests {
    use object_store::path::Path as Key;
    use object_store::ObjectMeta;

    use super::{md5_of, quoted, tag_of, S3Origin};

    #[test]
    fn what_has_no_tag_is_told_by_its_time() {
        let config = serde_json::json!({ "bucket": "b", "region": "r", "access_key_id": "", "secret_access_key": "" });
        let origin = S3Origin::new(&serde_json::from_value(config).unwrap()).unwrap();
        let of = |tag: Option<&str>, age_s: u64| {
            let last_modified = (std::time::SystemTime::now() - std::time::Duration::from_secs(age_s)).into();
            let meta = ObjectMeta { location: Key::from("f"), last_modified, size: 5, e_tag: tag.map(str::to_owned), version: None };
            origin.entry("f", &meta)
        };
        for none in [None, Some(""), Some("\"\"")] {
            let old = of(none, 100);
            assert!(old.token.starts_with("m=") && old.token.ends_with(";s=5") && old.settled, "{none:?}: {}", old.token);
            assert!(!of(none, 1).settled);
            assert_ne!(old.token, of(none, 50).token);
        }
        assert_eq!((of(Some("abc"), 0).token.as_str(), of(Some("abc"), 0).settled), ("etag:\"abc\";s=5", true));
    }

    #[test]
    fn only_what_looks_like_an_md5_is_taken_for_one() {
        let md5 = md5_of("etag:\"0cc175b9c0f1b6a831c399e269772661\";s=1").unwrap();
        assert_eq!((md5[0], md5[15]), (0x0c, 0x61));
        for token in ["etag:\"0cc175b9c0f1b6a831c399e269772661-2\";s=1", "etag:W/\"0cc175b9c0f1b6a831c399e269772661\";s=1", "m=5;s=5"] {
            assert_eq!(md5_of(token), None, "{token}");
        }
    }

    #[test]
    fn tokens_carry_the_tag() {
        assert_eq!(tag_of("etag:\"abc-2\";s=5"), Some("\"abc-2\""));
        assert_eq!(tag_of("etag:W/\"a;b\";s=5"), Some("W/\"a;b\""));
        assert_eq!(tag_of("m=5;s=5"), None);
        assert_eq!((quoted("abc"), quoted("\"abc\"")), ("\"abc\"".to_owned(), "\"abc\"".to_owned()));
    }
}
