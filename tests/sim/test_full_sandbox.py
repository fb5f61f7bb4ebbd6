"""What outputs beyond their reservations cost in the virtual world, and what the Machine makes of a sandbox that is full."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from stager.estimate import Report, estimate
from stager.model.files import File, Location, Source
from stager.model.topology import Node, Topology
from stager.model.workflow import Job, JobInput, JobOutput, Origin, OriginKind, Workflow
from stager.planning.make_plan import make_plan
from stager.planning.policy import Limits
from stager.scheduler.commands import RunOutcome
from stager.sim.node import SandboxFull, SimNode

MB = 10**6
TAKES_S = 100.0


def makers(count: int, size_bytes: int | None) -> Workflow:
    """Jobs beside one another that make one file each."""
    files = {f"f{number}": File(f"f{number}", size_bytes=size_bytes) for number in range(count)}
    jobs = {
        f"j{number}": Job(f"j{number}", "make", ("make",), outputs=(JobOutput(f"f{number}", f"f{number}"),), compute_s=TAKES_S)
        for number in range(count)
    }
    return Workflow("w", files, jobs, {})


def simulated(
    count: int, said_bytes: int, made_bytes: int, sandbox_bytes: int | None, capacity_bytes: int = 100 * MB, cores: int = 8
) -> Report:
    """Plans that expect so much of each job, in a world where each makes so much."""
    there = Topology((Node("node0", capacity_bytes, cores, disk_bytes_per_s=1e15, sandbox_bytes=sandbox_bytes),))
    plan, truth = (make_plan(makers(count, size), there, limits=Limits(cores=cores)) for size in (said_bytes, made_bytes))
    return estimate(makers(count, said_bytes), there, limits=Limits(cores=cores), plan=plan, truth=truth)


@pytest.mark.parametrize(("sandbox_bytes", "attempts", "wall_s"), [(None, 1, 100), (2 * MB, 1, 100), (2 * MB - 1, 2, 150), (0, 3, 200)])
def test_what_outgrows_reservation_and_sandbox_space_fails_half_way_and_comes_back_with_more(
    sandbox_bytes: int | None, attempts: int, wall_s: float
) -> None:
    report = simulated(1, MB, 3 * MB, sandbox_bytes)
    assert (report.outcome, report.attempts) == (RunOutcome.SUCCEEDED, attempts)
    assert report.wall_s == pytest.approx(wall_s, abs=1)


def test_all_sandboxes_of_a_node_share_one_space_and_give_it_back() -> None:
    """Each alone would fit; the second to come finds what the first has left, and fits once the first has ended."""
    assert simulated(2, MB, 3 * MB, 4 * MB).attempts == 2
    assert simulated(2, MB, 3 * MB, 4 * MB - 1).attempts == 3
    assert simulated(2, MB, 3 * MB, 2 * MB, cores=1).attempts == 2


def test_what_it_had_written_is_set_aside_where_that_is_more_than_twice_as_much() -> None:
    assert simulated(1, MB, 30 * MB, 26 * MB).attempts == 2


def test_a_job_that_outgrows_all_there_is_fails_by_name() -> None:
    report = simulated(1, MB, 30 * MB, MB, capacity_bytes=5 * MB)
    assert report.outcome is RunOutcome.FAILED and report.fault is not None
    assert report.fault.code == "no_space_node"
    assert "job 'j0' made more than 5 MB" in report.fault.message and "its sandbox was full" in report.fault.message
    assert report.attempts == 4


def test_one_that_must_not_run_twice_is_not_tried_again() -> None:
    there = Topology((Node("node0", 100 * MB, 1, sandbox_bytes=0),))
    once = makers(1, MB)
    once = replace(once, jobs={name: replace(job, idempotent=False) for name, job in once.jobs.items()})
    report = estimate(once, there, plan=make_plan(once, there), truth=make_plan(makers(1, 3 * MB), there))
    assert (report.outcome, report.attempts) == (RunOutcome.FAILED, 1)
    assert report.fault is not None and report.fault.code == "sandbox_full" and "idempotent" in report.fault.message


def test_what_a_lost_attempt_had_written_is_free_again() -> None:
    node = SimNode("node0", 100 * MB, sandbox_bytes=2 * MB)
    node.write("a1", 2 * MB)
    with pytest.raises(SandboxFull) as met:
        node.write("a2", 1)
    assert met.value.fitted_bytes == 0
    node.free("a1")
    node.write("a2", 2 * MB)


def beside(spill: bool, made_bytes: int = 30 * MB, capacity_bytes: int = 100 * MB, read_bytes: int = 0) -> Report:
    """Two jobs that may need 60 MB each and will probably make half of that; or one, beside one that only reads."""
    home = Origin("home", OriginKind.SFTP, "sftp://lab/data")
    what = replace(makers(2, 60 * MB), origins={"home": home})
    if read_bytes:
        raw = File("raw", size_bytes=read_bytes, sources=(Source(Location("home", "raw"), read_bytes, "t"),))
        reader = replace(what.jobs["j0"], inputs=(JobInput("raw", "raw"),), outputs=())
        what = replace(what, files={"raw": raw, "f1": what.files["f1"]}, jobs={"j0": reader, "j1": what.jobs["j1"]})
    there = Topology((Node("node0", capacity_bytes, 2, disk_bytes_per_s=1e15),))
    plan = make_plan(what, there, limits=Limits(cores=2), spill_origin="home" if spill else None)
    plan, truth = (
        replace(plan, files=tuple(structs.replace(file, likely_bytes=size) if file.lfn != "raw" else file for file in plan.files))
        for size in (30 * MB, made_bytes)
    )
    return estimate(what, there, limits=Limits(cores=2), plan=plan, truth=truth)


def test_an_idle_core_is_given_a_job_that_has_only_its_likely_room() -> None:
    """Where what is in the way could be spilled: one that outgrows it waits in its sandbox until there is more."""
    assert beside(spill=True).wall_s == pytest.approx(100, abs=1)
    assert beside(spill=False).wall_s == pytest.approx(200, abs=1)
    assert beside(spill=True, read_bytes=50 * MB).wall_s == pytest.approx(101, abs=1)
    assert beside(spill=False, read_bytes=50 * MB).wall_s > 199
    assert beside(spill=True, capacity_bytes=89 * MB).wall_s == pytest.approx(200, abs=1), "29 MB are left, 30 are likely"
    larger = beside(spill=True, made_bytes=45 * MB)
    assert (larger.outcome, larger.attempts) == (RunOutcome.SUCCEEDED, 2)
    assert larger.wall_s == pytest.approx(100, abs=1)
