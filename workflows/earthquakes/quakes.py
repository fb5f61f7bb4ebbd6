"""The steps of the search for aftershocks.

    python quakes.py find CATALOGUE.csv SEQUENCES.tsv DIRECTORY     which earthquakes belong together: a table, and a file for each
    python quakes.py fit SEQUENCE.csv FIT.json                      how its aftershocks grow fewer, and how many of them are small
    python quakes.py page CATALOGUE.csv FITS PAGE.html TABLE.csv      all fits of a directory: a page, and a table

May know: nothing but Python. One rule: the same input gives the same bytes.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

Quake = tuple[float, float, float, float]
DAY, X_KM, Y_KM, MAGNITUDE = range(4)
COLUMNS = ("day", "x_km", "y_km", "magnitude")
LEAST_OF_A_SEQUENCE, MAIN_LEAST = 15, 4.8
COMPLETE_FROM = 2.0
DELAY_DAYS = 0.02
SIDE_KM, SIDE_PIXELS = 1000.0, 600.0


def read(path: Path) -> list[Quake]:
    with path.open(newline="") as file:
        return [tuple(float(row[name]) for name in COLUMNS) for row in csv.DictReader(file)]  # type: ignore[misc]


def write(path: Path, quakes: Iterable[Quake]) -> None:
    with path.open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(COLUMNS)
        rows.writerows([f"{day:.5f}", f"{x:.2f}", f"{y:.2f}", f"{size:.2f}"] for day, x, y, size in quakes)


def window(size: float) -> tuple[float, float]:
    """How far from a main shock, and how long after it, an earthquake counts as its own: Gardner and Knopoff (1974), km and days."""
    return 10 ** (0.1238 * size + 0.983), 10 ** (0.5409 * size - 0.547 if size < 6.5 else 0.032 * size + 2.7389)


def sequences_of(quakes: Sequence[Quake]) -> list[list[Quake]]:
    """The largest first; each takes what is left around it. Its main shock stands first in each."""
    left = sorted(quakes, key=lambda quake: (-quake[MAGNITUDE], quake))
    found = []
    while left and left[0][MAGNITUDE] >= MAIN_LEAST:
        main = left[0]
        reach_km, lasts_days = window(main[MAGNITUDE])
        own, others = [], []
        for quake in left:
            near = math.hypot(quake[X_KM] - main[X_KM], quake[Y_KM] - main[Y_KM]) <= reach_km
            (own if near and 0 <= quake[DAY] - main[DAY] <= lasts_days else others).append(quake)
        left = others
        if len(own) >= LEAST_OF_A_SEQUENCE:
            found.append([main, *sorted(own[1:])])
    return sorted(found, key=lambda each: each[0])


def find(catalogue: Path, table: Path, directory: Path) -> None:
    directory.mkdir()
    with table.open("w", newline="") as file:
        rows = csv.writer(file, delimiter="\t", lineterminator="\n")
        rows.writerow(["sequence", "magnitude", "earthquakes"])
        for quakes in sequences_of(read(catalogue)):
            main = quakes[0]
            name = f"day-{main[DAY]:05.1f}-x{main[X_KM]:03.0f}-y{main[Y_KM]:03.0f}"
            write(directory / f"{name}.csv", quakes)
            rows.writerow([name, f"{main[MAGNITUDE]:.2f}", len(quakes)])


def decay_of(waits_days: Sequence[float]) -> float:
    """The p of Omori's law, n(t) = K (t + c)^-p, that makes these times the most likely."""
    last = max(waits_days)
    logs = sum(math.log(wait + DELAY_DAYS) for wait in waits_days)

    def likelihood(p: float) -> float:
        first, end = DELAY_DAYS ** (1 - p), (last + DELAY_DAYS) ** (1 - p)
        return len(waits_days) * math.log((1 - p) / (end - first)) - p * logs

    # At 1 the formula divides by zero.
    return max((0.5 + step / 1000 + 0.0005 for step in range(1500)), key=likelihood)


def fit(sequence: Path, out: Path) -> None:
    main, *after = read(sequence)
    sizes = [quake[MAGNITUDE] - COMPLETE_FROM for quake in after]
    waits = [quake[DAY] - main[DAY] for quake in after]
    steps = sorted(waits)
    told = {
        "sequence": sequence.stem,
        "day": main[DAY],
        "x_km": main[X_KM],
        "y_km": main[Y_KM],
        "magnitude": main[MAGNITUDE],
        "aftershocks": len(after),
        "omori_p": round(decay_of(waits), 3),
        # Aki (1965).
        "b": round(math.log10(math.e) / (sum(sizes) / len(sizes)), 3),
        "half_by_day": round(steps[len(steps) // 2], 3),
        "waits_days": [round(wait, 3) for wait in steps],
    }
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps(told) + "\n")


def dots(quakes: Sequence[Quake], fits: Sequence[dict[str, Any]]) -> str:
    """The map: all earthquakes, and a ring around each main shock."""
    scale = SIDE_PIXELS / SIDE_KM
    grey = [
        f'<circle cx="{quake[X_KM] * scale:.1f}" cy="{SIDE_PIXELS - quake[Y_KM] * scale:.1f}" r="{quake[MAGNITUDE] - 1.4:.1f}"/>'
        for quake in quakes
    ]
    rings = [
        f'<circle cx="{each["x_km"] * scale:.1f}" cy="{SIDE_PIXELS - each["y_km"] * scale:.1f}"'
        f' r="{window(each["magnitude"])[0] * scale:.1f}"><title>{each["sequence"]}</title></circle>'
        for each in fits
    ]
    box = f'viewBox="0 0 {SIDE_PIXELS:.0f} {SIDE_PIXELS:.0f}" width="{SIDE_PIXELS:.0f}"'
    red = f'<g fill="none" stroke="#c0392b" stroke-width="1.5">{"".join(rings)}</g>'
    return f'<svg {box}><rect width="100%" height="100%" fill="#f4f4f0"/><g fill="#8895a5">{"".join(grey)}</g>{red}</svg>'


def curve(waits_days: Sequence[float]) -> str:
    """How many aftershocks there were by then, over the logarithm of the time."""
    count, last = len(waits_days), math.log1p(max(waits_days) / DELAY_DAYS)
    points = " ".join(
        f"{math.log1p(wait / DELAY_DAYS) / last * 160:.1f},{40 - number / count * 38:.1f}"
        for number, wait in enumerate(waits_days, start=1)
    )
    return f'<svg viewBox="0 0 160 40" width="160"><polyline points="0,40 {points}" fill="none" stroke="#2c3e50"/></svg>'


def page(catalogue: Path, fits: Path, out: Path, table: Path) -> None:
    """The strongest first. Without a sequence there is no directory."""
    found = sorted((json.loads(path.read_text()) for path in fits.glob("*.json")), key=lambda each: (-each["magnitude"], each["sequence"]))
    columns = ("sequence", "magnitude", "aftershocks", "omori_p", "b", "half_by_day")
    with table.open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(columns)
        rows.writerows([each[name] for name in columns] for each in found)
    head = "".join(f"<th>{name}</th>" for name in (*columns, "aftershocks by time (log)"))
    body = "\n".join(
        "<tr>" + "".join(f"<td>{each[name]}</td>" for name in columns) + f"<td>{curve(each['waits_days'])}</td></tr>" for each in found
    )
    style = "body{font:15px sans-serif;margin:2em}td,th{padding:.2em .8em;text-align:right;white-space:nowrap}th{border-bottom:1px solid}"
    out.write_text(
        f'<!doctype html><meta charset="utf-8"><title>Aftershocks</title><style>{style}</style>\n'
        f"<h1>{len(found)} sequences of aftershocks</h1>\n{dots(read(catalogue), found)}\n"
        f"<table><tr>{head}</tr>\n{body}\n</table>\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="The steps of the search for aftershocks.")
    steps = parser.add_subparsers(dest="step", required=True)
    for name, paths in (("find", "catalogue table directory"), ("fit", "sequence out"), ("page", "catalogue fits out table")):
        step = steps.add_parser(name)
        for each in paths.split():
            step.add_argument(each, type=Path)
    asked = vars(parser.parse_args())
    {"find": find, "fit": fit, "page": page}[asked.pop("step")](**asked)


if __name__ == "__main__":
    main()
