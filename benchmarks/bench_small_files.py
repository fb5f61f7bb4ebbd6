"""Small files of 4 to 100 KiB put and read: in packs, as outputs of jobs and through S3, beside ext4, sshfs on loopback and versitygw.

Packs hold files up to 64 KiB, which the node keeps in its log; larger ones are files of their own. Jobs and S3 take all sizes: they show
what that border costs.

`ext4` syncs each file and its directory, and is what sshfs stands on (its files are synced, its directory cannot be); versitygw syncs
nothing of what it acknowledges, so it is no durable peer. Amplification: bytes that the disk wrote, from the first put to the end of the
deletes and of what the side does behind them (stager: of reclaiming its log), by each byte of content; a busy disk falsifies it.
Again: `python benchmarks/bench_small_files.py [--files N] [--rounds N] [--quick] [--steps] [--dir DIRECTORY]`.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import bench_s3
from benchmarks.measuring import Table, goal, watched, written_bytes
from benchmarks.ours import begin_job, bench_node, running_node, stage_out
from benchmarks.peers import Peers, Phases
from tests.testbed.ionode import IoNode
from tests.testbed.own_place import own_place
from tests.testbed.sshd import running_sshd
from tests.testbed.usage import machine
from tests.testbed.waiting import wait_until

SIZES_KIB = (4, 16, 64, 100)
BATCH, CLIENTS = 100, 16
GOAL_SIZES_KIB, GOAL_OF_PEER = (4, 16), 2.5
# The switch from the log to a file of its own lies between the last two sizes.
GOAL_NO_DIP, PACKED_KIB_MAX = 0.9, 64
PACKS, SINGLE, JOBS, THROUGH_S3 = "stager, packs", "stager, one by one", "stager, jobs", "stager, S3"
JOBS_AT_ONCE = 4
# Through S3 a content lies in the log up to 1 MiB and in a file of its own from there on.
STEPS_KIB, STEP_BYTES = (4, 16, 64, 100, 128, 200, 256, 300, 512, 1024, 1100, 1500, 2048), 128 << 20
DURABLE, SERVED = ["ext4", "sshfs"], ["sshfs", "versitygw"]
# Jobs, sshfs and what speaks S3 take a fifth of the files: a call or more for each makes them slow.
FEW = 5
SECTOR_BYTES, QUIET_S = 512, 1.0


def disk_of(directory: Path) -> Path:
    device = os.stat(directory).st_dev
    return Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat")


def disk_bytes(directory: Path) -> int | None:
    """Written by the disk so far; None where the directory is on none."""
    stat = disk_of(directory)
    return int(stat.read_text().split()[6]) * SECTOR_BYTES if stat.exists() else None


class Bed:
    def __init__(self, place: Path, files: int) -> None:
        self.place, self.files, self.few = place, files, files // FEW
        self.puts, self.gets, self.amplified, self.rates = Table("puts/s"), Table("gets/s"), Table("by content"), Table("MB/s")
        self.peers = Peers(place)

    @contextlib.contextmanager
    def room(self, side: str, kib: int, files: int) -> Iterator[Path]:
        """A place for one side; what its disk wrote for it is counted to the end."""
        room = self.place / "room"
        room.mkdir()
        os.sync()
        before = disk_bytes(room)
        try:
            with watched() as watch:
                yield room
                os.sync()
            after = disk_bytes(room)
            if before is not None and after is not None:
                self.amplified.add(f"{kib} KiB", side, (after - before) / (files * kib * 1024), watch.busy)
        finally:
            shutil.rmtree(room)

    def note(self, side: str, kib: int, phases: Phases, note: str = "") -> None:
        for table, phase in ((self.puts, "create"), (self.gets, "get")):
            table.add(f"{kib} KiB", side, phases[phase]["ops_per_s"], phases[phase]["busy"], note)

    def stager(self, side: str, kib: int, batch: int) -> None:
        with self.room(side, kib, self.files) as room, running_node(room, "--scrub-bytes-per-s", "0") as node:
            self.note(side, kib, bench_node(node, self.files, kib * 1024, CLIENTS if batch == 1 else 4, batch))
            wait_until(quiet(node.pid), "the node to have reclaimed its log", 120)

    def jobs(self, kib: int) -> None:
        """Each writes BATCH files into its sandbox, which are staged out together."""
        content, jobs = os.urandom(kib * 1024), range(self.few // BATCH)

        def job(node: IoNode, room: Path, number: int) -> None:
            name, sandbox = f"j{number}", room / f"sandbox{number}"
            begin_job(node, name, sandbox, BATCH * len(content))
            for n in range(BATCH):
                (sandbox / str(n)).write_bytes(content)
            stage_out(node, name, sandbox, {f"{name}-{n}": str(n) for n in range(BATCH)})

        with self.room(JOBS, kib, self.few) as room, running_node(room, "--scrub-bytes-per-s", "0") as node:
            with watched() as watch, ThreadPoolExecutor(JOBS_AT_ONCE) as pool:
                list(pool.map(lambda number: job(node, room, number), jobs))
            self.puts.add(f"{kib} KiB", JOBS, len(jobs) * BATCH / watch.took_s, watch.busy, f"{BATCH} outputs each")
            for number in jobs:
                for n in range(BATCH):
                    node.do("DELETE", f"/v1/replicas/j{number}-{n}/g")
            wait_until(quiet(node.pid), "the node to have reclaimed its log", 120)

    def ext4(self, kib: int) -> None:
        with self.room("ext4", kib, self.files) as room:
            self.note("ext4", kib, self.peers.run("synced-files", room, self.files, kib * 1024, CLIENTS))

    def sshfs(self, kib: int) -> None:
        with self.room("sshfs", kib, self.few) as room, mounted(room) as mount:
            self.note("sshfs", kib, self.peers.run("synced-files", mount, self.few, kib * 1024, CLIENTS))

    def s3(self, kib: int) -> None:
        """The same client on both; its share of the processors is in every row."""
        for name, started in (("versitygw", bench_s3.versitygw), (THROUGH_S3, lambda room: bench_s3.ours("s3", room))):
            note = "syncs nothing" if name == "versitygw" else ""
            with self.room(name, kib, self.few) as room, started(room) as side:
                self.note(name, kib, through_s3(side, self.few, kib * 1024), note)

    def round(self) -> None:
        for kib in SIZES_KIB:
            if kib <= PACKED_KIB_MAX:
                self.stager(PACKS, kib, BATCH)
                self.stager(SINGLE, kib, 1)
            self.ext4(kib)
            self.jobs(kib)
            self.sshfs(kib)
            self.s3(kib)

    def steps(self) -> None:
        """Puts through S3 of many sizes, as much content of each."""
        for kib in STEPS_KIB:
            files = min(STEP_BYTES // (kib << 10), self.few)
            with self.room(THROUGH_S3, kib, files) as room, bench_s3.ours("s3", room) as side:
                side.client.create_bucket(Bucket=bench_s3.BUCKET)
                urls = bench_s3.signed_urls(side, "put_object", files, "step")
                with watched() as watch:
                    cost = bench_s3.measure(side, "PUT", urls, os.urandom(kib << 10), CLIENTS, expected_bytes=0)
                note = f"{files / cost.wall_s:,.0f} puts/s, {cost.cpu_s / files * 1e6:,.0f} us each"
                self.rates.add(f"{kib} KiB", THROUGH_S3, files * (kib << 10) / cost.wall_s / 1e6, watch.busy, note)

    def step_goals(self) -> None:
        for smaller, larger in itertools.pairwise(STEPS_KIB):
            rows = [self.rates.rows[f"{kib} KiB", THROUGH_S3] for kib in (smaller, larger)]
            what = f"bytes/s of {THROUGH_S3} at {larger} KiB, of {smaller} KiB"
            print(goal(what, rows[1].median / rows[0].median, GOAL_NO_DIP, *rows))

    def goals(self) -> None:
        for table in (self.puts, self.gets):
            for kib in GOAL_SIZES_KIB:
                ours = table.rows[f"{kib} KiB", PACKS]
                for kind, sides in (("durable", DURABLE), ("served", SERVED)):
                    peer = table.best(f"{kib} KiB", sides)
                    what = f"{table.unit} of {kib} KiB in packs, of the best {kind} peer ({peer.side})"
                    print(goal(what, ours.median / peer.median, GOAL_OF_PEER, ours, peer))
            for side in (JOBS, THROUGH_S3) if table is self.puts else (THROUGH_S3,):
                last, over = (table.rows[f"{kib} KiB", side] for kib in SIZES_KIB[-2:])
                bytes_ratio = over.median * SIZES_KIB[-1] / (last.median * SIZES_KIB[-2])
                what = f"bytes/s of {side} at {SIZES_KIB[-1]} KiB, of {SIZES_KIB[-2]} KiB ({table.unit})"
                print(goal(what, bytes_ratio, GOAL_NO_DIP, last, over))


def quiet(pid: int) -> Callable[[], bool]:
    """Whether the process has written nothing for a while."""
    seen = {"bytes": -1, "at": 0.0}

    def is_quiet() -> bool:
        now, found = time.monotonic(), written_bytes(pid)
        if found != seen["bytes"]:
            seen.update(bytes=found, at=now)
        return now - seen["at"] >= QUIET_S

    return is_quiet


def through_s3(side: bench_s3.Side, files: int, size: int) -> Phases:
    side.client.create_bucket(Bucket=bench_s3.BUCKET)
    body, phases = os.urandom(size), {}
    for phase, method, what in (("create", "PUT", "put_object"), ("get", "GET", "get_object"), ("delete", "DELETE", "delete_object")):
        urls = bench_s3.signed_urls(side, what, files, "small")
        with watched() as watch:
            cost = bench_s3.measure(side, method, urls, body if method == "PUT" else b"", CLIENTS, expected_bytes=size)
        # What was not on disk when it was deleted would never be written.
        os.sync()
        phases[phase] = {"ops_per_s": files / cost.wall_s, "seconds": cost.wall_s, "busy": watch.busy}
    wait_until(quiet(side.pid), f"{side.name} to be quiet", 120)
    return phases


@contextlib.contextmanager
def mounted(room: Path) -> Iterator[Path]:
    """sshfs over a real sshd on loopback, as a user would mount it."""
    keys, mount = room / "sshd", room / "mount"
    keys.mkdir()
    mount.mkdir()
    with running_sshd(keys) as sshd:
        options = f"port={sshd.port},IdentityFile={sshd.identity_file},UserKnownHostsFile={sshd.known_hosts},IdentitiesOnly=yes"
        argv = ["sshfs", f"{sshd.user}@{sshd.where.address}:{sshd.data}", str(mount), "-o", options]
        subprocess.run(argv, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        try:
            yield mount
        finally:
            subprocess.run(["fusermount3", "-u", str(mount)], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=10_000, help="of each size")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a tenth of the files, one round")
    parser.add_argument("--steps", action="store_true", help="only puts through S3, of many sizes from 4 KiB to 2 MiB")
    parser.add_argument("--dir", type=Path, help="on the disk to be measured (default: a temporary one)")
    options = parser.parse_args()
    files, rounds = (options.files // 10, 1) if options.quick else (options.files, options.rounds)
    with own_place(options.dir) as made:
        bed = Bed(made, files)
        for _ in range(rounds):
            bed.steps() if options.steps else bed.round()
    if options.steps:
        print(f"{CLIENTS} clients; median of {rounds}\n{bed.rates.text()}")
        bed.step_goals()
        print(machine())
        return
    fewer = f"jobs, sshfs and S3 {bed.few:,}"
    print(f"{files:,} files of each size, {fewer}; {CLIENTS} clients, packs of {BATCH} 4; median of {rounds}; gets from memory")
    print("\n\n".join(table.text() for table in (bed.puts, bed.gets, bed.amplified)))
    bed.goals()
    print(machine())


if __name__ == "__main__":
    main()
