"""Hosts on one machine: network namespaces joined by a bridge, with a rate for each and a long line to those that are far away.

    with Network() as net:
        lab = net.host("lab", wan=Wan(rtt_s=0.03, rate_mbit_s=200))
        node = net.host("node0", rate_mbit_s=1000)
        node.run(["ping", "-c1", lab.address])

May know: iproute2, nsenter, /proc. One rule: a bed is its namespaces and nothing outside them, and their names say whose they are; so the
links go with the namespaces, beds cannot meet, and what a killed run left is found and taken away by the next.
Only the network is apart: hosts see the same files, mounts and processes, and reach each other's Unix sockets.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.testbed.delay_line import enter, enter_opened
from tests.testbed.processes import Where, all_pids, end, is_alive, started_at
from tests.testbed.waiting import wait_until

NAMESPACES = Path("/run/netns")
PREFIX = "st-net"


def owned_by_name(prefix: str) -> re.Pattern[str]:
    return re.compile(rf"{prefix}-(\d+)-(\d+)-\d+-.*")


OWNED = owned_by_name(PREFIX)
MTU_BYTES = 9000
# What a TCP segment of the largest size needs to pass the shaper in one piece.
BURST_BYTES = 128 * 1024
QUEUE_S = 0.05
HOSTS_MAX = 200
DELAY_LINE = Path(__file__).with_name("delay_line.py")

_count = itertools.count()


@dataclass(frozen=True)
class Wan:
    """A long line, both ways alike. None: as fast as the machine."""

    rtt_s: float
    rate_mbit_s: float | None = None


def why_not() -> str | None:
    """Why there can be no bed on this machine; None where there can."""
    if os.getuid() != 0:
        return "hosts as network namespaces need root"
    missing = [name for name in ("ip", "tc", "nsenter", "unshare") if shutil.which(name) is None]
    if missing:
        return f"not installed: {', '.join(missing)} (Debian: apt-get install iproute2 util-linux)"
    try:
        os.close(os.open("/dev/net/tun", os.O_RDWR))
    except OSError as error:
        return f"hosts far away need /dev/net/tun: {error.strerror}"
    tried = subprocess.run(["unshare", "--net", "true"], capture_output=True, text=True)
    return f"this machine gives no network namespaces: {tried.stderr.strip()}" if tried.returncode else None


def needs_network() -> None:
    """Skips the test, with the reason, where there can be no bed."""
    reason = why_not()
    if reason:
        pytest.skip(f"the bed of hosts: {reason}")


def call(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, f"{' '.join(argv)}: {done.stderr.strip()}"
    return done.stdout


def namespaces_of(pid: int) -> list[str]:
    return [name for name, owner, _ in owned_namespaces() if owner == pid]


def owned_namespaces() -> list[tuple[str, int, int]]:
    names = sorted(path.name for path in NAMESPACES.iterdir()) if NAMESPACES.is_dir() else []
    return [(name, int(match[1]), int(match[2])) for name in names if (match := OWNED.fullmatch(name))]


def sweep() -> list[str]:
    """Takes away what killed runs left; gives its names."""
    left = [name for name, pid, start in owned_namespaces() if not is_alive(pid) or started_at(pid) != start]
    remove_namespaces(left)
    return left


def pids_in(namespaces: Sequence[str]) -> list[int]:
    inodes = {inode for name in namespaces if (inode := inode_of(NAMESPACES / name))}
    return [pid for pid in all_pids() if inode_of(Path(f"/proc/{pid}/ns/net")) in inodes]


def inode_of(path: Path) -> int | None:
    with contextlib.suppress(OSError):
        return path.stat().st_ino
    return None


def remove_namespaces(names: Sequence[str]) -> None:
    """With all that runs in them: a process would keep its namespace, nameless, for as long as it lives."""
    with contextlib.suppress(AssertionError):
        wait_until(lambda: (end(inside := pids_in(names)), not any(map(is_alive, inside)))[1], "the processes of a host to end")
    for name in names:
        subprocess.run(["ip", "netns", "delete", name], capture_output=True, stdin=subprocess.DEVNULL)


class Host(Where):
    """A place where servers run (see `Where`), with a network of its own."""

    def __init__(self, name: str, namespace: str, address: str) -> None:
        self.name, self.namespace, self.address = name, namespace, address

    def command(self, argv: Sequence[str | Path]) -> list[str]:
        """nsenter becomes the program: the pid stays, and so do mounts and files."""
        return ["nsenter", f"--net={NAMESPACES / self.namespace}", "--", *map(str, argv)]

    def run(self, argv: Sequence[str | Path], **options: Any) -> subprocess.CompletedProcess[str]:
        """To its end, which must be a good one; its output is in the answer."""
        done = subprocess.run(self.command(argv), text=True, **{"stdin": subprocess.DEVNULL, "capture_output": True} | options)
        assert done.returncode == 0, f"{self.name}: {' '.join(map(str, argv))} ended with {done.returncode}:\n{done.stderr or ''}"
        return done

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """This thread, and none but this, is on the host: the sockets that it opens are the host's."""
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        try:
            enter(self.namespace)
            try:
                yield
            finally:
                enter_opened(home)
        finally:
            os.close(home)

    def free_port(self) -> int:
        with self.inside():
            return super().free_port()

    def answers(self, port: int) -> bool:
        with self.inside():
            return super().answers(port)

    def connect(self, address: str, port: int, timeout_s: float = 10.0) -> socket.socket:
        with self.inside():
            return socket.create_connection((address, port), timeout=timeout_s)


class Network:
    """A bed of its own: nothing that happens in another one is seen here. All ends with it: hosts, links and what runs on the hosts."""

    def __init__(self) -> None:
        reason = why_not()
        assert reason is None, reason
        sweep()
        number = next(_count)
        self.prefix = f"{PREFIX}-{os.getpid()}-{started_at(os.getpid())}-{number}"
        # Addresses differ from bed to bed only so that a mistake fails loudly.
        self.subnet = f"10.{64 + os.getpid() % 128}.{number % 250}"
        self.hub = f"{self.prefix}-hub"
        self.hosts: list[Host] = []
        self.lines: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Network:
        try:
            call("ip", "netns", "add", self.hub)
            self._ip("link", "add", "br0", "mtu", str(MTU_BYTES), "type", "bridge")
            self._ip("link", "set", "br0", "up")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for line in self.lines:
            line.communicate()  # it ends with its standard input
        self.lines.clear()
        remove_namespaces([name for name in namespaces_of(os.getpid()) if name.startswith(f"{self.prefix}-")])
        self.hosts.clear()

    def host(self, name: str, *, rate_mbit_s: float | None = None, wan: Wan | None = None) -> Host:
        """`rate_mbit_s`: what it can send, and what it can receive, each. With `wan` it is far away, at the rate of that line."""
        assert re.fullmatch(r"[a-z0-9-]{1,20}", name) and name != "hub", f"a host cannot be called {name!r}"
        assert name not in {host.name for host in self.hosts}, f"there is a {name} already"
        assert len(self.hosts) < HOSTS_MAX, "a bed has no more addresses"
        assert wan is None or rate_mbit_s is None, "the rate of a host far away is that of its line"
        number = len(self.hosts) + 1
        host, port = Host(name, f"{self.prefix}-{name}", f"{self.subnet}.{number}"), f"port{number}"
        self.hosts.append(host)
        call("ip", "netns", "add", host.namespace)
        if wan:
            self._lay_line(host, port, wan)
        else:
            self._ip("link", "add", port, "mtu", str(MTU_BYTES), "type", "veth", "peer", "name", "eth0", "netns", host.namespace)
        self._ip("link", "set", port, "mtu", str(MTU_BYTES), "master", "br0", "up")
        for words in (
            f"addr add {host.address}/24 dev eth0",
            f"link set eth0 mtu {MTU_BYTES} up",
            "link set lo up",
        ):
            call("ip", "-n", host.namespace, *words.split())
        rate = wan.rate_mbit_s if wan else rate_mbit_s
        if rate:
            self._limit(rate, wan.rtt_s if wan else 0.0, (host.namespace, "eth0"), (self.hub, port))
        # What one connection learned of the line must not speed up or slow down the next.
        with host.inside():
            Path("/proc/sys/net/ipv4/tcp_no_metrics_save").write_text("1")
        return host

    def _ip(self, *words: str) -> None:
        call("ip", "-n", self.hub, *words)

    def _lay_line(self, host: Host, port: str, wan: Wan) -> None:
        argv = [sys.executable, "-I", "-S", str(DELAY_LINE), host.namespace, "eth0", self.hub, port, str(wan.rtt_s / 2)]
        line = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.lines.append(line)
        assert line.stdout is not None
        if line.stdout.readline() != "ready\n":
            raise AssertionError(f"no line to {host.name}: {line.communicate()[1]}")

    def _limit(self, rate_mbit_s: float, rtt_s: float, *ends: tuple[str, str]) -> None:
        """Before a queue as long as the line, as in a router: what does not fit is dropped."""
        queue_bytes = int(rate_mbit_s * 1e6 / 8 * max(rtt_s, QUEUE_S)) + BURST_BYTES
        shaper = ["tbf", "rate", f"{int(rate_mbit_s * 1e6)}bit", "burst", f"{BURST_BYTES}b", "limit", f"{queue_bytes}b"]
        for namespace, device in ends:
            call("tc", "-n", namespace, "qdisc", "add", "dev", device, "root", *shaper)
