"""What counts and what it does, in words that fit one."""

from __future__ import annotations

import pytest

from stager.model.units import DURATION_S_MAX, SIZE_BYTES_MAX, counted, parse_duration_s, parse_rate_bytes_per_s, parse_size_bytes


@pytest.mark.parametrize(
    ("count", "words", "said"),
    [
        (0, ("job",), "0 jobs"),
        (1, ("job",), "1 job"),
        (2, ("job type",), "2 job types"),
        (1, ("file", "is", "are"), "1 file is"),
        (3, ("file", "is", "are"), "3 files are"),
    ],
)
def test_one_is_no_plural(count: int, words: tuple[str, ...], said: str) -> None:
    assert counted(count, *words) == said


@pytest.mark.parametrize("text", ["9" * 400, "11575 d", 1e300, float("inf"), float("nan"), 10**20, -1, True])
def test_no_duration_is_longer_than_anybody_waits(text: str | float) -> None:
    with pytest.raises(ValueError, match=r"is not a duration|is longer than 1,000,000,000 s, which are 31 years"):
        parse_duration_s(text)


@pytest.mark.parametrize("text", ["9" * 400, "8193 PiB", 1e300, float("inf"), float("nan"), 2**63, -1, True])
def test_no_size_is_more_than_a_journal_holds(text: str | float) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        parse_size_bytes(text)


def test_the_largest_are_taken() -> None:
    assert parse_duration_s(DURATION_S_MAX) == parse_duration_s("1000000000") == DURATION_S_MAX
    assert parse_size_bytes(SIZE_BYTES_MAX) == SIZE_BYTES_MAX and parse_size_bytes("8191 PiB") == 8191 * 2**50


@pytest.mark.parametrize("text", ["9" * 400 + " Gbit/s", "9" * 400, "1e9999 MB/s", "0 Mbit/s"])
def test_no_rate_is_without_end(text: str) -> None:
    with pytest.raises(ValueError, match="is not a rate"):
        parse_rate_bytes_per_s(text)
