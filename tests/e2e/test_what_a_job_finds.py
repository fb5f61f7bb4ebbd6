"""docs/operating/what-a-job-finds.md, statement by statement: a job that looks around, and jobs whose commands fail."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from stager.readers.shells import find_bash
from tests.testbed.stager import Stager

LOOK = """stager: 1
name: looks
jobs:
  look:
    foreach: {tile: ["a b.txt"]}
    run: |
      env | sort > env.txt
      ls -A . > before.txt
      id -u >> before.txt; umask >> before.txt; ulimit -c >> before.txt
      ps -o args= -p $$ | head -n 1 > shell.txt
      readlink /proc/self/fd/0 > stdin.txt
      test -d made/deep; echo {tile.stem} > made/deep/x.txt
      echo gone > "$TMPDIR/scratch"; echo strange > undeclared.txt
      (echo more >> input.txt) || echo "no: it is read-only"
    inputs: [here:input.txt]
    outputs:
      env.txt: "here:out/"
      before.txt: "here:out/"
      shell.txt: "here:out/"
      stdin.txt: "here:out/"
      made/deep/x.txt: "here:out/"
    cores: 2
    env: {OWN: "1", LANG: C}
    env_pass: [PASSED, NOT_SET]
"""
ENDS = """stager: 1
name: ends
defaults: {retries: 0}
jobs:
  wrong: {run: "zcat nosuch.gz | sort > t; false; cp t a.txt", outputs: {a.txt: "here:out/"}}
  cut: {run: "yes | head -n 1 > cut.txt", outputs: {cut.txt: "here:out/"}}
  nowhere: {run: "no-such-program; true"}
  loose: {run: "false; echo x > loose.txt", shell: [/bin/sh, -c], outputs: {loose.txt: "here:out/"}}
  python: {run: "print(6 * 7)", shell: [python3, -c], stdout: python.txt, outputs: {python.txt: "here:out/"}}
"""


@pytest.fixture
def stager(short_dir: Path) -> Iterator[Stager]:
    program = Stager(short_dir / "s", short_dir / "home")
    yield program
    program.end()


def test_what_a_job_finds_around_it(stager: Stager, short_dir: Path) -> None:
    stager.env = {"PASSED": "from the submitter", "UNASKED": "stays out"}
    (short_dir / "w.yml").write_text(LOOK)
    (short_dir / "input.txt").write_text("input\n")
    stager.run("submit", "w.yml", "--quiet", cwd=short_dir)
    out = short_dir / "out"
    found = dict(line.split("=", 1) for line in (out / "env.txt").read_text().splitlines())
    assert found.pop("PATH") == "/usr/local/bin:/usr/bin:/bin"
    sandbox = found.pop("HOME")
    assert found.pop("TMPDIR") == f"{sandbox}/.tmp" and found.pop("PWD") == sandbox
    assert found.pop("STAGER_RUN").startswith("looks-") and found.pop("STAGER_JOB") == "look[a b.txt]"
    assert found.pop("STAGER_ATTEMPT").endswith("-1")
    own = {"OWN": "1", "LANG": "C", "PASSED": "from the submitter", "tile": "a b.txt", "tile__stem": "a b"}
    of_bash = {name: found.pop(name) for name in ("SHLVL", "_") if name in found}
    assert found == own and (find_bash() is None or set(of_bash) == {"SHLVL", "_"})
    assert set((out / "before.txt").read_text().split()[:5]) >= {".tmp", "input.txt", "made", "env.txt", "before.txt"}
    assert (out / "before.txt").read_text().splitlines()[-3:] == [str(os.getuid()), "0022", "0"], "user, umask, core files"
    assert (out / "stdin.txt").read_text() == "/dev/null\n"
    assert (out / "made/deep/x.txt").read_text() == "a b\n"
    assert not (out / "undeclared.txt").exists() and (short_dir / "input.txt").read_text() == "input\n"
    if find_bash():
        assert (out / "shell.txt").read_text().startswith(f"{find_bash()} -euo pipefail -c")


def test_a_command_that_fails_ends_its_job_and_nothing_it_made_becomes_durable(stager: Stager, short_dir: Path) -> None:
    (short_dir / "w.yml").write_text(ENDS)
    done = stager.run("submit", "w.yml", "--quiet", cwd=short_dir, code=1)
    states = {job["job"]: job for job in stager.json("jobs")}
    good = {"loose", "python"} if find_bash() else {"loose", "python", "cut"}
    assert {name for name, job in states.items() if job["state"] == "done"} == good
    assert not (short_dir / "out" / "a.txt").exists() and (short_dir / "out" / "python.txt").read_text() == "42\n"
    assert "exit code 127 (of a shell: a program was not found)" in done.stdout + done.stderr
    assert states["cut"]["exit_code"] in (141, 0) and states["wrong"]["exit_code"] == 1
