"""From which place on what a job reads may come ahead: against counting place by place what is in use and what waits there."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stager.planning.staying import Files, Use, first_places


def reading(*files: Files) -> list[Use]:
    return [Use(each, {}) for each in files]


@st.composite
def rows(draw: st.DrawFn) -> tuple[list[Use], int, int, set[str]]:
    """Each file is made by the job that uses it first, or comes from elsewhere. Of those that are made some are bound."""
    sizes = {name: draw(st.integers(1, 20)) for name in "abcdefgh"}
    made, seen = draw(st.sets(st.sampled_from("abcdefgh"))), set[str]()
    uses = []
    for used in draw(st.lists(st.sets(st.sampled_from("abcdefgh"), max_size=4), max_size=12)):
        makes = (used & made) - seen
        seen |= used
        uses.append(Use(*({name: sizes[name] for name in sorted(names)} for names in (used - makes, makes))))
    bound = draw(st.sets(st.sampled_from(sorted(made)))) if made else set[str]()
    return uses, draw(st.integers(0, 80)), draw(st.integers(1, 4)), bound


def in_the_way(uses: list[Use], at: int, until: int, at_once: int, bound: set[str]) -> int:
    """Bytes of what jobs use that run side by side at a place, and of what is there by then and is used again no later than the last, or
    later where it is bound: it was used before, or it is not made here.
    """
    found = {}
    for lfn, size_bytes in {lfn: size for use in uses for lfn, size in (use.reads | use.makes).items()}.items():
        places = [place for place, use in enumerate(uses) if lfn in use.reads or lfn in use.makes]
        after = [place for place in places if place >= at]
        runs = bool(after) and after[0] < at + at_once
        is_there = places[0] < at or lfn in uses[places[0]].reads
        waits = bool(after) and is_there and (after[0] <= until or (lfn in bound and lfn in uses[places[0]].makes))
        if runs or waits:
            found[lfn] = size_bytes
    return sum(found.values())


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(rows())
def test_equals_counting_each_place(case: tuple[list[Use], int, int, set[str]]) -> None:
    uses, capacity_bytes, at_once, bound = case
    expected, first = [], 0
    for until in range(len(uses)):
        last = max(0, until - at_once + 1)
        while first < last and max(in_the_way(uses, at, until, at_once, bound) for at in range(first, last)) > capacity_bytes:
            first += 1
        expected.append(first)
    assert first_places(uses, capacity_bytes, at_once, bound) == expected


def test_what_is_used_later_is_not_in_the_way() -> None:
    """Both were used first; the other one is used again before `soon`, or after it."""
    made = [*reading({"soon": 5, "other": 5}), Use({}, {"big": 8}), Use({}, {"small": 1})]
    before = [*made, *reading({"other": 5}, {"soon": 5})]
    after = [*made, *reading({"soon": 5}, {"other": 5})]
    assert first_places(before, 14, 1)[4] == 2
    assert first_places(after, 14, 1)[3] == 0


def test_what_runs_side_by_side_counts_at_once() -> None:
    uses = [Use({}, {name: 4}) for name in "abcde"]
    assert first_places(uses, 8, 2) == [0, 0, 0, 0, 0]
    assert first_places(uses, 8, 3) == [0, 0, 0, 1, 2]


def test_what_is_read_before_has_come_before() -> None:
    """Three files come in a row, and what the first two jobs make waits beside them for the last."""
    uses = [Use({"a": 4}, {"x": 3}), Use({"b": 4}, {"y": 3}), Use({"c": 4}, {"z": 3}), Use({"x": 3, "y": 3, "z": 3}, {})]
    assert first_places(uses, 15, 1) == [0, 0, 0, 0]
    assert first_places(uses, 14, 1) == [0, 0, 1, 1]


def test_what_is_bound_is_in_the_way_though_it_is_used_later() -> None:
    uses = [Use({}, {"x": 5}), Use({}, {"y": 5}), Use({"a": 5}, {}), Use({"x": 5, "y": 5}, {})]
    assert first_places(uses, 14, 1) == [0, 0, 0, 3]
    assert first_places(uses, 14, 1, {"x", "y"}) == [0, 0, 2, 3]
