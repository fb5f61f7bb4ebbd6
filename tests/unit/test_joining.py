"""Two runs at once that want the same job: the earlier one runs it, the later one takes it over, or runs it after all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from stager.model.errors import ErrorClass, Fault
from stager.model.files import Destination, File, Location
from stager.model.ids import produced_file_id
from stager.model.topology import embedded
from stager.model.workflow import Workflow
from stager.planning.make_plan import make_plan
from stager.planning.plan import Sharing
from stager.planning.policy import Policy
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.scheduler.invariants import broken_invariants
from stager.scheduler.machine import Machine
from stager.sim.checkers import all_checkers
from stager.sim.simulate import rebuilt, simulate
from stager.sim.world import SimWorld
from tests.unit.test_keeping import deep, flow

ROOM = 100_000
JOINS = Sharing(joins=True)


class Bench:
    """w-1 begins at once, and its job `a` takes five seconds."""

    def __init__(self, first: Workflow, capacity_bytes: int = ROOM, policy: Policy | None = None) -> None:
        self.room = embedded(capacity_bytes)
        self.world = SimWorld(self.room, policy or Policy(), checkers=all_checkers(), keep_journal=True)
        self.given: list[Any] = []
        self.submit("w-1", first, 0.0)

    def submit(self, run: str, workflow: Workflow, at: float, sharing: Sharing | None = JOINS, **words: Any) -> None:
        self.world.submit(run, workflow, make_plan(workflow, self.room), at, sharing=sharing, **words)

    def simulated(self) -> Machine:
        def watch(machine: Machine, events: object, commands: Any) -> None:
            assert not broken_invariants(machine.state)
            self.given += commands

        machine = simulate(self.world, watch)
        rebuilt(self.world)
        return machine

    def started(self, job: str) -> list[str]:
        return [each.run for each in self.given if isinstance(each, cmd.StartAttempt) and each.job == job]

    def of(self, kind: type) -> list[Any]:
        return [each for each in self.given if isinstance(each, kind)]


def test_the_later_run_takes_over_what_the_earlier_one_was_making() -> None:
    bench = Bench(flow(1))
    bench.submit("w-2", flow(2), at=1.0)
    state = bench.simulated().state
    assert bench.started("a") == ["w-1"] and bench.started("b1") == ["w-1"] and bench.started("b2") == ["w-2"]
    assert state.runs["w-2"].jobs["a"].reused_from == "w-1"
    assert [output.kept for each in bench.of(cmd.TakeOver) for output in each.outputs] == [produced_file_id("w-1", "mid")]
    assert {run.outcome for run in state.runs.values()} == {cmd.RunOutcome.SUCCEEDED}
    wrote = {path for origin in bench.world.origins.values() for path in origin.files}
    assert {"out1", "out2"} <= wrote, "each has its final at its own place"


def test_a_chain_is_taken_over_job_by_job_and_by_as_many_runs_as_want_it() -> None:
    bench = Bench(deep(1))
    bench.submit("w-2", deep(2), at=1.0)
    bench.submit("w-3", deep(3), at=7.0)
    bench.simulated()
    assert bench.started("a") == bench.started("b") == ["w-1"], "what is done already is taken over, too"
    assert len(bench.of(cmd.TakeOver)) == 4 and len(bench.of(cmd.AwaitJob)) == 3


@pytest.mark.parametrize("end", [ev.RunCancelled, ev.RunStopped])
def test_where_the_earlier_run_ends_the_later_one_runs_it(end: type) -> None:
    bench = Bench(deep(1))
    bench.submit("w-2", deep(2), at=1.0)
    bench.world.tell_at(2.0, lambda now: end(at=now, run="w-1"))
    state = bench.simulated().state
    assert bench.started("a") == ["w-1", "w-2"] and bench.started("b") == ["w-2"]
    assert state.runs["w-2"].outcome is cmd.RunOutcome.SUCCEEDED and len(bench.of(cmd.StopAwaiting)) == 1, "all below goes with it"


def test_a_run_that_drains_hands_over_what_it_is_just_making() -> None:
    bench = Bench(deep(1))
    bench.submit("w-2", deep(2), at=1.0)
    bench.world.tell_at(2.0, lambda now: ev.RunDrained(at=now, run="w-1"))
    bench.simulated()
    assert bench.started("a") == ["w-1"] and bench.started("b") == ["w-2"]


def changed(job: str, workflow: Workflow, **words: Any) -> Workflow:
    return replace(workflow, jobs=workflow.jobs | {job: replace(workflow.jobs[job], **words)})


ALONE: dict[str, dict[str, Any]] = {
    "another tenant": {"tenant": "alice"},
    "a run of higher priority": {"priority": 1},
    "it is to run again": {"sharing": Sharing(joins=True, forced=("a",))},
    "it takes over nothing": {"sharing": None},
}


@pytest.mark.parametrize("why", ALONE)
def test_it_runs_by_itself(why: str) -> None:
    bench = Bench(flow(1))
    bench.submit("w-2", flow(2), at=1.0, **ALONE[why])
    bench.simulated()
    assert bench.started("a") == ["w-1", "w-2"] and not bench.of(cmd.AwaitJob)


@pytest.mark.parametrize("words", [{"env": (("A", "1"),)}, {"reuse": False}, {"cores": 2}, {"env_pass": ("A",)}])
def test_it_is_another_job(words: dict[str, Any]) -> None:
    """A variable of `env_pass` has no value that anybody knows here."""
    bench = Bench(flow(1))
    bench.submit("w-2", changed("a", flow(2), **words), at=1.0)
    bench.simulated()
    assert bench.started("a") == ["w-1", "w-2"] and not bench.of(cmd.AwaitJob)


def test_where_not_all_files_fit_at_once_nobody_waits() -> None:
    smallest = make_plan(flow(1), embedded(1)).smallest_capacity_bytes
    bench = Bench(flow(1), smallest)
    bench.submit("w-2", flow(2), at=1.0)
    state = bench.simulated().state
    assert bench.started("a") == ["w-1", "w-2"] and state.runs["w-2"].outcome is cmd.RunOutcome.SUCCEEDED


def test_the_wait_ends_where_space_has_become_short() -> None:
    """A third run makes it so, before what is waited for is made."""
    room = 2 * sum(file.size_bytes or 0 for file in flow(1).files.values())
    bench = Bench(flow(1), room)
    bench.submit("w-2", flow(2), at=1.0)
    bench.submit("w-3", flow(3), at=2.0)
    state = bench.simulated().state
    assert len(bench.of(cmd.AwaitJob)) == len(bench.of(cmd.StopAwaiting)) == 1
    assert sorted(bench.started("a")) == ["w-1", "w-2", "w-3"] and all(run.outcome == "succeeded" for run in state.runs.values())


def test_what_is_lost_before_it_is_read_is_made_again_by_each() -> None:
    bench = Bench(flow(1))
    bench.submit("w-2", flow(2), at=1.0)
    mid = produced_file_id("w-1", "mid")

    def lost(now: float) -> Any:
        generation = next(generation for file, generation in bench.world.nodes["node0"].replicas if file == mid)
        bench.world.nodes["node0"].replicas[mid, generation].quarantined = True
        return ev.ReplicaCorrupt(at=now, node="node0", file=mid, generation=generation, fault=Fault(ErrorClass.CORRUPT, "bit", "a bit"))

    bench.world.tell_at(5.5, lost)
    state = bench.simulated().state
    assert all(run.outcome == "succeeded" for run in state.runs.values())
    assert bench.started("a").count("w-1") == 2 and "w-2" in bench.started("a")


def elsewhere(workflow: Workflow, directory: str = "again") -> Workflow:
    """The very same, with all that it hands over below another directory."""

    def moved(file: File) -> File:
        if file.destination is None:
            return file
        where = file.destination.location
        return replace(file, destination=Destination(Location(where.origin, f"{directory}/{where.path}")))

    return replace(workflow, files={lfn: moved(file) for lfn, file in workflow.files.items()})


def handing_over(workflow: Workflow, *lfns: str) -> Workflow:
    finals = {lfn: replace(workflow.files[lfn], destination=Destination(Location("home", lfn))) for lfn in lfns}
    return replace(workflow, files=workflow.files | finals)


def test_the_same_to_another_place_runs_nothing_and_both_have_the_one_making() -> None:
    bench = Bench(handing_over(deep(1), "late"))
    bench.submit("w-2", elsewhere(handing_over(deep(1), "late")), at=1.0)
    state = bench.simulated().state
    assert [bench.started(job) for job in ("a", "b", "c1")] == [["w-1"]] * 3
    assert {run.outcome for run in state.runs.values()} == {cmd.RunOutcome.SUCCEEDED}
    (files,) = (origin.files for origin in bench.world.origins.values())
    for path in ("late", "out1"):
        assert files[f"again/{path}"].content == files[path].content
    lent = [each for each in bench.of(cmd.Upload) if each.reads]
    assert {(each.run, each.lfn, each.reads) for each in lent} == {
        ("w-2", "late", produced_file_id("w-1", "late")),
        ("w-2", "out", produced_file_id("w-1", "out")),
    }
    assert not any(file.lender or file.lent_to for file in state.files.values()), "it ends when they are home"


def test_a_job_whose_final_is_read_by_one_that_runs_runs_itself() -> None:
    """It would have to be read at its place, over the wide area."""
    bench = Bench(handing_over(flow(1), "mid"))
    bench.submit("w-2", elsewhere(handing_over(flow(2), "mid")), at=1.0)
    bench.simulated()
    assert bench.started("a") == ["w-1", "w-2"] and not bench.of(cmd.AwaitJob)


def test_what_one_run_hands_over_another_one_only_reads() -> None:
    """What no job that runs reads need not be there. Where one does after all, it is made for that one."""
    bench = Bench(handing_over(deep(1), "late"))
    bench.submit("w-2", elsewhere(deep(1)), at=1.0)
    bench.simulated()
    assert [bench.started(job) for job in ("a", "b", "c1")] == [["w-1"]] * 3

    slow = changed("c1", deep(1), compute_s=5.0)
    bench = Bench(handing_over(slow, "late"))
    bench.submit("w-2", elsewhere(slow), at=1.0)
    bench.world.tell_at(13.0, lambda now: ev.RunCancelled(at=now, run="w-1"))
    state = bench.simulated().state
    assert bench.started("b") == bench.started("c1") == ["w-1", "w-2"] and state.runs["w-2"].outcome is cmd.RunOutcome.SUCCEEDED


def test_where_the_run_that_lends_is_cancelled_the_final_goes_home_all_the_same() -> None:
    bench = Bench(handing_over(deep(1), "mid"))
    bench.submit("w-2", elsewhere(handing_over(deep(1), "mid")), at=1.0)

    def away(fault: str) -> None:
        for origin in bench.world.origins.values():
            origin.fault_code = fault

    bench.world.clock.at(4.0, away, "origin_unreachable")
    bench.world.clock.at(30.0, away, "")
    bench.world.tell_at(8.0, lambda now: ev.RunCancelled(at=now, run="w-1"))
    state = bench.simulated().state
    assert state.runs["w-2"].outcome is cmd.RunOutcome.SUCCEEDED
    assert bench.started("a") == ["w-1"] and bench.started("b") == ["w-1", "w-2"], "b waits until its input can be read at its place"


def test_a_third_run_goes_on_with_what_the_second_had_of_the_first() -> None:
    bench = Bench(deep(1))
    bench.submit("w-2", elsewhere(deep(1)), at=1.0)
    bench.submit("w-3", elsewhere(deep(1), "third"), at=2.0)
    bench.simulated()
    assert [bench.started(job) for job in ("a", "b", "c1")] == [["w-1"]] * 3
