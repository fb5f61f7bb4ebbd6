"""Nodes that leave a living scheduler for good: drained, forgotten, replaced by another store, and back as a stranger."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stager import wire
from stager.adapters.node_place import NodePlace
from stager.adapters.node_remote import NodeRemote
from stager.model.errors import InvalidInput, Refused
from stager.model.files import File
from stager.model.workflow import Workflow
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from tests.e2e.nodes_rig import Composed, found, made, on_loopback
from tests.e2e.service_rig import Rig
from tests.testbed.ionode import IoNode

pytestmark = pytest.mark.slow
LARGE_BYTES = 3_000_000


@pytest.fixture
def rig(short_dir: Path) -> Any:
    rig = Rig(short_dir)
    yield rig
    rig.end()


def halted(rig: Rig, content: bytes) -> Workflow:
    """What `first` makes on its node is read by `last` once the gate is there; `between` holds the run up."""
    files = [rig.source("in", content), File("mid", size_bytes=len(content)), File("go", size_bytes=10), rig.final("out", len(content))]
    jobs = [
        rig.job("first", "cat in > mid", ("in",), ("mid",)),
        rig.job("between", f"until test -e {rig.gate}; do sleep 0.05; done; echo > go", (), ("go",)),
        rig.job("last", "cat mid > out", ("mid", "go"), ("out",)),
    ]
    return rig.workflow("halted", files, jobs)


def holds(node: IoNode, size_bytes: int) -> int:
    return sum(replica["size_bytes"] == size_bytes for replica in node.get("/v1/state")["replicas"])


class Halted:
    """A run of which an intermediate, and the input that it was made of, lie on node1 only."""

    def __init__(self, rig: Rig, node: IoNode) -> None:
        self.rig, self.node, self.content = rig, node, os.urandom(LARGE_BYTES)
        self.composed = Composed(rig)
        self.run = ""

    async def begin(self) -> None:
        await self.composed.open(lambda epoch: [found(self.node, epoch)])
        await self.composed.all_up()
        self.run = await self.composed.submit(halted(self.rig, self.content), first="node1", last="node1")

        async def is_made() -> bool:
            return (await self.composed.scheduler.services.runs.status.status(self.run)).jobs.get("done") == 1

        await self.composed.until(is_made)

    @property
    def nodes(self) -> Any:
        return self.composed.scheduler.services.runs.nodes

    async def view(self, node: str = "node1") -> wire.NodeView:
        return next(view for view in await self.nodes.listed() if view.node == node)

    async def in_state(self, state: str) -> None:
        async def there() -> bool:
            return (await self.view()).state == state

        await self.composed.until(there)

    async def end(self) -> None:
        self.rig.gate.touch()
        await self.composed.ends(self.run)
        assert made(self.rig, "out") == self.content
        await self.composed.close()


def test_a_forgotten_node_s_files_are_made_again_and_it_comes_back_as_a_stranger(rig: Rig, ionode: Callable[..., IoNode]) -> None:
    """Its input is kept: it is not fetched again. What was made there is deleted."""
    node = ionode(node_id="node1", options=on_loopback())
    halted = Halted(rig, node)

    async def main() -> None:
        await halted.begin()
        store = (await halted.view()).store_id
        assert len(store) == 32
        with pytest.raises(Refused, match="only it holds 1 file ") as refused:
            await halted.nodes.forget("node1", wire.NodeForget(), "me")
        assert refused.value.code == "node_unsafe"
        node.kill()
        await halted.in_state("away")
        before = await halted.nodes.forget("node1", wire.NodeForget(dry_run=True), "me")
        assert (before.files, before.size_bytes, before.forgotten) == (["mid"], LARGE_BYTES, False)
        await halted.nodes.forget("node1", wire.NodeForget(why="its disk died"), "me")
        await halted.in_state("gone")
        assert (await halted.view()).why == "its disk died (by me)"

        async def again() -> bool:
            return rig.ran().get("first") == 2

        await halted.composed.until(again)
        assert halted.composed.places()["first"] == "node0"
        node.start()
        await halted.in_state("up")
        back = await halted.view()
        assert back.store_id == store

        async def deleted() -> bool:
            return holds(node, LARGE_BYTES) == 1

        await halted.composed.until(deleted)
        await halted.end()
        assert halted.composed.wan_bytes() <= 2 * LARGE_BYTES
        assert rig.ran()["first"] == 2

    asyncio.run(main())


def test_a_node_with_another_store_has_lost_what_it_held(rig: Rig, ionode: Callable[..., IoNode]) -> None:
    node = ionode(node_id="node1", options=on_loopback())
    halted = Halted(rig, node)

    async def main() -> None:
        await halted.begin()
        store = (await halted.view()).store_id
        node.kill()
        shutil.rmtree(node.store)
        node.start()

        async def another() -> bool:
            view = await halted.view()
            return view.state == "up" and view.store_id not in ("", store)

        await halted.composed.until(another)
        await halted.end()
        assert rig.ran()["first"] == 2

    asyncio.run(main())


def test_a_drained_node_gives_away_what_only_it_holds_and_is_forgotten_without_a_loss(rig: Rig, ionode: Callable[..., IoNode]) -> None:
    """Nothing is made again. Though it answers still, it does not come back by itself."""
    node = ionode(node_id="node1", options=on_loopback())
    halted = Halted(rig, node)

    async def main() -> None:
        await halted.begin()
        with pytest.raises(InvalidInput, match="no node 'node7'"):
            await halted.nodes.drain("node7", wire.NodeDrain())
        view = await halted.nodes.drain("node1", wire.NodeDrain())
        assert view.state == "draining" and view.connected
        with pytest.raises(Refused, match="no other node answers") as refused:
            await halted.nodes.drain("node0", wire.NodeDrain())
        assert refused.value.code == "last_node"

        async def is_safe() -> bool:
            return (await halted.view()).unsafe_files == 0

        await halted.composed.until(is_safe)
        loss = await halted.nodes.forget("node1", wire.NodeForget(), "me")
        assert (loss.files_total, loss.jobs_running, loss.forgotten) == (0, 0, True)
        await halted.in_state("gone")
        await asyncio.sleep(0.3)
        assert (await halted.view()).state == "gone" and not (await halted.view()).connected
        await halted.end()
        assert rig.ran()["first"] == 1
        assert [event.node for batch in halted.composed.batches() for event in batch.events if isinstance(event, ev.NodeGone)] == ["node1"]
        assert not [command for command in halted.composed.given(cmd.StartAttempt) if command.job == "last" and command.node == "node1"]

    asyncio.run(main())


def test_a_job_beside_a_node_that_is_forgotten_runs_again_elsewhere(rig: Rig, ionode: Callable[..., IoNode]) -> None:
    """Its attempt does not wait for the node, and the scheduler can end."""
    node = ionode(node_id="node1", options=on_loopback())

    async def main() -> None:
        composed = Composed(rig)
        await composed.open(lambda epoch: [found(node, epoch)])
        await composed.all_up()
        files = [rig.source("in", b"one\n"), rig.final("out", 10)]
        shell = f"until test -e {rig.gate}; do sleep 0.05; done; cat in > out"
        run = await composed.submit(rig.workflow("long", files, [rig.job("long", shell, ("in",), ("out",))]), long="node1")

        async def runs(times: int = 1) -> bool:
            return rig.ran().get("long") == times

        await composed.until(runs)
        node.kill()

        async def is_away() -> bool:
            return not (await composed.nodes())["node1"].connected

        await composed.until(is_away)
        loss = await composed.scheduler.services.runs.nodes.forget("node1", wire.NodeForget(), "me")
        assert (loss.jobs_running, loss.files_total) == (1, 0)
        await composed.until(lambda: runs(2))
        rig.gate.touch()
        await composed.ends(run)
        assert made(rig, "out") == b"one\n" and composed.places()["long"] == "node0"

        async def none_left() -> bool:
            return not composed.scheduler.machine.past.outstanding.attempts

        await composed.until(none_left)
        await composed.close()

    asyncio.run(main())


def test_a_drain_is_taken_back(rig: Rig, ionode: Callable[..., IoNode]) -> None:
    node = ionode(node_id="node1", options=on_loopback())
    halted = Halted(rig, node)

    async def main() -> None:
        await halted.begin()
        await halted.nodes.drain("node1", wire.NodeDrain())
        assert (await halted.nodes.drain("node1", wire.NodeDrain(undo=True))).state == "up"
        await halted.end()
        assert rig.ran()["first"] == 1

    asyncio.run(main())


def test_a_copied_store_is_refused_by_name(rig: Rig, ionode: Callable[..., IoNode]) -> None:
    first, second = ionode(node_id="node1", options=on_loopback()), ionode(node_id="node2", options=on_loopback())
    for node in (first, second):
        node.kill()
    shutil.rmtree(second.store)
    shutil.copytree(first.store, second.store)
    for node in (first, second):
        node.start()

    async def main() -> None:
        composed = Composed(rig)
        await composed.open(lambda epoch: [found(first, epoch), NodeRemote(NodePlace("node2", second.address, second.token_file), epoch)])

        async def one_is_refused() -> bool:
            return sum("has the store of" in view.problem for view in (await composed.nodes()).values()) == 1

        await composed.until(one_is_refused)
        views = await composed.nodes()
        refused = next(view for view in views.values() if view.problem)
        other = {"node1": "node2", "node2": "node1"}[refused.node]
        assert f"the node {refused.node} has the store of the node {other}" in refused.problem and views[other].connected
        assert not refused.connected
        await composed.close()

    asyncio.run(main())
