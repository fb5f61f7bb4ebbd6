"""benchmarks/bench_durability.py: with nodes lost at random, deciding for each intermediate beats deciding the same for all."""

from __future__ import annotations

import pytest

from benchmarks import bench_durability as bench
from stager.sim.faults import sampled_losses


@pytest.mark.slow
def test_deciding_is_better_than_never_and_than_always_replicating() -> None:
    found = bench.means(1.0, 20, bench.branches())
    assert found["decided"][0] < 0.95 * found["never"][0]
    assert found["decided"][0] < 0.98 * found["always"][0]


def test_where_nothing_is_lost_the_choice_costs_nothing() -> None:
    found = bench.means(0.0, 1, bench.branches())
    assert found["decided"] == found["never"]
    assert found["always"][0] > found["never"][0]


def test_what_is_small_and_took_long_is_replicated_first() -> None:
    files = bench.plan_of("decided", bench.branches(), 0.5).files
    two = {entry.lfn.rstrip("0123456789") for entry in files if entry.safe_copies > 1}
    assert "state" in two
    assert "table" not in two


def test_what_a_reader_on_another_node_will_have_anyway_is_hardly_at_risk() -> None:
    files = [entry for entry in bench.plan_of("decided", bench.branches(), 1.0).files if entry.lfn.startswith("state")]
    alone, twice = ([entry.losing_s for entry in files if (len(entry.nodes) > 1) is several] for several in (False, True))
    assert alone and twice
    assert max(twice) < 0.1 * min(alone)


def test_losses_come_as_often_as_they_are_said_to() -> None:
    """200 lives of 10 hours with 0.5 an hour on two nodes of three, and none on the third; a node is not lost again before it is back."""
    drawn = [sampled_losses(seed, [0.5, 0.0, 0.5], 36_000.0, 60.0) for seed in range(200)]
    assert drawn == [sampled_losses(seed, [0.5, 0.0, 0.5], 36_000.0, 60.0) for seed in range(200)]
    assert {trouble.what for life in drawn for trouble in life} == {"lost"}
    assert {int(trouble.at_share * 3) for life in drawn for trouble in life} == {0, 2}
    assert sum(len(life) for life in drawn) / len(drawn) == pytest.approx(10.0, rel=0.05)
    for life in drawn:
        for node in (0, 2):
            times = [trouble.at for trouble in life if int(trouble.at_share * 3) == node]
            assert all(later - earlier >= 60.0 for earlier, later in zip(times, times[1:], strict=False))
    assert sampled_losses(1, [0.0], 1e9) == ()
