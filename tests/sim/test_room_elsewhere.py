"""Jobs that turn out larger than their node: another node with room takes them, and nothing fails that some node could have held."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

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


def lowered(to_bytes: int, *more: Node, told_at_s: float = 5.0, **declared: Any) -> Stage:
    """Two jobs, one after the other on one core, and the capacity is lowered while the second is admitted already."""
    made = Made()
    for name, size_bytes, s in (("a", 100, 60.0), ("b", 800, 10.0)):
        made.final(f"{name}x", size_bytes)
        made.job(name, makes=f"{name}x", s=s)
        made.jobs[name] = replace(made.jobs[name], **declared)
    stage = Stage(made.workflow(), [Node("small", 1000, 1), *more], where={"a": "small", "b": "small"})
    stage.world.clock.at(5.0, lambda: setattr(stage.world.nodes["small"], "capacity_bytes", to_bytes))
    stage.world.tell_at(told_at_s, lambda now: ev.CapacityChanged(at=now, node="small", capacity_bytes=to_bytes))
    return stage


def test_a_job_is_not_started_where_the_capacity_was_lowered_under_it() -> None:
    """The node refused what was reserved for it, and that counted as a failure of the job."""
    stage = lowered(850)
    assert stage.play() is RunOutcome.SUCCEEDED
    assert stage.counts["StartAttempt"] == 2 and stage.counts["RequeueJob"] == 1


def test_a_job_that_does_not_fit_any_more_goes_elsewhere_or_fails_by_name() -> None:
    stage = lowered(500, Node("roomy", 10_000, 1))
    assert stage.play() is RunOutcome.SUCCEEDED and stage.counts["StartAttempt"] == 2
    stage = lowered(500)
    assert stage.play() is RunOutcome.FAILED and stage.counts["StartAttempt"] == 1
    assert "job 'b' needs 800 B at once" in stage.world.runs["r"].fault.message


def test_a_start_that_the_node_refuses_for_want_of_room_is_no_failure_of_the_job() -> None:
    """The node had less before the scheduler heard so."""
    stage = lowered(850, told_at_s=61.0, retries=0)
    # The checkers hold the scheduler to what the node has.
    stage.world.checkers = ()
    assert stage.play() is RunOutcome.SUCCEEDED
