//! The http origin keeps every promise of one that can be read, against real servers, and acts on what lies in between.

mod place;
mod relay;
mod sshd;
mod web;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use relay::{Mischief, Relay, Way};
use sshd::free_port;
use stager_core::error::{ApiError, Class};
use stager_origins::conformance::{self, content, get, Memory};
use stager_origins::{Entry, HttpConfig, HttpOrigin, Origin, Pace, Priority, ReportedChecksum, Secret, Sink, Timeouts};
use web::{impatient_origin, origin, Web, WebPlace};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keeps_every_promise_of_reading() {
    let Some(web) = Web::nginx("") else { return };
    conformance::reads(&WebPlace::new(&web, origin(web.config()))).await;
    assert!(!web.requests("GET 412 /changed/file").is_empty(), "the condition was not said: {:?}", web.requests("/changed/file"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keeps_them_over_tls() {
    let Some(web) = Web::nginx("") else { return };
    conformance::reads(&WebPlace::new(&web, origin(web.tls_config()))).await;
}

/// By times of change where the server gives no tags.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keeps_them_without_tags() {
    let Some(web) = Web::nginx("etag off;") else { return };
    conformance::reads(&WebPlace::new(&web, origin(web.config()))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keeps_them_without_ranges() {
    let Some(web) = Web::without_ranges() else { return };
    // Its queue for new connections has five places.
    let config = HttpConfig { connections_max: Some(4), ..web.config() };
    conformance::reads(&WebPlace::new(&web, origin(config))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_bandwidth_is_kept() {
    for web in [Web::nginx(""), Web::without_ranges()].into_iter().flatten() {
        let config = HttpConfig { bandwidth_bytes_per_s_max: Some(4 << 20), ..web.config() };
        conformance::bandwidth_is_kept(&WebPlace::new(&web, origin(config))).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whole_files_do_not_wait_for_each_other() {
    let Some(web) = Web::nginx("max_ranges 0;") else { return };
    web.write("file", &content(1, 3 << 20));
    for (connections_max, files) in [(Some(1), 3), (None, 48)] {
        let origin = origin(HttpConfig { connections_max, ..web.config() });
        let entry = origin.stat("file").await.unwrap();
        let all = futures::future::join_all((0..files).map(|_| get(&*origin, &entry)));
        let got = tokio::time::timeout(Duration::from_secs(45), all).await.expect("all of them wait");
        assert!(got.into_iter().all(|got| got.unwrap() == content(1, 3 << 20)), "{connections_max:?}");
    }
}

fn by(relay: &Relay) -> HttpConfig {
    HttpConfig { base_url: format!("http://127.0.0.1:{}", relay.port), ..HttpConfig::default() }
}

async fn behind(relay: &Relay) -> std::sync::Arc<dyn Origin> {
    origin(by(relay))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_files_come_over_several_connections() {
    let Some(web) = Web::nginx("") else { return };
    let (relay, bytes) = (Relay::to(web.port).await, content(1, (40 << 20) + 5));
    web.write("large", &bytes);
    relay.lengthen(1);
    let origin = behind(&relay).await;
    assert!(get(&*origin, &origin.stat("large").await.unwrap()).await.unwrap() == bytes);
    assert!((3..=16).contains(&relay.connections()), "{} connections", relay.connections());
    let pieces = web.requests("GET 206 /large").len();
    assert!((6..=41).contains(&pieces), "{pieces} pieces, of 1 to 8 MiB as the line is wide");
    assert!(origin.capabilities().resumes("large"));
}

fn write_long_ago(web: &Web, path: &str, size_bytes: usize) {
    web.write(path, &content(1, size_bytes));
    let file = std::fs::File::options().write(true).open(web.data().join(path)).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(60)).unwrap();
}

/// One answer under a strong tag of what the server calls immutable is of one content: no second round trip for a small one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_small_file_takes_one_request_where_the_server_gives_its_word() {
    let word = "add_header Cache-Control 'max-age=31536000, immutable';";
    let locations = format!(
        "location /weak/ {{ etag off; add_header ETag 'W/\"w\"'; {word} }} location /none/ {{ etag off; {word} }} \
         location /whole/ {{ max_ranges 0; {word} }} location /word/ {{ {word} }}"
    );
    let Some(web) = Web::nginx(&locations) else { return };
    let origin = origin(web.config());
    let write = |path: &str, size_bytes: usize| write_long_ago(&web, path, size_bytes);
    let (small, large) = (64 << 10, (1 << 20) + 1);
    let with_digest = [("word/small", small, 0), ("whole/small", small, 0), ("word/large", large, 1), ("whole/large", large, 1)];
    for (path, size_bytes, stats) in
        with_digest.into_iter().chain([("small", small, 1), ("weak/small", small, 1), ("none/small", small, 1)])
    {
        write(path, size_bytes);
        let entry = origin.stat(path).await.unwrap();
        let before = web.requests("HEAD").len();
        assert!(get(&*origin, &entry).await.unwrap() == content(1, size_bytes));
        assert_eq!(web.requests("HEAD").len() - before, stats, "{path}: {:?}", web.requests(path));
    }
    // Cut off and gone on with, it took two answers.
    let relay = Relay::to(web.port).await;
    let origin = behind(&relay).await;
    write("word/cut", 1 << 20);
    let entry = origin.stat("word/cut").await.unwrap();
    let before = web.requests("HEAD").len();
    relay.arm(Mischief::Cut, Way::Down, 700 << 10);
    assert!(get(&*origin, &entry).await.unwrap() == content(1, 1 << 20));
    assert_eq!((relay.struck(), web.requests("HEAD").len() - before), (1, 1));
}

/// Writes other bytes over those of its file, in place, as soon as the first of them have come.
struct Overwriter<'a>(&'a Web, &'a Entry, Memory);

#[async_trait::async_trait]
impl Sink for Overwriter<'_> {
    async fn write_at(&self, offset: u64, chunk: bytes::Bytes) -> Result<(), ApiError> {
        self.0.write(&self.1.path, &content(2, self.1.size_bytes as usize));
        self.2.write_at(offset, chunk).await
    }
}

/// The answer may be complete and under the tag that was asked for: only a stat after it can tell.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_small_file_written_anew_in_place_while_it_came_is_noticed() {
    for web in [Web::nginx(""), Web::nginx("max_ranges 0;"), Web::nginx("etag off;"), Web::without_ranges()].into_iter().flatten() {
        let origin = origin(web.config());
        for size_bytes in [64 << 10, 1 << 20] {
            write_long_ago(&web, "file", size_bytes);
            let entry = origin.stat("file").await.unwrap();
            let sink = Overwriter(&web, &entry, Memory::new(entry.size_bytes));
            let error = origin.fetch(&entry, std::slice::from_ref(&(0..entry.size_bytes)), &sink).await.unwrap_err();
            assert_eq!(error.code.as_str(), "source_changed", "{error:?}");
        }
    }
}

struct Urgent(Memory, Priority);

#[async_trait::async_trait]
impl Sink for Urgent {
    async fn write_at(&self, offset: u64, chunk: bytes::Bytes) -> Result<(), ApiError> {
        self.0.write_at(offset, chunk).await
    }
    fn pace(&self) -> Pace {
        self.1.clone().into()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_job_waits_for_overtakes_those_that_wait_for_a_connection() {
    let Some(web) = Web::nginx("") else { return };
    let relay = Relay::to(web.port).await;
    relay.lengthen(10);
    let base_url = format!("http://127.0.0.1:{}", relay.port);
    let origin = origin(HttpConfig { base_url, connections_max: Some(2), ..HttpConfig::default() });
    web.write("file", b"x");
    let entry = origin.stat("file").await.unwrap();
    let (come, sink) = (AtomicUsize::new(0), Urgent(Memory::new(1), Priority::default()));
    sink.1.set(true);
    let others = futures::future::join_all((0..40).map(|_| async {
        get(&*origin, &entry).await.unwrap();
        come.fetch_add(1, Ordering::Relaxed);
    }));
    let wanted = async {
        while come.load(Ordering::Relaxed) < 4 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let before = come.load(Ordering::Relaxed);
        origin.fetch(&entry, std::slice::from_ref(&(0..1)), &sink).await.unwrap();
        come.load(Ordering::Relaxed) - before
    };
    let (_, superseded_by) = tokio::join!(others, wanted);
    assert!(superseded_by <= 6, "{superseded_by} others came first");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_requests_are_on_their_way_than_may_be_and_who_reads_does_not_wait_behind_all_who_look() {
    let Some(web) = Web::nginx("") else { return };
    let relay = Relay::to(web.port).await;
    relay.lengthen(10);
    let base_url = format!("http://127.0.0.1:{}", relay.port);
    let origin = origin(HttpConfig { base_url, connections_max: Some(4), ..HttpConfig::default() });
    web.write("file", b"x");
    web.write("looked-at", b"y");
    let entry = origin.stat("file").await.unwrap();
    let (looked_at, stats) = (vec!["looked-at".to_owned(); 20], || web.requests("HEAD 200 /looked-at").len());
    let looking = futures::future::join_all((0..20).map(|_| origin.stat_many(&looked_at)));
    let reading = async {
        while stats() < 20 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let before = stats();
        assert_eq!(get(&*origin, &entry).await.unwrap(), b"x");
        stats() - before
    };
    let (found, meanwhile) = tokio::join!(looking, reading);
    assert!(found.iter().flatten().all(Result::is_ok) && stats() == 400);
    assert!(meanwhile <= 40, "{meanwhile} stats came before the two requests of one who reads");
    futures::future::join_all((0..40).map(|_| get(&*origin, &entry))).await;
    // A request that ends gives its place away a moment before its connection is free: whoever comes then may open one of its own.
    assert!((2..=8).contains(&relay.connections()), "{} connections", relay.connections());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_ranges_one_stream_is_read_and_nothing_resumed() {
    let Some(web) = Web::nginx("max_ranges 0;") else { return };
    let bytes = content(1, (20 << 20) + 5);
    web.write("large", &bytes);
    let origin = origin(web.config());
    let entry = origin.stat("large").await.unwrap();
    assert!(origin.capabilities().resumes("large"), "nobody knows yet");
    assert!(get(&*origin, &entry).await.unwrap() == bytes);
    assert_eq!((web.requests("GET 200 /large").len(), web.requests("GET").len(), origin.capabilities().resumes("large")), (1, 1, false));
    let (memory, part) = (Memory::new(entry.size_bytes), (19 << 20)..(19 << 20) + 7);
    origin.fetch(&entry, std::slice::from_ref(&part), &memory).await.unwrap();
    assert!(memory.range(part.clone()) == bytes[part.start as usize..part.end as usize] && memory.count() == 7);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_connection_goes_on_where_it_was() {
    let Some(web) = Web::nginx("location /whole/ { max_ranges 0; }") else { return };
    let (relay, bytes) = (Relay::to(web.port).await, content(1, 20 << 20));
    web.write("file", &bytes);
    web.write("whole/file", &bytes);
    let origin = behind(&relay).await;
    let (entry, whole) = (origin.stat("file").await.unwrap(), origin.stat("whole/file").await.unwrap());
    relay.arm(Mischief::Cut, Way::Down, 6 << 20);
    assert!(get(&*origin, &entry).await.unwrap() == bytes);
    relay.arm(Mischief::Cut, Way::Down, 6 << 20);
    let error = get(&*origin, &whole).await.unwrap_err();
    assert_eq!((error.code.as_str(), error.class, relay.struck()), ("connection_lost", Class::Transient, 2), "{error:?}");
}

/// Neither the head of an answer nor its body may be waited for without end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_server_is_an_error() {
    let Some(web) = Web::nginx("") else { return };
    web.write("file", &content(1, 20 << 20));
    let entry = origin(web.config()).stat("file").await.unwrap();
    for after_bytes in [0, 6 << 20] {
        // A line of its own: what was still on its way to one who has given up would be counted too.
        let relay = Relay::to(web.port).await;
        relay.arm(Mischief::Stall, Way::Down, after_bytes);
        let started = Instant::now();
        let error = get(&*impatient_origin(by(&relay)), &entry).await.unwrap_err();
        assert_eq!((error.code.as_str(), error.class, relay.struck()), ("timeout", Class::Transient, 1), "{error:?}");
        // Sooner than one that was told nothing would have given up.
        assert!(started.elapsed() < Timeouts::default().silence, "{:?}", started.elapsed());
    }
}

/// Though it is too little to be handed on while more comes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_came_before_the_line_went_dead_is_kept() {
    let Some(web) = Web::nginx("") else { return };
    let (relay, bytes) = (Relay::to(web.port).await, content(1, 400 << 10));
    web.write("file", &bytes);
    let entry = origin(web.config()).stat("file").await.unwrap();
    let origin = impatient_origin(by(&relay));
    relay.arm(Mischief::Stall, Way::Down, 300 << 10);
    let memory = Memory::new(entry.size_bytes);
    assert_eq!(origin.fetch(&entry, std::slice::from_ref(&(0..entry.size_bytes)), &memory).await.unwrap_err().code.as_str(), "timeout");
    let came = memory.count() as u64;
    assert!(came >= 200 << 10 && memory.range(0..came) == bytes[..came as usize], "{came} bytes of 300 KiB were handed on");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_refuse_head_are_asked_for_a_byte() {
    let refusals = "location /405/ { if ($request_method = HEAD) { return 405; } }\n\
                    location /501/ { if ($request_method = HEAD) { return 501; } }\n\
                    location /403/ { if ($request_method = HEAD) { return 403; } }\n\
                    location /whole/ { max_ranges 0; if ($request_method = HEAD) { return 405; } }";
    let Some(web) = Web::nginx(refusals) else { return };
    let origin = origin(web.config());
    for place in ["405", "501", "403", "whole"] {
        for (name, size_bytes) in [("empty", 0), ("file", 70_000)] {
            let (path, bytes) = (format!("{place}/{name}"), content(3, size_bytes));
            web.write(&path, &bytes);
            let entry = origin.stat(&path).await.unwrap_or_else(|error| panic!("{path}: {error:?}"));
            assert_eq!((entry.size_bytes, entry.token.starts_with("etag:")), (size_bytes as u64, true), "{path}: {}", entry.token);
            assert!(get(&*origin, &entry).await.unwrap() == bytes);
        }
        assert_eq!(origin.stat(&format!("{place}/nothing")).await.unwrap_err().code.as_str(), "not_found");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_server_says_of_the_content_is_the_token() {
    let (md5, sha256) = ("XUFAKrxLKna5cZ2REBfFkg==", "LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=");
    let locations = format!(
        "location /weak/ {{ etag off; add_header ETag 'W/\"w\"'; }}\n\
         location /nothing/ {{ etag off; add_header Last-Modified ''; }}\n\
         location /md5/ {{ add_header Content-MD5 {md5}; }}\n\
         location /sha256/ {{ add_header Repr-Digest 'sha-256=:{sha256}:'; add_header Digest 'MD5={md5}'; }}\n\
         location /coded/ {{ add_header Content-Encoding gzip; }}"
    );
    let Some(web) = Web::nginx(&locations) else { return };
    let origin = origin(web.config());
    for place in ["weak", "nothing", "md5", "sha256", "coded"] {
        web.write(&format!("{place}/file"), b"hello");
    }
    let weak = origin.stat("weak/file").await.unwrap();
    assert!(weak.token.starts_with("m=") && weak.token.ends_with(";s=5"), "{}", weak.token);
    let nothing = origin.stat("nothing/file").await.unwrap();
    assert_eq!((nothing.token.as_str(), nothing.mtime_ns), ("s=5", None));
    let md5 = origin.stat("md5/file").await.unwrap();
    assert!(matches!(origin.capabilities().reported_checksum(&md5).md5, Some([0x5d, ..])), "{}", md5.token);
    let sha256 = origin.stat("sha256/file").await.unwrap();
    assert!(matches!(origin.capabilities().reported_checksum(&sha256).sha256, Some([0x2c, ..])), "{}", sha256.token);
    assert_eq!(
        (origin.capabilities().reported_checksum(&weak), origin.capabilities().reported_checksum(&md5).tag_md5),
        (ReportedChecksum::default(), None)
    );
    for entry in [weak, nothing, md5, sha256] {
        assert_eq!(get(&*origin, &entry).await.unwrap(), b"hello", "{}", entry.path);
        web.write(&entry.path, b"hello again");
        assert_eq!(get(&*origin, &entry).await.unwrap_err().code.as_str(), "source_changed", "{}", entry.path);
    }
    let coded = origin.stat("coded/file").await.unwrap_err();
    assert!(coded.code.as_str() == "unsupported" && coded.message.contains("gzip"), "{coded:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries_are_kept() {
    let Some(web) = Web::nginx("location /cgi/ { default_type text/plain; return 200 \"$uri $query_string\"; }") else { return };
    let origin = origin(HttpConfig { queries: true, base_url: format!("{}/cgi", web.config().base_url), ..web.config() });
    let entry = origin.stat("dss search?v=a+b&u=c%2Fd&r=10 68").await.unwrap();
    let said = String::from_utf8(get(&*origin, &entry).await.unwrap()).unwrap();
    assert_eq!(said, "/cgi/dss search v=a+b&u=c%2Fd&r=10%2068");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credentials_are_used_and_never_shown() {
    let locations = "location /token/ { if ($http_authorization != 'Bearer hunter2') { return 401; } }\n\
                     location /basic/ { if ($http_authorization != 'Basic bWU6aHVudGVyMg==') { return 401; } }";
    let Some(web) = Web::nginx(locations) else { return };
    web.write("token/file", b"x");
    web.write("basic/file", b"y");
    let token = HttpConfig { bearer_token: Some(Secret::new("hunter2")), ..web.tls_config() };
    let basic = HttpConfig { user: Some("me".into()), password: Some(Secret::new("hunter2")), ..web.tls_config() };
    assert!(origin(token.clone()).stat("token/file").await.is_ok() && origin(basic.clone()).stat("basic/file").await.is_ok());
    for (config, path) in [(token.clone(), "basic/file"), (basic.clone(), "token/file"), (web.tls_config(), "token/file")] {
        let (of, shown) = (origin(config.clone()), format!("{config:?}"));
        let error = of.stat(path).await.unwrap_err();
        assert_eq!((error.code.as_str(), error.class), ("auth_failed", Class::Denied));
        assert!(!format!("{error:?}{shown}").contains("hunter2") && !format!("{error:?}").contains("aHVudGVyMg"), "{error:?} {shown}");
    }
    let wrong = |config: HttpConfig| HttpOrigin::new(&config).err().expect("refused");
    let plain = wrong(HttpConfig { base_url: web.config().base_url, ..token.clone() });
    assert!(plain.message.contains("allow_http") && !plain.message.contains("hunter2"), "{plain:?}");
    assert!(HttpOrigin::new(&HttpConfig { base_url: web.config().base_url, allow_http: true, ..token.clone() }).is_ok());
    for half in [
        HttpConfig { user: None, ..basic.clone() },
        HttpConfig { password: None, ..basic.clone() },
        HttpConfig { user: Some("me".into()), ..token },
    ] {
        assert!(!wrong(half).message.contains("hunter2"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redirects_are_followed_as_far_as_is_safe() {
    let Some(other) = Web::nginx("") else { return };
    let locations = format!(
        "location /near/ {{ return 302 /real/file; }} location /far/ {{ return 307 https://localhost:{}/far; }}\n\
         location /down/ {{ return 302 http://127.0.0.1:{}/far; }} location /loop/ {{ return 302 /loop/x; }}\n\
         location /metadata/ {{ return 302 https://169.254.169.254/latest; }}",
        other.tls_port, other.port
    );
    let Some(web) = Web::nginx(&locations) else { return };
    other.write("far", b"far");
    web.write("real/file", b"near");
    // Both certificates are called localhost; their authorities are two.
    let both = std::fs::read_to_string(web.ca_file()).unwrap() + &std::fs::read_to_string(other.ca_file()).unwrap();
    std::fs::write(web.ca_file(), both).unwrap();
    let origin = origin(HttpConfig { bearer_token: Some(Secret::new("hunter2")), ..web.tls_config() });
    for (path, bytes) in [("near/x", b"near".as_slice()), ("far/x", b"far")] {
        assert_eq!(get(&*origin, &origin.stat(path).await.unwrap()).await.unwrap(), bytes);
    }
    assert!(!web.requests("Bearer hunter2").is_empty() && !other.requests("/far").is_empty());
    assert!(other.requests("hunter2").is_empty(), "another host was told the credentials");
    for (path, why) in [("down/x", "from https to http"), ("loop/x", "again and again"), ("metadata/x", "link-local")] {
        let error = origin.stat(path).await.unwrap_err();
        assert!(error.code.as_str() == "denied" && error.message.contains(why), "{error:?}");
    }
    assert!(other.requests("hunter2").is_empty() && web.requests("302 /loop").len() <= 6, "{:?}", web.requests("302 /loop"));
    let itself = HttpOrigin::new(&HttpConfig { base_url: "http://169.254.169.254/".into(), ..HttpConfig::default() }).err().unwrap();
    assert!(itself.message.contains("link-local"), "{itself:?}");
}

/// By an address, by a name that leads to one, by a redirect.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_origin_for_everybody_goes_nowhere_but_to_the_public_internet() {
    let Some(web) = Web::nginx("") else { return };
    web.write("f", b"x");
    let at = |host: &str, public_only| HttpConfig { base_url: format!("http://{host}:{}", web.port), public_only, ..HttpConfig::default() };
    let refused = HttpOrigin::new(&at("127.0.0.1", true)).err().unwrap();
    assert!(refused.message.contains("not of the public internet"), "{refused:?}");
    let error = origin(at("localhost", true)).stat("f").await.unwrap_err();
    assert!(error.code.as_str() == "denied" && error.message.contains("not of the public internet"), "{error:?}");
    assert!(web.requests(" /f ").is_empty(), "it was asked all the same");
    assert_eq!(origin(at("localhost", false)).stat("f").await.unwrap().size_bytes, 1);
    assert!(!web.requests(" /f ").is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals_say_who_must_act() {
    let locations = "location /500/ { return 500; } location /503/ { return 503; } location /gone/ { return 410; }\n\
                     location /teapot/ { return 418; } location /busy/ { if (-f $document_root/busy/now) { return 503; } }";
    let Some(web) = Web::nginx(locations) else { return };
    let of = origin(web.config());
    let cases = [("500/x", "io_error", Class::Transient), ("503/x", "origin_unreachable", Class::Transient)];
    let final_ones = [
        ("gone/x", "not_found", Class::InvalidInput),
        ("denied/x", "denied", Class::Denied),
        ("teapot/x", "bad_request", Class::InvalidInput),
    ];
    for (path, code, class) in cases.into_iter().chain(final_ones) {
        let error = of.stat(path).await.unwrap_err();
        assert_eq!((error.code.as_str(), error.class, error.subject.as_str()), (code, class, path), "{error:?}");
    }
    assert_eq!((web.requests("500 /500/x").len(), web.requests("/gone/x").len()), (3, 1), "only what may pass is asked again");
    web.write("busy/now", b"");
    web.write("busy/file", b"x");
    let (entry, ()) = tokio::join!(of.stat("busy/file"), async {
        while web.requests("503 /busy").is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        std::fs::remove_file(web.data().join("busy/now")).unwrap();
    });
    assert_eq!(entry.unwrap().size_bytes, 1);
    let nobody = origin(HttpConfig { base_url: format!("http://127.0.0.1:{}", free_port()), ..web.config() });
    let error = nobody.stat("file").await.unwrap_err();
    assert_eq!((error.code.as_str(), error.class), ("origin_unreachable", Class::Transient), "{error:?}");
    assert!(!nobody.probe("", false).await.reachable);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_wants_to_be_left_alone_is() {
    let locations = "location /long/ { add_header Retry-After 60 always; return 429; }\n\
                     location /short/ { add_header Retry-After 1 always; if (-f $document_root/short/now) { return 429; } }\n\
                     location /down/ { add_header Retry-After 1 always; if (-f $document_root/down/now) { return 503; } }";
    let Some(web) = Web::nginx(locations) else { return };
    let of = origin(web.config());
    for (path, status) in [("short", "429"), ("down", "503")] {
        let now = format!("{path}/now");
        web.write(&now, b"");
        web.write(&format!("{path}/file"), b"x");
        let (started, file) = (Instant::now(), format!("{path}/file"));
        let (entry, ()) = tokio::join!(of.stat(&file), async {
            while web.requests(&format!("{status} /{path}")).is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            std::fs::remove_file(web.data().join(&now)).unwrap();
        });
        assert!(entry.is_ok() && started.elapsed() >= Duration::from_millis(990), "{path}: {entry:?} after {:?}", started.elapsed());
    }
    let before = web.requests("/short/file").len();
    let error = of.stat("long/file").await.unwrap_err();
    assert_eq!((error.class, error.retry_after_s), (Class::Transient, Some(60.0)), "{error:?}");
    let again = of.stat("short/file").await.unwrap_err();
    assert!(again.code.as_str() == "origin_unreachable" && again.retry_after_s.unwrap() > 30.0, "{again:?}");
    assert_eq!((web.requests("/long/").len(), web.requests("/short/file").len()), (1, before), "it was asked nevertheless");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_of_tls_are_told_apart() {
    let Some(web) = Web::nginx("") else { return };
    web.write("file", b"x");
    let stranger = origin(HttpConfig { ca_file: None, ..web.tls_config() }).stat("file").await.unwrap_err();
    assert_eq!((stranger.code.as_str(), stranger.class), ("certificate_refused", Class::Denied), "{stranger:?}");
    assert!(stranger.message.contains("ca_file"), "{stranger:?}");
    let other_name = HttpConfig { base_url: format!("https://127.0.0.1:{}", web.tls_port), ..web.tls_config() };
    let error = origin(other_name).stat("file").await.unwrap_err();
    assert!(error.code.as_str() == "certificate_refused" && error.message.contains("not valid for name"), "{error:?}");
    let no_tls = HttpConfig { base_url: format!("https://localhost:{}", web.port), ..web.tls_config() };
    let error = origin(no_tls).stat("file").await.unwrap_err();
    assert_eq!((error.code.as_str(), error.class), ("origin_unreachable", Class::Transient), "{error:?}");
    for file in ["nowhere.pem".into(), web.data().join("file")] {
        let error = HttpOrigin::new(&HttpConfig { ca_file: Some(file), ..web.tls_config() }).err().unwrap();
        assert!(error.code.as_str() == "bad_request" && error.message.contains("ca_file"), "{error:?}");
    }
}
