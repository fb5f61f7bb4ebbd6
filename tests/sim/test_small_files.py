"""Many small files: as a node learns how many transfers at once fill a line, so a simulation begins as many."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from stager.estimate import estimate
from stager.model.files import File, Location, Source
from stager.model.topology import Node, OriginLink, Topology
from stager.model.workflow import Job, JobInput, Origin, OriginKind, Workflow
from stager.planning.bounds import lower_bound
from stager.planning.make_plan import make_plan
from stager.planning.policy import Policy
from stager.planning.transport import AT_ONCE_MAX, AT_ONCE_MIN, LEARNED, may_begin
from stager.scheduler.commands import RunOutcome
from stager.sim.simulate import simulate
from stager.sim.transfers import Lane
from stager.sim.world import SimWorld

LAB = Origin("lab", OriginKind.SFTP, "sftp://lab/data")


def files_per_s(count: int, size_bytes: int, link: OriginLink, nodes: int = 1) -> float:
    """Of one job on each node, that together read so many files; never faster than the lower bound allows."""
    files = {f"f{n}": File(f"f{n}", sources=(Source(Location("lab", f"f{n}"), size_bytes, "t"),)) for n in range(count)}
    each = [list(files)[node::nodes] for node in range(nodes)]
    jobs = {
        f"j{node}": Job(f"j{node}", "work", ("work",), inputs=tuple(JobInput(lfn, lfn) for lfn in lfns), compute_s=0.0)
        for node, lfns in enumerate(each)
    }
    what = Workflow("w", files, jobs, {"lab": LAB})
    topology = Topology(tuple(Node(f"node{node}", 10**12, 1, None, 1e12, 1e12) for node in range(nodes)), (link,))
    plan = make_plan(what, topology)
    plan = replace(plan, jobs=tuple(structs.replace(entry, node=f"node{entry.job[1:]}") for entry in plan.jobs))
    world = SimWorld(topology)
    world.submit("r", what, plan)
    simulate(world)
    assert world.runs["r"].outcome is RunOutcome.SUCCEEDED
    took_s = world.runs["r"].finished_at
    assert lower_bound(what, topology, plan, streams_per_origin=AT_ONCE_MAX * nodes).least_s <= took_s * (1 + 1e-9)
    return count / took_s


def test_files_of_64_kib_fill_a_long_line_as_they_were_measured_to() -> None:
    """RTT 30 ms, 24.8 MB/s: sftp brought 359 files a second, s3 350 (docs/evaluation.md, Origins)."""
    rate = files_per_s(4000, 64 * 1024, OriginLink("lab", 24.8e6, 24.8e6, 0.03))
    assert rate == pytest.approx(355, rel=0.08)


def test_smaller_files_come_more_at_once_up_to_the_most_that_a_node_learns() -> None:
    # 0.1 s and 10 MB/s hold 244 files of 4 KiB; of empty ones any number.
    link = OriginLink("lab", 10e6, 10e6, 0.1)
    assert files_per_s(4000, 4096, link) == pytest.approx(10e6 / 4096, rel=0.1)
    assert files_per_s(2560, 0, link) == pytest.approx(AT_ONCE_MAX / 0.1, rel=0.01)


def test_each_node_has_its_own_transfers_under_way() -> None:
    link = OriginLink("lab", 1e9, 1e9, 0.1)
    assert files_per_s(5120, 0, link, nodes=2) == pytest.approx(2 * AT_ONCE_MAX / 0.1, rel=0.01)


def test_small_files_ahead_fill_the_line_beside_small_ones_that_jobs_wait_for() -> None:
    """Each of 2,000 jobs reads one: at any time a few wait for theirs, which leave most of the line to the rest. So as many come at once
    as the scheduler asks for ahead.
    """
    files = {f"f{n}": File(f"f{n}", sources=(Source(Location("lab", f"f{n}"), 1000, "t"),)) for n in range(2000)}
    jobs = {lfn: Job(lfn, "work", ("work",), inputs=(JobInput(lfn, lfn),), compute_s=0.0) for lfn in files}
    topology = Topology((Node("node0", 10**12, 1),), (OriginLink("lab", 100e6, 100e6, 0.2),))
    report = estimate(Workflow("w", files, jobs, {"lab": LAB}), topology)
    assert 2000 / AT_ONCE_MAX * 0.2 <= report.wall_s <= 2000 / Policy().fetches_ahead_max * 0.2


def test_beside_what_fills_the_line_only_a_few_go_ahead() -> None:
    """Whether a job waits for it or not: as many bytes are under way as a node asks for at once."""
    lane = Lane(waiting=[(10, 1, "ahead")], under_way=AT_ONCE_MIN - 2, under_way_bytes=2_000_000)
    assert lane.has_place(1.0, 1e6)
    lane.under_way += 1
    assert not lane.has_place(1.0, 1e6)
    lane.waiting = [(1, 1, "demand")]
    assert lane.has_place(1.0, 1e6)


def test_small_files_that_are_asked_for_together_are_answered_in_turn() -> None:
    lane = Lane()
    assert [lane.answer_after_s(5.0, 0.25, 1.0) for _ in range(6)] == [0.0, 0.25, 0.5, 0.75, 1.0, 1.0]
    # Later the line is free again; and large files begin together.
    assert lane.answer_after_s(100.0, 0.25, 1.0) == 0.0
    assert [lane.answer_after_s(100.0, 2.0, 1.0) for _ in range(2)] == [0.0, 0.0]


@given(st.integers(0, 300), st.floats(0, 1e9), st.floats(0, 10), st.floats(0, 1e9))
def test_never_more_than_it_learns_and_always_a_few(under_way: int, size_bytes: float, latency_s: float, bytes_per_s: float) -> None:
    begins = may_begin(under_way, size_bytes, latency_s, bytes_per_s)
    assert begins or under_way >= AT_ONCE_MIN
    assert not begins or under_way < AT_ONCE_MAX
    # A full line is not made fuller.
    assert not begins or under_way < AT_ONCE_MIN or size_bytes < LEARNED * latency_s * bytes_per_s
