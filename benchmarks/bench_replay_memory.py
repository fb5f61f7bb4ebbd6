"""How much memory the control plane takes while 10 GB go through it: a recorded workflow, replayed with that many bytes in its files.

Target: the scheduler's peak below 200 MB resident, whatever the bytes. The node's and the command's peaks stand beside it, and those of the
same workflow with a thousandth of the bytes: what memory grows with is jobs and files, not bytes.
Again: `python benchmarks/bench_replay_memory.py [--instance FILE] [--gigabytes N] [--capacity SIZE] [--dir DIRECTORY]`.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from stager.model.units import format_duration, format_size
from stager.readers import wfcommons
from tests.testbed.own_place import own_place
from tests.testbed.places import record_like
from tests.testbed.stager import Stager
from tests.testbed.usage import Cpu, Peaks, cpu_of, machine

TARGET_BYTES = 200_000_000
INSTANCE = "1000genome-chameleon-8ch-100k-001.json"
TIME_SCALE = "0.0005"
# Inputs lie at the origin and on the node, outputs on the node and in sandboxes: twice the bytes, and some air.
ROOM = 2.5


@dataclass(frozen=True)
class Figures:
    wall_s: float
    peaks: dict[str, int]
    cpu: dict[str, Cpu]


def measured(instance: Path, scale: str, capacity: str, parent: str | None) -> Figures:
    with own_place(parent) as place:
        stager = Stager(place / "s", place / "home", idle_exit_s=30)
        cpu: dict[str, Cpu] = {}

        def pids() -> Sequence[tuple[str, int | None]]:
            found = (("scheduler", stager.scheduler_pid()), ("I/O node", stager.node_pid()), ("command", command.pid))
            cpu.update((name, cpu_of(pid)) for name, pid in found if pid)
            return found

        begun = time.monotonic()
        words = ("--bytes-scale", scale, "--time-scale", TIME_SCALE, "--capacity", capacity, "--quiet")
        command = stager.start("replay", instance, *words)
        try:
            with Peaks(pids).watched() as peaks:
                out, err = command.communicate()
            wall_s = time.monotonic() - begun
            if command.returncode:
                raise SystemExit(f"the replay ended with {command.returncode}\n{out}{err}{stager.log_tail()}")
            return Figures(wall_s, peaks.bytes, cpu)
        finally:
            stager.end()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instance", type=Path, help=f"a WfCommons record (default: {record_like(INSTANCE)})")
    parser.add_argument("--gigabytes", type=float, default=10.0)
    parser.add_argument("--capacity", default="4 GB", help="space of the I/O node")
    parser.add_argument("--dir", help="where the state directory is made, which takes all the bytes")
    given = parser.parse_args()
    if given.instance is None:
        given.instance = record_like(INSTANCE)
    return given


def main() -> int:
    given = arguments()
    wanted_bytes = int(given.gigabytes * 1e9)
    free_bytes = shutil.disk_usage(given.dir or tempfile.gettempdir()).free
    if free_bytes < wanted_bytes * ROOM:
        needed = format_size(int(wanted_bytes * ROOM))
        print(f"skipped: {format_size(free_bytes)} free where the state directory would be, {needed} are needed; --dir names another place")
        return 0
    workflow = wfcommons.read(given.instance)
    recorded_bytes = sum(file.size_bytes or 0 for file in workflow.files.values())
    scale = Fraction(wanted_bytes, recorded_bytes).limit_denominator(1_000_000)
    print(f"{workflow.name}: {len(workflow.jobs)} jobs, {len(workflow.files)} files; node of {given.capacity}; {machine()}")
    print(f"{'bytes':>10}{'wall':>12}{'scheduler':>13}{'I/O node':>12}{'command':>12}{'CPU: scheduler':>16}{'I/O node':>11}")
    peak_bytes = 0
    for part in (Fraction(1, 1000), Fraction(1)):
        found = measured(given.instance, str(scale * part), given.capacity, given.dir)
        peak_bytes = found.peaks["scheduler"]
        row = [format_size(int(wanted_bytes * part)), format_duration(found.wall_s)]
        row += [format_size(found.peaks[name]) for name in ("scheduler", "I/O node", "command")]
        row += [f"{found.cpu[name].own_s:.1f} s" for name in ("scheduler", "I/O node")]
        print("".join(f"{value:>{width}}" for value, width in zip(row, (10, 12, 13, 12, 12, 16, 11), strict=True)))
    verdict = "met" if peak_bytes < TARGET_BYTES else "MISSED"
    print(f"target: the scheduler's peak below {format_size(TARGET_BYTES)}: {format_size(peak_bytes)}, {verdict}")
    return 0 if peak_bytes < TARGET_BYTES else 1


if __name__ == "__main__":
    sys.exit(main())
