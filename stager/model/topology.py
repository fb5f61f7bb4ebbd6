"""Where a plan is to run: I/O nodes with their compute cores, and the links to the origins.

May know: nothing above the model. One rule: rates are bytes per second as measured or assumed, and say which; embedded mode is a topology
of one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

# The scheduler's own machine, where it is a host among others.
HERE = "here"
DEFAULT_WAN_BYTES_PER_S = 50e6
DEFAULT_DISK_BYTES_PER_S = 500e6
DEFAULT_LATENCY_S = 0.05
# One reader through a mount (seeds.md S1: under 20 MB/s on a line of 135).
DEFAULT_ONE_READER_BYTES_PER_S = 20e6
# Median of 201 attempts of `wc` on two busy cores (docs/operating/simulate.md).
DEFAULT_OVERHEAD_S = 0.036
DEFAULT_DELETE_LATENCY_S = 0.001


@dataclass(frozen=True, slots=True)
class Host:
    """One compute host. An attempt runs on one host. `memory_bytes` and `scratch_bytes` (of the disk where sandboxes are) None: not
    watched.
    """

    id: str
    cores: int = 1
    memory_bytes: int | None = None
    scratch_bytes: int | None = None

    def takes(self, cores: int, memory_bytes: int | None, scratch_bytes: int = 0) -> bool:
        """Whether a job that needs so much could run here with nothing beside it."""
        if cores > self.cores or (self.memory_bytes is not None and (memory_bytes or 0) > self.memory_bytes):
            return False
        return self.scratch_bytes is None or scratch_bytes <= self.scratch_bytes


@dataclass(frozen=True, slots=True)
class Node:
    """One I/O node and the compute slots beside it. `memory_bytes` None: not watched. `overhead_s`: what an attempt takes of its slot
    beside its program (model/overhead.py), `overhead_file_s`: and for each of its outputs. `sandbox_bytes`: what all sandboxes there may
    hold together beyond what was reserved for their outputs; None: not watched. `failures_per_hour`: how often it is lost with its disk;
    0: nobody said. `copy_latency_s`: what a copy to it from another node takes beside its bytes (model/copying.py).
    `delete_latency_s`: what a delete takes there until it has made room (model/deleting.py).

    `hosts`: compute hosts, each with cores and memory of its own, in place of `cores` and `memory_bytes`. Where any node of a topology
    names hosts, a node that names none stores only.
    """

    id: str
    capacity_bytes: int
    cores: int = 1
    memory_bytes: int | None = None
    disk_bytes_per_s: float = DEFAULT_DISK_BYTES_PER_S
    network_bytes_per_s: float = DEFAULT_DISK_BYTES_PER_S
    can_link: bool = True
    overhead_s: float = 0.0
    overhead_measured: bool = False
    sandbox_bytes: int | None = None
    failures_per_hour: float = 0.0
    overhead_file_s: float = 0.0
    overhead_file_measured: bool = False
    disk_measured: bool = False
    hosts: tuple[Host, ...] = ()
    copy_latency_s: float = 0.0
    copy_measured: bool = False
    network_measured: bool = False
    delete_latency_s: float = DEFAULT_DELETE_LATENCY_S
    delete_measured: bool = False


@dataclass(frozen=True, slots=True)
class OriginLink:
    """The way to one origin, shared by all nodes. `latency_s` is paid once per fetch, `upload_latency_s` (None: the same) per upload.
    `measured` is of the fetch rate (model/link.py). `bounded`: by its declared bandwidth; `said`: in a topology file.

    The `node` rates are what one I/O node gets of it with all its connections together (its **line**): what a provider gives one address,
    or one stream of a server. None: as much as the link gives.
    `direct_bytes_per_s`: what one job gets that reads there directly; None: nobody measured it. `login_s`: what the first transfer of a
    run waits for besides, on each node; None: nobody measured it, and nothing is reckoned for it. `dispatch_s`: what each transfer waits
    for besides that finds a place at once, until its node begins it and its end is heard; None as there. `reads_back`: finals were seen to
    come back over it, to be verified, whatever was declared.
    The `file` seconds are what each file takes of a node's line beside its bytes (its **file cost**, model/file_cost.py): other transfers
    do not hide it, as they hide the latency. None: nobody measured or said it, and nothing is reckoned for it.
    """

    origin: str
    fetch_bytes_per_s: float = DEFAULT_WAN_BYTES_PER_S
    upload_bytes_per_s: float = DEFAULT_WAN_BYTES_PER_S
    latency_s: float = DEFAULT_LATENCY_S
    measured: bool = False
    bounded: bool = False
    node_fetch_bytes_per_s: float | None = None
    node_upload_bytes_per_s: float | None = None
    upload_latency_s: float | None = None
    upload_measured: bool = False
    latency_measured: bool = False
    said: bool = False
    direct_bytes_per_s: float | None = None
    fetch_file_s: float | None = None
    upload_file_s: float | None = None
    fetch_file_measured: bool = False
    upload_file_measured: bool = False
    login_s: float | None = None
    dispatch_s: float | None = None
    reads_back: bool = False

    @property
    def before_upload_s(self) -> float:
        return self.latency_s if self.upload_latency_s is None else self.upload_latency_s

    @property
    def one_reader_bytes_per_s(self) -> float:
        """Of a job that reads directly: never more than the link has."""
        return min(self.fetch_bytes_per_s, self.direct_bytes_per_s or DEFAULT_ONE_READER_BYTES_PER_S)

    def fetch_by(self, nodes: int) -> float:
        """Bytes per second that so many nodes get of it together."""
        return together(self.fetch_bytes_per_s, self.node_fetch_bytes_per_s, nodes)

    def upload_by(self, nodes: int) -> float:
        return together(self.upload_bytes_per_s, self.node_upload_bytes_per_s, nodes)

    def fetch_weighs(self, size_bytes: float) -> float:
        """Bytes that one node's line carries in the time that a fetched file of this size takes of it."""
        return size_bytes + (self.fetch_file_s or 0.0) * self.fetch_by(1)

    def upload_weighs(self, size_bytes: float) -> float:
        return size_bytes + (self.upload_file_s or 0.0) * self.upload_by(1)


def together(link_bytes_per_s: float, line_bytes_per_s: float | None, nodes: int) -> float:
    return link_bytes_per_s if line_bytes_per_s is None else min(link_bytes_per_s, nodes * line_bytes_per_s)


@dataclass(frozen=True, slots=True)
class Topology:
    """At least one node. An origin without a link of its own gets the defaults."""

    nodes: tuple[Node, ...]
    links: tuple[OriginLink, ...] = ()

    def __post_init__(self) -> None:
        if not self.nodes:
            raise ValueError("a topology has at least one node")
        if len({node.id for node in self.nodes}) < len(self.nodes):
            raise ValueError("two nodes of a topology have the same id")
        hosts = [host.id for node in self.nodes for host in node.hosts]
        if len(set(hosts)) < len(hosts):
            raise ValueError("two hosts of a topology have the same id")

    @property
    def names_hosts(self) -> bool:
        return any(node.hosts for node in self.nodes)

    @property
    def is_even(self) -> bool:
        """Whether one number of cores, and one of memory, says it all. Else each host has its own."""
        return not self.names_hosts and len({(node.cores, node.memory_bytes) for node in self.nodes}) == 1

    @property
    def is_uniform(self) -> bool:
        """Whether the nodes are alike in cores, memory and capacity."""
        return self.is_even and len({node.capacity_bytes for node in self.nodes}) == 1

    @property
    def hosts(self) -> tuple[tuple[Host, ...], ...]:
        """By node, where the jobs beside it run. In a topology that names no hosts each node is one."""
        if self.names_hosts:
            return tuple([node.hosts for node in self.nodes])
        return tuple([(Host(node.id, max(1, node.cores), node.memory_bytes),) for node in self.nodes])

    @property
    def host_cores(self) -> list[int]:
        """Of each host."""
        return [host.cores for hosts in self.hosts for host in hosts]

    @property
    def capacity_bytes(self) -> int:
        return sum(node.capacity_bytes for node in self.nodes)

    @property
    def node_bytes(self) -> int:
        """The capacity of the smallest of them."""
        return min(node.capacity_bytes for node in self.nodes)

    def link(self, origin: str) -> OriginLink:
        for entry in self.links:
            if entry.origin == origin:
                return entry
        return OriginLink(origin)

    def with_overhead(self, overhead_s: float, measured: bool, file_s: float = 0.0, file_measured: bool = False) -> Topology:
        """With attempts that take so much of their slots beside their programs, and so much for each output, on all nodes."""
        nodes = tuple(
            replace(
                node,
                overhead_s=overhead_s,
                overhead_measured=measured,
                overhead_file_s=file_s,
                overhead_file_measured=file_measured,
            )
            for node in self.nodes
        )
        return replace(self, nodes=nodes)

    def with_disks(self, bytes_per_s: float | None) -> Topology:
        """As jobs here were seen to get of them; None: as they are."""
        if bytes_per_s is None:
            return self
        return replace(self, nodes=tuple(replace(node, disk_bytes_per_s=bytes_per_s, disk_measured=True) for node in self.nodes))

    def bounded_by(self, bytes_per_s_max: Mapping[str, float]) -> Topology:
        """With no link faster than what is declared for its origin."""
        bounded = [link for name in sorted(bytes_per_s_max) if (link := bounded_link(self.link(name), bytes_per_s_max[name])).bounded]
        others = [link for link in self.links if link.origin not in {entry.origin for entry in bounded}]
        return replace(self, links=(*others, *bounded))


def bounded_link(link: OriginLink, most: float) -> OriginLink:
    fetch, upload = min(link.fetch_bytes_per_s, most), min(link.upload_bytes_per_s, most)
    slower = fetch < link.fetch_bytes_per_s or upload < link.upload_bytes_per_s
    return replace(link, fetch_bytes_per_s=fetch, upload_bytes_per_s=upload, bounded=True) if slower else link


def embedded(
    capacity_bytes: int, *, cores: int = 1, memory_bytes: int | None = None, links: tuple[OriginLink, ...] = (), node: str = "node0"
) -> Topology:
    """The topology of one that runs inside `stager submit`."""
    return Topology((Node(node, capacity_bytes, cores, memory_bytes),), links)
