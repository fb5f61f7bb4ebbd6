"""The demo's survey on this disk, its workflow, and what the plainest run makes of them, once for all tests of a worker.

May know: workflows/montage. One rule: what is made here is read by many tests, and changed by none but for `survey/mosaic`, where stager
writes.
"""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace

from stager.readers.native import read
from tests.testbed.places import PROJECT
from tests.testbed.serial_run import run_serially

DEMO = PROJECT / "workflows" / "montage"
# Jobs find this Python, which has MontagePy, before any other.
JOB_PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
ORIGIN_LINE = "survey: file:../../demo-out/survey"
RANGES = ("row: 0..3", "column: 0..4", "column: 0..3, next: 1..4", "row: 0..2, next: 1..3")


@dataclass(frozen=True)
class Grid:
    """How many tiles, and how large each is. Every kind of job is there in all of them."""

    columns: int
    rows: int
    tile_pixels: int

    @property
    def jobs(self) -> int:
        east, north = (self.columns - 1) * self.rows, self.columns * (self.rows - 1)
        return 2 * self.columns * self.rows + east + north + 5


# As `make demo` makes it.
WHOLE = Grid(5, 4, 400)
# A part of it, large enough that the sky can be looked at.
PART = Grid(3, 2, 400)
# For tests that look at bytes and not at the sky: jobs hardly compute.
SMALL = Grid(3, 2, 200)


@cache
def demo_modules() -> SimpleNamespace:
    """They stand outside the package, and import each other by their plain names."""
    sys.path.insert(0, str(DEMO))
    try:
        import fits
        import make_tiles
    finally:
        sys.path.remove(str(DEMO))
    return SimpleNamespace(fits=fits, make_tiles=make_tiles)


@dataclass(frozen=True)
class Mosaic:
    """`finals`: a directory."""

    grid: Grid
    survey: Path
    workflow: Path
    finals: Path

    def without_mosaic(self) -> Path:
        """Where stager is to write it."""
        shutil.rmtree(self.survey / "mosaic", ignore_errors=True)
        return self.survey / "mosaic"


def workflow_text(survey: str, code: str, grid: Grid = WHOLE) -> str:
    """The demo's workflow with its origins elsewhere, for so many tiles."""
    text = (DEMO / "workflow.yml").read_text()
    row, column = grid.rows - 1, grid.columns - 1
    ranges = (f"row: 0..{row}", f"column: 0..{column}", f"column: 0..{column - 1}, next: 1..{column}", f"row: 0..{row - 1}, next: 1..{row}")
    assert ORIGIN_LINE in text and all(each in text for each in RANGES)
    for number, wanted in enumerate(RANGES):
        text = text.replace(wanted, f"<{number}>")
    for number, wanted in enumerate(ranges):
        text = text.replace(f"<{number}>", wanted)
    text = text.replace(ORIGIN_LINE, f"survey: {survey}").replace(": here:", ": code:")
    return text.replace("origins:\n", f"origins:\n  code: {code}\n")


@cache
def mosaic_of(session: Path, grid: Grid) -> Mosaic:
    place, make_tiles = session / f"montage-{grid.columns}x{grid.rows}-{grid.tile_pixels}", demo_modules().make_tiles
    survey = make_tiles.Survey(grid.columns, grid.rows, grid.tile_pixels)
    make_tiles.write_tiles(place / "survey" / "tiles", survey)
    make_tiles.write_region(place / "survey" / "region.hdr", survey)
    made = Mosaic(grid, place / "survey", place / "workflow.yml", place / "finals")
    made.workflow.write_text(workflow_text(f"file:{made.survey}", f"file:{DEMO}", grid))
    run_serially(read(made.workflow), place / "run", {"PATH": JOB_PATH}, to=made.finals)
    return made


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}
