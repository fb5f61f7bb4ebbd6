"""What benchmarks/bench_profiles.py sums up from a run's journal, and how it stands beside the paper's table."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import bench_profiles as bench
from stager.model.files import File, Location, Source
from stager.model.workflow import Job, JobInput, JobOutput, Workflow
from stager.scheduler import events as ev


def job(name: str, *inputs: str, argv: tuple[str, ...] = ("python3", "p.py")) -> Job:
    return Job(name, "t", argv, inputs=tuple(JobInput(lfn, lfn) for lfn in inputs), outputs=(JobOutput(f"{name}.out", f"{name}.out"),))


def external(lfn: str, size_bytes: int) -> File:
    return File(lfn, size_bytes=size_bytes, sources=(Source(Location("here", lfn)),))


# Two jobs read what is outside, one of them twice as often; a third reads what both made.
FILES = {"raw": external("raw", 100), "tool": external("tool", 10)} | {name: File(name) for name in ("a.out", "b.out", "c.out")}
WORKFLOW = Workflow("w", FILES, {"a": job("a", "raw", "tool"), "b": job("b", "raw", "tool"), "c": job("c", "a.out", "b.out")})
SIZES = {"a": 40, "b": 60, "c": 5}


def ended(name: str, read_bytes: int | None, written_bytes: int | None = 7, cpu_s: float | None = 0.5) -> ev.AttemptEnded:
    made = ev.OutputMade(lfn=f"{name}.out", file=f"r/{name}.out", generation="g", size_bytes=SIZES[name], blake3="")
    measures = ev.Measures(read_bytes=read_bytes, written_bytes=written_bytes, cpu_s=cpu_s)
    return ev.AttemptEnded(at=1.0, run="r", job=name, attempt=f"{name}-1", outcome=ev.Outcome.OK, outputs=(made,), measures=measures)


def test_reads_are_split_into_first_ones_and_those_that_a_buffer_serves() -> None:
    attempts = [ended("a", 130), ended("b", 330), ended("c", 120)]
    profile, staged = bench.profile_of(WORKFLOW, attempts, {"a": 20, "b": 20, "c": 20})
    assert profile.read_bytes == 110 + 310 + 100
    assert profile.written_bytes == 21 and profile.compute_s == 1.5 and profile.total_bytes == 541
    assert profile.again_bytes == 520 - (100 + 10 + 40 + 60)
    assert profile.buffered_bytes == 520 - (100 + 10)
    assert profile.bytes_per_compute_s == pytest.approx(541 / 1.5)
    assert staged == bench.Staged(3, handed_bytes=320, distinct_bytes=210, outside_bytes=110, made_bytes=105, start_bytes=60)


def test_what_was_not_seen_is_not_zero() -> None:
    profile, _ = bench.profile_of(WORKFLOW, [ended("a", None), ended("b", 200, cpu_s=None), ended("c", 100)], dict.fromkeys("abc", 0))
    assert profile.read_bytes is None and profile.again_bytes is None and profile.buffered_bytes is None and profile.total_bytes is None
    assert profile.compute_s is None and profile.bytes_per_compute_s is None and profile.written_bytes == 21
    rows = bench.lines_of({"montage": (profile, bench.Staged(0, 0, 0, 0, 0, 0))})
    assert [row[2] for row in rows] == ["-", "-", "0.000", "-", "-", "-", "-", "-"]


def test_the_papers_table_stands_as_it_is_printed() -> None:
    rows = {row[0]: row[1:] for row in bench.lines_of({name: (bench.PAPER[name], bench.Staged(0, 0, 0, 0, 0, 0)) for name in bench.PAPER})}
    assert rows["total I/O, MB"][::2] == ["2,132.438", "748.916", "5,203.215"]
    assert rows["  of what was read"][::2] == ["96.3%", "99.6%", "74.0%"]
    assert rows["compute time, s"][::2] == ["18.681", "1,150.980", "1,351.987"]
    assert bench.by_io(bench.PAPER) == ["montage", "supernovae", "povray"]


def test_the_program_of_a_job_is_found_in_both_ways_of_writing() -> None:
    assert bench.program_of(job("a", argv=("python3", "step.py", "x"))) == "step.py"
    assert bench.program_of(Job("a", "t", shell="python3 step.py view x.fits y.png")) == "step.py"


def test_what_a_program_reads_to_start_is_measured(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"x" * 3_000_000)
    (tmp_path / "idle.py").write_text("")
    (tmp_path / "reader.py").write_text("open('big', 'rb').read()")
    (tmp_path / "broken.py").write_text("raise SystemExit('no such thing')")
    idle, reader = (bench.read_to_start(name, tmp_path) for name in ("idle.py", "reader.py"))
    assert 0 < idle < 3_000_000 and reader - idle == pytest.approx(3_000_000, rel=0.02)
    with pytest.raises(SystemExit, match="no such thing"):
        bench.read_to_start("broken.py", tmp_path)
