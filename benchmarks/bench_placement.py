"""What profiles are worth: recorded workflows planned from the profiles of their job types (driven) and without (blind), both simulated
in the world that was recorded, on several nodes, with little room. Goal: driven never slower by more than 2 %, and faster or cheaper (fewer
bytes over the WAN) where I/O is what bounds the run.

Recorded times and sizes are taken out of the workflow and given as profiles by job type: nobody knows more of a job than its type and its
inputs. Both have the same disk on each node: the cache, and beside it a tenth as much for outputs that outgrow what was set aside for them
(`sandbox_bytes`). A job that fills that fails and is tried again with more set aside (`again`: how many attempts more than jobs; `beyond`:
what a blind plan's jobs would have written more than was set aside, at most at one time).
Which of two orders meets the long jobs of a type first is chance, which no profile knows. So each pair of plans is simulated five
times, as recorded and with the time of each job drawn from 10 % around that, the same draws for both; the goal is judged by the median (`of
five`).
`python benchmarks/bench_placement.py [--only montage] [--nodes 1,2,4]`.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measuring import verdict
from stager.estimate import Report, estimate
from stager.model.profile import Profiles
from stager.model.profiling import profile_of
from stager.model.topology import Node, OriginLink, Topology
from stager.model.units import format_size
from stager.model.workflow import Workflow
from stager.planning.bounds import Limit, lower_bound
from stager.planning.make_plan import make_plan
from stager.planning.plan import Plan
from stager.planning.policy import Limits
from stager.planning.transport import AT_ONCE_MAX
from stager.readers.wfcommons import RECORDED, read
from stager.readers.wfcommons_profiles import STORE, read_samples
from stager.sim.sampling import Spread
from tests.testbed.places import records_dir

WAN_BYTES_PER_S = 50e6
SLOWER_MAX = 1.02
SANDBOX_SHARE = 0.1
DRAWS, DRAWN_FROM = 4, 1.1
HEADS = f"{'instance':<44} {'nodes':>5} {'room':>9} {'bound by':>13} {'makespan s: driven':>18} {'blind':>12} {'driven/blind':>12}"
HEADS += f" {'of five':>7} {'WAN: driven':>12} {'blind':>9} {'driven/blind':>12} {'again: driven':>13} {'blind':>5} {'beyond: blind':>13}"


@dataclass(frozen=True)
class Row:
    """`capacity_bytes`: of all nodes together. `limit`: the largest term of the lower bound. `driven`, `blind`: as recorded; `drawn`:
    driven over blind, in time, of each draw.
    """

    name: str
    nodes: int
    capacity_bytes: int
    limit: Limit
    driven: Report
    blind: Report
    drawn: tuple[float, ...] = ()

    @property
    def slower(self) -> float:
        return in_time(self.driven, self.blind)

    @property
    def of_five(self) -> float:
        return median([self.slower, *self.drawn])

    @property
    def dearer(self) -> float:
        return wan_bytes(self.driven) / wan_bytes(self.blind) if wan_bytes(self.blind) else 1.0

    @property
    def is_slower(self) -> bool:
        return self.of_five > SLOWER_MAX

    @property
    def helps(self) -> bool:
        return self.of_five < 1 or self.dearer < 1

    @property
    def is_io_heavy(self) -> bool:
        return self.limit in (Limit.WAN, Limit.LAN)

    @property
    def failed(self) -> str:
        return ", ".join(
            f"{side} {report.outcome.value}: {report.fault.message if report.fault else 'stands still'}"
            for side, report in (("driven", self.driven), ("blind", self.blind))
            if report.outcome.value != "succeeded"
        )


def in_time(driven: Report, blind: Report) -> float:
    return driven.wall_s / blind.wall_s if blind.wall_s else 1.0


def wan_bytes(report: Report) -> int:
    return report.fetched_bytes + report.uploaded_bytes


def undeclared(workflow: Workflow) -> Workflow:
    """Without what only the record knows: how long jobs take and how large the files are that they make."""
    files = {lfn: file if file.is_external else replace(file, size_bytes=None) for lfn, file in workflow.files.items()}
    return replace(workflow, files=files, jobs={name: replace(job, compute_s=None) for name, job in workflow.jobs.items()})


def profiles_in(path: Path) -> Profiles:
    """By job type, as `stager profile import` would make them."""
    samples, _ = read_samples(path)
    types = {sample.job_type for sample in samples}
    return {name: profile_of(name, [sample for sample in samples if sample.job_type == name], STORE) for name in sorted(types)}


def topology_of(nodes: int, capacity_bytes: int, cores: int) -> Topology:
    each_bytes = capacity_bytes // nodes
    each = tuple(Node(f"node{number}", each_bytes, cores, sandbox_bytes=round(SANDBOX_SHARE * each_bytes)) for number in range(nodes))
    return Topology(each, (OriginLink(RECORDED, WAN_BYTES_PER_S, WAN_BYTES_PER_S),))


def little_space(plans: list[Plan], nodes: int, share: float, touched_bytes: int) -> int:
    """A share of all that is touched; at least what each of these plans needs, and on each node the largest of their jobs."""
    smallest = max(plan.smallest_capacity_bytes for plan in plans)
    largest = max(job.footprint_bytes for plan in plans for job in plan.jobs)
    return max(smallest, nodes * largest, round(share * touched_bytes))


def row_of(path: Path, nodes: int, cores: int, share: float) -> Row:
    recorded, profiles = read(path), profiles_in(path)
    workflow = undeclared(recorded)

    def plans(capacity_bytes: int) -> list[Plan]:
        there, limits = topology_of(nodes, capacity_bytes, cores), Limits(cores=cores)
        return [
            make_plan(recorded, there, limits=limits, spill_origin=RECORDED),
            make_plan(workflow, there, profiles, limits=limits, spill_origin=RECORDED),
            make_plan(workflow, there, profiles, limits=limits, spill_origin=RECORDED, ignore_profiles=True),
        ]

    touched = sum(file.size_bytes or 0 for file in recorded.files.values())
    capacity_bytes = little_space(plans(1 << 60), nodes, share, touched)
    truth, driven, blind = plans(capacity_bytes)
    there = topology_of(nodes, capacity_bytes, cores)
    limit = lower_bound(recorded, there, truth, streams_per_origin=AT_ONCE_MAX * nodes).tightest.limit

    def simulated(seed: int) -> list[Report]:
        spread = Spread(seed, durations=DRAWN_FROM) if seed else None
        return [estimate(workflow, there, limits=Limits(cores=cores), plan=plan, truth=truth, spread=spread) for plan in (driven, blind)]

    drawn = tuple(in_time(*simulated(seed)) for seed in range(1, DRAWS + 1))
    return Row(path.stem, nodes, capacity_bytes, limit, *simulated(0), drawn)


def line_of(row: Row) -> str:
    where = f"{row.name:<44} {row.nodes:>5} {format_size(row.capacity_bytes):>9} {row.limit.value:>13}"
    if row.failed:
        return f"{where}  {row.failed}"
    times = f"{row.driven.wall_s:>18,.1f} {row.blind.wall_s:>12,.1f} {row.slower:>12.3f} {row.of_five:>7.3f}"
    moved = f"{format_size(wan_bytes(row.driven)):>12} {format_size(wan_bytes(row.blind)):>9} {row.dearer:>12.3f}"
    again = f"{row.driven.attempts - row.driven.jobs:>13} {row.blind.attempts - row.blind.jobs:>5}"
    beyond = f"{format_size(row.blind.unreserved_bytes_max):>13}"
    return f"{where} {times} {moved} {again} {beyond}  {'SLOWER' if row.is_slower else ''}".rstrip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=Path, default=records_dir())
    parser.add_argument("--only", default="", help="instances whose name holds this")
    parser.add_argument("--nodes", default="1,2,4")
    parser.add_argument("--cores", type=int, default=8, help="of each node")
    parser.add_argument("--room", type=float, default=0.25, help="of all bytes that are touched, on all nodes together")
    parser.add_argument("--processes", type=int, default=2)
    asked = parser.parse_args()
    paths = sorted(path for path in asked.instances.glob("*.json") if asked.only in path.name)
    if not paths:
        parser.error(f"no instance in {asked.instances}")
    print(HEADS)
    rows = []
    with ProcessPoolExecutor(asked.processes, get_context("fork")) as pool:
        counts = [int(word) for word in asked.nodes.split(",")]
        futures = [pool.submit(row_of, path, nodes, asked.cores, asked.room) for path in paths for nodes in counts]
        for future in futures:
            rows.append(future.result())
            print(line_of(rows[-1]), flush=True)
    return judged(rows)


def judged(rows: list[Row]) -> int:
    """Prints what became of the goals; returns the exit code."""
    simulated = [row for row in rows if not row.failed]
    heavy = [row for row in simulated if row.is_io_heavy]
    slower, idle = sum(row.is_slower for row in simulated), sum(not row.helps for row in heavy)
    once = sum(row.slower > SLOWER_MAX for row in simulated)
    print(f"goal: at most {SLOWER_MAX - 1:.0%} slower: {verdict(not slower)}, {slower} of {len(simulated)} are; as recorded, {once} are")
    print(f"goal: faster or cheaper where I/O bounds the run: {verdict(not idle)}, {len(heavy) - idle} of {len(heavy)} are")
    print(f"runs that failed: {len(rows) - len(simulated)}")
    return int(slower > 0 or idle > 0 or len(simulated) < len(rows))


if __name__ == "__main__":
    sys.exit(main())
