"""Robust statistics against slow and obvious ones, and what they promise of odd values."""

from __future__ import annotations

from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stager.model import robust

VALUES = st.lists(st.floats(0, 1e12), min_size=1, max_size=40)
WHOLE_WEIGHTS = st.integers(1, 5)
POINTS = st.lists(st.tuples(st.floats(0, 1e9), st.floats(0, 1e9)), min_size=8, max_size=25)


@given(st.lists(st.tuples(st.floats(-1e9, 1e9), WHOLE_WEIGHTS), min_size=1, max_size=30), st.floats(0.01, 1.0))
def test_a_weighted_quantile_is_the_plain_one_of_repeated_values(pairs: list[tuple[float, int]], share: float) -> None:
    values, weights = [value for value, _ in pairs], [float(weight) for _, weight in pairs]
    repeated = sorted(value for value, weight in pairs for _ in range(weight))
    place = ceil(round(share * len(repeated), 9)) - 1
    assert robust.quantile(values, weights, share) == repeated[max(0, place)]


@given(st.lists(st.tuples(st.floats(0, 1e9), st.floats(0.001, 1)), min_size=1, max_size=30), st.randoms(use_true_random=False))
def test_order_does_not_matter(pairs: list[tuple[float, float]], random) -> None:  # type: ignore[no-untyped-def]
    shuffled = list(pairs)
    random.shuffle(shuffled)
    first, second = (robust.median(*zip(*each, strict=True)) for each in (sorted(pairs), sorted(shuffled)))
    assert first == second
    assert min(pairs)[0] <= robust.median(*zip(*shuffled, strict=True)) <= max(pairs)[0]


def test_weights_halve_with_every_half_life() -> None:
    half = int(robust.HALF_LIFE_RUNS)
    assert [robust.weight_of_age(age) for age in (0, half, 2 * half)] == pytest.approx([1, 0.5, 0.25])


def test_newer_values_outvote_more_older_ones() -> None:
    ages = [0, 0, 6, 6, 6]
    values = [1.0, 1.0, 9.0, 9.0, 9.0]
    assert robust.median(values, [robust.weight_of_age(age) for age in ages]) == 1.0
    assert robust.median(values, [1.0] * 5) == 9.0


def test_the_spread_of_values_that_are_even_on_a_log_scale_is_their_factor() -> None:
    values = [100 * 3 ** (step / 500 - 1) for step in range(1001)]
    assert robust.spread_factor(values, [100.0] * len(values), [1.0] * len(values)) == pytest.approx(3, rel=0.01)
    assert robust.spread_factor([5.0, 5.0], [5.0, 5.0], [1.0, 1.0]) == 1.0
    assert robust.spread_factor([0.0, 0.0], [0.0, 0.0], [1.0, 1.0]) == 1.0


@given(st.floats(0.001, 1e3), st.floats(0, 1e6), st.integers(12, 40), st.integers(0, 10_000))
def test_a_line_is_found_though_a_fifth_of_the_points_are_wrong(slope: float, intercept: float, count: int, seed: int) -> None:
    xs = [1e6 * (1 + index) for index in range(count)]
    ys = [intercept + slope * x for x in xs]
    for index in range(count // 5):
        ys[(seed + 7 * index) % count] *= 50
    line = robust.better_line(xs, ys, [1.0] * count)
    assert line is not None
    assert line.at(xs[3]) == pytest.approx(intercept + slope * xs[3], rel=1e-6)


def test_no_line_without_enough_points_or_different_sizes_or_where_it_says_little() -> None:
    xs = [float(x) for x in range(1, 21)]
    ys = [3 * x for x in xs]
    ones = [1.0] * 20
    least = robust.LINE_POINTS_MIN
    assert robust.better_line(xs[:least], ys[:least], ones[:least]) is not None
    assert robust.better_line(xs[: least - 1], ys[: least - 1], ones[: least - 1]) is None
    three_sizes = [float(1 + x % 3) for x in range(20)]
    assert robust.better_line(three_sizes, [3 * x for x in three_sizes], ones) is None
    noise = [float(x * 7919 % 101) for x in range(20)]
    assert robust.better_line(xs, [1000 + 6 * x + n for x, n in zip(xs, noise, strict=True)], ones) is None, "it leaves two thirds"
    assert robust.better_line(xs, [100 - 3 * x for x in xs], ones) is None, "more input does not make less work"
    assert robust.better_line(xs, [7.0] * 20, ones) is None, "a constant says it all"


@given(POINTS, st.floats(0, 1e12), st.floats(0, 1e12))
def test_predictions_are_never_negative_and_rise_and_end_beyond_what_was_seen(
    points: list[tuple[float, float]], x: float, y: float
) -> None:
    xs, ys = [point[0] for point in points], [point[1] for point in points]
    line = robust.line_through(xs, ys, [1.0] * len(points))
    if line is None:
        return
    assert line.at(x) >= 0 and (line.at(x) <= line.at(y)) == (x <= y or line.at(x) == line.at(y))
    far = max(xs) * robust.EXTRAPOLATION
    assert line.at(far * 10 + 1) == line.at(far) and line.at(0) == line.at(min(xs) / robust.EXTRAPOLATION)


def test_a_line_with_a_negative_intercept_predicts_nothing_below_zero() -> None:
    line = robust.FittedLine(-100.0, 1.0, 150.0, 300.0)
    assert (line.at(80), line.at(75), line.at(200), line.at(600), line.at(6000)) == (0, 0, 100, 500, 500)


def test_newer_points_turn_a_line() -> None:
    xs = [float(x) for x in range(1, 31)] * 2
    ys = [8 * x for x in xs[:30]] + [2 * x for x in xs[30:]]
    newer = robust.line_through(xs, ys, [1.0] * 30 + [robust.weight_of_age(9)] * 30)
    alike = robust.line_through(xs, ys, [1.0] * 60)
    assert newer is not None and newer.slope == pytest.approx(8, rel=0.1)
    assert alike is not None and alike.slope < 6
