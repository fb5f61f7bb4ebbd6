"""The same workflows raced by several engines over a long line: cold, again unchanged, and after an edit.

Two hosts of the bed: `lab` behind the line holds the data (a bucket, or an ssh server), `node0` runs the engines, one after the other, each
with so many cores and empty caches. All run the very same commands: Montage as the project ships it, and two recipes of WfCommons whose
jobs wait as long as was recorded, scaled. `cold` has nothing but the inputs at the origin. `again` is the same command once more. Before
`edit` the command of one job is changed. No process of an engine lives from one to the next. Told are seconds until all finals are at
their origin, bytes over the line (both ways, headers included), and jobs that ran. The finals are read at the origin after each run; where
they differ between engines, this ends with 1. A run that is not done after `--limit` seconds is stopped, and its engine is out of that
race. Rows in which the machine was more than 85 % busy are marked *. Goals of stager: faster than
each of the others when cold, and nothing moved again. Again:
`python benchmarks/bench_race.py [--only stager,s3,montage] [--rounds 3]`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measuring import watched
from benchmarks.race.nextflow import Nextflow
from benchmarks.race.results import PHASES, Figure, Results, Row, size
from benchmarks.race.sides import Lane, MakeAndRclone, Ours, OutOfTime, Side
from benchmarks.race.sites import KINDS, Site, site_of
from benchmarks.race.snakemake import Snakemake
from benchmarks.race.workflows import RACES, Race
from tests.testbed.network import Host, Network, Wan, why_not
from tests.testbed.own_place import own_place
from tests.testbed.places import PROJECT
from tests.testbed.usage import machine

SIDES: tuple[type[Side], ...] = (Ours, Snakemake, Nextflow, MakeAndRclone)


@dataclass
class Bench:
    lab: Host
    node: Host
    place: Path
    cores: int
    limit_s: float
    results: Results = field(default_factory=Results)
    lanes: int = 0

    def race(self, race: Race, site: Site, sides: Sequence[type[Side]]) -> None:
        touched = {"cold": len(race.tasks), "again": 0, "edit": len(race.touched)}
        for phase in PHASES:
            self.results.wanted_jobs[Row(race.name, site.kind, phase)] = touched[phase]
        self.results.files[race.name] = len(race.external) + len(race.finals)
        for side in sides:
            self.lanes += 1
            lane = Lane(race, site, self.node, self.place / f"lane{self.lanes}", f"out{self.lanes}", self.cores, self.limit_s)
            try:
                self.run(lane, side)
            finally:
                site.clear(lane.target)
                shutil.rmtree(lane.place, ignore_errors=True)

    def run(self, lane: Lane, kind: type[Side]) -> None:
        side = kind(lane)
        for phase in PHASES:
            row = Row(lane.race.name, lane.site.kind, phase)
            side.prepare(lane.race.after_edit if phase == "edit" else lane.race.tasks)
            try:
                before = self.line_bytes()
                with watched() as watch:
                    side.run()
                moved = self.line_bytes() - before
                figure = Figure(watch.took_s, moved, side.ran(), watch.busy, lane.site.sums(lane.target, lane.race.finals))
            except OutOfTime:
                print(f"{row.race}, {row.kind}, {row.phase}, {side.name}: stopped after {self.limit_s:g} s", flush=True)
                self.results.stopped[row, side.name] = self.limit_s
                return
            except AssertionError as error:
                self.results.wrong(row, side.name, " ".join(str(error).split())[:1500])
                return
            finally:
                side.rest()
            told = f"{figure.took_s:.1f} s, {size(figure.line_bytes)}, {figure.jobs} jobs, {figure.busy:.0%} busy"
            print(f"{row.race}, {row.kind}, {row.phase}, {side.name}: {told}", flush=True)
            self.results.add(row, side.name, figure)

    def line_bytes(self) -> int:
        """That came through the line to the lab, and that it sent. What the line dropped, and was sent again, counts once."""
        with self.lab.inside():
            lines = Path("/proc/thread-self/net/dev").read_text().splitlines()
        fields = next(line.split(":")[1].split() for line in lines if line.strip().startswith("eth0:"))
        return int(fields[0]) + int(fields[8])


def chosen(words: Sequence[str], *kinds: Sequence[str]) -> list[list[str]]:
    """Of each kind of names those that a word is a part of; all of a kind that no word means. A word that means none ends the program."""
    unknown = [word for word in words if not any(word in name.lower() for names in kinds for name in names)]
    if unknown:
        raise SystemExit(f"--only {','.join(unknown)}: there are {', '.join(name for names in kinds for name in names)}")
    return [[name for name in names if any(word in name.lower() for word in words)] or list(names) for names in kinds]


def ready(sides: Sequence[type[Side]]) -> list[type[Side]]:
    """Those that are installed, after setup tried."""
    subprocess.run([PROJECT / "scripts" / "setup.sh", "race"], env=os.environ | {"VENV": sys.prefix})
    for side in sides:
        if side.missing():
            print(f"{side.name} is not measured: {side.missing()}", flush=True)
    return [side for side in sides if not side.missing()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=lambda text: text.lower().split(","), default=[], help="parts of names: engines, origins, workflows")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--rtt-ms", type=float, default=30.0)
    parser.add_argument("--rate", type=float, default=100.0, help="of the line, in Mbit/s")
    parser.add_argument("--cores", type=int, default=2, help="jobs at once")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds after which a run of an engine is stopped")
    parser.add_argument("--dir", help="where engines keep their files; the disk there counts")
    given = parser.parse_args()
    if reason := why_not():
        print(f"not measured: {reason}")
        return 0
    names, kinds, races = chosen(given.only, [side.name for side in SIDES], KINDS, list(RACES))
    sides = ready([side for side in SIDES if side.name in names])
    print(f"line: RTT {given.rtt_ms:g} ms, {given.rate:g} Mbit/s; {given.cores} jobs at once; median of {given.rounds} rounds; {machine()}")
    with own_place(given.dir) as place, own_place("/dev/shm") as memory, Network() as net:
        lab, node = net.host("lab", wan=Wan(given.rtt_ms / 1000, given.rate)), net.host("node0")
        made = [RACES[name](place / name) for name in races]
        print("\n".join(race.about for race in made), flush=True)
        bench = Bench(lab, node, place, given.cores, given.limit)
        for kind in kinds:
            with site_of(kind, lab, place, memory) as site:
                for race in made:
                    site.lay(race)
                    for number in range(given.rounds):
                        bench.race(race, site, sides[number % len(sides) :] + sides[: number % len(sides)])
    results = bench.results
    print("", results.table([side.name for side in sides]), "", *results.goals(), sep="\n")
    errors = [*results.errors, *(f"{where}: the edit changed no final" for where in results.edits_that_changed_nothing())]
    print("", *(f"error: {each}" for each in errors), sep="\n")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
