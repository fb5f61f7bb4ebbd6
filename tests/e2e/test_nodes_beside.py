"""A scheduler with an I/O node beside its embedded one, composed here as the service does it: real nodes, a real journal, real jobs.

No node is a condition for what another does: a run goes on where the second is dead, obeys another scheduler, or dies meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from stager import wire
from stager.adapters.ionode import IoNode as NodeClient
from stager.adapters.journal_sqlite import SqliteJournal
from stager.model.errors import InvalidInput, Refused, Transient
from stager.model.topology import Node, Topology
from stager.model.workflow import Workflow
from stager.planning.make_plan import make_plan
from stager.planning.policy import Limits
from stager.runtime.clock import SteadyClock
from stager.runtime.node_link import NodeSource
from stager.scheduler import commands as cmd
from stager.service.app import Scheduler, limits_of, opened
from stager.service.lifetime import Lifetime
from stager.service.replaying import replayed
from stager.service.settings import Settings
from stager.service.state_dir import StateDir
from stager.service.stores import open_stores
from tests.e2e.service_rig import CAPACITY_BYTES, Rig
from tests.testbed.ionode import IoNode
from tests.testbed.places import ionode_binary

LIMITS = Limits(cores=2)
DEADLINE_S = 60.0


class Dead:
    """A node on a port where nobody listens."""

    def __init__(self, node_id: str, epoch: int) -> None:
        self.node_id, self.contacts = node_id, 0
        with socket.create_server(("127.0.0.1", 0)) as closed:
            address = closed.getsockname()[:2]
        self.client = NodeClient(address, "", epoch=epoch)

    async def contact(self) -> NodeClient:
        self.contacts += 1
        await self.client.node()
        return self.client


class Found:
    """A living node that somebody else started."""

    def __init__(self, node: IoNode, epoch: int) -> None:
        self.node, self.node_id = node, node.node_id
        self.client = NodeClient(Path(node.rendezvous["socket"]), "", epoch=epoch)

    async def contact(self) -> NodeClient:
        try:
            said = json.loads((self.node.store / "rendezvous.json").read_text())
            self.client.meet(Path(said["socket"]), Path(said["token_file"]).read_text().strip(), said["incarnation"])
        except (OSError, ValueError) as problem:
            raise Transient(f"{self.node_id} is not there yet: {problem}", code="connection_lost") from problem
        await self.client.node()
        return self.client


class Composed:
    """Between `open` and `close` a scheduler in this process, on the rig's state directory."""

    def __init__(self, rig: Rig) -> None:
        self.rig, self.state_dir = rig, StateDir(rig.stager.state_dir)
        self.state_dir.make()
        self.scheduler: Scheduler

    async def open(self, beside: Callable[[int], Sequence[NodeSource]]) -> Scheduler:
        """`beside` is told the epoch."""
        settings = Settings(self.state_dir.root, CAPACITY_BYTES, 2, environ={"STAGER_IONODE": str(ionode_binary())})
        clock, stores = SteadyClock(), open_stores(self.state_dir)
        past, lifetime = replayed(stores, limits_of(settings)), Lifetime(clock())
        self.scheduler = opened(settings, stores, past, clock, lifetime, is_service=False, beside=beside(past.epoch))
        async with asyncio.timeout(DEADLINE_S):
            await lifetime.ready.wait()
        return self.scheduler

    async def close(self, *, stop_node: bool = True) -> None:
        await self.scheduler.services.shutdown.in_order(now=True)
        await self.scheduler.close(stop_node=stop_node)

    async def submit(self, workflow: Workflow, **on: str) -> str:
        """`on`: the node of each job that is not on the embedded one."""
        topology = Topology(tuple(Node(name, CAPACITY_BYTES, 2) for name in ("node0", "node1")), ())
        plan = make_plan(workflow, topology, limits=LIMITS)
        plan = replace(plan, jobs=tuple(structs.replace(job, node=on.get(job.job, "node0")) for job in plan.jobs))
        request = wire.SubmitRequest(workflow, plan, self.rig.credentials(workflow))
        return await self.scheduler.services.runs.commands.submit(request)

    async def state(self, run: str) -> str:
        return (await self.scheduler.services.runs.status.status(run)).info.state

    async def nodes(self) -> dict[str, wire.NodeView]:
        return {view.node: view for view in (await self.scheduler.services.owner.health.now()).nodes}

    async def until(self, holds: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not await holds():
                await asyncio.sleep(0.05)

    async def ends(self, run: str) -> None:
        async def over() -> bool:
            return await self.state(run) not in ("active", "draining")

        await self.until(over)
        assert await self.state(run) == "succeeded"

    def places(self) -> dict[str, str]:
        """The node of each job's last attempt, from the journal."""
        journal = SqliteJournal(self.state_dir.journal, "test")
        try:
            given = [command for batch in journal.read_beside() for command in batch.commands]
        finally:
            journal.close()
        return {command.job: command.node for command in given if isinstance(command, cmd.StartAttempt)}


def one_job(rig: Rig, name: str) -> Workflow:
    files = [rig.source(f"{name}.in", b"one\n"), rig.final(name)]
    return rig.workflow(name, files, [rig.job(f"make-{name}", f"cat {name}.in {name}.in > {name}", (f"{name}.in",), (name,))])


def made(rig: Rig, name: str) -> bytes:
    return (rig.data / "out" / name).read_bytes()


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
    node = ionode(node_id="node1", epoch=99)
    node.do("GET", "/v1/node")

    async def main() -> None:
        composed = Composed(rig)
        await composed.open(lambda epoch: [Found(node, epoch)])
        await composed.ends(await composed.submit(one_job(rig, "a")))
        seen = await composed.nodes()
        assert seen["node0"].connected and seen["node1"].excluded and "epoch 99" in seen["node1"].problem
        await composed.close()

    asyncio.run(main())
    node.do("GET", "/v1/node")
    assert made(rig, "a") == b"one\none\n"


def test_a_job_waits_for_its_own_node_alone_and_its_attempt_is_taken_up_there(rig: Rig, ionode: Callable[..., IoNode]) -> None:
    """Over a death of that node and a restart of the scheduler meanwhile."""
    node = ionode(node_id="node1")

    async def main() -> None:
        composed = Composed(rig)
        await composed.open(lambda epoch: [Found(node, epoch)])

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
        await composed.open(lambda epoch: [Found(node, epoch)])
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
    node = ionode(node_id="node1")

    async def main() -> None:
        composed = Composed(rig)
        scheduler = await composed.open(lambda epoch: [Found(node, epoch)])
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
