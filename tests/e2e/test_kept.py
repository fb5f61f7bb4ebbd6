"""Results that nodes keep for later runs, by real processes: an edit in the middle runs nothing before it, and damage is found.

The workflow is of four jobs of which only the last hands something over: what the others made, only the node has.
"""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.reuse_rig import ReuseBed, counted
from tests.e2e.test_corruption import flip
from tests.testbed.waiting import wait_until

WORKFLOW = counted("deep", "sh shout.sh total.txt", "total.txt, here:shout.sh", hands_over_all=False)
# More than what a node hashes each time before a job reads it.
COUNT_BYTES = 300_000
ALL = ["a", "b", "shout", "total"]
LARGE = """stager: 1
name: large
on_exists: replace
defaults: {isolate: off}
jobs:
  make: {run: head -c 1500000 /dev/zero > big.bin, outputs: [big.bin]}
  read: {run: wc -c < big.bin > size.txt, inputs: [big.bin], outputs: {size.txt: "here:out/"}}
"""


class Bed(ReuseBed):
    def __init__(self, place: Path) -> None:
        super().__init__(place, WORKFLOW, {name: name for name in "ab"}, {"count": f"head -c {COUNT_BYTES - 1} /dev/zero\ncat $1\n"})
        self.edits = 0
        self.edit("total")
        self.edit("shout")

    def edit(self, script: str) -> None:
        """It makes something else from now on."""
        self.edits += 1
        (self.place / f"{script}.sh").write_text(f"echo {script} {self.edits}\ncat $*\n")

    def again(self) -> list[str]:
        """The jobs that ran."""
        self.submit()
        return self.ran()

    def final(self) -> bytes:
        return (self.place / "out" / "shout.txt").read_bytes()

    def stored(self, text: str) -> Path:
        """Where the node keeps what `count` made of it."""
        content = b"\0" * (COUNT_BYTES - 1) + text.encode()
        found = [path for path in (self.stager.state_dir / "node" / "data").rglob("*") if path.is_file() and path.read_bytes() == content]
        assert len(found) == 1
        return found[0]


@pytest.fixture
def bed(short_dir: Path) -> Iterator[Bed]:
    made = Bed(short_dir)
    yield made
    made.stager.end()


def test_an_edit_in_the_middle_runs_nothing_before_it(bed: Bed) -> None:
    assert bed.again() == ALL
    status, ledger = bed.stager.run("status").stdout, bed.stager.run("ledger").stdout
    assert "  kept results: 1.2 MB, evictable\n" in status and "kept results: 1.2 MB, evictable: " in ledger
    assert {file["lfn"]: file["state"] for file in bed.stager.json("ledger")}["total.txt"] == "kept"
    assert "node0: kept results: 1.2 MB, evictable" in bed.stager.run("node", "list").stdout

    bed.edit("shout")
    said = bed.submit()
    # What it hands over is as large as what it reads.
    assert "3 of 4 jobs reused, 600 kB over the WAN\n1 kept result (600 kB) of earlier runs is read where a node keeps them" in said
    assert bed.ran() == ["shout"]
    bed.edit("total")
    assert bed.again() == ["shout", "total"]
    assert bed.final().startswith(b"shout 3\ntotal 4\n\0") and bed.final().endswith(b"b")
    assert bed.stager.json("runs")[0]["jobs_reused"] == 2
    assert {file["lfn"]: file["state"] for file in bed.stager.json("ledger", "deep-1")}["a.count"] == "kept", "of the first run, too"
    assert "a.count: kept on a node" in bed.stager.run("plan", "w.yml", "--explain", "count[texts/a.txt]", cwd=bed.place).stdout


def test_a_flipped_bit_in_a_kept_result_is_found_and_its_job_runs_again(bed: Bed) -> None:
    bed.submit()
    flip(bed.stored("a"))
    bed.edit("total")
    assert bed.again() == ["a", "shout", "total"]
    assert bed.final() == b"shout 2\ntotal 3\n" + b"".join(b"\0" * (COUNT_BYTES - 1) + name for name in (b"a", b"b"))
    bed.edit("total")
    assert bed.again() == ["shout", "total"], "what was made again is kept"


def test_what_is_kept_gives_way_and_is_made_again(bed: Bed) -> None:
    bed.stager.env = {**bed.stager.env, "STAGER_CAPACITY": "2 MB"}
    (bed.place / "large.yml").write_text(LARGE)
    bed.submit()
    bed.submit("large.yml")
    gone = bed.stager.run("explain", "deep-1", "--file", "total.txt").stdout
    assert "it was kept for later runs, and the room is wanted" in gone
    assert (bed.place / "out" / "size.txt").read_text().strip() == "1500000"
    bed.edit("shout")
    assert bed.again() == ALL


def test_what_is_kept_is_let_go_on_request_and_outlives_its_run(bed: Bed) -> None:
    bed.submit()
    assert "removed" in bed.stager.run("gc", "--runs").stdout
    bed.stager.run("shutdown")
    bed.edit("shout")
    assert bed.again() == ["shout"], "the journal does not tell of the run that made it any more"
    stored = bed.stored("a")
    assert bed.stager.run("results", "forget", "--job", "count[texts/a.txt]").stdout == "1 result forgotten\n"
    wait_until(lambda: not stored.exists(), "the node to drop what nobody remembers")
    bed.edit("total")
    assert bed.again() == ["a", "shout", "total"]
    stored = bed.stored("b")
    bed.stager.run("gc", "--results")
    wait_until(lambda: not stored.exists(), "the node to drop the results")
    assert bed.again() == ALL
    stored = bed.stored("b")
    bed.stager.run("gc", "--cache")
    wait_until(lambda: not stored.exists(), "the node to drop its cache")
    bed.stager.run("shutdown")
    bed.stager.env = {**bed.stager.env, "STAGER_KEEP_RESULTS": "0"}
    for script in ("total", "shout"):
        bed.edit(script)
        assert bed.again() == ALL, "nothing is kept any more"


def test_what_a_run_that_goes_on_has_made_outlives_what_is_forgotten_of_others(bed: Bed) -> None:
    """It is not written yet, so no result in the file names what nodes keep of it."""
    gate = bed.place / "gate"
    held = f"  held:\n    run: until test -e {gate}; do sleep 0.05; done; echo > held\n    outputs: {{held: 'here:out/'}}\n"
    jobs = "  o: {run: echo o > x, outputs: [x]}\n  p: {run: cat x > p, inputs: [x], outputs: {p: 'here:out/'}}\n"
    (bed.place / "other.yml").write_text(f"stager: 1\nname: other\njobs:\n{jobs}")
    bed.submit("other.yml")
    (bed.place / "w.yml").write_text(WORKFLOW + held)
    run = bed.stager.run("submit", "w.yml", "--detach", cwd=bed.place).stdout.strip()
    wait_until(lambda: "1 running" in bed.stager.run("status", run).stdout and "shout" in bed.ran(), "all but one to be done")
    wait_until(lambda: (bed.place / "out" / "shout.txt").exists(), "its final")
    assert bed.stager.run("results", "forget", "--job", "o").stdout == "1 result forgotten\n"
    gate.touch()
    bed.stager.run("wait", run)
    bed.edit("shout")
    assert bed.again() == ["shout"]


def test_killed_between_link_and_end_it_goes_on_with_what_is_kept(bed: Bed) -> None:
    bed.submit()
    gate = bed.place / "gate"
    (bed.place / "w.yml").write_text(WORKFLOW.replace("echo shout >>", f"until test -e {gate}; do sleep 0.05; done; echo shout >>"))
    (bed.place / "ran").unlink()
    run = bed.stager.run("submit", "w.yml", "--detach", cwd=bed.place).stdout.strip()
    wait_until(lambda: "1 running" in bed.stager.run("status", run).stdout, "the last job to run")
    scheduler, node = bed.stager.scheduler_pid(), bed.stager.json("status", run)["nodes"][0]["pid"]
    assert scheduler is not None
    for pid in (scheduler, node):
        os.kill(pid, signal.SIGKILL)
    gate.touch()
    bed.stager.run("resume", run, "--quiet", cwd=bed.place)
    assert set(bed.ran()) == {"shout"} and bed.stager.json("runs")[0]["jobs_reused"] == 3
    with sqlite3.connect(bed.stager.state_dir / "results.sqlite") as db:
        assert db.execute("SELECT count(*) FROM kept").fetchone() == (5,), "and the two finals"
