"""The papers' formulas give the papers' figures."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import bench_model
from stager.planning import iomodel

MB_INSIDE, MB_WAN, NODES, DATA_MB, PRICE = 2700.0, 135.0, 20, 102_400.0, 0.405


@pytest.mark.parametrize(
    ("hit_rate", "mb_per_s", "dollars"), [(0, 129, 3.58), (0.25, 171, 2.69), (0.5, 257, 1.79), (0.75, 514, 0.90), (1, 2700, 0.17)]
)
def test_buffer_throughput_and_cost_of_100_gb(hit_rate: float, mb_per_s: int, dollars: float) -> None:
    rate = iomodel.throughput(hit_rate, MB_INSIDE, MB_WAN)
    assert round(rate) == mb_per_s
    assert round(iomodel.node_cost(DATA_MB, rate, PRICE, 2 * NODES), 2) == dollars


def test_direct_io_cost_and_where_the_buffer_becomes_cheaper() -> None:
    direct = iomodel.node_cost(DATA_MB, MB_WAN, PRICE, NODES)
    assert round(direct, 2) == 1.71

    def buffered(hit_rate: float) -> float:
        return iomodel.node_cost(DATA_MB, iomodel.throughput(hit_rate, MB_INSIDE, MB_WAN), PRICE, 2 * NODES)

    assert buffered(0.45) > direct > buffered(0.55)
    assert iomodel.throughput(1, MB_INSIDE, MB_WAN) / MB_WAN == pytest.approx(20)


@given(st.integers(1, 60), st.integers(1, 40))
def test_closed_form_equals_printed_sum(clients: int, io_nodes: int) -> None:
    assert iomodel.client_throughput(135.0, clients, io_nodes) == pytest.approx(iomodel.client_throughput_sum(135.0, clients, io_nodes))


@given(st.integers(1, 40), st.integers(2, 20))
def test_sharing_rates_are_a_distribution(clients: int, io_nodes: int) -> None:
    assert sum(iomodel.sharing_rate(i, clients, io_nodes) for i in range(clients)) == pytest.approx(1)


# total, read, written, read again, compute seconds
PROFILES = {
    "montage": (2132.437508, 1558.082295, 574.355213, 1500.107713, 18.680705),
    "povray": (748.916378, 681.081228, 67.83515, 678.155227, 1150.97979),
    "supernovae": (5203.214882, 3283.723596, 1919.491286, 2429.888509, 1351.987268),
}


def test_montage_gains_most_and_povray_least() -> None:
    gains = {}
    for name, (total, read, written, _, compute_s) in PROFILES.items():
        assert read + written == pytest.approx(total)
        clients = 8
        direct = iomodel.application_time_s(total, compute_s, MB_WAN / clients)
        buffered = iomodel.application_time_s(total, compute_s, iomodel.client_throughput(MB_WAN, clients, 8))
        gains[name] = direct / buffered
    assert gains["montage"] > gains["supernovae"] > gains["povray"] > 1


def test_what_is_read_first_passes_the_wan_with_i_o_nodes_too() -> None:
    assert iomodel.staged_time_s(100, 900, 7, 10, 90) == 7 + 10 + 10
    assert iomodel.staged_time_s(0, 1000, 7, 10, 10) == iomodel.application_time_s(1000, 7, 10)


def test_the_evaluation_holds_what_the_formulas_say_today() -> None:
    page = bench_model.EVALUATION.read_text()
    assert bench_model.rewritten(page, bench_model.section_of()) == page, "run `make bench-model ARGS=--write`"
    assert all((bench_model.FIGURES / name).read_text().startswith("<?xml") for name in ("s0.svg", "s1.svg"))


def test_the_papers_order_of_the_applications_holds_for_any_number_of_clients() -> None:
    for clients in bench_model.CLIENTS:
        gains = {name: before / after for name in bench_model.APPLICATIONS for before, after in [bench_model.gain(name, clients)]}
        assert gains["Montage"] >= gains["Supernovae"] >= gains["POV-Ray"] >= 1
        assert clients < 4 or gains["Montage"] > gains["Supernovae"] > gains["POV-Ray"] > 1


def test_replicas_that_pay() -> None:
    assert iomodel.replicas_that_pay(1, 8) == 1
    assert iomodel.replicas_that_pay(100, 1) == 1
    assert iomodel.replicas_that_pay(1000, 8) == 8
    counts = [iomodel.replicas_that_pay(readers, 8) for readers in range(1, 50)]
    assert counts == sorted(counts)
    with pytest.raises(ValueError, match="between 0 and 1"):
        iomodel.throughput(1.5, 1, 1)
