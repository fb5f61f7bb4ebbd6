"""Compute nodes with any number of I/O nodes beside them, and their ways to origins: what an estimate is asked about.

May know: topology, workflow. One rule: a cluster says what there is to choose from; a Topology is one choice of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import inf

from stager.model.topology import DEFAULT_DELETE_LATENCY_S, DEFAULT_DISK_BYTES_PER_S, Host, Node, OriginLink, Topology
from stager.model.workflow import OriginKind, Workflow

DEFAULT_INSTANCE = "m6i.xlarge"
ANY_ORIGIN = "*"


class Charged(StrEnum):
    """The bytes that leave a cloud whose egress somebody pays: those that nodes fetch, those that they upload."""

    NONE = "none"
    FETCH = "fetch"
    UPLOAD = "upload"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class ComputeNodes:
    nodes: int = 1
    cores: int = 1
    memory_bytes: int | None = None
    network_bytes_per_s: float = DEFAULT_DISK_BYTES_PER_S
    instance: str = DEFAULT_INSTANCE
    overhead_s: float = 0.0
    overhead_measured: bool = False
    overhead_file_s: float = 0.0
    overhead_file_measured: bool = False


@dataclass(frozen=True, slots=True)
class IoNodes:
    """`on_compute_nodes`: their programs run there, one on each, so that they cost nothing of their own and jobs link what they read.
    `sandbox_bytes` and `failures_per_hour`: as a Node's.
    """

    nodes: int = 1
    capacity_bytes: int = 100 * 10**9
    disk_bytes_per_s: float = DEFAULT_DISK_BYTES_PER_S
    network_bytes_per_s: float = DEFAULT_DISK_BYTES_PER_S
    instance: str = DEFAULT_INSTANCE
    on_compute_nodes: bool = False
    sandbox_bytes: int | None = None
    failures_per_hour: float = 0.0
    disk_measured: bool = False
    delete_latency_s: float = DEFAULT_DELETE_LATENCY_S
    delete_measured: bool = False


@dataclass(frozen=True, slots=True)
class WanLink:
    """To one origin. The `direct` rates are what one compute node gets that reads and writes there by itself (S1: sshfs came to less than
    20 MB/s reading and 80 MB/s writing); None: as much as the link gives. They are not the line of an I/O node
    (`link.node_fetch_bytes_per_s`): a mount gets less of the same line than a node's many connections. `charged` None: what the kind of
    origin makes likely.
    """

    link: OriginLink
    direct_fetch_bytes_per_s: float | None = None
    direct_upload_bytes_per_s: float | None = None
    charged: Charged | None = None


@dataclass(frozen=True, slots=True)
class NamedNode:
    """An I/O node that was named, with the compute hosts beside it; without any it stores only."""

    id: str
    capacity_bytes: int
    hosts: tuple[Host, ...] = ()


@dataclass(frozen=True, slots=True)
class Cluster:
    """`links` by the name of the origin; `*` stands for all that are not named. `assumed`: nobody said, so it is what is usual.

    `nodes`: where they are not alike, each by itself. Then `compute` counts their hosts, with the cores and memory of the largest, and `io`
    counts them, with their capacity shared out evenly.
    """

    compute: ComputeNodes = ComputeNodes()
    io: IoNodes = IoNodes()
    links: Mapping[str, WanLink] = field(default_factory=dict)
    region: str = ""
    assumed: bool = True
    nodes: tuple[NamedNode, ...] = ()

    @property
    def cores(self) -> int:
        if self.nodes:
            return sum([host.cores for node in self.nodes for host in node.hosts])
        return self.compute.nodes * self.compute.cores

    @property
    def io_counts(self) -> tuple[int, ...]:
        """The numbers of I/O nodes that are asked about where nobody says any: none, and those that there are. Named ones are all there."""
        return (self.io.nodes,) if self.nodes else tuple(dict.fromkeys((0, self.io.nodes)))

    def wan(self, origin: str) -> WanLink:
        known = self.links.get(origin) or self.links.get(ANY_ORIGIN)
        return WanLink(OriginLink(origin)) if known is None else replace(known, link=replace(known.link, origin=origin))

    def charged(self, workflow: Workflow, origin: str) -> Charged:
        """A bucket is taken to lie in the nodes' own region, where nothing is charged; all else is outside, and what comes in is free."""
        said = self.wan(origin).charged
        if said is not None:
            return said
        return Charged.NONE if workflow.origins[origin].kind is OriginKind.S3 else Charged.UPLOAD

    def paid_io_nodes(self, io_nodes: int) -> int:
        """Those that are machines of their own: all, or the ones that there is no compute node for."""
        return max(0, io_nodes - self.compute.nodes) if self.io.on_compute_nodes else io_nodes

    def cores_each(self, io_nodes: int) -> int:
        """Jobs' cores that each I/O node serves: all alike, so a rest is left idle."""
        return max(1, self.cores // io_nodes)

    def as_named(self, node: Node, named: NamedNode) -> Node:
        """With the share that its own hosts have of the network."""
        shared = max(1, len(named.hosts)) * self.compute.network_bytes_per_s
        network = inf if self.io.on_compute_nodes else min(self.io.network_bytes_per_s, shared)
        cores = sum([host.cores for host in named.hosts])
        return replace(
            node,
            id=named.id,
            capacity_bytes=named.capacity_bytes,
            cores=cores,
            memory_bytes=None,
            disk_bytes_per_s=min(self.io.disk_bytes_per_s, network),
            hosts=named.hosts,
        )

    def topology(self, workflow: Workflow, io_nodes: int) -> Topology:
        """With this many I/O nodes, at least one; those that are named where they are so many. Bytes between one and its jobs pass the
        narrowest of its disk, its network and the share of the compute nodes' networks that it has.
        """
        compute, io = self.compute, self.io
        if self.nodes and io_nodes == len(self.nodes):
            alike = replace(self, nodes=()).topology(workflow, io_nodes)
            named = zip(alike.nodes, self.nodes, strict=True)
            return replace(alike, nodes=tuple([self.as_named(node, each) for node, each in named]))
        network = inf if io.on_compute_nodes else min(io.network_bytes_per_s, compute.nodes * compute.network_bytes_per_s / io_nodes)
        memory = None if compute.memory_bytes is None else compute.nodes * compute.memory_bytes // io_nodes
        nodes = tuple(
            Node(
                id=f"node{number}",
                capacity_bytes=io.capacity_bytes,
                cores=self.cores_each(io_nodes),
                memory_bytes=memory,
                disk_bytes_per_s=min(io.disk_bytes_per_s, network),
                network_bytes_per_s=io.network_bytes_per_s,
                can_link=io.on_compute_nodes,
                overhead_s=compute.overhead_s,
                overhead_measured=compute.overhead_measured,
                overhead_file_s=compute.overhead_file_s,
                overhead_file_measured=compute.overhead_file_measured,
                sandbox_bytes=io.sandbox_bytes,
                failures_per_hour=io.failures_per_hour,
                disk_measured=io.disk_measured,
                delete_latency_s=io.delete_latency_s,
                delete_measured=io.delete_measured,
            )
            for number in range(io_nodes)
        )
        links = (self.wan(origin) for origin in workflow.origins)
        return Topology(nodes, tuple(replace(wan.link, direct_bytes_per_s=wan.direct_fetch_bytes_per_s) for wan in links))
