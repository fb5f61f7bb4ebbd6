//! A proxy of the environment: used, but neither for an origin that may go to the public internet only, nor where it could read a token or
//! has nothing to reach. Alone in its process, whose environment
//! it sets.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use stager_origins::{HttpConfig, HttpOrigin, Origin, Secret};

/// Answers whatever it is asked for with one byte, and remembers it.
fn proxy() -> (u16, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, asked) = (listener.local_addr().unwrap().port(), Arc::new(Mutex::new(Vec::new())));
    let seen = asked.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, mut head) = (stream.unwrap(), [0u8; 4096]);
            let length = stream.read(&mut head).unwrap();
            seen.lock().unwrap().push(String::from_utf8_lossy(&head[..length]).lines().next().unwrap_or("").to_owned());
            let answer = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nETag: \"a\"\r\nConnection: close\r\n\r\n";
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    (port, asked)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_proxy_leads_an_origin_for_everybody_inside() {
    let (port, asked) = proxy();
    for name in ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"] {
        std::env::set_var(name, format!("http://127.0.0.1:{port}"));
    }
    for name in ["NO_PROXY", "no_proxy", "REQUEST_METHOD"] {
        std::env::remove_var(name);
    }
    let with_token = |base_url: String, bearer_token: Option<Secret>| {
        HttpOrigin::new(&HttpConfig { base_url, bearer_token, allow_http: true, ..HttpConfig::default() }).unwrap()
    };
    let origin = |public_only| {
        let config = HttpConfig { base_url: "http://inside.test/".into(), public_only, ..HttpConfig::default() };
        HttpOrigin::new(&config).unwrap()
    };
    let error = origin(true).stat("f").await.unwrap_err();
    assert_eq!(error.code.as_str(), "origin_unreachable", "{error:?}");
    assert_eq!(asked.lock().unwrap().as_slice(), &[] as &[String], "the proxy was asked for a name that only it may know");
    assert_eq!(origin(false).stat("f").await.unwrap().size_bytes, 1, "an origin that somebody registered goes by the proxy");
    assert!(asked.lock().unwrap().iter().any(|line| line.starts_with("HEAD http://inside.test/f")), "{:?}", asked.lock().unwrap());

    asked.lock().unwrap().clear();
    let (here, asked_here) = proxy();
    for host in ["127.0.0.1", "localhost"] {
        assert_eq!(with_token(format!("http://{host}:{here}/"), Some(Secret::new("t"))).stat("f").await.unwrap().size_bytes, 1);
        assert_eq!(with_token(format!("http://{host}:{here}/"), None).stat("f").await.unwrap().size_bytes, 1);
    }
    let error = with_token("http://inside.test/".into(), Some(Secret::new("t"))).stat("f").await.unwrap_err();
    assert_eq!(error.code.as_str(), "origin_unreachable", "{error:?}");
    assert!(asked.lock().unwrap().is_empty(), "the proxy could read the token: {:?}", asked.lock().unwrap());
    assert!(asked_here.lock().unwrap().iter().all(|line| line.starts_with("HEAD /f")), "{:?}", asked_here.lock().unwrap());
}
