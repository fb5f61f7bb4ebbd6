"""How good eviction is: byte hits of simulated runs beside MIN, LRU and what no cache can exceed, with the same accesses and pins.

Two goals: 98 % of MIN on 99 % of all rows, and never fewer hits than LRU. Capacity goes from the smallest that a run needs to half of all
bytes it touches. Also told: the bytes that moved for want of room, in again or out to the spill origin, beside those that MIN would move.
Workflows are the records there are, or the made set (`--set made`): tune on one half of it, judge by the other.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.made_set import made_paths
from benchmarks.measuring import slice_of, verdict
from stager.estimate import Report, estimate
from stager.model.topology import Node, Topology
from stager.model.units import format_size
from stager.model.workflow import Workflow
from stager.planning.make_plan import make_plan
from stager.planning.policy import Policy
from stager.readers.wfcommons import RECORDED, read
from tests.testbed.places import records_dir

GOAL = 0.98
ROWS = 0.99
HALF = 0.5
COLUMNS = (
    ("instance", 42),
    ("spill", 5),
    ("capacity", 9),
    ("of all", 7),
    ("hits", 8),
    ("MIN", 8),
    ("LRU", 8),
    ("at most", 8),
    ("moved", 9),
    ("MIN moves", 9),
    ("of MIN", 8),
)


@dataclass(frozen=True)
class Row:
    """`touched_bytes`: all files that jobs read or made."""

    name: str
    spills: bool
    touched_bytes: int
    capacity_bytes: int
    report: Report

    @property
    def of_min(self) -> float:
        ours, least = self.report.hit_rate, self.report.min_hits.rate
        return ours / least if ours is not None and least else 1.0

    @property
    def is_below_lru(self) -> bool:
        report = self.report
        return report.read_bytes - report.fetched_bytes - report.direct_read_bytes < report.lru_hits.hit_bytes


def capacities(smallest: int, half: int, steps: int) -> list[int]:
    """By equal factors; the smallest alone where it is more than half."""
    if half <= smallest or steps < 2:
        return [smallest]
    return [round(smallest * (half / smallest) ** (step / (steps - 1))) for step in range(steps)]


def rows_of(path: Path, spills: bool, cores: int, steps: int, policy: Policy) -> list[Row]:
    workflow = read(path)
    spill_origin = RECORDED if spills else None
    smallest = max(1, make_plan(workflow, topology_of(1, cores), spill_origin=spill_origin).smallest_capacity_bytes)
    touched = touched_bytes(workflow)
    rows = []
    for capacity in capacities(smallest, int(touched * HALF), steps):
        report = estimate(workflow, topology_of(capacity, cores), policy=policy, spill_origin=spill_origin)
        assert report.outcome.value == "succeeded", report.fault
        rows.append(Row(path.stem, spills, touched, capacity, report))
    return rows


def topology_of(capacity_bytes: int, cores: int) -> Topology:
    return Topology((Node("node0", capacity_bytes, cores),))


def touched_bytes(workflow: Workflow) -> int:
    names = {entry.lfn for job in workflow.jobs.values() for entry in (*job.inputs, *job.outputs)}
    return sum(workflow.files[lfn].size_bytes or 0 for lfn in names)


def line_of(row: Row) -> str:
    report = row.report
    rates = f"{report.hit_rate:>8.2%} {report.min_hits.rate:>8.2%} {report.lru_hits.rate:>8.2%} {report.best_hit_rate:>8.2%}"
    # What moved for want of room: more than once in, and out to the spill origin.
    once = report.fetched_bytes - report.refetched_bytes
    moved = f"{format_size(report.refetched_bytes + report.spilled_bytes):>9}"
    least = f"{format_size(report.min_hits.fetched_bytes - once + report.min_hits.spilled_bytes):>9}"
    share = row.capacity_bytes / row.touched_bytes if row.touched_bytes else 1.0
    mark = ("" if row.of_min >= GOAL else "  below the goal") + ("  below LRU" if row.is_below_lru else "")
    where = f"{row.name:<42} {'yes' if row.spills else 'no':>5} {format_size(row.capacity_bytes):>9} {share:>7.1%}"
    return f"{where} {rates} {moved} {least} {row.of_min:>8.2%}{mark}"


def judged(rows: list[Row]) -> int:
    """Prints what became of the goals; returns the exit code."""
    below, under = sum(row.of_min < GOAL for row in rows), sum(row.is_below_lru for row in rows)
    met = len(rows) - below >= ROWS * len(rows)
    print(f"goal: at least {GOAL:.0%} of MIN on {ROWS:.0%} of all rows: {verdict(met)}, {below} of {len(rows)} are below")
    print(f"goal: never fewer hits than LRU: {verdict(not under)}, {under} of {len(rows)} have")
    return int(not met or bool(under))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", choices=("records", "made"), default="records", help="the records there are, or the made set")
    parser.add_argument("--half", choices=("tune", "judge", "all"), default="tune", help="of the made set")
    parser.add_argument("--instances", type=Path, default=records_dir(), help="where records are")
    parser.add_argument("--only", default="", help="instances whose name holds this")
    parser.add_argument("--largest", type=int, default=1 << 60, help="bytes of the largest file of an instance that is taken")
    parser.add_argument("--slice", default="0/1", help="of 1/3 the second of three, every third workflow by size")
    parser.add_argument("--cores", type=int, default=8)
    parser.add_argument("--steps", type=int, default=5, help="capacities for each instance")
    parser.add_argument("--spill", choices=("both", "yes", "no"), default="both")
    parser.add_argument("--no-lookahead", action="store_true")
    parser.add_argument("--processes", type=int, default=2)
    asked = parser.parse_args()
    there = made_paths(asked.half) if asked.set == "made" else sorted(asked.instances.glob("*.json"))
    paths = [path for path in there if asked.only in path.name and path.stat().st_size <= asked.largest]
    if not paths:
        parser.error("no such instance")
    paths = slice_of(sorted(paths, key=lambda path: path.stat().st_size), asked.slice)
    ways = {"both": (True, False), "yes": (True,), "no": (False,)}[asked.spill]
    policy = Policy(lookahead=not asked.no_lookahead)
    print(" ".join(f"{name:{'<' if not place else '>'}{width}}" for place, (name, width) in enumerate(COLUMNS)))
    rows: list[Row] = []
    with ProcessPoolExecutor(asked.processes, get_context("fork")) as pool:
        asked_for = [(path, spills) for path in paths for spills in ways]
        futures = [pool.submit(rows_of, path, spills, asked.cores, asked.steps, policy) for path, spills in asked_for]
        for future in futures:
            for row in future.result():
                rows.append(row)
                print(line_of(row), flush=True)
    return judged(rows)


if __name__ == "__main__":
    sys.exit(main())
