"""An N-N checkpoint: writers that each write a file in 16 KiB writes, to the end of the fsync, and readers of a cold cache.

Ours: each writer works in its job's sandbox and its output is staged out (hashed, fsynced, committed); another job then stages the files in
by link and reads them. Beside it the file system itself: the same writes with fsync, the same reads. Both by one C program that checks what
it reads. First on a disk that the kernel holds to a rate (--disk-mb-s), so that the disk is the limit; then on the disk as it is; rows
there in which the machine was busy say CPU-bound: the disk is not their limit.
Again: `python benchmarks/bench_checkpoint.py [--mib N] [--disk-mb-s N] [--rounds N] [--quick] [--dir DIRECTORY]`; needs root.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measuring import Table, goal, watched
from benchmarks.ours import begin_job, running_node, stage_out
from benchmarks.peers import Peers
from benchmarks.slow_disk import slow_disk, why_not
from tests.testbed.ionode import IoNode
from tests.testbed.own_place import own_place
from tests.testbed.usage import machine

WRITERS = (8, 16, 64)
CHUNK_BYTES = 16 << 10
GOAL_OF_RAW = 0.95
# Of the bytes, those on the slow disk.
SLOW_SHARE = 4
OURS, RAW = "stager", "file system"
DROP_CACHES = Path("/proc/sys/vm/drop_caches")


def drop_caches() -> None:
    os.sync()
    DROP_CACHES.write_text("3")


class Bed:
    def __init__(self, place: Path, size: int) -> None:
        self.place, self.size, self.table = place, size, Table("MB/s")
        self.peers = Peers(place)

    def each(self, writers: int) -> int:
        return self.size // writers // CHUNK_BYTES * CHUNK_BYTES

    def note(self, phase: str, side: str, writers: int, took_s: float, busy: float) -> None:
        self.table.add(f"{phase}, {writers} files", side, self.each(writers) * writers / took_s / 1e6, busy)

    def raw(self, writers: int) -> None:
        room = self.place / "raw"
        room.mkdir()
        paths = [room / f"out{n}" for n in range(writers)]
        for phase, what in (("write", "write-synced"), ("cold read", "read")):
            drop_caches()
            with watched() as watch:
                self.peers.checkpoint(what, self.each(writers), paths)
            self.note(phase, RAW, writers, watch.took_s, watch.busy)
        shutil.rmtree(room)

    def ours(self, writers: int) -> None:
        room = self.place / "ours"
        room.mkdir()
        with running_node(room, "--scrub-bytes-per-s", "0") as node:
            jobs = Jobs(node, room, writers, self.each(writers))
            jobs.begin()
            drop_caches()
            with watched() as watch:
                with ThreadPoolExecutor(writers) as pool:
                    staged_out = [pool.submit(jobs.stage_out, n) for n in self.peers.writing(self.each(writers), jobs.outputs())]
                    answers = [future.result() for future in staged_out]
            assert len(answers) == writers
            self.note("write", OURS, writers, watch.took_s, watch.busy)
            drop_caches()
            with watched() as watch:
                self.peers.checkpoint("read", self.each(writers), jobs.reader())
            self.note("cold read", OURS, writers, watch.took_s, watch.busy)
        shutil.rmtree(room)

    def goals(self) -> None:
        for phase in ("write", "cold read"):
            for writers in WRITERS:
                case = f"{phase}, {writers} files"
                ours, raw = (self.table.rows[case, side] for side in (OURS, RAW))
                print(goal(f"{case}, of the file system", ours.median / raw.median, GOAL_OF_RAW, ours))


class Jobs:
    """The writers of one checkpoint and the job that reads it, as the scheduler's workers would treat them."""

    def __init__(self, node: IoNode, room: Path, writers: int, each_bytes: int) -> None:
        self.node, self.room, self.numbers, self.each_bytes = node, room, range(writers), each_bytes

    def sandbox(self, number: int) -> Path:
        return self.room / f"sandbox{number}"

    def outputs(self) -> list[Path]:
        return [self.sandbox(number) / "out" for number in self.numbers]

    def begin(self) -> None:
        for number in self.numbers:
            begin_job(self.node, f"w{number}", self.sandbox(number), self.each_bytes)

    def stage_out(self, number: int) -> None:
        stage_out(self.node, f"w{number}", self.sandbox(number), {f"f{number}": "out"})

    def reader(self) -> list[Path]:
        """What the reaper would bind into the reader's sandbox."""
        inputs = [{"file_id": f"f{number}", "generation": "g", "path": f"in{number}", "access": "link"} for number in self.numbers]
        body = {"sandbox_dir": str(self.room / "reader"), "inputs": inputs}
        mounts = self.node.do("POST", "/v1/attempts/reader/stage-in", body)["mounts"]
        by_target = {Path(mount["target"]).name: Path(mount["source"]) for mount in mounts}
        return [by_target[f"in{number}"] for number in self.numbers]


def compared(bed: Bed, where: str, rounds: int) -> None:
    for number in range(rounds):
        for writers in WRITERS:
            for side in (bed.raw, bed.ours) if number % 2 == 0 else (bed.ours, bed.raw):
                side(writers)
    print(f"\n{bed.size >> 20} MiB over all files on {where}, writes of 16 KiB, fsync in the end, median of {rounds}")
    print(bed.table.text())
    bed.goals()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=1024, help="of a checkpoint, over all its files")
    parser.add_argument("--disk-mb-s", type=int, default=100, help="rate of the disk that is the limit")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="an eighth of the bytes, one round")
    parser.add_argument("--dir", type=Path, help="on the disk to be measured (default: a temporary one)")
    options = parser.parse_args()
    if not os.access(DROP_CACHES, os.W_OK):
        sys.exit("a cold read needs the page cache dropped, which needs root")
    mib, rounds = (options.mib // 8, 1) if options.quick else (options.mib, options.rounds)
    reason = why_not()
    with own_place(options.dir) as place:
        if reason:
            print(f"no disk of a known rate: {reason}")
        else:
            slow_mib = mib // SLOW_SHARE
            with slow_disk(place, (4 * slow_mib + 512) << 20, options.disk_mb_s * 1_000_000) as disk:
                compared(Bed(disk, slow_mib << 20), f"a disk of {options.disk_mb_s} MB/s", rounds)
        compared(Bed(place, mib << 20), "the disk as it is", rounds)
    print(f"\n{machine()}")


if __name__ == "__main__":
    main()
