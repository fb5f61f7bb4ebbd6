"""Hosts on one machine: network namespaces joined by a bridge, with a rate for each and a long line to those that are far away.

    with Network() as net:
        lab = net.host("lab", wan=Wan(rtt_s=0.03, rate_mbit_s=200))
        node = net.host("node0", private=True, clock_offset_s=7200)
        node.outside("/srv/input").write_text("placed from outside")
        node.run(["ping", "-c1", lab.address])
        with net.parted(lab, node):
            ...

May know: iproute2, nsenter, /proc. One rule: a bed is its namespaces and nothing outside them, and their names say whose they are; so the
links go with the namespaces, beds cannot meet, and what a killed run left is found and taken away by the next.
A host has a network of its own. A private one has files of its own too, and a clock if wanted. All others see the same files and mounts,
and reach each other's Unix sockets. All hosts see the same processes.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import pwd
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.testbed.delay_line import enter, enter_opened
from tests.testbed.faked_clock import with_clock_off_by
from tests.testbed.places import PROJECT, ionode_binary, tool_cache
from tests.testbed.processes import Where, all_pids, end, is_alive, started_at
from tests.testbed.waiting import wait_until

NAMESPACES = Path("/run/netns")
PREFIX = "st-net"


def owned_by_name(prefix: str) -> re.Pattern[str]:
    return re.compile(rf"{prefix}-(\d+)-(\d+)-\d+-.*")


OWNED = owned_by_name(PREFIX)
# Large packets between hosts near by spare the processor. On a long line they are as on the Internet: of a narrow line's queue a
# lost packet of 9000 bytes is so large a part that a connection may lose what it sends again, too, and wait for seconds.
MTU_BYTES, WAN_MTU_BYTES = 9000, 1500
# What a TCP segment of the largest size needs to pass the shaper in one piece.
BURST_BYTES = 128 * 1024
QUEUE_S = 0.05
HOSTS_MAX = 200
DELAY_LINE, HOST_FILES = (Path(__file__).with_name(name) for name in ("delay_line.py", "host_files.py"))
# The switch's own hardware address. It has no use for a packet that is sent to it, and says nothing.
SWITCH = "02:00:00:00:00:01"

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


def begun(argv: Sequence[str]) -> tuple[subprocess.Popen[str], str]:
    """A process that keeps something for as long as its standard input is open, and the first line that it says."""
    keeper = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert keeper.stdout is not None
    return keeper, keeper.stdout.readline().strip()


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


def own_places() -> list[str]:
    """What a private host does not share: wherever programs write without being told to, and /srv for all else."""
    homes = (Path.home(), Path(pwd.getpwuid(os.getuid()).pw_dir))
    return sorted({os.path.realpath(place) for place in (*homes, "/tmp", "/var/tmp", "/srv", "/run", "/dev/shm", tempfile.gettempdir())})


def program_places() -> list[str]:
    """What all hosts read, wherever it lies: the project, this Python with what is installed for it, and the tools of the tests."""
    places = (PROJECT, sys.prefix, sys.base_prefix, ionode_binary().parent, tool_cache())
    return sorted({os.path.realpath(place) for place in places if Path(place).is_dir()})


class Host(Where):
    """A place where servers run (see `Where`), with a network of its own, and with files and a clock of its own where it has them."""

    def __init__(self, name: str, namespace: str, address: str) -> None:
        self.name, self.namespace, self.address = name, namespace, address
        self.files: subprocess.Popen[str] | None = None
        self.clock: list[str] = []

    def command(self, argv: Sequence[str | Path]) -> list[str]:
        """nsenter becomes the program: the pid stays, and so do mounts and files. On a private host the program starts in `/`."""
        files = [f"--mount=/proc/{self.files.pid}/ns/mnt"] if self.files else []
        return ["nsenter", f"--net={NAMESPACES / self.namespace}", *files, "--", *self.clock, *map(str, argv)]

    def outside(self, path: str | Path) -> Path:
        """Not through a symbolic link on the host that names its target by the whole path: it would lead to a file out here."""
        assert Path(path).is_absolute(), f"a host has no working directory: {path}"
        return Path(f"/proc/{self.files.pid}/root", *Path(path).parts[1:]) if self.files else Path(path)

    def run(self, argv: Sequence[str | Path], **options: Any) -> subprocess.CompletedProcess[str]:
        """To its end, which must be a good one; its output is in the answer."""
        done = subprocess.run(self.command(argv), text=True, **{"stdin": subprocess.DEVNULL, "capture_output": True} | options)
        assert done.returncode == 0, f"{self.name}: {' '.join(map(str, argv))} ended with {done.returncode}:\n{done.stderr or ''}"
        return done

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """This thread, and none but this, is on the host: the sockets that it opens are the host's. Files are those out here."""
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
        self.cuts: set[tuple[Host, Host]] = set()
        self.gated: set[Host] = set()

    def __enter__(self) -> Network:
        try:
            call("ip", "netns", "add", self.hub)
            self._ip("link", "add", "br0", "address", SWITCH, "mtu", str(MTU_BYTES), "type", "bridge")
            self._ip("link", "set", "br0", "up")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for keeper in (*self.lines, *(host.files for host in self.hosts if host.files)):
            keeper.communicate()  # it ends with its standard input
        self.lines.clear()
        remove_namespaces([name for name in namespaces_of(os.getpid()) if name.startswith(f"{self.prefix}-")])
        self.hosts.clear()
        self.cuts.clear()
        self.gated.clear()

    def host(
        self, name: str, *, rate_mbit_s: float | None = None, wan: Wan | None = None, private: bool = False, clock_offset_s: float = 0
    ) -> Host:
        """`rate_mbit_s`: what it can send, and what it can receive, each. With `wan` it is far away, at the rate of that line.
        `private`: no other host sees its files and Unix sockets, nor it those of others; only programs are there for all.
        `clock_offset_s`: so far ahead is the wall clock of its programs."""
        assert re.fullmatch(r"[a-z0-9-]{1,20}", name) and name != "hub", f"a host cannot be called {name!r}"
        assert name not in {host.name for host in self.hosts}, f"there is a {name} already"
        assert len(self.hosts) < HOSTS_MAX, "a bed has no more addresses"
        assert wan is None or rate_mbit_s is None, "the rate of a host far away is that of its line"
        assert private or not clock_offset_s, "only a private host has a clock of its own"
        clock = with_clock_off_by(clock_offset_s) if clock_offset_s else []
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
            f"link set eth0 mtu {WAN_MTU_BYTES if wan else MTU_BYTES} up",
            "link set lo up",
        ):
            call("ip", "-n", host.namespace, *words.split())
        rate = wan.rate_mbit_s if wan else rate_mbit_s
        if rate:
            self._limit(rate, wan.rtt_s if wan else 0.0, self._behind_gate(number), port)
        # What one connection learned of the line must not speed up or slow down the next.
        with host.inside():
            Path("/proc/sys/net/ipv4/tcp_no_metrics_save").write_text("1")
        if private:
            self._give_files(host)
        host.clock = clock
        return host

    def give_lines(self, server: Host, rate_mbit_s: float, clients: Sequence[Host]) -> None:
        """What `server` sends to each of these has a rate of its own, as where a provider gives one address so much. Once for a server,
        which has no rate itself."""
        gate = self._behind_gate(self.hosts.index(server) + 1)
        self._tc(f"qdisc add dev {gate} root handle 1: htb default 0")
        rate, queue_bytes = f"{int(rate_mbit_s * 1e6)}bit", int(rate_mbit_s * 1e6 / 8 * QUEUE_S) + BURST_BYTES
        for number, client in enumerate(clients, 1):
            for words in (
                f"class add dev {gate} parent 1: classid 1:{number} htb rate {rate} burst {BURST_BYTES}b cburst {BURST_BYTES}b",
                f"qdisc add dev {gate} parent 1:{number} bfifo limit {queue_bytes}",
                f"filter add dev {gate} parent 1: protocol ip prio 1 u32 match ip dst {client.address}/32 flowid 1:{number}",
            ):
                self._tc(words)

    def sent_bytes(self, host: Host) -> int:
        """All that has passed its line so far, headers included: of one with a rate not what that dropped, which was sent again."""
        gate = f"inner{self.hosts.index(host) + 1}"
        namespace, device = (self.hub, gate) if host in self.gated else (host.namespace, "eth0")
        [told] = json.loads(call("ip", "-n", namespace, "-s", "-j", "link", "show", device))
        return int(told["stats64"]["tx"]["bytes"])

    def cut(self, one: Host, other: Host, *, one_way: bool = False) -> None:
        """Until `mend` what they send to each other is lost without a word, also on connections that are there. `one_way`: only what `one`
        sends is lost, so it hears and is not heard."""
        for sender, receiver in ((one, other),) if one_way else ((one, other), (other, one)):
            call("ip", "-n", sender.namespace, *f"neigh replace {receiver.address} lladdr {SWITCH} dev eth0 nud permanent".split())
            self.cuts.add((sender, receiver))

    def mend(self, one: Host, other: Host) -> None:
        found = self.cuts & {(one, other), (other, one)}
        assert found, f"nothing is cut between {one.name} and {other.name}"
        for sender, receiver in found:
            call("ip", "-n", sender.namespace, *f"neigh del {receiver.address} dev eth0".split())
        self.cuts -= found

    @contextlib.contextmanager
    def parted(self, one: Host, other: Host, *, one_way: bool = False) -> Iterator[None]:
        self.cut(one, other, one_way=one_way)
        try:
            yield
        finally:
            self.mend(one, other)

    def _ip(self, *words: str) -> None:
        call("ip", "-n", self.hub, *words)

    def _tc(self, words: str) -> None:
        call("tc", "-n", self.hub, *words.split())

    def _lay_line(self, host: Host, port: str, wan: Wan) -> None:
        argv = [sys.executable, "-I", "-S", str(DELAY_LINE), host.namespace, "eth0", self.hub, port, str(wan.rtt_s / 2)]
        line, said = begun(argv)
        self.lines.append(line)
        if said != "ready":
            raise AssertionError(f"no line to {host.name}: {line.communicate()[1]}")

    @staticmethod
    def _give_files(host: Host) -> None:
        """They are those of a process on the host: who ends what runs there ends it too."""
        own, kept = own_places(), program_places()
        keeper, said = begun(host.command([sys.executable, "-I", "-S", HOST_FILES, "--own", *own, "--keep", *kept]))
        if said != "ready":
            why = keeper.communicate()[1]
            if said.startswith("refused: "):
                pytest.skip(f"the bed of hosts: {host.name} gets no files of its own: {said.removeprefix('refused: ')}")
            raise AssertionError(f"no files for {host.name}: {why}")
        host.files = keeper

    def _behind_gate(self, number: int) -> str:
        """Puts a switch between the host's port and all others; gives the device through which passes what the host sends.
        The queue of a rate lies there, not on the host: a host is told of a packet that its own queue drops, and its TCP then tries
        again twice a second and gives the connection up after some. A router tells nobody.
        """
        gate, inner, outer = (f"{word}{number}" for word in ("gate", "inner", "outer"))
        self.gated.add(self.hosts[number - 1])
        self._ip("link", "add", gate, "mtu", str(MTU_BYTES), "type", "bridge")
        self._ip("link", "add", inner, "mtu", str(MTU_BYTES), "type", "veth", "peer", "name", outer, "mtu", str(MTU_BYTES))
        for device, master in ((outer, "br0"), (inner, gate), (f"port{number}", gate)):
            self._ip("link", "set", device, "master", master, "up")
        self._ip("link", "set", gate, "up")
        return inner

    def _limit(self, rate_mbit_s: float, rtt_s: float, *devices: str) -> None:
        """Before a queue as long as the line, as in a router: what does not fit is dropped."""
        queue_bytes = int(rate_mbit_s * 1e6 / 8 * max(rtt_s, QUEUE_S)) + BURST_BYTES
        for device in devices:
            self._tc(f"qdisc add dev {device} root tbf rate {int(rate_mbit_s * 1e6)}bit burst {BURST_BYTES}b limit {queue_bytes}b")
