"""What a plan says of jobs and origins that are not as the machine is."""

from __future__ import annotations

import dataclasses

import pytest

from stager.estimate import estimate
from stager.model.files import Destination, File, Location, Source
from stager.model.topology import embedded
from stager.model.workflow import Job, JobInput, JobOutput, Origin, OriginKind, Workflow, graph_of
from stager.planning.explain import explain_file
from stager.planning.make_plan import make_plan
from stager.scheduler.commands import RunOutcome

SLOW_BYTES_PER_S = 500_000


def one_job(**more: object) -> Workflow:
    """Reads 6 MB and writes 1 MB, at an origin of 500 KB/s."""
    lab = Origin("lab", OriginKind.FILE, "file:///data", options=(("bandwidth", str(SLOW_BYTES_PER_S)),))
    files = {
        "raw": File("raw", size_bytes=6_000_000, sources=(Source(Location("lab", "raw"), 6_000_000, "t"),)),
        "end": File("end", size_bytes=1_000_000, destination=Destination(Location("lab", "end"))),
    }
    given = {"compute_s": 1.0, **more}
    job = Job("fold", "fold", ("true",), inputs=(JobInput("raw", "raw"),), outputs=(JobOutput("end", "end"),), **given)  # type: ignore[arg-type]
    return Workflow("w", files, {"fold": job}, {"lab": lab})


def test_a_job_that_wants_more_memory_than_a_node_has_is_noted() -> None:
    workflow = one_job(memory_bytes=500 * 10**9)
    (note,) = make_plan(workflow, embedded(10**9, memory_bytes=10**9)).notes
    assert "'fold'" in note and "1 GB of memory" in note and "alone" in note
    assert not make_plan(workflow, embedded(10**9)).notes, "memory that is not watched was compared"
    assert not make_plan(workflow, embedded(10**9, memory_bytes=500 * 10**9)).notes


def test_the_declared_bandwidth_of_an_origin_bounds_its_link_in_plan_and_simulation() -> None:
    workflow, topology = one_job(), embedded(10**9)
    plan = make_plan(workflow, topology)
    assert 12 + 2 < plan.makespan_s < 17
    report = estimate(workflow, topology, plan=plan)
    assert report.outcome is RunOutcome.SUCCEEDED and 12 + 2 < report.wall_s < 17
    told = "\n".join(explain_file(workflow, graph_of(workflow), plan, topology, "raw"))
    assert "500 kB/s (the most that its origin's bandwidth allows)" in told


def test_a_bandwidth_above_what_a_link_gives_does_not_make_it_faster() -> None:
    fast = dataclasses.replace(one_job().origins["lab"], options=(("bandwidth", str(10**12)),))
    workflow = dataclasses.replace(one_job(), origins={"lab": fast})
    without = dataclasses.replace(workflow, origins={"lab": dataclasses.replace(fast, options=())})
    assert make_plan(workflow, embedded(10**9)).makespan_s == pytest.approx(make_plan(without, embedded(10**9)).makespan_s)
