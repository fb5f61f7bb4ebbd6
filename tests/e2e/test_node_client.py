"""The client of I/O nodes against a real one: each answer is understood as the value that the port promises."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from stager.adapters.ionode import IoNode as NodeClient
from stager.model.errors import ErrorClass, Refused, StagerError
from stager.runtime.wire_events import node_event, node_reported
from stager.scheduler import events as ev
from stager.wire import node as said
from tests.e2e.worker_rig import Rig
from tests.testbed.ionode import IoNode


@pytest.fixture
def rig(ionode: Callable[..., IoNode], short_dir: Path) -> Rig:
    rig = Rig(ionode(), short_dir / "state", short_dir / "origin")
    (rig.origin_dir / "one").write_bytes(b"one\n")
    (rig.origin_dir / "two").write_bytes(b"two two\n")
    return rig


SIZES = {"one": 4, "two": 8}


def fetch(path: str, transfer: str) -> dict[str, object]:
    expected = {"size_bytes": SIZES[path], "token": None, "blake3": None, "sha256": None}
    source = {"origin_id": "home", "path": path}
    return {
        "kind": "fetch",
        "file_id": f"f-{path}",
        "generation": transfer,
        "source": source,
        "expected": expected,
        "priority": 0,
        "executable": False,
    }


async def ends(client: NodeClient, count: int, after: int = 0) -> list[said.NodeEvent]:
    """So many, in the order of the node's events."""
    found: list[said.NodeEvent] = []
    while len(found) < count:
        page = await client.poll_events(found[-1].seq if found else after, wait_s=10)
        assert page.events and not page.gap
        found += page.node_events()
    return found


def test_what_is_fetched_is_told_of_and_is_part_of_the_state(rig: Rig) -> None:
    async def play() -> None:
        client = rig.client()
        about = await client.node()
        assert (about.node_id, about.incarnation, about.draining) == ("node0", rig.node.incarnation, False)
        assert (await client.put_transfer("t-1", fetch("one", "t-1"), command_id="c-1")).state in ("queued", "running", "done")
        answers = await client.put_transfers(
            [("t-2", fetch("two", "t-2"), "c-2"), ("t-3", fetch("one", "t-3") | {"source": {"origin_id": "away", "path": "one"}}, "c-3")]
        )
        assert isinstance(answers[0], said.TransferAnswer) and isinstance(answers[1], StagerError)
        told = [node_event("node0", fact) for fact in await ends(client, 2)]
        assert {event.transfer: event.size_bytes for event in told if isinstance(event, ev.TransferDone)} == {"t-1": 4, "t-2": 8}
        again = await client.put_transfer("t-1", fetch("one", "t-1"), command_id="c-1")
        assert again.state == "done" and isinstance(again.end(), said.TransferDone)
        assert {entry.transfer_id: entry.bytes_done for entry in await client.transfers()} == {"t-1": 4, "t-2": 8}
        report = node_reported("node0", await client.node(), await client.state())
        assert {seen.file: seen.size_bytes for seen in report.replicas} == {"f-one": 4, "f-two": 8} and report.transfers == ()
        client.close()

    asyncio.run(play())


def test_replicas_are_deleted_many_in_a_call_and_refused_each_for_itself(rig: Rig) -> None:
    async def play() -> None:
        client = rig.client()
        for transfer, path in (("t-1", "one"), ("t-2", "two")):
            await client.put_transfer(transfer, fetch(path, transfer), command_id=f"c-{transfer}")
        last = (await ends(client, 2))[-1].seq
        asked = [("f-one", "t-1", "c-5"), ("f two", "t-2", "c-6"), ("f-two", "t-2", "c-7"), ("f-none", "t-9", "c-8")]
        answers = await client.delete_replicas(asked)
        assert [answer and answer.code for answer in answers] == [None, "bad_request", None, None]
        told = [node_event("node0", fact) for fact in await ends(client, 2, last)]
        assert {(event.file, event.cause) for event in told if isinstance(event, ev.ReplicaDeleted)} == {("f-one", "c-5"), ("f-two", "c-7")}
        assert (await client.state()).replicas == []
        client.close()

    asyncio.run(play())


def test_what_an_origin_holds_and_what_a_node_refuses_are_values(rig: Rig) -> None:
    async def play() -> None:
        client = rig.client()
        there, gone = await client.stat("home", ["one", "none"])
        assert there.error is None and there.token and gone.error is not None
        assert (gone.error.error_class, gone.error.fault().code) == (ErrorClass.INVALID_INPUT, "not_found")
        assert await client.erase("home", "one", there.token, command_id="c-4") is True
        with pytest.raises(Refused) as caught:
            await client.put_reservation("r-1", 1 << 60)
        assert caught.value.code == "no_space_node" and caught.value.details is not None
        await client.set_capacity(2_000_000_000)
        assert (await client.node()).capacity_bytes == 2_000_000_000
        client.close()

    asyncio.run(play())
