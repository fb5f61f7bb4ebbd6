"""A scheduler with an I/O node beside its embedded one: real nodes, a real journal, real jobs.

No node is a condition for what another does: a run goes on where the second is dead, obeys another scheduler, or dies meanwhile.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stager.adapters.ionode import IoNode as NodeClient
from stager.adapters.ionode import PeerAddress
from stager.model.errors import InvalidInput, Refused
from tests.e2e.nodes_rig import DEADLINE_S, Composed, found, made, on_loopback, one_job
from tests.e2e.service_rig import Rig
from tests.testbed.ionode import IoNode


class Dead:
    """A node on a port where nobody listens."""

    def __init__(self, node_id: str, epoch: int) -> None:
        self.node_id, self.contacts = node_id, 0
        with socket.create_server(("127.0.0.1", 0)) as closed:
            address = closed.getsockname()[:2]
        self.client = NodeClient(address, "", epoch=epoch)

    @property
    def apart(self) -> bool:
        return False

    def peer_address(self) -> PeerAddress | None:
        return None

    async def contact(self) -> NodeClient:
        self.contacts += 1
        await self.client.node()
        return self.client


@pytest.fixture
def rig(short_dir: Path) -> Any:
    rig = Rig(short_dir)
    yield rig
    rig.end()


def test_a_dead_node_beside_keeps_no_run_from_its_end(rig: Rig) -> None:
    async def main() -> None:
        composed, dead = Composed(rig), list[Dead]()

        def beside(epoch: int) -> list[Dead]:
            dead.append(Dead("node1", epoch))
            return dead

        await composed.open(beside)
        run = await composed.submit(one_job(rig, "a"))
        await composed.ends(run)
        seen = await composed.nodes()
        assert seen["node0"].connected and not seen["node0"].problem
        assert not seen["node1"].connected and not seen["node1"].excluded and "cannot connect to" in seen["node1"].problem

        async def tried_again() -> bool:
            return dead[0].contacts > 1

        await composed.until(tried_again)
        await composed.close()

    asyncio.run(main())
    assert made(rig, "a") == b"one\none\n"


def test_a_node_that_obeys_another_scheduler_is_left_alone(rig: Rig, ionode: Callable[..., IoNode]) -> None:
    node = ionode(node_id="node1", epoch=99, options=on_loopback())
    node.do("GET", "/v1/node")

    async def main() -> None:
        composed = Composed(rig)
        await composed.open(lambda epoch: [found(node, epoch)])
        await composed.ends(await composed.submit(one_job(rig, "a")))
        seen = await composed.nodes()
        assert seen["node0"].connected and seen["node1"].excluded and "epoch 99" in seen["node1"].problem
        await composed.close()

    asyncio.run(main())
    node.do("GET", "/v1/node")
    assert made(rig, "a") == b"one\none\n"


def test_a_job_waits_for_its_own_node_alone_and_its_attempt_is_taken_up_there(rig: Rig, ionode: Callable[..., IoNode]) -> None:
    """Over a death of that node and a restart of the scheduler meanwhile."""
    node = ionode(node_id="node1", options=on_loopback())

    async def main() -> None:
        composed = Composed(rig)
        await composed.open(lambda epoch: [found(node, epoch)])

        async def both_up() -> bool:
            return all(view.connected for view in (await composed.nodes()).values())

        await composed.until(both_up)
        waits = one_job(rig, "b")
        job = replace(waits.jobs["make-b"], shell=f"until test -e {rig.gate}; do sleep 0.05; done; {waits.jobs['make-b'].shell}")
        second = await composed.submit(replace(waits, jobs={job.id: job}), **{"make-b": "node1"})

        async def running() -> bool:
            status = await composed.scheduler.services.runs.status.status(second)
            return bool(status.running)

        await composed.until(running)
        assert composed.places() == {"make-b": "node1"}
        node.kill()
        # As by a crash: what is under way stays as it is.
        composed.scheduler.machine.lifetime.ended.set()
        await composed.scheduler.close()
        await composed.open(lambda epoch: [found(node, epoch)])
        await composed.ends(await composed.submit(one_job(rig, "a")))
        rig.gate.touch()
        assert await composed.state(second) == "active" and not (await composed.nodes())["node1"].connected
        node.start()
        await composed.ends(second)
        assert composed.places() == {"make-a": "node0", "make-b": "node1"}
        await composed.close()

    asyncio.run(main())
    assert [made(rig, name) for name in "ab"] == [b"one\none\n"] * 2


def test_the_embedded_node_that_obeys_another_scheduler_ends_this_one(rig: Rig, ionode: Callable[..., IoNode]) -> None:
    node = ionode(node_id="node1", options=on_loopback())

    async def main() -> None:
        composed = Composed(rig)
        scheduler = await composed.open(lambda epoch: [found(node, epoch)])
        own = scheduler.node.process.client
        other = NodeClient(own.pool.address, own.token, epoch=99, incarnation=own.incarnation)
        await other.node()
        other.close()
        lifetime = scheduler.machine.lifetime
        await composed.submit(one_job(rig, "a"))
        async with asyncio.timeout(DEADLINE_S):
            await lifetime.ended.wait()
        assert isinstance(lifetime.failure, Refused) and lifetime.failure.code == "stale_epoch"
        assert "epoch 99" in lifetime.failure.message and scheduler.node.links["node0"].excluded
        assert not scheduler.node.links["node1"].excluded
        await scheduler.close(stop_node=False)

    asyncio.run(main())


def test_two_nodes_of_one_name_are_refused(rig: Rig) -> None:
    async def main() -> None:
        composed = Composed(rig)
        with pytest.raises(InvalidInput, match="two I/O nodes are named 'node0'"):
            await composed.open(lambda epoch: [Dead("node0", epoch)])

    asyncio.run(main())


def test_the_kept_sandbox_of_a_job_has_its_inputs_of_the_node_that_it_ran_beside(rig: Rig, ionode: Callable[..., IoNode]) -> None:
    """They were called missing where the embedded node had them not."""
    node = ionode(node_id="node1", options=on_loopback())
    files = [rig.source("in", b"x" * 300_000), rig.final("out")]
    workflow = rig.workflow("fails", files, [rig.job("fails", "false", ("in",), ("out",))])

    async def main() -> None:
        composed = Composed(rig)
        await composed.open(lambda epoch: [found(node, epoch)])
        await composed.all_up()
        run = await composed.submit(workflow, fails="node1")

        async def failed() -> bool:
            return await composed.state(run) == "failed"

        await composed.until(failed)
        sandbox = await composed.scheduler.services.owner.sandboxes.of(run, "fails")
        assert not sandbox.missing and [Path(mount.target).name for mount in sandbox.mounts] == ["in"]
        assert Path(sandbox.mounts[0].source).read_bytes() == b"x" * 300_000
        node.kill()

        async def lost() -> bool:
            return not (await composed.nodes())["node1"].connected

        await composed.until(lost)
        assert (await composed.scheduler.services.owner.sandboxes.of(run, "fails")).missing == ["in"], "of a node that is away"
        await composed.close()

    asyncio.run(main())
