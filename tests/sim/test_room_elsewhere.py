"""Jobs that turn out larger than their node: another node with room takes them, and nothing fails that some node could have held."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from stager.model.topology import Node
from stager.model.workflow import OnFailure
from stager.scheduler import events as ev
from stager.scheduler.commands import RunOutcome
from stager.scheduler.states import JobState
from tests.sim.test_standstill import Made, Stage

SMALL, ROOMY = Node("small", 1000, 1), Node("roomy", 10_000, 1)


def grows(made_bytes: int, *nodes: Node, idempotent: bool = True) -> Stage:
    """A job on the small node, which was to make 100 bytes."""
    made = Made()
    made.final("x", 100)
    made.job("grows", makes="x", s=10.0)
    made.jobs["grows"] = replace(made.jobs["grows"], idempotent=idempotent)
    return Stage(made.workflow(), nodes, where={"grows": "small"}, truly={"x": made_bytes})


@pytest.mark.parametrize("sandbox_bytes", [None, 10_000, 0])
def test_a_job_that_outgrows_its_node_goes_to_one_that_holds_what_it_made(sandbox_bytes: int | None) -> None:
    """It failed beside the room, and again at each resume."""
    nodes = [replace(node, sandbox_bytes=sandbox_bytes) for node in (SMALL, ROOMY)]
    stage = grows(3000, *nodes)
    assert stage.play() is RunOutcome.SUCCEEDED
    assert stage.counts["RehomeJob"] == 1


def test_a_job_that_must_not_run_twice_stays_and_says_why() -> None:
    stage = grows(3000, SMALL, ROOMY, idempotent=False)
    assert stage.play() is RunOutcome.FAILED and stage.counts["StartAttempt"] == 1
    fault = stage.world.runs["r"].fault
    assert fault.code == "no_space_node" and "idempotent: false" in fault.message


def test_what_it_made_is_remembered_when_its_run_is_resumed() -> None:
    """It ran on the small node once more, only to fail there again."""
    stage = grows(3000, SMALL)
    stage.world.tell_at(20.0, lambda now: ev.RunResumed(at=now, run="r"))
    assert stage.play() is RunOutcome.FAILED and stage.counts["StartAttempt"] == 1
    assert "job 'grows' needs 3 kB at once" in stage.world.runs["r"].fault.message


@pytest.mark.parametrize(("once", "outcome", "starts"), [(("b",), RunOutcome.SUCCEEDED, 3), (("a", "b"), RunOutcome.FAILED, 2)])
def test_of_several_that_wait_for_room_no_job_gives_way_that_must_not_run_twice(
    once: Sequence[str], outcome: RunOutcome, starts: int
) -> None:
    """The youngest ran again whatever it was declared."""
    made = Made()
    for name, s in (("a", 5.0), ("b", 6.0)):
        made.final(f"{name}x", 100)
        made.job(name, makes=f"{name}x", s=s)
        made.jobs[name] = replace(made.jobs[name], idempotent=name not in once)
    workflow = made.workflow(on_failure=OnFailure.CONTINUE)
    stage = Stage(workflow, [Node("small", 1000, 2)], truly={"ax": 950, "bx": 950})
    assert stage.play() is outcome and stage.counts["StartAttempt"] == starts
    jobs = stage.machine.state.runs["r"].jobs
    assert jobs["a"].state is JobState.DONE and [jobs[name].attempts for name in once] == [1] * len(once)
