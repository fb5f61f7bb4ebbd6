"""Which nodes will hold a file, and what a copy to one more takes by the contention formula. Figures by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stager.model.topology import Node, OriginLink, Topology
from stager.planning.holders import Holders
from stager.planning.iomodel import client_throughput
from stager.planning.make_plan import make_plan
from stager.planning.plan import FilePlan, Plan
from stager.planning.plan_json import from_json, to_json
from tests.unit.test_plan import external, job, made, workflow_of

MB = 1_000_000


def nodes(count: int, cores: int = 1) -> Topology:
    """Networks of 1 MB/s, disks that do not limit, an origin that is not felt."""
    each = tuple(Node(f"n{number}", 10**12, cores, disk_bytes_per_s=1e15, network_bytes_per_s=1 * MB) for number in range(count))
    return Topology(each, (OriginLink("home", 1e15, 1e15, 0.0),))


def test_one_alone_gets_all_of_the_source_and_is_a_holder_from_then_on() -> None:
    holders = Holders([10 * MB], nodes(3))
    assert holders.brought([0], 1)[0].size_bytes == 0
    holders.put(0, 0, 5.0)
    copying, there_s = holders.brought([0], 1)
    assert (copying.copies, there_s, copying.size_bytes) == (((0, 5.0, 15.0),), 15.0, 10 * MB)
    holders.take(copying, 1)
    assert holders.nodes_of(0) == [0, 1]
    # It will be there: a second reader pays nothing more, but waits for it.
    again, there_s = holders.brought([0], 1)
    assert (again.size_bytes, there_s) == (0, 15.0)


def test_those_that_come_later_share_the_source_or_wait_for_one_more_holder() -> None:
    """The third gets half of the source, from 5 to 25. The fourth would get a third of it, until 35; from 15 on it has two holders with one
    other client: 15 + 10 / (2/2 * (1 - 1/2^2)) = 28.33.
    """
    holders = Holders([10 * MB], nodes(4))
    holders.put(0, 0, 5.0)
    copies = []
    for node in (1, 2, 3):
        copying, _ = holders.brought([0], node)
        holders.take(copying, node)
        copies += [(begin, round(end, 3)) for _, begin, end in copying.copies]
    assert copies == [(5.0, 15.0), (5.0, 25.0), (15.0, 28.333)]


def test_several_files_come_into_a_node_one_after_the_other() -> None:
    holders = Holders([10 * MB, 2 * MB], nodes(2))
    holders.put(0, 0, 0.0)
    holders.put(1, 0, 20.0)
    assert holders.brought([0, 1], 1)[1] == 22.0
    holders = Holders([10 * MB, 2 * MB], nodes(2))
    holders.put(0, 0, 3.0)
    holders.put(1, 0, 3.0)
    assert holders.brought([0, 1], 1)[1] == 15.0


@given(st.integers(2, 12), st.integers(0, 10**9), st.floats(0, 1e4))
def test_copies_never_take_less_than_alone_nor_more_than_all_at_once_from_one(count: int, size_bytes: int, since_s: float) -> None:
    holders = Holders([size_bytes], nodes(count))
    holders.put(0, 0, since_s)
    for number in range(1, count):
        copying, there_s = holders.brought([0], number)
        holders.take(copying, number)
        assert there_s - since_s >= size_bytes / MB * (1 - 1e-9) - 1e-9
        assert there_s - since_s <= number * size_bytes / MB * (1 + 1e-9) + 1e-9
    assert len(holders.nodes_of(0)) == count


def hot(plan: Plan) -> FilePlan:
    return next(entry for entry in plan.files if entry.lfn == "in")


def readers(count: int, compute_s: float) -> tuple[list[object], list[object]]:
    files = [external("in", 10 * MB), *(made(f"e{i}", 1, final=True) for i in range(count))]
    return files, [job(f"r{i}", "in", f"e{i}", compute_s=compute_s) for i in range(count)]


def test_a_file_that_was_copied_to_a_node_is_there_for_its_other_readers() -> None:
    """Two nodes, long jobs: 0 and 2 on the one, 1 and 3 on the other; only 1 waits for the copy."""
    plan = make_plan(workflow_of(*readers(4, 100.0)), nodes(2))
    starts = sorted((entry.node, round(entry.start_s)) for entry in plan.jobs)
    assert starts == [("n0", 0), ("n0", 100), ("n1", 10), ("n1", 110)]
    assert hot(plan).nodes == ("n0", "n1")


def test_readers_do_not_scatter_where_copying_takes_longer_than_waiting_for_a_core() -> None:
    assert hot(make_plan(workflow_of(*readers(4, 1.0)), nodes(8))).nodes == ("n0",)
    assert len(hot(make_plan(workflow_of(*readers(16, 30.0)), nodes(8))).nodes) == 8
    assert hot(make_plan(workflow_of(*readers(16, 30.0)), nodes(1))).nodes == ()


def test_the_more_copy_it_at_one_time_the_later_the_last_is_there() -> None:
    """With 16 long jobs the eighth node has it after what the formula says for the holders and clients it meets, far from 7 copies alone
    from one source (70 s), and not before three rounds of doubling (30 s).
    """
    plan = make_plan(workflow_of(*readers(16, 300.0)), nodes(8))
    first = {node: min(entry.start_s for entry in plan.jobs if entry.node == node) for node in hot(plan).nodes}
    assert len(first) == 8
    assert 30.0 <= max(first.values()) < 60.0
    assert first["n1"] == pytest.approx(10 * MB / client_throughput(1.0 * MB, 1, 1))


def test_the_nodes_of_a_file_go_through_json_and_older_plans_have_none() -> None:
    plan = make_plan(workflow_of(*readers(4, 100.0)), nodes(2))
    text = to_json(plan)
    assert from_json(text) == plan
    older = text.replace('"version": 5', '"version": 3').replace('"nodes": ["n0", "n1"], ', "")
    assert hot(from_json(older)).nodes == ()
