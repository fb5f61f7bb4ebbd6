"""A large cold file over the lines of several living I/O nodes: exact, each byte over the lines once, whatever dies meanwhile."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from tests.e2e.nodes_rig import Composed, restarted, wan_bytes_of
from tests.e2e.stripes_rig import LinesBed
from tests.testbed.network import Network, needs_network

pytestmark = pytest.mark.slow
MIB = 1 << 20
SIZE = 36 * MIB + 12345


@pytest.fixture
def net() -> Iterator[Network]:
    needs_network()
    with Network() as net:
        yield net


def is_right(bed: LinesBed, content: bytes) -> None:
    assert (bed.rig.data / "sum0").read_text().split()[0] == hashlib.sha256(content).hexdigest()


def nothing_left(composed: Composed) -> Callable[[], Awaitable[bool]]:
    """No part and no garbage: the nodes hold what the run keeps and nothing besides."""

    async def holds() -> bool:
        deleted = {(command.node, command.generation) for command in composed.given(cmd.DeleteReplica)}
        parts = {(command.node, command.transfer) for command in composed.given(cmd.Fetch) if command.stripe is not None}
        came = {event.transfer for batch in composed.batches() for event in batch.events if isinstance(event, ev.TransferDone)}
        return all(part in deleted for part in parts if part[1] in came)

    return holds


async def in_the_middle(composed: Composed, past_bytes: int) -> None:
    own = composed.scheduler.node.process

    async def holds() -> bool:
        assemblies = {command.transfer for command in composed.given(cmd.AssembleStripes)}
        return any(move.transfer_id in assemblies and move.bytes_done > past_bytes for move in await own.client.transfers())

    await composed.until(holds)


@pytest.mark.parametrize("count", [2, 4])
def test_a_cold_file_comes_over_the_lines_of_all_nodes(net: Network, short_dir: Path, count: int) -> None:
    bed = LinesBed(net, short_dir, count)
    file, content = bed.source("cold", SIZE)

    async def story(bed: LinesBed, composed: Composed) -> None:
        sent = net.sent_bytes(bed.lab)
        await composed.ends(await bed.submit(composed, bed.reading(file)))
        is_right(bed, content)
        (assembly,) = composed.given(cmd.AssembleStripes)
        assert assembly.node == "node0" and {part.node for part in assembly.parts} == {"node0", *(node.node_id for node in bed.nodes)}
        assert composed.given(cmd.GiveUpStripes) == [] and wan_bytes_of(composed.batches()) == SIZE
        # Headers of ssh, TCP and IP are in it.
        assert net.sent_bytes(bed.lab) - sent < 1.02 * SIZE
        await composed.until(nothing_left(composed))

    bed.run(story)


@pytest.mark.parametrize("dies", ["part", "assembly"])
def test_a_node_that_is_killed_in_the_middle_costs_no_more_than_it_had(net: Network, short_dir: Path, dies: str) -> None:
    bed = LinesBed(net, short_dir, 3)
    file, content = bed.source("cold", SIZE)

    async def story(bed: LinesBed, composed: Composed) -> None:
        sent = net.sent_bytes(bed.lab)
        run = await bed.submit(composed, bed.reading(file))
        await in_the_middle(composed, 8 * MIB)
        own = composed.scheduler.node.process
        if dies == "part":
            bed.nodes[0].kill()
        else:
            incarnation = own.client.incarnation
            assert own.child is not None
            own.child.kill()
            await composed.until(restarted(composed, incarnation))
        await composed.ends(run)
        is_right(bed, content)
        assert net.sent_bytes(bed.lab) - sent < 2 * SIZE
        if dies == "part":
            bed.nodes[0].start()
            await composed.all_up()
        await composed.until(nothing_left(composed))

    bed.run(story)


def test_a_file_that_changes_meanwhile_fails_the_run_by_name(net: Network, short_dir: Path) -> None:
    bed = LinesBed(net, short_dir, 2)
    file, _ = bed.source("cold", SIZE)

    async def story(bed: LinesBed, composed: Composed) -> None:
        run = await bed.submit(composed, bed.reading(file))
        await in_the_middle(composed, 4 * MIB)
        (bed.rig.data / "cold").write_bytes(os.urandom(SIZE))

        async def over() -> bool:
            return await composed.state(run) not in ("active", "draining")

        await composed.until(over)
        assert await composed.state(run) == "failed"
        given_up = composed.given(cmd.GiveUpTransfer)
        assert [command.fault.code for command in given_up] == ["source_changed"]
        assert not (bed.rig.data / "sum0").exists()

    bed.run(story)


def test_a_run_that_is_cancelled_leaves_no_part(net: Network, short_dir: Path) -> None:
    bed = LinesBed(net, short_dir, 3)
    file, _ = bed.source("cold", SIZE)

    async def story(bed: LinesBed, composed: Composed) -> None:
        run = await bed.submit(composed, bed.reading(file))
        await in_the_middle(composed, 4 * MIB)
        await composed.scheduler.services.runs.commands.end(run, ev.RunCancelled)

        async def nothing_moves() -> bool:
            states = [move["state"] for node in bed.nodes for move in node.get("/v1/transfers")["transfers"]]
            return not any(state in ("queued", "running") for state in states)

        await composed.until(nothing_moves)
        await composed.until(nothing_left(composed))

    bed.run(story)


def test_a_hot_file_crosses_the_lines_once_for_jobs_on_four_nodes(net: Network, short_dir: Path) -> None:
    bed = LinesBed(net, short_dir, 4)
    file, content = bed.source("hot", SIZE)

    async def story(bed: LinesBed, composed: Composed) -> None:
        sent = net.sent_bytes(bed.lab)
        await composed.ends(await bed.submit(composed, bed.reading(file, 4), spread=True))
        is_right(bed, content)
        assert set(composed.places().values()) == {"node0", "node1", "node2", "node3"}
        assert net.sent_bytes(bed.lab) - sent < 1.02 * SIZE

    bed.run(story)
