"""What the tables of the benchmarks claim: medians, spread, the mark of a busy machine, goals."""

from __future__ import annotations

import pytest

from benchmarks.bench_serving import counted
from benchmarks.measuring import Table, goal, slice_of, watched


def table(*rounds: tuple[float, float]) -> Table:
    made = Table("per second")
    for value, busy in rounds:
        made.add("create", "ours", value, busy)
    return made


def test_a_row_shows_the_median_of_its_rounds_and_how_far_they_lie_apart() -> None:
    line = table((1000.0, 0.5), (3000.0, 0.5), (1200.0, 0.5)).text().splitlines()[1]
    assert line.split() == ["create", "ours", "1,200", "1,000", "-", "3,000", "50%"]


def test_a_row_of_a_busy_machine_is_marked_and_so_is_the_goal_that_it_misses() -> None:
    idle, busy = table((50.0, 0.85)), table((50.0, 0.86))
    assert "CPU-bound" not in idle.text() and "CPU-bound" in busy.text()
    rows = [made.rows["create", "ours"] for made in (idle, busy)]
    assert goal("creates/s", 50.0, 60.0, rows[0]).endswith("MISSED")
    assert goal("creates/s", 50.0, 60.0, *rows).endswith("MISSED (CPU-bound)")
    assert goal("creates/s", 60.0, 60.0, rows[0]).endswith("met")


def test_one_busy_round_of_three_does_not_mark_the_row() -> None:
    assert "CPU-bound" not in table((1.0, 0.2), (1.0, 0.99), (1.0, 0.3)).text()


def test_the_best_peer_is_the_one_with_the_highest_median_and_one_not_measured_is_left_out() -> None:
    made = Table("per second")
    for side, values in {"a": (9.0, 1.0, 1.0), "b": (2.0, 2.0, 2.0)}.items():
        for value in values:
            made.add("get", side, value, 0.1)
    assert made.best("get", ["a", "b", "absent"]).side == "b"


def test_work_that_takes_no_processor_time_leaves_the_machine_at_rest() -> None:
    with watched() as watch:
        pass
    assert 0 <= watch.took_s < 10 and 0 <= watch.busy <= 1


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("  50561 requests in 2.01s, 214.30MB read\n", (50561, 2.01, 214.30 * (1 << 20))),
        ("  12 requests in 1.50m, 1.50GB read\n", (12, 90.0, 1.5 * (1 << 30))),
    ],
)
def test_the_summary_of_the_load_generator(said: str, found: tuple[int, float, float]) -> None:
    assert counted(said) == pytest.approx(found)


def test_slices_are_all_there_is_and_each_has_some_of_every_size() -> None:
    names = list(range(10))
    slices = [slice_of(names, f"{number}/3") for number in range(3)]
    assert slices[1] == [1, 4, 7]
    assert sorted(name for each in slices for name in each) == names == slice_of(names, "0/1")
