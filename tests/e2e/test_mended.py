"""`stager resume` after something was mended: a script, the workflow file, a destination; and where what is done would not stand."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.testbed.stager import Stager

WORKFLOW = """stager: 1
name: count
defaults: {retries: 0, isolate: off}
jobs:
  count:
    foreach: {text: "here:texts/*.txt"}
    run: echo x >> "$COUNT_LOG"; sh count.sh {text} > {text.stem}.count
    inputs: ["{text}", here:count.sh]
    outputs: ["{text.stem}.count"]
    env_pass: [COUNT_LOG]
  total:
    run: cat *.count > total.txt
    inputs: ["*.count"]
    outputs: {total.txt: "here:out/"}
"""
BROKEN, WHOLE = 'test "$1" = texts/a.txt && wc -l < $1\n', "wc -c < $1\n"


@pytest.fixture
def stager(short_dir: Path) -> Iterator[Stager]:
    program = Stager(short_dir / "s", short_dir / "home", env={"COUNT_LOG": str(short_dir / "log")})
    yield program
    program.end()


@pytest.fixture
def failed(stager: Stager, short_dir: Path) -> Path:
    """A run of which one job is done and one has failed, since its script is broken."""
    (short_dir / "texts").mkdir()
    (short_dir / "texts" / "a.txt").write_text("aa\n")
    (short_dir / "texts" / "b.txt").write_text("bbbb\n")
    (short_dir / "count.sh").write_text(BROKEN)
    (short_dir / "w.yml").write_text(WORKFLOW)
    stager.run("submit", "w.yml", "--quiet", cwd=short_dir, code=1)
    return short_dir


def begun(place: Path) -> int:
    return len((place / "log").read_text().splitlines())


def test_an_unfinished_job_takes_the_mended_script_and_the_resume_says_so(stager: Stager, failed: Path) -> None:
    (failed / "count.sh").write_text(WHOLE)
    done = stager.run("resume", "--quiet", cwd=failed)
    assert "the input 'count.sh' changed: job 'count[texts/b.txt]' takes it as it is now" in done.stderr
    assert "job 'count[texts/a.txt]', done, had it as it was" in done.stderr
    assert (failed / "out/total.txt").read_text().split() == ["1", "5"] and begun(failed) == 3
    assert "the input 'count.sh' changed" in stager.run("explain", "count-1", "--job", "count[texts/b.txt]").stdout


def test_a_mended_workflow_file_is_read_again_and_outlives_the_scheduler(stager: Stager, failed: Path) -> None:
    mended = WORKFLOW.replace("retries: 0", "retries: 0, memory: 1 MB").replace("here:out/", "here:elsewhere/")
    (failed / "w.yml").write_text(mended.replace("cat *.count >", "cat *.count | sort -r >"))
    (failed / "count.sh").write_text(BROKEN + "false\n")
    stager.run("resume", "--quiet", cwd=failed, code=1)
    stager.run("shutdown")
    (failed / "count.sh").write_text(WHOLE)
    done = stager.run("resume", "--quiet", cwd=failed)
    assert "'count.sh' changed" in done.stderr and "total" not in done.stderr, "that was taken by the resume before"
    assert (failed / "elsewhere/total.txt").read_text().split() == ["5", "1"] and not (failed / "out").exists()
    assert begun(failed) == 4
    stager.run("report", "count-1")


def test_a_resume_reads_the_file_with_the_values_that_were_given(stager: Stager, short_dir: Path) -> None:
    text = """stager: 1
name: fit
params: {night: , seed: {type: integer, default: 7}}
defaults: {retries: 0}
jobs:
  a: {run: "echo {seed} {night} > a.txt", outputs: {a.txt: "here:{night}/"}}
  b: {type: join, inputs: [a.txt], outputs: {b.txt: "here:{night}/"}}
include: lib/types.yml
"""
    (short_dir / "lib").mkdir()
    (short_dir / "w.yml").write_text(text)
    (short_dir / "lib" / "types.yml").write_text("stager: 1\ntypes: {join: {run: 'false'}}\n")
    (short_dir / "p.json").write_text('{"night": "m 31", "seed": 1}')
    told = stager.run("submit", "w.yml", "--quiet", cwd=short_dir, code=2).stderr
    assert "the parameter 'night' has no default and no value was given" in told and "seed (integer, default '7')" in told
    stager.run("submit", "w.yml", "--quiet", "--params", "p.json", "--param", "seed=2", cwd=short_dir, code=1)
    (short_dir / "lib" / "types.yml").write_text("stager: 1\ntypes: {join: {rnu: x}}\n")
    told = stager.run("resume", "--quiet", cwd=short_dir, code=2).stderr
    assert "lib/types.yml:2:16: types.join.rnu: unknown key" in told and "was changed after the submit" in told
    (short_dir / "lib" / "types.yml").write_text("stager: 1\ntypes: {join: {run: 'cat a.txt a.txt > b.txt'}}\n")
    done = stager.run("resume", "--quiet", cwd=short_dir).stdout
    assert (short_dir / "m 31" / "b.txt").read_text() == "2 m 31\n" * 2 and "params   night='m 31' seed=2" in done
    values = {"night": "m 31", "seed": "2"}
    assert json.loads(stager.run("status", "--json").stdout)["params"] == values
    assert json.loads(stager.run("report", "--json").stdout)["params"] == values


def test_what_would_change_what_is_done_is_refused_by_name(stager: Stager, failed: Path) -> None:
    (failed / "count.sh").write_text(WHOLE)
    (failed / "w.yml").write_text(WORKFLOW.replace("sh count.sh", "sh ./count.sh"))
    refused = stager.run("resume", "--quiet", cwd=failed, code=3)
    assert "'count[texts/a.txt]' is done, and its command changed" in refused.stderr
    assert "submit the workflow anew" in refused.stderr and "b.txt" not in refused.stderr
    (failed / "w.yml").write_text("stager: 1\njobs: {}\n")
    wrong = stager.run("resume", "--quiet", cwd=failed, code=2)
    assert "no jobs" in wrong.stderr and "changed after the submit" in wrong.stderr
    states = {job["job"]: job["state"] for job in stager.json("jobs")}
    assert states["count[texts/a.txt]"] == "done" and states["count[texts/b.txt]"] == "failed"
    stager.run("resume", "--as-submitted", "--quiet", cwd=failed, code=1)


def test_a_file_that_was_moved_there_with_an_older_time_is_the_mended_one(stager: Stager, failed: Path) -> None:
    """As `mv`, `cp -p` and `rsync -t` put it there. The old definition ran, with a reason that was not so."""
    other = failed / "other.yml"
    for text, code, said in (
        ("stager: 1\njobs: {}\n", 2, "w.yml was changed after the submit"),
        (WORKFLOW.replace("sh count.sh", "sh ./count.sh"), 3, "is done, and its command changed"),
    ):
        other.write_text(text)
        os.utime(other, (1e9, 1e9))
        other.rename(failed / "w.yml")
        assert said in stager.run("resume", "--quiet", cwd=failed, code=code).stderr
    (failed / "w.yml").write_text(WORKFLOW)
    (failed / "count.sh").unlink()
    same = stager.run("resume", "--quiet", cwd=failed, code=1).stderr
    assert "goes on with those it was submitted with" in same, "it was written after the submit, and is what it was"


def test_what_cannot_be_looked_at_again_leaves_the_run_as_it_was(stager: Stager, failed: Path) -> None:
    (failed / "texts" / "a.txt").unlink()
    missing = stager.run("resume", "--quiet", cwd=failed, code=1)
    assert "its patterns match other files now ('count[texts/a.txt]' is done" in missing.stderr
    (failed / "count.sh").unlink()
    gone = stager.run("resume", "--quiet", cwd=failed, code=1)
    assert "there is no here:count.sh" in gone.stderr and "goes on with those it was submitted with" in gone.stderr
    (failed / "w.yml").unlink()
    gone = stager.run("resume", "--quiet", cwd=failed, code=1)
    assert "w.yml is not there any more: the run goes on as it was submitted" in gone.stderr
    assert json.loads(stager.run("jobs", "--json").stdout)
