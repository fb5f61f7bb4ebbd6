//! `stager-ionode origin stat|list|probe|verify|erase --config FILE|-`: the origin calls of the API without a node. Prints the JSON the
//! API would answer. `stager-ionode origin serve` answers many of them, and keeps its connections in between.
//!
//! The one rule: one request document in, one answer document out on stdout; exit 0, or 1 with the uniform error.

use std::collections::HashMap;
use std::future::Future;
use std::io::{BufRead, BufReader, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use futures::stream::FuturesOrdered;
use futures::StreamExt;
use serde::de::DeserializeOwned;
use serde::Deserialize;
use serde_json::{json, Value};
use stager_core::error::{ApiError, Code};
use tokio::runtime::Runtime;

use crate::{open, verify_content, Origin, OriginConfig, Pace};

const USAGE: &str =
    "usage: stager-ionode origin stat|list|probe|verify|erase --config FILE|-  (JSON: {\"origin\": {...}, \"request\": {...}}), \
     or: stager-ionode origin serve  (a line of JSON each: {\"action\": \"stat\", \"origin\": {...}, \"request\": {...}})";

/// Whoever asks again after that starts another one.
const IDLE: Duration = Duration::from_secs(10);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    origin: OriginConfig,
    request: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    action: String,
    origin: Value,
    request: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Stat {
    paths: Vec<String>,
}

fn limit_default() -> usize {
    100_000
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    prefix: String,
    recursive: bool,
    #[serde(default = "limit_default")]
    limit: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProbeRequest {
    path: String,
    write: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Verify {
    path: String,
    size_bytes: u64,
    blake3: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Erase {
    path: String,
    token: Option<String>,
}

/// `args` as they follow the word `origin`. Returns the exit code.
pub fn cli(args: &[String]) -> i32 {
    if args == ["serve"] {
        return serve(BufReader::new(std::io::stdin()), std::io::stdout(), IDLE);
    }
    let (code, answer) = respond(args, &mut std::io::stdin());
    println!("{answer}");
    code
}

fn respond(args: &[String], stdin: &mut dyn Read) -> (i32, Value) {
    match run(args, stdin) {
        Ok(answer) => (0, answer),
        Err(error) => (1, json!({ "error": error })),
    }
}

fn run(args: &[String], stdin: &mut dyn Read) -> Result<Value, ApiError> {
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let (action, source) = match words.as_slice() {
        [action, "--config", source] | ["--config", source, action] => (*action, *source),
        _ => return Err(ApiError::new(Code::BadRequest, "origin", USAGE)),
    };
    let document: Document = parsed(source, &read_document(source, stdin)?)?;
    runtime()?.block_on(answer(action, open(&document.origin)?, document.request))
}

fn runtime() -> Result<Runtime, ApiError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.map_err(|error| ApiError::new(Code::IoError, "origin", format!("The runtime cannot start ({error}).")))
}

/// Answers line by line, in order, until there are no more or none came for so long: who asks may live for days, and its logins need not.
/// What is asked meanwhile is looked up beside what is not answered yet.
fn serve(requests: impl BufRead + Send + 'static, mut answers: impl Write, idle: Duration) -> i32 {
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(error) => {
            writeln!(answers, "{}", json!({ "error": error })).ok();
            return 1;
        }
    };
    let (sender, mut lines) = tokio::sync::mpsc::unbounded_channel();
    // Left to itself: nobody can end a wait for a line.
    std::thread::spawn(move || requests.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
    runtime.block_on(async {
        let (mut origins, mut under_way, mut more) = (Origins::default(), FuturesOrdered::new(), true);
        while more || !under_way.is_empty() {
            let answer = tokio::select! {
                line = lines.recv(), if more => {
                    match line {
                        Some(line) => under_way.push_back(tokio::spawn(origins.answer(&line))),
                        None => more = false,
                    }
                    continue;
                }
                Some(answer) = under_way.next() => answer.expect("answering does not panic"),
                () = tokio::time::sleep(idle), if under_way.is_empty() => break,
            };
            let answer = answer.unwrap_or_else(|error| json!({ "error": error }));
            if writeln!(answers, "{answer}").and_then(|()| answers.flush()).is_err() {
                break;
            }
        }
    });
    0
}

/// By what is said of each, as it stands in the request.
#[derive(Default)]
struct Origins(HashMap<String, Arc<dyn Origin>>);

impl Origins {
    /// Opened at once, looked up when the answer is waited for.
    fn answer(&mut self, line: &str) -> impl Future<Output = Result<Value, ApiError>> + Send + 'static {
        let asked = parsed("origin", line).and_then(|asked: Asked| Ok((self.opened(&asked.origin)?, asked)));
        async move {
            let (origin, asked) = asked?;
            answer(&asked.action, origin, asked.request).await
        }
    }

    fn opened(&mut self, said: &Value) -> Result<Arc<dyn Origin>, ApiError> {
        let said = said.to_string();
        if let Some(origin) = self.0.get(&said) {
            return Ok(origin.clone());
        }
        let origin = open(&parsed("origin", &said)?)?;
        self.0.insert(said, origin.clone());
        Ok(origin)
    }
}

fn read_document(source: &str, stdin: &mut dyn Read) -> Result<String, ApiError> {
    let mut text = String::new();
    let read = match source {
        "-" => stdin.read_to_string(&mut text),
        file => std::fs::File::open(file).and_then(|mut file| file.read_to_string(&mut text)),
    };
    read.map_err(|error| ApiError::new(Code::BadRequest, source, format!("The request {source:?} cannot be read ({error}).")))?;
    Ok(text)
}

/// serde names line, column and field, never a value of an unknown field; a secret of the wrong type would be shown, so types are named
/// without values.
fn parsed<T: DeserializeOwned>(subject: &str, text: &str) -> Result<T, ApiError> {
    serde_json::from_str(text).map_err(|error| {
        let shown = error.to_string();
        let shown = if shown.starts_with("invalid type") { "a field has the wrong type".to_owned() } else { shown };
        ApiError::new(Code::BadRequest, subject, format!("The request is not understood: {shown}. {USAGE}"))
    })
}

fn request<T: DeserializeOwned>(action: &str, value: Value) -> Result<T, ApiError> {
    parsed(action, &value.to_string())
}

async fn answer(action: &str, origin: Arc<dyn Origin>, value: Value) -> Result<Value, ApiError> {
    match action {
        "stat" => {
            let paths = request::<Stat>(action, value)?.paths;
            let answers = origin.stat_many(&paths).await;
            let entries: Vec<Value> = paths
                .iter()
                .zip(answers)
                .map(|(path, answer)| match answer {
                    Ok(entry) => json!(entry),
                    Err(error) => json!({ "path": path, "error": error }),
                })
                .collect();
            Ok(json!({ "entries": entries }))
        }
        "list" => {
            let list: List = request(action, value)?;
            Ok(json!(origin.list(&list.prefix, list.recursive, list.limit).await?))
        }
        "probe" => {
            let probe: ProbeRequest = request(action, value)?;
            Ok(json!(origin.probe(&probe.path, probe.write).await))
        }
        "verify" => {
            let verify: Verify = request(action, value)?;
            Ok(json!(verify_content(&*origin, &verify.path, verify.size_bytes, &verify.blake3, &Pace::default()).await?))
        }
        "erase" => {
            let erase: Erase = request(action, value)?;
            Ok(json!({ "erased": origin.erase(&erase.path, erase.token.as_deref()).await? }))
        }
        other => Err(ApiError::new(Code::BadRequest, other, format!("There is no origin call {other:?}. {USAGE}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(action: &str, document: Value) -> (i32, Value) {
        let args = [action, "--config", "-"].map(str::to_owned);
        respond(&args, &mut document.to_string().as_bytes())
    }

    #[test]
    fn the_calls_of_the_api_are_answered() {
        let base = tempfile::tempdir().unwrap();
        std::fs::create_dir(base.path().join("d")).unwrap();
        std::fs::write(base.path().join("d/f"), b"four").unwrap();
        let origin = json!({ "kind": "file", "base_path": base.path() });
        let with = |request: Value| json!({ "origin": origin, "request": request });
        let (code, stat) = ask("stat", with(json!({ "paths": ["d/f", "none"] })));
        assert_eq!((code, &stat["entries"][0]["size_bytes"], &stat["entries"][1]["error"]["code"]), (0, &json!(4), &json!("not_found")));
        assert_eq!(stat["entries"][1]["path"], "none");
        let (_, list) = ask("list", with(json!({ "prefix": "", "recursive": true, "limit": 10 })));
        assert_eq!(
            (&list["entries"][0]["path"], &list["entries"][0]["kind"], &list["truncated"]),
            (&json!("d/f"), &json!("file"), &json!(false))
        );
        let (_, probe) = ask("probe", with(json!({ "path": "d", "write": true })));
        assert_eq!((&probe["reachable"], &probe["writable"], &probe["findings"]), (&json!(true), &json!(true), &json!([])));
        let blake3 = blake3::hash(b"four").to_hex().to_string();
        let (_, verify) = ask("verify", with(json!({ "path": "d/f", "size_bytes": 4, "blake3": blake3 })));
        assert_eq!((&verify["matches"], &verify["method"]), (&json!(true), &json!("readback")));
        let (_, verify) = ask("verify", with(json!({ "path": "d/f", "size_bytes": 4, "blake3": "00" })));
        assert_eq!(verify["matches"], json!(false));
        assert_eq!(ask("erase", with(json!({ "path": "d/f", "token": null }))), (0, json!({ "erased": true })));
        assert_eq!(ask("erase", with(json!({ "path": "d/f" }))), (0, json!({ "erased": false })));
        let (code, error) = ask("list", with(json!({ "prefix": "none", "recursive": true })));
        assert_eq!((code, &error["error"]["code"], &error["error"]["class"]), (1, &json!("not_found"), &json!("invalid_input")));
    }

    fn served(lines: &[Value], idle: Duration) -> Vec<Value> {
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let mut answers = Vec::new();
        assert_eq!(serve(std::io::Cursor::new(text), &mut answers, idle), 0);
        String::from_utf8(answers).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn many_calls_are_answered_in_order_line_by_line() {
        let base = tempfile::tempdir().unwrap();
        std::fs::write(base.path().join("f"), b"four").unwrap();
        let origin = json!({ "kind": "file", "base_path": base.path() });
        let stat = |path: &str| json!({ "action": "stat", "origin": origin, "request": { "paths": [path] } });
        let unknown = json!({ "action": "dance", "origin": origin, "request": {} });
        let not_an_origin = json!({ "action": "stat", "origin": { "kind": "s3", "secret_access_key": 5 }, "request": {} });
        let answers = served(&[stat("f"), unknown, not_an_origin, stat("none")], Duration::from_secs(60));
        assert_eq!(answers[0]["entries"][0]["size_bytes"], 4);
        assert_eq!((&answers[1]["error"]["code"], &answers[2]["error"]["code"]), (&json!("bad_request"), &json!("bad_request")));
        assert_eq!(answers[3]["entries"][0]["error"]["code"], "not_found");
    }

    /// The server answers nobody before both have asked.
    #[test]
    fn what_is_asked_meanwhile_does_not_wait() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let base_url = format!("http://{}/", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let asked: Vec<_> = (0..2).map(|_| listener.accept().unwrap().0).collect();
            for mut one in asked {
                // To its end: a connection that is closed with a part of it unread is reset, and the answer may be lost.
                BufReader::new(&one).lines().take_while(|line| !line.as_ref().unwrap().is_empty()).count();
                one.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\netag: \"a\"\r\nconnection: close\r\n\r\n").unwrap();
            }
        });
        let origin = json!({ "kind": "http", "base_url": base_url });
        let stat = |path: &str| json!({ "action": "stat", "origin": origin, "request": { "paths": [path] } });
        let answers = served(&[stat("one"), stat("two")], Duration::from_secs(60));
        server.join().unwrap();
        let told: Vec<_> = answers.iter().map(|answer| (&answer["entries"][0]["path"], &answer["entries"][0]["size_bytes"])).collect();
        assert_eq!(told, [(&json!("one"), &json!(4)), (&json!("two"), &json!(4))], "{answers:?}");
    }

    /// Whoever asks keeps the way open, and says nothing more.
    #[test]
    fn an_idle_one_ends_by_itself() {
        let (theirs, ours) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(serve(BufReader::new(theirs), Vec::new(), Duration::from_millis(50)), 0);
        drop(ours);
    }

    #[test]
    fn what_is_not_understood_is_said_without_secrets() {
        let s3 = |secret: Value| {
            json!({ "kind": "s3", "bucket": "b", "region": "r", "access_key_id": "k",
            "secret_access_key": secret, "surprise": 1 })
        };
        let (code, error) = ask("stat", json!({ "origin": s3(json!("hunter2")), "request": { "paths": [] } }));
        assert_eq!((code, &error["error"]["code"]), (1, &json!("bad_request")));
        assert!(error["error"]["message"].as_str().unwrap().contains("unknown field `surprise`"), "{error}");
        let (_, number) = ask("stat", json!({ "origin": s3(json!(987654321)), "request": { "paths": [] } }));
        for answer in [error, number] {
            let text = answer.to_string();
            assert!(!text.contains("hunter2") && !text.contains("987654321"), "{text}");
        }
        assert_eq!(ask("dance", json!({ "origin": { "kind": "file", "base_path": "/" }, "request": {} })).0, 1);
        assert_eq!(respond(&[], &mut "".as_bytes()).0, 1);
        let config: OriginConfig = serde_json::from_value(
            json!({ "kind": "s3", "bucket": "b", "region": "r", "access_key_id": "k", "secret_access_key": "hunter2",
            "session_token": "hunter3" }),
        )
        .unwrap();
        let shown = format!("{config:?}");
        assert!(!shown.contains("hunter") && shown.contains("***"), "{shown}");
    }
}
