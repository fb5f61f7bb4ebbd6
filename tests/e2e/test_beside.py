"""Two runs at once that want the same jobs, by real processes: each job is run once, and both runs hand over their finals."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.test_kept import WORKFLOW, Bed
from tests.testbed.waiting import wait_until


class Beside(Bed):
    """The first two jobs wait for a gate, and write down that they run behind it."""

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        self.gate = place / "gate"
        text = WORKFLOW.replace("echo {text.stem} >>", f"until test -e {self.gate}; do sleep 0.05; done; echo {{text.stem}} >>")
        (place / "w.yml").write_text(text)
        (place / "other.yml").write_text(text.replace("here:out/", "here:other/"))

    def begin(self, workflow: str) -> str:
        return self.stager.run("submit", workflow, "--detach", cwd=self.place).stdout.strip()

    def begin_both(self) -> tuple[str, str]:
        """The second when the first runs its first jobs."""
        first = self.begin("w.yml")
        wait_until(lambda: "2 running" in self.stager.run("status", first).stdout, "the first jobs to run")
        return first, self.begin("other.yml")


@pytest.fixture
def bed(short_dir: Path) -> Iterator[Beside]:
    made = Beside(short_dir)
    yield made
    made.gate.touch()
    made.stager.end()


def test_two_runs_at_once_run_the_same_job_once_and_both_hand_over_their_finals(bed: Beside) -> None:
    first, second = bed.begin_both()
    told = bed.stager.run("explain", second, "--job", "total").stdout
    assert f"waits for what job total of run {first} makes" in told
    bed.gate.touch()
    for run in (first, second):
        bed.stager.run("wait", run)
    assert bed.ran() == ["a", "b", "shout", "shout", "total"], "what is handed over each run makes itself"
    assert bed.final() == (bed.place / "other" / "shout.txt").read_bytes()
    assert bed.stager.json("status", second)["info"]["jobs_reused"] == 3
    assert {job["reused_from"] for job in bed.stager.json("jobs", second)} == {first, ""}


def test_where_the_first_run_is_cancelled_the_second_runs_them_itself(bed: Beside) -> None:
    first, second = bed.begin_both()
    bed.stager.run("cancel", first, "--yes")
    bed.gate.touch()
    bed.stager.run("wait", second)
    assert bed.ran() == ["a", "b", "shout", "total"] and (bed.place / "other" / "shout.txt").exists()
    assert bed.stager.json("status", second)["info"]["jobs_reused"] == 0
