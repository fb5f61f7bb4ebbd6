"""A scheduler with I/O nodes beside its embedded one, composed in the test's process as the service does it: real nodes, a real journal,
real jobs.

One rule: what it opened is closed by the test, and the nodes are those of the `ionode` fixture.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from msgspec import structs

from stager import wire
from stager.adapters.journal_sqlite import SqliteJournal
from stager.adapters.node_place import NodePlace
from stager.adapters.node_remote import NodeRemote
from stager.model.topology import Node, Topology
from stager.model.workflow import Workflow
from stager.planning.make_plan import make_plan
from stager.planning.plan import Plan
from stager.planning.policy import Limits
from stager.ports import Batch
from stager.runtime.clock import SteadyClock
from stager.runtime.node_link import NodeSource
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.service.app import Scheduler, opened
from stager.service.lifetime import Lifetime
from stager.service.live_nodes import limits_of
from stager.service.replaying import replayed
from stager.service.settings import Settings
from stager.service.state_dir import StateDir
from stager.service.stores import open_stores
from tests.e2e.service_rig import CAPACITY_BYTES, Rig
from tests.testbed.ionode import IoNode
from tests.testbed.places import ionode_binary
from tests.testbed.processes import HERE

LIMITS = Limits(cores=2)
C = TypeVar("C")
DEADLINE_S = 120.0


def on_loopback() -> list[str]:
    """Options of a node that keeps its address over its restarts."""
    return ["--tcp", f"127.0.0.1:{HERE.free_port()}"]


def found(node: IoNode, epoch: int) -> NodeRemote:
    """As the scheduler reaches a node that somebody else started."""
    return NodeRemote(NodePlace(node.node_id, node.address, node.token_file), epoch)


class Composed:
    """Between `open` and `close` a scheduler in this process, on the rig's state directory."""

    def __init__(self, rig: Rig, capacity_bytes: int = CAPACITY_BYTES, gone_after_s: float | None = None) -> None:
        self.gone_after_s = gone_after_s
        self.rig, self.capacity_bytes, self.state_dir = rig, capacity_bytes, StateDir(rig.stager.state_dir)
        self.deadline_s = DEADLINE_S
        self.state_dir.make()
        self.scheduler: Scheduler

    async def open(self, beside: Callable[[int], Sequence[NodeSource]]) -> Scheduler:
        """`beside` is told the epoch."""
        settings = Settings(
            self.state_dir.root, self.capacity_bytes, 2, environ={"STAGER_IONODE": str(ionode_binary())}, gone_after_s=self.gone_after_s
        )
        clock, stores = SteadyClock(), open_stores(self.state_dir)
        past, lifetime = replayed(stores, limits_of(settings)), Lifetime(clock())
        self.scheduler = opened(settings, stores, past, clock, lifetime, is_service=False, beside=beside(past.epoch))
        async with asyncio.timeout(self.deadline_s):
            await lifetime.ready.wait()
        return self.scheduler

    async def close(self, *, stop_node: bool = True) -> None:
        await self.scheduler.services.shutdown.in_order(now=True)
        await self.scheduler.close(stop_node=stop_node)

    async def submit(self, workflow: Workflow, change: Callable[[Plan], Plan] = lambda plan: plan, /, **on: str) -> str:
        """`on`: the node of each job that is not on the embedded one."""
        topology = Topology(tuple(Node(name, CAPACITY_BYTES, 2) for name in ("node0", "node1")), ())
        plan = make_plan(workflow, topology, limits=LIMITS)
        return await self.submit_plan(workflow, change(plan), self.rig.credentials(workflow), on)

    async def submit_plan(self, workflow: Workflow, plan: Plan, credentials: wire.Credentials, on: Mapping[str, str]) -> str:
        plan = replace(plan, jobs=tuple(structs.replace(job, node=on.get(job.job, "node0")) for job in plan.jobs))
        request = wire.SubmitRequest(workflow, plan, credentials)
        return await self.scheduler.services.runs.commands.submit(request)

    async def state(self, run: str) -> str:
        return (await self.scheduler.services.runs.status.status(run)).info.state

    async def nodes(self) -> dict[str, wire.NodeView]:
        return {view.node: view for view in (await self.scheduler.services.owner.health.now()).nodes}

    async def until(self, holds: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(self.deadline_s):
            while not await holds():
                await asyncio.sleep(0.05)

    async def ends(self, run: str) -> None:
        async def over() -> bool:
            return await self.state(run) not in ("active", "draining")

        await self.until(over)
        status = await self.scheduler.services.runs.status.status(run)
        assert status.info.state == "succeeded", status

    async def all_up(self) -> None:
        async def up() -> bool:
            return all(view.connected for view in (await self.nodes()).values())

        await self.until(up)

    def batches(self) -> list[Batch]:
        return batches_of(self.state_dir)

    def given(self, kind: type[C]) -> list[C]:
        return given_in(self.batches(), kind)

    def places(self) -> dict[str, str]:
        """The node of each job's last attempt, from the journal."""
        return {command.job: command.node for command in self.given(cmd.StartAttempt)}

    def wan_bytes(self) -> int:
        return wan_bytes_of(self.batches())


def batches_of(state_dir: StateDir) -> list[Batch]:
    """Of the journal, so far; its scheduler may live."""
    journal = SqliteJournal(state_dir.journal, "test")
    try:
        return list(journal.read_beside())
    finally:
        journal.close()


def given_in(batches: Iterable[Batch], kind: type[C]) -> list[C]:
    """The commands of this kind."""
    return [command for batch in batches for command in batch.commands if isinstance(command, kind)]


def wan_bytes_of(batches: Sequence[Batch]) -> int:
    """What came from origins, from all that nodes told of transfers."""
    fetches = {command.transfer for command in given_in(batches, cmd.Fetch)}
    told = (event for batch in batches for event in batch.events if isinstance(event, ev.TransferDone))
    return sum(event.bytes_moved for event in told if event.transfer in fetches)


def one_job(rig: Rig, name: str) -> Workflow:
    files = [rig.source(f"{name}.in", b"one\n"), rig.final(name)]
    return rig.workflow(name, files, [rig.job(f"make-{name}", f"cat {name}.in {name}.in > {name}", (f"{name}.in",), (name,))])


def made(rig: Rig, name: str) -> bytes:
    return (rig.data / "out" / name).read_bytes()


def restarted(composed: Composed, incarnation: str) -> Callable[[], Awaitable[bool]]:
    async def holds() -> bool:
        return composed.scheduler.node.process.client.incarnation != incarnation

    return holds
