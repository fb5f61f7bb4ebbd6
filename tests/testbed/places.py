"""Where things are: the project, the shared data, programs. One rule: what is missing is None or a skip with a reason, never a guess."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]


# What scripts/record_workflows.py makes.
RECORDED = ("1000genome", "blast", "bwa", "cycles", "epigenomics", "montage", "seismology", "soykb", "srasearch")


def shared_files(pattern: str) -> list[Path]:
    """More data of others, in STAGER_SHARED/data or beside the clone (../shared/data). Where there is none, no test may miss it: what
    takes such files is one more case of a test that has cases of its own.
    """
    place = Path(os.environ.get("STAGER_SHARED") or PROJECT.parent / "shared") / "data"
    return sorted(place.glob(pattern))


def recorded_dir() -> Path:
    return tool_cache() / "recorded"


def made_dir() -> Path:
    return tool_cache() / "made"


def recorded(name: str) -> Path:
    """A recorded workflow of that application, of those that setup makes."""
    place = recorded_dir() / f"{name}.json"
    if not place.is_file():
        pytest.skip("the recorded workflows of the tests are not made: run `make setup`")
    return place


def wfcommons_cases() -> list[str | Path]:
    """Of every test on recorded workflows: names for `wfcommons_record`."""
    return [*RECORDED, *shared_files("wfinstances/*.json")]


def wfcommons_record(case: str | Path) -> Path:
    return case if isinstance(case, Path) else recorded(case)


def record_like(name: str) -> Path:
    """That record of others where it is beside the clone, else the one that setup makes of the same application."""
    found = shared_files(f"wfinstances/{name}")
    return found[0] if found else recorded_dir() / f"{name.partition('-')[0]}.json"


def records_dir() -> Path:
    """Of benchmarks that take all there are."""
    found = shared_files("wfinstances")
    return found[0] if found else recorded_dir()


# A module that calls one of them has fewer cases where nothing is beside the clone.
GIVE_MORE_CASES = (shared_files, wfcommons_cases, record_like, records_dir)


def case_id(case: str | Path) -> str:
    return case.stem if isinstance(case, Path) else case


def tool_cache() -> Path:
    return Path(os.environ.get("STAGER_TEST_TOOLS") or Path.home() / ".cache" / "stager")


def program(name: str, *more_places: Path) -> Path | None:
    """On PATH, among `more_places`, or where Debian keeps servers."""
    found = shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin", *map(str, more_places)]))
    return Path(found) if found else None


def needed_program(name: str, package: str) -> Path:
    found = program(name)
    if found is None:
        pytest.skip(f"{name} is not installed (Debian: apt-get install {package})")
    return found


def ionode_binary() -> Path:
    """The I/O node under test: STAGER_IONODE, else the one installed beside this Python, else the newest build."""
    named = os.environ.get("STAGER_IONODE")
    if named:
        return Path(named)
    target = Path(os.environ.get("CARGO_TARGET_DIR") or tool_cache() / "target")
    for place in (Path(sys.executable).parent, target / "release", target / "quick"):
        if (place / "stager-ionode").is_file():
            return place / "stager-ionode"
    raise AssertionError("stager-ionode is not built: run `make setup`")
