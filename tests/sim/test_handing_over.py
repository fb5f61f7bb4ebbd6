"""Handing over: what is deleted for room and read again goes to a node with plenty of room first, and does not come in twice."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from stager.model.topology import Node, OriginLink, Topology
from stager.planning.make_plan import make_plan
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.scheduler.commands import RunOutcome
from stager.scheduler.machine import Machine
from stager.sim.checkers import all_checkers
from stager.sim.faults import NO_FAULTS, Faults
from stager.sim.simulate import simulate
from stager.sim.world import SimWorld
from tests.sim.cases import check_replay, watch_invariants
from tests.sim.test_several_nodes import Jobs, workflow

SIZE = 1000
# Each input is read twice, with the others in between.
INPUTS = ("a", "b", "c", "d")
TWICE: Jobs = {
    **{f"first-{name}": (name if not number else f"{name} {INPUTS[number - 1]}1", f"{name}1", 1.0) for number, name in enumerate(INPUTS)},
    **{f"again-{name}": (f"{name} d1", f"{name}2", 1.0) for name in INPUTS},
}
NODE_RATE = 1000.0


class Stage:
    """All jobs run on node0, which has room for two inputs beside what jobs make; node1 has `roomy_bytes`."""

    def __init__(self, roomy_bytes: int = 100 * SIZE, line: float = 100.0, faults: Faults = NO_FAULTS, spill: str | None = None) -> None:
        what = workflow(dict.fromkeys(INPUTS, SIZE), TWICE)
        rooms = {"node0": 2 * SIZE + 800, "node1": roomy_bytes}
        nodes = tuple(Node(name, room, 1, disk_bytes_per_s=1e6, network_bytes_per_s=NODE_RATE) for name, room in rooms.items())
        topology = Topology(nodes, (OriginLink("lab", line, line, 0.0),))
        plan = make_plan(what, topology, spill_origin=spill)
        plan = replace(plan, jobs=tuple(structs.replace(job, node="node0") for job in plan.jobs), keeps_to=("node0",))
        self.world = SimWorld(topology, faults=faults, checkers=all_checkers(), resumes_max=3, keep_journal=True)
        self.world.submit("r", what, plan)
        self.commands: list[cmd.Command] = []
        self.failed: set[str] = set()

    def play(self) -> RunOutcome | None:
        def watch(machine: Machine, events: list[ev.Event], commands: list[cmd.Command]) -> None:
            watch_invariants(machine, events, commands)
            self.failed |= {event.transfer for event in events if type(event) is ev.TransferFailed}
            self.commands += commands

        check_replay(self.world, simulate(self.world, watch))
        return self.world.runs["r"].outcome

    @property
    def moves(self) -> list[cmd.CopyReplica]:
        return [command for command in self.commands if type(command) is cmd.CopyReplica and command.purpose is cmd.Purpose.MOVE]


def test_an_input_that_is_read_again_goes_to_a_roomy_node_and_comes_in_once() -> None:
    stage = Stage()
    assert stage.play() is RunOutcome.SUCCEEDED
    assert stage.world.transfers.fetched_bytes == len(INPUTS) * SIZE
    assert {(move.source, move.node) for move in stage.moves} == {("node0", "node1")}
    left = [(command.node, command.file) for command in stage.commands if type(command) is cmd.DeleteReplica and "moved" in command.why]
    assert left == [("node0", move.file) for move in stage.moves]


@pytest.mark.parametrize(
    ("roomy_bytes", "line"), [(SIZE + 900, 100.0), (100 * SIZE, NODE_RATE / 2)], ids=["little room", "copying as slow as the line"]
)
def test_nothing_is_handed_over_where_it_would_not_pay(roomy_bytes: int, line: float) -> None:
    stage = Stage(roomy_bytes, line)
    assert stage.play() is RunOutcome.SUCCEEDED
    assert not stage.moves
    assert stage.world.transfers.fetched_bytes > len(INPUTS) * SIZE


def test_a_copy_that_failed_is_not_tried_again() -> None:
    """The next time that its room is wanted it is deleted, and fetched again."""
    stage = Stage(faults=Faults(seed=9, until_s=1e9, transfer_share=0.3))
    assert stage.play() is RunOutcome.SUCCEEDED
    failed = [move for move in stage.moves if move.transfer in stage.failed]
    assert failed
    assert all(sum(move.file == other.file for move in stage.moves) == 1 for other in failed)
