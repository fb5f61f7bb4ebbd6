"""The made set that benchmarks judge by, and how benchmarks/bench_eviction.py judges."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from benchmarks import bench_eviction as bench
from benchmarks import made_set
from stager.planning.policy import Policy
from stager.planning.rival_caches import Hits
from stager.readers.wfcommons import read
from tests.testbed.places import made_dir
from tests.unit.test_simulate import record

WORKFLOWS = json.loads(made_set.MANIFEST.read_text())["workflows"]


def test_the_made_set_is_large_and_both_halves_have_small_and_large_ones_of_each_application() -> None:
    assert len(WORKFLOWS) >= 40 and len({entry["sha256"] for entry in WORKFLOWS}) == len(WORKFLOWS)
    assert all(50 <= entry["tasks"] <= 2000 for entry in WORKFLOWS)
    halves = Counter((entry["name"].rpartition("-")[0], entry["half"]) for entry in WORKFLOWS)
    assert set(halves.values()) == {3} and {half for _, half in halves} == {"tune", "judge"}
    for pair in zip(WORKFLOWS[::2], WORKFLOWS[1::2], strict=True):
        assert {entry["half"] for entry in pair} == {"tune", "judge"}
        assert pair[0]["tasks"] < pair[1]["tasks"]


def test_the_set_that_was_made_here_is_the_one_of_the_manifest_and_can_be_read() -> None:
    if not (made_dir() / ".installed").is_file():
        pytest.skip("the made set is not made: run `scripts/setup.sh made`")
    entry = min(WORKFLOWS, key=lambda entry: entry["files"])
    (path,) = [path for path in made_set.made_paths("all") if path.stem == entry["name"]]
    workflow = read(path)
    assert (workflow.name, len(workflow.jobs), len(workflow.files)) == (entry["name"], entry["tasks"], entry["files"])
    assert sum(file.size_bytes or 0 for file in workflow.files.values()) == entry["bytes"]


def write_set(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = place / "tools" / "made"
    made.mkdir(parents=True)
    entries = []
    for name, half in (("a-0", "tune"), ("a-1", "judge"), ("b-0", "judge")):
        (made / f"{name}.json").write_text(name)
        entries.append({"name": name, "half": half, "sha256": sha256(name.encode()).hexdigest()})
    (place / "made_set.json").write_text(json.dumps({"workflows": entries}))
    monkeypatch.setenv("STAGER_TEST_TOOLS", str(place / "tools"))
    monkeypatch.setattr(made_set, "MANIFEST", place / "made_set.json")
    return made


def test_a_half_is_what_the_manifest_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    write_set(tmp_path, monkeypatch)
    halves = {half: [path.stem for path in made_set.made_paths(half)] for half in ("tune", "judge", "all")}
    assert halves == {"tune": ["a-0"], "judge": ["a-1", "b-0"], "all": ["a-0", "a-1", "b-0"]}
    assert not capsys.readouterr().err


def test_another_set_than_that_of_the_manifest_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = write_set(tmp_path, monkeypatch)
    (made / "b-0.json").write_text("drawn by others")
    assert len(made_set.made_paths("judge")) == 2
    assert "1 of 2 are not those of made_set.json" in capsys.readouterr().err
    (made / "a-1.json").unlink()
    with pytest.raises(SystemExit, match="1 workflows are missing"):
        made_set.made_paths("judge")


def test_a_row_is_judged_by_min_and_by_lru(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = bench.rows_of(record(tmp_path), False, 1, 1, Policy())[0]
    assert row.report.lru_hits.hit_bytes and not row.is_below_lru and row.of_min == 1.0
    assert bench.judged([row] * 100) == 0
    assert "rows: met, 0 of 100" in capsys.readouterr().out
    lru = row.report.lru_hits
    under = replace(row, report=replace(row.report, lru_hits=replace(lru, hit_bytes=lru.hit_bytes + 1)))
    assert under.is_below_lru and bench.judged([row] * 100 + [under]) == 1
    assert "never fewer hits than LRU: MISSED, 1 of 101" in capsys.readouterr().out
    below = replace(row, report=replace(row.report, min_hits=Hits(1000, 1000)))
    assert below.of_min < bench.GOAL
    assert bench.judged([row] * 99 + [below]) == 0 and bench.judged([row] * 98 + [below]) == 1
