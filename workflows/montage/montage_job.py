"""The steps of the mosaic, one call each, over the real Montage (MontagePy).

    python montage_job.py STEP ARGUMENTS...

Steps: project, diff, model, background, add, view. Montage keeps the weight of each pixel of x.fits beside it, in x_area.fits:
each step that reads or writes an image does so with its area.

May know: MontagePy, steps.py. One rule: a step reads and writes only what its arguments name. It ends with 1 and a message
if Montage fails.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import MontagePy.main as montage
from steps import Step, run_step

FIT_COLUMNS = "a b c crpix1 crpix2 xmin xmax ymin ymax xcenter ycenter npixel rms boxx boxy boxwidth boxheight boxang".split()


def done(step: str, answer: dict[str, Any]) -> dict[str, Any]:
    """Montage tells of its errors in its answer; a job tells by its exit code."""
    # Some steps of Montage answer 0 as text, others as a number.
    if str(answer.get("status")) != "0":
        sys.exit(f"{step}: {answer.get('msg', b'Montage gave no reason')!r}")
    return answer


def project(tile: Path, region: Path, image: Path) -> None:
    """tile -> image: the tile on the pixels of the mosaic."""
    done("mProject", montage.mProject(str(tile), str(image), str(region)))


def diff(first: Path, second: Path, region: Path, fit: Path) -> None:
    """Two images -> fit: the plane through their difference where they overlap."""
    with tempfile.TemporaryDirectory(dir=".") as scratch:
        difference = Path(scratch) / "difference.fits"
        done("mDiff", montage.mDiff(str(first), str(second), str(difference), str(region)))
        plane = done("mFitplane", montage.mFitplane(str(difference)))
    fit.write_text(json.dumps({name: float(plane[name]) for name in FIT_COLUMNS}) + "\n")


def model(corrections: Path, images: Sequence[Path], fits: Sequence[Path]) -> None:
    """images, fits -> corrections: one plane an image, so that neighbours agree. A fit's name ends with the numbers of its two images."""
    with tempfile.TemporaryDirectory(dir=".") as scratch:
        place = Path(scratch)
        write_image_table(place / "images.tbl", images)
        write_fit_table(place / "fits.tbl", fits)
        done("mBgModel", montage.mBgModel(str(place / "images.tbl"), str(place / "fits.tbl"), str(corrections), niteration=10000))


def background(image: Path, corrections: Path, corrected: Path) -> None:
    """image, corrections -> corrected."""
    number = number_of(image)
    rows = {int(row["id"]): row for row in table_rows(corrections)}
    if number not in rows:
        sys.exit(f"mBackground: {corrections} has no correction for image {number}")
    plane = (float(rows[number][name]) for name in "abc")
    done("mBackground", montage.mBackground(str(image), str(corrected), *plane))


def add(mosaic: Path, region: Path, images: Sequence[Path]) -> None:
    """images -> mosaic, and mosaic_area."""
    with tempfile.TemporaryDirectory(dir=".") as scratch:
        table = Path(scratch) / "images.tbl"
        write_image_table(table, images)
        done("mAdd", montage.mAdd(".", str(table), str(region), str(mosaic)))


def view(mosaic: Path, picture: Path) -> None:
    """mosaic -> picture (PNG), stretched so that faint things show and the few brightest pixels do not set the scale."""
    command = f'-ct 0 -gray "{mosaic}" 2% 99.99% gaussian-log'
    done("mViewer", montage.mViewer(command, str(picture), mode=2, outFmt="png"))


def number_of(image: Path) -> int:
    """`image_07.fits` is image 7."""
    return int(image.stem.rpartition("_")[2])


def write_image_table(table: Path, images: Sequence[Path]) -> None:
    """mImgtbl of just these images, numbered by their names: mBgModel speaks of images by number."""
    listing = table.with_suffix(".list")
    width = max(len(str(image)) for image in images)
    listing.write_text(f"|{'fname':^{width}}|\n|{'char':^{width}}|\n" + "".join(f" {image!s:<{width}} \n" for image in images))
    done("mImgtbl", montage.mImgtbl(".", str(table), imgListFile=str(listing)))
    lines = table.read_text().splitlines()
    for place, line in enumerate(lines):
        if not line.startswith(("\\", "|")):
            lines[place] = f"{number_of(Path(line.split()[-1])):7d}{line[7:]}"
    table.write_text("\n".join(lines) + "\n")


def write_fit_table(table: Path, fits: Sequence[Path]) -> None:
    names = ["plus", "minus", *FIT_COLUMNS]
    rows = []
    for fit in fits:
        plus, minus = fit.stem.split("_")[-2:]
        plane = json.loads(fit.read_text())
        rows.append([str(int(plus)), str(int(minus)), *(f"{plane[name]:.10g}" for name in FIT_COLUMNS)])
    head = "|" + "|".join(f"{name:^18}" for name in names) + "|\n"
    table.write_text(head + "".join(" " + " ".join(f"{value:>18}" for value in row) + " \n" for row in rows))


def table_rows(table: Path) -> Iterator[dict[str, str]]:
    names: list[str] = []
    for line in table.read_text().splitlines():
        if line.startswith("|") and not names:
            names = [name.strip() for name in line.strip("|").split("|")]
        elif line and not line.startswith(("|", "\\")):
            yield dict(zip(names, line.split(), strict=False))


def main() -> None:
    steps = {
        "project": Step(project, ["tile", "region", "image"]),
        "diff": Step(diff, ["first", "second", "region", "fit"]),
        "model": Step(model, ["corrections"], ["images", "fits"]),
        "background": Step(background, ["image", "corrections", "corrected"]),
        "add": Step(add, ["mosaic", "region"], ["images"]),
        "view": Step(view, ["mosaic", "picture"]),
    }
    run_step("One step of the mosaic, done by Montage.", steps)


if __name__ == "__main__":
    main()
