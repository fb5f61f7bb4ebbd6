"""The demo: its science is right without stager, by the sky that it knows; and stager makes the same bytes as a plain serial run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from stager.scheduler import commands as cmd
from stager.service.state_dir import StateDir
from tests.e2e.montage_rig import JOB_PATH, PART, SMALL, WHOLE, Mosaic, contents, demo_modules, mosaic_of
from tests.e2e.nodes_rig import batches_of, given_in, on_loopback, wan_bytes_of
from tests.testbed.ionode import IoNode
from tests.testbed.stager import Stager

# One worker makes the tiles and runs the plain way once for all these tests.
pytestmark = [pytest.mark.xdist_group("montage"), pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def demo() -> SimpleNamespace:
    return demo_modules()


@pytest.fixture(scope="module", params=[pytest.param(PART, id="part"), pytest.param(WHOLE, id="whole", marks=pytest.mark.heavy)])
def mosaic(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Mosaic:
    """With what the workflow makes when it is run the plainest way."""
    return mosaic_of(tmp_path_factory.getbasetemp(), request.param)


@pytest.fixture(scope="module", params=[pytest.param(SMALL, id="small"), pytest.param(WHOLE, id="whole", marks=pytest.mark.heavy)])
def compared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Mosaic:
    """For who looks at its bytes."""
    return mosaic_of(tmp_path_factory.getbasetemp(), request.param)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Mosaic:
    return mosaic_of(tmp_path_factory.getbasetemp(), SMALL)


def survey_of(demo: SimpleNamespace, mosaic: Mosaic) -> Any:
    return demo.make_tiles.Survey(mosaic.grid.columns, mosaic.grid.rows, mosaic.grid.tile_pixels)


def flattened(residual: np.ndarray, sky: np.ndarray) -> np.ndarray:
    """Without the plane that is common to all: tiles among themselves cannot tell the level and tilt of the whole."""
    rows, columns = np.nonzero(sky)
    terms = np.stack([np.ones(rows.size), rows, columns], axis=1)
    values = residual[rows, columns]
    keep = np.ones(rows.size, bool)
    for _ in range(4):
        plane, *_ = np.linalg.lstsq(terms[keep], values[keep], rcond=None)
        rest = values - terms @ plane
        keep = abs(rest) < 4 * np.median(abs(rest))
    flat = np.full(residual.shape, np.nan)
    flat[rows, columns] = rest
    return flat


def tile_levels(demo: SimpleNamespace, mosaic: Mosaic) -> tuple[np.ndarray, np.ndarray]:
    """(how far the middle of each tile is off the known sky, the difference at each pixel of empty sky)."""
    survey = survey_of(demo, mosaic)
    pixels, header = demo.fits.read(mosaic.finals / "mosaic.fits")
    assert (header["CRPIX1"], header["CRVAL1"]) == (survey.region().x0, survey.region().ra_deg)
    truth = survey.sky().brightness(survey.region(), survey.width_pixels, survey.height_pixels)
    assert pixels.shape == truth.shape
    sky = np.isfinite(pixels) & (pixels != 0) & (truth < 200)
    assert sky.mean() > 0.9
    flat = flattened(np.where(sky, pixels - truth, 0), sky)
    pitch, edge = survey.pitch_pixels, survey.tile_pixels - survey.pitch_pixels + 20
    corners = [(row * pitch, column * pitch) for row in range(survey.rows) for column in range(survey.columns)]
    middles = [flat[y + edge : y + pitch - 20, x + edge : x + pitch - 20] for y, x in corners]
    return np.array([np.nanmedian(middle) for middle in middles]), flat[sky]


@pytest.mark.slow
def test_backgrounds_are_matched(demo: SimpleNamespace, mosaic: Mosaic) -> None:
    survey_noise = demo.make_tiles.NOISE_COUNTS
    assert set(contents(mosaic.finals)) == {"mosaic.fits", "mosaic_area.fits", "mosaic.png", "raw.png"}
    levels, rest = tile_levels(demo, mosaic)
    given = given_levels(demo, mosaic)
    assert given.std() > 50, "tiles that hardly differ prove nothing"
    assert levels.std() < given.std() / 50
    assert abs(levels).max() < survey_noise / 2
    # What is left is noise, a little less than a tile's own since neighbouring pixels share it.
    assert np.median(abs(rest)) * 1.4826 < survey_noise


def given_levels(demo: SimpleNamespace, mosaic: Mosaic) -> np.ndarray:
    """The backgrounds that the tiles were given, as far as they differ."""
    size = mosaic.grid.tile_pixels
    return np.array([demo.make_tiles.background(chance, size).mean() for _, _, chance in survey_of(demo, mosaic).tiles()])


@pytest.mark.slow
def test_the_known_stars_are_where_they_belong(demo: SimpleNamespace, mosaic: Mosaic) -> None:
    survey = survey_of(demo, mosaic)
    pixels, _ = demo.fits.read(mosaic.finals / "mosaic.fits")
    sky = survey.sky()
    x, y = survey.region().to_pixel(sky.ra_deg, sky.dec_deg)
    tiles = mosaic.grid.columns * mosaic.grid.rows
    bright = np.argsort(sky.flux)[-3 * tiles :]
    inside = [star for star in bright if 20 < x[star] < survey.width_pixels - 20 and 20 < y[star] < survey.height_pixels - 20]
    assert len(inside) > 1.5 * tiles
    for star in inside:
        left, low = round(x[star]) - 6, round(y[star]) - 6
        window = pixels[low - 1 : low + 12, left - 1 : left + 12]
        weight = np.clip(window - np.median(window) - window.max() / 20, 0, None)
        found_x = (weight.sum(axis=0) * np.arange(left, left + 13)).sum() / weight.sum()
        found_y = (weight.sum(axis=1) * np.arange(low, low + 13)).sum() / weight.sum()
        assert np.hypot(found_x - x[star], found_y - y[star]) < 0.5


@pytest.mark.slow
def test_the_picture_shows_something(demo: SimpleNamespace, mosaic: Mosaic) -> None:
    survey = survey_of(demo, mosaic)
    for name in ("mosaic.png", "raw.png"):
        content = (mosaic.finals / name).read_bytes()
        assert content.startswith(b"\x89PNG\r\n\x1a\n")
        width, height = int.from_bytes(content[16:20]), int.from_bytes(content[20:24])
        assert (width, height) == (survey.width_pixels, survey.height_pixels)
        assert len(content) > width * height / 5


def test_the_same_seed_makes_the_same_tiles_and_another_makes_others(demo: SimpleNamespace, tmp_path: Path) -> None:
    def made(seed: int, name: str) -> list[bytes]:
        survey = demo.make_tiles.Survey(columns=2, rows=1, tile_pixels=60, seed=seed)
        return [path.read_bytes() for path in demo.make_tiles.write_tiles(tmp_path / name, survey)]

    assert made(1, "a") == made(1, "b") != made(2, "c")


@pytest.fixture
def stager(short_dir: Path) -> Iterator[Stager]:
    program = Stager(short_dir / "s", short_dir / "home", env={"PATH": JOB_PATH})
    yield program
    program.end()


def same_bytes(stager: Stager, mosaic: Mosaic, *options: str) -> None:
    written = mosaic.without_mosaic()
    done = stager.run("submit", mosaic.workflow, *options, deadline_s=500)
    jobs = mosaic.grid.jobs
    assert f"{jobs} of {jobs} done, 0 failed, {jobs} attempts" in done.stdout
    assert "4 of 4 finals" in done.stdout
    assert contents(written) == contents(mosaic.finals)


@pytest.mark.slow
def test_stager_makes_the_same_bytes_with_hardly_any_space(stager: Stager, compared: Mosaic) -> None:
    smallest = stager.json("plan", compared.workflow)["smallest_capacity_bytes"]
    same_bytes(stager, compared, "--capacity", str(int(smallest * 1.1)))


@pytest.mark.slow
def test_stager_makes_the_same_bytes_with_space_enough(stager: Stager, small: Mosaic) -> None:
    smallest = stager.json("plan", small.workflow)["smallest_capacity_bytes"]
    same_bytes(stager, small, "--capacity", str(smallest * 20))


@pytest.mark.slow
def test_stager_makes_the_same_bytes_on_two_nodes(stager: Stager, ionode: Callable[..., IoNode], small: Mosaic) -> None:
    """What jobs beside both read crosses the wide-area network once, and goes from node to node."""
    node = ionode(node_id="node1", options=on_loopback())
    stager.env = {**stager.env, "STAGER_CORES": "4", "STAGER_NODES": f"node1={node.address}@{node.token_file}"}
    plan = stager.json("plan", small.workflow)
    assert {job["node"] for job in plan["jobs"]} == {"node0", "node1"}
    same_bytes(stager, small)
    batches = batches_of(StateDir(stager.state_dir))
    assert {command.node for command in given_in(batches, cmd.StartAttempt)} == {"node0", "node1"}
    assert given_in(batches, cmd.CopyReplica), "nothing went from node to node"
    unique_bytes = sum(file["size_bytes"] for file in plan["files"] if file["token"])
    assert unique_bytes <= wan_bytes_of(batches) <= 1.02 * unique_bytes
