"""No simulated run is faster than its lower bound, and what holds a run up is named."""

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
from stager.planning.bounds import Bound, Limit, Seen, Term, bottleneck, lower_bound, window_s
from stager.planning.make_plan import make_plan
from stager.planning.transport import AT_ONCE_MAX
from stager.scheduler.commands import RunOutcome
from stager.sim.faults import NO_FAULTS, sampled_faults
from stager.whatif import judge

HOME, LAB, ARCHIVE = "home", "lab", "archive"
# Two names of one place, and another place.
ORIGINS = {
    HOME: Origin(HOME, OriginKind.SFTP, "sftp://lab/data", options=(("shell_checksum", "false"),)),
    LAB: Origin(LAB, OriginKind.SFTP, "sftp://lab/data", options=(("shell_checksum", "false"),)),
    ARCHIVE: Origin(ARCHIVE, OriginKind.S3, "s3://archive"),
}
PLAIN = {name: ORIGINS[name] for name in (HOME, ARCHIVE)}
SIZES = st.sampled_from((0, 1, 100, 1000, 5000))


@st.composite
def workflows(draw: st.DrawFn) -> Workflow:
    files: dict[str, File] = {}
    jobs: dict[str, Job] = {}
    for number in range(draw(st.integers(0, 4))):
        size, names = draw(SIZES), draw(st.lists(st.sampled_from(sorted(ORIGINS)), min_size=1, max_size=2, unique=True))
        sources = tuple(Source(Location(name, f"in/{number}"), size, "t", priority=place) for place, name in enumerate(names))
        files[f"in{number}"] = File(f"in{number}", size_bytes=size, sources=sources)
    for number in range(draw(st.integers(1, 6))):
        reads = draw(st.lists(st.sampled_from(sorted(files)), max_size=3, unique=True)) if files else []
        outputs = [f"out{number}.{index}" for index in range(draw(st.integers(0, 2)))]
        for lfn in outputs:
            where = draw(st.sampled_from((None, HOME, ARCHIVE)))
            destination = Destination(Location(where, f"out/{lfn}")) if where else None
            files[lfn] = File(lfn, size_bytes=draw(SIZES), destination=destination)
        jobs[f"job{number}"] = Job(
            f"job{number}",
            "work",
            ("work",),
            inputs=tuple(JobInput(lfn, lfn) for lfn in reads),
            outputs=tuple(JobOutput(lfn, lfn) for lfn in outputs),
            after=(f"job{number - 1}",) if number and draw(st.booleans()) else (),
            cores=draw(st.sampled_from((1, 1, 2, 9))),
            compute_s=draw(st.sampled_from((0.0, 0.5, 3.0))),
        )
    return Workflow("w", files, jobs, ORIGINS)


RATES = st.sampled_from((100.0, 1000.0, 20_000.0))
LATENCIES = st.sampled_from((0.0, 0.05, 2.0))
COSTS = st.sampled_from((None, None, 0.01, 1.0))


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    lines = st.sampled_from((None, 80.0, 5000.0))
    links = tuple(
        OriginLink(
            name,
            draw(RATES),
            draw(RATES),
            draw(LATENCIES),
            node_fetch_bytes_per_s=draw(lines),
            node_upload_bytes_per_s=draw(lines),
            upload_latency_s=draw(LATENCIES),
            fetch_file_s=draw(COSTS),
            upload_file_s=draw(COSTS),
        )
        for name in (HOME, LAB, ARCHIVE)
    )
    disk, network = draw(RATES), draw(RATES)
    cores = draw(st.integers(1, 3))
    count = draw(st.sampled_from((1, 1, 2, 3)))
    nodes = tuple(Node(f"node{number}", 10**6, cores, None, disk, network) for number in range(count))
    overhead_s, file_s = draw(st.sampled_from((0.0, 0.0, 0.25))), draw(st.sampled_from((0.0, 0.0, 0.125)))
    return Topology(nodes, links).with_overhead(overhead_s, measured=False, file_s=file_s)


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(workflows(), topologies(), st.sampled_from((1.0, 1.3, 1000.0)), st.integers(0, 3))
def test_no_run_is_faster_than_the_bound(workflow: Workflow, topology: Topology, room: float, seed: int) -> None:
    """With room for the largest job alone, a little more, or for everything; in three of four cases with faults."""
    smallest = make_plan(workflow, topology, spill_origin=HOME).smallest_capacity_bytes
    topology = replace(topology, nodes=tuple(replace(node, capacity_bytes=max(1, int(smallest * room))) for node in topology.nodes))
    plan = make_plan(workflow, topology, spill_origin=HOME)
    faults = sampled_faults(seed, 2 * plan.makespan_s + 1) if seed else NO_FAULTS
    report = estimate(workflow, topology, plan=plan, faults=faults, resumes_max=1000)
    if report.outcome is RunOutcome.SUCCEEDED:
        bound = lower_bound(workflow, topology, plan, streams_per_origin=AT_ONCE_MAX)
        for term in bound.terms:
            assert report.wall_s >= term.least_s * (1 - 1e-6) - 1e-3, term


def test_a_chain_is_as_fast_as_its_bound() -> None:
    """1,000 bytes in at 100 per s, 3 s and 4 s of computing, 100 bytes out at 50 per s and, over ssh, back at 100 per s."""
    workflow = chain(1000, (3.0, 4.0), 100)
    topology = one_node(cores=1)
    bound = lower_bound(workflow, topology, make_plan(workflow, topology))
    assert bound.least_s == pytest.approx(20.0)
    assert estimate(workflow, topology).wall_s == pytest.approx(20.0, abs=0.01)
    least = {term.limit: (term.busy_s, term.least_s) for term in bound.terms if "uploaded" not in term.about}
    assert least[Limit.CPU] == pytest.approx((7.0, 20.0))
    assert least[Limit.WAN] == pytest.approx((11.0, 20.0))


def test_the_bound_has_an_attempt_of_each_job_take_what_it_takes() -> None:
    workflow, topology = chain(1000, (3.0, 4.0), 100), one_node(cores=1).with_overhead(0.5, measured=True)
    assert lower_bound(workflow, topology, make_plan(workflow, topology)).least_s == pytest.approx(21.0)


def test_what_comes_before_and_after_is_counted_once() -> None:
    assert window_s([]) == 0
    assert window_s([(1, 10, 2), (5, 10, 0)]) == 21
    assert window_s([(1, 10, 2), (100, 10, 50)]) == 160
    assert window_s([(0, 10, 40), (0, 10, 0), (7, 30, 0)]) == 50


def test_files_that_can_be_had_from_two_places_come_over_both_links() -> None:
    both = (Source(Location(HOME, "a"), 900, "t"), Source(Location(ARCHIVE, "a"), 900, "t", priority=1))
    files = {"a": File("a", size_bytes=900, sources=both), "b": File("b", size_bytes=300, sources=both[:1])}
    files["b"] = replace(files["b"], sources=(replace(both[0], location=Location(HOME, "b"), size_bytes=300),))
    workflow = Workflow("w", files, {"j": Job("j", "work", ("work",), inputs=(JobInput("a", "a"), JobInput("b", "b")), compute_s=0)}, PLAIN)
    topology = Topology((Node("node0", 10**6, 1, disk_bytes_per_s=1e12),), (OriginLink(HOME, 100, 100, 0), OriginLink(ARCHIVE, 50, 50, 0)))
    bound = lower_bound(workflow, topology, make_plan(workflow, topology))
    assert sorted(term.busy_s for term in bound.terms if term.limit is Limit.WAN) == pytest.approx([3.0, 8.0])


def test_many_small_files_wait_for_their_turns() -> None:
    """800 files of a byte each, a second of latency, eight at a time."""
    files = {f"in{n}": File(f"in{n}", size_bytes=1, sources=(Source(Location(HOME, f"in{n}"), 1, "t"),)) for n in range(800)}
    job = Job("j", "work", ("work",), inputs=tuple(JobInput(lfn, lfn) for lfn in files), compute_s=0.0)
    workflow = Workflow("w", files, {"j": job}, PLAIN)
    topology = Topology((Node("node0", 10**6, 1, disk_bytes_per_s=1e12),), (OriginLink(HOME, 1e9, 1e9, 1.0),))
    bound = lower_bound(workflow, topology, make_plan(workflow, topology), streams_per_origin=AT_ONCE_MAX)
    assert bound.least_s == pytest.approx(800 / 256, rel=1e-3)
    assert "800 transfers in 256 turns" in bound.tightest.about
    assert judge(workflow, topology, estimate(workflow, topology)).bottleneck is Limit.WAN


# Five made-up workflows each of which waits for one thing.


def one_node(capacity: int = 10**9, cores: int = 4, disk: float = 1e9, wan: float = 100.0) -> Topology:
    return Topology((Node("node0", capacity, cores, disk_bytes_per_s=disk),), (OriginLink(HOME, wan, wan / 2, 0.0),))


def external(lfn: str, size: int) -> File:
    return File(lfn, size_bytes=size, sources=(Source(Location(HOME, lfn), size, "t"),))


def chain(in_bytes: int, compute_s: tuple[float, ...], out_bytes: int) -> Workflow:
    files = {"f0": external("f0", in_bytes)}
    jobs = {}
    for number, seconds in enumerate(compute_s, 1):
        last = number == len(compute_s)
        files[f"f{number}"] = File(f"f{number}", size_bytes=out_bytes, destination=Destination(Location(HOME, "out")) if last else None)
        reads, makes = f"f{number - 1}", f"f{number}"
        jobs[f"j{number}"] = Job(f"j{number}", "work", ("work",), inputs=(JobInput(reads, reads),), outputs=(JobOutput(makes, makes),))
        jobs[f"j{number}"] = replace(jobs[f"j{number}"], compute_s=seconds)
    return Workflow("chain", files, jobs, PLAIN)


def bag(jobs_count: int, sizes: list[int], reads_each: int, compute_s: float, seed: int = 1) -> Workflow:
    """Independent jobs that read some of the same files."""
    random = Random(seed)
    files = {f"in{number}": external(f"in{number}", size) for number, size in enumerate(sizes)}
    jobs = {}
    for number in range(jobs_count):
        reads = random.sample(sorted(files), reads_each)
        files[f"out{number}"] = File(f"out{number}", size_bytes=1, destination=Destination(Location(HOME, f"out{number}")))
        inputs, outputs = tuple(JobInput(lfn, lfn) for lfn in reads), (JobOutput(f"out{number}", f"out{number}"),)
        jobs[f"j{number}"] = Job(f"j{number}", "work", ("work",), inputs=inputs, outputs=outputs, compute_s=compute_s)
    return Workflow("bag", files, jobs, PLAIN)


CASES = {
    Limit.WAN: lambda: (bag(20, [2000] * 20, 1, 1.0), one_node()),
    Limit.LAN: lambda: (bag(200, [1000] * 20, 10, 0.1), one_node(disk=2000.0, wan=1e6)),
    Limit.CPU: lambda: (bag(100, [10] * 10, 1, 5.0), one_node()),
    Limit.PATH: lambda: (chain(100, (5.0,) * 20, 10), one_node()),
    Limit.CACHE: lambda: (bag(60, [1000] * 12, 3, 0.1), one_node(capacity=3200, cores=1)),
}


@pytest.mark.parametrize("limit", CASES)
def test_the_bottleneck_is_named(limit: Limit) -> None:
    workflow, topology = CASES[limit]()
    report: Report = estimate(workflow, topology, spill_origin=HOME)
    assert report.outcome is RunOutcome.SUCCEEDED
    found = judge(workflow, topology, report)
    assert found.bottleneck is limit, found
    assert found.above >= 1 - 1e-6


def test_jobs_that_wait_for_room_wait_for_the_cache() -> None:
    """Sixteen jobs of ten seconds for four cores, with room for the outputs of one: most cores are idle."""
    files: dict[str, File] = {}
    jobs = {}
    for number in range(16):
        files[f"tmp{number}"] = File(f"tmp{number}", size_bytes=1000)
        jobs[f"j{number}"] = Job(f"j{number}", "work", ("work",), outputs=(JobOutput(f"tmp{number}", "tmp"),), compute_s=10.0)
    workflow = Workflow("apart", files, jobs, PLAIN)
    roomy, tight = one_node(), one_node(capacity=1500)
    assert judge(workflow, roomy, estimate(workflow, roomy)).bottleneck is Limit.CPU
    found = judge(workflow, tight, estimate(workflow, tight))
    assert (found.bottleneck, found.why) == (Limit.CACHE, "jobs wait for room: nothing else is used for more than 25% of the time")


def test_of_two_that_are_as_long_the_path_is_named() -> None:
    """One core and one chain: more cores would not help."""
    terms = (Term(Limit.PATH, "", 100.0, 100.0), Term(Limit.CPU, "", 100.0, 100.0))
    assert bottleneck(Bound(terms), Seen(100.0, {Limit.CPU: 100.0}))[0] is Limit.PATH
    assert bottleneck(Bound(terms), Seen(300.0, {Limit.CPU: 250.0}))[0] is Limit.CPU
