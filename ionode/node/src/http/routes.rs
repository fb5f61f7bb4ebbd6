//! From method and path to the call. May know every call's name and nothing of its work.
//!
//! The one rule: a call that changes something runs to its end even when its caller hangs up.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Collected, Limited};
use hyper::body::{Body, Incoming};
use hyper::{Method, Request, Uri};
use serde::de::DeserializeOwned;
use stager_core::error::{ApiError, Code};
use stager_core::ids::check_id;
use stager_core::replica::ReplicaKey;
use stager_core::space::Holder;
use tracing::Instrument;

use super::answer::{self, Answer};
use super::{auth, content, mounts, narrow, origins, outputs, packs, push};
use crate::attempts::remote;
use crate::blocking::blocking;
use crate::calls::OpenCall;
use crate::context::Cause;
use crate::failure::{bad_request, Failure};
use crate::node::Node;
use crate::tls::roles::Role;
use crate::wire::{
    AckRequest, CapacityRequest, LeaseAnswer, MatchAnswer, Reservation, ReservationRequest, ShutdownRequest, StateAnswer, TransferStatus,
    TransfersAnswer,
};
use crate::{attempts, replicas, transfers};

const BODY_BYTES_MAX: usize = 64 << 20;
const WAIT_S_MAX: f64 = 300.0;

/// One call, its body read.
struct Call {
    node: Arc<Node>,
    open: OpenCall,
    cause: Cause,
    role: Option<Arc<Role>>,
    exposed: bool,
    method: Method,
    uri: Uri,
    headers: hyper::HeaderMap,
    body: bytes::Bytes,
}

pub async fn answer(node: Arc<Node>, request: Request<Incoming>) -> Answer {
    if let Some(transfer_id) = push::transfer_of(&request) {
        return push::content(node, transfer_id, request).await.unwrap_or_else(answer::failure);
    }
    if let Some(sent) = outputs::of(&request) {
        return outputs::take(node, sent, request).await.unwrap_or_else(answer::failure);
    }
    if packs::is_pack(&request) {
        return packs::pack(node, request).await.unwrap_or_else(answer::failure);
    }
    let outcome = match read(node, request).await {
        Ok(call) if call.method == Method::GET => dispatch(call).await,
        Ok(call) => match tokio::spawn(call.in_its_span()).await {
            Ok(outcome) => outcome,
            Err(error) => {
                Err(ApiError::new(Code::IoError, "node", format!("the call ended early ({error}); look at the node's log")).into())
            }
        },
        Err(error) => Err(error.into()),
    };
    outcome.unwrap_or_else(answer::failure)
}

async fn read(node: Arc<Node>, request: Request<Incoming>) -> Result<Call, ApiError> {
    let (parts, body) = request.into_parts();
    let first_contact = parts.method == Method::GET && parts.uri.path() == "/v1/node";
    let cause = auth::admit(&node, &parts, first_contact).await?;
    let body = match body.is_end_stream() {
        true => bytes::Bytes::new(),
        false => Limited::new(body, BODY_BYTES_MAX).collect().await.map(Collected::to_bytes).map_err(|_| {
            let message = format!("the body is longer than {BODY_BYTES_MAX} bytes or broke off; split the call");
            bad_request(parts.uri.path(), message)
        })?,
    };
    let open = node.calls.open(parts.method != Method::GET);
    let (role, exposed) = (parts.extensions.get().cloned(), parts.extensions.get::<auth::Exposed>().is_some());
    Ok(Call { open, node, cause, role, exposed, method: parts.method, uri: parts.uri, headers: parts.headers, body })
}

impl Call {
    fn path(&self) -> &str {
        self.uri.path()
    }

    /// Every line that is written for it names it.
    fn in_its_span(self) -> impl Future<Output = Result<Answer, Failure>> {
        let attempt_id = self.path().strip_prefix("/v1/attempts/").and_then(|rest| rest.split('/').next());
        let span = tracing::info_span!(
            "call",
            method = self.method.as_str(),
            path = self.path(),
            command_id = self.cause.command_id,
            epoch = self.cause.epoch,
            attempt_id
        );
        dispatch(self).instrument(span)
    }

    fn body<T: DeserializeOwned>(&self) -> Result<T, ApiError> {
        serde_json::from_slice(&self.body).map_err(|error| {
            bad_request(
                self.path(),
                format!("the body of {} is not understood ({error}); compare it with docs/formats/ionode-api.md", self.path()),
            )
        })
    }

    fn query(&self, name: &str) -> Option<String> {
        let mut pairs = self.uri.query()?.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find(|(key, _)| *key == name).map(|(_, value)| percent_decoded(value))
    }

    fn number<T: std::str::FromStr>(&self, name: &str, default: T) -> Result<T, ApiError> {
        let Some(text) = self.query(name) else { return Ok(default) };
        text.parse().map_err(|_| bad_request(&text, format!("{name}={text} is not a number")))
    }

    fn wait(&self) -> Result<Duration, ApiError> {
        let Some(text) = self.query("wait_s") else { return Ok(Duration::ZERO) };
        wait_of(&text).ok_or_else(|| bad_request(&text, format!("wait_s={text} is not a number of seconds, 0 or more")))
    }
}

/// Longer than `WAIT_S_MAX` nobody is made to wait.
fn wait_of(text: &str) -> Option<Duration> {
    let wait_s: f64 = text.parse().ok()?;
    (wait_s.is_finite() && wait_s >= 0.0).then(|| Duration::from_secs_f64(wait_s.min(WAIT_S_MAX)))
}

fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let code = (*first == b'%')
            .then(|| tail.get(..2))
            .flatten()
            .filter(|hex| hex.iter().all(u8::is_ascii_hexdigit))
            .and_then(|hex| std::str::from_utf8(hex).ok())
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

async fn dispatch(call: Call) -> Result<Answer, Failure> {
    let uri = call.uri.clone();
    let Some(path) = uri.path().strip_prefix("/v1/") else { return Err(unknown(&call).into()) };
    let segments: Vec<&str> = path.split('/').collect();
    match segments.first().copied().unwrap_or("") {
        "origins" => of_origins(&call, &segments[1..]).await,
        "mounts" => of_mounts(&call, &segments[1..]).await,
        "transfers" => of_transfers(&call, &segments[1..]).await,
        "peers" => of_peers(&call, &segments[1..]),
        "forgotten" => of_forgotten(&call, &segments[1..]).await,
        "replicas" => of_replicas(call, &segments[1..]).await,
        "attempts" => of_attempts(&call, &segments[1..]).await,
        _ => of_node(&call, &segments).await,
    }
}

fn unknown(call: &Call) -> ApiError {
    ApiError::new(
        Code::NotFound,
        call.path(),
        format!("there is no call {} {}; docs/formats/ionode-api.md lists them", call.method, call.path()),
    )
}

async fn of_node(call: &Call, segments: &[&str]) -> Result<Answer, Failure> {
    let node = &call.node;
    match (call.method.as_str(), segments) {
        ("GET", ["node"]) => Ok(answer::ok(&node.status())),
        ("PUT", ["capacity"]) => {
            let request: CapacityRequest = call.body()?;
            node.context.accounting().index.space.set_capacity(request.capacity_bytes);
            Ok(answer::ok(&node.context.space()))
        }
        ("GET", ["state"]) => Ok(answer::ok(&state(node))),
        ("POST", ["shutdown"]) => {
            let request: ShutdownRequest = call.body()?;
            crate::shutdown::shut_down(node.clone(), Duration::from_secs(request.drain_s));
            Ok(answer::accepted(&crate::wire::Empty {}))
        }
        ("GET", ["events"]) => Ok(answer::ok(&node.context.events(call.number("after", 0)?, call.wait()?).await)),
        ("POST", ["events", "ack"]) => {
            let request: AckRequest = call.body()?;
            node.acknowledge(request.seq);
            Ok(answer::empty())
        }
        ("PUT", ["reservations", id]) => {
            check_id("reservation id", id)?;
            let request: ReservationRequest = call.body()?;
            Ok(answer::ok(&node.context.set_reservation(id, request.bytes)?))
        }
        ("DELETE", ["reservations", id]) => {
            node.context.accounting().index.space.release(&Holder::Named(id.to_string()));
            Ok(answer::empty())
        }
        _ => Err(unknown(call).into()),
    }
}

fn state(node: &Node) -> StateAnswer {
    // The number first: what happens while the rest is read has an event from there on, and may be told twice, never left out.
    let next_seq = node.context.accounting().events.next_seq();
    let transfers = node.transfers.list();
    let attempts = node.attempts.remotes.open();
    let accounting = node.context.accounting();
    let named = |(holder, bytes): (&Holder, u64)| match holder {
        Holder::Named(id) => Some(Reservation { id: id.clone(), bytes }),
        Holder::Transfer(_) => None,
    };
    let leases = accounting.index.leases().filter(|(id, _)| !id.contains(':'));
    StateAnswer {
        incarnation: node.context.incarnation.clone(),
        next_seq,
        replicas: accounting.index.replicas().cloned().collect(),
        transfers,
        reservations: accounting.index.space.reservations().filter_map(named).collect(),
        leases: leases.map(|(id, replicas)| LeaseAnswer { attempt_id: id.clone(), replicas: replicas.clone() }).collect(),
        attempts,
    }
}

async fn of_origins(call: &Call, segments: &[&str]) -> Result<Answer, Failure> {
    let node = &call.node;
    let origin_id = *segments.first().unwrap_or(&"");
    check_id("origin id", origin_id)?;
    match (call.method.as_str(), &segments[1..]) {
        ("PUT", []) => {
            origins::put(node, origin_id, &call.body, call.exposed).await?;
            Ok(answer::empty())
        }
        ("POST", ["stat"]) => Ok(answer::ok(&origins::stat(node, origin_id, call.body()?).await?)),
        ("POST", ["list"]) => Ok(answer::ok(&origins::list(node, origin_id, call.body()?).await?)),
        ("POST", ["probe"]) => Ok(answer::ok(&origins::probe(node, origin_id, call.body()?).await?)),
        ("POST", ["ready"]) => {
            origins::get_ready(node, origin_id, &call.body()?)?;
            Ok(answer::accepted(&crate::wire::Empty {}))
        }
        ("PUT", ["allowance"]) => Ok(answer::ok(&origins::allow(node, origin_id, &call.body()?)?)),
        ("POST", ["erase"]) => Ok(answer::ok(&origins::erase(node, origin_id, call.body()?).await?)),
        ("POST", ["verify"]) => Ok(answer::ok(&origins::verify(node, origin_id, call.body()?).await?)),
        _ => Err(unknown(call).into()),
    }
}

async fn of_mounts(call: &Call, segments: &[&str]) -> Result<Answer, Failure> {
    let node = &call.node;
    match (call.method.as_str(), segments) {
        ("GET", []) => Ok(answer::ok(&mounts::list(node))),
        ("PUT", [origin_id]) => {
            check_id("origin id", origin_id)?;
            Ok(answer::ok(&mounts::put(node, origin_id).await?))
        }
        ("DELETE", [origin_id]) => {
            mounts::remove(node, origin_id).await?;
            Ok(answer::empty())
        }
        _ => Err(unknown(call).into()),
    }
}

fn of_peers(call: &Call, segments: &[&str]) -> Result<Answer, Failure> {
    match (call.method.as_str(), segments) {
        ("PUT", [node_id]) => call.node.peers.put(node_id, &call.body)?,
        ("DELETE", [node_id]) => call.node.peers.forget(node_id),
        _ => return Err(unknown(call).into()),
    }
    Ok(answer::empty())
}

async fn of_forgotten(call: &Call, segments: &[&str]) -> Result<Answer, Failure> {
    match (call.method.as_str(), segments) {
        ("PUT", []) => {
            let (peers, told) = (call.node.peers.clone(), call.body()?);
            blocking(move || peers.forgotten.replace(told)).await?;
            Ok(answer::empty())
        }
        _ => Err(unknown(call).into()),
    }
}

async fn of_transfers(call: &Call, segments: &[&str]) -> Result<Answer, Failure> {
    let asker = call.role.as_deref();
    if let ("GET" | "DELETE", [id]) = (call.method.as_str(), segments) {
        narrow::to_its_own(asker, &call.node.transfers, id)?;
    }
    match (call.method.as_str(), segments) {
        ("GET", [id]) => Ok(answer::ok(&call.node.transfers.wait(id, call.wait()?).await?)),
        ("GET", []) => Ok(answer::ok(&TransfersAnswer { transfers: call.node.transfers.list() })),
        ("POST", []) => Ok(answer::accepted(&transfers::put_all(&call.node.transfers, &call.cause, call.body()?).await)),
        ("PUT", [id]) => {
            check_id("transfer id", id)?;
            let request = call.body()?;
            narrow::to_copies_from_itself(asker, &request)?;
            Ok(answer::accepted(&transfers::put(&call.node.transfers, call.cause.clone(), id, request).await?))
        }
        ("GET", [id, "content"]) => Ok(answer::ok(&transfers::push::from_bytes(&call.node.transfers, id, call.wait()?).await?)),
        ("DELETE", [id]) => Ok(answer::accepted(&transfers::cancel(&call.node.transfers, id)?)),
        _ => Err(unknown(call).into()),
    }
}

async fn of_replicas(call: Call, segments: &[&str]) -> Result<Answer, Failure> {
    if let ("POST", ["delete"]) = (call.method.as_str(), segments) {
        return Ok(answer::accepted(&replicas::delete_all(&call.node.fingerprints, &call.cause, call.body()?)));
    }
    let [file_id, generation, rest @ ..] = segments else { return Err(unknown(&call).into()) };
    check_id("file id", file_id)?;
    check_id("generation", generation)?;
    let key = ReplicaKey::new(*file_id, *generation);
    let node = &call.node;
    narrow::to_its_inputs(call.role.as_deref(), &node.attempts, &key)?;
    match (call.method.as_str(), rest) {
        ("GET", []) => Ok(answer::ok(&node.context.replica(&key)?)),
        ("DELETE", []) => {
            replicas::delete(&node.fingerprints, call.cause.clone(), key)?;
            Ok(answer::accepted(&crate::wire::Empty {}))
        }
        ("GET", ["content"]) => {
            let member = call.query("member");
            let asker = content::Asker { node: node.clone(), cause: call.cause, headers: call.headers, open: call.open };
            content::content(asker, key, member).await
        }
        ("GET", ["source"]) => Ok(answer::ok(&transfers::source(&node.transfers, &key, call.wait()?).await?)),
        ("GET", ["manifest"]) => content::manifest(node, &key).await,
        ("POST", ["verify"]) => Ok(answer::ok(&MatchAnswer { matches: node.fingerprints.verify(&call.cause, &key).await? })),
        _ => Err(unknown(&call).into()),
    }
}

async fn of_attempts(call: &Call, segments: &[&str]) -> Result<Answer, Failure> {
    let [attempt_id, action @ ..] = segments else { return Err(unknown(call).into()) };
    check_id("attempt id", attempt_id)?;
    narrow::to_its_attempt(call.role.as_deref(), attempt_id)?;
    let (attempts, cause, attempt_id) = (call.node.attempts.clone(), call.cause.clone(), attempt_id.to_string());
    let is_remote = attempts.remotes.get(&attempt_id).is_some();
    match (call.method.as_str(), action) {
        ("PUT", []) => Ok(answer::ok(&remote::open(attempts, cause, attempt_id, call.body()?).await?)),
        ("GET", []) => Ok(answer::ok(&remote::about(&attempts, &attempt_id)?)),
        ("DELETE", []) => Ok(answer::ok(&remote::close(attempts, attempt_id).await?)),
        ("GET", ["brief"]) => Ok(answer::ok(&remote::brief(&attempts, &attempt_id)?)),
        ("PUT", ["outputs"]) => Ok(answer::ok(&remote::announce(attempts, attempt_id, call.body()?).await?)),
        ("POST", ["commit"]) => Ok(answer::ok(&remote::commit(attempts, attempt_id, call.body()?).await?)),
        ("POST", ["release"]) if is_remote => Ok(answer::ok(&remote::release(attempts, attempt_id, call.body()?).await?)),
        ("POST", ["stage-in" | "stage-out"]) if is_remote => {
            let message = format!("the attempt {attempt_id} is on another host; it is staged there, with its ticket");
            Err(bad_request(attempt_id, message).into())
        }
        ("POST", ["stage-in"]) => Ok(answer::ok(&attempts::stage_in(attempts, cause, attempt_id, call.body()?).await?)),
        ("POST", ["stage-out"]) => Ok(answer::ok(&attempts::stage_out(attempts, cause, attempt_id, call.body()?).await?)),
        ("POST", ["release"]) => Ok(answer::ok(&attempts::release(attempts, cause, attempt_id, call.body()?).await?)),
        _ => Err(unknown(call).into()),
    }
}

impl TransferStatus {
    pub fn is_over(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Cancelled)
    }
}

#[cfg(test)]
mod tests {
    use super::{wait_of, Duration};

    #[test]
    fn a_wait_is_a_number_of_seconds() {
        for (text, wait) in
            [("0", Duration::ZERO), ("-0", Duration::ZERO), ("0.5", Duration::from_millis(500)), ("1e300", Duration::from_secs(300))]
        {
            assert_eq!(wait_of(text), Some(wait), "{text}");
        }
        for text in ["nan", "NaN", "-nan", "inf", "infinity", "-inf", "-1", "-1e-9", "", "1s", "0x1", "1e999"] {
            assert_eq!(wait_of(text), None, "{text}");
        }
    }

    #[test]
    fn queries_are_decoded() {
        assert_eq!(super::percent_decoded("a%2Fb%20c%C3%A4"), "a/b cä");
        assert_eq!(super::percent_decoded("100%"), "100%");
        assert_eq!(super::percent_decoded("%zz%4"), "%zz%4");
    }
}
