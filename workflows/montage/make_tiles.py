"""Makes the input of the demo: overlapping FITS tiles of one sky, each with its own pointing, rotation, background and noise.

    python make_tiles.py DIRECTORY [--grid 5x4] [--tile 400] [--seed 2026]

May know: sky.py, fits.py. One rule: the same arguments give the same bytes.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import fits
import numpy as np
from sky import CENTER_DEC_DEG, CENTER_RA_DEG, OVERLAP, PIXEL_DEG, Sky, Wcs, deproject, make_sky

NOISE_COUNTS = 4.0


@dataclass(frozen=True)
class Survey:
    """How the field is cut into tiles; at most ten rows and columns, since a digit names each."""

    columns: int = 5
    rows: int = 4
    tile_pixels: int = 400
    seed: int = 2026

    @property
    def pitch_pixels(self) -> int:
        return round(self.tile_pixels * (1 - OVERLAP))

    @property
    def width_pixels(self) -> int:
        return self.pitch_pixels * (self.columns - 1) + self.tile_pixels

    @property
    def height_pixels(self) -> int:
        return self.pitch_pixels * (self.rows - 1) + self.tile_pixels

    def sky(self) -> Sky:
        return make_sky(self.seed, self.width_pixels * PIXEL_DEG, self.height_pixels * PIXEL_DEG)

    def region(self) -> Wcs:
        """The geometry of the mosaic."""
        return Wcs(CENTER_RA_DEG, CENTER_DEC_DEG, (self.width_pixels + 1) / 2, (self.height_pixels + 1) / 2)

    def tiles(self) -> Iterator[tuple[str, Wcs, np.random.Generator]]:
        """Pointings, a little off and turned, as a telescope's are. Names tell row and column from the south-east."""
        for index in range(self.columns * self.rows):
            chance = np.random.default_rng([self.seed, 1, index])
            row, column = divmod(index, self.columns)
            jitter_x, jitter_y = chance.uniform(-3, 3, 2)
            east = -((column - (self.columns - 1) / 2) * self.pitch_pixels + jitter_x) * PIXEL_DEG
            north = ((row - (self.rows - 1) / 2) * self.pitch_pixels + jitter_y) * PIXEL_DEG
            ra, dec = deproject(np.array(east), np.array(north), CENTER_RA_DEG, CENTER_DEC_DEG)
            middle = (self.tile_pixels + 1) / 2
            yield f"tile_{row}{column}", Wcs(float(ra), float(dec), middle, middle, float(chance.uniform(-1, 1))), chance


def background(chance: np.random.Generator, pixels: int) -> np.ndarray:
    """Moonlight and twilight: another level and slope at each exposure."""
    level, slope_x, slope_y = chance.uniform(180, 420), *chance.uniform(-20, 20, 2)
    ramp = np.linspace(-0.5, 0.5, pixels)
    return level + slope_x * ramp[None, :] + slope_y * ramp[:, None]


def put(path: Path, content: bytes) -> None:
    """What is there already stays as it is: its time of change is part of its identity, and who holds a copy need not fetch it again."""
    if not path.exists() or path.read_bytes() != content:
        path.write_bytes(content)


def write_region(path: Path, survey: Survey) -> None:
    """Montage's header template: one card a line."""
    size: fits.Header = {"SIMPLE": True, "BITPIX": -64, "NAXIS": 2, "NAXIS1": survey.width_pixels, "NAXIS2": survey.height_pixels}
    put(path, "".join(line.rstrip() + "\n" for line in fits.header_lines(size | survey.region().header())).encode())


def write_tiles(directory: Path, survey: Survey) -> list[Path]:
    sky, size = survey.sky(), survey.tile_pixels
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, wcs, chance in survey.tiles():
        pixels = sky.brightness(wcs, size, size) + background(chance, size) + chance.normal(0, NOISE_COUNTS, (size, size))
        header: fits.Header = {"OBJECT": name, "BUNIT": "count", **wcs.header()}
        paths.append(directory / f"{name}.fits")
        put(paths[-1], fits.image_bytes(pixels, header))
    return paths


def parse_grid(text: str) -> tuple[int, int]:
    columns, _, rows = text.partition("x")
    return int(columns), int(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description="Makes overlapping FITS tiles of one sky, and the header of the region that they cover.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--grid", type=parse_grid, default=(5, 4), help="tiles across x tiles up (default 5x4)")
    parser.add_argument("--tile", type=int, default=400, help="pixels along a side of a tile (default 400)")
    parser.add_argument("--seed", type=int, default=2026)
    arguments = parser.parse_args()
    survey = Survey(*arguments.grid, arguments.tile, arguments.seed)
    paths = write_tiles(arguments.directory / "tiles", survey)
    write_region(arguments.directory / "region.hdr", survey)
    print(f"{len(paths)} tiles of {survey.tile_pixels} x {survey.tile_pixels} pixels in {arguments.directory}/tiles")


if __name__ == "__main__":
    main()
