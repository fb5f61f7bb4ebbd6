"""Files that go from node to node of a living scheduler: inputs that several nodes read, second copies, and what goes wrong meanwhile."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from stager.adapters.node_place import NodePlace
from stager.adapters.node_remote import NodeRemote
from stager.model.files import File
from stager.model.workflow import Workflow
from stager.planning.plan import Plan
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from tests.e2e.nodes_rig import Composed, found, made, on_loopback, restarted
from tests.e2e.service_rig import Rig
from tests.testbed.ionode import IoNode
from tests.testbed.link import Link, running_link

pytestmark = pytest.mark.slow
LARGE_BYTES = 6_000_000


@pytest.fixture
def rig(short_dir: Path) -> Any:
    rig = Rig(short_dir)
    yield rig
    rig.end()


def both_read(rig: Rig, content: bytes) -> Workflow:
    """A hot input, whose readers are on two nodes, one after the other."""
    files = [rig.source("hot", content), rig.final("a", len(content)), rig.final("b", len(content))]
    jobs = [rig.job("first", "cat hot > a", ("hot",), ("a",)), rig.job("second", "cat hot > b", ("hot",), ("b",))]
    return rig.workflow("hot", files, jobs)


def test_a_hot_input_crosses_the_wan_once_and_goes_from_node_to_node(rig: Rig, ionode: Callable[..., IoNode]) -> None:
    """The scheduler tells each node of the other, in each of their incarnations."""
    node, content = ionode(node_id="node1", options=on_loopback()), os.urandom(LARGE_BYTES)

    async def main() -> None:
        composed = Composed(rig)
        await composed.open(lambda epoch: [found(node, epoch)])
        await composed.all_up()
        await composed.ends(await composed.submit(both_read(rig, content), second="node1"))
        (copy,) = composed.given(cmd.CopyReplica)
        assert composed.wan_bytes() == LARGE_BYTES and copy.lfn == "hot" and {copy.node, copy.source} == {"node0", "node1"}
        assert composed.places() == {"first": "node0", "second": "node1"}
        # Both nodes are others from here on: each was told of the other anew.
        node.kill()
        node.start()
        own = composed.scheduler.node.process
        assert own.child is not None
        own.child.kill()
        await composed.until(restarted(composed, own.client.incarnation))
        await composed.all_up()
        more = os.urandom(LARGE_BYTES)
        await composed.ends(await composed.submit(both_read(rig, more), first="node1"))
        assert len(composed.given(cmd.CopyReplica)) == 2 and composed.wan_bytes() == 2 * LARGE_BYTES
        assert made(rig, "a") == made(rig, "b") == more
        await composed.close()

    asyncio.run(main())


def cached_by(rig: Rig, hot: File) -> Workflow:
    """Its reader leaves the input on its node."""
    files = [hot, rig.final("before", 10)]
    return rig.workflow("before", files, [rig.job("before", "wc -c < hot > before", ("hot",), ("before",))])


def read_by(rig: Rig, hot: File) -> Workflow:
    files = [hot, rig.final("a", LARGE_BYTES)]
    return rig.workflow("read", files, [rig.job("reader", "cat hot > a", ("hot",), ("a",))])


def damage(store: Path) -> None:
    """A bit of the one large file there."""
    (path,) = [path for path in store.rglob("*") if path.is_file() and path.stat().st_size == LARGE_BYTES]
    path.chmod(0o600)
    with path.open("r+b") as file:
        file.seek(LARGE_BYTES // 2)
        byte = file.read(1)
        file.seek(LARGE_BYTES // 2)
        file.write(bytes([byte[0] ^ 1]))


def test_a_damaged_source_is_found_out_and_the_file_comes_from_its_origin(rig: Rig, ionode: Callable[..., IoNode]) -> None:
    node, content = ionode(node_id="node1", options=on_loopback()), os.urandom(LARGE_BYTES)
    hot = rig.source("hot", content)

    async def main() -> None:
        composed = Composed(rig)
        await composed.open(lambda epoch: [found(node, epoch)])
        await composed.all_up()
        await composed.ends(await composed.submit(cached_by(rig, hot), before="node1"))
        damage(node.store)
        await composed.ends(await composed.submit(read_by(rig, hot)))
        (copy,) = {(command.source, command.node) for command in composed.given(cmd.CopyReplica)}
        assert copy == ("node1", "node0") and made(rig, "a") == content
        assert composed.wan_bytes() == 2 * LARGE_BYTES
        told = [event for batch in composed.batches() for event in batch.events if isinstance(event, ev.ReplicaCorrupt)]
        assert [event.node for event in told] == ["node1"], "it is quarantined there"
        await composed.close()

    asyncio.run(main())


@pytest.mark.parametrize("dies", ["source", "target"])
def test_a_node_that_dies_in_the_middle_of_a_copy_costs_a_copy(rig: Rig, ionode: Callable[..., IoNode], dies: str) -> None:
    """The source: the file comes from its origin. The target: the copy goes on where it was."""
    node, content = ionode(node_id="node1", options=on_loopback()), os.urandom(LARGE_BYTES)
    hot = rig.source("hot", content)

    async def main(link: Link) -> None:
        composed = Composed(rig)
        await composed.open(lambda epoch: [NodeRemote(NodePlace("node1", f"127.0.0.1:{link.port}", node.token_file), epoch)])
        await composed.all_up()
        await composed.ends(await composed.submit(cached_by(rig, hot), before="node1"))
        link.bytes_per_s = 2e6
        run = await composed.submit(read_by(rig, hot))
        own = composed.scheduler.node.process

        async def in_the_middle() -> bool:
            return any(transfer.bytes_done > 0 for transfer in await own.client.transfers())

        await composed.until(in_the_middle)
        if dies == "source":
            node.kill()
            # With what it holds of the node's answers.
            link.cut()
        else:
            assert own.child is not None
            own.child.kill()
        link.bytes_per_s = None
        await composed.ends(run)
        assert made(rig, "a") == content
        assert composed.wan_bytes() == (2 if dies == "source" else 1) * LARGE_BYTES
        await composed.close()

    with running_link(int(node.address.rpartition(":")[2])) as link:
        asyncio.run(main(link))


def test_an_intermediate_has_a_second_copy_that_a_damaged_first_one_is_made_good_from(rig: Rig, ionode: Callable[..., IoNode]) -> None:
    """Its plan wants two. The job that made it is not run again."""
    node = ionode(node_id="node1", options=on_loopback())
    files = [rig.source("in", b"x"), File("mid", size_bytes=LARGE_BYTES), rig.final("out", LARGE_BYTES)]
    jobs = [
        rig.job("first", f"head -c {LARGE_BYTES} /dev/zero | tr '\\0' x > mid", ("in",), ("mid",)),
        rig.job("between", f"until test -e {rig.gate}; do sleep 0.05; done; cat in > go", ("in",), ("go",)),
        rig.job("last", "cat mid > out", ("mid", "go"), ("out",)),
    ]
    workflow = rig.workflow("spare", [*files, File("go", size_bytes=10)], jobs)

    def two_copies(plan: Plan) -> Plan:
        return replace(plan, files=tuple(structs.replace(file, safe_copies=2 if file.lfn == "mid" else 1) for file in plan.files))

    async def main() -> None:
        composed = Composed(rig)
        await composed.open(lambda epoch: [found(node, epoch)])
        await composed.all_up()
        run = await composed.submit(workflow, two_copies)

        async def is_there() -> bool:
            return any(replica["size_bytes"] == LARGE_BYTES for replica in node.get("/v1/state")["replicas"])

        await composed.until(is_there)
        (copy,) = composed.given(cmd.CopyReplica)
        assert copy.purpose is cmd.Purpose.EXTRA_COPY and (copy.source, copy.node) == ("node0", "node1")
        damage(composed.state_dir.node_store)
        rig.gate.touch()
        await composed.ends(run)
        assert made(rig, "out") == b"x" * LARGE_BYTES and rig.ran()["first"] == 1
        assert [(command.source, command.node) for command in composed.given(cmd.CopyReplica)][1:] == [("node1", "node0")]
        await composed.close()

    asyncio.run(main())
