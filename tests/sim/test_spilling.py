"""Room that is being spilled is waited for only where what is clean would take longer to come again."""

from __future__ import annotations

import pytest

from stager.estimate import Report, estimate
from stager.model.files import Destination, File, Location, Source
from stager.model.topology import OriginLink, embedded
from stager.model.workflow import Job, JobInput, JobOutput, Origin, OriginKind, Workflow
from stager.planning.make_plan import make_plan
from stager.planning.policy import Limits

LAB = Origin("lab", OriginKind.SFTP, "sftp://lab/data")
MB = 1_000_000
JOBS = 12
COUNTS = " ".join(f"count{number}" for number in range(JOBS))


def with_inputs() -> Workflow:
    """The first job makes 300 MB that the last one reads. In between jobs read 100 MB each, and make 200 MB for one reader."""
    files, jobs = {"seed": external("seed", 10 * MB), "begin": made("begin", MB)}, {"first": job("first", "seed", "mid begin", 1.0)}
    for number in range(JOBS):
        files |= {f"in{number}": external(f"in{number}", 100 * MB), f"made{number}": made(f"made{number}", 200 * MB)}
        jobs[f"work{number}"] = job(f"work{number}", f"in{number} begin", f"made{number}", 10.0)
    return ends_with(files, jobs, "mid")


def ends_with(files: dict[str, File], jobs: dict[str, Job], last: str) -> Workflow:
    for number in range(JOBS):
        files[f"count{number}"] = made(f"count{number}", 1000)
        jobs[f"use{number}"] = job(f"use{number}", f"made{number}", f"count{number}", 1.0)
    files |= {"mid": made("mid", 300 * MB), "end": final("end")}
    return Workflow("w", files, jobs | {"last": job("last", f"{last} {COUNTS}", "end", 1.0)}, {"lab": LAB})


def made(lfn: str, size_bytes: int) -> File:
    return File(lfn, size_bytes=size_bytes)


def final(lfn: str) -> File:
    return File(lfn, size_bytes=1000, destination=Destination(Location("lab", f"out/{lfn}")))


def external(lfn: str, size_bytes: int) -> File:
    return File(lfn, size_bytes=size_bytes, sources=(Source(Location("lab", f"in/{lfn}"), size_bytes, f"t-{lfn}"),))


def job(name: str, reads: str, makes: str, compute_s: float) -> Job:
    inputs, outputs = tuple(JobInput(lfn, lfn) for lfn in reads.split()), tuple(JobOutput(lfn, lfn) for lfn in makes.split())
    return Job(name, "work", ("work",), inputs=inputs, outputs=outputs, compute_s=compute_s, retries=0)


def run(what: Workflow, capacity_mb: int, in_mb_per_s: float, out_mb_per_s: float, spill: str | None) -> Report:
    link = OriginLink("lab", in_mb_per_s * MB, out_mb_per_s * MB, 0.0)
    topology, limits = embedded(capacity_mb * MB, cores=3, links=(link,)), Limits(cores=3)
    plan = make_plan(what, topology, limits=limits, spill_origin=spill)
    return estimate(what, topology, limits=limits, spill_origin=spill, plan=plan)


def test_nobody_waits_for_a_slow_spill_while_what_is_clean_can_go() -> None:
    alone, beside = (run(with_inputs(), 1000, 100.0, 0.2, spill) for spill in (None, "lab"))
    assert beside.wall_s == pytest.approx(alone.wall_s, rel=0.02)


def test_what_comes_again_slowly_stays_while_the_spill_is_soon_over() -> None:
    """60 MB more are wanted for the second job than there are. What the last one reads is spilled, in 4 s; what could go at once is read
    soon, and would take 70 s to come again. The long job ends while it is spilled, and then the room is asked for again.
    """
    files = {
        "again": external("again", 70 * MB),
        "mid": made("mid", 80 * MB),
        "second": made("second", 100 * MB),
        "begin": made("begin", 1000),
    }
    jobs = {"first": job("first", "again", "mid begin", 1.0)}
    files |= {"seed": external("seed", 1000), "count": final("count")}
    jobs["long"] = job("long", "seed", "count", 72.0)
    jobs |= {"second": job("second", "begin", "second", 1.0), "near": job("near", "again second", "near", 1.0)}
    jobs["last"] = job("last", "near mid", "end", 1.0)
    files |= {"near": made("near", 1000), "end": final("end")}
    report = run(Workflow("w", files, jobs, {"lab": LAB}), 191, 1.0, 20.0, "lab")
    assert report.spilled_bytes == 80 * MB
    assert report.fetched_bytes < (70 + 80 + 1) * MB
