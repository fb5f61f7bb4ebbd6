"""What files cost the line beside their bytes: simulation, plan and bound say the same, and nothing changes where nobody knows."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stager.estimate import Report, estimate
from stager.model.files import Destination, File, Location, Source
from stager.model.topology import Node, OriginLink, Topology
from stager.model.workflow import Job, JobInput, JobOutput, Origin, OriginKind, Workflow
from stager.planning.bounds import Limit, lower_bound
from stager.planning.make_plan import make_plan
from stager.planning.transport import AT_ONCE_MAX
from stager.scheduler.commands import RunOutcome

LAB = Origin("lab", OriginKind.SFTP, "sftp://lab/data")
RATE = 50e6


def one_job(inputs: list[int], finals: list[int]) -> Workflow:
    """It computes for a second."""
    files = {f"in{n}": File(f"in{n}", sources=(Source(Location("lab", f"in{n}"), size, "t"),)) for n, size in enumerate(inputs)}
    taken = tuple(JobInput(lfn, lfn) for lfn in files)
    homes = [Destination(Location("lab", f"out{n}")) for n in range(len(finals))]
    made = {f"out{n}": File(f"out{n}", size_bytes=size, destination=homes[n]) for n, size in enumerate(finals)}
    job = Job("j", "work", ("work",), inputs=taken, outputs=tuple(JobOutput(lfn, lfn) for lfn in made), compute_s=1.0)
    return Workflow("w", files | made, {"j": job}, {"lab": LAB})


def simulated(workflow: Workflow, link: OriginLink, nodes: int = 1, overhead_file_s: float = 0.0) -> Report:
    """Never under its lower bound."""
    topology = Topology(tuple(Node(f"n{n}", 10**12, 1, None, 1e15, 1e15) for n in range(nodes)), (link,))
    topology = topology.with_overhead(0.0, measured=True, file_s=overhead_file_s)
    report = estimate(workflow, topology)
    assert report.outcome is RunOutcome.SUCCEEDED
    assert lower_bound(workflow, topology, report.plan, streams_per_origin=AT_ONCE_MAX * nodes).least_s <= report.wall_s + 1e-6
    return report


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 10, 100, 1000])
@pytest.mark.parametrize("size", [0, 65_536, 1_000_000])
@pytest.mark.parametrize(("latency_s", "file_s"), [(0.001, 0.03), (0.05, 0.01), (0.05, 0.1), (0.5, 0.1)])
def test_many_files_take_their_costs_one_after_the_other(count: int, size: int, latency_s: float, file_s: float) -> None:
    """In the simulation, in the plan, and at best."""
    link = OriginLink("lab", RATE, RATE, latency_s, fetch_file_s=file_s, upload_file_s=file_s)
    predicted_s = 1.0 + latency_s + count * (file_s + size / RATE)
    for workflow in (one_job([size] * count, []), one_job([], [size] * count)):
        report = simulated(workflow, link)
        assert report.wall_s == pytest.approx(predicted_s, rel=0.03)
        assert report.plan.makespan_s == pytest.approx(predicted_s)
        bound = lower_bound(workflow, Topology((Node("n", 10**12, 1, None, 1e15, 1e15),), (link,)), report.plan)
        assert bound.least_s == pytest.approx(predicted_s)


def test_what_files_cost_is_work_of_the_link_and_of_no_disk() -> None:
    link = OriginLink("lab", RATE, RATE, 0.05, upload_file_s=0.1)
    busy_s = simulated(one_job([], [1000] * 200), link).busy_s
    assert busy_s["upload:sftp://lab/data"] == pytest.approx(200 * (0.1 + 1000 / RATE))
    assert busy_s["fetch:sftp://lab/data"] == 0
    assert busy_s["disk:n0"] < 1e-6
    topology = Topology((Node("n0", 10**12, 1, None, 1e15, 1e15),), (link,))
    report = simulated(one_job([], [1000] * 200), link)
    assert lower_bound(one_job([], [1000] * 200), topology, report.plan).tightest.limit is Limit.WAN


def test_each_node_pays_for_its_files_on_its_own_line() -> None:
    """A line of a quarter of the link: two nodes have two of them."""
    link = OriginLink("lab", RATE, RATE, 0.01, upload_file_s=0.1, node_upload_bytes_per_s=RATE / 4)
    one = one_job([], [1000] * 100)
    two = replace(
        one,
        jobs={f"j{part}": replace(one.jobs["j"], id=f"j{part}", outputs=one.jobs["j"].outputs[part::2]) for part in (0, 1)},
    )
    assert simulated(one, link).wall_s == pytest.approx(1.0 + 100 * 0.1, rel=0.02)
    assert simulated(two, link, nodes=2).wall_s == pytest.approx(1.0 + 50 * 0.1, rel=0.02)


@pytest.mark.parametrize(("inputs", "finals"), [(0, 100), (100, 0), (1, 100)])
def test_who_comes_first_logs_in_for_all(inputs: int, finals: int) -> None:
    """Fetches do, where there are any, and the uploads after them need not."""
    link = OriginLink("lab", RATE, RATE, 0.05, fetch_file_s=0.01, upload_file_s=0.02, login_s=3.0)
    report = simulated(one_job([1000] * inputs, [1000] * finals), link)
    without = simulated(one_job([1000] * inputs, [1000] * finals), replace(link, login_s=None))
    assert report.wall_s - without.wall_s == pytest.approx(3.0, abs=1e-6)
    assert report.plan.makespan_s - without.plan.makespan_s == pytest.approx(3.0)


@pytest.mark.parametrize(("inputs", "finals", "waits"), [(0, 1, 1), (1, 0, 1), (1, 1, 2), (1000, 0, 1), (0, 1000, 1)])
def test_what_stager_takes_for_each_transfer_keeps_no_place_of_another(inputs: int, finals: int, waits: int) -> None:
    """All of a thousand wait at the same time, and then for their turns as before."""
    link = OriginLink("lab", RATE, RATE, 0.05, dispatch_s=3.0)
    asked = one_job([1000] * inputs, [1000] * finals)
    report, without = simulated(asked, link), simulated(asked, replace(link, dispatch_s=None))
    assert report.wall_s - without.wall_s == pytest.approx(3.0 * waits, abs=1e-6)
    assert report.plan.makespan_s - without.plan.makespan_s == pytest.approx(3.0 * waits)


def test_each_node_logs_in_by_itself() -> None:
    """One final of a second each, made after one second and after four."""
    link = OriginLink("lab", 1000.0, 1000.0, 0.0, login_s=2.0)
    one = one_job([], [1000, 1000])
    outputs = one.jobs["j"].outputs
    jobs = {f"j{part}": replace(one.jobs["j"], id=f"j{part}", outputs=(outputs[part],), compute_s=1.0 + 3 * part) for part in (0, 1)}
    two = replace(one, jobs=jobs)
    assert simulated(two, link, nodes=2).wall_s == pytest.approx(4.0 + 2.0 + 1.0, abs=0.01)
    # On one core the longer one runs first, and logs in for both.
    assert simulated(two, link).wall_s == pytest.approx(4.0 + 2.0 + 2 * 1.0, abs=0.01)


def test_each_output_takes_its_part_of_the_attempt() -> None:
    report = simulated(one_job([], [0] * 300), OriginLink("lab", RATE, RATE, 0.0), overhead_file_s=0.02)
    assert report.wall_s == pytest.approx(1.0 + 300 * 0.02, abs=0.01)
    assert report.plan.makespan_s == pytest.approx(report.wall_s, abs=0.01)
    assert (report.plan.overhead_file_s, report.plan.jobs[0].finish_s) == (0.02, pytest.approx(7.0))


SIZES = st.lists(st.sampled_from((0, 5_000, 65_536, 3_000_000)), max_size=40)
COSTS = st.sampled_from((None, 0.0, 0.001, 0.02, 0.3))


@settings(max_examples=60, deadline=None)
@given(SIZES, SIZES, st.sampled_from((0.0, 0.02, 0.5)), COSTS, COSTS, st.floats(0.0001, 0.2), st.booleans())
def test_files_that_cost_more_never_make_a_run_faster(
    inputs: list[int], finals: list[int], latency_s: float, fetch_s: float | None, upload_s: float | None, more_s: float, of_fetches: bool
) -> None:
    link = OriginLink("lab", RATE, RATE, latency_s, fetch_file_s=fetch_s, upload_file_s=upload_s)
    what, cost = ("fetch_file_s", fetch_s) if of_fetches else ("upload_file_s", upload_s)
    dearer = replace(link, **{what: (cost or 0.0) + more_s})
    before, after = simulated(one_job(inputs, finals), link), simulated(one_job(inputs, finals), dearer)
    assert after.wall_s >= before.wall_s * (1 - 1e-9)
    assert after.plan.makespan_s >= before.plan.makespan_s
    paid = len(inputs if of_fetches else finals) * more_s
    assert after.wall_s >= 1.0 + paid


def drawn(seed: int) -> Workflow:
    random = Random(seed)
    files: dict[str, File] = {}
    jobs: dict[str, Job] = {}
    made: list[str] = []
    for number in range(30):
        own = f"in{number}"
        files[own] = File(own, sources=(Source(Location("lab", own), random.choice((0, 1000, 60_000, 9_000_000)), "t"),))
        reads = dict.fromkeys([own, *(random.choice(made[-20:]) for _ in range(random.randrange(3)) if made)])
        outputs = [f"out{number}.{index}" for index in range(random.randrange(1, 6))]
        for lfn in outputs:
            where = Destination(Location("lab", lfn)) if random.random() < 0.5 else None
            files[lfn] = File(lfn, size_bytes=random.choice((10, 4000, 65_536, 2_000_000)), destination=where)
        ins, outs = tuple(JobInput(lfn, lfn) for lfn in reads), tuple(JobOutput(lfn, lfn) for lfn in outputs)
        jobs[f"job{number}"] = Job(f"job{number}", "work", ("work",), inputs=ins, outputs=outs, compute_s=random.random())
        made += outputs
    return Workflow("w", files, jobs, {"lab": LAB})


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("nodes", [1, 2])
def test_where_nobody_knows_what_files_cost_they_cost_nothing(seed: int, nodes: int) -> None:
    """To the last digit of every prediction and of the simulated run."""
    link = OriginLink("lab", 5e6, 3e6, 0.05, node_fetch_bytes_per_s=2e6, upload_latency_s=0.2)
    topology = Topology(tuple(Node(f"n{n}", 60_000_000, 2) for n in range(nodes)), (link,))
    free = replace(topology, links=(replace(link, fetch_file_s=0.0, upload_file_s=0.0),))
    unknown, nothing = estimate(drawn(seed), topology), estimate(drawn(seed), free)
    assert replace(unknown.plan, links=()) == replace(nothing.plan, links=())
    assert unknown.wall_s == nothing.wall_s
    assert unknown.busy_s == nothing.busy_s
    dear = replace(topology, links=(replace(link, fetch_file_s=0.02, upload_file_s=0.02),))
    plan = make_plan(drawn(seed), topology)
    assert estimate(drawn(seed), dear, plan=plan).wall_s > estimate(drawn(seed), topology, plan=plan).wall_s
