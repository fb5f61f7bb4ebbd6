//! The golden messages of tests/conformance/wire: each is parsed by its type and written back unchanged.
//!
//! The one rule: a file there without a type here, or the other way round, fails.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::Serialize;
use serde_json::Value;
use stager_core::replica::Replica;
use stager_node::peers::forgotten::ForgottenRequest;
use stager_node::peers::PeerRequest;
use stager_node::stripes::StripeManifest;
use stager_node::wire::*;
use stager_origins::{OriginConfig, Probe};

fn golden() -> BTreeMap<String, Value> {
    let directory = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("run by cargo")).join("../../tests/conformance/wire");
    let entries = std::fs::read_dir(&directory).expect("the golden messages are in the repository");
    entries
        .map(|entry| {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
            (name, value)
        })
        .collect()
}

type Check = fn(&str, &Value);

fn whole<T: DeserializeOwned + Serialize>(name: &str, value: &Value) {
    let parsed: T = serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(&serde_json::to_value(parsed).unwrap(), value, "{name} is not written back as it was");
}

/// As `whole`; and a field that nobody knows is refused.
fn request<T: DeserializeOwned + Serialize>(name: &str, value: &Value) {
    whole::<T>(name, value);
    refuses_more::<T>(name, value);
}

fn refuses_more<T: DeserializeOwned>(name: &str, value: &Value) {
    let mut more = value.clone();
    more.as_object_mut().unwrap().insert("surprise".into(), Value::Bool(true));
    assert!(serde_json::from_value::<T>(more).is_err(), "{name} takes an unknown field");
}

/// Origins hold secrets and are therefore never written.
fn origin(name: &str, value: &Value) {
    let config: OriginConfig = serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert!(!format!("{config:?}").contains("example-secret"), "{name} shows its secret");
    refuses_more::<OriginConfig>(name, value);
}

/// So do peers.
fn peer(name: &str, value: &Value) {
    let request: PeerRequest = serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert!(!format!("{request:?}").contains("example-secret"), "{name} shows its secret");
    refuses_more::<PeerRequest>(name, value);
}

fn parsed<T: DeserializeOwned>(name: &str, value: &Value) {
    serde_json::from_value::<T>(value.clone()).unwrap_or_else(|error| panic!("{name}: {error}"));
}

const REQUESTS: &[(&str, Check)] = &[
    ("attempt_open.request.json", request::<OpenRequest>),
    ("attempt_outputs.request.json", request::<OutputsRequest>),
    ("attempt_commit.request.json", request::<CommitRequest>),
    ("attempt_release.request.json", request::<RemoteRelease>),
    ("capacity.request.json", request::<CapacityRequest>),
    ("events_ack.request.json", request::<AckRequest>),
    ("origin.file.request.json", origin),
    ("origin.http.request.json", origin),
    ("origin.s3.request.json", origin),
    ("origin.sftp.request.json", origin),
    ("origin.sshfs.request.json", origin),
    ("origin_erase.request.json", request::<EraseRequest>),
    ("origin_ready.request.json", request::<ReadyRequest>),
    ("origin_list.request.json", request::<ListRequest>),
    ("origin_probe.request.json", request::<ProbeRequest>),
    ("origin_allowance.request.json", request::<AllowanceRequest>),
    ("origin_stat.request.json", request::<StatRequest>),
    ("origin_verify.request.json", request::<VerifyRequest>),
    ("peer.request.json", peer),
    ("forgotten.request.json", request::<ForgottenRequest>),
    ("release.request.json", request::<ReleaseRequest>),
    ("reservation.request.json", request::<ReservationRequest>),
    ("shutdown.request.json", request::<ShutdownRequest>),
    ("stage_in.request.json", request::<StageInRequest>),
    ("stage_out.replicas.request.json", request::<StageOutRequest>),
    ("stage_in_direct.request.json", request::<StageInRequest>),
    ("stage_out.request.json", request::<StageOutRequest>),
    ("transfer_copy.following.request.json", request::<TransferRequest>),
    ("transfer_copy.request.json", request::<TransferRequest>),
    ("transfer_fetch.replicas.request.json", request::<TransferRequest>),
    ("transfer_fetch.parts.request.json", request::<TransferRequest>),
    ("transfer_fetch.stripe.request.json", request::<TransferRequest>),
    ("transfer_push.request.json", request::<TransferRequest>),
    ("transfer_fetch.request.json", request::<TransferRequest>),
    ("replicas_delete.request.json", request::<DeletesRequest>),
    ("transfers_asked.request.json", request::<TransfersRequest>),
    ("transfer_upload.request.json", request::<TransferRequest>),
    ("transfer_upload.late.request.json", request::<TransferRequest>),
];

const ANSWERS: &[(&str, Check)] = &[
    ("attempt.response.json", whole::<AttemptAnswer>),
    ("attempt_open.response.json", whole::<OpenAnswer>),
    ("attempt_brief.response.json", whole::<BriefAnswer>),
    ("attempt_outputs.response.json", whole::<OutputsAnswer>),
    ("attempt_close.response.json", whole::<CloseAnswer>),
    ("state.attempts.response.json", whole::<StateAnswer>),
    ("capacity.response.json", whole::<SpaceAnswer>),
    ("empty.response.json", request::<Empty>),
    ("error.exceeds_reservation.response.json", whole::<ErrorAnswer>),
    ("error.output_escapes.response.json", whole::<ErrorAnswer>),
    ("error.outputs_missing.response.json", whole::<ErrorAnswer>),
    ("error.response.json", whole::<ErrorAnswer>),
    ("error.stale_epoch.response.json", whole::<ErrorAnswer>),
    ("error.stripe_not_here.response.json", whole::<ErrorAnswer>),
    ("push_content.response.json", whole::<PushAnswer>),
    ("replica.stripes.response.json", whole::<Replica>),
    ("replica_manifest.stripes.response.json", whole::<StripeManifest>),
    ("replica_source.stripes.response.json", whole::<SourceAnswer>),
    ("event.replica_corrupt.json", whole::<Event>),
    ("event.replica_deleted.json", whole::<Event>),
    ("event.replicated.json", whole::<Event>),
    ("event.space.json", whole::<Event>),
    ("event.transfer_cancelled.json", whole::<Event>),
    ("event.transfer_done.copy.json", whole::<Event>),
    ("event.transfer_done.fetch.json", whole::<Event>),
    ("event.transfer_done.replicas.json", whole::<Event>),
    ("event.transfer_done.upload.json", whole::<Event>),
    ("event.transfer_failed.json", whole::<Event>),
    ("event.transfer_failed.replicas.json", whole::<Event>),
    ("events.response.json", whole::<EventsAnswer>),
    ("node.response.json", whole::<NodeStatus>),
    ("origin_erase.response.json", whole::<EraseAnswer>),
    ("origin_list.response.json", whole::<stager_origins::Listing>),
    ("origin_probe.response.json", whole::<Probe>),
    ("origin_allowance.response.json", whole::<AllowanceAnswer>),
    ("origin_stat.response.json", whole::<StatAnswer>),
    ("origin_verify.response.json", parsed::<Value>),
    ("mount.response.json", whole::<MountAnswer>),
    ("mounts.response.json", whole::<MountsAnswer>),
    ("release.response.json", whole::<ReleaseAnswer>),
    ("release_direct.response.json", whole::<ReleaseAnswer>),
    ("rendezvous.json", whole::<Rendezvous>),
    ("replica.directory.response.json", whole::<Replica>),
    ("replica.file.response.json", whole::<Replica>),
    ("replica_source.growing.response.json", whole::<SourceAnswer>),
    ("replica_source.response.json", whole::<SourceAnswer>),
    ("replica_verify.response.json", whole::<MatchAnswer>),
    ("reservation.response.json", whole::<Reservation>),
    ("stage_in.response.json", whole::<StageInAnswer>),
    ("stage_out.replicas.response.json", whole::<StageOutAnswer>),
    ("stage_out.response.json", whole::<StageOutAnswer>),
    ("state.response.json", whole::<StateAnswer>),
    ("transfer.response.json", whole::<TransferAnswer>),
    ("transfer_done.response.json", whole::<TransferAnswer>),
    ("transfer_failed.response.json", whole::<TransferAnswer>),
    ("replicas_deleted.response.json", whole::<DeletedAnswers>),
    ("transfers_asked.response.json", whole::<AskedAnswers>),
    ("transfers.response.json", whole::<TransfersAnswer>),
];

/// The reaper's own: its crate parses them.
const OF_THE_REAPER: &[&str] = &["reaper_result.json", "reaper_spec.json"];

#[test]
fn every_golden_message_is_parsed_and_written_back() {
    let mut golden = golden();
    for name in OF_THE_REAPER {
        assert!(golden.remove(*name).is_some(), "{name} is missing");
    }
    for (name, check) in REQUESTS.iter().chain(ANSWERS) {
        check(name, &golden.remove(*name).unwrap_or_else(|| panic!("{name} is missing")));
    }
    assert!(golden.is_empty(), "no type is checked against {:?}", golden.keys());
}

/// The type is written, not read, by the node: its fields are compared by hand.
#[test]
fn the_answer_of_an_origin_verify_is_the_golden_one() {
    let answer = stager_origins::VerifyAnswer {
        matches: true,
        size_bytes: 20,
        blake3: "d74981efa70a0c880b8d8c1985d075dbcbf679b99a5f9914e5aaf96b831a9e24".into(),
        token: "m=1763629300;s=20".into(),
        method: stager_origins::Verified::Readback,
    };
    assert_eq!(serde_json::to_value(answer).unwrap(), golden()["origin_verify.response.json"]);
}
