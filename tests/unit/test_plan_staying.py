"""From which place on what a job reads may come ahead: against counting place by place what is in use and what waits there."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stager.planning.staying import first_places


@st.composite
def rows(draw: st.DrawFn) -> tuple[list[dict[str, int]], int, int]:
    sizes = {name: draw(st.integers(1, 20)) for name in "abcdefgh"}
    jobs = draw(st.lists(st.sets(st.sampled_from("abcdefgh"), max_size=4), max_size=12))
    return [{name: sizes[name] for name in sorted(used)} for used in jobs], draw(st.integers(0, 80)), draw(st.integers(1, 4))


def in_the_way(uses: list[dict[str, int]], at: int, until: int, at_once: int) -> int:
    """Bytes of what jobs use that run side by side at a place, and of what was used before and is used again no later than the last."""
    found = {}
    for lfn, size_bytes in {lfn: size for files in uses for lfn, size in files.items()}.items():
        places = [place for place, files in enumerate(uses) if lfn in files]
        after = [place for place in places if place >= at]
        runs = bool(after) and after[0] < at + at_once
        waits = bool(after) and places[0] < at and after[0] <= until
        if runs or waits:
            found[lfn] = size_bytes
    return sum(found.values())


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(rows())
def test_equals_counting_each_place(case: tuple[list[dict[str, int]], int, int]) -> None:
    uses, capacity_bytes, at_once = case
    expected, first = [], 0
    for until in range(len(uses)):
        last = max(0, until - at_once + 1)
        while first < last and max(in_the_way(uses, at, until, at_once) for at in range(first, last)) > capacity_bytes:
            first += 1
        expected.append(first)
    assert first_places(uses, capacity_bytes, at_once) == expected


def test_what_is_used_later_is_not_in_the_way() -> None:
    """Both were used first; the other one is used again before `soon`, or after it."""
    before = [{"soon": 5, "other": 5}, {"big": 8}, {"small": 1}, {"other": 5}, {"soon": 5}]
    after = [*before[:3], {"soon": 5}, {"other": 5}]
    assert first_places(before, 14, 1)[4] == 2
    assert first_places(after, 14, 1)[3] == 0


def test_what_runs_side_by_side_counts_at_once() -> None:
    uses = [{"a": 4}, {"b": 4}, {"c": 4}, {"d": 4}, {"e": 4}]
    assert first_places(uses, 8, 2) == [0, 0, 0, 0, 0]
    assert first_places(uses, 8, 3) == [0, 0, 0, 1, 2]
