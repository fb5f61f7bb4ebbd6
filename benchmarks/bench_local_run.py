"""What a job costs beside its own work: a run of 1,000 jobs of `true` on this machine, beside tools that only start processes.

Target: 2.5 ms of scheduling per job: processor time of the scheduler and of its I/O node together. Wall time is what the machine and its
disk had left. Again: `python benchmarks/bench_local_run.py [--jobs N] [--rounds N] [--dir DIRECTORY]`.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.testbed.own_place import own_place
from tests.testbed.stager import Stager
from tests.testbed.usage import Cpu, cpu_of, machine

TARGET_MS = 2.5
CORES = 2
BARE = "stager: 1\nname: bare\njobs:\n  nothing:\n    foreach: {{n: 1..{jobs}}}\n    run: ['true']\n"
# Each job reads what another one left and leaves what one more reads: stage-in, link, stage-out, delete.
CHAINED = """\
stager: 1
name: chained
jobs:
  first:
    foreach: {{n: 1..{half}}}
    run: [touch, "a/{{n}}"]
    outputs: ["a/{{n}}"]
  second:
    foreach: {{n: 1..{half}}}
    run: [touch, "b/{{n}}"]
    inputs: ["a/{{n}}"]
    outputs: ["b/{{n}}"]
"""


@dataclass(frozen=True)
class Cost:
    """Of one run, in seconds."""

    wall_s: float
    scheduler: Cpu
    node_s: float

    @property
    def scheduling_s(self) -> float:
        return self.scheduler.own_s + self.node_s


def run_once(text: str, jobs: int, place: Path) -> Cost:
    stager = Stager(place / "s", place / "home", idle_exit_s=60)
    try:
        warm, workflow = place / "warm.yml", place / "workflow.yml"
        warm.write_text(BARE.format(jobs=2))
        workflow.write_text(text.format(jobs=jobs, half=jobs // 2))
        stager.run("submit", warm, "--quiet")
        scheduler, node = stager.scheduler_pid(), stager.node_pid()
        before, node_before, begun = cpu_of(scheduler), cpu_of(node), time.monotonic()
        stager.run("submit", workflow, "--quiet", deadline_s=600)
        wall_s = time.monotonic() - begun
        assert stager.scheduler_pid() == scheduler, "the scheduler ended while it was measured"
        return Cost(wall_s, cpu_of(scheduler) - before, (cpu_of(node) - node_before).own_s)
    finally:
        stager.end()


def started(command: list[str], cwd: Path) -> Callable[[], tuple[float, float]]:
    """Wall and processor time of a peer."""

    def once() -> tuple[float, float]:
        before, begun = used_by_children_s(), time.monotonic()
        subprocess.run(command, cwd=cwd, check=True, stdout=subprocess.DEVNULL)
        return time.monotonic() - begun, used_by_children_s() - before

    return once


def used_by_children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def peers(jobs: int, place: Path) -> list[tuple[str, Callable[[], tuple[float, float]]]]:
    """What the same 1,000 processes cost where nobody stages, measures, isolates or journals."""
    found = []
    if shutil.which("xargs"):
        numbers = place / "numbers"
        numbers.write_text("\n".join(map(str, range(jobs))))
        found.append((f"xargs -P{CORES}", started(["xargs", f"-P{CORES}", "-n1", "-a", str(numbers), "true"], place)))
    if shutil.which("make"):
        targets = " ".join(f"t{n}" for n in range(jobs))
        (place / "Makefile").write_text(f".PHONY: all {targets}\nall: {targets}\n{targets}:\n\t@/bin/true $@\n")
        found.append((f"make -j{CORES}", started(["make", "-s", f"-j{CORES}"], place)))
    return found


def print_row(name: str, *values: float | None) -> None:
    print(f"{name:<26}" + "".join(f"{'' if value is None else f'{value:.2f}':>12}" for value in values))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dir", help="where the state directories are made; the disk there counts")
    given = parser.parse_args()
    jobs = given.jobs
    print(f"{jobs} jobs, {CORES} at a time, the middle of {given.rounds} rounds; milliseconds per job; {machine()}")
    print(f"{'':<26}" + "".join(f"{name:>12}" for name in ("wall", "scheduler", "I/O node", "scheduling", "reaper+job")))
    worst_ms = 0.0
    for name, text in (("stager, `true`", BARE), ("stager, with files", CHAINED)):
        costs = []
        for _ in range(given.rounds):
            with own_place(given.dir) as place:
                costs.append(run_once(text, jobs, place))
        middle = sorted(costs, key=lambda cost: cost.scheduling_s)[len(costs) // 2]
        per_job = 1000 / jobs
        own_s, children_s = middle.scheduler.own_s, middle.scheduler.children_s
        print_row(name, *(value * per_job for value in (middle.wall_s, own_s, middle.node_s, middle.scheduling_s, children_s)))
        if text is BARE:
            worst_ms = middle.scheduling_s * per_job
    with own_place(given.dir) as place:
        for name, once in peers(jobs, place):
            rounds = [once() for _ in range(given.rounds)]
            wall_s, cpu_s = (statistics.median(values) for values in zip(*rounds, strict=True))
            print_row(name, wall_s * 1000 / jobs, None, None, None, cpu_s * 1000 / jobs)
    verdict = "met" if worst_ms <= TARGET_MS else "MISSED"
    print(f"target: at most {TARGET_MS:g} ms of scheduling per job of `true`: {worst_ms:.2f} ms, {verdict}")
    return 0 if worst_ms <= TARGET_MS else 1


if __name__ == "__main__":
    sys.exit(main())
