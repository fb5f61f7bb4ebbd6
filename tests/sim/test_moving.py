"""Moving: all nodes together are one cache. What is in the way of the first job, and has no place to spill to, goes to a node with room."""

from __future__ import annotations

from stager.scheduler import commands as cmd
from stager.scheduler.commands import RunOutcome
from stager.scheduler.moving import FAILURES_MAX
from stager.sim.faults import Faults
from tests.sim.test_several_nodes import Jobs
from tests.sim.test_spares import Stage

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
