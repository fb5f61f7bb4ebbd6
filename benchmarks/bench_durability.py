"""What it is worth to decide, for each intermediate, between a second copy and making it again (planning/durability.py).

One workflow with both kinds of intermediates, simulated with nodes that are lost at random: what costs long computing and is small,
and what is large and quickly made. The same losses meet never replicating, always replicating, and the plan's own choice.

    python benchmarks/bench_durability.py [SEEDS]

Virtual seconds: the figures are the same on any machine.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from statistics import mean

from msgspec import structs

from stager.estimate import Report, estimate
from stager.model.files import Destination, File, Location, Source
from stager.model.topology import Node, OriginLink, Topology
from stager.model.workflow import Job, JobInput, JobOutput, Origin, OriginKind, Workflow
from stager.planning.make_plan import make_plan
from stager.planning.plan import Plan
from stager.planning.policy import Limits
from stager.scheduler.commands import RunOutcome
from stager.sim.faults import Faults, sampled_losses

MB, GB = 10**6, 10**9
BRANCHES, NODES, CORES = 24, 4, 3
LOSSES_OVER = 5.0
RATES = (0.0, 0.25, 0.5, 1.0, 2.0)
WAYS = ("never", "always", "decided")


def branches(count: int = BRANCHES) -> Workflow:
    """Each: 10 min of computing make 50 MB (`state`), of which 5 s make 8 GB (`table`); what `use` makes of its own table and the next
    one's is joined at the end, with all states.
    """
    home = Location("home", "in/start")
    files = {"start": File("start", size_bytes=MB, sources=(Source(home, MB, "t"),))}
    jobs: dict[str, Job] = {}

    def job(name: str, reads: Sequence[str], makes: dict[str, int], compute_s: float) -> None:
        for lfn, size_bytes in makes.items():
            where = Destination(Location("home", f"out/{lfn}")) if lfn == "end" else None
            files[lfn] = File(lfn, size_bytes=size_bytes, destination=where)
        inputs, outputs = tuple(JobInput(lfn, lfn) for lfn in reads), tuple(JobOutput(lfn, lfn) for lfn in makes)
        kind = name.rstrip("0123456789")
        jobs[name] = Job(name, kind, (kind,), inputs=inputs, outputs=outputs, compute_s=compute_s, deterministic=True, retries=100)

    for number in range(count):
        job(f"compute{number}", ["start"], {f"state{number}": 50 * MB}, 600.0)
        job(f"expand{number}", [f"state{number}"], {f"table{number}": 8 * GB}, 5.0)
    for number in range(count):
        job(f"use{number}", [f"table{number}", f"table{(number + 1) % count}"], {f"found{number}": MB}, 120.0)
    job("join", [f"{kind}{number}" for kind in ("state", "found") for number in range(count)], {"end": MB}, 60.0)
    return Workflow("branches", files, jobs, {"home": Origin("home", OriginKind.S3, "s3://home")})


def topology(rate: float) -> Topology:
    """Networks of 1 Gbit/s."""
    nodes = tuple(
        Node(f"node{number}", 400 * GB, CORES, disk_bytes_per_s=1000.0 * MB, network_bytes_per_s=125.0 * MB, failures_per_hour=rate)
        for number in range(NODES)
    )
    return Topology(nodes, (OriginLink("home", 50.0 * MB, 50.0 * MB, 0.05),))


def plan_of(way: str, workflow: Workflow, rate: float) -> Plan:
    """Where nothing is lost the plan's own choice is one copy of each."""
    plan = make_plan(workflow, topology(rate))
    if way == "decided":
        return plan
    return replace(plan, files=tuple(structs.replace(file, safe_copies=2 if way == "always" else 1) for file in plan.files))


def live(way: str, workflow: Workflow, rate: float, seed: int) -> Report:
    plan = plan_of(way, workflow, rate)
    horizon_s = LOSSES_OVER * plan.makespan_s
    faults = Faults(seed, horizon_s, troubles=sampled_losses(seed, [rate] * NODES, horizon_s))
    return estimate(workflow, topology(rate), limits=Limits(cores=CORES), plan=plan, faults=faults, resumes_max=100)


def means(rate: float, seeds: int, workflow: Workflow) -> dict[str, tuple[float, float]]:
    """By way: mean makespan in virtual seconds, and mean number of attempts beyond one for each job."""
    found = {}
    for way in WAYS:
        reports = [live(way, workflow, rate, seed) for seed in range(seeds if rate else 1)]
        assert all(report.outcome is RunOutcome.SUCCEEDED for report in reports), [report.fault for report in reports]
        found[way] = (mean(report.wall_s for report in reports), mean(report.attempts - report.jobs for report in reports))
    return found


def main(argv: list[str]) -> None:
    seeds, workflow = int(argv[0]) if argv else 40, branches()
    print(f"{len(workflow.jobs)} jobs on {NODES} nodes of {CORES} cores; means of {seeds} seeds, virtual seconds (jobs run again)")
    print(f"{'lost/h':>7}" + "".join(f"{way:>20}" for way in WAYS) + f"{'two copies of':>16}{'best':>10}")
    for rate in RATES:
        found = means(rate, seeds, workflow)
        two = [file.lfn.rstrip("0123456789") for file in plan_of("decided", workflow, rate).files if file.safe_copies > 1]
        kinds = ", ".join(f"{two.count(kind)} {kind}" for kind in dict.fromkeys(two)) or "none"
        best = min(found, key=lambda way: found[way][0])
        print(f"{rate:>7g}" + "".join(f"{wall:>12.0f} ({again:5.1f})" for wall, again in found.values()) + f"{kinds:>28}{best:>10}")


if __name__ == "__main__":
    main(sys.argv[1:])
