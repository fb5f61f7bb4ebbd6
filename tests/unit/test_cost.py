"""The papers' formulas give the papers' money; each line of a bill against what can be worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stager.model.errors import InvalidInput
from stager.model.prices import (
    GB_BYTES,
    MONTH_S,
    ClusterPrices,
    EgressPrice,
    InstancePrice,
    PriceTable,
    RequestPrice,
    StoragePrice,
    Tier,
    prices_for,
)
from stager.planning import cost, iomodel, requests

PLACE = {"provider": "paper", "region": "tokyo", "date": "2014", "source": "the paper"}
M3 = InstancePrice(**PLACE, name="m3.xlarge", per_hour=0.405, billed_every_s=0.0, billed_at_least_s=0.0)
INSIDE, WAN, NODES, DATA = 2700.0, 135.0, 20, 102_400.0
TIERS = (Tier(100, 0.0), Tier(1000, 9.0), Tier(None, 5.0))


@pytest.mark.parametrize(
    ("hit_rate", "mb_per_s", "dollars"), [(0, 129, 3.58), (0.25, 171, 2.69), (0.5, 257, 1.79), (0.75, 514, 0.90), (1, 2700, 0.17)]
)
def test_the_papers_throughput_and_money_of_100_gb(hit_rate: float, mb_per_s: int, dollars: float) -> None:
    rate = iomodel.throughput(hit_rate, INSIDE, WAN)
    assert round(rate) == mb_per_s
    bill = cost.bill_of(cost.Usage(DATA / rate, NODES, NODES), prices(M3))
    assert round(bill.total, 2) == dollars
    assert bill.total == pytest.approx(iomodel.node_cost(DATA, rate, 0.405, 2 * NODES))
    assert bill.compute == bill.io_nodes == bill.total / 2


def test_the_papers_direct_io_pays_for_compute_nodes_only() -> None:
    bill = cost.bill_of(cost.Usage(DATA / WAN, NODES, 0), prices(M3))
    assert round(bill.total, 2) == 1.71
    assert [name for name, money in bill.lines() if money] == ["compute"]


def prices(node: InstancePrice, **changes: object) -> ClusterPrices:
    facts = {"egress": TIERS, "requests": None, "objects_per_gb_month": 0.0, "volumes_per_gb_month": 0.0} | changes
    return ClusterPrices("USD", node, node, **facts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wall_s", "every_s", "least_s", "billed"),
    [(10, 1, 60, 60), (60.2, 1, 60, 61), (3600, 3600, 0, 3600), (3600.1, 3600, 0, 7200), (7.5, 0, 0, 7.5), (0.3 * 3, 0.1, 0, 0.9)],
)
def test_time_is_billed_in_steps(wall_s: float, every_s: float, least_s: float, billed: float) -> None:
    assert cost.billed_s(wall_s, every_s, least_s) == pytest.approx(billed)


def test_requests_of_a_size() -> None:
    mib = 1 << 20
    assert [requests.reads_of(size) for size in (0, 1, 8 * mib, 8 * mib + 1, 100 * mib)] == [1, 1, 1, 2, 13]
    assert [requests.writes_of(size) for size in (0, 16 * mib - 1, 16 * mib, 8000 * mib, 9000 * mib)] == [1, 1, 4, 1002, 1002]
    assert requests.writes_of(128_000 * mib) == 2 + 2000
    assert cost.request_money(2000, 1000, 0.4, 5.0) == pytest.approx(5.8)


def test_egress_falls_into_tiers() -> None:
    gb = GB_BYTES
    tiers = (Tier(100 * gb, 0.0), Tier(1000 * gb, 9.0), Tier(None, 5.0))
    assert cost.egress_money(100 * gb, tiers) == 0
    assert cost.egress_money(150 * gb, tiers) == pytest.approx(450)
    assert cost.egress_money(1100 * gb, tiers) == pytest.approx(900 * 9 + 100 * 5)
    assert cost.egress_money(10 * gb, tiers, 995 * gb) == pytest.approx(5 * 9 + 5 * 5)


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=6))
def test_egress_costs_the_same_in_pieces(pieces: list[int]) -> None:
    sent, money = 0, 0.0
    for piece in pieces:
        money += cost.egress_money(piece, TIERS, sent)
        sent += piece
    assert money == pytest.approx(cost.egress_money(sent, TIERS))


def test_storage_is_paid_by_the_month_and_a_disk_of_its_own_is_in_the_price() -> None:
    assert cost.storage_money(10 * GB_BYTES, MONTH_S / 2, 0.08) == pytest.approx(0.4)
    usage = cost.Usage(MONTH_S, 1, 1, volume_bytes=GB_BYTES, object_bytes=2 * GB_BYTES)
    kept = {"volumes_per_gb_month": 1.0, "objects_per_gb_month": 10.0}
    assert cost.bill_of(usage, prices(M3, **kept)).storage == pytest.approx(21)
    with_disk = InstancePrice(**PLACE, name="i3.large", per_hour=1.0, own_disk=True)
    assert cost.bill_of(usage, prices(with_disk, **kept)).storage == pytest.approx(20)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=12))
def test_the_front_is_what_nothing_beats(points: list[tuple[float, float]]) -> None:
    front = cost.on_front(points)
    assert any(front)
    for index, point in enumerate(points):
        better = [other for other in points if other != point and other[0] <= point[0] and other[1] <= point[1]]
        assert front[index] == (not better)
    assert front[points.index(min(points))]
    assert front[points.index(min(points, key=lambda point: (point[1], point[0])))]


def table() -> PriceTable:
    here, there = PLACE, PLACE | {"region": "oregon"}
    return PriceTable(
        "USD",
        "2026-11-22",
        instances=(M3, InstancePrice(**there, name="m9", per_hour=1.0)),
        egress=(EgressPrice(**there, tiers=(Tier(None, 2.0),)), EgressPrice(**here, tiers=TIERS)),
        requests=(RequestPrice(**here, reads_per_1000=0.4, writes_per_1000=5.0),),
        storage=(StoragePrice(**here, kind="volume", per_gb_month=0.1), StoragePrice(**here, kind="object", per_gb_month=0.02)),
        origin="prices.yml",
    )


def test_the_place_of_the_compute_nodes_decides() -> None:
    found = prices_for(table(), "m3.xlarge", "m3.xlarge")
    assert (found.egress, found.volumes_per_gb_month, found.objects_per_gb_month, found.missing) == (TIERS, 0.1, 0.02, ())
    bare = prices_for(table(), "m9", "m3.xlarge")
    assert bare.egress == (Tier(None, 2.0),)
    assert bare.missing == ("requests", "objects kept", "volumes")
    assert cost.bill_of(cost.Usage(3600, 1, 0, reads=10**6), bare).requests == 0


def test_an_unknown_instance_is_named_with_those_there_are() -> None:
    with pytest.raises(InvalidInput, match=r"prices.yml has no price of 'm8'; it has m3.xlarge, m9; add a line"):
        prices_for(table(), "m8", "m9")
    with pytest.raises(InvalidInput, match=r"no price of 'm9' in 'tokyo', only in oregon"):
        table().instance("m9", "tokyo")
