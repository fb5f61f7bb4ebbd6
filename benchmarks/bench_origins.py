"""Origins at link speed: one large file and many small ones over a long, capped line, beside the usual tools, in one run.

Two hosts of the bed: `lab` behind the line serves, `node0` fetches. Ours is the I/O node (`serve`): every byte hashed, every file on disk
before it counts; the peers write and forget. Share: of what iperf3 carried in the same run. CPU: of the client's processes, per GB, and
how many times that of OpenSSH's sftp for the same files. Busy: of the whole machine, which plays both hosts, the line and the kernel
between; above 85 % a row says something of the machine and not of the client, and is marked. A row of small files is stopped after
`--row-s` seconds (120) and then shows the rate until there: rclone would take an hour. All rows together take about 45 minutes, and none
begins after `--minutes` (60). Goals: 90 % of the link, ahead of every peer below that, at most 1.2 times the processor time of OpenSSH.
Again: `python benchmarks/bench_origins.py [--quick] [--large-mb 1000] [--small 10000] [--rate 200] [--origins sftp,s3] [--only stager]`.
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
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.fetching import OPENSSH, Ours, OutOfTime, Peer, Wanted, http_peers, s3_peers, sftp_peers
from tests.testbed.delay_line import enter
from tests.testbed.network import Host, Network, Wan, why_not
from tests.testbed.own_place import own_place
from tests.testbed.places import ionode_binary
from tests.testbed.processes import Server
from tests.testbed.s3 import S3, running_s3
from tests.testbed.sshd import running_sshd
from tests.testbed.usage import machine
from tests.testbed.web import running_web

GOAL_SHARE, GOAL_CPU, CPU_BOUND = 0.90, 1.2, 0.85
BUCKET = "bench"
FULL = {"large_mb": 1000, "small": 10_000, "row_s": 120, "minutes": 60}
# sshfs takes 143 s for the whole file where it was measured; there is no rate of a part of one.
LARGE_S_MAX = 400.0


@dataclass(frozen=True)
class Row:
    name: str
    rate: float
    cpu_s_per_gb: float
    busy: float
    files_per_s: float
    cut: bool


def busy_ticks() -> tuple[int, int]:
    """Of all cores since the boot: busy, and all."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


def measured(peer: Peer, wanted: Wanted, rounds: int, scratch: Path) -> Row | str:
    """The median of the rounds; a text says why there is none."""
    if peer.missing:
        return peer.missing
    rates, cpu, busy, cut = [], [], [], False
    for number in range(rounds):
        target = scratch / f"target{number}"
        target.mkdir()
        try:
            with peer.ready() as fetch:
                ticks, begun, brought_bytes = busy_ticks(), time.monotonic(), wanted.size_bytes
                try:
                    cpu_s = fetch(wanted, target)
                    taken_s, after = time.monotonic() - begun, busy_ticks()
                    peer.check(wanted, target)
                except OutOfTime as stopped:
                    taken_s, after = time.monotonic() - begun, busy_ticks()
                    cut, cpu_s, brought_bytes = True, stopped.cpu_s, peer.brought_bytes(target)
                    assert brought_bytes and not wanted.is_large, f"not done within {wanted.limit_s:g} s"
        except (subprocess.SubprocessError, AssertionError, OSError) as error:
            return f"failed: {' '.join(str(error).split())[:160]}"
        finally:
            shutil.rmtree(target)
        rates.append(brought_bytes / taken_s)
        cpu.append(cpu_s / (brought_bytes / 1e9))
        busy.append((after[0] - ticks[0]) / (after[1] - ticks[1]))
    rate = statistics.median(rates)
    return Row(peer.name, rate, statistics.median(cpu), statistics.median(busy), rate * len(wanted.paths) / wanted.size_bytes, cut)


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


def make_files(place: Path, given: argparse.Namespace) -> tuple[Wanted, Wanted]:
    size_bytes = given.small_kib * 1024
    place.mkdir(parents=True, exist_ok=True)
    with (place / "large.bin").open("wb") as large:
        for _ in range(given.large_mb):
            large.write(os.urandom(1_000_000))
    (place / "small").mkdir()
    names = [f"small/f{number:06d}" for number in range(given.small)]
    for name in names:
        (place / name).write_bytes(os.urandom(size_bytes))
    old = time.time() - 3600
    for name in ["large.bin", *names]:
        os.utime(place / name, (old, old))
    large = Wanted("large.bin", ("large.bin",), given.large_mb * 1_000_000, LARGE_S_MAX)
    return large, Wanted("small", tuple(names), given.small * size_bytes, given.row_s)


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
    title: str = ""
    is_large: bool = True
    rows: list[Row] = field(default_factory=list)
    # OpenSSH's processor time per GB, of the large file and of the small ones.
    openssh: dict[bool, float] = field(default_factory=dict)

    def begin(self, kind: str, wanted: Wanted, given: argparse.Namespace) -> None:
        small = f"{len(wanted.paths):,} files of {given.small_kib} KiB"
        self.title = f"{kind}: " + (f"one file of {given.large_mb} MB" if wanted.is_large else small)
        self.is_large, self.rows = wanted.is_large, []
        print(f"\n{self.title}")
        print(f"{'':<24}{'MB/s':>8}{'of link':>9}{'files/s':>9}{'CPU s/GB':>10}{'OpenSSH x':>11}{'busy':>7}", flush=True)

    def show(self, peer: Peer, row: Row | str) -> None:
        if isinstance(row, str):
            print(f"{peer.name:<24}not measured: {row}", flush=True)
            return
        self.rows.append(row)
        if row.name == OPENSSH:
            self.openssh[self.is_large] = row.cpu_s_per_gb
        times = f"{ratio:.2f}" if (ratio := self.of_openssh(row)) else "-"
        note = ("   CPU-bound" if row.busy > CPU_BOUND else "") + ("   cut" if row.cut else "")
        figures = (
            f"{row.rate / 1e6:>8.1f}{row.rate / self.link:>9.0%}{row.files_per_s:>9.0f}{row.cpu_s_per_gb:>10.2f}{times:>11}{row.busy:>7.0%}"
        )
        print(f"{row.name:<24}{figures}{note}", flush=True)

    def of_openssh(self, row: Row) -> float | None:
        reference = self.openssh.get(self.is_large)
        return row.cpu_s_per_gb / reference if reference else None

    def judge(self) -> None:
        ours = next((row for row in self.rows if row.name == "stager"), None)
        if ours is None:
            self.missed.append(f"{self.title}: not measured")
            return
        best = max((row.rate for row in self.rows if row is not ours), default=0.0)
        told = []
        if ours.rate < GOAL_SHARE * self.link:
            told.append(f"{ours.rate / self.link:.0%} of the link, the goal is {GOAL_SHARE:.0%}")
        if ours.rate < min(best, GOAL_SHARE * self.link):
            told.append("a peer is ahead")
        if (ratio := self.of_openssh(ours) or 0.0) > GOAL_CPU:
            told.append(f"{ratio:.1f} times the processor time of OpenSSH, the goal is {GOAL_CPU}")
        if ours.busy > CPU_BOUND:
            told.append("CPU-bound: the rate claims nothing")
        print("goals: " + ("met" if not told else "; ".join(told)), flush=True)
        self.missed += [f"{self.title}: {what}" for what in told]


@contextlib.contextmanager
def site(kind: str, given: argparse.Namespace, lab: Host, node: Host, place: Path) -> Iterator[list[tuple[Wanted, list[Peer]]]]:
    """What is to be fetched from an origin of this kind and by whom. Its data is in memory: its disk is not measured."""
    ours = Ours(ionode_binary(), node, place / "store")
    data = given.data / kind
    (place / kind).mkdir(mode=0o700)
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, data, ignore_errors=True)
        if kind == "sftp":
            server = stack.enter_context(running_sshd(place / kind, data, where=lab))
            both = make_files(server.data, given)
            yield [(wanted, [ours.fetching(server.origin()), *sftp_peers(server, node, wanted, place)]) for wanted in both]
        elif kind == "s3":
            data.mkdir()
            s3 = stack.enter_context(running_s3(data, where=lab))
            both = make_files(place / "objects", given)
            put_objects(s3, lab, place / "objects", both)
            yield [(wanted, [ours.fetching(s3.origin(BUCKET)), *s3_peers(s3, BUCKET, node, wanted, place)]) for wanted in both]
        else:
            web = stack.enter_context(running_web(data, "autoindex on;", where=lab))
            yield [(wanted, [ours.fetching(web.origin()), *http_peers(web, node, wanted, place)]) for wanted in make_files(web.data, given)]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="100 MB, 1,000 small files, 20 s for a row of small files, 12 minutes for all")
    parser.add_argument("--rtt-ms", type=float, default=30.0)
    parser.add_argument("--rate", type=float, default=200.0, help="of the line, in Mbit/s")
    parser.add_argument("--large-mb", type=int)
    parser.add_argument("--small", type=int, help="how many small files")
    parser.add_argument("--small-kib", type=int, default=64)
    parser.add_argument("--row-s", type=float, help="a row of small files is cut then, and its rate is of what it brought")
    parser.add_argument("--minutes", type=float, help="no row begins after that")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--origins", type=lambda text: text.split(","), default=["sftp", "s3", "http"])
    parser.add_argument("--what", choices=["large", "small", "both"], default="both")
    parser.add_argument("--only", type=lambda text: text.split(","), default=[], help="names of rows to measure, by a part of them")
    parser.add_argument("--dir", help="where files are fetched to; the disk there counts")
    given = parser.parse_args()
    usual = {"large_mb": 100, "small": 1000, "row_s": 20, "minutes": 12} if given.quick else FULL
    vars(given).update({name: value for name, value in usual.items() if getattr(given, name) is None})
    return given


def main() -> int:
    given = arguments()
    if reason := why_not():
        print(f"not measured: {reason}")
        return 0
    over_at_s = time.monotonic() + given.minutes * 60
    with own_place(given.dir) as place, own_place("/dev/shm") as data, Network() as net:
        given.data = data
        lab, node = net.host("lab", wan=Wan(given.rtt_ms / 1000, given.rate)), net.host("node0")
        table = Table(link_bytes_per_s(lab, node, place / "iperf3.log"))
        print(f"line: RTT {given.rtt_ms:g} ms, {given.rate:g} Mbit/s; iperf3 carries {table.link / 1e6:.1f} MB/s; {given.rounds} rounds")
        print(f"{machine()}\nat most {given.minutes:g} minutes", flush=True)
        for kind in given.origins:
            with site(kind, given, lab, node, place) as found:
                for wanted, peers in found:
                    if given.what == ("small" if wanted.is_large else "large"):
                        continue
                    asked = [peer for peer in peers if not given.only or any(part in peer.name for part in given.only)]
                    table.begin(kind, wanted, given)
                    for peer in asked:
                        in_time = time.monotonic() < over_at_s
                        table.show(peer, measured(peer, wanted, given.rounds, place) if in_time else "the time for all was over")
                    table.judge()
    print("\n" + ("all goals met" if not table.missed else "MISSED:\n  " + "\n  ".join(table.missed)))
    return 1 if table.missed else 0


if __name__ == "__main__":
    sys.exit(main())
