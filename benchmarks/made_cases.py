"""Which workflows of the made set are run to judge estimates, over what lines, from what origins, with how much room.

May know: the model, planning, the manifest of the made set. One rule: everything follows from the half and the seed, before anything has
run; every value of every column occurs, and the pairs of bandwidth and round trip all do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import exp, log
from pathlib import Path
from random import Random

from stager.model.topology import DEFAULT_OVERHEAD_S, OriginLink, embedded
from stager.model.workflow import Origin, OriginKind, Workflow, graph_of
from stager.planning.bounds import lower_bound
from stager.planning.make_plan import make_plan
from stager.readers import wfcommons
from stager.readers.replay import make_replay

CASES, CORES = 12, 2
ORIGINS = ("sftp",) * 5 + ("s3",) * 4 + ("file",) * 3
LINES = tuple((mbit, rtt_ms) for mbit in (20, 100, 1000) for rtt_ms in (5, 50))
ROOMS = ("plenty", "tight")
# A run of many small jobs takes longer than that by what attempts cost alone.
TASKS_MAX = 1200
# What the line and the cores would have to do, before one is stretched so that the plan's bound is what a run should take.
SHARE_S, BOUND_S = (3.0, 25.0), (8.0, 30.0)
# What one line brings, whatever its rate: two cores serve as origin, node and jobs.
WAN_BYTES_PER_S_MAX, DISK_BYTES_PER_S = 40e6, 20e6
ALL_BYTES_MAX = 1.5e9
# Of what the cores are given to do: the rest is what attempts cost.
COMPUTING_LEAST = 0.3
# Of what lies between the smallest capacity and the one at which nothing is given up.
TIGHT_SHARE = 0.35
ROOM_BYTES, ROOM_BYTES_MIN = 64 << 20, 1 << 20


@dataclass(frozen=True)
class MadeCase:
    """`slow`: "shell", "disk" or nothing. `line_s` and `cores_s`: what the line and the cores are given to do, about."""

    name: str
    origin: str
    mbit: int
    rtt_ms: int
    room: str
    slow: str
    line_s: float
    cores_s: float

    @property
    def words(self) -> str:
        line = "" if self.origin == "file" else f", {self.mbit} Mbit/s, {self.rtt_ms} ms"
        return f"{self.origin}{line}, {self.room}{f', slow {self.slow}' if self.slow else ''}"

    @property
    def true_bytes_per_s(self) -> float:
        """What its way carries at most, about."""
        return min(
            DISK_BYTES_PER_S if self.slow == "disk" else WAN_BYTES_PER_S_MAX,
            WAN_BYTES_PER_S_MAX if self.origin == "file" else self.mbit * 125_000,
        )


@dataclass(frozen=True)
class Scales:
    """As `stager replay` takes them, and the node's capacity. `bound_s`: what no run can undercut, by the plan."""

    bytes_scale: str
    time_scale: str
    capacity_bytes: int
    bound_s: float


def sampled_cases(names: Sequence[str], half: str, seed: int) -> list[MadeCase]:
    """`names`: those of the half. Columns are shuffled apart, so that none goes with another."""
    random = Random(f"{half}/{seed}")
    picked = sorted(random.sample(sorted(names), CASES))
    origins = shuffled(random, ORIGINS)
    lines = shuffled(random, LINES) + random.choices(LINES, k=CASES - len(LINES))
    rooms = shuffled(random, ROOMS * (CASES // len(ROOMS)))
    slow = [""] * CASES
    for kind, word in (("sftp", "shell"), ("sftp", "shell"), ("sftp", "disk"), ("s3", "disk"), ("file", "disk")):
        slow[random.choice([at for at in range(CASES) if origins[at] == kind and not slow[at]])] = word
    # Lines in turn to those that have one, so that all pairs occur.
    given = iter(lines)
    cases = []
    for at, name in enumerate(picked):
        mbit, rtt_ms = next(given) if origins[at] != "file" else (0, 0)
        line_s, cores_s = (exp(random.uniform(*map(log, SHARE_S))) for _ in range(2))
        cases.append(MadeCase(name, origins[at], mbit, rtt_ms, rooms[at], slow[at], round(line_s, 2), round(cores_s, 2)))
    return cases


def shuffled(random: Random, values: Sequence[object]) -> list:  # type: ignore[type-arg]
    values = list(values)
    random.shuffle(values)
    return values


def scales_of(case: MadeCase, path: Path) -> Scales:
    """So that the plan's own bound lies within BOUND_S on the line that there will be."""
    recorded = wfcommons.read(path)
    externals = sum(file.size_bytes or 0 for file in recorded.files.values() if file.is_external)
    finals = sum(file.size_bytes or 0 for file in recorded.files.values() if file.is_final)
    everything = sum(file.size_bytes or 0 for file in recorded.files.values())
    bytes_scale = case.line_s * case.true_bytes_per_s / max(1, externals, finals)
    attempts_s = len(recorded.jobs) * DEFAULT_OVERHEAD_S / CORES
    time_scale = max(COMPUTING_LEAST * case.cores_s, case.cores_s - attempts_s) / least_compute_s(recorded)
    for _ in range(8):
        bytes_scale = min(bytes_scale, ALL_BYTES_MAX / max(1, everything))
        scales = scaled(case, recorded, bytes_scale, time_scale)
        if BOUND_S[0] <= scales.bound_s <= BOUND_S[1]:
            break
        stretch = min(max(scales.bound_s, BOUND_S[0]), BOUND_S[1]) / scales.bound_s
        bytes_scale, time_scale = bytes_scale * stretch, time_scale * stretch
    return scales


def least_compute_s(workflow: Workflow) -> float:
    """What the cores need for all of it, or its longest chain."""
    graph, ends = graph_of(workflow), {}
    for job in graph.order:
        ends[job] = max((ends[above] for above in graph.parents[job]), default=0.0) + (workflow.jobs[job].compute_s or 0.0)
    return max(max(ends.values()), sum(job.compute_s or 0.0 for job in workflow.jobs.values()) / CORES)


def scaled(case: MadeCase, recorded: Workflow, bytes_scale: float, time_scale: float) -> Scales:
    words = f"{bytes_scale:.6g}", f"{time_scale:.6g}"
    kind = OriginKind(case.origin)
    origin = Origin("replay", kind, f"{kind}://there/replay")
    workflow, _ = make_replay(recorded, bytes_scale=words[0], time_scale=words[1], seed=1, origin=origin, output_origin=origin)
    line = OriginLink("replay", case.true_bytes_per_s, case.true_bytes_per_s, case.rtt_ms / 1000)
    plan = make_plan(workflow, embedded(1 << 50, cores=CORES, links=(line,)).with_overhead(DEFAULT_OVERHEAD_S, False))
    least, most = plan.smallest_capacity_bytes, plan.peak_live_bytes
    everything = sum(file.size_bytes or 0 for file in workflow.files.values())
    roomy = 2 * everything + ROOM_BYTES
    capacity = roomy if case.room == "plenty" else max(ROOM_BYTES_MIN, least + round(TIGHT_SHARE * max(0, most - least)))
    topology = embedded(capacity, cores=CORES, links=(line,)).with_overhead(DEFAULT_OVERHEAD_S, False)
    return Scales(*words, capacity, lower_bound(workflow, topology, plan).least_s)


def key_of(case: MadeCase, half: str, seed: int) -> str:
    """What a kept row is of: rows of other draws are not judged with it."""
    return f"{half}/{seed}/{sorted(asdict(case).items())}"
