"""Makes the input of the search: a catalogue of earthquakes of one year, some of which set off others.

    python make_catalogue.py DIRECTORY [--sequences 12] [--seed 2026]

Earthquakes on their own come at any time and place. A main shock has aftershocks around it, fewer each day (Omori), and small ones are
ten times as many as those a magnitude larger (Gutenberg and Richter). truth.json tells where the main shocks are.

May know: nothing but Python. One rule: the same arguments give the same bytes.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

DAYS, SIDE_KM, MAGNITUDE_LEAST = 365.0, 1000.0, 2.0
ALONE = 1500
# Of aftershocks: how fast they grow fewer, and from when on.
DECAY, DELAY_DAYS, LAST_DAYS = 1.1, 0.02, 40.0
SEQUENCES_MAX = 1000


@dataclass(frozen=True, order=True)
class Quake:
    day: float
    x_km: float
    y_km: float
    magnitude: float

    def row(self) -> list[str]:
        return [f"{self.day:.5f}", f"{self.x_km:.2f}", f"{self.y_km:.2f}", f"{self.magnitude:.2f}"]


def magnitude(random: Random, most: float) -> float:
    """By Gutenberg and Richter, with b = 1."""
    while (drawn := MAGNITUDE_LEAST - math.log10(1.0 - random.random())) > most:
        pass
    return drawn


def sequence(random: Random) -> tuple[Quake, list[Quake]]:
    """A main shock and its aftershocks."""
    main = Quake(
        random.uniform(0, DAYS - LAST_DAYS), random.uniform(60, SIDE_KM - 60), random.uniform(60, SIDE_KM - 60), random.uniform(5, 6.5)
    )
    count = round(12 * 10 ** (0.7 * (main.magnitude - 4.5)))
    reach_km = 10 ** (0.5 * main.magnitude - 2)
    first, last = DELAY_DAYS ** (1 - DECAY), (LAST_DAYS + DELAY_DAYS) ** (1 - DECAY)
    after = []
    for _ in range(count):
        waited = (first + random.random() * (last - first)) ** (1 / (1 - DECAY)) - DELAY_DAYS
        x_km, y_km = random.gauss(main.x_km, reach_km / 2), random.gauss(main.y_km, reach_km / 2)
        after.append(Quake(main.day + waited, x_km, y_km, magnitude(random, main.magnitude - 1.2)))
    return main, after


def quakes(random: Random, mains: list[Quake], sequences: int) -> Iterator[Quake]:
    for _ in range(ALONE):
        yield Quake(random.uniform(0, DAYS), random.uniform(0, SIDE_KM), random.uniform(0, SIDE_KM), magnitude(random, 4.5))
    for _ in range(sequences):
        main, after = sequence(random)
        mains.append(main)
        yield main
        yield from after


def write_catalogue(place: Path, sequences: int = 12, seed: int = 2026) -> None:
    if not 0 <= sequences <= SEQUENCES_MAX:
        sys.exit(f"a year has 0 to {SEQUENCES_MAX} sequences")
    random, mains = Random(seed), list[Quake]()
    found = sorted(quakes(random, mains, sequences))
    place.mkdir(parents=True, exist_ok=True)
    with (place / "catalogue.csv").open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["day", "x_km", "y_km", "magnitude"])
        rows.writerows(quake.row() for quake in found)
    (place / "truth.json").write_text(json.dumps([quake.row() for quake in sorted(mains)], indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description="Makes a catalogue of earthquakes of one year.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--sequences", type=int, default=12)
    parser.add_argument("--seed", type=int, default=2026)
    asked = parser.parse_args()
    write_catalogue(asked.directory, asked.sequences, asked.seed)
    print(f"a catalogue with {asked.sequences} sequences is in {asked.directory}")


if __name__ == "__main__":
    main()
