"""What benchmarks/bench_placement.py gives each side to know, and how it judges."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import bench_placement as bench
from stager.planning.bounds import Limit
from stager.planning.make_plan import make_plan
from stager.planning.plan import Basis
from stager.readers.wfcommons import read
from tests.unit.test_simulate import record


def test_the_record_alone_knows_times_and_sizes_and_its_types_are_given_as_profiles(tmp_path: Path) -> None:
    path = record(tmp_path)
    workflow, there = bench.undeclared(read(path)), bench.topology_of(2, 10**9, 1)
    driven = make_plan(workflow, there, bench.profiles_in(path))
    blind = make_plan(workflow, there, bench.profiles_in(path), ignore_profiles=True)
    for plan, basis in ((driven, Basis.PROFILE), (blind, Basis.DEFAULT)):
        assert {entry.compute_basis for entry in plan.jobs} == {basis}
        assert {entry.size_basis for entry in plan.files} == {Basis.MEASURED, basis}
    assert {entry.job: entry.compute_s for entry in driven.jobs} == {"first": 4.0, "second": 6.0, "beside": 5.0}


def test_a_row_is_simulated_in_what_was_recorded_and_judged_by_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = bench.row_of(record(tmp_path), 1, 2, 1.0)
    assert not row.failed
    assert row.driven.truth == row.blind.truth
    assert row.driven.wall_s == pytest.approx(10.0, abs=0.5)
    assert bench.wan_bytes(row.driven) == bench.wan_bytes(row.blind) == 4_000_000
    assert not row.is_slower and row.driven.attempts == row.driven.jobs
    assert bench.judged([row]) == 0
    assert "MISSED" not in capsys.readouterr().out
    late = replace(row.blind, wall_s=row.blind.wall_s * 1.03)
    assert len(row.drawn) == 4 and row.drawn == bench.row_of(record(tmp_path), 1, 2, 1.0).drawn
    assert bench.judged([replace(row, driven=late, drawn=(1.0, 1.0, 1.03, 1.0))]) == 0
    assert "at most 2% slower: met, 0 of 1 are; as recorded, 1 are" in capsys.readouterr().out
    assert bench.judged([replace(row, driven=late, drawn=(1.0, 1.03, 1.0, 1.03))]) == 1
    assert "at most 2% slower: MISSED, 1 of 1" in capsys.readouterr().out
    assert bench.judged([replace(row, limit=Limit.WAN, driven=row.blind, drawn=(1.0,) * 4)]) == 1
    assert "faster or cheaper where I/O bounds the run: MISSED, 0 of 1" in capsys.readouterr().out
