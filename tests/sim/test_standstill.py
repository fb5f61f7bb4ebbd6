"""Situations in which a run once stood still, or went round in circles, without a word: each ends now, by itself and for a reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from msgspec import structs

from stager.model.errors import ErrorClass, Fault
from stager.model.files import Destination, File, Location, Source
from stager.model.ids import produced_file_id
from stager.model.topology import Node, OriginLink, Topology
from stager.model.workflow import Job, JobInput, JobOutput, OnFailure, Origin, OriginKind, Workflow
from stager.planning.make_plan import make_plan
from stager.planning.plan import Access, DirectAccess, DirectRead, Plan
from stager.scheduler import events as ev
from stager.scheduler.commands import RunOutcome
from stager.sim.checkers import all_checkers
from stager.sim.faults import NO_FAULTS, Faults, Trouble
from stager.sim.simulate import simulate
from stager.sim.world import SimWorld
from tests.sim.cases import watch_invariants

EVENTS_MAX = 2000
DAMAGE = Fault(ErrorClass.CORRUPT, "object_corrupt", "its bytes are not what they were")
BESIDE = Origin("home", OriginKind.FILE, "file:///data", beside_workflow=True)
FAR_ARCHIVE = Origin("archive", OriginKind.S3, "s3://archive")
LINKS = (OriginLink("home", 30.0, 30.0, 0.05), OriginLink("archive", 100.0, 100.0, 0.05))


@dataclass
class Made:
    """A workflow as it is written down, job by job."""

    origins: Mapping[str, Origin] = field(default_factory=lambda: {"home": BESIDE, "archive": FAR_ARCHIVE})
    files: dict[str, File] = field(default_factory=dict)
    jobs: dict[str, Job] = field(default_factory=dict)

    def external(self, lfn: str, size_bytes: int, path: str = "") -> None:
        self.files[lfn] = File(lfn, size_bytes=size_bytes, sources=(Source(Location("home", path or lfn), size_bytes, "t"),))

    def final(self, lfn: str, size_bytes: int, origin: str = "home") -> None:
        self.files[lfn] = File(lfn, size_bytes=size_bytes, destination=Destination(Location(origin, f"out/{lfn}")))

    def job(self, name: str, reads: str = "", makes: str = "", s: float = 1.0, after: Sequence[str] = ()) -> None:
        for lfn in makes.split():
            self.files.setdefault(lfn, File(lfn, size_bytes=100))
        inputs = tuple(JobInput(lfn, f"in-{lfn}") for lfn in reads.split())
        outputs = tuple(JobOutput(lfn, lfn) for lfn in makes.split())
        self.jobs[name] = Job(name, "work", ("x",), inputs=inputs, outputs=outputs, compute_s=s, after=tuple(after))

    def workflow(self, **more: Any) -> Workflow:
        return Workflow("w", self.files, self.jobs, dict(self.origins), **more)


@dataclass
class Stage:
    """`apart`: nodes on other hosts, which do not reach what is beside the workflow. `where`: the nodes of jobs, by name. `truly`: the
    sizes that files turn out to have, where they are not those of the plan.
    """

    what: Workflow
    nodes: Sequence[Node]
    apart: Collection[str] = ()
    where: Mapping[str, str] = field(default_factory=dict)
    faults: Faults = NO_FAULTS
    changed: Callable[[Plan], Plan] = lambda plan: plan
    truly: Mapping[str, int] = field(default_factory=dict)
    spill_origin: str | None = None
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        topology = Topology(tuple(self.nodes), LINKS)
        plan = make_plan(self.what, topology, spill_origin=self.spill_origin)
        plan = replace(plan, jobs=tuple(structs.replace(job, node=self.where.get(job.job, job.node)) for job in plan.jobs))
        self.world = SimWorld(topology, faults=self.faults, checkers=all_checkers(), keep_journal=True, apart=tuple(self.apart))
        truth = [structs.replace(file, likely_bytes=self.truly.get(file.lfn, file.likely_bytes)) for file in plan.files]
        self.world.submit("r", self.what, self.changed(plan), truth=replace(plan, files=tuple(truth)))

    def play(self) -> RunOutcome | None:
        def watch(machine: Any, events: Any, commands: Any) -> None:
            watch_invariants(machine, events, commands)
            self.counts.update(type(command).__name__ for command in commands)
            assert machine.state.events_seen < EVENTS_MAX, f"it goes round in circles at {machine.state.now}"

        self.machine = simulate(self.world, watch)
        return self.world.runs["r"].outcome


def damaged(world: SimWorld, now: float, lfn: str) -> ev.ReplicaCorrupt:
    """The only copy of this file."""
    file = produced_file_id("r", lfn)
    held = [(node, key) for node in world.nodes.values() for key in node.replicas if key[0] == file]
    ((node, key),) = held
    node.replicas[key].quarantined = True
    return ev.ReplicaCorrupt(at=now, node=node.id, file=file, generation=key[1], fault=DAMAGE)


@pytest.mark.parametrize("apart_first", [True, False])
def test_what_comes_ahead_by_the_relay_leaves_its_own_next_job_its_room(apart_first: bool) -> None:
    """It was fetched for the node apart, and called off for the relay's own job, again and again at one instant."""
    made = Made()
    made.job("slow", s=100.0)
    made.job("tick", s=5.0)
    for number in range(3):
        made.external(f"f{number}", 300)
        made.final(f"o{number}", 10)
        made.job(f"next{number}", f"f{number}", f"o{number}", after=["slow"])
    made.files["big"] = File("big", size_bytes=1000)
    made.job("own", makes="big", after=["tick"])
    nodes = (Node("far", 10_000, 1), Node("near", 1000, 1))
    where = {name: "near" if name in ("tick", "own") else "far" for name in made.jobs}
    stage = Stage(made.workflow(), nodes if apart_first else nodes[::-1], ("far",), where)
    assert stage.play() is RunOutcome.SUCCEEDED and stage.counts["CancelTransfer"] <= 3


@pytest.mark.parametrize("trouble", ["lost", "gone"])
def test_a_run_that_drains_and_loses_all_finals_of_a_job_ends(trouble: str) -> None:
    """Only one of them was taken off what it waited for."""
    made = Made({"home": Origin("home", OriginKind.SFTP, "sftp://lab/data")})
    for lfn in ("A", "B"):
        made.final(lfn, 5000)
    made.job("a", makes="A B")
    made.job("b", s=6.0)
    faults = Faults(1, 20.0, troubles=(Trouble(8.0, trouble, 1.0, 0.0),))
    stage = Stage(made.workflow(on_failure=OnFailure.CONTINUE), (Node("n0", 10**6, 2),), faults=faults)
    stage.world.tell_at(3.0, lambda now: ev.RunDrained(at=now, run="r"))
    assert stage.play() is RunOutcome.INTERRUPTED


@pytest.mark.parametrize("second", ["lost", "damaged"])
def test_a_run_that_drains_and_loses_one_final_after_the_other_ends(second: str) -> None:
    """The first one's job was to run again, so nobody looked at the second one, and the run waited for that to go home."""
    made = Made({"home": Origin("home", OriginKind.SFTP, "sftp://lab/data")})
    for lfn in ("A", "B"):
        made.final(lfn, 5000)
    made.job("a", makes="A B")
    made.job("b", s=6.0)
    troubles = (Trouble(8.0, "lost", 1.0, 0.0),) if second == "lost" else ()
    stage = Stage(made.workflow(on_failure=OnFailure.CONTINUE), (Node("n0", 10**6, 2),), faults=Faults(1, 20.0, troubles=troubles))
    stage.world.tell_at(3.0, lambda now: ev.RunDrained(at=now, run="r"))
    for at, lfn in ((5.0, "A"), (8.0, "B")) if second == "damaged" else ((5.0, "A"),):
        stage.world.tell_at(at, lambda now, lfn=lfn: damaged(stage.world, now, lfn))
    assert stage.play() is RunOutcome.INTERRUPTED


@pytest.mark.parametrize(("is_final", "outcome"), [(False, RunOutcome.FAILED), (True, RunOutcome.NOT_DURABLE)])
def test_without_a_node_that_reaches_the_workflow_s_directory_what_waits_for_it_fails_by_name(is_final: bool, outcome: RunOutcome) -> None:
    made = Made()
    made.job("first", makes="x", s=5.0)
    made.external("f", 300)
    made.final("o", 10, "home" if is_final else "archive")
    made.job("then", "x" if is_final else "f", "o", after=["first"])
    nodes = (Node("near", 10_000, 1), Node("far", 10_000, 1))
    stage = Stage(made.workflow(), nodes, ("far",), dict.fromkeys(made.jobs, "far"))

    def goes() -> None:
        node = stage.world.nodes["near"]
        node.heard = node.up = False
        node.absent = True

    stage.world.clock.at(2.0, goes)
    stage.world.tell_at(3.0, lambda now: ev.NodeGone(at=now, node="near", why="somebody says so"))
    assert stage.play() is outcome
    fault = stage.world.runs["r"].fault
    assert fault.code == "no_node" and "no I/O node is left through which" in fault.message


@pytest.mark.parametrize("direct", [("a", "b"), ("a",)])
def test_one_file_under_two_names_that_cannot_be_mounted_is_fetched_once(direct: Sequence[str]) -> None:
    """It was missing twice and came once, so its job waited for ever."""
    made = Made({"home": Origin("home", OriginKind.SSHFS, "sftp://lab/data")})
    for lfn in ("a", "b"):
        made.external(lfn, 300, "in/x")
    made.final("o", 10)
    made.job("j", "a b", "o")
    access = DirectAccess(1, 1, 1, 1, (DirectRead("work", 300, 1.0),), "")

    def read_directly(plan: Plan) -> Plan:
        files = (structs.replace(file, access=Access.DIRECT, direct_access=access) if file.lfn in direct else file for file in plan.files)
        return replace(plan, files=tuple(files))

    stage = Stage(made.workflow(), (Node("n0", 10**6, 1, can_link=False),), changed=read_directly)
    assert stage.play() is RunOutcome.SUCCEEDED and stage.counts["Fetch"] == 1


@pytest.mark.parametrize("spills", [False, True])
def test_outputs_that_wait_for_room_wait_for_an_origin_that_is_away(spills: bool) -> None:
    """Their job failed for want of room while what was in the way was to go in a moment."""
    made = Made({"home": Origin("home", OriginKind.SFTP, "sftp://lab/data")})
    if spills:
        made.files["ax"] = File("ax", size_bytes=500)
    else:
        made.final("ax", 500)
    made.final("bx", 100)
    made.job("a", makes="ax", s=5.0)
    made.job("b", makes="bx", s=10.0, after=["a"])
    made.job("c", "ax" if spills else "", s=1.0, after=["b"])
    faults = Faults(1, 60.0, troubles=(Trouble(0.0, "origin", 40.0, 0.0, "origin_unreachable"),))
    stage = Stage(made.workflow(), (Node("n0", 1000, 1),), faults=faults, truly={"bx": 600}, spill_origin="home" if spills else None)
    assert stage.play() is RunOutcome.SUCCEEDED and stage.counts["KillAttempt"] == 0
