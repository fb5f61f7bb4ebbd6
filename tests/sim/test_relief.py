"""A node whose line is slow holds up nobody: what waits there for it goes where it comes sooner, and what is on its way is called off."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from msgspec import structs

from stager.model.errors import ErrorClass, Fault
from stager.model.files import File, Location, Source
from stager.model.ids import produced_file_id
from stager.model.topology import Node, OriginLink, Topology
from stager.model.workflow import Job, JobInput, JobOutput, Origin, OriginKind, Workflow
from stager.planning.make_plan import make_plan
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.scheduler.commands import RunOutcome
from stager.scheduler.machine import Machine
from stager.scheduler.states import JobState
from stager.sim.checkers import all_checkers
from stager.sim.simulate import simulate
from stager.sim.world import SimWorld
from tests.sim.cases import check_replay, watch_invariants
from tests.sim.test_several_nodes import workflow

FAST, SLOW = 1000.0, 100.0
LINK = OriginLink("lab", 1e6, 1e6, 0.1, measured=True, node_fetch_bytes_per_s=FAST)
SIZE = 1000


class Race:
    """`jobs` read a file each, and are planned for the nodes in turn; the line of node1 has `slow` bytes a second."""

    def __init__(self, jobs: int, takes_s: float, slow: float, nodes: int = 2, size_bytes: int = SIZE) -> None:
        what = workflow({f"in{n}": size_bytes for n in range(jobs)}, {f"j{n}": (f"in{n}", f"out{n}", takes_s) for n in range(jobs)})
        names = [f"node{number}" for number in range(nodes)]
        topology = Topology(tuple(Node(name, 10_000_000, 1, disk_bytes_per_s=1e6, network_bytes_per_s=1e6) for name in names), (LINK,))
        plan = make_plan(what, topology)
        placed = tuple(structs.replace(job, node=names[number % nodes]) for number, job in enumerate(plan.jobs))
        self.world = SimWorld(topology, checkers=all_checkers(), keep_journal=True)
        self.world.submit("r", what, replace(plan, jobs=placed))
        if nodes > 1:
            self.world.links.bytes_per_s[f"line:fetch:{what.origins['lab'].url}:node1"] = slow
        self.commands: list[cmd.Command] = []
        machine = simulate(self.world, self._watch)
        check_replay(self.world, machine)
        assert self.world.runs["r"].outcome is RunOutcome.SUCCEEDED

    def _watch(self, machine: object, events: object, commands: list[cmd.Command]) -> None:
        watch_invariants(machine, events, commands)
        self.commands += commands

    @property
    def took_s(self) -> float:
        return self.world.runs["r"].finished_at

    @property
    def ran_on(self) -> Counter[str]:
        return Counter(command.node for command in self.commands if isinstance(command, cmd.StartAttempt))

    @property
    def called_off(self) -> int:
        return sum(isinstance(command, cmd.CancelTransfer) for command in self.commands)


@pytest.mark.parametrize(("jobs", "takes_s"), [(12, 4.0), (40, 4.0), (40, 0.1), (200, 1.0), (3, 1.0)])
def test_a_node_with_a_tenth_of_the_line_makes_no_run_longer(jobs: int, takes_s: float) -> None:
    alone, both = Race(jobs, takes_s, FAST, nodes=1), Race(jobs, takes_s, SLOW)
    assert both.took_s <= 1.02 * alone.took_s


def test_of_large_files_the_slow_node_keeps_none_for_long() -> None:
    """Files of 100 s each: one of three would be on its way to node1 for 1,000 s, and nothing happens there meanwhile."""
    race = Race(3, 1.0, SLOW, size_bytes=100_000)
    assert race.ran_on == {"node0": 3}
    assert race.took_s < 400.0


def test_a_line_that_says_nothing_is_looked_at_again() -> None:
    """After 101 s the other node has nothing to do, and a file of 100 s could still come any moment; nothing happens from then on."""
    race = Race(2, 1.0, SLOW, size_bytes=100_000)
    assert race.ran_on == {"node0": 2}
    assert race.took_s < 400.0


@pytest.mark.parametrize(("jobs", "takes_s"), [(12, 4.0), (40, 0.1), (200, 1.0), (3, 1.0)])
def test_nodes_alike_take_nothing_from_each_other(jobs: int, takes_s: float) -> None:
    race = Race(jobs, takes_s, FAST)
    assert race.called_off == 0
    assert race.world.transfers.fetched_bytes == jobs * SIZE


def test_a_job_stays_where_it_was_admitted_while_one_above_it_runs_again() -> None:
    """Its own input of that job is there. The other one is lost at 210 s and made again until 410 s. From 256 s on it is plain that node0
    would have what the waiting job reads much sooner, but there it would wait for the one above it.
    """
    files = {lfn: File(lfn, size_bytes=10) for lfn in ("mine", "lost", "held", "one", "two")}
    for lfn, size_bytes in (("small", 1000), ("large", 100_000)):
        files[lfn] = File(lfn, size_bytes=size_bytes, sources=(Source(Location("lab", lfn), size_bytes, f"t-{lfn}"),))
    jobs = {
        "make": Job("make", "t", ("m",), outputs=(JobOutput("mine", "mine"), JobOutput("lost", "lost")), compute_s=200.0),
        "busy": Job("busy", "t", ("b",), inputs=(JobInput("small", "small"),), outputs=(JobOutput("held", "held"),), compute_s=299.0),
        "one": Job(
            "one",
            "t",
            ("o",),
            inputs=(JobInput("mine", "mine"), JobInput("large", "large")),
            outputs=(JobOutput("one", "one"),),
            compute_s=1.0,
        ),
        "two": Job(
            "two",
            "t",
            ("t",),
            inputs=(JobInput("lost", "lost"), JobInput("held", "held")),
            outputs=(JobOutput("two", "two"),),
            compute_s=1.0,
        ),
    }
    what = Workflow("w", files, jobs, {"lab": Origin("lab", OriginKind.FILE, "file:///lab")})
    there = Topology(
        tuple(Node(name, 10_000_000, 1, disk_bytes_per_s=1e6, network_bytes_per_s=1e6) for name in ("node0", "node1")), (LINK,)
    )
    plan = make_plan(what, there)
    placed = tuple(structs.replace(job, node="node0" if job.job == "busy" else "node1") for job in plan.jobs)
    world = SimWorld(there, checkers=all_checkers())
    world.submit("r", what, replace(plan, jobs=placed))
    world.links.bytes_per_s["line:fetch:file:///lab:node1"] = SLOW
    lost, rehomed = produced_file_id("r", "lost"), []

    def damaged(now: float) -> ev.ReplicaCorrupt:
        generation = next(generation for file, generation in world.nodes["node1"].replicas if file == lost)
        world.nodes["node1"].replicas[lost, generation].quarantined = True
        return ev.ReplicaCorrupt(at=now, node="node1", file=lost, generation=generation, fault=Fault(ErrorClass.CORRUPT, "bit", "a bit"))

    def watch(machine: Machine, events: object, commands: list[cmd.Command]) -> None:
        watch_invariants(machine, events, commands)
        if any(isinstance(command, cmd.RehomeJob) and command.job == "one" for command in commands):
            rehomed.append((machine.state.now, machine.state.runs["r"].jobs["make"].state))

    world.tell_at(210.0, damaged)
    run = simulate(world, watch).state.runs["r"]
    assert run.outcome is RunOutcome.SUCCEEDED and run.jobs["make"].attempts == 2
    [(at, state)] = rehomed
    assert at > 410.0 and state is JobState.DONE
