"""Draws what the search found: the field with every transient ringed, and how each looks in the differences, night after night.

    python chart.py CHART.png TEMPLATE.fits TRANSIENTS.csv --differences DIFFERENCE.fits...

May know: fits.py, numpy, Pillow. One rule: one picture, the same bytes each time.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Sequence
from pathlib import Path

import fits
import numpy as np
from PIL import Image, ImageDraw

STAMP_PIXELS, STAMP_ZOOM, GAP, RING = 21, 3, 3, 9
SHOWN_MAX = 40
GROUND, MARK = (18, 18, 24), (255, 170, 40)


def shades(pixels: np.ndarray, dark: float, bright: float) -> Image.Image:
    """Rows from the top, as pictures have them; asinh shows faint and bright ones at once."""
    level = np.arcsinh(np.clip((np.nan_to_num(pixels, nan=dark) - dark) / (bright - dark), 0, 1) * 10) / np.arcsinh(10)
    return Image.fromarray((level[::-1] * 255).astype(np.uint8)).convert("RGB")


def stamp(difference: np.ndarray, x: float, y: float, bright: float) -> Image.Image:
    half, side = STAMP_PIXELS // 2, STAMP_PIXELS * STAMP_ZOOM
    padded = np.pad(difference, half, constant_values=np.nan)
    row, column = round(y), round(x)
    window = padded[row : row + STAMP_PIXELS, column : column + STAMP_PIXELS]
    return shades(window, -bright / 6, bright).resize((side, side), Image.Resampling.NEAREST)


def draw(chart: Path, template: Path, transients: Path, differences: Sequence[Path]) -> None:
    field, header = fits.read(template)
    nights = [fits.read(path)[0] for path in sorted(differences)]
    with transients.open(newline="") as file:
        found = [(float(row["x"]), float(row["y"])) for row in csv.DictReader(file)][:SHOWN_MAX]
    side, noise = STAMP_PIXELS * STAMP_ZOOM + GAP, float(header["NOISE"])
    rows, columns = field.shape
    picture = Image.new("RGB", (columns + 30 + side * len(nights), max(rows, side * len(found))), GROUND)
    picture.paste(shades(field, -2 * noise, 120 * noise), (0, 0))
    pen = ImageDraw.Draw(picture)
    for number, (x, y) in enumerate(found):
        middle, top = rows - 1 - y, number * side
        pen.ellipse((x - RING, middle - RING, x + RING, middle + RING), outline=MARK)
        pen.text((x + RING, middle - RING - 6), str(number + 1), fill=MARK)
        pen.text((columns + 8, top + side // 2 - 6), str(number + 1), fill=MARK)
        for night, difference in enumerate(nights):
            picture.paste(stamp(difference, x, y, 30 * noise), (columns + 30 + night * side, top))
    picture.save(chart, "PNG")


def main() -> None:
    parser = argparse.ArgumentParser(description="Draws the field, its transients, and each in the differences of all nights.")
    for name in ("chart", "template", "transients"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--differences", type=Path, nargs="+", required=True)
    given = vars(parser.parse_args())
    given["chart"].parent.mkdir(parents=True, exist_ok=True)
    draw(**given)


if __name__ == "__main__":
    main()
