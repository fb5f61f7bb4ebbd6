"""What a second copy costs: a file pushed into one node, with a copy that is told of later (async), and with one that is waited for (sync).

Goals: on a shaped link async at most 10 % and sync at most 20 % slower than none, at most 2.05 network bytes per byte for two copies,
checksums on below 5 % slower than off. On loopback two cores play three hosts, so processor and disk are printed instead.
Again: `python benchmarks/bench_replication.py [--mbit N] [--mib N] [--rounds N] [--dir DIRECTORY]`.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import math
import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import httpx

from benchmarks.measuring import CPU_BOUND, machine_time, verdict, written_bytes
from tests.testbed.ionode import IoNode
from tests.testbed.network import Network, why_not
from tests.testbed.own_place import own_place
from tests.testbed.places import ionode_binary
from tests.testbed.processes import HERE, Where
from tests.testbed.usage import cpu_of, machine

MODES = ("none", "async", "sync")
GOAL_SLOWER = {"async": 1.10, "sync": 1.20}
GOAL_NETWORK = 2.05
# Processor time is told in hundredths of a second: one reading takes four of them.
READINGS = 20
READ_BYTES_MIN = 2_500_000_000
# Over each byte by crc64nvme: blocks made and checked, and the checksum that the receiver commits, for each hop.
PASSES = {"none": 3, "async": 6, "sync": 6}
GOAL_CHECKSUMS = 1.05
GB = 1e9


@dataclass(frozen=True)
class Cost:
    """Of one push, to the end of its chain."""

    duration_s: float
    network_bytes: int
    cpu_s: float
    disk_bytes: int
    busy: float


def children_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


class Rig:
    """A client, a node and a second one for the copy."""

    def __init__(self, place: Path, path: Path, client: Where, hosts: tuple[Where, Where], sent_bytes: Callable[[], int]) -> None:
        self.path, self.client, self.sent_bytes = path, client, sent_bytes
        stores = [place / name / "store" for name in "ab"]
        self.nodes = [IoNode(ionode_binary(), stores[n], 1 << 40, where=hosts[n], node_id="ab"[n]) for n in range(2)]
        self.numbers = itertools.count()

    @contextlib.contextmanager
    def running(self) -> Iterator[Rig]:
        try:
            for node in self.nodes:
                if node.where is not HERE:
                    node.listen_on_its_host()
                node.start()
            first, second = self.nodes
            first.introduce(second)
            second.introduce(first)
            yield self
        finally:
            for node in self.nodes:
                node.stop()

    def push(self, mode: str) -> Cost:
        first, second = self.nodes
        generation = f"g{next(self.numbers)}"
        argv = [ionode_binary(), "push", self.path, "--node", f"{first.address}@{first.token_file}"]
        argv += ["--file", "f", "--generation", generation]
        if mode != "none":
            argv += ["--chain", second.node_id, "--ack", mode]
        before = self._now()
        done = subprocess.run(self.client.command(argv), capture_output=True, text=True, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, done.stderr
        if mode == "async":
            self._chain_ended(generation)
        network, cpu_s, disk, busy, everything = (after - earlier for earlier, after in zip(before, self._now(), strict=True))
        for node in self.nodes:
            node.do("DELETE", f"/v1/replicas/f/{generation}")
        return Cost(json.loads(done.stdout)["duration_s"], int(network), cpu_s, int(disk), busy / max(everything, 1))

    def _now(self) -> tuple[float, ...]:
        cpu_s = sum(cpu_of(node.pid).own_s for node in self.nodes) + children_s()
        return self.sent_bytes(), cpu_s, sum(written_bytes(node.pid) for node in self.nodes), *machine_time()

    def _chain_ended(self, generation: str) -> None:
        ends = (event for event in self.nodes[0].events(wait_s=120) if event["kind"] == "replicated")
        end = next(event for event in ends if event["generation"] == generation)
        assert end["held_by"] == ["a", "b"], end


def rounds_of(rig: Rig, rounds: int) -> dict[str, list[Cost]]:
    """Turn by turn, so that what else the machine does falls on all modes alike."""
    costs: dict[str, list[Cost]] = {mode: [] for mode in MODES}
    rig.push("none")
    for _ in range(rounds):
        for mode in MODES:
            costs[mode].append(rig.push(mode))
    return costs


def middle(costs: list[Cost], what: str) -> float:
    return statistics.median(getattr(cost, what) for cost in costs)


def shaped(place: Path, path: Path, mbit: float, rounds: int) -> dict[str, float]:
    """Seconds of each mode."""
    size = path.stat().st_size
    with Network() as net:
        hosts = [net.host(name, rate_mbit_s=mbit) for name in ("client", "a", "b")]

        def sent() -> int:
            lines = [host.run(["cat", "/proc/net/dev"]).stdout for host in hosts]
            return sum(int(line.split()[9]) for text in lines for line in text.splitlines() if line.strip().startswith("eth0:"))

        with Rig(place, path, hosts[0], (hosts[1], hosts[2]), sent).running() as rig:
            costs = rounds_of(rig, rounds)
    alone = middle(costs["none"], "duration_s")
    print(f"\nThree hosts, {mbit:g} Mbit/s each way, {size >> 20} MiB, median of {rounds}; fsync on")
    print(f"{'copies':8} {'s':>7} {'MB/s':>7} {'of none':>8} {'network bytes per byte':>23} {'machine busy':>13}")
    for mode in MODES:
        took, network = middle(costs[mode], "duration_s"), middle(costs[mode], "network_bytes") / size
        busy = middle(costs[mode], "busy")
        words = []
        if mode in GOAL_SLOWER:
            words.append(f"goal {GOAL_SLOWER[mode]:.2f}: {verdict(took / alone <= GOAL_SLOWER[mode])}")
            words.append(f"goal {GOAL_NETWORK}: {verdict(network <= GOAL_NETWORK)}")
        if busy > CPU_BOUND:
            words.append("CPU-bound")
        print(f"{mode:8} {took:7.2f} {size / took / 1e6:7.1f} {took / alone:8.3f} {network:23.4f} {busy:12.0%}  {', '.join(words)}")
    return {mode: middle(costs[mode], "duration_s") for mode in MODES}


def loopback(place: Path, path: Path, rounds: int, on_link: dict[str, float]) -> None:
    size = path.stat().st_size
    with Rig(place, path, HERE, (HERE, HERE), lambda: 0).running() as rig:
        costs = rounds_of(rig, rounds)
        print(f"\nAll on this host, Unix sockets, {size >> 20} MiB, median of {rounds}; fsync on; CPU of client and nodes")
        print(f"{'copies':8} {'s':>7} {'CPU s per GB':>13} {'disk bytes per byte':>20} {'machine busy':>13}")
        for mode in MODES:
            row = costs[mode]
            cpu, disk = middle(row, "cpu_s") / size * GB, middle(row, "disk_bytes") / size
            print(f"{mode:8} {middle(row, 'duration_s'):7.2f} {cpu:13.2f} {disk:20.3f} {middle(row, 'busy'):12.0%}")
        checksums(rig, size, rounds, {mode: middle(costs[mode], "cpu_s") / size * GB for mode in MODES}, on_link)


def checksums(rig: Rig, size: int, rounds: int, pushed: dict[str, float], on_link: dict[str, float]) -> None:
    """Processor time of a node that serves a warm file: a long range, which is answered unchecked, beside the whole and blocks.

    `pushed`: processor seconds per GB of each mode, of which PASSES go over every byte; a pass costs what the whole does above the range.
    `on_link`: seconds of each mode there, which grow at most by all passes together.
    """
    node = rig.nodes[0]
    argv = [ionode_binary(), "push", rig.path, "--node", f"{node.address}@{node.token_file}", "--file", "warm", "--generation", "g"]
    subprocess.run([str(word) for word in argv], check=True, capture_output=True)
    asked = {"unchecked": {"Range": f"bytes=0-{size - 2}"}, "whole": {}, "blocks": {"Accept": "application/x-stager-blocks"}}
    readings = max(READINGS, math.ceil(READ_BYTES_MIN / size))
    spent: dict[str, list[float]] = {what: [] for what in asked}
    for _ in range(max(rounds, 5)):
        for what, headers in asked.items():
            spent[what].append(serving_s(node, headers, readings) / (readings * size) * GB)
    without, whole, blocks = (statistics.median(spent[what]) for what in asked)
    assert without > 0, f"no processor time was counted for {readings} readings: take a larger --mib"
    print(f"\nServing the warm file, CPU s per GB: {without:.3f} without checksums")
    for what, cost in (("whole, compared", whole), ("blocks with checksums", blocks)):
        print(f"  {cost:.3f} {what}: {cost / without:.3f}")
    a_pass = max(whole - without, 0)
    for mode, cost in pushed.items():
        passes = PASSES[mode] * a_pass
        print(f"  pushed, copies {mode}: {PASSES[mode]} passes, {passes:.2f} of {cost:.2f} CPU s per GB", end="")
        if mode in on_link:
            slower = on_link[mode] / (on_link[mode] - passes * size / GB)
            print(f"; on the link on against off at most {slower:.3f}  goal {GOAL_CHECKSUMS}: {verdict(slower <= GOAL_CHECKSUMS)}", end="")
        print()


def serving_s(node: IoNode, headers: dict[str, Any], readings: int) -> float:
    own = {"X-Stager-Api": "1", "X-Stager-Epoch": "1", "X-Stager-Incarnation": node.incarnation}
    token = node.token_file.read_text().strip()
    before = cpu_of(node.pid)
    transport = httpx.HTTPTransport(uds=node.rendezvous["socket"])
    with httpx.Client(transport=transport, base_url="http://node", headers={"Authorization": f"Bearer {token}"} | own) as client:
        for _ in range(readings):
            with client.stream("GET", "/v1/replicas/warm/g/content", headers=headers) as answer:
                assert answer.status_code in (200, 206), answer.read()
                assert sum(len(part) for part in answer.iter_raw()) > 0
    return (cpu_of(node.pid) - before).own_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mbit", type=float, default=200)
    parser.add_argument("--mib", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dir", type=Path, help="on the disk to be measured (default: a temporary one)")
    options = parser.parse_args()
    with own_place(options.dir) as place:
        path = place / "file"
        path.write_bytes(os.urandom(options.mib << 20))
        reason = why_not()
        on_link = {}
        if reason:
            print(f"no shaped link: {reason}")
        else:
            on_link = shaped(place / "shaped", path, options.mbit, options.rounds)
        loopback(place / "loopback", path, options.rounds, on_link)
    print(f"\n{machine()}")


if __name__ == "__main__":
    main()
