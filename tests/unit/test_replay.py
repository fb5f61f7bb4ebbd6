"""Replay: the same graph, scaled, with content that this file makes a second time from the words of docs/formats/replay.md."""

from __future__ import annotations

import hashlib
import struct
import subprocess
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stager.model.errors import Corrupt, Denied, ErrorClass, Fault, InvalidInput, Refused, Transient
from stager.model.files import Destination, File, FileKind, Location, Source
from stager.model.workflow import Job, JobInput, JobOutput, Origin, OriginKind, Workflow, graph_of
from stager.ports import OriginEntry
from stager.readers import wfcommons
from stager.readers.replay import ReplayFile, finals_of, make_replay, scaled_bytes, total_bytes
from stager.readers.replay_files import check_files, make_inputs, not_at_origin, require_right
from tests.testbed.places import case_id, ionode_binary, shared_files, wfcommons_cases, wfcommons_record

HERE = Origin("here", OriginKind.FILE, "file:///data/in")
THERE = Origin("there", OriginKind.FILE, "file:///data/out")
MASK = 2**64 - 1


def mixed(value: int) -> int:
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


def content(seed: int, name: str, size_bytes: int) -> bytes:
    key = hashlib.sha256(b"stager-replay-1\0" + struct.pack("<QQ", seed, size_bytes) + name.encode()).digest()
    start, mask = struct.unpack("<QQ", key[:16])
    words = (mixed((start + (number + 1) * 0x9E3779B97F4A7C15) & MASK) ^ mask for number in range(size_bytes // 8 + 1))
    return b"".join(struct.pack("<Q", word) for word in words)[:size_bytes]


def sample() -> Workflow:
    place = Location("recorded", "x")
    files = [
        File("/raw/a", size_bytes=1_000_001, sources=(Source(place, 1_000_001),)),
        File("empty", size_bytes=0, sources=(Source(place, 0),)),
        File("mid", size_bytes=3),
        File("out", size_bytes=70_000_000, destination=Destination(place)),
        File("seen", size_bytes=999, destination=Destination(place)),
    ]
    jobs = [
        Job(
            "one",
            "t",
            ("x",),
            inputs=(JobInput("/raw/a", "a"), JobInput("empty", "e")),
            outputs=(JobOutput("mid", "m"),),
            cores=64,
            compute_s=12.5,
        ),
        Job(
            "two", "t", ("x",), inputs=(JobInput("mid", "m"),), outputs=(JobOutput("out", "o"), JobOutput("seen", "s")), memory_bytes=10**12
        ),
        Job("three", "t", ("x",), inputs=(JobInput("seen", "s"),), after=("two",), compute_s=0.0),
    ]
    return Workflow("sample", {file.lfn: file for file in files}, {job.id: job for job in jobs}, {"recorded": HERE})


def replayed(workflow: Workflow, program: str = "stager-ionode", **more: object) -> tuple[Workflow, tuple[ReplayFile, ...]]:
    options = {"bytes_scale": "0.001", "time_scale": "0.01", "seed": 7, "origin": HERE, "output_origin": THERE, "program": program} | more
    return make_replay(workflow, **options)


def run_all(workflow: Workflow, directory: Path) -> None:
    """In the order of the graph, all in one directory: a file has one name everywhere."""
    for job_id in graph_of(workflow).order:
        done = subprocess.run(workflow.jobs[job_id].argv, cwd=directory, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{job_id}: {done.stderr}"


def test_scaled_files_and_commands() -> None:
    workflow, inputs = replayed(sample())
    assert inputs == (ReplayFile("inputs/%/raw/a", 1001), ReplayFile("inputs/empty", 0)) and total_bytes(inputs) == 1001
    assert finals_of(workflow) == (ReplayFile("finals/out", 70_000), ReplayFile("finals/seen", 1))
    assert workflow.jobs["one"].argv == (
        *("stager-ionode", "replay-job", "--seed", "7", "--time-s", "0.125000"),
        *("i:1001:inputs/%/raw/a", "i:0:inputs/empty", "o:1:work/mid"),
    )
    assert [(job.cores, job.memory_bytes, job.compute_s) for job in workflow.jobs.values()] == [
        (1, None, 0.125),
        (1, None, 0.0),
        (1, None, 0.0),
    ]
    assert workflow.files["/raw/a"].sources == (Source(Location("here", "inputs/%/raw/a"), 1001),)
    assert workflow.files["out"].destination == Destination(Location("there", "finals/out"))
    assert workflow.jobs["two"].inputs == (JobInput("mid", "work/mid"),) and set(workflow.origins) == {"here", "there"}
    assert graph_of(workflow) == graph_of(sample())


@given(st.integers(0, 2**50), st.sampled_from(["0.01", 0.001, "1", 1, "1/3", 0.07, 3]))
def test_sizes_are_rounded_up_and_nothing_becomes_empty(size_bytes: int, scale: str | float) -> None:
    exact = size_bytes * Fraction(str(scale))
    scaled = scaled_bytes(size_bytes, Fraction(str(scale)))
    assert exact <= scaled < exact + 1 and (scaled == 0) == (size_bytes == 0)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"bytes_scale": 0}, "--bytes-scale must be more than 0"),
        ({"bytes_scale": "much"}, "--bytes-scale 'much' is not a number"),
        ({"time_scale": -1}, "--time-scale must be 0 or more"),
        ({"time_scale": float("nan")}, "--time-scale nan is not a number"),
        ({"seed": -1}, "--seed must be a whole number"),
        ({"output_origin": Origin("here", OriginKind.FILE, "file:///else")}, "two origins are called 'here'"),
    ],
)
def test_wrong_options_are_told(options: dict[str, object], told: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        replayed(sample(), **options)
    assert told in caught.value.message


def test_what_cannot_be_replayed_is_refused() -> None:
    many = [JobOutput(f"{'o' * 100}{number}", "x") for number in range(15_000)]
    files = {entry.lfn: File(entry.lfn, size_bytes=1) for entry in many}
    with pytest.raises(Refused, match="job 'j' has 15000 files"):
        replayed(Workflow("w", files, {"j": Job("j", "t", ("x",), outputs=tuple(many))}))
    with pytest.raises(Refused, match="directories"):
        replayed(Workflow("w", {"d": File("d", kind=FileKind.DIRECTORY)}, {}))


class Listing:
    """An origin's answers, for the one question that is asked."""

    def __init__(self, *answers: OriginEntry | Fault) -> None:
        self.answers = list(answers)

    def stat(self, origin: Origin, paths: list[str]) -> list[OriginEntry | Fault]:
        assert len(paths) == len(self.answers)
        return self.answers


def test_what_is_at_the_origin_is_not_uploaded_again() -> None:
    there, larger, none = ReplayFile("inputs/a", 5), ReplayFile("inputs/b", 6), ReplayFile("inputs/c", 7)
    found = Listing(OriginEntry("inputs/a", 5, "t"), OriginEntry("inputs/b", 5, "t"), Fault(ErrorClass.INVALID_INPUT, "not_found", "no"))
    assert not_at_origin(found, HERE, [there, larger, none]) == [larger, none]
    with pytest.raises(Denied):
        not_at_origin(Listing(Fault(ErrorClass.DENIED, "denied", "no")), HERE, [there])


def test_inputs_and_finals_hold_the_defined_bytes(tmp_path: Path) -> None:
    program = str(ionode_binary())
    workflow, inputs = replayed(sample(), program)
    report = make_inputs(program, tmp_path, 7, inputs)
    assert (report.files, report.bytes, report.made) == (2, 1001, 2)
    assert make_inputs(program, tmp_path, 7, inputs).made == 0
    assert (tmp_path / "inputs/%/raw/a").read_bytes() == content(7, "inputs/%/raw/a", 1001)
    run_all(workflow, tmp_path)
    assert (tmp_path / "finals/out").read_bytes() == content(7, "finals/out", 70_000)
    finals = finals_of(workflow)
    require_right(check_files(program, tmp_path, 7, finals))
    for damage in (lambda raw: raw[:-1], lambda raw: raw[:69_999] + b"\0", lambda raw: content(8, "finals/out", 70_000)):
        (tmp_path / "finals/out").write_bytes(damage(content(7, "finals/out", 70_000)))
        with pytest.raises(Corrupt, match="1 of 2 finals .* finals/out"):
            require_right(check_files(program, tmp_path, 7, finals))


def test_a_wrong_byte_stops_the_job_that_reads_it(tmp_path: Path) -> None:
    program = str(ionode_binary())
    workflow, inputs = replayed(sample(), program)
    make_inputs(program, tmp_path, 7, inputs)
    raw = bytearray(content(7, "inputs/%/raw/a", 1001))
    raw[1000] ^= 1
    (tmp_path / "inputs/%/raw/a").write_bytes(raw)
    done = subprocess.run(workflow.jobs["one"].argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "input inputs/%/raw/a is wrong from byte 1000" in done.stderr
    assert not (tmp_path / "work").exists()


def test_what_the_binary_cannot_do_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Transient, match="1 of 1 replay inputs could not be made"):
        make_inputs(str(ionode_binary()), tmp_path / "file", 1, [ReplayFile("inputs/a", 1)])
    with pytest.raises(Transient, match="/bin/false replay-make ended with 1: it said nothing"):
        make_inputs("/bin/false", tmp_path, 1, [ReplayFile("inputs/a", 1)])


RUN = ("bwa", *shared_files("wfinstances/montage-chameleon-2mass-01d-001.json"), *shared_files("wfinstances/rnaseq-dirt02-001.json"))


@pytest.mark.parametrize("case", RUN, ids=case_id)
def test_recorded_workflows_run_to_the_end(case: str | Path, memory_dir: Path) -> None:
    program = str(ionode_binary())
    workflow, inputs = replayed(wfcommons.read(wfcommons_record(case)), program, time_scale=0)
    make_inputs(program, memory_dir, 7, inputs)
    run_all(workflow, memory_dir)
    finals = finals_of(workflow)
    assert finals and not check_files(program, memory_dir, 7, finals).wrong


@pytest.mark.parametrize("case", wfcommons_cases(), ids=case_id)
def test_recorded_workflows_become_replays(case: str | Path) -> None:
    record = wfcommons.read(wfcommons_record(case))
    workflow, inputs = replayed(record)
    assert graph_of(workflow) == graph_of(record)
    assert len(inputs) + sum(len(job.outputs) for job in workflow.jobs.values()) == len(workflow.files)
    names = {entry.lfn: entry.path for job in workflow.jobs.values() for entry in (*job.inputs, *job.outputs)}
    assert len(set(names.values())) == len(names) == len(workflow.files)
