"""The workflow povray: what stager and its jobs put together from tiles is what POV-Ray makes in one piece."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.testbed.stager import Stager
from tests.testbed.workflows import JOB_PATH, WORKFLOWS, copied_workflow

Image = pytest.importorskip("PIL.Image", reason="no Pillow: pip install 'stager[povray]'")
PLACE = WORKFLOWS / "povray"
EXAMPLES = Path("/usr/share/doc/povray/examples")
needs_povray = pytest.mark.skipif(
    shutil.which("povray") is None or not EXAMPLES.is_dir(), reason="no POV-Ray with its examples: apt-get install povray povray-examples"
)


@pytest.fixture(scope="module")
def scenes() -> Iterator[ModuleType]:
    """The workflow's own module; it stands outside the package."""
    sys.path.insert(0, str(PLACE))
    import make_scenes

    yield make_scenes
    sys.path.remove(str(PLACE))


@pytest.fixture
def stager(short_dir: Path) -> Iterator[Stager]:
    program = Stager(short_dir / "s", short_dir / "home", env={"PATH": JOB_PATH})
    yield program
    program.end()


def in_one_piece(studio: Path, scene: str, clock: float, picture: Path) -> None:
    """By POV-Ray alone, by two threads, from where the distribution keeps scene and includes."""
    found = next(EXAMPLES.rglob(f"{scene}.pov"))
    command = f"povray +I{found} +L{found.parent} +O{picture.name} +FP +W96 +H72 +K{clock} +AM2 +A0.3 -J -D +WT2"
    env = os.environ | {"HOME": str(picture.parent)}
    done = subprocess.run(command.split(), cwd=picture.parent, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@needs_povray
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_tiles_join_to_what_povray_makes_in_one_piece(stager: Stager, scenes: ModuleType, tmp_path: Path) -> None:
    workflow, studio = copied_workflow("povray", tmp_path), tmp_path / "demo-out" / "studio"
    scenes.write_scenes(studio, ["reflection", "woodbox"], scenes.Shooting(columns=2, rows=3, width_pixels=96, frames=2))
    done = stager.run("submit", workflow, deadline_s=500)
    assert "28 of 28 done, 0 failed" in done.stdout
    assert "4 of 4 finals" in done.stdout
    shown = {}
    for scene in ("reflection", "woodbox"):
        for frame, clock in enumerate((0.0, 1.0)):
            in_one_piece(studio, scene, clock, tmp_path / "whole.ppm")
            with Image.open(tmp_path / "whole.ppm") as whole, Image.open(studio / "pictures" / f"{scene}-{frame:03d}.png") as joined:
                shown[scene, frame] = joined.convert("RGB").tobytes()
                assert joined.size == whole.size == (96, 72)
                assert shown[scene, frame] == whole.convert("RGB").tobytes(), f"{scene}, frame {frame}: not what POV-Ray makes in one piece"
                assert len(whole.getcolors(96 * 72)) > 100, "a picture of nothing proves nothing"
    assert shown["reflection", 0] != shown["reflection", 1], "the clock stands still"


def job(directory: Path, *words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(PLACE / "povray_job.py"), *words], cwd=directory, env=env, capture_output=True, text=True)


@needs_povray
def test_a_tile_is_its_own_pixels_and_no_time_of_day(scenes: ModuleType, tmp_path: Path) -> None:
    """Made again later it is the same: the workflow says that its jobs are deterministic."""
    scenes.write_scenes(tmp_path, ["woodbox"], scenes.Shooting(columns=2, rows=3, width_pixels=96))
    before = set(tmp_path.iterdir())
    done = job(tmp_path, "render", "woodbox/woodbox-000-r1c0.ini", "tile.png")
    assert done.returncode == 0, done.stderr
    assert set(tmp_path.iterdir()) - before == {tmp_path / "tile.png"}, "scratch is left"
    content = (tmp_path / "tile.png").read_bytes()
    with Image.open(tmp_path / "tile.png") as tile:
        assert tile.size == (48, 24)
    assert {name for name in (b"tIME", b"tEXt", b"zTXt", b"iTXt") if name in content} == set()


@needs_povray
def test_what_povray_refuses_fails_the_job(scenes: ModuleType, tmp_path: Path) -> None:
    scenes.write_scenes(tmp_path, ["woodbox"], scenes.Shooting(columns=1, rows=1, width_pixels=96))
    (tmp_path / "woodbox" / "scene" / "woods.inc").write_text("no scene\n")
    done = job(tmp_path, "render", "woodbox/woodbox-000-r0c0.ini", "tile.png")
    assert done.returncode == 1 and "POV-Ray ended with" in done.stderr and "woods.inc" in done.stderr
    assert not (tmp_path / "tile.png").exists()


def test_without_povray_the_job_says_what_to_install(tmp_path: Path) -> None:
    done = job(tmp_path, "render", "tile.ini", "tile.png", env={"PATH": str(tmp_path)})
    assert done.returncode == 1 and done.stderr.startswith("there is no povray on PATH") and "apt-get install povray" in done.stderr


def test_a_picture_needs_all_its_tiles_in_their_sizes(tmp_path: Path) -> None:
    (tmp_path / "f.json").write_text('{"width": 4, "height": 2, "tiles": {"f-a": [0, 0, 2, 2], "f-b": [2, 0, 4, 2]}}')
    Image.new("RGB", (2, 2), (255, 0, 0)).save(tmp_path / "f-a.png")
    Image.new("RGB", (2, 1), (0, 255, 0)).save(tmp_path / "f-b.png")
    assert "wants the tiles f-a f-b" in job(tmp_path, "join", "f.json", "f.png", "--tiles", "f-a.png").stderr
    assert "f-b.png has (2, 1) pixels" in job(tmp_path, "join", "f.json", "f.png", "--tiles", "f-a.png", "f-b.png").stderr
    assert not (tmp_path / "f.png").exists()
    Image.new("RGB", (2, 2), (0, 255, 0)).save(tmp_path / "f-b.png")
    assert job(tmp_path, "join", "f.json", "f.png", "--tiles", "f-b.png", "f-a.png").returncode == 0
    with Image.open(tmp_path / "f.png") as picture:
        assert [picture.getpixel((x, 1)) for x in range(4)] == [(255, 0, 0)] * 2 + [(0, 255, 0)] * 2


@given(columns=st.integers(1, 7), rows=st.integers(1, 7), width=st.integers(40, 200))
def test_tiles_cover_every_pixel_once(scenes: ModuleType, columns: int, rows: int, width: int) -> None:
    shooting = scenes.Shooting(columns, rows, width)
    covered = [(x, y) for tile in shooting.tiles() for x in range(tile.left, tile.right) for y in range(tile.top, tile.bottom)]
    assert sorted(covered) == [(x, y) for x in range(width) for y in range(shooting.height_pixels)]
    assert len({tile.name for tile in shooting.tiles()}) == columns * rows


def test_a_scene_brings_all_that_it_includes_and_nothing_else(scenes: ModuleType, tmp_path: Path) -> None:
    own, includes = tmp_path / "own", tmp_path / "include"
    own.mkdir()
    includes.mkdir()
    (own / "s.pov").write_text('#include "a.inc"\ntext { ttf "f.ttf" "no file" 1, 0 }')
    (own / "a.inc").write_text('#include "b.inc"\n')
    (includes / "a.inc").write_text("the scene's own one comes first")
    (includes / "b.inc").write_text('#include "a.inc"\nimage_map { png "p.png" }')
    for name in ("f.ttf", "p.png", "unused.inc"):
        (includes / name).write_text('"unused.inc"' if name == "p.png" else "")
    found = scenes.files_of(own / "s.pov", includes)
    assert found == {"s.pov": own / "s.pov", "a.inc": own / "a.inc", "b.inc": includes / "b.inc"} | {
        name: includes / name for name in ("f.ttf", "p.png")
    }


def test_what_is_there_stays_and_tiles_of_an_earlier_call_go(scenes: ModuleType, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.pov").write_text(f"// {name}\n")
    studio = tmp_path / "studio"
    scenes.write_scene(studio, tmp_path / "one.pov", scenes.Shooting(2, 2, frames=2))
    was = {path: path.stat().st_mtime_ns for path in studio.rglob("*.*")}
    assert len([path for path in was if path.suffix == ".ini"]) == 8
    scenes.write_scene(studio, tmp_path / "one.pov", scenes.Shooting(2, 2, frames=1))
    left = {path: path.stat().st_mtime_ns for path in studio.rglob("*.*")}
    assert len([path for path in left if path.suffix == ".ini"]) == 4
    assert left == {path: was[path] for path in left}
    scenes.write_scene(studio, tmp_path / "two.pov", scenes.Shooting(2, 2))
    (studio / "two" / "keep.txt").write_text("not ours")
    scenes.forget_others(studio, {"one"})
    assert {path.name for path in (studio / "two").rglob("*.*")} == {"two.pov", "keep.txt"}
    assert len(list((studio / "one").glob("*.ini"))) == 4


@pytest.mark.parametrize("wrong", [{"columns": 0}, {"frames": 0}, {"columns": 30, "width_pixels": 59}, {"rows": 30, "width_pixels": 78}])
def test_what_cannot_be_cut_is_refused(scenes: ModuleType, wrong: dict[str, int]) -> None:
    with pytest.raises(SystemExit, match="at least one|too small"):
        scenes.Shooting(**wrong).check()


def test_without_the_examples_it_says_what_to_install(scenes: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="apt-get install povray povray-examples"):
        scenes.find_scene("biscuit", tmp_path / "nowhere")
    with pytest.raises(SystemExit, match="has no scene biscuit.pov"):
        scenes.find_scene("biscuit", tmp_path)
