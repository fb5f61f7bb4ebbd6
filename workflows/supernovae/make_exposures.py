"""Makes the input of the search: exposures of one field, some before anything exploded, then one a night.

    python make_exposures.py DIRECTORY [--exposures 6] [--references 3] [--size 512] [--seed 2026]

Each has its own pointing, turn, sharpness, clouds, moonlight, noise and cosmic rays. truth.json tells what explodes where, for the score.

May know: field.py, fits.py of the mosaic. One rule: the same arguments give the same bytes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from field import Field, add_blob, make_field

sys.path.append(str(Path(__file__).resolve().parents[1] / "montage"))
import fits  # noqa: E402

OFF_PIXELS, TURN_AT_EDGE_PIXELS = 8.0, 2.0
READ_NOISE_COUNTS = 4.0
COSMIC_RAYS_PER_MEGAPIXEL = 60


@dataclass(frozen=True)
class Camera:
    """How one exposure sees the field. A point (x, y) of the field falls on the pixel that `place` tells."""

    off_x: float
    off_y: float
    turn_rad: float
    sharpness_pixels: float
    clearness: float
    sky_counts: float

    def place(self, x: np.ndarray, y: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
        cos, sin, middle = np.cos(self.turn_rad), np.sin(self.turn_rad), (size - 1) / 2
        dx, dy = x - middle, y - middle
        return middle + self.off_x + cos * dx - sin * dy, middle + self.off_y + sin * dx + cos * dy


@dataclass(frozen=True)
class Survey:
    nights: int = 6
    references: int = 3
    size: int = 512
    seed: int = 2026

    def check(self) -> None:
        if self.size < 256 or self.nights < 2 or self.references < 1 or max(self.nights, self.references) > 1000:
            sys.exit("a search needs 256 pixels along a side, two exposures and one reference at least, and takes 1000 exposures at most")

    def exposures(self) -> Iterator[tuple[str, int | None]]:
        """Names, and their night; before the first night nothing has exploded."""
        yield from ((f"reference_{number:03d}", None) for number in range(self.references))
        yield from ((f"night_{number:03d}", number) for number in range(self.nights))

    def camera(self, index: int) -> tuple[Camera, np.random.Generator]:
        """The first one points where truth.json says."""
        chance = np.random.default_rng([self.seed, 1, index])
        off_x, off_y = chance.uniform(-OFF_PIXELS, OFF_PIXELS, 2)
        turn = chance.uniform(-1, 1) * TURN_AT_EDGE_PIXELS / (self.size / 2)
        sharpness, clearness, sky = chance.uniform(1.2, 2.0), chance.uniform(0.7, 1.0), chance.uniform(120, 300)
        aimed = (0.0, 0.0, 0.0) if index == 0 else (off_x, off_y, turn)
        return Camera(*map(float, (*aimed, sharpness, clearness, sky))), chance


def expose(field: Field, camera: Camera, size: int, night: int | None, chance: np.random.Generator) -> np.ndarray:
    """Counts: what falls in, the noise of counting it, the noise of reading it out, and cosmic rays."""
    image = np.zeros((size, size))
    x, y = camera.place(field.x, field.y, size)
    for blob_x, blob_y, flux, width in zip(x, y, field.flux, field.width, strict=True):
        add_blob(image, blob_x, blob_y, flux * camera.clearness, np.hypot(width, camera.sharpness_pixels))
    for transient in field.transients if night is not None else ():
        place = camera.place(np.array(transient.x), np.array(transient.y), size)
        add_blob(image, float(place[0]), float(place[1]), transient.fluxes[night] * camera.clearness, camera.sharpness_pixels)
    slope_x, slope_y = chance.uniform(-15, 15, 2)
    ramp = np.linspace(-0.5, 0.5, size)
    image += camera.sky_counts + slope_x * ramp[None, :] + slope_y * ramp[:, None]
    image += chance.normal(0, 1, image.shape) * np.sqrt(image + READ_NOISE_COUNTS**2)
    for _ in range(chance.poisson(COSMIC_RAYS_PER_MEGAPIXEL * size**2 / 1e6)):
        strike(image, chance)
    return image


def strike(image: np.ndarray, chance: np.random.Generator) -> None:
    """A short bright track of one pixel's width."""
    x, y = chance.uniform(0, image.shape[0] - 1, 2)
    angle, length, counts = chance.uniform(0, np.pi), chance.integers(1, 6), chance.uniform(500, 4000)
    for step in range(length):
        row, column = round(y + step * np.sin(angle)), round(x + step * np.cos(angle))
        if 0 <= row < image.shape[0] and 0 <= column < image.shape[1]:
            image[row, column] += counts


def put(path: Path, content: bytes) -> None:
    """What is there already stays as it is: its time of change is part of its identity, and who holds a copy need not fetch it again."""
    if not path.exists() or path.read_bytes() != content:
        path.write_bytes(content)


def write_survey(directory: Path, survey: Survey) -> list[Path]:
    survey.check()
    field = make_field(survey.seed, survey.size, survey.nights)
    place = directory / "exposures"
    place.mkdir(parents=True, exist_ok=True)
    paths = []
    for index, (name, night) in enumerate(survey.exposures()):
        camera, chance = survey.camera(index)
        paths.append(place / f"{name}.fits")
        header: fits.Header = {"OBJECT": name, "BUNIT": "count"}
        put(paths[-1], fits.image_bytes(expose(field, camera, survey.size, night, chance), header))
    for old in set(place.glob("reference_*.fits")) | set(place.glob("night_*.fits")):
        if old not in paths:
            # The workflow takes every exposure that lies here, those of an earlier call too.
            old.unlink()
    truth = [{"x": transient.x, "y": transient.y, "fluxes": transient.fluxes} for transient in field.transients]
    put(directory / "truth.json", (json.dumps(truth, indent=1) + "\n").encode())
    return paths


def main() -> None:
    parser = argparse.ArgumentParser(description="Makes exposures of one field in which stars explode.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--exposures", type=int, default=6, help="one a night (default 6)")
    parser.add_argument("--references", type=int, default=3, help="exposures from before (default 3)")
    parser.add_argument("--size", type=int, default=512, help="pixels along a side (default 512)")
    parser.add_argument("--seed", type=int, default=2026)
    given = parser.parse_args()
    paths = write_survey(given.directory, Survey(given.exposures, given.references, given.size, given.seed))
    print(f"{len(paths)} exposures of {given.size} x {given.size} pixels in {given.directory}/exposures")


if __name__ == "__main__":
    main()
