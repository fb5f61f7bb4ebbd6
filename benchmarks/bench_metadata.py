"""Create, stat and delete of zero-length files in one directory: through the node's API and in its store, beside ext4, Redis and LMDB.

On disk when acknowledged: all of stager, LMDB and `Redis, synced`; `ext4, each synced` (fsync of the file and of the directory);
`ext4` syncs its directory once at the end, `Redis, everysec` may lose a second. One by one with few clients is bound by the syncs of the
disk, so fewer files are made there, and the rate of the disk's own syncs stands beside it.
Again: `python benchmarks/bench_metadata.py [--files N] [--rounds N] [--quick] [--dir DIRECTORY]`.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measuring import Table, goal
from benchmarks.ours import bench_node, bench_store, running_node
from benchmarks.peers import Peers, Phases, running_redis
from tests.testbed.own_place import own_place
from tests.testbed.usage import machine

BATCH, BATCH_CLIENTS = 1000, 4
CLIENTS = (1, 4, 32)
# Of all files, those that are made one by one by so many clients.
SHARE = {1: 1 / 1000, 4: 1 / 200, 32: 1 / 10}
SYNCED_FILES = 1000
GOALS = {"batched creates/s": 100_000, "creates/s one by one from 32": 25_000, "batched stats/s": 200_000}
GOAL_OF_SYNCS = 0.8
HTTP, STORE = "stager, HTTP", "stager, in process"


class Bed:
    """Each side works in a place of its own that is removed after it."""

    def __init__(self, place: Path, files: int) -> None:
        self.place, self.files, self.table = place, files, Table("per second")
        self.peers = Peers(place)

    def note(self, way: str, side: str, phases: Phases) -> None:
        for name in ("create", "stat", "delete"):
            self.table.add(f"{name}, {way}", side, phases[name]["ops_per_s"], phases[name]["busy"])

    def apart(self, work: Callable[[Path], None]) -> None:
        room = self.place / "room"
        room.mkdir()
        try:
            work(room)
        finally:
            shutil.rmtree(room)

    def batched(self) -> None:
        way = f"batches of {BATCH:,}"
        several = {"clients": BATCH_CLIENTS, "batch": BATCH}

        def over_http(room: Path) -> None:
            with running_node(room) as node:
                self.note(way, HTTP, bench_node(node, self.files, **several))

        def redis(fsync: str, side: str) -> Callable[[Path], None]:
            def work(room: Path) -> None:
                with running_redis(room / "redis", fsync) as port:
                    if port:
                        self.note(way, side, self.peers.run("redis", port, self.files, **several))

            return work

        self.apart(over_http)
        self.apart(lambda room: self.note(way, STORE, bench_store(room / "store", self.files, **several)))
        self.apart(redis("always", "Redis, synced"))
        self.apart(redis("everysec", "Redis, everysec"))
        if self.peers.has_lmdb:
            self.apart(lambda room: self.note(way, "LMDB, 1 client", self.peers.run("lmdb", room, self.files, batch=BATCH)))
        self.apart(lambda room: self.note(way, "ext4", self.peers.run("files", room, self.files, clients=BATCH_CLIENTS)))

    def one_by_one(self, clients: int) -> None:
        way = f"one by one, {clients} client{'s' if clients > 1 else ''}"
        files = max(int(self.files * SHARE[clients]), clients)
        synced = min(files, SYNCED_FILES)

        def over_http(room: Path) -> None:
            with running_node(room) as node:
                self.note(way, HTTP, bench_node(node, files, clients=clients))

        def redis(room: Path) -> None:
            with running_redis(room / "redis", "always") as port:
                if port:
                    self.note(way, "Redis, synced", self.peers.run("redis", port, files, clients=clients))

        self.apart(over_http)
        self.apart(lambda room: self.note(way, STORE, bench_store(room / "store", files, clients=clients)))
        self.apart(redis)
        self.apart(lambda room: self.note(way, "ext4, each synced", self.peers.run("synced-files", room, synced, clients=clients)))
        if clients == 1:
            if self.peers.has_lmdb:
                self.apart(lambda room: self.note(way, "LMDB", self.peers.run("lmdb", room, synced)))
            self.apart(self.syncs)

    def syncs(self, room: Path) -> None:
        found = self.peers.run("sync", room / "blocks", SYNCED_FILES)["sync"]
        self.table.add("a block and its fdatasync", "disk", found["ops_per_s"], found["busy"])

    def goals(self) -> None:
        table, rows = self.table, self.table.rows
        cases = {"batched creates/s": f"create, batches of {BATCH:,}", "creates/s one by one from 32": "create, one by one, 32 clients"}
        cases["batched stats/s"] = f"stat, batches of {BATCH:,}"
        for what, wanted in GOALS.items():
            row = rows[cases[what], HTTP]
            print(goal(what, row.median, wanted, row))
        alone = rows["create, one by one, 1 client", HTTP]
        of_syncs = alone.median / table.median("a block and its fdatasync", "disk")
        print(goal("creates/s of one client, of the disk's syncs", of_syncs, GOAL_OF_SYNCS, alone))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=1, help="one of a million files takes minutes")
    parser.add_argument("--quick", action="store_true", help="a fiftieth of the files, one round")
    parser.add_argument("--dir", type=Path, help="on the disk to be measured (default: a temporary one)")
    options = parser.parse_args()
    files, rounds = (options.files // 50, 1) if options.quick else (options.files, options.rounds)
    with own_place(options.dir) as made:
        bed = Bed(made, files)
        for _ in range(rounds):
            bed.batched()
            for clients in CLIENTS:
                bed.one_by_one(clients)
    print(f"{files:,} zero-length files in one directory, median of {rounds}; batches from {BATCH_CLIENTS} clients")
    print(bed.table.text())
    bed.goals()
    print(machine())


if __name__ == "__main__":
    main()
