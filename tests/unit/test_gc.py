"""What `stager gc --cache` may delete of several nodes: never the last copy of what is nowhere else."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from stager.model.errors import StagerError, Transient
from stager.model.files import Destination, File, Location
from stager.model.ids import produced_file_id
from stager.model.topology import embedded
from stager.model.workflow import Job, JobOutput, Origin, OriginKind, Workflow
from stager.planning.make_plan import make_plan
from stager.planning.policy import Limits, Policy
from stager.scheduler import events as ev
from stager.scheduler.accounting import add_copy
from stager.scheduler.machine import Machine
from stager.scheduler.state import Copy, State
from stager.scheduler.states import CopyState
from stager.service.gc import NodeReplicas, Replica, unwanted_replicas

LIMITS = Limits(cores=2)
FINAL = produced_file_id("r", "a")


def held_on(*nodes: str, unreachable: str = "") -> State:
    """A run's final that is not at its destination yet, on each of these."""
    files = {"a": File("a", size_bytes=5, destination=Destination(Location("lab", "a")))}
    jobs = {"j": Job("j", "j", shell="x", outputs=(JobOutput("a", "a"),))}
    workflow = Workflow("w", files, jobs, {"lab": Origin("lab", OriginKind.FILE, "file:///lab")})
    machine = Machine(Policy(), LIMITS)
    machine.step(ev.PolicySet(at=0.0, policy=Policy(), limits=LIMITS))
    machine.step(ev.RunSubmitted(at=1.0, run="r", workflow=workflow, plan=make_plan(workflow, embedded(1000, cores=2), limits=LIMITS)))
    state = machine.state
    for node in nodes:
        machine.step(report(node))
        add_copy(state, state.files[FINAL], node, Copy(CopyState.PRESENT, f"g-{node}", 5))
    if unreachable:
        machine.step(ev.NodeLost(at=3.0, node=unreachable))
    return state


def report(node: str) -> ev.NodeReported:
    return ev.NodeReported(at=2.0, node=node, incarnation="i", capacity_bytes=1000, can_link=True, replicas=(), transfers=())


def unwanted(state: State, *nodes: str) -> list[str]:
    return [replica.node for replica in unwanted_replicas(state, nodes)]


def test_one_copy_of_what_is_nowhere_else_stays() -> None:
    """Each of them could go while the other was there, and both went."""
    assert unwanted(held_on("io0"), "io0") == []
    assert unwanted(held_on("io0", "io1"), "io0", "io1") == ["io1"]
    state = held_on("io0", "io1", "io2", unreachable="io0")
    assert unwanted(state, "io0", "io1", "io2") == ["io0", "io2"], "the one that stays can be reached"
    state.files[FINAL].copies["io1"].pins = 1
    state.files[FINAL].copies["io2"].pins = 1
    assert unwanted(state, "io0", "io1", "io2") == ["io0"]


def test_all_copies_of_what_can_be_had_again_go() -> None:
    state = held_on("io0", "io1")
    held: Any = SimpleNamespace()
    state.files[FINAL].durable = held
    assert unwanted(state, "io0", "io1") == ["io0", "io1"] and unwanted(state, "io1") == ["io1"]


class ScriptedLink:
    def __init__(self, *, away: bool = False) -> None:
        self.client, self.away = self, away
        self.reports = 0
        self.deleted: list[str] = []

    async def delete_replicas(self, asked: Sequence[tuple[str, str, str]]) -> list[StagerError | None]:
        if self.away:
            raise Transient("gone", code="connection_lost")
        self.deleted += [generation for _, generation, _ in asked]
        return [Transient("read", code="replica_busy") if generation == "busy" else None for _, generation, _ in asked]

    async def report_again(self) -> None:
        self.reports += 1


def test_each_replica_is_deleted_on_its_own_node_and_a_node_that_is_away_keeps_its() -> None:
    links: dict[str, Any] = {"io0": ScriptedLink(), "io1": ScriptedLink(away=True), "io2": ScriptedLink()}
    replicas = [Replica("io0", "f", "g0", 1), Replica("io1", "f", "g1", 1), Replica("io0", "h", "g2", 1), Replica("io0", "h", "busy", 1)]
    dropped = asyncio.run(NodeReplicas(links, 3).drop(replicas))
    assert dropped == [replicas[0], replicas[2]] and links["io0"].deleted == ["g0", "g2", "busy"]
    assert [each.reports for each in links.values()] == [1, 0, 0]
