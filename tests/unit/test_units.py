"""What counts and what it does, in words that fit one."""

from __future__ import annotations

import pytest

from stager.model.units import counted


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
