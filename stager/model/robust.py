"""Statistics that one odd run does not move: weighted quantiles, how far values lie apart, and a line over one variable.

May know: nothing but numbers. One rule: every function takes (value, weight) in step and depends on neither their order nor a hash.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import exp, log

# After this many newer runs a run counts half: after ten about a tenth.
HALF_LIFE_RUNS = 3.0
# A line needs enough to be drawn through, and must leave at most this share of what a constant leaves.
LINE_POINTS_MIN = 8
LINE_SIZES_MIN = 4
LINE_GAIN = 0.5
# Where the remainders of line and constant are compared: a quarter of all points may be anything.
REMAINDER_SHARE = 0.75
# A line through all pairs of points takes time by the square of their number.
LINE_POINTS_MAX = 100
# How far beyond the sizes that were seen a line is believed, as a factor; further out it stays where it is there.
EXTRAPOLATION = 2.0


def weight_of_age(newer_runs: int) -> float:
    """Halves every HALF_LIFE_RUNS; the newest run has 1."""
    return float(0.5 ** (newer_runs / HALF_LIFE_RUNS))


def quantile(values: Sequence[float], weights: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of the weight does not exceed. Values are not empty, weights positive."""
    ordered = sorted(zip(values, weights, strict=True))
    # What rounding loses in adding up must not decide which of two values it is.
    wanted = share * sum(weights) * (1 - 1e-12)
    reached = 0.0
    for value, weight in ordered:
        reached += weight
        if reached >= wanted:
            return value
    return ordered[-1][0]


def median(values: Sequence[float], weights: Sequence[float]) -> float:
    return quantile(values, weights, 0.5)


def spread_factor(values: Sequence[float], expected: Sequence[float], weights: Sequence[float]) -> float:
    """f such that values between expected / f and expected * f, even on a log scale, lie as far apart as these do: exp of twice the median
    of |ln(value / expected)|, since for such values that median is ln(f) / 2.

    Pairs with a zero have no ratio and say nothing; with none left nothing is known to vary, and it is 1.
    """
    apart = [(abs(log(v / e)), w) for v, e, w in zip(values, expected, weights, strict=True) if v > 0 and e > 0]
    return exp(2 * median(*zip(*apart, strict=True))) if apart else 1.0


@dataclass(frozen=True, slots=True)
class FittedLine:
    """`intercept + slope * x`, for x as they were seen: from `low` to `high`."""

    intercept: float
    slope: float
    low: float
    high: float

    def at(self, x: float) -> float:
        """Never negative, and not extrapolated beyond EXTRAPOLATION times what was seen."""
        inside = min(max(x, self.low / EXTRAPOLATION), self.high * EXTRAPOLATION)
        return max(0.0, self.intercept + self.slope * inside)


def line_through(xs: Sequence[float], ys: Sequence[float], weights: Sequence[float]) -> FittedLine | None:
    """Theil-Sen: the median of the slopes of all pairs (Theil 1950, Sen 1968), each weighing by its points and by how far apart they are
    (Jaeckel 1972), and the median of what is left as intercept. Right while fewer than about 29 % of the points are wrong.

    None where it rises nowhere: what a job takes does not shrink for its being given more. Points beyond the first LINE_POINTS_MAX are not
    looked at.
    """
    points = list(zip(xs, ys, weights, strict=True))[:LINE_POINTS_MAX]
    pairs = [((b[1] - a[1]) / (b[0] - a[0]), a[2] * b[2] * abs(b[0] - a[0])) for a, b in combinations(sorted(points), 2) if a[0] != b[0]]
    if not pairs:
        return None
    slope = median(*zip(*pairs, strict=True))
    if slope <= 0:
        return None
    intercept = median([y - slope * x for x, y, _ in points], [weight for _, _, weight in points])
    return FittedLine(intercept, slope, min(xs), max(xs))


def better_line(xs: Sequence[float], ys: Sequence[float], weights: Sequence[float]) -> FittedLine | None:
    """The line, where it clearly says more than the median does: enough points and different sizes, and at most LINE_GAIN of the remainder
    (its REMAINDER_SHARE quantile, by weight).
    """
    if len(xs) < LINE_POINTS_MIN or len(dict.fromkeys(xs)) < LINE_SIZES_MIN:
        return None
    middle = median(ys, weights)
    line = line_through(xs, ys, weights)
    if line is None:
        return None
    with_line = quantile([abs(y - line.at(x)) for x, y in zip(xs, ys, strict=True)], weights, REMAINDER_SHARE)
    without = quantile([abs(y - middle) for y in ys], weights, REMAINDER_SHARE)
    return line if with_line < without and with_line <= LINE_GAIN * without else None
