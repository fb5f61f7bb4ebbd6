"""What is read directly at its origin: where keeping it would not pay, or does not fit; and what never is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stager.model.files import Destination, File, Location, Source
from stager.model.profile import FileProfile, Profile, Quantity
from stager.model.topology import Node, OriginLink, Topology
from stager.model.workflow import (
    CONDA_PATH,
    IMAGE_PATH,
    VENV_PATH,
    IoHint,
    Job,
    JobInput,
    JobOutput,
    Origin,
    OriginKind,
    Workflow,
    graph_of,
)
from stager.planning.explain import explain_file
from stager.planning.iomodel import JUMP_BYTES, READ_AHEAD_BYTES, direct_bytes, direct_s
from stager.planning.make_plan import make_plan
from stager.planning.plan import Access, Plan
from stager.planning.plan_json import from_json, to_json
from stager.planning.policy import Policy

MB, GB = 10**6, 10**9
LAB = Origin("lab", OriginKind.SSHFS, "sshfs://lab/data")
LINK = OriginLink("lab", fetch_bytes_per_s=50e6, upload_bytes_per_s=50e6, latency_s=0.05)


def survey(
    jobs: int = 1, size_bytes: int = GB, compute_s: float = 10.0, origin: Origin = LAB, shared: bool = True, **of_file: Any
) -> Workflow:
    """Jobs that each look at one large file, all at the same one or each at its own."""
    files: dict[str, File] = {}
    made: dict[str, Job] = {}
    for number in range(jobs):
        lfn = "sky" if shared else f"sky{number}"
        sources = (Source(Location("lab", lfn), size_bytes, "m=1;s=1"),)
        files[lfn] = replace(File(lfn, size_bytes=size_bytes, sources=sources), **of_file)
        files[f"out{number}"] = File(f"out{number}", size_bytes=1, destination=Destination(Location("lab", f"out{number}")))
        inputs, outputs = (JobInput(lfn, "sky"),), (JobOutput(f"out{number}", "o"),)
        made[f"look{number}"] = Job(f"look{number}", "look", ("true",), inputs=inputs, outputs=outputs, compute_s=compute_s)
    return Workflow("survey", files, made, {"lab": origin})


def traced(touched: float, sequential: float | None = 1.0, pattern: str = "sky") -> dict[str, Profile]:
    """As `stager profile trace` would have seen the job type."""

    def quantity(value: float) -> Quantity:
        return Quantity(value, value)

    seen = FileProfile(pattern, quantity(1), touched_fraction=quantity(touched), reads_per_byte=quantity(1.0))
    seen = seen if sequential is None else replace(seen, sequential_fraction=quantity(sequential))
    return {"look": Profile("look", samples=1, inputs={pattern: seen})}


def topology(cores: int = 4, capacity_bytes: int = 100 * GB, **of_node: Any) -> Topology:
    return Topology((Node("node0", capacity_bytes, cores, **of_node),), (LINK,))


def access(plan: Plan, lfn: str = "sky") -> Access:
    return next(file.access for file in plan.files if file.lfn == lfn)


@pytest.mark.parametrize("path", [IMAGE_PATH, VENV_PATH, CONDA_PATH])
def test_what_surrounds_a_job_is_never_read_directly(path: str) -> None:
    workflow = survey()
    job = replace(workflow.jobs["look0"], inputs=(JobInput("sky", path),))
    assert access(make_plan(replace(workflow, jobs={"look0": job}), topology(), traced(0.01))) is not Access.DIRECT


def test_a_large_file_of_which_a_job_reads_little_is_read_directly() -> None:
    plan = make_plan(survey(), topology(), traced(0.01))
    assert access(plan) is Access.DIRECT
    assert (plan.fetch_bytes, plan.direct_read_bytes, plan.smallest_capacity_bytes) == (0, 10 * MB, 1)
    # A tenth of a second to open it, half a second at 20 MB/s, ten to compute; fetching all of it first takes twenty.
    kept = make_plan(survey(), topology(), traced(0.01), Policy(direct_access=False))
    assert plan.makespan_s < 11 < 30 < kept.makespan_s and access(kept) is Access.LINK


def test_what_nobody_traced_counts_as_read_whole_and_is_kept() -> None:
    assert access(make_plan(survey(), topology())) is Access.LINK
    assert access(make_plan(survey(), topology(), traced(0.01), ignore_profiles=True)) is Access.LINK


def test_what_is_declared_of_a_type_counts_where_nothing_was_traced() -> None:
    hinted = replace(survey(), hints={"look": IoHint("look", read_fraction=0.001)})
    assert access(make_plan(hinted, topology())) is Access.DIRECT
    assert access(make_plan(hinted, topology(), traced(1.0))) is Access.LINK


def test_what_is_read_here_and_there_is_read_directly_only_where_it_is_very_little() -> None:
    """A round trip for each jump: a hundredth of a gigabyte takes half a minute so, fetching all of it 20 s."""
    assert access(make_plan(survey(), topology(), traced(0.01, sequential=0.0))) is Access.LINK
    assert access(make_plan(survey(), topology(), traced(0.01, sequential=None))) is Access.LINK
    assert access(make_plan(survey(), topology(), traced(0.001, sequential=0.0))) is Access.DIRECT


def test_many_readers_share_one_fetch_so_the_choice_is_for_the_file() -> None:
    """Each of them reads a tenth: two save most of it, twenty would move it twice."""
    assert access(make_plan(survey(2), topology(), traced(0.1))) is Access.DIRECT
    assert access(make_plan(survey(20), topology(), traced(0.1))) is Access.LINK


def test_what_is_fetched_beside_computing_is_kept() -> None:
    """Chains of hours on all cores: the fetch costs them nothing, and standing still would."""
    workflow = survey(1)
    jobs = dict(workflow.jobs) | {
        f"busy{number}": Job(f"busy{number}", "busy", ("true",), compute_s=3600.0, outputs=(JobOutput(f"b{number}", "b"),))
        for number in range(8)
    }
    jobs["look0"] = replace(jobs["look0"], after=("busy0",))
    files = dict(workflow.files) | {f"b{number}": File(f"b{number}", size_bytes=1) for number in range(8)}
    assert access(make_plan(replace(workflow, jobs=jobs, files=files), topology(), traced(0.5))) is Access.LINK


SOURCE = Source(Location("lab", "sky"), GB, "m=1;s=1")


@pytest.mark.parametrize(
    ("what", "workflow"),
    [
        ("not an origin that can be mounted", survey(origin=Origin("lab", OriginKind.SFTP, "sftp://lab/data"))),
        ("a second source to fall back to", survey(sources=(SOURCE, replace(SOURCE, location=Location("lab", "copy"))))),
        ("a checksum to verify it by", survey(sha256="0" * 64)),
        ("a program", survey(executable=True)),
        ("no token", survey(sources=(replace(SOURCE, token=None),))),
        ("written a moment ago", survey(sources=(replace(SOURCE, settled=False),))),
        ("small", survey(size_bytes=60_000)),
    ],
)
def test_what_needs_more_than_a_mount_is_kept(what: str, workflow: Workflow) -> None:
    plan = make_plan(workflow, topology(capacity_bytes=MB), traced(0.0001))
    assert access(plan) is not Access.DIRECT and plan.files[-1].direct_access is None, what


def test_where_jobs_cannot_be_given_mounts_all_is_kept() -> None:
    assert access(make_plan(survey(), topology(can_link=False), traced(0.01))) is Access.LINK


def test_inputs_that_do_not_fit_are_read_directly_even_where_it_does_not_pay() -> None:
    workflow = survey()
    assert access(make_plan(workflow, topology(capacity_bytes=2 * GB))) is Access.LINK
    plan = make_plan(workflow, topology(capacity_bytes=GB // 2))
    assert access(plan) is Access.DIRECT and plan.smallest_capacity_bytes <= plan.capacity_bytes
    assert make_plan(workflow, topology(capacity_bytes=GB // 2), policy=Policy(direct_access=False)).smallest_capacity_bytes > GB


def test_of_what_does_not_fit_no_more_is_read_directly_than_has_to_be() -> None:
    """Two files of a gigabyte and one of half, room for two: the first of the largest goes."""
    sizes = {"one": GB, "two": GB, "half": GB // 2}
    files = {lfn: File(lfn, size_bytes=size, sources=(Source(Location("lab", lfn), size, "m=1"),)) for lfn, size in sizes.items()}
    job = Job("join", "join", ("true",), inputs=tuple(JobInput(lfn, lfn) for lfn in files), compute_s=1.0)
    plan = make_plan(Workflow("w", files, {"join": job}, {"lab": LAB}), topology(capacity_bytes=2 * GB))
    assert {file.lfn: file.access for file in plan.files} == {"half": Access.LINK, "one": Access.DIRECT, "two": Access.LINK}
    assert plan.jobs[0].footprint_bytes == 3 * GB // 2


def test_the_reason_is_told_with_the_numbers_of_both_ways() -> None:
    def told(workflow: Workflow, **more: Any) -> str:
        plan = make_plan(workflow, topology(**more), traced(0.01))
        return "\n".join(explain_file(workflow, graph_of(workflow), plan, topology(**more), "sky"))

    text = told(survey())
    assert "access: read directly at the origin" in text and "never on a node" in text
    assert "kept: 1 GB over the wide area, the run takes 32 s at least; direct access: 10 MB, 11 s at least; so directly" in text
    assert "a job of type 'look' reads 10 MB of it there in 0.60 s" in text
    assert "so kept: its readers together would have as much" in told(survey(200))


def test_a_plan_keeps_its_reasons_in_json() -> None:
    plan = make_plan(survey(3), topology(), traced(0.01))
    assert from_json(to_json(plan)) == plan


@given(st.integers(1, 10**12), st.floats(0, 1), st.floats(0, 10), st.floats(0, 1), st.floats(1e3, 1e9), st.floats(0, 1))
def test_reading_more_of_it_never_costs_less(size: int, touched: float, again: float, ordered: float, rate: float, latency: float) -> None:
    moved = direct_bytes(size, touched, again)
    assert min(size, READ_AHEAD_BYTES) <= moved <= max(size * max(1.0, again), READ_AHEAD_BYTES) + 1
    assert moved <= direct_bytes(size, 1.0, again) + 1
    alone_s = direct_s(moved, ordered, rate, latency)
    assert alone_s >= 2 * latency + moved / rate * (1 - 1e-9)
    assert direct_s(moved, 1.0, rate, latency) <= alone_s * (1 + 1e-9)
    assert latency * JUMP_BYTES < 1 or direct_s(moved, 0.0, rate, latency) >= 2 * latency + moved * latency / JUMP_BYTES * (1 - 1e-9)


@given(st.integers(1, 12), st.booleans(), st.floats(0.0001, 1), st.floats(0, 1), st.integers(1, 8), st.floats(0, 100))
def test_a_plan_that_reads_in_place_moves_less_and_fits_as_well(
    jobs: int, shared: bool, touched: float, ordered: float, cores: int, compute_s: float
) -> None:
    workflow = survey(jobs, compute_s=compute_s, shared=shared)
    profiles = traced(touched, ordered, "sky" if shared else "sky*")
    chosen, kept = (make_plan(workflow, topology(cores), profiles, Policy(direct_access=on)) for on in (True, False))
    assert chosen.fetch_bytes + chosen.direct_read_bytes <= kept.fetch_bytes
    assert chosen.smallest_capacity_bytes <= kept.smallest_capacity_bytes
    if any(file.access is Access.DIRECT for file in chosen.files):
        assert chosen.fetch_bytes + chosen.direct_read_bytes < kept.fetch_bytes
    assert to_json(chosen) == to_json(make_plan(workflow, topology(cores), profiles))
