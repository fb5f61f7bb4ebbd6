"""The workflow earthquakes: a job for each sequence that one job finds, and they are those that the catalogue was made with."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.testbed.stager import Stager
from tests.testbed.workflows import JOB_PATH, WORKFLOWS, copied_workflow

PLACE = WORKFLOWS / "earthquakes"


@pytest.fixture(scope="module")
def make_catalogue() -> Iterator[ModuleType]:
    """The workflow's own module; it stands outside the package."""
    sys.path.insert(0, str(PLACE))
    import make_catalogue

    yield make_catalogue
    sys.path.remove(str(PLACE))


@pytest.fixture
def stager(short_dir: Path) -> Iterator[Stager]:
    program = Stager(short_dir / "s", short_dir / "home", env={"PATH": JOB_PATH, "STAGER_REUSE": "on"})
    yield program
    program.end()


def job(directory: Path, *words: str) -> None:
    done = subprocess.run([sys.executable, str(PLACE / "quakes.py"), *words], cwd=directory, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def found_in(table: Path) -> list[dict[str, str]]:
    with table.open(newline="") as file:
        return list(csv.DictReader(file))


def by_hand(catalogue: Path, place: Path) -> bytes:
    """The steps one after the other: the table."""
    place.mkdir()
    job(place, "find", str(catalogue), "sequences.tsv", "sequences")
    for path in sorted((place / "sequences").iterdir()):
        job(place, "fit", f"sequences/{path.name}", f"fits/{path.stem}.json")
    job(place, "page", str(catalogue), "fits", "sequences.html", "sequences.csv")
    return (place / "sequences.csv").read_bytes()


def test_each_sequence_is_a_job_and_what_they_find_is_what_was_made(stager: Stager, make_catalogue: ModuleType, tmp_path: Path) -> None:
    workflow, quakes = copied_workflow("earthquakes", tmp_path), tmp_path / "demo-out" / "quakes"
    make_catalogue.write_catalogue(quakes, 4, 3)
    assert "jobs.fit: 10 jobs are assumed" in stager.run("plan", workflow).stdout
    assert "6 of 6 done, 0 failed, 6 attempts" in stager.run("submit", workflow).stdout
    table = quakes / "found" / "sequences.csv"
    found, truth = found_in(table), json.loads((quakes / "truth.json").read_text())
    assert sorted(each["magnitude"] for each in found) == sorted(row[3] for row in truth)
    assert all(0.8 < float(each["omori_p"]) < 1.5 and 0.6 < float(each["b"]) < 1.8 for each in found), found
    jobs = {each["job"] for each in stager.json("jobs", "earthquakes-1")}
    assert jobs == {"find", "page", *(f"fit[{each['sequence']}]" for each in found)}
    assert table.read_bytes() == by_hand(quakes / "catalogue.csv", tmp_path / "hand")
    assert (quakes / "found" / "sequences.html").read_text().count("<polyline") == 4

    assert "6 of 6 jobs reused" in stager.run("submit", workflow).stderr, "what it named is remembered"


def test_a_year_without_a_sequence_has_none(stager: Stager, make_catalogue: ModuleType, tmp_path: Path) -> None:
    workflow, quakes = copied_workflow("earthquakes", tmp_path), tmp_path / "demo-out" / "quakes"
    make_catalogue.write_catalogue(quakes, 0)
    assert "2 of 2 done" in stager.run("submit", workflow).stdout
    assert found_in(quakes / "found" / "sequences.csv") == []
