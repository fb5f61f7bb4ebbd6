"""The control plane's side of the wire to I/O nodes: it understands every golden message and says its own as they are written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from stager.adapters.ionode import error_of, is_lost
from stager.adapters.origin_config import resolve
from stager.model.errors import Corrupt, Fault, InvalidInput, Refused, Transient
from stager.model.workflow import Origin, OriginKind
from stager.planning.transport import part_bytes
from stager.runtime.node_calls import copy_body, made_s_ago, transfer_body
from stager.runtime.wire_events import node_event, node_reported, replicas_seen
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.wire import node as said
from stager.wire.node import EventPage, NodeAbout, NodeEvent, NodeReplica, NodeState, decode_event
from tests.testbed.places import needed_program

WIRE = Path(__file__).parent / "wire"
HASH = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"


def golden(name: str) -> Any:
    return json.loads((WIRE / f"{name}.json").read_text())


def told(name: str) -> NodeEvent:
    return decode_event((WIRE / f"{name}.json").read_bytes())


def replicas(*written: dict[str, Any]) -> tuple[ev.ReplicaSeen, ...]:
    return replicas_seen(msgspec.convert(written, list[NodeReplica]))


def reported(state: dict[str, Any]) -> ev.NodeReported:
    return node_reported("node0", msgspec.convert(golden("node.response"), NodeAbout), msgspec.convert(state, NodeState))


def test_the_end_of_a_fetch() -> None:
    event = node_event("node0", told("event.transfer_done.fetch"))
    token = "m=1763629200000000000;s=1048576"
    size = 1048576
    moved = {"bytes_moved": size, "duration_s": 0.25}
    assert event == ev.TransferDone(
        at=0.0, cause="c-900", node="node0", transfer="t-17", size_bytes=size, blake3=HASH, token=token, **moved
    )


def test_the_end_of_an_upload_says_how_it_was_verified() -> None:
    event = node_event("node0", told("event.transfer_done.upload"))
    assert isinstance(event, ev.TransferDone)
    assert (event.verified, event.synced, event.token) == ("readback", "content_and_name", "m=1763629300;s=20")


def test_the_end_of_a_copy_and_of_a_chain_are_ends_of_transfers() -> None:
    for name, transfer in [("copy", "t-30"), ("replicas", "t-31")]:
        event = node_event("node1", told(f"event.transfer_done.{name}"))
        assert isinstance(event, ev.TransferDone) and (event.transfer, event.blake3, event.node) == (transfer, HASH, "node1")
    event = node_event("node0", told("event.transfer_failed.replicas"))
    assert isinstance(event, ev.TransferFailed) and (event.fault.code, event.fault.error_class) == ("replication_failed", "transient")


def test_the_end_of_an_async_chain_is_of_no_concern_to_a_scheduler_of_one_node() -> None:
    assert node_event("node0", told("event.replicated")) is None


def test_a_failed_transfer() -> None:
    event = node_event("node0", told("event.transfer_failed"))
    assert isinstance(event, ev.TransferFailed)
    assert (event.transfer, event.fault.error_class, event.fault.code) == ("t-19", "transient", "connection_lost")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("event.transfer_cancelled", ev.TransferCancelled(at=0.0, cause="c-903", node="node0", transfer="t-20")),
        ("event.replica_deleted", ev.ReplicaDeleted(at=0.0, cause="c-904", node="node0", file="f-raw-01", generation="t-17")),
        ("event.space", ev.CapacityChanged(at=0.0, cause="", node="node0", capacity_bytes=107374182400)),
    ],
)
def test_plain_events(name: str, expected: ev.Event) -> None:
    assert node_event("node0", told(name)) == expected


def test_a_corrupt_replica() -> None:
    event = node_event("node0", told("event.replica_corrupt"))
    assert isinstance(event, ev.ReplicaCorrupt)
    assert (event.file, event.generation, event.fault.error_class) == ("f-raw-01", "t-17", "corrupt")


def test_every_golden_event_is_understood_and_a_newer_kind_is_left_out() -> None:
    page = msgspec.json.decode((WIRE / "events.response.json").read_bytes(), type=EventPage)
    assert all(node_event("node0", fact) is not None for fact in page.node_events())
    of_tomorrow = golden("events.response")["events"][0] | {"kind": "of_tomorrow"}
    assert node_event("node0", decode_event(json.dumps(of_tomorrow).encode())) is None


def test_the_report_names_transfers_that_have_not_ended_and_no_others() -> None:
    event = reported(golden("state.response"))
    assert event.transfers == ("t-21", "t-22")
    assert event.incarnation == "8f14e45fceea167a5a36dedd4bea2543"
    assert (event.capacity_bytes, event.can_link) == (107374182400, True)
    assert event.replicas[0] == ev.ReplicaSeen("f-raw-01", "t-17", 1048576, HASH, False)


def test_a_quarantined_replica_is_reported_as_such() -> None:
    state = golden("state.response")
    state["replicas"][0]["state"] = "quarantined"
    assert reported(state).replicas[0].quarantined


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("node.response", said.NodeAbout),
        ("state.response", said.NodeState),
        ("transfers.response", said.NodeTransfers),
        ("transfer.response", said.TransferAnswer),
        ("transfer_done.response", said.TransferAnswer),
        ("transfers_asked.response", said.AskedAnswers),
        ("replicas_deleted.response", said.DeletedAnswers),
        ("origin_stat.response", said.StatAnswer),
        ("origin_probe.response", said.ProbeAnswer),
        ("origin_erase.response", said.EraseAnswer),
        ("mount.response", said.MountAnswer),
        ("stage_in.response", said.StagedIn),
        ("stage_out.response", said.StagedOut),
        ("stage_out.replicas.response", said.StagedOut),
        ("release.response", said.Released),
        ("release_direct.response", said.Released),
        ("empty.response", said.NoAnswer),
        ("capacity.response", said.NoAnswer),
    ],
)
def test_answers_are_understood_as_they_are_written(name: str, kind: type[said.NodeMessage]) -> None:
    answer = msgspec.json.decode((WIRE / f"{name}.json").read_bytes(), type=kind)
    assert same(json.loads(msgspec.json.encode(answer)), golden(name))


def test_the_answer_to_a_transfer_that_has_ended_says_how() -> None:
    def end(name: str) -> NodeEvent | None:
        return msgspec.json.decode((WIRE / f"{name}.json").read_bytes(), type=said.TransferAnswer).end()

    assert end("transfer.response") is None
    assert isinstance(end("transfer_done.response"), said.TransferDone) and isinstance(end("transfer_failed.response"), said.TransferFailed)


def same(value: Any, written: Any) -> bool:
    """As far as this side reads it."""
    if isinstance(value, dict):
        return all(same(value[key], written[key]) for key in value if key in written)
    if isinstance(value, list):
        return len(value) == len(written) and all(map(same, value, written))
    return bool(value == written)


@pytest.mark.parametrize(
    ("name", "status", "kind", "code"),
    [
        ("error.response", 507, Refused, "no_space_node"),
        ("error.stale_epoch.response", 409, Refused, "stale_epoch"),
        ("error.outputs_missing.response", 422, InvalidInput, "outputs_missing"),
        ("error.output_escapes.response", 422, InvalidInput, "output_escapes"),
    ],
)
def test_errors_keep_class_and_code(name: str, status: int, kind: type, code: str) -> None:
    error = error_of(status, (WIRE / f"{name}.json").read_bytes())
    assert type(error) is kind and error.code == code and error.message


def test_an_error_brings_what_else_was_said() -> None:
    error = error_of(409, (WIRE / "error.exceeds_reservation.response.json").read_bytes())
    assert error.details["needed_bytes"] == 2097152


def test_an_answer_that_is_no_error_of_ours_is_transient() -> None:
    assert type(error_of(502, b"<html>")) is Transient
    assert type(error_of(500, b'{"error": {"class": "corrupt", "code": "x", "message": "m"}}')) is Corrupt


def test_only_a_lost_node_is_lost() -> None:
    assert is_lost(Transient("", code="connection_lost")) and is_lost(Refused("", code="stale_incarnation"))
    assert not is_lost(Refused("", code="no_space_node")) and not is_lost(Transient("", code="timeout"))


def test_the_bodies_of_transfers_are_the_golden_ones() -> None:
    fetch = cmd.Fetch(
        id="c-900", at=0.0, cause="e1", node="node0", transfer="t-17", file="f-raw-01", lfn="one", run="r", origin="lab",
        path="raw/one.fits",
        size_bytes=1048576, token="m=1763629200000000000;s=1048576", purpose=cmd.Purpose.PREFETCH, priority=10,
    )  # fmt: skip
    upload = cmd.Upload(
        id="c-901", at=0.0, cause="e1", node="node0", transfer="t-18", file="f-mosaic", generation="a-9.1", lfn="mosaic", run="r",
        origin="lab",
        path="out/mosaic.fits", size_bytes=20, purpose=cmd.Purpose.FINAL, priority=12,
    )  # fmt: skip
    copy = cmd.CopyReplica(
        id="c-907", at=0.0, cause="e1", node="node0", transfer="t-30", file="f-raw-01", lfn="one", run="r", source="node1",
        source_generation="t-17", size_bytes=1048576, purpose=cmd.Purpose.DEMAND, priority=5,
        blake3="af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262",
    )  # fmt: skip
    said = golden("transfer_copy.request")
    assert copy_body(copy, 5) == said | {"sources": said["sources"][:1]}
    assert transfer_body(fetch, "lab", 10) == golden("transfer_fetch.request")
    assert transfer_body(upload, "lab", 12) == golden("transfer_upload.request")
    late = transfer_body(replace(upload, replace=True), "lab", 12) | {"made_s_ago": made_s_ago(100.5, 1000.1)}
    assert late == golden("transfer_upload.late.request")


def test_the_body_of_a_part_is_the_golden_one_and_names_the_size_of_the_whole() -> None:
    part = cmd.Fetch(
        id="c-910", at=0.0, cause="e1", node="node0", transfer="t-41", file="f-raw-01", lfn="one", run="r", origin="lab",
        path="raw/one.fits", size_bytes=25165824, token="m=1763629200000000000;s=104857600", purpose=cmd.Purpose.PREFETCH, priority=10,
        stripe=cmd.Stripe(1, 4, 8388608, 104857600, "t-40", "node1"),
    )  # fmt: skip
    assert transfer_body(part, "lab", 10) == golden("transfer_fetch.stripe.request")
    held = golden("replica.stripes.response")
    assert part.size_bytes == part_bytes(104857600, 1, 4, 8388608) == held["size_bytes"]
    whole = golden("replica.file.response")
    assert [seen.part for seen in replicas(held, whole)] == [True, False]


def test_the_body_of_a_part_is_the_golden_one_and_what_it_made_is_reported_as_a_part() -> None:
    part = cmd.Fetch(
        id="c-910", at=0.0, cause="e1", node="node0", transfer="t-41", file="f-raw-01", lfn="one", run="r", origin="lab",
        path="raw/one.fits", size_bytes=25165824, token="m=1763629200000000000;s=104857600", purpose=cmd.Purpose.PREFETCH, priority=10,
        stripe=cmd.Stripe(1, 4, 8388608, 104857600, "t-40", "node1"),
    )  # fmt: skip
    assert transfer_body(part, "lab", 10) == golden("transfer_fetch.stripe.request")
    held = golden("replica.stripes.response")
    assert part.size_bytes == part_bytes(104857600, 1, 4, 8388608) == held["size_bytes"]
    assert [seen.part for seen in replicas_seen(msgspec.convert([held, golden("replica.file.response")], list[NodeReplica]))] == [
        True,
        False,
    ]


def test_what_is_assembled_of_parts_is_the_golden_fetch() -> None:
    assembly = cmd.AssembleStripes(
        id="c-911", at=0.0, cause="e1", node="node0", transfer="t-40", file="f-raw-01", lfn="one", run="r", origin="lab",
        path="raw/one.fits", size_bytes=104857600, token="m=1763629200000000000;s=104857600", purpose=cmd.Purpose.DEMAND, priority=1,
        parts=(cmd.Part("node1", "t-40.0", 54525952), cmd.Part("node0", "t-40.1", 50331648)),
    )  # fmt: skip
    assert transfer_body(assembly, "lab", 1) == golden("transfer_fetch.parts.request")


def test_a_real_node_says_that_it_can_assemble_parts_and_one_of_an_older_version_does_not() -> None:
    """The Machine gives parts only to a node that can, whatever a plan says (tests/sim/test_stripes.py)."""
    assert reported(golden("state.response")).can_assemble
    about = {key: value for key, value in golden("node.response").items() if key != "can_assemble"}
    assert not msgspec.convert(about, NodeAbout).can_assemble


def test_the_configuration_of_an_s3_origin_has_the_golden_keys() -> None:
    options = (("endpoint", "http://127.0.0.1:7070"), ("allow_http", "true"), ("bandwidth", "12.5 MB"), ("region", "eu-west-1"))
    origin = Origin("lab", OriginKind.S3, "s3://survey/raw", "env:LAB", options)
    environ = {"LAB_ACCESS_KEY_ID": "EXAMPLEKEY", "LAB_SECRET_ACCESS_KEY": "example-secret"}
    assert resolve(origin, environ) == golden("origin.s3.request")


def test_the_configuration_of_an_http_origin_is_the_golden_one() -> None:
    options = (("bandwidth", "12.5 MB"), ("ca_file", "/etc/stager/archive-ca.pem"), ("connections_max", "8"), ("public_only", "true"))
    origin = Origin("web", OriginKind.HTTP, "https://archive.example.org/dr17", "env:WEB", options)
    assert resolve(origin, {"WEB_USER": "reader", "WEB_PASSWORD": "example-secret"}) == golden("origin.http.request")


def test_the_configuration_of_a_file_origin_is_the_golden_one() -> None:
    assert resolve(Origin("lab", OriginKind.FILE, "file:///srv/data/"), {}) == golden("origin.file.request")


@pytest.mark.parametrize("kind", [OriginKind.SFTP, OriginKind.SSHFS])
def test_the_configuration_of_an_ssh_origin_has_the_golden_keys(kind: OriginKind, tmp_path: Path) -> None:
    needed_program("ssh", "openssh-client")
    config = tmp_path / "config"
    config.write_text("Host lab.example.org\n  User ana\n")
    said = resolve(
        Origin("lab", kind, f"{kind.value}://lab.example.org/~/data/survey"), {"STAGER_SSH_CONFIG": str(config), "PATH": "/usr/bin:/bin"}
    )
    expected = golden(f"origin.{kind.value}.request")
    optional = {"bandwidth_bytes_per_s_max"}
    assert set(said) | optional == set(expected)
    assert {key: said[key] for key in ("kind", "host", "port", "user", "base_path")} == {
        key: expected[key] for key in ("kind", "host", "port", "user", "base_path")
    }


def test_faults_travel_whole() -> None:
    event = node_event("node0", told("event.transfer_failed"))
    assert isinstance(event, ev.TransferFailed) and isinstance(event.fault, Fault) and event.fault.subject == "raw/two.fits"
