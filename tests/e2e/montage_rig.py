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
# Tiles of the same jobs that compute a third as long. For tests that look at bytes and not at the sky.
SMALL_TILE_PIXELS = 200


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

    survey: Path
    workflow: Path
    finals: Path

    def without_mosaic(self) -> Path:
        """Where stager is to write it."""
        shutil.rmtree(self.survey / "mosaic", ignore_errors=True)
        return self.survey / "mosaic"


def workflow_text(survey: str, code: str) -> str:
    """The demo's workflow with its origins elsewhere."""
    text = (DEMO / "workflow.yml").read_text()
    assert ORIGIN_LINE in text
    text = text.replace(ORIGIN_LINE, f"survey: {survey}").replace(": here:", ": code:")
    return text.replace("origins:\n", f"origins:\n  code: {code}\n")


@cache
def mosaic_of(session: Path, tile_pixels: int) -> Mosaic:
    place, make_tiles = session / f"montage-{tile_pixels}", demo_modules().make_tiles
    survey = make_tiles.Survey(tile_pixels=tile_pixels)
    make_tiles.write_tiles(place / "survey" / "tiles", survey)
    make_tiles.write_region(place / "survey" / "region.hdr", survey)
    made = Mosaic(place / "survey", place / "workflow.yml", place / "finals")
    made.workflow.write_text(workflow_text(f"file:{made.survey}", f"file:{DEMO}"))
    run_serially(read(made.workflow), place / "run", {"PATH": JOB_PATH}, to=made.finals)
    return made


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}
