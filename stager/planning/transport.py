"""How a file comes from its origin: whole over one node's line, in stripes over several at once, or as one of many small ones.

May know: the model, the plan's words. One rule: a choice is the outcome of formulas that stand here with their units, so that it can be
explained with numbers.

A stripe pays where one node's line (what it gets of the link to an origin by itself) is narrower than the link: k nodes fetch a k-th
each and the node whose job reads it assembles the parts over the inside network while they come. S1: one client got less than 20 MB/s of
a line of 1 Gbit/s, with eight I/O nodes about eight times that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from stager.model.record import Record
from stager.model.topology import Topology
from stager.planning.plan import Transport

# Of a stripe: what a node sends another as one block (docs/formats/ionode-api.md).
STRIPE_BYTES = 4 * 1024 * 1024
# Stripes must bring a file in this part of the time: they take room on other nodes and pass the inside network once more.
WORTH = 0.8
# Of a node's capacity, what one part of a file may take: the node serves its own jobs first.
PART_OF_NODE = 0.25
# What a node reads in one round trip and keeps in its log (docs/decisions/2026-11-21-long-lines.md, 2026-11-21-packs.md).
SMALL_BYTES = 64 * 1024
# As many small files from one origin as a node fetches at once before it has learned more, and the most that it learns (`learn.rs`).
MANY = 16
AT_ONCE_MAX = 256
# A few are enough where files are large. A job's demand goes before them byte by byte; in a simulation it only has its share.
AT_ONCE_MIN = 8
LEARNED = 2.0


@dataclass(frozen=True, slots=True)
class Way:
    """From one origin to nodes, in bytes per second; `line`: of one node. `inside`: the network into a node. `capacities_bytes`: of each
    node, the largest first. `file_s`: what each file, or part of one, takes of a line beside its bytes.
    """

    link: float
    line: float
    latency_s: float
    inside: float
    disk: float
    capacities_bytes: tuple[int, ...]
    file_s: float = 0.0

    @property
    def nodes(self) -> int:
        return len(self.capacities_bytes)


class Transported(Record):
    """The way that a file takes."""

    transport: Transport
    stripes: int


WHOLE, PACK = Transported(Transport.WHOLE, 1), Transported(Transport.PACK, 1)


def way_to(topology: Topology, origin: str) -> Way:
    """For any node: of several the narrowest counts. Not so their capacities: a small node takes no part, and the others do."""
    link, nodes = topology.link(origin), topology.nodes
    return Way(
        link=link.fetch_bytes_per_s,
        line=link.fetch_by(1),
        latency_s=link.latency_s,
        inside=min(node.network_bytes_per_s for node in nodes),
        disk=min(node.disk_bytes_per_s for node in nodes),
        capacities_bytes=tuple(sorted([node.capacity_bytes for node in nodes], reverse=True)),
        file_s=link.fetch_file_s or 0.0,
    )


def whole_s(size_bytes: float, way: Way) -> float:
    """Seconds until a file is at the node that fetches it: a round trip, its file cost, then the narrowest of link, line, network and
    disk.
    """
    return way.latency_s + way.file_s + size_bytes / min(way.line, way.link, way.inside, way.disk)


def striped_s(size_bytes: float, stripes: int, way: Way) -> float:
    """The same with a part on each of so many nodes, the reader's own among them. The second hop goes on while the first does and
    ends one stripe after it; it costs the reader's network all of the bytes, and its disk those and its own part once more.
    """
    lines = min(way.link, stripes * way.line)
    slowest = min(lines, way.inside, way.disk / (1 + 1 / stripes))
    return way.latency_s + way.file_s + (size_bytes + STRIPE_BYTES) / slowest


def stripes_max(size_bytes: float, way: Way) -> int:
    """As many as there are nodes, and lines until the link is full (the last of them not to its full width); each has a stripe."""
    return int(max(1, min(way.nodes, ceil(way.link / way.line), size_bytes // STRIPE_BYTES)))


def has_space(size_bytes: float, stripes: int, way: Way) -> bool:
    """So many nodes have room for a part each, and one of them for the file and its own part at once."""
    largest_part_bytes = size_bytes / stripes + STRIPE_BYTES
    smallest_bytes, largest_bytes = way.capacities_bytes[stripes - 1], way.capacities_bytes[0]
    return may_take_part(largest_part_bytes, smallest_bytes) and size_bytes + largest_part_bytes <= largest_bytes


def may_take_part(part_bytes: float, capacity_bytes: int) -> bool:
    return part_bytes <= PART_OF_NODE * capacity_bytes


def choose(size_bytes: int, way: Way, small_ones: int) -> Transported:
    """`small_ones`: how many small files come from this origin. The fewest stripes that bring it soonest, where they are worth it."""
    if size_bytes <= SMALL_BYTES and small_ones >= MANY:
        return PACK
    if way.nodes == 1:
        return WHOLE
    counts = [count for count in range(2, stripes_max(size_bytes, way) + 1) if has_space(size_bytes, count, way)]
    best = min(counts, key=lambda count: (striped_s(size_bytes, count, way), count), default=1)
    if best > 1 and striped_s(size_bytes, best, way) <= WORTH * whole_s(size_bytes, way):
        return Transported(Transport.STRIPE, best)
    return WHOLE


def may_begin(under_way: int, under_way_bytes: float, latency_s: float, bytes_per_s: float) -> bool:
    """Whether a node begins one more transfer at an origin. It learns how many are worth it: as many as fill the line, and some more
    (between one and three times as many, `ionode/core/tests/learning.rs`), whose bytes are a few round trips' worth of the line; so small
    files do not wait for each other's round trips.
    """
    return under_way < AT_ONCE_MIN or (under_way < AT_ONCE_MAX and under_way_bytes < LEARNED * latency_s * bytes_per_s)


def part_bytes(file_bytes: int, index: int, count: int, stripe_bytes: int = STRIPE_BYTES) -> int:
    """Of stripes `index, index + count, ...` of a file, the last of which may be short (as `Layout::held_bytes` of the I/O node)."""
    stripes = -(-file_bytes // stripe_bytes)
    held = len(range(index, stripes, count))
    short = stripes * stripe_bytes - file_bytes if stripes and (stripes - 1) % count == index else 0
    return held * stripe_bytes - short


def nodes_to_use(waiting_bytes: Sequence[int], own_bytes: int, size_bytes: int, stripes: int) -> int:
    """Of nodes that still have so many bytes to fetch (ascending), how many from the front are to take a part, so that the last part is
    there soonest: each part waits for what its line carries before it. 0: the reader's own line, with `own_bytes` before it, is as good.
    """
    ends = [waiting_bytes[count - 1] + size_bytes / count for count in range(2, min(stripes, len(waiting_bytes)) + 1)]
    best = min(range(len(ends)), key=lambda index: (ends[index], index), default=None)
    if best is None or ends[best] > WORTH * (own_bytes + size_bytes):
        return 0
    return best + 2
