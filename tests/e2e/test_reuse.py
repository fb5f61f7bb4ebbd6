"""Reuse of results, by real processes: what was edited runs, with what follows from it, and nothing else does; and who lies is found out.

The workflow is of six jobs with finals all the way: what an earlier run handed over is where a later one finds it.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stager.service.reusing import SETTLED_S
from tests.e2e.origin_rig import ssh_origin
from tests.e2e.reuse_rig import ReuseBed, counted
from tests.testbed.sshd import Sshd
from tests.testbed.stager import Stager
from tests.testbed.waiting import wait_until

WORKFLOW = counted("words", "tr a-z A-Z < total.txt", "total.txt", hands_over_all=True)


class Bed(ReuseBed):
    def __init__(self, place: Path) -> None:
        texts = {name: f"{name} one two\n" for name in "abcd"}
        super().__init__(place, WORKFLOW, texts, {"count": "wc -w < $1\n", "total": "cat $*\necho sum\n"})

    def again(self, *words: str, code: int = 0) -> tuple[list[str], str]:
        """(the jobs that ran, what was said of reuse)."""
        err = self.submit("w.yml", *words, code=code)
        said = [line for line in err.splitlines() if "jobs reused" in line]
        return self.ran(), said[0] if said else err

    def explain(self, job: str) -> str:
        return self.stager.run("plan", "w.yml", "--explain", job, cwd=self.place).stdout

    def results(self) -> sqlite3.Connection:
        return sqlite3.connect(self.stager.state_dir / "results.sqlite", isolation_level=None)


@pytest.fixture
def bed(short_dir: Path) -> Iterator[Bed]:
    made = Bed(short_dir)
    yield made
    made.stager.end()


ALL = ["a", "b", "c", "d", "shout", "total"]


def test_what_was_edited_runs_with_what_follows_and_nothing_else(bed: Bed) -> None:
    assert bed.again()[0] == ALL
    assert bed.again() == ([], "6 of 6 jobs reused, 0 B over the WAN")
    info, jobs = bed.stager.json("runs")[0], bed.stager.json("jobs")
    assert (info["state"], info["jobs_done"], info["jobs_reused"]) == ("succeeded", 6, 6)
    assert {job["reused_from"] for job in jobs} == {"words-1"} and {job["attempts"] for job in jobs} == {0}
    ledger = bed.stager.json("ledger")
    assert {file["state"] for file in ledger} == {"durable"} and all(file["blake3"] for file in ledger)
    assert "6 of them reused" in bed.stager.run("report").stdout + bed.stager.run("status").stdout

    os.utime(bed.place / "count.sh")
    assert bed.again() == ([], "6 of 6 jobs reused, 0 B over the WAN"), "touched, and the same"

    (bed.place / "total.sh").write_text("cat $*\necho SUM\n")
    told = bed.explain("total")
    assert "no run that is remembered made this" in told and "what differs from run words-1:\n    input total.sh: " in told
    assert "its input 'total.txt' is made anew by 'total'" in bed.explain("shout") and "reused, run words-1" in bed.explain(
        "count[texts/a.txt]"
    )
    assert bed.again()[0] == ["shout", "total"]
    assert (bed.place / "out/total.txt").read_text().endswith("SUM\n")

    (bed.place / "texts" / "e.txt").write_text("e\n")
    ran, said = bed.again()
    assert ran == ["e", "shout", "total"] and said.startswith("4 of 7 jobs reused")

    edited = WORKFLOW.replace("shout.txt", "loud.txt")
    (bed.place / "w.yml").write_text(edited)
    assert bed.again()[0] == ["shout"] and (bed.place / "out/loud.txt").exists()
    (bed.place / "w.yml").write_text(edited.replace("shout:", "louder:").replace("env_pass: [RAN]", "env_pass: [RAN]\n    cores: 2"))
    assert bed.again()[0] == [], "what a job is called and may take bears on nothing that it makes"


def test_what_lies_is_found_out(bed: Bed) -> None:
    bed.again()
    text, before = bed.place / "texts" / "a.txt", os.stat(bed.place / "texts" / "a.txt")
    text.write_text("a six four\n"[: before.st_size].ljust(before.st_size - 1, "x")[: before.st_size - 1] + "\n")
    os.utime(text, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert os.stat(text).st_size == before.st_size
    assert "`touch` it" in bed.again(code=3)[1] and bed.ran() == [], "another content under the old time"
    wait_until(lambda: time.time() > os.stat(text).st_ctime + SETTLED_S + 0.1, "the change to have settled")
    assert bed.again("--no-reuse")[0] == ALL, "of what the cache has under it"
    assert "`touch` it" in bed.again(code=3)[1], "and nobody looked at it for that"
    os.utime(text)
    assert bed.again()[0] == ["a"], "it has as many words as before"

    (bed.place / "out" / "shout.txt").write_text("not what it was\n")
    ran, _ = bed.again()
    assert ran == [] and (bed.place / "out/shout.txt").read_text().endswith("SUM\n"), "changed by somebody: sent there again"
    (bed.place / "out" / "shout.txt").unlink()
    bed.stager.run("gc", "--cache")
    ran, _ = bed.again()
    assert ran == ["shout"] and (bed.place / "out/shout.txt").read_text().endswith("SUM\n"), "and no node has it"

    db = bed.results()
    wrong = "0" * 64
    (outputs,) = db.execute("SELECT outputs FROM results WHERE job = 'count[texts/b.txt]'").fetchone()
    made = json.loads(outputs)
    made[0][2] = wrong
    db.execute("UPDATE results SET outputs = ? WHERE job = 'count[texts/b.txt]'", (json.dumps(made),))
    assert "b" in bed.again()[0], "a record that says something else than what is at the destination"


def test_what_is_asked_for_runs_again(bed: Bed) -> None:
    bed.again()
    assert bed.again("--rerun", "shout")[0] == ["shout"]
    assert bed.again("--rerun", "count")[0] == ["a", "b", "c", "d"], "they make the same, and nothing follows from that"
    assert bed.again("--rerun", "all")[0] == ALL and bed.again("--no-reuse")[0] == ALL
    assert "names no job" in bed.again("--rerun", "shoot", code=2)[1]
    assert bed.again("--from", "total")[0] == ["shout", "total"] and bed.again("--until", "total.txt")[0] == []
    assert bed.again("--until", "total.txt", "--no-reuse")[0] == ["a", "b", "c", "d", "total"]
    (bed.place / "count.sh").write_text("wc -c < $1\n")
    assert "job 'count[texts/a.txt]' (and 3 more jobs) has to run" in bed.again("--from", "total", code=3)[1] and bed.ran() == []
    (bed.place / "count.sh").write_text("wc -w < $1\n")
    assert bed.stager.run("results", "forget", "--job", "shout").stdout == "1 result forgotten\n"
    assert bed.again()[0] == ["shout"]
    (bed.place / "w.yml").write_text(WORKFLOW.replace("outputs: {shout.txt", "reuse: false\n    outputs: {shout.txt"))
    assert bed.again()[0] == ["shout"]
    bed.stager.env = {**bed.stager.env, "RAN": str(bed.place / "ran2")}
    told = bed.explain("count[texts/a.txt]")
    assert "passed variable RAN: its value differs" in told and str(bed.place) not in told
    assert json.loads(bed.stager.run("gc", "--results", "--json").stdout)["results"] >= 6
    assert bed.stager.run("results", "list", "--json").stdout.strip() == "[]"


def test_a_scheduler_that_is_killed_loses_nothing_of_what_its_jobs_made(bed: Bed) -> None:
    gate = bed.place / "gate"
    held = WORKFLOW.replace("echo total >>", f"until test -e {gate}; do sleep 0.05; done; echo total >>")
    (bed.place / "w.yml").write_text(held)
    run = bed.stager.run("submit", "w.yml", "--detach", cwd=bed.place).stdout.strip()
    wait_until(lambda: bed.ran() == ["a", "b", "c", "d"] and "4 done" in bed.stager.run("status", run).stdout, "the counts to be done")
    pid = bed.stager.scheduler_pid()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    gate.touch()
    # Its variables were in the memory of the scheduler that is gone.
    bed.stager.run("resume", run, "--quiet", cwd=bed.place)
    assert bed.again() == ([], "6 of 6 jobs reused, 0 B over the WAN")
    bed.stager.run("shutdown")
    for name in bed.stager.state_dir.glob("results.sqlite*"):
        name.unlink()
    bed.stager.run("runs")
    wait_until(lambda: len(json.loads(bed.stager.run("results", "list", "--json").stdout)) == 6, "all to be made up from the journal")


def test_results_that_could_not_be_written_are_told_and_written_later(bed: Bed) -> None:
    bed.again("--until", "a.count")
    other = bed.results()
    other.execute("BEGIN IMMEDIATE")
    assert bed.again()[0] == ["b", "c", "d", "shout", "total"]
    assert "cannot be recorded" in bed.stager.run("status").stdout
    assert "another program writes there" in bed.stager.run("results", "forget", "--all", code=5).stderr
    other.execute("ROLLBACK")
    # What could be written again brings along what could not be.
    (bed.place / "other.yml").write_text("stager: 1\nname: other\njobs: {o: {run: echo o > o, outputs: {o: 'here:out/'}}}\n")
    bed.submit("other.yml")
    assert bed.again() == ([], "6 of 6 jobs reused, 0 B over the WAN")


def test_a_call_that_is_refused_forgets_nothing(bed: Bed) -> None:
    bed.again()
    (bed.place / "total.sh").write_text("exit 1\n")
    bed.again(code=1)
    count = len(json.loads(bed.stager.run("results", "list", "--json").stdout))
    assert "could be resumed" in bed.stager.run("gc", "--results", bed.stager.json("runs")[0]["run"], code=3).stderr
    assert len(json.loads(bed.stager.run("results", "list", "--json").stdout)) == count >= 6


def test_a_change_behind_size_and_time_is_found_where_inputs_are_verified(short_dir: Path, sshd: Sshd) -> None:
    data = sshd.data / "lab"
    data.mkdir()
    source = data / "a"

    def written(text: str, at: int = 1_700_000_000) -> None:
        source.write_text(text)
        os.utime(source, (at, at))

    written("one\n")
    job = "  up:\n    run: tr a-z A-Z < a > b\n    inputs: {a: lab:a}\n    outputs: {b: lab:out/b}\n"
    head = f"stager: 1\nname: lab\non_exists: replace\norigins:\n  lab: {ssh_origin(sshd, data)}\n"
    (short_dir / "w.yml").write_text(f"{head}jobs:\n{job}")
    stager = Stager(short_dir / "s", short_dir / "home", env={"STAGER_REUSE": "on"})

    def submitted(*words: str) -> tuple[int, str]:
        """(jobs that ran, the final)."""
        done = json.loads(stager.run("submit", "w.yml", "--json", *words, cwd=short_dir).stdout)
        return done["attempts"], (data / "out" / "b").read_text()

    try:
        assert submitted() == (1, "ONE\n")
        written("two\n")
        assert submitted() == (0, "ONE\n"), "size and time are all that sftp tells"
        assert submitted("--no-reuse") == (1, "ONE\n"), "nor does the cache know better"
        assert submitted("--verify-inputs") == (1, "TWO\n")
        assert "`touch` it at its origin" in stager.run("status").stdout
        written("two\n", 1_700_000_100)
        assert submitted() == (1, "TWO\n") and submitted() == (0, "TWO\n")
    finally:
        stager.end()
