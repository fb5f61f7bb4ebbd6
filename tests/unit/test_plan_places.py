"""Which node, how many replicas, which access, and in which order: what plans choose, and how they explain it."""

from __future__ import annotations

from stager.model.topology import Node, OriginLink, Topology
from stager.planning.make_plan import make_plan
from tests.unit.test_plan import external, job, made, workflow_of

MB = 1_000_000


def nodes(count: int, cores: int = 1, capacity_bytes: int = 10**12) -> Topology:
    each = tuple(Node(f"n{number}", capacity_bytes, cores, disk_bytes_per_s=1e15, network_bytes_per_s=1 * MB) for number in range(count))
    return Topology(each, (OriginLink("home", 1e15, 1e15, 0.0),))


def test_one_large_job_does_not_keep_small_ones_from_going_by_rank() -> None:
    """Peak, and beside it the largest jobs that the other cores may run: from there on the order is that of rank."""
    files = [external("archive", 1000), external("in", 1)]
    jobs = [job("large", "archive", "")]
    for i in range(6):
        files += [made(f"m{i}", 10), made(f"e{i}", 1, final=True)]
        jobs += [job(f"a{i}", "in", f"m{i}", compute_s=5.0 + i), job(f"b{i}", f"m{i}", f"e{i}", compute_s=1.0)]
    workflow = workflow_of(files, jobs)
    roomy = make_plan(workflow, nodes(1, cores=4))
    ranked = [entry.job for entry in roomy.jobs]
    assert ranked[:6] == ["a5", "a4", "a3", "a2", "a1", "a0"]
    enough = roomy.peak_live_bytes + 1000 + 11 + 11

    def order(capacity_bytes: int) -> list[str]:
        return [entry.job for entry in make_plan(workflow, nodes(1, cores=4, capacity_bytes=capacity_bytes)).jobs]

    assert order(enough) == ranked
    assert order(enough - 1) != ranked
