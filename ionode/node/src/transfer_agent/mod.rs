//! `stager-ionode transfer`: moves files between this machine and origins for a program that has no node. One order a line on stdin, one
//! answer a line on stdout, in the order in which they end (docs/formats/transfer-orders.md).
//!
//! The one rule: an answer without an error means that all of the file is there and was hashed; who asked gives it its name.

mod get;
mod put;

use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{json, Value};
use stager_core::error::ApiError;
use stager_origins::{open, Origin, OriginConfig, Retried, Retries, Verified};

use crate::failure::bad_request;

/// No byte for so long: the order has failed.
const STALL: Duration = Duration::from_secs(60);
/// A server that hashes a file itself moves no byte that we could count: it gets time by the file's size on top.
const VERIFY_BYTES_PER_S_MIN: u64 = 8 << 20;
const RETRIES: Retries =
    Retries { without_a_byte_max: 3, pause: Duration::from_millis(500), stall: STALL, stall_bytes_per_s: VERIFY_BYTES_PER_S_MIN };

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Order {
    id: u64,
    /// As in `PUT /v1/origins/{id}`. Orders that say the same share its connections.
    origin: Value,
    transfer_job: TransferJob,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum TransferJob {
    Get {
        path: String,
        /// Must not be there.
        to: PathBuf,
    },
    Put {
        from: PathBuf,
        path: String,
    },
    MakeDirectory {
        path: String,
    },
    Erase {
        path: String,
    },
}

/// Of a file that is there now.
struct Moved {
    size_bytes: u64,
    sha256: String,
    verified: Option<Verified>,
}

#[derive(Default)]
struct TransferAgent {
    origins: Mutex<HashMap<String, Arc<dyn Origin>>>,
}

/// Returns the exit code. The end of stdin ends it: whoever asked is gone, or has all answers.
pub fn run() -> i32 {
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("stager-ionode: the runtime cannot start ({error}).");
            return 1;
        }
    };
    let agent = Arc::new(TransferAgent::default());
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let agent = agent.clone();
        runtime.spawn(async move { say(&agent.answer(&line).await) });
    }
    runtime.shutdown_background();
    0
}

fn say(answer: &Value) {
    let mut out = std::io::stdout().lock();
    // Nobody is left to hear of it when this fails.
    let _ = writeln!(out, "{answer}").and_then(|()| out.flush());
}

impl TransferAgent {
    async fn answer(&self, line: &str) -> Value {
        let order = match serde_json::from_str::<Order>(line) {
            Ok(order) => order,
            Err(error) => return json!({ "id": null, "error": misunderstood(&error) }),
        };
        let id = order.id;
        match self.perform(order).await {
            Ok(done) => json!({ "id": id, "done": done }),
            Err(error) => json!({ "id": id, "error": error }),
        }
    }

    async fn perform(&self, order: Order) -> Result<Value, ApiError> {
        let origin = self.origin(order.origin)?;
        match order.transfer_job {
            TransferJob::Get { path, to } => get::get(origin.as_ref(), &path, to).await.map(told),
            TransferJob::Put { from, path } => put::put(origin.as_ref(), from, &path, STALL).await.map(told),
            TransferJob::MakeDirectory { path } => origin.make_directory(&path).await.map(|()| json!({})),
            TransferJob::Erase { path } => origin.erase(&path, None).await.map(|erased| json!({ "erased": erased })),
        }
    }

    fn origin(&self, config: Value) -> Result<Arc<dyn Origin>, ApiError> {
        let key = config.to_string();
        let mut origins = self.origins.lock().expect("nobody panics here");
        if let Some(origin) = origins.get(&key) {
            return Ok(origin.clone());
        }
        let config: OriginConfig = serde_json::from_value(config).map_err(|error| misunderstood(&error))?;
        let origin: Arc<dyn Origin> = Arc::new(Retried::new(open(&config)?, RETRIES));
        origins.insert(key, origin.clone());
        Ok(origin)
    }
}

fn told(moved: Moved) -> Value {
    json!({ "size_bytes": moved.size_bytes, "sha256": moved.sha256, "verified": moved.verified })
}

/// A secret of the wrong type would be shown, so types are named without values.
fn misunderstood(error: &serde_json::Error) -> ApiError {
    let shown = error.to_string();
    let shown = if shown.starts_with("invalid type") { "a field has the wrong type".to_owned() } else { shown };
    bad_request("transfer", format!("the order is not understood: {shown}; see docs/formats/transfer-orders.md"))
}

#[cfg(test)]
mod tests;
