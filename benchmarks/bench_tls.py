"""What TLS costs between hosts: one file pushed into a node over a shaped link, by TLS and in plain text, in alternation.

Goal: on a link of 200 Mbit/s the rate under TLS is at least 0.97 of that without. Beside it stand processor seconds per GB.
Again: `python benchmarks/bench_tls.py [--mbit N] [--mib N] [--rounds N] [--dir DIRECTORY]`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measuring import CPU_BOUND, machine_time, verdict
from stager.adapters.authority import Authority
from tests.testbed.ionode import IoNode
from tests.testbed.network import Host, Network, why_not
from tests.testbed.own_place import own_place
from tests.testbed.places import ionode_binary
from tests.testbed.processes import children_s
from tests.testbed.usage import cpu_of, machine

GOAL_RATE = 0.97
GB = 1e9
PLAIN, TLS = "plain text", "TLS"


@dataclass(frozen=True)
class Cost:
    """Of one push."""

    duration_s: float
    cpu_s: float
    busy: float


class Rig:
    """A client and two nodes on one host: one serves TLS, the other plain text."""

    def __init__(self, place: Path, path: Path, client: Host, host: Host) -> None:
        authority = Authority(place / "cluster")
        authority.make("bench")
        tls, own = (authority.issue(role, place / name).dir for role, name in (("node/tls", "tls"), ("scheduler", "own")))
        listen = ["--tcp", f"{host.address}:0"]
        options = {PLAIN: ("plain", [*listen, "--trust-network"]), TLS: ("tls", [*listen, "--tls-dir", str(tls)])}
        self.path, self.client, self.own = path, client, own
        self.nodes = {
            way: IoNode(ionode_binary(), place / name / "store", 1 << 40, where=host, node_id=name, options=words)
            for way, (name, words) in options.items()
        }

    def push(self, way: str, generation: str) -> Cost:
        node = self.nodes[way]
        shown = self.own if way == TLS else node.token_file
        argv: list[str | Path] = [
            ionode_binary(),
            "push",
            self.path,
            "--node",
            f"{node.address}@{shown}",
            "--file",
            "f",
            "--generation",
            generation,
        ]
        before, busy = cpu_of(node.pid).own_s + children_s(), machine_time()
        done = subprocess.run(self.client.command(argv), capture_output=True, text=True, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, done.stderr
        cpu_s, after = cpu_of(node.pid).own_s + children_s() - before, machine_time()
        node.do("DELETE", f"/v1/replicas/f/{generation}")
        return Cost(json.loads(done.stdout)["duration_s"], cpu_s, (after[0] - busy[0]) / max(after[1] - busy[1], 1))


def measured(place: Path, path: Path, mbit: float, rounds: int) -> None:
    size = path.stat().st_size
    costs: dict[str, list[Cost]] = {PLAIN: [], TLS: []}
    with Network() as net:
        client, host = (net.host(name, rate_mbit_s=mbit) for name in ("client", "node"))
        rig = Rig(place, path, client, host)
        try:
            for node in rig.nodes.values():
                node.start()
            for number in range(rounds + 1):
                for way, row in costs.items():
                    cost = rig.push(way, f"g{number}")
                    # The first one warms up.
                    row.extend([cost] if number else [])
        finally:
            for node in rig.nodes.values():
                node.stop()
    print(f"Two hosts, {mbit:g} Mbit/s each way, {size >> 20} MiB, median of {rounds}; CPU of client and node; fsync on")
    print(f"{'':10} {'MB/s':>7} {'from':>7} {'to':>7} {'CPU s per GB':>13} {'machine busy':>13}")
    rates = {way: [size / cost.duration_s / 1e6 for cost in row] for way, row in costs.items()}
    for way, row in costs.items():
        cpu, busy = (statistics.median(getattr(cost, what) for cost in row) for what in ("cpu_s", "busy"))
        rate, mark = rates[way], "  CPU-bound" if busy > CPU_BOUND else ""
        print(f"{way:10} {statistics.median(rate):7.2f} {min(rate):7.2f} {max(rate):7.2f} {cpu / size * GB:13.2f} {busy:12.0%}{mark}")
    share = statistics.median(rates[TLS]) / statistics.median(rates[PLAIN])
    print(f"TLS of plain text: {share:.3f}  goal: {GOAL_RATE}: {verdict(share >= GOAL_RATE)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mbit", type=float, default=200)
    parser.add_argument("--mib", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dir", type=Path, help="on the disk to be measured (default: a temporary one)")
    options = parser.parse_args()
    reason = why_not()
    if reason:
        sys.exit(f"no shaped link: {reason}")
    with own_place(options.dir) as made:
        path = made / "file"
        path.write_bytes(os.urandom(options.mib << 20))
        measured(made, path, options.mbit, options.rounds)
    print(f"\n{machine()}")


if __name__ == "__main__":
    main()
