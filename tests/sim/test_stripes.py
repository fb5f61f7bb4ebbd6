"""Stripes on the way: several nodes' narrow lines bring one file sooner, nothing of it is left behind, and what goes wrong ends in a plain
fetch.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from stager.model.files import File, Location, Source
from stager.model.topology import Node, OriginLink, Topology
from stager.model.workflow import Job, JobInput, JobOutput, Origin, OriginKind, Workflow
from stager.planning.bounds import lower_bound
from stager.planning.make_plan import make_plan
from stager.planning.plan import Plan
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.scheduler.commands import RunOutcome
from stager.scheduler.machine import Machine
from stager.sim.checkers import all_checkers
from stager.sim.faults import NO_FAULTS, Faults, Trouble
from stager.sim.simulate import simulate
from stager.sim.world import SimWorld
from tests.sim.cases import check_replay, watch_invariants

GB, MB = 10**9, 10**6
LAB = Origin("lab", OriginKind.SFTP, "sftp://lab/data")


def reading(size_bytes: int, *, computes: dict[str, float] | None = None) -> Workflow:
    """Job `a` reads the file at once; others only compute, so long."""
    files = {"big": File("big", size_bytes=size_bytes, sources=(Source(Location("lab", "big"), size_bytes, "t"),))}
    jobs = {"a": Job("a", "work", ("work",), inputs=(JobInput("big", "big"),), compute_s=0.0, retries=0)}
    jobs |= {name: Job(name, "work", ("work",), compute_s=long_s, retries=0) for name, long_s in (computes or {}).items()}
    return Workflow("w", files, jobs, {"lab": LAB})


def cluster(
    nodes: int, line: float | None = 20e6, capacity_bytes: int = 1000 * GB, link: float = 135e6, network: float = 1250e6
) -> Topology:
    each = (Node(f"node{number}", capacity_bytes, 4, None, 1e9, network) for number in range(nodes))
    return Topology(tuple(each), (OriginLink("lab", 135e6, 135e6, 0.0, node_fetch_bytes_per_s=line),))


class Stage:
    def __init__(self, what: Workflow, topology: Topology, faults: Faults = NO_FAULTS, plan: Plan | None = None) -> None:
        self.plan = plan or make_plan(what, topology)
        self.plan = replace(self.plan, jobs=tuple(structs.replace(job, node="node0") for job in self.plan.jobs))
        self.world = SimWorld(topology, faults=faults, checkers=all_checkers(), keep_journal=True)
        self.world.submit("r", what, self.plan)
        self.commands: list[cmd.Command] = []

    def play(self) -> float:
        """When it was over; it must end well."""

        def watch(machine: Machine, events: object, commands: list[cmd.Command]) -> None:
            watch_invariants(machine, events, commands)
            self.commands += commands

        self.machine = simulate(self.world, watch)
        check_replay(self.world, self.machine)
        run = self.world.runs["r"]
        assert run.outcome is RunOutcome.SUCCEEDED, run.fault
        return run.finished_at

    def made(self, kind: type) -> list[cmd.Command]:
        return [command for command in self.commands if type(command) is kind]

    def parts(self) -> list[cmd.Fetch]:
        return [command for command in self.commands if isinstance(command, cmd.Fetch) and command.stripe is not None]

    def whole(self) -> list[cmd.Fetch]:
        return [command for command in self.commands if isinstance(command, cmd.Fetch) and command.stripe is None]


def test_a_large_file_over_narrow_lines_comes_as_many_times_sooner_as_lines_fill_the_link() -> None:
    what = reading(100 * GB)
    # Reading it takes the job another 100 s of the node's disk.
    striped, plain = Stage(what, cluster(8)), Stage(what, cluster(1))
    striped_s, plain_s = striped.play() - 100, plain.play() - 100
    assert plain_s == pytest.approx(5000, rel=1e-3)
    assert plain_s / striped_s == pytest.approx(135 / 20, rel=0.01)
    assert (len(striped.parts()), striped.whole(), len(striped.made(cmd.AssembleStripes))) == (7, [], 1)
    assert striped.plan.makespan_s == pytest.approx(striped_s + 100, rel=0.01)
    assert lower_bound(what, cluster(8), striped.plan).least_s <= striped_s + 100
    # The parts are gone, what is left is the file where it was read; each byte crossed the wide area once and came to node0 once.
    assert [len(node.replicas) for node in striped.world.nodes.values()] == [1] + [0] * 7
    assert (striped.world.transfers.fetched_bytes, striped.world.transfers.copied_bytes) == (100 * GB, 100 * GB)
    run = striped.machine.state.runs["r"]
    assert (run.fetched_bytes, run.fetches) == (100 * GB, 1)


def test_the_table_of_s1_reading_grows_with_the_number_of_io_nodes_to_about_eight_times() -> None:
    """One client: under 20 MB/s without I/O nodes (here an eighth of the line), with eight about eight times that. All networks are as
    wide as the line to the lab, 1 Gbit/s.
    """
    rates = []
    for nodes in range(1, 9):
        stage = Stage(reading(10 * GB), cluster(nodes, line=135e6 / 8, network=135e6))
        rates.append(10 * GB / (stage.play() - 10))
    assert rates[0] == pytest.approx(16.9e6, rel=0.01)
    assert [rate / rates[0] for rate in rates] == pytest.approx([1, 2, 3, 4, 5, 6, 7, 8], rel=0.02)


def uneven(*capacities_bytes: int) -> Topology:
    even = cluster(len(capacities_bytes))
    nodes = zip(even.nodes, capacities_bytes, strict=True)
    return replace(even, nodes=tuple(replace(node, capacity_bytes=capacity_bytes) for node, capacity_bytes in nodes))


@pytest.mark.parametrize("small", [100 * MB, 500 * MB])
def test_a_small_node_keeps_only_itself_from_stripes(small: int) -> None:
    """The smaller one has no room for a part, the larger one for a part but not beside its own jobs."""
    stage = Stage(reading(GB), uneven(*[100 * GB] * 4, small))
    assert stage.play() == pytest.approx(Stage(reading(GB), cluster(4)).play(), rel=1e-3)
    assert sorted(part.node for part in stage.parts()) == [f"node{number}" for number in range(4)]


def test_a_small_node_is_no_part_of_more_stripes_than_it_has_room_for() -> None:
    """The plan asks for five: seen from where it was made the fifth node was larger."""
    stage = Stage(reading(GB), uneven(*[100 * GB] * 4, 300 * MB), plan=make_plan(reading(GB), cluster(5)))
    assert [file.stripes for file in stage.plan.files] == [5]
    stage.play()
    assert sorted(part.node for part in stage.parts()) == [f"node{number}" for number in range(4)]


def test_a_node_too_small_for_its_own_part_reads_what_others_bring() -> None:
    """node0 holds the file, and no part beside it."""
    stage = Stage(reading(GB), uneven(1100 * MB, *[100 * GB] * 4))
    assert stage.play() == pytest.approx(Stage(reading(GB), cluster(4)).play(), rel=0.05)
    assert sorted(part.node for part in stage.parts()) == [f"node{number}" for number in range(1, 5)]


def test_stripes_over_a_slow_inside_are_as_slow_as_that() -> None:
    """Planned all the same: the simulation knows what the second hop costs."""
    what, topology = reading(GB), cluster(8, network=30e6)
    plan = make_plan(what, topology)
    assert [file.stripes for file in plan.files] == [2]
    forced = replace(plan, files=tuple(structs.replace(file, stripes=4) for file in plan.files))
    # Its own part comes over its own disk; three quarters over its network, beside what it fetches.
    assert Stage(what, topology, plan=forced).play() - 1 >= 0.75 * GB / 30e6


def lost(at: float, node: int, nodes: int, what: str = "restart", lasts_s: float = 1.0) -> Faults:
    return Faults(troubles=(Trouble(at=at, what=what, lasts_s=lasts_s, at_share=(node + 0.5) / nodes),))


@pytest.mark.parametrize("node", [0, 1])
def test_a_node_that_dies_with_its_part_costs_the_stripes_and_not_the_run(node: int) -> None:
    stage = Stage(reading(8 * GB), cluster(8), lost(20.0, node, 8))
    took_s = stage.play()
    if node:
        # The reader's own node lives: it fetches the file whole from then on.
        assert [command.transfer for command in stage.made(cmd.GiveUpStripes)] == [
            command.transfer for command in stage.made(cmd.AssembleStripes)
        ]
        assert len(stage.whole()) == 1
        assert took_s == pytest.approx(20 + 8 * GB / 20e6 + 8, rel=0.01)
    else:
        # What assembles died with its node, which says so: stripes again.
        assert len(stage.made(cmd.AssembleStripes)) == 2
        assert took_s == pytest.approx(21 + 8 * GB / 135e6 + 8, rel=0.02)


def test_a_node_that_dies_before_all_of_its_part_was_assembled_costs_the_stripes_too() -> None:
    """Its part came in 33 s, and passes on from it in 66, beside the other part on the way into node0."""
    what, topology = reading(GB), cluster(2, network=15e6)
    plan = make_plan(what, topology)
    plan = replace(plan, files=tuple(structs.replace(file, stripes=2) for file in plan.files))
    stage = Stage(what, topology, lost(45.0, 1, 2), plan)
    stage.play()
    assert [part.node for part in stage.parts()] == ["node0", "node1"]
    assert len(stage.made(cmd.GiveUpStripes)) == len(stage.whole()) == 1


def test_a_node_that_cannot_be_heard_goes_on_with_its_part() -> None:
    stage = Stage(reading(8 * GB), cluster(8), lost(20.0, 1, 8, "outage", 500.0))
    assert stage.play() == pytest.approx(8 * GB / 135e6 + 8, rel=0.01)
    assert stage.made(cmd.GiveUpStripes) == []


def test_an_origin_that_fails_ends_the_stripes_and_is_tried_again_as_for_any_fetch() -> None:
    away = Faults(troubles=(Trouble(at=20.0, what="origin", lasts_s=100.0, code="origin_unreachable"),))
    stage = Stage(reading(8 * GB), cluster(8), away)
    assert stage.play() >= 120 + 8
    assert len(stage.made(cmd.GiveUpStripes)) == 1
    assert stage.made(cmd.RetryTransferAt)


def test_what_a_node_could_not_be_told_to_call_off_is_called_off_when_it_is_heard_again() -> None:
    """node1 is away when node2 dies with its part."""
    away, dies = lost(19.0, 1, 8, "outage", 11.0).troubles, lost(20.0, 2, 8).troubles
    stage = Stage(reading(8 * GB), cluster(8), Faults(troubles=(*away, *dies)))
    stage.play()
    part = next(part.transfer for part in stage.parts() if part.node == "node1")
    called_off = [command.at for command in stage.commands if isinstance(command, cmd.CancelTransfer) and command.transfer == part]
    assert called_off == [pytest.approx(30.0)]
    assert stage.world.transfers.fetched_bytes == 8 * GB


def test_parts_are_reprioritized_with_what_assembles_them() -> None:
    """Its job waits for another first."""
    what = reading(8 * GB)
    files = what.files | {"seed": File("seed", size_bytes=1)}
    jobs = {
        "slow": Job("slow", "work", ("work",), outputs=(JobOutput("seed", "seed"),), compute_s=10.0, retries=0),
        "a": replace(what.jobs["a"], inputs=(*what.jobs["a"].inputs, JobInput("seed", "seed"))),
    }
    stage = Stage(replace(what, files=files, jobs=jobs), cluster(8))
    stage.play()
    assert {part.purpose for part in stage.parts()} == {cmd.Purpose.PREFETCH}
    reprioritized = {command.transfer for command in stage.commands if isinstance(command, cmd.Reprioritize)}
    [assemble] = [command.transfer for command in stage.commands if isinstance(command, cmd.AssembleStripes)]
    assert reprioritized == {assemble, *(part.transfer for part in stage.parts())}


def test_a_job_that_needs_the_room_of_a_part_gets_it() -> None:
    """node1 has room for a part or for the job's output, not for both."""
    what = reading(8 * GB)
    files = what.files | {"out": File("out", size_bytes=14 * GB), "seed": File("seed", size_bytes=1)}
    jobs = what.jobs | {
        "first": Job("first", "work", ("work",), outputs=(JobOutput("seed", "seed"),), compute_s=30.0, retries=0),
        "b": Job("b", "work", ("work",), inputs=(JobInput("seed", "seed"),), outputs=(JobOutput("out", "out"),), compute_s=1.0, retries=0),
    }
    what = replace(what, files=files, jobs=jobs)
    topology = cluster(2, capacity_bytes=17 * GB)
    plan = make_plan(what, topology)
    plan = replace(plan, files=tuple(structs.replace(file, stripes=2 if file.lfn == "big" else 1) for file in plan.files))
    stage = Stage(what, topology, plan=plan)
    stage.plan = replace(plan, jobs=tuple(structs.replace(job, node="node0" if job.job == "a" else "node1") for job in plan.jobs))
    stage.world = SimWorld(topology, checkers=all_checkers(), keep_journal=True)
    stage.world.submit("r", what, stage.plan)
    assert stage.play() > 0
    [given_up] = stage.made(cmd.GiveUpStripes)
    assert isinstance(given_up, cmd.GiveUpStripes)
    assert given_up.why == "a job needs the room that its part takes on node1"
    [started] = [command for command in stage.commands if isinstance(command, cmd.StartAttempt) and command.job == "b"]
    # Not after the part, which takes 200 s.
    assert started.at == pytest.approx(30.0, abs=1.0)


def test_the_lines_of_busy_nodes_are_not_loaded_further() -> None:
    """Two large files, one for each of two nodes: however they go, both lines carry as much."""
    files = {name: File(name, size_bytes=GB, sources=(Source(Location("lab", name), GB, "t"),)) for name in ("x", "y")}
    jobs = {
        name: Job(name, "work", ("work",), inputs=(JobInput(lfn, lfn),), compute_s=0.0, retries=0) for name, lfn in (("a", "x"), ("b", "y"))
    }
    what, topology = Workflow("w", files, jobs, {"lab": LAB}), cluster(2)
    plan = make_plan(what, topology)
    assert [file.stripes for file in plan.files] == [2, 2]
    stage = Stage(what, topology)
    stage.plan = replace(plan, jobs=tuple(structs.replace(job, node="node0" if job.job == "a" else "node1") for job in plan.jobs))
    stage.world = SimWorld(topology, checkers=all_checkers(), keep_journal=True)
    stage.world.submit("r", what, stage.plan)
    assert stage.play() <= 2 * GB / 40e6 + 2


def test_a_node_that_does_not_say_that_it_can_assemble_never_has_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """As no real node does yet: a plan with stripes is followed without them."""
    before = SimWorld.report
    monkeypatch.setattr(SimWorld, "report", lambda world, node: ev_without_assembly(before(world, node)))
    stage = Stage(reading(GB), cluster(8))
    assert [file.stripes for file in stage.plan.files] == [7]
    assert stage.play() == pytest.approx(GB / 20e6 + 1, rel=0.01)
    assert (stage.parts(), len(stage.whole())) == ([], 1)


def ev_without_assembly(report: ev.NodeReported) -> ev.NodeReported:
    return ev.NodeReported(**{name: getattr(report, name) for name in report.__struct_fields__ if name != "can_assemble"})
