"""Jobs are made of members by a scheduler that finds them known: one that lives, one that has just started, and one whose run went on
meanwhile.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import replace as replaced
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from stager.model.scatter import Rows, Scatter, ScatterForm
from stager.model.topology import embedded
from stager.planning.make_plan import make_plan
from stager.ports import Batch
from stager.readers import native
from stager.runtime.inbox import Inbox
from stager.runtime.past import Past
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.scheduler.scatter import is_told, other_members, pending, why_not
from stager.scheduler.states import JobState
from stager.service.counters import Counters
from stager.service.scattering import Scattering
from stager.service.settings import Settings
from stager.service.timeline import scattered_text
from tests.testbed.waiting import wait_until
from tests.unit.test_run_service import CAPACITY, LIMITS, Bench

TEXT = """stager: 1
jobs:
  split: {run: "seq 3 > l.txt", outputs: [l.txt]}
  part: {scatter: {over: l.txt, as: n}, run: "echo {n} > {n}.out", outputs: ["{n}.out"]}
  all: {run: "cat *.out > all", inputs: ["*.out"], outputs: [all]}
"""
MEMBERS: Mapping[str, Rows] = {"part": (("1",), ("2",), ("x",))}
TWO = TEXT.replace('"seq 3 > l.txt", outputs: [l.txt]', '"seq 3 > l.txt", outputs: [l.txt, m.txt]') + (
    '  other: {scatter: {over: m.txt, as: n}, run: "echo {n} > {n}.b", outputs: ["{n}.b"]}\n'
)


class Rig:
    """A Machine whose run has just been told the members, and an inbox that nobody takes from but the test."""

    def __init__(self, place: Path, text: str = TEXT, members: Mapping[str, Rows] = MEMBERS) -> None:
        (place / "w.yml").write_text(text)
        self.bench = Bench(place)
        self.machine = self.bench.machine
        workflow = native.read(place / "w.yml")
        plan = make_plan(workflow, embedded(CAPACITY, cores=2), limits=LIMITS)
        submitted = ev.RunSubmitted(at=1.0, run="r", workflow=workflow, plan=plan, ids=ev.IDS)
        (start,) = [each for each in self.machine.step(submitted) if isinstance(each, cmd.StartAttempt)]
        outputs = [output.lfn for output in workflow.jobs["split"].outputs]
        made = tuple(ev.OutputMade(lfn, self.run.file_ids[lfn], start.attempt, 6, "b3") for lfn in outputs)
        self.ended = ev.AttemptEnded(
            at=2.0, run="r", job="split", attempt=start.attempt, outcome=ev.Outcome.OK, outputs=made, members=dict(members)
        )
        self.clock = 10.0
        self.inbox = Inbox(lambda: self.clock)
        self.settings = Settings(state_dir=place / "s", environ={}, capacity_bytes=CAPACITY, cores=2)

    @property
    def run(self) -> Any:
        return self.machine.state.runs["r"]

    def scattering(self) -> Scattering:
        return Scattering(self.settings, self.machine.state, self.inbox, self.bench.run_service)

    def told(self) -> ev.RunScattered:
        """Answers what is asked, as the driving thread does, until an event comes."""
        while not self.inbox.items:
            wait_until(lambda: self.inbox.questions or self.inbox.items, "the jobs to be made")
            for question, _ in [self.inbox.questions.popleft()] if self.inbox.questions else ():
                question()
        taken = self.inbox.take()
        assert taken is not None
        (event,) = taken[0]
        assert isinstance(event, ev.RunScattered)
        return event


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_once_the_members_are_told_the_jobs_are_made(rig: Rig) -> None:
    scattering = rig.scattering()
    scattering.saw([], [])
    rig.machine.step(rig.ended)
    assert [each.name for each in pending(rig.run)] == ["part"] and rig.run.jobs["part[1]"].state is JobState.WAITING
    scattering.saw([rig.ended], [])
    scattering.saw([rig.ended], [])
    event = rig.told()
    started = [each.job for each in rig.machine.step(event) if isinstance(each, cmd.StartAttempt)]
    assert started == ["part[1]", "part[2]"] and list(rig.run.jobs) == ["split", "part[1]", "part[2]", "part[x]", "all"]
    scattering.saw([event], [])
    assert not rig.inbox.items and not scattering.under_way and pending(rig.run) == []
    assert rig.machine.step(event) == [] and rig.machine.state.stale == 1, "told twice, it is so once"
    scattering.close()


def test_a_scheduler_that_starts_finds_what_is_pending(rig: Rig) -> None:
    rig.machine.step(rig.ended)
    scattering = rig.scattering()
    scattering.saw([ev.SchedulerStarted(at=3.0, epoch=2, version="x")], [])
    assert rig.told().members == 3
    scattering.close()


def test_what_was_made_of_a_run_that_is_another_one_by_now_is_not_put(rig: Rig) -> None:
    rig.machine.step(rig.ended)
    scattering = rig.scattering()
    scattering.saw([], [])
    wait_until(lambda: rig.inbox.questions, "the jobs to be made")
    rig.machine.step(ev.RunStopped(at=4.0, run="r"))
    question, _ = rig.inbox.questions.popleft()
    question()
    assert not rig.inbox.items and not scattering.under_way
    rig.machine.step(ev.RunResumed(at=5.0, run="r"))
    scattering.saw([ev.RunResumed(at=5.0, run="r")], [])
    assert rig.told().workflow is not None
    scattering.close()


def test_an_end_without_members_is_not_believed(rig: Rig) -> None:
    """Whoever told it, as a node that alone knew of the commit, has not read them."""
    commands = rig.machine.step(replace(rig.ended, members={}))
    assert [type(each) for each in commands if getattr(each, "job", "") == "split"] == [cmd.RequeueJob]
    assert rig.run.jobs["split"].state is JobState.BACKOFF and pending(rig.run) == []


def test_who_names_others_when_it_has_to_run_again_is_not_believed(rig: Rig) -> None:
    """Jobs were made of what it named first."""
    rig.machine.step(rig.ended)
    scattering = rig.scattering()
    scattering.saw([], [])
    rig.machine.step(rig.told())
    scattering.close()
    assert other_members(rig.run, "split", rig.ended) is None and is_told(rig.run, "split", rig.ended)
    others = replace(rig.ended, members={"part": (("1",),)})
    fault = other_members(rig.run, "split", others)
    assert fault is not None and fault.code == "remade_differs" and not is_told(rig.run, "split", others)
    assert "job 'split' had to run again and names other members in 'l.txt', over which 'part' scatters" in fault.message


def test_all_lists_that_are_known_make_one_definition(tmp_path: Path) -> None:
    rig = Rig(tmp_path, TWO, {"part": (("1",),), "other": (("u",), ("v",))})
    rig.machine.step(rig.ended)
    scattering = rig.scattering()
    scattering.saw([], [])
    event = rig.told()
    assert (event.scatter, event.also, event.members) == ("part", ("other",), 3)
    assert rig.machine.step(replace(event, also=("nobody",))) == [] and len(pending(rig.run)) == 2
    rig.machine.step(event)
    assert list(rig.run.jobs) == ["split", "part[1]", "all", "other[u]", "other[v]"] and rig.run.members == {} and pending(rig.run) == []
    assert rig.machine.step(event) == [] and rig.machine.state.stale == 2
    assert scattered_text(event) == "job part scatters over 1 member; job other scatters over 2 members"
    scattering.close()


def test_where_one_list_cannot_be_the_others_have_their_jobs(tmp_path: Path) -> None:
    rig = Rig(tmp_path, TWO.replace('{n}.b"]', 'same"]'), {"part": (("1",), ("2",)), "other": (("u",), ("v",))})
    rig.machine.step(rig.ended)
    scattering = rig.scattering()
    scattering.saw([], [])
    event = rig.told()
    assert (event.scatter, event.also, event.fault) == ("part", (), None)
    rig.machine.step(event)
    scattering.saw([event], [])
    event = rig.told()
    assert event.scatter == "other" and event.fault is not None and "two producers" in event.fault.message
    rig.machine.step(event)
    assert rig.run.jobs["other[1]"].state is JobState.FAILED and rig.run.jobs["part[2]"].state is not JobState.SKIPPED
    scattering.close()


def test_who_began_before_it_was_scattered_over_is_not_scattered_over(rig: Rig) -> None:
    """It has not told what its list names, and nobody would ever know."""
    rig.machine.step(rig.ended)
    late = Scatter("late", "l.txt", ("n",), "split", ScatterForm.LINES, ("all",))
    workflow = replaced(rig.run.workflow, scatters=(*rig.run.workflow.scatters, late))
    assert why_not(rig.run, workflow) == "job 'split' began before it was known that 'late' scatters over 'l.txt'"
    assert why_not(rig.run, rig.run.workflow) == ""


def test_a_definition_without_a_job_that_has_begun_is_a_fault(tmp_path: Path) -> None:
    rig = Rig(tmp_path, TEXT.replace("as: n}", "as: n, expect: 2}"), {"part": (("x",),)})
    rig.machine.step(rig.ended)
    rig.run.jobs["part[2]"].state = JobState.DONE
    scattering = rig.scattering()
    scattering.saw([], [])
    event = rig.told()
    assert event.fault is not None and "job 'part[2]' is done, and would be another one" in event.fault.message
    scattering.close()


def test_a_definition_that_came_too_late_is_none_that_a_snapshot_refers_to(rig: Rig) -> None:
    rig.machine.step(rig.ended)
    scattering = rig.scattering()
    scattering.saw([], [])
    event = rig.told()
    scattering.close()
    rig.machine.step(ev.RunStopped(at=4.0, run="r"))
    past = Past(rig.machine, Counters(), submitted={"r": 1})
    rig.machine.step(event)
    past.saw(Batch(7, "x", [event], []))
    assert rig.machine.state.stale == 1 and past.submitted == {"r": 1}


def test_a_run_fails_by_name_where_its_records_cannot_be_written(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waited for jobs that nobody made any more. Failed, it can be resumed."""

    def full(*words: Any) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(rig.bench.run_service, "require_room", full)
    rig.machine.step(rig.ended)
    scattering = rig.scattering()
    scattering.saw([], [])
    event = rig.told()
    assert event.fault is not None and "database or disk is full" in event.fault.message and not scattering.under_way
    scattering.close()
