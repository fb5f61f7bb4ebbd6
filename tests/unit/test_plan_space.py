"""SpaceProfile against a list that does the same the slow and obvious way."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stager.planning.space import SpaceProfile, usage_of


@st.composite
def range_calls(draw: st.DrawFn) -> tuple[list[int], list[tuple[str, int, int, int]]]:
    base = draw(st.lists(st.integers(-(10**15), 10**15), min_size=1, max_size=40))
    calls = []
    for _ in range(draw(st.integers(0, 30))):
        lo = draw(st.integers(0, len(base)))
        hi = draw(st.integers(0, len(base)))
        calls.append((draw(st.sampled_from(["add", "max"])), lo, hi, draw(st.integers(-(10**12), 10**12))))
    return base, calls


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(range_calls())
def test_equals_slow_list(case: tuple[list[int], list[tuple[str, int, int, int]]]) -> None:
    base, calls = case
    slow, fast = list(base), SpaceProfile(base)
    for what, lo, hi, delta in calls:
        if what == "add":
            fast.add(lo, hi, delta)
            for index in range(lo, hi):
                slow[index] += delta
        else:
            assert fast.max(lo, hi) == max(slow[lo:hi], default=0)
    for index in range(len(slow)):
        assert fast.max(index, index + 1) == slow[index]
    assert fast.max(0, len(slow)) == max(slow)


def test_empty_profile_and_wrong_ranges() -> None:
    assert SpaceProfile([]).max(0, 0) == 0
    profile = SpaceProfile([1, 2, 3])
    with pytest.raises(IndexError):
        profile.add(0, 4, 1)
    with pytest.raises(IndexError):
        profile.max(-1, 2)


def test_usage_counts_what_stays_between_and_what_passes_once() -> None:
    assert usage_of(4, [(0, 2, 10), (1, 1, 5)], [(0, 1), (3, 7)]) == [11, 15, 10, 7]
