"""What is asked of one run is of one moment: a resume may put another definition in its place at the next."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stager.adapters.run_records import RunRecords
from stager.model.errors import InvalidInput
from stager.model.files import File
from stager.model.topology import embedded
from stager.model.workflow import Job, JobOutput, Workflow, graph_of
from stager.planning.make_plan import make_plan
from stager.planning.plan import Plan
from stager.planning.policy import Limits, Policy
from stager.scheduler import events as ev
from stager.scheduler.commands import RunOutcome
from stager.scheduler.machine import Machine
from stager.service.known_runs import KnownRuns
from stager.service.queries import RunQueries

LIMITS = Limits(cores=2)
CAPACITY = 1_000_000


def making(*names: str) -> Workflow:
    jobs = {name: Job(name, name, shell="x", outputs=(JobOutput(name, name),)) for name in names}
    return Workflow("w", {name: File(name, size_bytes=1) for name in names}, jobs)


def plan_of(workflow: Workflow) -> Plan:
    return make_plan(workflow, embedded(CAPACITY, cores=2), limits=LIMITS)


class Between:
    """Answers between two batches, as the driving thread does. `next_batch` comes after each answer."""

    def __init__(self, next_batch: Callable[[], None]) -> None:
        self.next_batch = next_batch

    async def ask(self, question: Callable[[], Any]) -> Any:
        answer = question()
        self.next_batch()
        return answer


def test_a_definition_is_whole_though_a_resume_replaces_it_at_the_next_moment(tmp_path: Path) -> None:
    machine, old, new = Machine(Policy(), LIMITS), making("a", "b"), making("a", "c", "d")
    machine.step(ev.PolicySet(at=0.0, policy=Policy(), limits=LIMITS))
    machine.step(ev.RunSubmitted(at=1.0, run="r", workflow=old, plan=plan_of(old)))
    machine.step(ev.RunStopped(at=2.0, run="r"))
    assert machine.state.runs["r"].outcome is RunOutcome.INTERRUPTED

    def resume() -> None:
        machine.step(ev.RunResumed(at=3.0, run="r", workflow=new, plan=plan_of(new)))

    inquiry: Any = Between(resume)
    queries = RunQueries(inquiry, KnownRuns(machine, RunRecords(tmp_path / "runs.sqlite")), RunRecords(tmp_path / "runs.sqlite"))
    for expected in (old, new):
        found = asyncio.run(queries.definition("r"))
        assert (found.workflow, found.plan, found.graph) == (expected, plan_of(expected), graph_of(expected))


def test_a_run_that_is_not_there_has_no_definition(tmp_path: Path) -> None:
    records = RunRecords(tmp_path / "runs.sqlite")
    inquiry: Any = Between(lambda: None)
    queries = RunQueries(inquiry, KnownRuns(Machine(Policy(), LIMITS), records), records)
    with pytest.raises(InvalidInput):
        asyncio.run(queries.definition("r"))
