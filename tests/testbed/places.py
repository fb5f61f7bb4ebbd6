"""Where things are: the project, the shared data, programs. One rule: what is missing is None or a skip with a reason, never a guess."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]


def shared_data() -> Path | None:
    """Instances and catalogs in STAGER_SHARED/data or beside the clone (../shared/data), when they are there."""
    place = Path(os.environ.get("STAGER_SHARED") or PROJECT.parent / "shared") / "data"
    return place if place.is_dir() else None


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
    for place in (Path(sys.executable).parent / "stager-ionode", target / "release" / "stager-ionode"):
        if place.is_file():
            return place
    raise AssertionError("stager-ionode is not built: run `make setup`")
