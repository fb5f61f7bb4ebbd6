"""What the order of jobs is worth: simulated runs of recorded and drawn workflows, by lines out, room and nodes, beside the lower bound.

Three goals: more room never makes a run slower by more than 2 %, nor do more nodes with the same room on each; and no row is slower than
with another tree of the project, whose rows were kept before: `--save FILE` here, `--tree OTHER --save FILE` there, `--against FILE`.
Room goes from what the workflow needs at least to twice all that it touches. Workflows are halved: tune on one, judge by the other. They
are drawn and recorded ones, or the made set (`--set made`).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from statistics import geometric_mean

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
if "--tree" in sys.argv:
    sys.path.insert(0, sys.argv[sys.argv.index("--tree") + 1])

from benchmarks.made_set import made_paths
from benchmarks.measuring import slice_of, verdict
from benchmarks.sampled_shapes import SHAPES, sampled_workflow
from stager.estimate import estimate
from stager.model.topology import Node, OriginLink, Topology
from stager.model.workflow import Workflow
from stager.planning.bounds import lower_bound
from stager.planning.make_plan import make_plan
from stager.planning.policy import Limits
from stager.readers.wfcommons import read
from tests.testbed.places import recorded_dir, shared_files

SLOWER_MAX = 1.02
FETCH_BYTES_PER_S = 50e6
RECORDED_CORES = 8
STEPS = 4


@dataclass(frozen=True)
class Row:
    """`step`: of the room, 0 the least; `node_bytes` of each node. `predicted_s`: by the plan."""

    name: str
    out_mb: float
    spills: bool
    nodes: int
    step: int
    node_bytes: int
    wall_s: float
    bound_s: float
    predicted_s: float
    ok: bool

    @property
    def key(self) -> str:
        return f"{self.name} {self.out_mb:g} {'spill' if self.spills else '-'} {self.nodes} {self.step}"


def case(name: str) -> tuple[Workflow, int]:
    """A drawn one by its seed, else a record by its path."""
    return sampled_workflow(int(name)) if name.isdigit() else (read(Path(name)), RECORDED_CORES)


def topology_of(workflow: Workflow, nodes: int, node_bytes: int, cores: int, out_mb: float) -> Topology:
    links = tuple(OriginLink(name, FETCH_BYTES_PER_S, out_mb * 1e6) for name in workflow.origins)
    return Topology(tuple(Node(f"node{number}", node_bytes, cores) for number in range(nodes)), links)


def rooms(workflow: Workflow, spill: str | None, lines: list[float]) -> list[int]:
    """By equal factors, from what one node needs at least: which orders there are depends on the line out."""
    roomy = [topology_of(workflow, 1, 1 << 60, 1, out_mb) for out_mb in lines]
    smallest = max(make_plan(workflow, there, spill_origin=spill).smallest_capacity_bytes for there in roomy)
    named = {entry.lfn for job in workflow.jobs.values() for entry in (*job.inputs, *job.outputs)}
    most = 2 * sum(workflow.files[lfn].size_bytes or 0 for lfn in named)
    return [round(smallest * (most / smallest) ** (step / (STEPS - 1))) for step in range(STEPS)]


def rows_of(name: str, lines: list[float], nodes: list[int], spills: bool, by_rules: bool = False) -> list[Row]:
    """`by_rules`: without a look at other plans."""
    workflow, cores = case(name)
    spill = next(iter(workflow.origins)) if spills else None
    rows = []
    for step, node_bytes in enumerate(rooms(workflow, spill, lines)):
        for out_mb in lines:
            for count in nodes:
                there, limits = topology_of(workflow, count, node_bytes, cores, out_mb), Limits(cores=cores)
                plan = make_plan(workflow, there, limits=limits, spill_origin=spill) if by_rules else None
                report = estimate(workflow, there, limits=limits, spill_origin=spill, plan=plan)
                least_s = lower_bound(workflow, there, report.plan).least_s
                ok = report.outcome.value == "succeeded"
                times = report.wall_s, least_s, report.plan.makespan_s
                rows.append(Row(workflow.name, out_mb, spills, count, step, node_bytes, *times, ok))
    return rows


def steps_up(rows: Iterable[Row], along: str) -> Iterator[tuple[Row, Row, float]]:
    """(the fastest with less, the row, how much slower it is) of all rows that differ in `along` alone."""
    groups: dict[tuple[object, ...], list[Row]] = defaultdict(list)
    for row in rows:
        if row.ok:
            other = row.nodes if along == "step" else row.step
            groups[row.name, row.out_mb, row.spills, other].append(row)
    for group in groups.values():
        group.sort(key=lambda row: getattr(row, along))
        for place, row in enumerate(group[1:], 1):
            best = min(group[:place], key=lambda less: less.wall_s)
            yield best, row, row.wall_s / best.wall_s


def judge_steps(rows: list[Row], along: str, what: str, shown: int) -> bool:
    found = sorted(steps_up(rows, along), key=lambda step: -step[2])
    slower = [step for step in found if step[2] > SLOWER_MAX]
    count = f"{len(slower)} of {len(found)} are slower" + (f", at worst by {found[0][2] - 1:.1%}" if slower else "")
    print(f"goal: {what} at most {SLOWER_MAX - 1:.0%} slower: {verdict(not slower)}, {count}")
    for less, row, ratio in slower[:shown]:
        beside = f"{less.wall_s:.1f} ({along} {getattr(less, along)})"
        print(f"  {row.key}: {ratio:.3f}, {row.wall_s:.1f} s beside {beside}, bound {row.bound_s:.1f}")
    return not slower


def judge_against(rows: list[Row], before: dict[str, Row], shown: int) -> bool:
    pairs = [(before[row.key], row) for row in rows if row.key in before and before[row.key].node_bytes == row.node_bytes and row.ok]
    found = sorted(((row.wall_s / old.wall_s, old, row) for old, row in pairs if old.ok), key=lambda each: -each[0])
    ratios = [ratio for ratio, _, _ in found]
    slower, faster = sum(ratio > SLOWER_MAX for ratio in ratios), sum(ratio < 1 / SLOWER_MAX for ratio in ratios)
    count = f"{slower} of {len(found)} are, {faster} are faster"
    print(f"goal: at most {SLOWER_MAX - 1:.0%} slower than before: {verdict(not slower)}, {count}")
    print(f"  of the time before: {geometric_mean(ratios):.4f} on average, {ratios[-1]:.3f} to {ratios[0]:.3f}")
    for ratio, old, row in [*found[: min(shown, slower)], *found[-min(shown, faster) or len(found) :]]:
        print(f"  {row.key}: {row.wall_s:.1f} s, {ratio:.3f} of {old.wall_s:.1f}, bound {row.bound_s:.1f}")
    return not slower


def names_of(which: str, half: str, seeds: int, only: str, largest: int) -> list[str]:
    """Halves by place: seeds by whole rounds of shapes, so that both halves have each shape, and each place of records by itself."""
    if which == "made":
        return [str(path) for path in made_paths(half) if only in path.name and path.stat().st_size <= largest]
    rounds = [[str(seed) for seed in range(first, min(first + len(SHAPES), seeds))] for first in range(0, seeds, len(SHAPES))]
    there = recorded_dir().glob("*.json"), shared_files("wfinstances/*.json")
    recorded, given = ([[str(path)] for path in sorted(paths)] for paths in there)
    first, step = {"tune": (0, 2), "judge": (1, 2), "all": (0, 1)}[half]
    names = [name for places in (rounds, recorded, given) for group in places[first::step] for name in group]
    return [name for name in names if only in name and (name.isdigit() or Path(name).stat().st_size <= largest)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", choices=("drawn", "made"), default="drawn", help="drawn and recorded workflows, or the made set")
    parser.add_argument("--half", choices=("tune", "judge", "all"), default="all")
    parser.add_argument("--seeds", type=int, default=48, help="of drawn workflows")
    parser.add_argument("--only", default="", help="records and seeds whose name holds this")
    parser.add_argument("--largest", type=int, default=1_200_000, help="bytes of the largest record taken")
    parser.add_argument("--slice", default="0/1", help="of 1/3 the second of three, every third workflow")
    parser.add_argument("--lines", default="2,20,200", help="out, in MB/s")
    parser.add_argument("--nodes", default="1,2,4")
    parser.add_argument("--spill", choices=("both", "yes", "no"), default="no")
    parser.add_argument("--by-rules", action="store_true", help="do not look at other plans than the first")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--shown", type=int, default=10, help="rows of each goal")
    parser.add_argument("--tree", default="", help="take stager from this clone")
    parser.add_argument("--save", type=Path, help="keep the rows there")
    parser.add_argument("--kept", type=Path, action="append", help="judge rows that were kept, and run nothing; may be given again")
    parser.add_argument("--against", type=Path, action="append", help="rows that were kept; may be given again")
    asked = parser.parse_args()
    if asked.kept:
        return judged(kept_rows(asked.kept), kept_rows(asked.against or []), asked.shown)
    names = slice_of(names_of(asked.set, asked.half, asked.seeds, asked.only, asked.largest), asked.slice)
    lines, nodes = [float(word) for word in asked.lines.split(",")], [int(word) for word in asked.nodes.split(",")]
    ways = {"both": (False, True), "yes": (True,), "no": (False,)}[asked.spill]
    rows: list[Row] = []
    with ProcessPoolExecutor(asked.processes, get_context("fork")) as pool:
        futures = [pool.submit(rows_of, name, lines, nodes, spills, asked.by_rules) for name in names for spills in ways]
        for future in futures:
            rows += future.result()
    if asked.save:
        asked.save.write_text(json.dumps([asdict(row) for row in rows]))
    return judged(rows, kept_rows(asked.against or []), asked.shown)


def kept_rows(paths: list[Path]) -> list[Row]:
    return [Row(**entry) for path in paths for entry in json.loads(path.read_text())]


def judged(rows: list[Row], before: list[Row], shown: int) -> int:
    """Prints what became of the goals; returns the exit code."""
    ended = [row for row in rows if row.ok]
    of_bound = geometric_mean([row.wall_s / row.bound_s for row in ended])
    print(f"{len(rows)} rows, {len(rows) - len(ended)} failed; of the lower bound: {of_bound:.4f} on average")
    good = [judge_steps(rows, "step", "more room", shown), judge_steps(rows, "nodes", "more nodes", shown)]
    if before:
        good.append(judge_against(rows, {row.key: row for row in before}, shown))
    return int(not all(good) or len(ended) < len(rows))


if __name__ == "__main__":
    sys.exit(main())
