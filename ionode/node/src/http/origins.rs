//! Calls about origins: described, asked, tidied. Bytes of transfers do not pass here.
//!
//! The one rule: no answer, error or log line repeats what an origin was described with.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use stager_core::error::{ApiError, Code};
use stager_core::ids::check_relative_path;
use stager_origins::{verify_content, Allowance, Listing, Metered, OriginConfig, Pace, Probe, VerifyAnswer};

use crate::blocking::blocking;
use crate::context::OpenOrigin;
use crate::failure::bad_request;
use crate::node::Node;
use crate::wire::{
    AllowanceAnswer, AllowanceRequest, EraseAnswer, EraseRequest, ListRequest, ProbeRequest, ReadyRequest, StatAnswer, StatEntry,
    StatRequest, VerifyRequest,
};

/// Longer than any scheduler asks for.
const LEASE_MAX: Duration = Duration::from_secs(24 * 3600);
/// What makes two descriptions the same place.
const PLACE: [&str; 10] = ["kind", "host", "port", "user", "base_path", "bucket", "prefix", "endpoint", "base_url", "queries"];

/// `exposed`: others can read what the call carried.
pub async fn put(node: &Arc<Node>, origin_id: &str, body: &[u8], exposed: bool) -> Result<(), ApiError> {
    // What serde says of a wrong value may hold the value: only the place is told.
    let hidden = |error: serde_json::Error| {
        let message = format!(
            "the description of origin {origin_id} is not understood at line {} column {}; compare it with docs/formats/ionode-api.md",
            error.line(),
            error.column()
        );
        bad_request(origin_id, message)
    };
    let value: Value = serde_json::from_slice(body).map_err(hidden)?;
    let config: OriginConfig = serde_json::from_value(value.clone()).map_err(|error| named(origin_id, &error, &value))?;
    if exposed && config.has_secret() {
        let message = format!(
            "the secret of origin {origin_id} came in plain text over the network, where others can read it: it is not used. Serve the \
             node with --tls-dir, and give the origin a new secret"
        );
        return Err(ApiError::new(Code::NotEncrypted, origin_id, message));
    }
    if node.context.origin(origin_id).is_ok_and(|known| known.config == config) {
        // Its connections, and what it was allowed of them, go on.
        return Ok(());
    }
    let mountable = config.mountable();
    let described = config.clone();
    let origin = blocking(move || stager_origins::open(&config)).await?;
    let label = crate::metrics::origin(&value);
    let origin = Arc::new(Metered::new(origin, Arc::new(crate::metrics::OriginBytes::new(&label))));
    node.context.put_origin(origin_id, OpenOrigin { origin, config: described, identity: identity(&value), label, mountable });
    tracing::info!(origin_id, kind = value["kind"].as_str().unwrap_or(""), "an origin was described");
    Ok(())
}

/// Names the field that is wrong, if serde did, and never a value.
fn named(origin_id: &str, error: &serde_json::Error, value: &Value) -> ApiError {
    let text = error.to_string();
    let field = text.split('`').nth(1).filter(|field| text.starts_with("missing field") || value.get(field).is_some());
    let what = field.map_or("it is not understood".to_string(), |field| format!("the field {field} is missing, unknown or wrong"));
    bad_request(
        origin_id,
        format!("the description of origin {origin_id} cannot be used: {what}; compare it with docs/formats/ionode-api.md"),
    )
}

fn identity(value: &Value) -> String {
    let parts: Vec<&Value> = PLACE.iter().map(|key| &value[key]).collect();
    blake3::hash(&serde_json::to_vec(&parts).expect("parts of a parsed value")).to_hex().to_string()
}

pub async fn stat(node: &Node, origin_id: &str, request: StatRequest) -> Result<StatAnswer, ApiError> {
    let origin = node.context.origin(origin_id)?.origin;
    let good: Vec<String> = request.paths.iter().filter(|path| check_relative_path(path).is_ok()).cloned().collect();
    let mut found = origin.stat_many(&good).await.into_iter();
    let entry = |path: String| {
        let outcome = check_relative_path(&path).and_then(|()| found.next().expect("an answer for each path asked"));
        outcome.map_or_else(|error| StatEntry::Failed { path, error }, StatEntry::Found)
    };
    Ok(StatAnswer { entries: request.paths.into_iter().map(entry).collect() })
}

pub async fn list(node: &Node, origin_id: &str, request: ListRequest) -> Result<Listing, ApiError> {
    check_place(&request.prefix)?;
    node.context.origin(origin_id)?.origin.list(&request.prefix, request.recursive, request.limit).await
}

/// The origin's base itself is a fine place.
fn check_place(path: &str) -> Result<(), ApiError> {
    if path.is_empty() {
        Ok(())
    } else {
        check_relative_path(path)
    }
}

pub async fn probe(node: &Node, origin_id: &str, request: ProbeRequest) -> Result<Probe, ApiError> {
    check_place(&request.path)?;
    Ok(node.context.origin(origin_id)?.origin.probe(&request.path, request.write).await)
}

pub async fn erase(node: &Node, origin_id: &str, request: EraseRequest) -> Result<EraseAnswer, ApiError> {
    check_relative_path(&request.path)?;
    let erased = node.context.origin(origin_id)?.origin.erase(&request.path, request.token.as_deref()).await?;
    Ok(EraseAnswer { erased })
}

pub async fn verify(node: &Node, origin_id: &str, request: VerifyRequest) -> Result<VerifyAnswer, ApiError> {
    check_relative_path(&request.path)?;
    let origin = node.context.origin(origin_id)?.origin;
    verify_content(origin.as_ref(), &request.path, request.size_bytes, &request.blake3, &Pace::default()).await
}

/// What this node may use of an origin that others use too.
pub fn allow(node: &Node, origin_id: &str, request: &AllowanceRequest) -> Result<AllowanceAnswer, ApiError> {
    let origin = node.context.origin(origin_id)?.origin;
    let lease = match request.lease_s {
        None => None,
        Some(lease_s) => {
            let wrong = |_| bad_request(origin_id, format!("lease_s: {lease_s} is no time of 0 s or more"));
            Some(Duration::try_from_secs_f64(lease_s).map_err(wrong)?.min(LEASE_MAX))
        }
    };
    let allowance =
        Allowance { bandwidth_bytes_per_s_max: request.bandwidth_bytes_per_s_max, connections_max: request.connections_max, lease };
    Ok(AllowanceAnswer { connections: origin.capabilities().allowance.map_or(0, |origin| origin.allow(allowance)) })
}

/// Nobody waits for it: it ends by itself, or with the node.
pub fn get_ready(node: &Arc<Node>, origin_id: &str, request: &ReadyRequest) -> Result<(), ApiError> {
    let (origin, shutdown, files) = (node.context.origin(origin_id)?.origin, node.context.shutdown.clone(), request.files);
    tokio::spawn(async move {
        if let Some(before) = origin.capabilities().get_ready {
            shutdown.run_until_cancelled(before.get_ready(files)).await;
        }
    });
    Ok(())
}
