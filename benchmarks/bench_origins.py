"""Origins at link speed: one large file and many small ones over a long, capped line, beside the usual tools, in one run.

Two hosts of the bed: `lab` behind the line serves, `node0` fetches. Ours is the I/O node (`serve`): every byte hashed, every file on disk
before it counts; the peers write and forget. Share: of what iperf3 carried in the same run. CPU: of the client's processes, per GB.
Busy: of the whole machine, which plays both hosts, the line and the kernel between; above 85 % a row says something of the machine and not
of the client, and is marked. Goals: 90 % of the link, ahead of every peer below that, at most 1.2 times the processor time of
OpenSSH's sftp.
Again: `python benchmarks/bench_origins.py [--large-mb 1000] [--small 10000] [--rate 200] [--origins sftp,s3] [--only stager]`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.fetching import Ours, Peer, Wanted, s3_peers, sftp_peers
from tests.testbed.delay_line import enter
from tests.testbed.network import Host, Network, Wan, why_not
from tests.testbed.places import ionode_binary
from tests.testbed.processes import Server
from tests.testbed.s3 import S3, running_s3
from tests.testbed.sshd import running_sshd
from tests.testbed.usage import machine

GOAL_SHARE, GOAL_CPU, CPU_BOUND = 0.90, 1.2, 0.85
BUCKET = "bench"


@dataclass(frozen=True)
class Row:
    name: str
    rate: float
    cpu_s_per_gb: float
    busy: float
    files_per_s: float


def busy_ticks() -> tuple[int, int]:
    """Of all cores since the boot: busy, and all."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


def measured(peer: Peer, wanted: Wanted, rounds: int, scratch: Path) -> Row | str:
    """The median of the rounds; a text says why there is none."""
    if peer.missing:
        return peer.missing
    rates, cpu, busy = [], [], []
    for number in range(rounds):
        target = scratch / f"target{number}"
        target.mkdir()
        try:
            with peer.ready() as fetch:
                ticks, begun = busy_ticks(), time.monotonic()
                cpu_s = fetch(wanted, target)
                taken_s, after = time.monotonic() - begun, busy_ticks()
            peer.check(wanted, target)
        except (subprocess.SubprocessError, AssertionError, OSError) as error:
            return f"failed: {' '.join(str(error).split())[:160]}"
        finally:
            shutil.rmtree(target)
        rates.append(wanted.size_bytes / taken_s)
        cpu.append(cpu_s / (wanted.size_bytes / 1e9))
        busy.append((after[0] - ticks[0]) / (after[1] - ticks[1]))
    rate = statistics.median(rates)
    return Row(peer.name, rate, statistics.median(cpu), statistics.median(busy), rate * len(wanted.paths) / wanted.size_bytes)


def link_bytes_per_s(lab: Host, node: Host, log: Path) -> float:
    """What one connection of iperf3 brings once it is at speed."""
    port = lab.free_port()
    server = Server(["iperf3", "-s", "-1", "-p", str(port)], log, where=lab)
    server.start()
    try:
        argv = ["iperf3", "-c", lab.address, "-p", port, "-R", "-O2", "-t5", "-J", "--connect-timeout", "5000"]
        for last_try in (False, False, True):
            done = subprocess.run(node.command(argv), capture_output=True, text=True, timeout=60)
            if done.returncode == 0 or last_try:
                break
            time.sleep(0.3)
        assert done.returncode == 0, f"iperf3: {done.stdout[-300:]}"
        return float(json.loads(done.stdout)["end"]["sum_received"]["bits_per_second"]) / 8
    finally:
        server.stop()


def make_files(place: Path, large_mb: int, count: int, size_bytes: int) -> tuple[Wanted, Wanted]:
    place.mkdir(parents=True, exist_ok=True)
    with (place / "large.bin").open("wb") as large:
        for _ in range(large_mb):
            large.write(os.urandom(1_000_000))
    (place / "small").mkdir()
    names = [f"small/f{number:06d}" for number in range(count)]
    for name in names:
        (place / name).write_bytes(os.urandom(size_bytes))
    old = time.time() - 3600
    for name in ["large.bin", *names]:
        os.utime(place / name, (old, old))
    return Wanted("large.bin", ("large.bin",), large_mb * 1_000_000), Wanted("small", tuple(names), count * size_bytes)


def put_objects(s3: S3, lab: Host, source: Path, everything: tuple[Wanted, Wanted]) -> None:
    """As any client would, so that they have the ETags that objects have; from the server's own host, so that it is quick."""
    with lab.inside():
        client = s3.client()
        client.create_bucket(Bucket=BUCKET)
        client.upload_file(str(source / everything[0].root), BUCKET, everything[0].root)
    with ThreadPoolExecutor(4, initializer=enter, initargs=(lab.namespace,)) as pool:
        list(pool.map(lambda path: client.put_object(Bucket=BUCKET, Key=path, Body=(source / path).read_bytes()), everything[1].paths))
    shutil.rmtree(source)


@dataclass
class Table:
    link: float
    missed: list[str] = field(default_factory=list)

    def show(self, title: str, rows: list[tuple[Peer, Row | str]]) -> None:
        print(f"\n{title}")
        print(f"{'':<28}{'MB/s':>8}{'of link':>9}{'files/s':>9}{'CPU s/GB':>10}{'busy':>7}")
        for peer, row in rows:
            if isinstance(row, str):
                print(f"{peer.name:<28}not measured: {row}")
                continue
            note = "   CPU-bound" if row.busy > CPU_BOUND else ""
            figures = f"{row.rate / 1e6:>8.1f}{row.rate / self.link:>9.0%}{row.files_per_s:>9.0f}{row.cpu_s_per_gb:>10.2f}{row.busy:>7.0%}"
            print(f"{row.name:<28}{figures}{note}")
        self._judge(title, [row for _, row in rows if isinstance(row, Row)])

    def _judge(self, title: str, rows: list[Row]) -> None:
        ours = next((row for row in rows if row.name == "stager"), None)
        if ours is None:
            self.missed.append(f"{title}: not measured")
            return
        best = max((row.rate for row in rows if row is not ours), default=0.0)
        told = []
        if ours.rate < GOAL_SHARE * self.link:
            told.append(f"{ours.rate / self.link:.0%} of the link, the goal is {GOAL_SHARE:.0%}")
        if ours.rate < min(best, GOAL_SHARE * self.link):
            told.append("a peer is ahead")
        reference = next((row for row in rows if row.name == "OpenSSH sftp"), None)
        if reference and ours.cpu_s_per_gb > GOAL_CPU * reference.cpu_s_per_gb:
            told.append(f"{ours.cpu_s_per_gb / reference.cpu_s_per_gb:.1f} times the processor time of OpenSSH, the goal is {GOAL_CPU}")
        if ours.busy > CPU_BOUND:
            told.append("CPU-bound: the rate claims nothing")
        print("goals: " + ("met" if not told else "; ".join(told)))
        self.missed += [f"{title}: {what}" for what in told]


@contextlib.contextmanager
def sites(given: argparse.Namespace, lab: Host, node: Host, place: Path) -> Iterator[list[tuple[str, Wanted, list[Peer]]]]:
    """Each origin with what is to be fetched from it and by whom. The origins' data is in memory: their disk is not measured."""
    ours = Ours(ionode_binary(), node, place / "store")
    found = []
    with contextlib.ExitStack() as stack:
        if "sftp" in given.origins:
            (place / "ssh").mkdir(mode=0o700)
            server = stack.enter_context(running_sshd(place / "ssh", Path(given.data) / "sftp", where=lab))
            for wanted in make_files(server.data, given.large_mb, given.small, given.small_kib * 1024):
                found.append(("sftp", wanted, [ours.fetching(server.origin()), *sftp_peers(server, node, wanted, place)]))
        if "s3" in given.origins:
            (Path(given.data) / "s3").mkdir()
            s3 = stack.enter_context(running_s3(Path(given.data) / "s3", where=lab))
            wanted_there = make_files(place / "objects", given.large_mb, given.small, given.small_kib * 1024)
            put_objects(s3, lab, place / "objects", wanted_there)
            for wanted in wanted_there:
                found.append(("s3", wanted, [ours.fetching(s3.origin(BUCKET)), *s3_peers(s3, BUCKET, node, wanted, place)]))
        yield found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rtt-ms", type=float, default=30.0)
    parser.add_argument("--rate", type=float, default=200.0, help="of the line, in Mbit/s")
    parser.add_argument("--large-mb", type=int, default=200)
    parser.add_argument("--small", type=int, default=2000, help="how many small files")
    parser.add_argument("--small-kib", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--origins", type=lambda text: text.split(","), default=["sftp", "s3"])
    parser.add_argument("--what", choices=["large", "small", "both"], default="both")
    parser.add_argument("--only", default="", help="names of rows to measure, by a part of them, with commas between")
    parser.add_argument("--dir", help="where files are fetched to; the disk there counts")
    given = parser.parse_args()
    reason = why_not()
    if reason:
        print(f"not measured: {reason}")
        return 0
    call = tempfile.TemporaryDirectory
    with call(prefix="sb-", dir=given.dir) as place, call(prefix="sb-", dir="/dev/shm") as data, Network() as net:
        given.data = data
        lab, node = net.host("lab", wan=Wan(given.rtt_ms / 1000, given.rate)), net.host("node0")
        table = Table(link_bytes_per_s(lab, node, Path(place) / "iperf3.log"))
        print(f"line: RTT {given.rtt_ms:g} ms, {given.rate:g} Mbit/s; iperf3 carries {table.link / 1e6:.1f} MB/s; {given.rounds} rounds")
        print(machine())
        only = [part for part in given.only.split(",") if part]
        with sites(given, lab, node, Path(place)) as found:
            for kind, wanted, peers in found:
                if given.what == ("small" if wanted.is_large else "large"):
                    continue
                asked = [peer for peer in peers if not only or any(part in peer.name for part in only)]
                rows = [(peer, measured(peer, wanted, given.rounds, Path(place))) for peer in asked]
                what = (
                    f"{len(wanted.paths):,} files of {given.small_kib} KiB" if len(wanted.paths) > 1 else f"one file of {given.large_mb} MB"
                )
                table.show(f"{kind}: {what}", rows)
    print("\n" + ("all goals met" if not table.missed else "MISSED:\n  " + "\n  ".join(table.missed)))
    return 1 if table.missed else 0


if __name__ == "__main__":
    sys.exit(main())
