"""What a race is made of, and that it cannot be won by a wrong result (benchmarks/race).

May know: the modules of the benchmark, the recorded workflows. One rule: no engine runs here.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.bench_race import chosen
from benchmarks.race.results import Figure, Results, Row
from benchmarks.race.workflows import JOB, RACES

COLD, EDIT = Row("montage", "s3", "cold"), Row("montage", "s3", "edit")


def figure(**sums: str) -> Figure:
    return Figure(1.0, 1000, 3, 0.5, sums)


def test_finals_that_differ_between_engines_are_an_error() -> None:
    results = Results()
    results.add(COLD, "stager", figure(mosaic="a"))
    results.add(COLD, "rclone", figure(mosaic="a"))
    assert results.errors == []
    results.add(COLD, "quick", figure(mosaic="b"))
    results.add(COLD, "quicker", figure(mosaic="missing"))
    assert results.errors == [
        "montage, s3, cold, quick: 1 finals are not those of stager, as mosaic",
        "montage, s3, cold, quicker: 1 finals are missing at their origin, as mosaic",
    ]


def test_an_engine_that_was_stopped_has_no_result_and_was_slower_by_the_limit() -> None:
    results = Results({"montage": 3}, {COLD: 3})
    results.add(COLD, "stager", figure(mosaic="a"))
    results.stopped[COLD, "slow"] = 120.0
    assert results.errors == []
    assert "| stopped after 120 s |" in results.table(["stager", "slow"])
    assert list(results.goals()) == ["goal: montage, s3, cold: slow took more than 120.00 times as long, wanted > 1: met"]


def test_a_second_round_is_held_against_the_first() -> None:
    results = Results()
    results.add(COLD, "stager", figure(mosaic="a"))
    results.add(COLD, "stager", figure(mosaic="b"))
    assert results.errors == ["montage, s3, cold, stager: 1 finals are not those of stager, as mosaic"]


def test_an_edit_after_which_all_finals_are_as_before_is_found() -> None:
    results = Results()
    for row, mosaic in ((COLD, "a"), (EDIT, "a")):
        results.add(row, "stager", figure(mosaic=mosaic))
    assert results.edits_that_changed_nothing() == ["montage, s3, stager"]


def test_a_replayed_race_has_its_tasks_in_order_and_an_edit_in_their_midst(tmp_path: Path) -> None:
    race = RACES["bwa"](tmp_path)
    made = {*race.external, *race.scripts}
    for task in race.tasks:
        assert set(task.inputs) <= made, f"{task.name} reads what nobody made before"
        made |= set(task.outputs)
    assert set(race.finals) <= made
    assert 1 < len(race.touched) < len(race.tasks) / 4
    assert [one.name for one, other in zip(race.tasks, race.after_edit, strict=True) if one != other] == [race.edited.name]
    assert sum(path.stat().st_size for path in race.external.values()) > 30_000_000


def test_what_a_job_writes_follows_from_its_edition_and_its_inputs(tmp_path: Path) -> None:
    def written(edition: str, content: str) -> bytes:
        (tmp_path / "in").write_text(content)
        argv = [sys.executable, "-I", "-S", str(JOB), "0", edition, "in", "--", "out/a:3000000"]
        subprocess.run(argv, cwd=tmp_path, check=True)
        return (tmp_path / "out" / "a").read_bytes()

    first = written("first", "x")
    assert len(first) == 3_000_000
    assert written("first", "x") == first
    assert len({first, written("second", "x"), written("first", "y")}) == 3


def test_only_takes_parts_of_names_and_all_of_what_it_does_not_name() -> None:
    assert chosen(["rclone", "s3"], ["stager", "make and rclone"], ["s3", "sftp"], ["montage"]) == [
        ["make and rclone"],
        ["s3"],
        ["montage"],
    ]
