//! `stager-ionode origin stat|list|probe|verify|erase --config FILE|-`: the origin calls of the API without a node. Prints the JSON the API would answer.
//!
//! The one rule: one request document in, one answer document out on stdout; exit 0, or 1 with the uniform error.

use std::io::Read;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::Deserialize;
use serde_json::{json, Value};
use stager_core::error::ApiError;

use crate::{open, verify_content, Origin, OriginConfig};

const USAGE: &str = "usage: stager-ionode origin stat|list|probe|verify|erase --config FILE|-  (JSON: {\"origin\": {...}, \"request\": {...}})";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    origin: OriginConfig,
    request: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Stat {
    paths: Vec<String>,
}

fn limit_default() -> usize { 100_000 }

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
    match run(args) {
        Ok(answer) => {
            println!("{answer}");
            0
        }
        Err(error) => {
            println!("{}", json!({ "error": error }));
            1
        }
    }
}

fn run(args: &[String]) -> Result<Value, ApiError> {
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let (action, source) = match words.as_slice() {
        [action, "--config", source] | ["--config", source, action] => (*action, *source),
        _ => return Err(ApiError::invalid("bad_request", "origin", USAGE)),
    };
    let document: Document = parsed(source, &read_document(source)?)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| ApiError::transient("io_error", "origin", format!("The runtime cannot start ({error}).")))?;
    runtime.block_on(answer(action, open(&document.origin)?, document.request))
}

fn read_document(source: &str) -> Result<String, ApiError> {
    let mut text = String::new();
    let read = match source {
        "-" => std::io::stdin().read_to_string(&mut text),
        file => std::fs::File::open(file).and_then(|mut file| file.read_to_string(&mut text)),
    };
    read.map_err(|error| ApiError::invalid("bad_request", source, format!("The request {source:?} cannot be read ({error}).")))?;
    Ok(text)
}

/// serde names line, column and field, never a value of an unknown field; a secret of the wrong type would be shown, so types are named without values.
fn parsed<T: DeserializeOwned>(subject: &str, text: &str) -> Result<T, ApiError> {
    serde_json::from_str(text).map_err(|error| {
        let shown = error.to_string();
        let shown = if shown.starts_with("invalid type") { "a field has the wrong type".to_owned() } else { shown };
        ApiError::invalid("bad_request", subject, format!("The request is not understood: {shown}. {USAGE}"))
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
            let entries: Vec<Value> = paths.iter().zip(answers).map(|(path, answer)| match answer {
                Ok(entry) => json!(entry),
                Err(error) => json!({ "path": path, "error": error }),
            }).collect();
            Ok(json!({ "entries": entries }))
        }
        "list" => {
            let list: List = request(action, value)?;
            let (entries, truncated) = origin.list(&list.prefix, list.recursive, list.limit).await?;
            Ok(json!({ "entries": entries, "truncated": truncated }))
        }
        "probe" => {
            let probe: ProbeRequest = request(action, value)?;
            Ok(json!(origin.probe(&probe.path, probe.write).await))
        }
        "verify" => {
            let verify: Verify = request(action, value)?;
            Ok(json!(verify_content(&*origin, &verify.path, verify.size_bytes, &verify.blake3).await?))
        }
        "erase" => {
            let erase: Erase = request(action, value)?;
            Ok(json!({ "erased": origin.erase(&erase.path, erase.token.as_deref()).await? }))
        }
        other => Err(ApiError::invalid("bad_request", other, format!("There is no origin call {other:?}. {USAGE}"))),
    }
}
