"""What the soak calls growth, and how it keeps names: both decide whether a run failed."""

from __future__ import annotations

import random

import pytest

from scripts.soak import GROWTH_BYTES, Sample, grown
from scripts.soak_load import Content, Known

MIB = 1 << 20


def samples(*rss_mib: float, fds: int = 20) -> list[Sample]:
    return [Sample(int(value * MIB), fds, 10, 0) for value in rss_mib]


@pytest.mark.parametrize(
    ("rss_mib", "is_growth"),
    [
        ((100, 100, 100, 100, 126, 126), False),
        ((100, 100, 100, 100, 127, 127), True),
        ((100, 100, 100, 400, 100, 100), False),
        ((300, 90, 90, 100, 100, 100, 100, 100, 300), False),
    ],
)
def test_memory_of_the_last_third_is_held_against_that_of_the_first(rss_mib: tuple[float, ...], is_growth: bool) -> None:
    assert GROWTH_BYTES == 16 * MIB
    assert bool(grown(samples(*rss_mib))) == is_growth


def test_open_files_that_stay_open_are_growth() -> None:
    assert grown(samples(1, 1) + samples(1, 1, fds=100)) == ["fds went from 20 to 100"]


def test_a_name_that_was_taken_is_nobody_elses_until_it_is_given_back() -> None:
    known, content = Known(), Content(1, 3)
    known.doubt("a", content)
    assert known.take(random.Random(0)) is None
    known.ack("a")
    assert known.take(random.Random(0)) == ("a", content)
    assert known.take(random.Random(0)) is None and known.in_doubt == {"a": content}
    known.ack("a")
    assert known.acked == {"a": content} and content.made() == Content(1, 3).made() and len(content.made()) == 3
