"""What several I/O nodes bring: one client that reads a cold and a warm file through 1 to 8 of them, and 4 writers into 1 to 4 of them.

The origin is an sftp server behind a long line; beside the nodes stand what a user would do without them: sshfs and rclone over that line.
Goals: cold at least 8 times sshfs and 90 % of the line, warm at least 90 % of the client's rate, 4 writers into 4 nodes at least 7 times
direct writing and within 10 % of linear. Rows in which the machine was busy for more than 85 % are marked and claim nothing.
Again: `python benchmarks/bench_io_nodes.py [--mib N] [--wan-mbit N] [--host-mbit N] [--rtt-ms N] [--dir DIRECTORY]`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measuring import CPU_BOUND, timed, verdict
from tests.testbed.ionode import IoNode
from tests.testbed.network import Host, Network, Wan, why_not
from tests.testbed.own_place import own_place
from tests.testbed.places import ionode_binary
from tests.testbed.sshd import Sshd, running_sshd
from tests.testbed.usage import machine
from tests.testbed.waiting import wait_until

READERS_NODES = (1, 2, 4, 8)
WRITERS, WRITERS_NODES = 4, (1, 2, 4)
STRIPE_BYTES = 2 << 20
GOALS = {"cold of sshfs": 8.0, "cold of line": 0.9, "warm of host": 0.9, "writers of direct": 7.0, "writers of linear": 0.9}


class Bed:
    """A lab far away, a client, writers and nodes, each a host."""

    def __init__(self, options: argparse.Namespace, net: Network, place: Path) -> None:
        self.options, self.place = options, place
        self.lab = net.host("lab", wan=Wan(options.rtt_ms / 1000, options.wan_mbit))
        self.client = net.host("client", rate_mbit_s=options.host_mbit)
        self.writers = [net.host(f"writer{n}", rate_mbit_s=options.host_mbit) for n in range(WRITERS)]
        hosts = [net.host(f"node{n}", rate_mbit_s=options.host_mbit) for n in range(max(READERS_NODES))]
        self.nodes = [IoNode(ionode_binary(), place / host.name / "store", 1 << 40, where=host, node_id=host.name) for host in hosts]
        self.size = options.mib << 20

    @contextlib.contextmanager
    def running(self) -> Iterator[Sshd]:
        (self.place / "sshd").mkdir()
        with running_sshd(self.place / "sshd", where=self.lab) as sshd:
            (sshd.data / "file").write_bytes(os.urandom(self.size))
            try:
                for node in self.nodes:
                    node.listen_on_its_host()
                    node.start()
                    node.do("PUT", "/v1/origins/lab", sshd.origin())
                yield sshd
            finally:
                for node in self.nodes:
                    node.stop()

    def names(self, nodes: list[IoNode]) -> str:
        return ",".join(f"{node.address}@{node.token_file}" for node in nodes)

    def read(self, generation: str, nodes: list[IoNode]) -> None:
        target = self.place / f"read-{generation}-{time.monotonic_ns()}"
        argv = [ionode_binary(), "fetch", "--node", self.names(nodes), "--file", "f", "--generation", generation, "--to", target]
        self.client.run(argv)
        target.unlink()

    def read_cold(self, count: int, at: dict[str, object]) -> None:
        nodes, generation = self.nodes[:count], f"cold{count}"
        for index, node in enumerate(nodes):
            expected = {"size_bytes": self.size, "token": at["token"], "blake3": None, "sha256": None}
            stripe = {"index": index, "count": count, "stripe_bytes": STRIPE_BYTES}
            body = {"kind": "fetch", "file_id": "f", "generation": generation, "source": {"origin_id": "lab", "path": "file"}}
            body |= {"expected": expected, "priority": 0, "executable": False, "stripe": stripe}
            node.do("PUT", f"/v1/transfers/{generation}", body)
        for node in nodes:
            wait_until(lambda node=node: node.call("GET", f"/v1/replicas/f/{generation}/source").is_success, "a node to begin")
        self.read(generation, nodes)


def row(name: str, size: int, took: tuple[float, float], *words: str) -> None:
    bound = ("CPU-bound: claims nothing",) if took[1] > CPU_BOUND else words
    print(f"{name:28} {took[0]:7.2f} s {size / took[0] / 1e6:8.1f} MB/s  busy {took[1]:4.0%}  {', '.join(bound)}", flush=True)


def goal(name: str, found: float) -> str:
    return f"{name} {found:.2f} (goal {GOALS[name]:g}: {verdict(found >= GOALS[name])})"


@contextlib.contextmanager
def sshfs(bed: Bed, sshd: Sshd, host: Host) -> Iterator[Path]:
    """Mounted by a process on that host; fresh, so nothing of it is cached."""
    mount = bed.place / f"mount-{host.name}-{time.monotonic_ns()}"
    mount.mkdir()
    options = f"port={sshd.port},IdentityFile={sshd.identity_file},UserKnownHostsFile={sshd.known_hosts},IdentitiesOnly=yes"
    host.run(
        ["sshfs", f"{sshd.user}@{sshd.where.address}:{sshd.data}", mount, "-o", options], stdout=subprocess.DEVNULL, capture_output=False
    )
    try:
        yield mount
    finally:
        subprocess.run(["fusermount3", "-u", str(mount)], check=True)


def copied(host: Host, source: Path, target: Path) -> None:
    sync = [] if target == Path("/dev/null") else ["conv=fsync"]
    host.run(["dd", f"if={source}", f"of={target}", "bs=1M", *sync])


def rclone_read(bed: Bed, sshd: Sshd) -> None:
    remote = f":sftp,host={sshd.where.address},port={sshd.port},user={sshd.user},key_file={sshd.identity_file}"
    remote += f",known_hosts_file={sshd.known_hosts}:{sshd.data}/file"
    bed.client.run(["rclone", "--config", "/dev/null", "--multi-thread-streams", "4", "copyto", remote, bed.place / "rclone"])
    (bed.place / "rclone").unlink()


def reading(bed: Bed, sshd: Sshd) -> None:
    line = bed.options.wan_mbit * 1e6 / 8
    about = f"the line carries {line / 1e6:.1f} MB/s at {bed.options.rtt_ms:g} ms, each host {bed.options.host_mbit:g} Mbit/s"
    print(f"\nOne client reads {bed.options.mib} MiB; {about}")
    with sshfs(bed, sshd, bed.client) as mount:
        direct = timed(lambda: copied(bed.client, mount / "file", Path("/dev/null")))
    row("sshfs, direct", bed.size, direct)
    if shutil.which("rclone"):
        row("rclone, 4 streams, direct", bed.size, timed(lambda: rclone_read(bed, sshd)))
    at = bed.nodes[0].do("POST", "/v1/origins/lab/stat", {"paths": ["file"]})["entries"][0]
    for node in bed.nodes[1:]:
        node.do("POST", "/v1/origins/lab/stat", {"paths": ["file"]})
    for count in READERS_NODES:
        cold = timed(lambda count=count: bed.read_cold(count, at))
        words = goal("cold of sshfs", direct[0] / cold[0]), goal("cold of line", bed.size / cold[0] / line)
        row(f"cold through {count} node(s)", bed.size, cold, *words)
        warm = timed(lambda count=count: bed.read(f"cold{count}", bed.nodes[:count]))
        row(f"warm through {count} node(s)", bed.size, warm, goal("warm of host", bed.size / warm[0] / (bed.options.host_mbit * 1e6 / 8)))


def writing(bed: Bed, sshd: Sshd) -> None:
    path, size = sshd.data / "file", bed.size // WRITERS
    files = [bed.place / f"out{n}" for n in range(WRITERS)]
    for n, file in enumerate(files):
        file.write_bytes(path.read_bytes()[n * size : (n + 1) * size])
    print(f"\n{WRITERS} writers, {size >> 20} MiB each, to the end of their fsync")
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(WRITERS) as pool:
        mounts = [stack.enter_context(sshfs(bed, sshd, host)) for host in bed.writers]
        jobs = list(zip(bed.writers, files, mounts, strict=True))
        direct = timed(lambda: list(pool.map(lambda job: copied(job[0], job[1], job[2] / job[1].name), jobs)))
    row("sshfs, direct", bed.size, direct)
    alone = 0.0
    for count in WRITERS_NODES:

        def push(n: int, count: int = count) -> None:
            node = bed.nodes[n % count]
            argv = [ionode_binary(), "push", files[n], "--node", bed.names([node]), "--file", f"w{n}", "--generation", f"n{count}"]
            bed.writers[n].run(argv)

        with ThreadPoolExecutor(WRITERS) as pool:
            took = timed(lambda pool=pool, push=push: list(pool.map(push, range(WRITERS))))
        alone = alone or took[0]
        words = [goal("writers of linear", alone / took[0] / count)]
        words += [goal("writers of direct", direct[0] / took[0])] if count == WRITERS else []
        row(f"into {count} node(s)", bed.size, took, *words)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--wan-mbit", type=float, default=100)
    parser.add_argument("--host-mbit", type=float, default=200)
    parser.add_argument("--rtt-ms", type=float, default=30)
    parser.add_argument("--dir", type=Path, help="on the disk that the nodes use (default: a temporary one)")
    options = parser.parse_args()
    reason = why_not()
    if reason:
        sys.exit(f"no hosts on this machine: {reason}")
    with own_place(options.dir) as made, Network() as net:
        bed = Bed(options, net, made)
        with bed.running() as sshd:
            reading(bed, sshd)
            writing(bed, sshd)
    print(f"\n{machine()}")


if __name__ == "__main__":
    main()
