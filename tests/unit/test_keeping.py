"""Results that nodes keep for later runs: which go first and when, who may have them, and who has them together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from stager.model.files import Destination, File, Location, Source
from stager.model.ids import produced_file_id
from stager.model.topology import embedded
from stager.model.workflow import Job, JobInput, JobOutput, Origin, OriginKind, Workflow, graph_of
from stager.planning.make_plan import make_plan
from stager.planning.plan import ReusedJob, ReusedOutput
from stager.planning.policy import Limits, Policy
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.scheduler.eviction import TOO_MUCH, TOO_OLD
from stager.scheduler.invariants import broken_invariants
from stager.scheduler.ledger import Standing, ledger_of
from stager.scheduler.linking import own_instead
from stager.scheduler.machine import Machine
from stager.scheduler.state import HeldAt
from stager.sim.checkers import all_checkers
from stager.sim.origin import expected_contents
from stager.sim.simulate import simulate
from stager.sim.world import SimWorld

HOME = Origin("home", OriginKind.SFTP, "sftp://lab/data")
KEEPS = Policy(keep_results_bytes=1_000, keep_results_s=100.0)
MID = produced_file_id("w-1", "mid")


def flow(number: int) -> Workflow:
    """in -> a -> mid -> b -> out, with another b in each."""
    files = [
        File("in", size_bytes=10, sources=(Source(Location("home", "in"), 10, "t1"),)),
        File("mid", size_bytes=20),
        File("out", size_bytes=30, destination=Destination(Location("home", f"out{number}"))),
    ]
    jobs = [
        Job("a", "t", ("a",), inputs=(JobInput("in", "in"),), outputs=(JobOutput("mid", "mid"),), compute_s=5.0),
        Job(f"b{number}", "t", (f"b{number}",), inputs=(JobInput("mid", "mid"),), outputs=(JobOutput("out", "out"),), compute_s=1.0),
    ]
    return Workflow("w", {file.lfn: file for file in files}, {job.id: job for job in jobs}, {"home": HOME})


def a_reused(blake3: str = "") -> tuple[ReusedJob, ...]:
    first = flow(1)
    content = blake3 or expected_contents(first, graph_of(first))["mid"]
    return (ReusedJob("a", "w-1", "key", (ReusedOutput("mid", 20, content, kept=MID),)),)


class Bench:
    """w-1 runs and ends. Others, that are to have what it made, begin at a time."""

    def __init__(self) -> None:
        self.world = SimWorld(embedded(100_000), KEEPS, checkers=all_checkers())
        self.world.submit("w-1", flow(1), make_plan(flow(1), embedded(100_000)))
        self.started: list[tuple[str, str]] = []

    def submit(self, number: int, at: float, tenant: str = "", blake3: str = "") -> None:
        workflow = flow(number)
        self.world.submit(f"w-{number}", workflow, make_plan(workflow, embedded(100_000)), at, tenant=tenant, reused=a_reused(blake3))

    def simulated(self) -> Machine:
        def watch(machine: Machine, events: object, commands: Any) -> None:
            assert not broken_invariants(machine.state)
            self.started += [(each.run, each.job) for each in commands if isinstance(each, cmd.StartAttempt)]

        machine = simulate(self.world, watch)
        assert all(run.outcome in ("succeeded", "cancelled") for run in machine.state.runs.values())
        return machine


def test_a_later_run_has_the_very_file_and_both_tell_of_it_by_their_own_names() -> None:
    bench = Bench()
    bench.submit(2, at=50.0)
    state = bench.simulated().state
    assert bench.started == [("w-1", "a"), ("w-1", "b1"), ("w-2", "b2")]
    assert state.file_of("w-2", "mid") is state.file_of("w-1", "mid") and state.nodes["node0"].kept_bytes == 20
    for run in ("w-1", "w-2"):
        assert {row.lfn: row.standing for row in ledger_of(state, run)}["mid"] is Standing.KEPT
    assert state.runs["w-2"].jobs["a"].reused_from == "w-1" and all(run.live_bytes == 0 for run in state.runs.values())


def test_another_tenants_and_another_content_is_not_had() -> None:
    for words in ({"tenant": "alice"}, {"blake3": "other"}):
        bench = Bench()
        bench.submit(2, at=50.0, **words)
        bench.simulated()
        assert ("w-2", "a") in bench.started, words


def test_two_runs_at_once_share_it_and_one_may_be_cancelled() -> None:
    bench = Bench()
    bench.submit(2, at=50.0)
    bench.submit(3, at=50.1)
    bench.world.tell_at(50.2, lambda now: ev.RunCancelled(at=now, run="w-2"))
    state = bench.simulated().state
    assert ("w-3", "b3") in bench.started and not {("w-2", "a"), ("w-3", "a")} & set(bench.started)
    assert state.runs["w-2"].outcome == "cancelled" and state.nodes["node0"].kept_bytes == 20


def test_while_it_is_being_read_by_the_run_that_made_it_others_share_it() -> None:
    bench = Bench()
    bench.submit(2, at=7.0)
    bench.simulated()
    assert ("w-2", "a") not in bench.started


def test_what_was_spilled_is_had_from_there_and_not_made_again() -> None:
    bench = Bench()
    bench.submit(2, at=50.0)
    state = bench.simulated().state
    file = state.file_of("w-2", "mid")
    file.copies.clear()
    assert own_instead(state, state.runs["w-2"], file) == produced_file_id("w-2", "mid")
    file.spilled = HeldAt("home", "spilled", "t", "size")
    assert own_instead(state, state.runs["w-2"], file) == ""


def deep(number: int) -> Workflow:
    """in -> a -> mid -> b -> late, and c reads mid and late; with another c in each."""
    files = [
        File("in", size_bytes=10, sources=(Source(Location("home", "in"), 10, "t1"),)),
        File("mid", size_bytes=20),
        File("late", size_bytes=20),
        File("out", size_bytes=30, destination=Destination(Location("home", f"out{number}"))),
    ]
    jobs = [
        Job("a", "t", ("a",), inputs=(JobInput("in", "in"),), outputs=(JobOutput("mid", "mid"),), compute_s=5.0),
        Job("b", "t", ("b",), inputs=(JobInput("mid", "mid"),), outputs=(JobOutput("late", "late"),), compute_s=5.0),
        Job(
            f"c{number}",
            "t",
            (f"c{number}",),
            inputs=(JobInput("mid", "mid"), JobInput("late", "late")),
            outputs=(JobOutput("out", "out"),),
        ),
    ]
    return Workflow("w", {file.lfn: file for file in files}, {job.id: job for job in jobs}, {"home": HOME})


def test_what_went_after_the_plan_was_made_is_made_again_with_what_rests_on_it() -> None:
    """`mid` is not there any more. `late` is, and was made of the other one: two makings would come together in c."""
    bench, first, second = Bench(), deep(1), deep(2)
    bench.world = SimWorld(embedded(100_000), KEEPS, checkers=all_checkers())
    bench.world.submit("w-1", first, make_plan(first, embedded(100_000)))
    made = expected_contents(first, graph_of(first))
    reused = (
        ReusedJob("a", "w-1", "key", (ReusedOutput("mid", 20, made["mid"], kept="p-gone"),)),
        ReusedJob("b", "w-1", "key", (ReusedOutput("late", 20, made["late"], kept=produced_file_id("w-1", "late")),)),
    )
    bench.world.submit("w-2", second, make_plan(second, embedded(100_000)), 50.0, reused=reused)
    bench.simulated()
    assert {job for run, job in bench.started if run == "w-2"} == {"a", "b", "c2"}


def kept(number: int, size_bytes: int, remake_s: float) -> ev.KeptFile:
    return ev.KeptFile(f"p{number}", "", size_bytes, f"b{number}", False, remake_s)


def machine_with(policy: Policy, *files: ev.KeptFile, at: float = 0.0) -> tuple[Machine, list[cmd.Command]]:
    """One whose journal was folded away, and a node that still has these files, and one that nobody knows."""
    machine = Machine(policy, Limits(cores=2))
    machine.step(ev.SchedulerStarted(at=at, epoch=1, version="v"))
    machine.step(ev.ResultsKept(at=at, files=files))
    replicas = tuple(ev.ReplicaSeen(each.file, "g", each.size_bytes, each.blake3) for each in files)
    replicas += (ev.ReplicaSeen("p-unknown", "g", 7, "b"),)
    facts: dict[str, Any] = {"incarnation": "i", "capacity_bytes": 10_000, "can_link": True, "transfers": ()}
    given = machine.step(ev.NodeReported(at=at, node="node0", replicas=replicas, **facts))
    assert not broken_invariants(machine.state)
    return machine, given


def gone(given: list[cmd.Command], why: str) -> list[str]:
    return [command.file for command in given if isinstance(command, cmd.DeleteReplica) and command.why == why]


def test_what_the_journal_no_longer_tells_of_is_kept_where_nodes_have_it() -> None:
    machine, given = machine_with(KEEPS, kept(1, 100, 1.0), kept(2, 200, 1.0))
    assert machine.state.nodes["node0"].kept_bytes == 300 and machine.state.nodes["node0"].present_bytes == 307
    assert [command.file for command in given if isinstance(command, cmd.DeleteReplica)] == ["p-unknown"]


def test_the_cheapest_to_make_again_for_its_size_goes_first_where_there_is_too_much() -> None:
    files = (kept(1, 100, 1.0), kept(2, 400, 400.0), kept(3, 400, 2.0), kept(4, 100, 50.0))
    machine, given = machine_with(KEEPS)
    assert gone(given, TOO_MUCH) == []
    machine, given = machine_with(replace(KEEPS, keep_results_bytes=600), *files)
    assert gone(given, TOO_MUCH) == ["p3"] and machine.state.nodes["node0"].kept_bytes == 600
    given = machine.step(ev.PolicySet(at=1.0, policy=replace(KEEPS, keep_results_bytes=450), limits=Limits(cores=2)))
    assert gone(given, TOO_MUCH) == ["p1", "p4"] and machine.state.nodes["node0"].kept_bytes == 400
    given = machine.step(ev.PolicySet(at=2.0, policy=Policy(), limits=Limits(cores=2)))
    assert [command.file for command in given if isinstance(command, cmd.DeleteReplica)] == ["p2"], "nothing is to be kept any more"


def test_what_nobody_used_for_long_goes() -> None:
    machine, given = machine_with(KEEPS, kept(1, 100, 1.0))
    assert gone(given, TOO_OLD) == []
    workflow = flow(1)
    submitted = ev.RunSubmitted(at=101.0, run="w-1", workflow=workflow, plan=make_plan(workflow, embedded(100_000)))
    assert gone(machine.step(submitted), TOO_OLD) == ["p1"]
