"""`stager profile` as a user meets it: what runs measured, export and import, and one job under a real tracer."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.testbed.letters import Letters
from tests.testbed.stager import Stager

JOB = """
import mmap, os
with open("half.bin", "rb", buffering=0) as f:
    while f.tell() < 500_000:
        f.read(10_000)
for _ in range(2):
    open("twice.bin", "rb").read()
with open("mapped.bin", "rb") as f:
    mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)[:]
jumps = os.open("jumps.bin", os.O_RDONLY)
for at in range(90, 0, -10):
    os.pread(jumps, 1000, at * 1000)
open("out.txt", "w").write("done")
"""
WORKFLOW = """
stager: 1
name: reading
origins: {lab: "file:@"}
files: {half.bin: "lab:half", twice.bin: "lab:twice", mapped.bin: "lab:mapped", before.bin: "lab:jumps", read.py: "lab:read.py"}
jobs:
  make: {run: cp before.bin jumps.bin && echo made >> @/made, isolate: off, inputs: [before.bin], outputs: [jumps.bin]}
  look: {run: python3 read.py, inputs: [half.bin, twice.bin, mapped.bin, jumps.bin, read.py], outputs: [out.txt]}
  fail: {run: echo it hurts >&2; exit 7, inputs: [half.bin], outputs: [never.txt]}
finals: {out.txt: "lab:out/", never.txt: "lab:out/"}
"""
needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace: apt-get install strace")


@pytest.fixture
def stager(short_dir: Path) -> Iterator[Stager]:
    program = Stager(short_dir / "s", short_dir / "home")
    yield program
    program.end()


@pytest.fixture
def reading(short_dir: Path) -> Path:
    data = short_dir / "data"
    data.mkdir()
    for name, size in {"half": 1_000_000, "twice": 50_000, "mapped": 3000, "jumps": 100_000}.items():
        (data / name).write_bytes(bytes(size))
    (data / "read.py").write_text(JOB)
    (short_dir / "reading.yml").write_text(WORKFLOW.replace("@", str(data)))
    return short_dir / "reading.yml"


def test_runs_are_listed_exported_and_imported_elsewhere(stager: Stager, short_dir: Path) -> None:
    assert "nothing was measured yet" in stager.run("profile", "list").stdout
    letters = Letters(short_dir / "wf", pause_s=0.02)
    letters.make(short_dir / "data", f"file:{short_dir / 'data'}")
    stager.run("submit", letters.workflow)
    listed = stager.json("profile", "list")
    job_type = max(listed, key=lambda name: listed[name]["samples"])
    assert listed[job_type]["wall_s"]["median"] >= 0.02 and listed[job_type]["read_fraction"] is None
    assert stager.json("profile", "show", job_type) == listed[job_type]
    assert "not seen:" in stager.run("profile", "show", job_type).stdout
    stager.run("profile", "export", "--output", short_dir / "all.json")
    assert stager.json("profile", "import", short_dir / "all.json")[0]["fresh"] == 0
    assert stager.json("profile", "list") == listed
    other = Stager(short_dir / "other", short_dir / "home")
    assert other.json("profile", "import", short_dir / "all.json")[0]["fresh"] == sum(entry["samples"] for entry in listed.values())
    there = other.json("profile", "list")
    assert there[job_type]["wall_s"] == {**listed[job_type]["wall_s"], "imported": True}
    assert "~ imported" in other.run("profile", "list").stdout
    done = other.run("profile", "show", "nonesuch", code=2)
    assert "nothing was measured of job type 'nonesuch'" in done.stderr


@needs_strace
def test_a_traced_job_shows_what_it_touched_and_how_and_says_what_it_cannot_see(stager: Stager, reading: Path) -> None:
    said = stager.json("profile", "trace", reading, "look")
    files = {entry["lfn"]: entry for entry in said["files"]}
    assert (files["half.bin"]["touched_bytes"], files["half.bin"]["read_bytes"], files["half.bin"]["size_bytes"]) == (
        500_000,
        500_000,
        1_000_000,
    )
    assert (files["twice.bin"]["touched_bytes"], files["twice.bin"]["read_bytes"]) == (50_000, 100_000)
    assert files["mapped.bin"]["touched_bytes"] is None and "mmap" in files["mapped.bin"]["why_unknown"]
    assert (files["jumps.bin"]["touched_bytes"], files["jumps.bin"]["sequential_bytes"]) == (9000, 0)
    profile = stager.json("profile", "show", "look")
    assert profile["inputs"]["half.bin"]["touched_fraction"]["median"] == 0.5
    assert profile["inputs"]["twice.bin"]["reads_per_byte"]["median"] == 2.0
    assert profile["inputs"]["mapped.bin"]["touched_fraction"] is None
    assert profile["wall_s"] is None and profile["read_fraction"] is None and profile["output_bytes"]["median"] == 4
    assert set(stager.json("profile", "list")) == {"reading/look"}
    data = reading.parent / "data"
    assert not (data / "out").exists(), "a trace writes to no origin"
    left = {path.name.partition("-")[0] for path in stager.state_dir.iterdir()}
    assert left == {"profiles.sqlite"}, "nothing of the scratch directory stays"
    assert (data / "made").read_text() == "made\n"
    text = stager.run("profile", "trace", reading, "look", "--input", f"jumps.bin={data / 'jumps'}").stdout
    assert "mapped into memory (mmap)" in text and "1 of 5 inputs unknown" in text
    assert (data / "made").read_text() == "made\n", "what makes a given input is not run"
    assert stager.json("profile", "show", "look")["runs"] == 2


@needs_strace
def test_a_traced_job_that_fails_shows_what_it_said_and_is_not_kept(stager: Stager, reading: Path) -> None:
    done = stager.run("profile", "trace", reading, "fail", code=1)
    assert "job fail failed" in done.stderr and "it hurts" in done.stderr
    assert stager.json("profile", "list") == {} and list(stager.state_dir.glob("trace-*")) == []


def test_without_a_tracer_the_command_that_installs_it_is_named(short_dir: Path, reading: Path) -> None:
    stager = Stager(short_dir / "s", short_dir / "home", env={"PATH": str(short_dir)})
    done = stager.run("profile", "trace", reading, "look", code=3)
    assert "apt-get install strace" in done.stderr and not stager.state_dir.exists()


def test_an_instance_is_imported_and_what_was_left_out_is_said(stager: Stager, short_dir: Path) -> None:
    task = {"id": "t1", "runtimeInSeconds": 2.0, "avgCPU": 50.0, "readBytes": 5}
    specification = {"tasks": [{"name": "t", "id": "t1", "parents": [], "children": []}], "files": []}
    execution = {"makespanInSeconds": 2, "executedAt": "2020-12-26T01:35:40+00:00", "tasks": [task]}
    instance = short_dir / "instance.json"
    instance.write_text(
        json.dumps({"name": "w", "schemaVersion": "1.5", "workflow": {"specification": specification, "execution": execution}})
    )
    told = stager.run("profile", "import", instance).stdout
    assert "1 sample of 1 job type, 1 of them new" in told and "left out: readBytes" in told
    assert stager.json("profile", "list")["t"]["cpu_s"]["median"] == 1.0
