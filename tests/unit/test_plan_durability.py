"""A second copy of an intermediate, or making it again: the formulas with figures by hand, and what plans make of them."""

from __future__ import annotations

from dataclasses import replace
from math import exp, inf, log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stager.model.topology import Node, OriginLink, Topology
from stager.model.workflow import Workflow, graph_of
from stager.planning.durability import copying_s, late_s, losing_s, lost_share, wait_s
from stager.planning.explain import explain_file
from stager.planning.make_plan import make_plan
from stager.planning.plan import FilePlan
from stager.planning.plan_json import from_json, to_json
from tests.unit.test_plan import external, job, made, workflow_of

MB = 1_000_000
seconds = st.floats(0, 1e5)


def nodes(count: int = 2, rate: float = 1.0, capacity_bytes: int = 10**9) -> Topology:
    each = tuple(Node(f"n{number}", capacity_bytes, 2, 1e15, 1e15, 1 * MB, failures_per_hour=rate) for number in range(count))
    each = tuple(replace(node, memory_bytes=None, disk_bytes_per_s=1e15, network_bytes_per_s=1.0 * MB) for node in each)
    return Topology(each, (OriginLink("home", 1e15, 1e15, 0.0),))


def test_failures_come_at_random() -> None:
    assert lost_share(1.0, 3600.0 * log(2)) == pytest.approx(0.5)
    assert lost_share(0.1, 360.0) == pytest.approx(1 - exp(-0.01))
    assert (lost_share(0.0, 1e9), lost_share(5.0, 0.0)) == (0.0, 0.0)


def test_losing_it_costs_what_the_run_ends_later_and_the_slots() -> None:
    """100 s to make again. Without slack, and needed for 50 s, it is 100 to 150 s late; with 140 s of slack and needed for 60 s it is late
    only if it is lost in the last 20 s, by 10 s as a mean. At even chances with a quarter of the cores: half of that and of 25 s.
    """
    assert late_s(50.0, 100.0, 0.0) == pytest.approx(125.0)
    assert late_s(60.0, 100.0, 140.0) == pytest.approx(10.0 / 3)
    assert (late_s(60.0, 100.0, 200.0), late_s(0.0, 100.0, 40.0)) == (0.0, 60.0)
    hour = 3600.0 * log(2)
    assert losing_s(1.0, hour, 100.0, hour + 200.0, 0.25) == pytest.approx(12.5)
    assert losing_s(1.0, hour, 100.0, 0.0, 0.25) == pytest.approx((100.0 + hour / 2 + 25.0) / 2)


def test_a_copy_costs_the_network_and_more_the_less_room_there_is() -> None:
    assert copying_s(100 * MB, 10 * MB, 1, 1e30) == pytest.approx(10.0)
    assert copying_s(100 * MB, 10 * MB, 4, 1e30) == pytest.approx(2.5)
    assert copying_s(100 * MB, 10 * MB, 1, 200 * MB) == pytest.approx(20.0)
    assert copying_s(100 * MB, 10 * MB, 1, 100 * MB) == copying_s(1, 1.0, 1, 0) == copying_s(1, 1.0, 1, -5) == inf
    assert copying_s(0, 10 * MB, 1, 0) == 0.0


def test_who_runs_again_waits_for_a_core_where_all_are_taken() -> None:
    """Two cores, busy for 90 of 100 s each with jobs of 30 s: 0.81 of the time, for 10 s. One long job among short ones counts for more."""
    assert wait_s([30.0] * 6, 2, 100.0) == pytest.approx(0.81 * 10.0)
    assert wait_s([10.0, 90.0], 1, 100.0) == pytest.approx(82.0 / 2)
    assert wait_s([], 4, 100.0) == wait_s([1.0], 4, 0.0) == 0.0


@given(st.floats(0, 100), st.floats(0, 100), seconds, seconds, seconds, seconds, seconds, st.floats(0, 1))
def test_losing_grows_with_the_rate_the_time_and_the_work(
    rate: float, more: float, needed: float, longer: float, remake: float, harder: float, slack: float, share: float
) -> None:
    least = losing_s(rate, needed, remake, slack, share)
    assert least >= 0.0
    almost = least * (1 - 1e-9)
    assert losing_s(rate + more, needed, remake, slack, share) >= almost
    assert losing_s(rate, needed + longer, remake, slack, share) >= almost
    assert losing_s(rate, needed, remake + harder, slack, share) >= almost
    assert losing_s(rate, needed, remake, slack + longer, share) * (1 - 1e-9) <= least


@given(st.integers(0, 10**12), st.integers(0, 10**12), st.floats(1, 1e10), st.integers(1, 99), st.floats(0, 1e13))
def test_copying_grows_with_the_size_and_with_less_room(size: int, more: int, rate: float, count: int, room: float) -> None:
    assert copying_s(size + more, rate, count, room) >= copying_s(size, rate, count, room) >= 0.0
    assert copying_s(size, rate, count, room) >= copying_s(size, rate, count, room + more)
    assert copying_s(size, rate, count, room) >= copying_s(size, rate, count + 1, room)


def chain(size: int = 10 * MB, first_s: float = 600.0, deterministic: bool = True, idempotent: bool = True) -> Workflow:
    """`first` takes long and makes `a`, `second` makes `b` of it, `slow` runs long beside them, `last` reads `b`."""
    files = [external("in", 1), made("a", size), made("b", size), made("s", 1), made("end", 1, final=True)]
    jobs = [
        job("first", "in", "a", compute_s=first_s),
        job("second", "a", "b", compute_s=60.0),
        job("slow", "in", "s", compute_s=first_s + 1200.0),
        job("last", "b s", "end", compute_s=10.0),
    ]
    jobs = [replace(entry, deterministic=deterministic, idempotent=idempotent) for entry in jobs]
    return workflow_of(files, jobs)


def files_of(workflow: Workflow, topology: Topology) -> dict[str, FilePlan]:
    return {entry.lfn: entry for entry in make_plan(workflow, topology).files}


def test_what_takes_long_to_make_again_is_replicated_and_what_is_quickly_made_is_not() -> None:
    """Two cores of one node are busy for 2,470 of 3,620 s, so both are in 0.4656 of the time, with jobs of 1,459 s, and one is free after a
    third of that: 226.4 s. `b` is there at 660 s and needed until 1,810; by then `a` is released: 660 s and two waits to make it again,
    with 1,140 s of slack at first, on a quarter of the cores.
    """
    planned = files_of(chain(), nodes(2, rate=1.0))
    b = planned["b"]
    assert b.remake_s == pytest.approx(660.0 + 2 * 226.4, abs=0.1)
    needed, last = 1810.0 - 660.0, 1112.8 - 1140.0 + 1150.0
    assert b.losing_s == pytest.approx((1 - exp(-needed / 3600)) * (last**2 / (2 * needed) + 1112.8 / 4), rel=0.001)
    assert b.copying_s == pytest.approx(10.0 / 2, rel=0.02)
    assert (b.safe_copies, b.must_copy) == (2, False)
    quick = files_of(chain(200 * MB, first_s=1.0), nodes(2, rate=1.0))["b"]
    assert quick.safe_copies == 1
    assert quick.losing_s < (quick.copying_s or 0.0)


def test_without_a_failure_rate_or_with_one_node_nothing_is_replicated() -> None:
    for topology in (nodes(2, rate=0.0), nodes(1, rate=1.0)):
        assert {(entry.safe_copies, entry.losing_s, entry.copying_s) for entry in files_of(chain(), topology).values()} == {(1, 0.0, None)}


def test_only_intermediates_that_somebody_reads_are_replicated() -> None:
    planned = files_of(chain(), nodes(2, rate=1000.0))
    assert {lfn for lfn, entry in planned.items() if entry.safe_copies > 1} <= {"a", "b", "s"}
    assert planned["b"].safe_copies == 2


def test_what_is_not_declared_deterministic_is_never_left_to_be_made_again() -> None:
    for broken in ({"deterministic": False}, {"idempotent": False}):
        planned = files_of(chain(first_s=1.0, **broken), nodes(2, rate=0.001))
        assert (planned["b"].safe_copies, planned["b"].must_copy) == (2, True)
    assert files_of(chain(first_s=1.0), nodes(2, rate=0.001))["b"].safe_copies == 1


def test_nor_what_would_need_one_that_is_not_to_run_again() -> None:
    """`second` is deterministic, `first` is not: by the time `b` is lost, `a` is gone."""
    workflow = chain(first_s=1.0)
    workflow = replace(workflow, jobs={**workflow.jobs, "first": replace(workflow.jobs["first"], deterministic=False)})
    assert files_of(workflow, nodes(2, rate=0.001))["b"].must_copy


def test_an_input_that_lies_on_the_same_node_is_lost_with_it() -> None:
    """`a` is read to the end, and no other node has it: its second and one more wait are before those of `b`."""
    workflow = chain(200 * MB, first_s=1.0)
    last = replace(workflow.jobs["last"], inputs=(*workflow.jobs["last"].inputs, *workflow.jobs["second"].inputs))
    planned = files_of(replace(workflow, jobs={**workflow.jobs, "last": last}), nodes(2, rate=0.01))
    assert planned["a"].safe_copies == 1
    assert planned["b"].remake_s == pytest.approx(2 * planned["a"].remake_s + 59.0, abs=0.01)


def test_what_is_durable_at_an_origin_needs_no_second_copy() -> None:
    workflow = chain(deterministic=False)
    final = replace(workflow.files["b"], destination=workflow.files["end"].destination)
    planned = files_of(replace(workflow, files={**workflow.files, "b": final}), nodes(2, rate=1.0))
    assert (planned["b"].safe_copies, planned["a"].safe_copies) == (1, 2)


def test_where_there_is_no_room_nothing_is_replicated() -> None:
    planned = files_of(chain(deterministic=False), nodes(2, rate=1.0, capacity_bytes=12 * MB))["b"]
    assert (planned.safe_copies, planned.copying_s) == (1, None)


@given(st.floats(0, 10), st.floats(0, 10))
def test_a_higher_rate_never_takes_a_copy_away(rate: float, more: float) -> None:
    less, greater = files_of(chain(), nodes(2, rate)), files_of(chain(), nodes(2, rate + more))
    for lfn, entry in less.items():
        assert greater[lfn].safe_copies >= entry.safe_copies


def test_it_goes_through_json_and_older_plans_have_one_copy_of_each() -> None:
    plan = make_plan(chain(), nodes(2, rate=1.0))
    assert from_json(to_json(plan)) == plan


def test_the_explanation_prints_both_costs() -> None:
    workflow, topology = chain(), nodes(2, rate=1.0)
    lines = explain_file(workflow, graph_of(workflow), make_plan(workflow, topology), topology, "b")
    told = next(line for line in lines if line.startswith("durability: "))
    assert told.startswith("durability: 2 copies: a node is lost 1 times an hour, so one copy is expected to cost the run ")
    assert "making it again takes 18 min 33 s" in told
    assert "a second copy costs 5.05 s" in told
    quick = chain(200 * MB, first_s=1.0)
    lines = explain_file(quick, graph_of(quick), make_plan(quick, topology), topology, "b")
    assert any(line.startswith("durability: 1 copy, else made again: ") for line in lines)
    named = chain(first_s=1.0, deterministic=False)
    lines = explain_file(named, graph_of(named), make_plan(named, topology), topology, "b")
    assert any(line.startswith("durability: 2 copies: it cannot be left to be made again, ") for line in lines)
    calm = nodes(2, rate=0.0)
    assert not [line for line in explain_file(workflow, graph_of(workflow), make_plan(workflow, calm), calm, "b") if "durability" in line]
