"""Isolation and limits as a user meets them: what a workflow says, and what is told (the attacks are in ionode/reaper/tests)."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.testbed.stager import Stager


@pytest.fixture
def stager(short_dir: Path) -> Iterator[Stager]:
    program = Stager(short_dir / "s", short_dir / "home")
    yield program
    program.end()


def linux() -> tuple[int, int]:
    major, minor = os.uname().release.split(".")[:2]
    return int(major), int("".join(itertools.takewhile(str.isdigit, minor)))


def submitted(stager: Stager, place: Path, jobs: str, code: int, defaults: str = "retries: 0") -> str:
    place.mkdir()
    (place / "data").mkdir()
    (place / "data" / "kept").write_text("kept\n")
    (place / "data" / "in").write_text("in\n")
    (place / "w.yml").write_text(f"stager: 1\nname: {place.name}\norigins: {{lab: file:data}}\ndefaults: {{{defaults}}}\njobs:\n{jobs}")
    done = stager.run("submit", "w.yml", cwd=place, code=code)
    return done.stdout + done.stderr


def test_a_job_cannot_write_to_its_origin_and_its_message_says_why(stager: Stager, short_dir: Path) -> None:
    """And it can where its workflow says so, for one job or for all."""
    data = short_dir / "a" / "data"
    jobs = f"  breaks: {{run: 'echo x > {data}/kept', inputs: ['lab:in']}}\n  may: {{run: 'echo x > {data}/may', isolate: off}}\n"
    told = submitted(stager, short_dir / "a", jobs, 1)
    assert (data / "kept").read_text() == "kept\n" and (data / "may").read_text() == "x\n"
    assert "an isolated job writes in its sandbox and below TMPDIR alone" in told and "isolate: off" in told
    data = short_dir / "b" / "data"
    submitted(stager, short_dir / "b", f"  may: {{run: 'echo x > {data}/kept'}}\n", 0, "isolate: off")
    assert (data / "kept").read_text() == "x\n"


def test_check_notes_jobs_that_need_more_rights(stager: Stager, short_dir: Path) -> None:
    (short_dir / "w.yml").write_text(
        "stager: 1\njobs:\n  a: {run: 'sudo true'}\n  b: {run: [mount, x]}\n  c: {run: 'podman run x', isolate: off}\n"
    )
    told = stager.run("check", "w.yml", cwd=short_dir, code=None).stdout
    assert "note  isolation: job 'a' calls 'sudo'" in told and "'mount'" in told and "calls 'podman', which may" not in told


@pytest.mark.skipif(os.geteuid() != 0 and linux() < (5, 19), reason="this kernel tells only root what is opened")
def test_what_a_job_reads_undeclared_is_told_by_explain(stager: Stager, short_dir: Path) -> None:
    data = short_dir / "reads" / "data"
    submitted(stager, short_dir / "reads", f"  peeks: {{run: 'cat {data}/kept {data}/in > /dev/null; cat in', inputs: [lab:in]}}\n", 0)
    [run] = stager.json("runs")
    told = stager.run("explain", run["run"], "--job", "peeks").stdout
    assert "it read what it does not declare, and stager neither fetched nor checked: lab:kept" in told and "lab:in" not in told


def test_a_job_that_uses_more_than_it_declares_is_ended_once_and_told_the_numbers(stager: Stager, short_dir: Path) -> None:
    hold = "python3 -c 'import time; held = bytearray(80 << 20); time.sleep(%s)'"
    jobs = f'  large: {{run: "{hold % 60}", memory: 40 MB}}\n  free: {{run: "{hold % 0.3}", memory: 40 MB, memory_limit: off}}\n'
    told = submitted(stager, short_dir / "m", jobs, 1, "retries: 2")
    assert "where memory: 40 MB is declared; it was ended" in told and "job 'large' used " in told
    states = {job["job"]: job for job in stager.json("jobs")}
    assert (states["large"]["state"], states["free"]["state"]) == ("failed", "done")
    assert states["large"]["attempts"] == 1, "it would take as much again"
