"""Two runs at once that want the same jobs, by real processes: each job is run once, and both runs hand over their finals."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.test_kept import ALL, WORKFLOW, Bed
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
    assert bed.ran() == ALL
    assert bed.final() == (bed.place / "other" / "shout.txt").read_bytes()
    assert bed.stager.json("status", second)["info"]["jobs_reused"] == 4
    assert {job["reused_from"] for job in bed.stager.json("jobs", second)} == {first}
    assert "shout.txt (final, try 1) from what another run made" in bed.stager.run("explain", second, "--file", "shout.txt").stdout
    (final,) = [file for file in bed.stager.json("ledger", second) if file["lfn"] == "shout.txt"]
    assert final["state"] == "durable" and final["path"].endswith("other/shout.txt")


def test_everything_killed_meanwhile_each_job_is_done_once_and_both_finals_are_whole(bed: Beside) -> None:
    first, second = bed.begin_both()
    scheduler, node = bed.stager.scheduler_pid(), bed.stager.node_pid()
    assert scheduler is not None and node is not None
    for pid in (scheduler, node):
        os.kill(pid, signal.SIGKILL)
    bed.gate.touch()
    bed.stager.run("resume", first, "--quiet", cwd=bed.place)
    bed.stager.run("wait", second)
    ran = bed.ran()
    assert set(ran) == set(ALL) and ran.count("shout") == ran.count("total") == 1, "those that were killed ran again, the others once"
    assert bed.final() == (bed.place / "other" / "shout.txt").read_bytes()
    assert bed.stager.json("status", second)["info"]["jobs_reused"] == 4


def test_the_same_to_another_place_when_the_first_run_is_over_runs_nothing(bed: Beside) -> None:
    bed.gate.touch()
    bed.submit("w.yml")
    said = bed.submit("other.yml")
    assert "4 of 4 jobs reused, 600 kB over the WAN\n1 final (600 kB) that earlier runs made is sent to its destination from where" in said
    assert bed.ran() == []
    assert bed.final() == (bed.place / "other" / "shout.txt").read_bytes()
    # And what went there is known there.
    assert "4 of 4 jobs reused, 0 B over the WAN" in bed.submit("other.yml")


def test_the_very_same_is_refused_while_the_first_run_writes_there_and_runs_nothing_after_it(bed: Beside) -> None:
    first = bed.begin("w.yml")
    said = bed.stager.run("submit", "w.yml", "--detach", cwd=bed.place, code=3).stderr
    assert f"the active run {first} writes to" in said and f"wait for it (stager wait {first})" in said
    bed.gate.touch()
    bed.stager.run("wait", first)
    assert "4 of 4 jobs reused" in bed.submit("w.yml")
    assert bed.ran() == []


def test_where_the_first_run_is_cancelled_the_second_runs_them_itself(bed: Beside) -> None:
    first, second = bed.begin_both()
    bed.stager.run("cancel", first, "--yes")
    bed.gate.touch()
    bed.stager.run("wait", second)
    assert bed.ran() == ["a", "b", "shout", "total"] and (bed.place / "other" / "shout.txt").exists()
    assert bed.stager.json("status", second)["info"]["jobs_reused"] == 0
