"""Plans: order, space, sizes, access, refusals, JSON, explanations; against slow and obvious models where there is one."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stager.model.errors import InvalidInput, Refused
from stager.model.files import Destination, File, FileKind, Location, Source
from stager.model.profile import FileProfile, Profile, Quantity
from stager.model.topology import Node, OriginLink, Topology, embedded
from stager.model.workflow import IoHint, Job, JobInput, JobOutput, Origin, OriginKind, Workflow, graph_of
from stager.planning.access import COPY_BYTES_MAX
from stager.planning.explain import explain_file
from stager.planning.make_plan import check_capacity, make_plan
from stager.planning.order import eager_order
from stager.planning.plan import Access, Basis, Plan
from stager.planning.plan_json import diff, from_json, plan_digest, to_json
from stager.planning.policy import Limits
from stager.planning.shape import shape_of
from stager.planning.sizes import expected
from stager.planning.space import serial_usage

HOME = Origin("home", OriginKind.SFTP, "sftp://lab/data", options=(("shell_checksum", "false"),))
LARGE = 10**15


def job(name: str, reads: str = "", makes: str = "", **more: object) -> Job:
    return Job(
        name,
        str(more.pop("job_type", "work")),
        ("true",),
        inputs=tuple(JobInput(lfn, lfn) for lfn in reads.split()),
        outputs=tuple(JobOutput(lfn, lfn) for lfn in makes.split()),
        **more,  # type: ignore[arg-type]
    )


def external(lfn: str, size: int, token: str = "t1") -> File:
    return File(lfn, size_bytes=size, sources=(Source(Location("home", "in/" + lfn), size, token),))


def made(lfn: str, size: int | None = None, final: bool = False, kind: FileKind = FileKind.FILE) -> File:
    return File(lfn, kind, size, destination=Destination(Location("home", "out/" + lfn)) if final else None)


def workflow_of(files: list[File], jobs: list[Job], **more: object) -> Workflow:
    return Workflow("w", {file.lfn: file for file in files}, {entry.id: entry for entry in jobs}, {"home": HOME}, **more)  # type: ignore[arg-type]


def diamond() -> Workflow:
    files = [external("raw", 1000), made("left", 100), made("right", 200), made("end", 50, final=True)]
    jobs = [job("top_left", "raw", "left"), job("top_right", "raw", "right"), job("join", "left right", "end")]
    return workflow_of(files, jobs)


@st.composite
def workflows(draw: st.DrawFn) -> Workflow:
    """Random DAGs of up to seven jobs with shared externals, fan-in, fan-out, finals, `after` edges."""
    files = {f"x{i}": external(f"x{i}", draw(st.integers(0, 30))) for i in range(draw(st.integers(0, 3)))}
    jobs: list[Job] = []
    for index in range(draw(st.integers(1, 7))):
        pool = sorted(files)
        reads = draw(st.lists(st.sampled_from(pool), max_size=3, unique=True)) if pool else []
        after = draw(st.lists(st.sampled_from([entry.id for entry in jobs]), max_size=1)) if jobs else []
        makes = [f"f{index}_{k}" for k in range(draw(st.integers(0, 2)))]
        for lfn in makes:
            files[lfn] = made(lfn, draw(st.integers(0, 30)), draw(st.booleans()))
        jobs.append(
            job(
                f"j{index}",
                " ".join(reads),
                " ".join(makes),
                after=tuple(after),
                compute_s=draw(st.integers(0, 9)),
                cores=draw(st.integers(1, 3)),
            )
        )
    return workflow_of(list(files.values()), jobs)


def slow_usage(workflow: Workflow, order: list[str], keep: set[str]) -> list[int]:
    """Runs the jobs one by one and holds what `keep` names as long as someone will read it."""
    graph = graph_of(workflow)
    size = {lfn: file.size_bytes or 0 for lfn, file in workflow.files.items()}
    held: set[str] = set()
    usage = []
    for place, name in enumerate(order):
        mine = {entry.lfn for entry in workflow.jobs[name].inputs} | {entry.lfn for entry in workflow.jobs[name].outputs}
        usage.append(sum(size[lfn] for lfn in held | mine))
        later = set(order[place + 1 :])
        held = {lfn for lfn in (held | mine) & keep if later & set(graph.readers.get(lfn, ()))}
    return usage


def orders_of(workflow: Workflow) -> list[list[str]]:
    parents = graph_of(workflow).parents
    return [
        list(order)
        for order in permutations(workflow.jobs)
        if all(order.index(above) < place for place, name in enumerate(order) for above in parents[name])
    ]


def is_topological(workflow: Workflow, plan: Plan) -> bool:
    place = {entry.job: entry.order for entry in plan.jobs}
    return all(place[above] < place[name] for name, parents in graph_of(workflow).parents.items() for above in parents)


@settings(max_examples=150, deadline=None)
@given(workflows(), st.booleans(), st.integers(1, 200))
def test_capacity_numbers_equal_a_slow_serial_run(workflow: Workflow, spill: bool, capacity: int) -> None:
    graph = graph_of(workflow)
    plan = make_plan(workflow, embedded(capacity, cores=2), spill_origin="home" if spill else None)
    order = [entry.job for entry in plan.jobs]
    assert is_topological(workflow, plan)
    assert [entry.order for entry in plan.jobs] == list(range(len(order)))
    own = {lfn for lfn in graph.producer if not workflow.files[lfn].is_final}
    usage = serial_usage(workflow, graph, plan)
    assert usage == slow_usage(workflow, order, set() if spill else own)
    assert plan.peak_live_bytes == max(slow_usage(workflow, order, set(workflow.files)))
    assert plan.smallest_capacity_bytes <= max(usage)
    if capacity >= plan.smallest_capacity_bytes:
        assert max(usage) <= capacity
        check_capacity(plan)
    else:
        assert max(usage) == plan.smallest_capacity_bytes
        with pytest.raises(Refused, match=str(plan.smallest_capacity_bytes)):
            check_capacity(plan)
    if spill:
        assert plan.smallest_capacity_bytes == max(entry.footprint_bytes for entry in plan.jobs)


@settings(max_examples=40, deadline=None)
@given(workflows())
def test_smallest_capacity_is_near_the_best_of_all_orders(workflow: Workflow) -> None:
    graph = graph_of(workflow)
    own = {lfn for lfn in graph.producer if not workflow.files[lfn].is_final}
    orders = orders_of(workflow)
    if len(orders) > 800:
        return
    best = min(max(slow_usage(workflow, order, own)) for order in orders)
    found = make_plan(workflow, embedded(1)).smallest_capacity_bytes
    assert best <= found <= 2 * best


def test_many_chains_are_run_one_after_the_other_when_space_is_short() -> None:
    files, jobs = [], []
    for index in range(20):
        files += [external(f"in{index}", 10), made(f"big{index}", 1000), made(f"small{index}", 1)]
        jobs += [
            job(f"blow{index}", f"in{index}", f"big{index}", compute_s=100),
            job(f"shrink{index}", f"big{index}", f"small{index}", compute_s=1),
        ]
    files.append(made("sum", 1, final=True))
    jobs.append(job("sum", " ".join(f"small{index}" for index in range(20)), "sum"))
    workflow = workflow_of(files, jobs)
    tight = make_plan(workflow, embedded(1100))
    assert tight.smallest_capacity_bytes == 1000 + 10 + 19
    assert [entry.job for entry in tight.jobs[:2]] == ["blow0", "shrink0"]
    roomy = make_plan(workflow, embedded(LARGE, cores=4))
    assert all(entry.job.startswith("blow") for entry in roomy.jobs[:20])
    assert roomy.smallest_capacity_bytes == tight.smallest_capacity_bytes


def test_ranks_sum_the_longest_way_down() -> None:
    workflow = workflow_of(
        [made("a", 0), made("b", 0)],
        [job("one", "", "a", compute_s=3), job("two", "a", "b", compute_s=5), job("three", "b", "", compute_s=7)],
    )
    plan = make_plan(workflow, embedded(LARGE))
    assert {entry.job: entry.rank_s for entry in plan.jobs} == {"one": 15, "two": 12, "three": 7}


def test_schedule_predicts_cores_links_and_uploads() -> None:
    links = (OriginLink("home", fetch_bytes_per_s=100, upload_bytes_per_s=10, latency_s=0),)
    files = [external("x", 1000), external("y", 500), made("end", 50, final=True)]
    jobs = [job("first", "x", "", compute_s=1), job("second", "y", "end", compute_s=2), job("wide", "", "", compute_s=4, cores=2)]
    node = Node("n", LARGE, 2, disk_bytes_per_s=1e30)
    plan = make_plan(workflow_of(files, jobs), Topology((node,), links))
    start = {entry.job: entry.start_s for entry in plan.jobs}
    finish = {entry.job: entry.finish_s for entry in plan.jobs}
    assert min(start["first"], start["second"]) in (5, 10)
    assert max(start["first"], start["second"]) == 15
    assert finish["wide"] - start["wide"] == 4
    assert not any(start["wide"] < finish[name] and start[name] < finish["wide"] for name in ("first", "second"))
    assert plan.makespan_s == max(max(finish.values()), finish["second"] + 5)
    assert (plan.fetch_bytes, plan.upload_bytes, plan.readback_bytes) == (1500, 50, 50)


@settings(max_examples=60, deadline=None)
@given(workflows(), st.integers(1, 4))
def test_schedule_never_uses_more_cores_than_there_are(workflow: Workflow, cores: int) -> None:
    plan = make_plan(workflow, embedded(LARGE, cores=cores))
    finish = {entry.job: entry.finish_s for entry in plan.jobs}
    for entry in plan.jobs:
        busy = sum(min(cores, workflow.jobs[other.job].cores) for other in plan.jobs if other.start_s <= entry.start_s < other.finish_s)
        assert busy <= cores
        assert all(finish[above] <= entry.start_s for above in graph_of(workflow).parents[entry.job])


def test_several_nodes_share_the_work_and_stay_near_the_bytes() -> None:
    files = [external("raw", 10), *(made(f"m{i}", 10**9) for i in range(4)), *(made(f"e{i}", 1) for i in range(4))]
    jobs = [job(f"make{i}", "raw", f"m{i}", compute_s=10) for i in range(4)] + [
        job(f"use{i}", f"m{i}", f"e{i}", compute_s=10) for i in range(4)
    ]
    plan = make_plan(workflow_of(files, jobs), Topology((Node("n0", LARGE), Node("n1", LARGE))))
    node = {entry.job: entry.node for entry in plan.jobs}
    assert sorted(node[f"make{i}"] for i in range(4)) == ["n0", "n0", "n1", "n1"]
    assert all(node[f"make{i}"] == node[f"use{i}"] for i in range(4))


def test_sizes_follow_their_basis() -> None:
    files = [
        external("x", 6 * 10**6),
        made("declared", 7),
        made("seen.fits"),
        made("other"),
        made("guess_a"),
        made("guess_b"),
        made("hinted"),
    ]
    jobs = [
        job("one", "x", "declared seen.fits other", job_type="known"),
        job("two", "x", "guess_a guess_b", job_type="unknown"),
        job("three", "", "hinted", job_type="told"),
    ]
    workflow = workflow_of(
        files, jobs, hints={"told": IoHint("told", compute_s=4, output_bytes=12), "known": IoHint("known", compute_s=99)}
    )
    fits = FileProfile("seen.fits", Quantity(1, 1), Quantity(500, 600, spread=1.2))
    known = Profile(
        "known", wall_s=Quantity(2.5, 9.0, spread=2.0), output_bytes=Quantity(800, 1000, spread=1.5), outputs={"seen.fits": fits}
    )
    profiles = {"known": known}
    plan = make_plan(workflow, embedded(LARGE), profiles)
    sizes = {entry.lfn: (entry.size_bytes, entry.size_basis) for entry in plan.files}
    assert sizes["x"] == (6 * 10**6, Basis.MEASURED)
    assert sizes["declared"] == (7, Basis.DECLARED)
    assert sizes["seen.fits"] == (600, Basis.PROFILE)
    assert sizes["other"] == (1000 - 7 - 600, Basis.PROFILE)
    likely = {entry.lfn: (entry.expected_bytes, entry.size_spread) for entry in plan.files}
    assert likely["seen.fits"] == (500, 1.2) and likely["other"] == (800 - 7 - 500, 1.5) and likely["declared"] == (7, None)
    assert likely["x"] == (6 * 10**6, 1.0)
    assert sizes["guess_a"] == sizes["guess_b"] == (3 * 10**6, Basis.DEFAULT)
    assert sizes["hinted"] == (12, Basis.DECLARED)
    compute = {entry.job: (entry.compute_s, entry.compute_basis) for entry in plan.jobs}
    assert compute == {"one": (2.5, Basis.PROFILE), "two": (1.0, Basis.DEFAULT), "three": (4, Basis.DECLARED)}
    assert {entry.job: (entry.compute_spread, entry.reserve_basis) for entry in plan.jobs} == {
        "one": (2.0, Basis.PROFILE),
        "two": (None, Basis.DEFAULT),
        "three": (None, Basis.DECLARED),
    }
    assert any("2 outputs are guesses" in note for note in plan.notes)


def test_guesses_shrink_before_a_workflow_is_refused_because_of_them() -> None:
    files = [external("x", 50 * 10**6), *(made(f"o{i}") for i in range(20)), made("end", 1, final=True)]
    jobs = [job(f"j{i}", "x", f"o{i}") for i in range(20)] + [job("end", " ".join(f"o{i}" for i in range(20)), "end")]
    workflow = workflow_of(files, jobs)
    assert make_plan(workflow, embedded(LARGE)).smallest_capacity_bytes > 10**9
    small = make_plan(workflow, embedded(80 * 10**6))
    check_capacity(small)
    assert small.smallest_capacity_bytes <= 80 * 10**6


def test_access_by_size_and_kind() -> None:
    files = [external("small", COPY_BYTES_MAX), external("big", COPY_BYTES_MAX + 1), made("dir", 10, kind=FileKind.DIRECTORY)]
    workflow = workflow_of(files, [job("make", "small big", "dir"), job("read", "dir", "")])
    access = {entry.lfn: entry.access for entry in make_plan(workflow, embedded(LARGE)).files}
    assert access == {"small": Access.COPY, "big": Access.LINK, "dir": Access.LINK}


def test_refusal_names_number_job_and_files() -> None:
    plan = make_plan(diamond(), embedded(1000))
    with pytest.raises(Refused) as caught:
        check_capacity(plan)
    assert plan.smallest_capacity_bytes == 1000 + 100 + 200
    for part in ("1300 bytes", "there are 1000", "'raw'", "'left'", "'right'", "spill_origin"):
        assert part in caught.value.message
    assert make_plan(diamond(), embedded(1000), spill_origin="home").smallest_capacity_bytes == 1200


def test_limits_are_refused_by_name() -> None:
    with pytest.raises(Refused, match="3 jobs, the limit is 2"):
        make_plan(diamond(), embedded(LARGE), limits=Limits(jobs_max=2))


def test_empty_and_inputless_jobs() -> None:
    plan = make_plan(workflow_of([], [job("alone")]), embedded(1))
    assert (plan.smallest_capacity_bytes, plan.peak_live_bytes, plan.fetch_bytes) == (0, 0, 0)
    check_capacity(plan)


@settings(max_examples=40, deadline=None)
@given(workflows())
def test_json_gives_the_plan_back(workflow: Workflow) -> None:
    plan = make_plan(workflow, embedded(500))
    assert from_json(to_json(plan)) == plan
    assert to_json(from_json(to_json(plan))) == to_json(plan)
    assert diff(plan, plan) == []


def test_json_of_other_formats_and_versions_is_refused_by_name() -> None:
    text = to_json(make_plan(diamond(), embedded(LARGE)))
    with pytest.raises(InvalidInput, match="version 6, this stager knows up to 5"):
        from_json(text.replace('"version": 5', '"version": 6'))
    for broken in ("{", "[]", '{"format": "other"}', text.replace('"lfn"', '"fln"', 1)):
        with pytest.raises(InvalidInput, match="plan.json is not a"):
            from_json(broken, "plan.json")


def test_diff_names_what_changed() -> None:
    old = make_plan(diamond(), embedded(LARGE))
    files = {**diamond().files, "raw": external("raw", 1000, "t2")}
    new = make_plan(dataclasses.replace(diamond(), files=files), embedded(LARGE))
    assert diff(old, new) == ["file 'raw' changed at its origin: token was 't1', is 't2'"]
    assert plan_digest(old) != plan_digest(new)
    assert any("capacity was" in line for line in diff(old, make_plan(diamond(), embedded(10**6))))
    jobs = {**diamond().jobs, "join": dataclasses.replace(diamond().jobs["join"], argv=("false",))}
    assert diff(old, make_plan(dataclasses.replace(diamond(), jobs=jobs), embedded(LARGE))) == [
        "commands, environment or destinations of the workflow changed"
    ]


@pytest.mark.slow
def test_plan_is_the_same_under_any_hash_seed() -> None:
    code = "from tests.unit.test_plan import *; print(to_json(make_plan(diamond(), embedded(2000))), end='')"
    root = Path(__file__).resolve().parents[2]
    texts = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(root)},
            cwd=root,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("0", "1", "77")
    }
    assert len(texts) == 1
    assert from_json(texts.pop()).workflow == "w"


def test_explain_tells_source_readers_reasons_and_end() -> None:
    workflow, topology = diamond(), embedded(LARGE)
    plan, graph = make_plan(workflow, topology), graph_of(workflow)
    text = "\n".join(explain_file(workflow, graph, plan, topology, "raw"))
    for part in (
        "1000 bytes",
        "measured by listing",
        "origin 'home', path 'in/raw'",
        "read by 2 jobs",
        "job 'top_left'",
        "copied into the sandbox",
        "the only one",
        "last read by",
    ):
        assert part in text
    assert "no spill origin" in "\n".join(explain_file(workflow, graph, plan, topology, "left"))
    end = "\n".join(explain_file(workflow, graph, plan, topology, "end"))
    assert "made by job 'join'" in end
    assert "durable" in end
    assert "no job reads it" in end
    with pytest.raises(InvalidInput, match="near names: right"):
        explain_file(workflow, graph, plan, topology, "rihgt")


def test_a_job_that_frees_more_than_it_makes_goes_as_soon_as_it_can() -> None:
    files = [made("a", 100), made("b", 100), made("a1", 10), made("b1", 10), made("end", 1, final=True)]
    jobs = [job("a", "", "a"), job("b", "", "b"), job("a1", "a", "a1"), job("b1", "b", "b1"), job("end", "a1 b1", "end")]
    workflow = workflow_of(files, jobs)
    graph, topology = graph_of(workflow), embedded(1)
    shape = shape_of(workflow, graph, expected(workflow, graph.order, {}), topology)
    breadth_first = list(range(len(shape.jobs)))
    for greedy in (False, True):
        order = [shape.jobs[index] for index in eager_order(shape, breadth_first, greedy)]
        assert order == ["a", "a1", "b", "b1", "end"]
