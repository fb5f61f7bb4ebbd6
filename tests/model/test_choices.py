"""Choices of I/O nodes: time, bytes and money against what can be worked out by hand; the same answer however many processes ask."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stager.model.cluster import Charged, Cluster, ComputeNodes, IoNodes, WanLink
from stager.model.prices import ClusterPrices, InstancePrice, RequestPrice, Tier
from stager.model.topology import OriginLink
from stager.model.workflow import Origin, OriginKind, Workflow
from stager.planning.cost import GB_BYTES, MONTH_S
from stager.service.choices import Choice, Question, ask, draws_for
from tests.scenarios.stage import read
from tests.unit.test_plan import HOME

PLACE = {"provider": "lab", "region": "cellar", "date": "2026", "source": "made up"}
NODE = InstancePrice(**PLACE, name="n", per_hour=3600.0, billed_every_s=0.0, billed_at_least_s=0.0)
PRICES = ClusterPrices(
    "USD", NODE, NODE, (Tier(None, float(GB_BYTES)),), RequestPrice(**PLACE, reads_per_1000=1e3, writes_per_1000=1e6), 0.0, MONTH_S
)
# `in` is read twice, `mid` once: with an I/O node 1000 come in and 100 go out, without 2500 and 600.
CHAIN = """
workflow w
  external in 1000
  made mid 500
  made end 100 final
  job a in -> mid compute=3
  job b mid in -> end compute=4
"""


def workflow(origin: Origin = HOME) -> Workflow:
    files, jobs = read(CHAIN).workflows["w"]
    return Workflow("w", files, jobs, {"home": origin})


def cluster(**io: object) -> Cluster:
    link = WanLink(OriginLink("home", 100.0, 50.0, 0.0))
    fast = {"disk_bytes_per_s": 1e12, "network_bytes_per_s": 1e12, "capacity_bytes": 10**6} | io
    return Cluster(ComputeNodes(2, 1, network_bytes_per_s=1e12), IoNodes(**fast), {"home": link}, assumed=False)  # type: ignore[arg-type]


def asked(question: Question, *io_nodes: int, processes: int = 1) -> list[Choice]:
    return ask(question, io_nodes, processes)


def test_time_bytes_and_money_of_both_ways() -> None:
    direct, one = asked(Question(workflow(), cluster(), PRICES), 0, 1)
    assert direct.expected is not None
    assert one.expected is not None
    assert direct.expected.usage.wall_s == pytest.approx(10 + 3 + 10 + 15 + 4 + 2)
    assert one.expected.usage.wall_s == pytest.approx(10 + 3 + 4 + 2 + 1, abs=0.01)
    assert (direct.expected.fetched_bytes, direct.expected.uploaded_bytes) == (2500, 600)
    # What is read back to verify crosses the WAN too: an ssh server that checks nothing itself sends the final again.
    assert (one.expected.fetched_bytes, one.expected.uploaded_bytes, one.expected.wan_bytes) == (1000, 100, 1200)
    # A node costs 1 a second, a byte that leaves 1; a byte of cache 1 / 2^30 a second.
    bill = direct.expected.bill
    assert (bill.compute, bill.io_nodes, bill.egress, bill.requests) == (pytest.approx(88), 0, 600, 0)
    bill = one.expected.bill
    assert (bill.compute, bill.io_nodes, bill.egress) == (pytest.approx(40, abs=0.1), pytest.approx(20, abs=0.1), 100)
    assert bill.storage == pytest.approx(10**6 * 20 / GB_BYTES, rel=0.01)
    assert one.expected.hit_rate == pytest.approx(0.6)


def test_requests_are_paid_at_buckets_only_and_bytes_to_one_near_by_are_free() -> None:
    bucket = Origin("home", OriginKind.S3, "s3://bucket")
    direct, one = asked(Question(workflow(bucket), cluster(), PRICES), 0, 1)
    assert direct.expected is not None
    assert one.expected is not None
    # Each write has two looks: 3 reads and 2 writes without an I/O node, one of each with it.
    assert (direct.expected.usage.reads, direct.expected.usage.writes) == (3 + 4, 2)
    assert (one.expected.usage.reads, one.expected.usage.writes) == (1 + 2, 1)
    assert one.expected.bill.requests == 3 * 1 + 1 * 1000
    assert one.expected.bill.egress == 0
    assert direct.expected.usage.object_bytes == 500


@pytest.mark.parametrize(("charged", "egress"), [(Charged.NONE, 0), (Charged.FETCH, 1000), (Charged.UPLOAD, 100), (Charged.BOTH, 1100)])
def test_the_topology_says_which_bytes_leave_a_cloud(charged: Charged, egress: int) -> None:
    plain = cluster()
    charging = replace(plain, links={"home": replace(plain.links["home"], charged=charged)})
    (one,) = asked(Question(workflow(), charging, PRICES), 1)
    assert one.expected is not None
    assert one.expected.usage.egress_bytes == egress


def test_nodes_on_the_compute_nodes_cost_nothing_of_their_own() -> None:
    (one,) = asked(Question(workflow(), cluster(on_compute_nodes=True), PRICES), 1)
    assert one.expected is not None
    assert (one.expected.io_node_hours, one.expected.bill.io_nodes) == (0, 0)
    assert one.expected.compute_node_hours == pytest.approx(2 * 20 / 3600, rel=0.01)


def test_the_cheapest_the_fastest_and_the_front_are_marked() -> None:
    dear = replace(PRICES, io=replace(NODE, per_hour=3600.0 * 1000))
    direct, one = asked(Question(workflow(), cluster(), dear), 0, 1)
    assert (direct.cheapest, direct.fastest, direct.front) == (True, False, True)
    assert (one.cheapest, one.fastest, one.front) == (False, True, True)
    direct, one = asked(Question(workflow(), cluster(), PRICES), 0, 1)
    assert (direct.cheapest, direct.fastest, direct.front) == (False, False, False)
    assert (one.cheapest, one.fastest, one.front) == (True, True, True)


def test_what_cannot_be_done_says_why_and_marks_nothing() -> None:
    direct, one = asked(Question(workflow(), cluster(capacity_bytes=900), PRICES), 0, 1)
    assert (one.outcome, one.expected, one.front) == ("refused", None, False)
    assert "needs at least 1600 bytes" in one.message
    assert direct.cheapest
    assert direct.fastest


def test_more_i_o_nodes_than_cores_are_refused_and_what_does_not_divide_is_noted() -> None:
    two, three = asked(Question(workflow(), cluster(), PRICES), 2, 3)
    assert (two.outcome, two.notes, three.outcome) == ("succeeded", (), "refused")
    assert "3 I/O nodes would serve 2 cores of jobs" in three.message
    five = replace(cluster(), compute=ComputeNodes(1, 5))
    (uneven,) = asked(Question(workflow(), five, PRICES), 2)
    assert uneven.notes == ("5 cores do not divide by 2: 1 are left idle",)
    w = workflow()
    wide = replace(w, jobs={**w.jobs, "b": replace(w.jobs["b"], cores=4)})
    (narrow,) = asked(Question(wide, replace(cluster(), compute=ComputeNodes(1, 4)), PRICES), 2)
    assert "1 job asks for more than the 2 cores of each I/O node, 'b' the first" in narrow.notes[0]


def test_processes_change_nothing() -> None:
    question = Question(workflow(), replace(cluster(), assumed=True), PRICES, draws=3)
    assert asked(question, 0, 1, processes=2) == asked(question, 0, 1)


def test_draws_spread_what_is_not_measured() -> None:
    """Times and sizes are declared here, by a quarter; the links are said in the topology, or else assumed by a factor of two."""
    said = Question(workflow(), cluster(), PRICES, draws=12)
    for choice, assumed in zip(asked(said, 0, 1), asked(replace(said, cluster=replace(cluster(), assumed=True)), 0, 1), strict=True):
        assert choice.expected is not None
        low, high = choice.wall_s_range
        expected = choice.expected.usage.wall_s
        assert expected / 1.25 <= low < expected < high <= expected * 1.25
        assert choice.total_range[0] < choice.expected.bill.total < choice.total_range[1]
        assert choice.wan_bytes_range[0] < choice.expected.wan_bytes < choice.wan_bytes_range[1]
        assert assumed.wall_s_range[0] < low
        assert assumed.wall_s_range[1] > high


def test_small_workflows_are_drawn_often_and_large_ones_only_when_asked() -> None:
    assert [draws_for(jobs) for jobs in (0, 10, 500, 5_000, 10_000)] == [20, 20, 10, 1, 0]


FAN = """
workflow w
  external in 4000
  external more 4000
  made p0 10 final
  made p1 10 final
  made p2 10 final
  made p3 10 final
  job a in more -> p0 compute=3
  job b in more -> p1 compute=3
  job c in more -> p2 compute=3
  job d in more -> p3 compute=3
"""


def test_several_i_o_nodes_serve_more_and_fetch_each_byte_once() -> None:
    """Four compute nodes: one I/O node's disk serves 32,000 bytes, two serve half of it each, once the inputs were copied."""
    files, jobs = read(FAN).workflows["w"]
    fan = Workflow("w", files, jobs, {"home": HOME})
    slow = cluster(disk_bytes_per_s=200.0)
    wide = replace(slow, compute=replace(slow.compute, nodes=4), links={"home": WanLink(OriginLink("home", 4000.0, 4000.0, 0.0))})
    one, two, four = asked(Question(fan, wide, PRICES), 1, 2, 4, processes=2)
    assert one.expected and two.expected and four.expected
    assert one.expected.fetched_bytes == two.expected.fetched_bytes == four.expected.fetched_bytes == 8000
    assert two.expected.usage.wall_s < one.expected.usage.wall_s
    assert [choice.expected.usage.io_nodes for choice in (one, two, four) if choice.expected] == [1, 2, 4]
    assert two.expected.usage.volume_bytes == 2 * 10**6
