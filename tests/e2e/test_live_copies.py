"""Files that go from node to node of a living scheduler: inputs that several nodes read, second copies, and what goes wrong meanwhile."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stager.model.workflow import Workflow
from stager.scheduler import commands as cmd
from tests.e2e.nodes_rig import Composed, found, made, on_loopback
from tests.e2e.service_rig import Rig
from tests.testbed.ionode import IoNode

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


def restarted(composed: Composed, incarnation: str) -> Callable[[], Any]:
    async def holds() -> bool:
        return composed.scheduler.node.process.client.incarnation != incarnation

    return holds
