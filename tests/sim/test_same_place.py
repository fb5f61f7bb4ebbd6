"""One place under two names: it is fetched once and kept once, so a plan, a bound and the check of the capacity count it once."""

from __future__ import annotations

import pytest

from stager.estimate import Report, estimate
from stager.model.errors import Refused
from stager.model.files import File, Location, Source
from stager.model.topology import Node, OriginLink, Topology
from stager.model.workflow import Job, JobInput, Origin, OriginKind, Workflow, graph_of
from stager.planning.bounds import lower_bound
from stager.planning.budget import Budget
from stager.planning.make_plan import check_capacity, make_plan
from stager.planning.plan import Plan
from stager.planning.space import serial_usage
from stager.planning.staying import uses_of
from stager.planning.way_cost import traffic_of
from stager.scheduler.commands import RunOutcome

GB = 10**9
LAB = Origin("lab", OriginKind.SFTP, "sftp://lab/data")
AGAIN = Origin("again", OriginKind.SFTP, "sftp://lab/data")


def external(lfn: str, origin: str, path: str, token: str = "t") -> File:
    return File(lfn, sources=(Source(Location(origin, path), GB, token),))


def reading(*files: File, by: tuple[tuple[str, ...], ...] = (("a", "b"),)) -> Workflow:
    jobs = {
        f"j{number}": Job(f"j{number}", "work", ("work",), inputs=tuple(JobInput(lfn, lfn) for lfn in lfns), compute_s=0.0, retries=0)
        for number, lfns in enumerate(by)
    }
    return Workflow("w", {file.lfn: file for file in files}, jobs, {"lab": LAB, "again": AGAIN})


def topology(capacity_bytes: int) -> Topology:
    links = tuple(OriginLink(name, 50e6, 50e6, 0.0) for name in ("lab", "again"))
    return Topology((Node("node0", capacity_bytes, 1, None, 1e12, 1e12),), links)


def played(what: Workflow, capacity_bytes: int) -> tuple[Plan, Report]:
    """It must end well, and no sooner than the bound says."""
    plan = make_plan(what, topology(capacity_bytes))
    check_capacity(plan)
    report = estimate(what, topology(capacity_bytes), plan=plan)
    assert report.outcome is RunOutcome.SUCCEEDED, report.fault
    assert lower_bound(what, topology(capacity_bytes), plan).least_s <= report.wall_s * (1 + 1e-9)
    return plan, report


TWICE = [external("a", "lab", "x"), external("b", "lab", "x")]


@pytest.mark.parametrize("files", [TWICE, [TWICE[0], external("b", "again", "x")]])
@pytest.mark.parametrize("by", [(("a", "b"),), (("a",), ("b",)), (("b",),)])
def test_it_is_counted_once(files: list[File], by: tuple[tuple[str, ...], ...]) -> None:
    what = reading(*files, by=by)
    plan, report = played(what, 3 * GB // 2)
    assert (plan.fetch_bytes, report.fetched_bytes) == (GB, GB)
    assert plan.smallest_node_bytes == GB
    assert plan.makespan_s == pytest.approx(report.wall_s, rel=0.01)
    assert max(serial_usage(what, graph_of(what), plan)) == GB
    assert [sum(use.reads.values()) for use in uses_of(what, plan, list(what.jobs))] == [GB] * len(by)
    assert {file.first_use for file in plan.files} == {0}


@pytest.mark.parametrize("other", [external("b", "lab", "y"), external("b", "lab", "x", "u")])
def test_two_places_and_two_contents_of_one_place_are_two_files(other: File) -> None:
    what = reading(TWICE[0], other)
    assert make_plan(what, topology(10 * GB)).fetch_bytes == 2 * GB
    with pytest.raises(Refused):
        check_capacity(make_plan(what, topology(3 * GB // 2)))


def test_its_bytes_are_paid_once() -> None:
    what = reading(*TWICE)
    plan = make_plan(what, topology(10 * GB))
    expected, most = traffic_of(what, plan, Budget(currency="EUR", fetch_charged=("lab",)), frozenset())
    assert expected.egress_bytes == most.egress_bytes == GB
