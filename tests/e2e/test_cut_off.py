"""Early cut-off by real processes: jobs that were edited and make the same bytes have nothing run that follows from them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.test_kept import ALL, Bed


@pytest.fixture
def bed(short_dir: Path) -> Iterator[Bed]:
    made = Bed(short_dir)
    yield made
    made.stager.end()


def test_a_comment_in_a_script_runs_its_own_jobs_and_nothing_that_follows(bed: Bed) -> None:
    assert bed.again() == ALL
    final, script = bed.final(), bed.place / "count.sh"
    script.write_text(script.read_text() + "# a comment\n")
    assert bed.again() == ["a", "b"] and bed.final() == final
    assert bed.stager.json("status")["info"]["jobs_reused"] == 2
    assert "run deep-1 made the same, which is taken over" in bed.stager.run("explain", "deep-2", "--job", "shout").stdout
    assert "4 of 4 jobs reused" in bed.submit()
    script.write_text(script.read_text() + "echo more\n")
    assert bed.again() == ALL and bed.final() != final, "it makes something else"
    (bed.place / "total.sh").write_text((bed.place / "total.sh").read_text() + "# a comment\n")
    assert bed.again() == ["total"]
