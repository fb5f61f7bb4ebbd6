"""Which cases judge estimates: drawn before anything runs, with every value of every column, and judged by the goals as they are worded."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import accuracy_bed
from benchmarks.accuracy_bed import Replay
from benchmarks.made_accuracy import MadeRow, judged_made, range_of
from benchmarks.made_cases import CASES, LINES, MadeCase, key_of, sampled_cases, scaled
from stager.model.files import Destination, File, Location, Source
from stager.model.workflow import Job, JobInput, JobOutput, Origin, OriginKind, Workflow

NAMES = [f"w{number}" for number in range(30)]


@pytest.mark.parametrize("seed", range(20))
def test_every_value_occurs_and_the_same_seed_draws_the_same(seed: int) -> None:
    cases = sampled_cases(NAMES, "tune", seed)
    assert (
        cases == sampled_cases(NAMES[::-1], "tune", seed) != sampled_cases(NAMES, "tune", seed + 1) != sampled_cases(NAMES, "judge", seed)
    )
    assert len({case.name for case in cases}) == CASES
    assert {(case.mbit, case.rtt_ms) for case in cases if case.origin != "file"} == set(LINES)
    assert all(case.mbit == 0 for case in cases if case.origin == "file")
    counted = [sum(case.origin == kind for case in cases) for kind in ("sftp", "s3", "file")]
    assert counted == [5, 4, 3]
    assert sum(case.room == "tight" for case in cases) == CASES // 2
    slow = [(case.slow, case.origin) for case in cases if case.slow]
    assert sorted(slow) == [("disk", "file"), ("disk", "s3"), ("disk", "sftp"), ("shell", "sftp"), ("shell", "sftp")]
    assert len({key_of(case, "tune", seed) for case in cases}) == CASES


def two_jobs() -> Workflow:
    files = [
        File("in", size_bytes=40_000_000, sources=(Source(Location("o", "in"), 40_000_000),)),
        File("mid", size_bytes=10_000_000),
        File("end", size_bytes=2_000_000, destination=Destination(Location("o", "end"))),
    ]
    jobs = [
        Job("a", "a", ("true",), inputs=(JobInput("in", "in"),), outputs=(JobOutput("mid", "mid"),), compute_s=100.0),
        Job("b", "b", ("true",), inputs=(JobInput("mid", "mid"),), outputs=(JobOutput("end", "end"),), compute_s=50.0),
    ]
    return Workflow("w", {f.lfn: f for f in files}, {j.id: j for j in jobs}, {"o": Origin("o", OriginKind.FILE, "file:///o")})


def test_scales_are_those_that_the_bound_is_of() -> None:
    case = MadeCase("w", "sftp", 20, 50, "plenty", "", 8.0, 7.5)
    scales = scaled(case, two_jobs(), 0.5, 0.05)
    assert (scales.bytes_scale, scales.time_scale) == ("0.5", "0.05")
    assert 8.0 + 7.5 + 0.4 < scales.bound_s < 8.0 + 7.5 + 0.8, "20 MB come in at 2.5 MB/s, then both jobs, then 1 MB goes home"
    assert scales.capacity_bytes > 2 * 26_000_000
    tight = scaled(replace(case, room="tight"), two_jobs(), 0.5, 0.05)
    assert 25_000_000 <= tight.capacity_bytes <= 26_000_000


def test_a_record_that_stands_in_for_another_is_not_scaled_as_that_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Setup's record of montage takes a hundred times as long as the one that the scales were chosen for: it did not end in 600 s."""
    task = {"name": "j", "id": "j", "parents": [], "children": [], "inputFiles": [], "outputFiles": ["end"]}
    specification = {"tasks": [task], "files": [{"id": "end", "sizeInBytes": 1_000_000}]}
    execution = {"makespanInSeconds": 7200, "executedAt": "2026-11-23T00:00:00Z", "tasks": [{"id": "j", "runtimeInSeconds": 7200.0}]}
    record = {"name": "w", "schemaVersion": "1.5", "workflow": {"specification": specification, "execution": execution}}
    for name in ("montage.json", "asked-for.json"):
        (tmp_path / name).write_text(json.dumps(record))
    there = Replay("asked for", "asked-for.json", "1", "0.1")
    stands_in = Replay("montage", "montage-elsewhere.json", "1", "0.1")
    monkeypatch.setattr(accuracy_bed, "instance_of", lambda case: tmp_path / ("asked-for.json" if case is there else "montage.json"))
    assert there.scales == ("1", "0.1")
    assert 5.0 < 7200 * float(stands_in.scales[1]) < 30.0


def row(off: float, **more: object) -> MadeRow:
    within = range_of(5.0, 10.0, 20.0, 10.0)
    figures = {"predicted_s": 10.0 * (1 + off), "took_s": 10.0, "predicted_bytes": 100.0, "moved_bytes": 100.0}
    rest = {"predicted_money": 1.0, "paid_money": 1.0, "others": 0.0, "causes": [], "again_s": [10.0], "bound_s": 9.0}
    return MadeRow(**({"name": "w", "words": "", "key": "k", "first": within, "unsaid": within} | figures | rest | more))  # type: ignore[arg-type]


GOOD = [0.0] * 6 + [-0.06, 0.07, 0.1, -0.12, 0.14, 0.24]


@pytest.mark.parametrize(
    ("rows", "met"),
    [
        ([row(off) for off in GOOD], True),
        ([row(off) for off in [*GOOD[:-1], -0.26]], False),
        ([row(off) for off in [*GOOD[:-2], 0.16, 0.24]], False),
        ([row(0.071) for _ in GOOD], False),
        ([row(off, predicted_bytes=103.0) for off in GOOD], False),
        ([*(row(off) for off in GOOD[1:]), row(0.0, paid_money=0.9)], False),
        ([*(row(off) for off in GOOD[1:]), row(0.0, first=range_of(5.0, 10.0, 20.0, 21.0))], True),
        ([*(row(off) for off in GOOD[2:]), *(row(0.0, unsaid=range_of(5.0, 10.0, 20.0, 4.0)) for _ in range(2))], False),
    ],
)
def test_all_goals_are_met_or_one_is_missed(rows: list[MadeRow], met: bool) -> None:
    assert judged_made(rows) is met
