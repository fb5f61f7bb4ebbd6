"""Profiles that travel: what is exported comes back equal, and what cannot be is refused with its place."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stager.adapters.profiles_json import profiles_from_json, profiles_to_json
from stager.adapters.profiles_store import read_samples
from stager.model.errors import InvalidInput, Refused
from stager.model.profiling import FileGroup, Kind, Sample, Side
from stager.service.profiles import import_profiles
from stager.service.state_dir import StateDir
from tests.unit.test_profiles_store import FORMAT_1, sample

COUNTS = st.none() | st.integers(0, 2**60)
SECONDS = st.none() | st.floats(0, 1e9)
GROUPS = st.builds(FileGroup, st.sampled_from(Side), st.text(min_size=1), st.integers(1, 99), COUNTS, COUNTS, COUNTS, COUNTS, COUNTS)
SAMPLES = st.builds(
    Sample,
    store=st.text("ab", min_size=1),
    attempt=st.text(min_size=1),
    job_type=st.text(min_size=1),
    run=st.text(),
    kind=st.sampled_from(Kind),
    at=st.floats(0, 1e10),
    wall_s=SECONDS,
    cpu_s=SECONDS,
    memory_peak_bytes=COUNTS,
    input_bytes=COUNTS,
    reread_bytes=COUNTS,
    output_files=COUNTS,
    files=st.lists(GROUPS, max_size=3).map(tuple),
)


@pytest.mark.slow
@given(st.lists(SAMPLES, max_size=8))
def test_what_is_exported_comes_back_equal(samples: list[Sample]) -> None:
    text = profiles_to_json(samples)
    again = profiles_from_json(json.loads(text), "x")
    assert sorted(map(repr, again)) == sorted(map(repr, samples))
    assert profiles_to_json(again) == text


def broken(**more: Any) -> dict[str, Any]:
    said = json.loads(profiles_to_json([sample("s", "a", wall_s=1.0, files=(FileGroup(Side.INPUT, "p", 1, 5, 5),))]))
    entry = said["job_types"]["t"][0]
    for name, value in more.items():
        target = entry["files"][0] if name == "in_files" else entry
        target.update(value if name == "in_files" else {name: value})
    return said


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (broken(wall_s=-1.0), r"profiles.json: job_types.t\[0\]: wall_s is -1.0, which it cannot be"),
        (broken(wall_s=float("inf")), "wall_s is inf, which"),
        (broken(wall_s=float("nan")), "wall_s is nan, which"),
        (broken(at=float("nan")), "at is nan, which"),
        (broken(read_bytes=10**30), "read_bytes is 1000000000000000000000000000000, which"),
        (broken(in_files={"size_bytes": 10**30}), "size_bytes is 1000000000000000000000000000000, which"),
        (broken(wall_s="long"), r"job_types.t\[0\]: Expected `float \| null`, got `str` - at `\$.wall_s`"),
        (broken(kind="guess"), r"Invalid enum value 'guess'"),
        (broken(in_files={"files": 0}), "files is 0, which"),
        (broken(in_files={"touched_bytes": -3}), "touched_bytes is -3, which"),
        (broken(attempt=""), "attempt is '', which"),
        ({"format": "stager-profiles", "version": 0, "job_types": {}}, "version 0, this stager knows up to 1"),
        ({"format": "stager-profiles", "version": True, "job_types": {}}, "version True, this stager knows up to 1"),
        ({"format": "stager-profiles", "version": 1, "job_types": {"": [{"store": "s"}]}}, "a job type has a name"),
        ({"format": "stager-profiles", "version": 2, "job_types": {}}, "version 2, this stager knows up to 1"),
        ({"format": "stager-profiles", "version": 1, "job_types": []}, '"job_types" must be an object'),
        ({"format": "stager-profiles", "version": 1, "job_types": {"t": 3}}, "job_types.t must be a list"),
        ({"format": "stager-profiles", "version": 1, "job_types": {"t": [3]}}, r"job_types.t\[0\]: Expected `object`"),
    ],
)
def test_what_cannot_be_is_refused_with_its_place(said: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        profiles_from_json(said, "profiles.json")


def test_nothing_is_taken_where_one_of_the_files_is_wrong(tmp_path: Path) -> None:
    good, bad, state_dir = tmp_path / "good", tmp_path / "bad", tmp_path / "s"
    good.write_text(profiles_to_json([sample("s", "a")]))
    for content in ("{", '{"schemaVersion": "0.1", "workflow": {}}', "[]"):
        bad.write_text(content)
        with pytest.raises(InvalidInput, match="bad"):
            import_profiles(state_dir, [good, bad])
    assert not state_dir.exists()


def test_importing_the_same_twice_changes_nothing_and_ones_own_export_is_not_foreign(tmp_path: Path) -> None:
    home, away, exported = tmp_path / "home", tmp_path / "away", tmp_path / "exported"
    exported.write_text(profiles_to_json([sample("far", f"a{number}", wall_s=2.0) for number in range(5)]))
    assert [taken.fresh for taken in import_profiles(home, [exported, exported])] == [5, 0]
    first = read_samples(StateDir(home).profiles)
    exported.write_text(profiles_to_json(first[0]))
    assert import_profiles(home, [exported])[0].fresh == 0 and read_samples(StateDir(home).profiles) == first
    assert import_profiles(away, [exported])[0].fresh == 5
    assert read_samples(StateDir(away).profiles)[0] == first[0]


def test_a_living_schedulers_older_file_is_not_upgraded_under_it(tmp_path: Path) -> None:
    place, exported = StateDir(tmp_path / "s"), tmp_path / "exported"
    place.make()
    with sqlite3.connect(place.profiles) as old:
        old.executescript(FORMAT_1)
    old.close()
    exported.write_text(profiles_to_json([sample("far", "a")]))
    with place.held(), pytest.raises(Refused, match="end it with `stager shutdown` first"):
        import_profiles(place.root, [exported])
    assert import_profiles(place.root, [exported])[0].fresh == 1
    with place.held():
        assert import_profiles(place.root, [exported])[0].fresh == 0, "one of today's format is shared with a scheduler"
