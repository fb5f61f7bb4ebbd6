"""Moving: all nodes together are one cache. What is in the way of the first job, and has no place to spill to, goes to a node with room."""

from __future__ import annotations

from stager.planning.policy import Limits, Policy
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.scheduler.admission import may_do_with_less
from stager.scheduler.commands import RunOutcome
from stager.scheduler.holding import helping
from stager.scheduler.machine import Machine
from stager.scheduler.migration import FAILURES_MAX, places, safe_bytes
from stager.scheduler.node_entry import NodeEntry
from stager.scheduler.state import State
from stager.scheduler.states import JobState
from stager.sim.faults import Faults
from tests.sim.test_replication import Stage
from tests.sim.test_several_nodes import Jobs

# Of each file.
SIZE = 100
# While k3 runs u, t, v and w are there at once, and no order of the jobs helps.
TIGHT: Jobs = {
    "k1": ("", "u t", 1.0),
    "k2": ("u", "v", 1.0),
    "k3": ("v", "w", 1.0),
    "e1": ("u w", "s", 1.0),
    "e2": ("s t", "y", 1.0),
}


def moves(stage: Stage) -> list[cmd.CopyReplica]:
    return [command for command in stage.commands if type(command) is cmd.CopyReplica and command.purpose is cmd.Purpose.MOVE]


def test_what_is_in_the_way_of_the_first_job_goes_to_a_node_with_room() -> None:
    stage = Stage(TIGHT, safe=1, room=3 * SIZE, cores=1)
    assert stage.play() is RunOutcome.SUCCEEDED
    moved = moves(stage)
    assert [(move.source, move.node) for move in moved] == [("node0", "node1")] * len(moved) and moved
    left = [(command.node, command.file) for command in stage.commands if type(command) is cmd.DeleteReplica and "moved" in command.why]
    assert left == [(move.source, move.file) for move in moved]


def test_a_run_that_stays_in_the_room_of_its_nodes_leaves_it_where_nothing_else_helps() -> None:
    """Its plan was wrong about it: nothing runs or comes there, and the first job has no room."""
    stage = Stage(TIGHT, safe=1, room=3 * SIZE, cores=1, keeps_to=("node0",), holds_max_bytes=3 * SIZE)
    state = machine_of(stage).state
    assert safe_bytes(state, state.nodes["node0"], state.runs["r"]) == 3 * SIZE
    stage = Stage(TIGHT, safe=1, room=3 * SIZE, cores=1, keeps_to=("node0",), holds_max_bytes=3 * SIZE)
    assert stage.play() is RunOutcome.SUCCEEDED
    assert moves(stage)


def test_nodes_that_no_run_may_use_are_not_asked_for_help() -> None:
    """While the node that the run keeps to can be reached."""
    machine = machine_of(Stage(TIGHT, safe=1, cores=1, keeps_to=("node0",)))
    state = machine.state
    assert [node.id for node in helping(state, state.nodes.values())] == ["node0"]
    machine.step(ev.NodeLost(at=0.0, node="node0"))
    assert [node.id for node in helping(state, state.nodes.values())] == ["node0", "node1"]


def test_nothing_is_moved_where_there_is_room() -> None:
    stage = Stage(TIGHT, safe=1, room=4 * SIZE, cores=1)
    assert stage.play() is RunOutcome.SUCCEEDED
    assert not moves(stage)


def test_nothing_is_moved_where_it_can_be_spilled() -> None:
    stage = Stage(TIGHT, safe=1, room=3 * SIZE, cores=1, spill="lab")
    assert stage.play() is RunOutcome.SUCCEEDED
    assert not moves(stage)


def test_a_move_that_fails_is_not_tried_for_ever() -> None:
    stage = Stage(TIGHT, Faults(seed=1, until_s=1e9, transfer_share=1.0), safe=1, room=3 * SIZE, cores=1)
    assert stage.play() is RunOutcome.REFUSED
    files = [move.file for move in moves(stage)]
    assert files and max(files.count(file) for file in files) == FAILURES_MAX


def test_who_waits_for_room_for_outputs_takes_nothing_in() -> None:
    state = State(Policy(), Limits(), nodes={name: NodeEntry(name, 1000, reachable=True) for name in "abcd"})
    state.nodes["b"].waiting_attempts["x"] = None
    state.nodes["c"].promised_bytes = 10
    assert [other.id for other in places(state, state.nodes["a"])] == ["d", "c"]


def machine_of(stage: Stage) -> Machine:
    """As it is when the run has begun."""
    machine = Machine(stage.world.policy, stage.world.limits)
    batches = iter(stage.world.events())
    while "r" not in machine.state.runs:
        for event in next(batches):
            machine.step(event)
    return machine


def test_where_the_first_job_waits_nothing_goes() -> None:
    state = machine_of(Stage(TIGHT, safe=1, room=3 * SIZE, cores=1)).state
    first, here, there = state.runs["r"].jobs["k1"], state.nodes["node0"], state.nodes["node1"]
    assert (state.runs["r"].head, first.order, first.node) == (0, 0, "node0")
    first.state = JobState.READY
    assert list(places(state, there)) == []
    assert list(places(state, here)) == [there]
    first.state = JobState.RUNNING
    assert list(places(state, there)) == [here]


def test_what_may_stay_empty_and_what_may_be_there_twice_is_not_counted_on() -> None:
    """The largest file has 100 bytes, the largest job three of them."""
    machine = machine_of(Stage(TIGHT, safe=1, room=5 * SIZE, cores=1))
    state = machine.state
    assert safe_bytes(state, state.nodes["node0"], state.runs["r"]) == (10 - 1 - 3) * SIZE
    machine.step(ev.NodeLost(at=0.0, node="node1"))
    assert safe_bytes(state, state.nodes["node0"], state.runs["r"]) == 5 * SIZE


def test_only_where_it_can_be_spilled_does_a_job_do_with_less_than_the_worst_needs() -> None:
    for spill in (None, "lab"):
        state = machine_of(Stage(TIGHT, safe=1, cores=1, spill=spill)).state
        run = state.runs["r"]
        assert may_do_with_less(state, state.nodes["node0"], run, run.jobs["k1"]) is (spill is not None)
