"""The nodes that hold each file, and from when, while jobs are placed one after the other; and the time of a copy to one more of them.

May know: the shape, the topology and the contention formula. One rule: times are predictions; nothing that must hold rests on them.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from stager.model.topology import Topology
from stager.planning.iomodel import client_throughput
from stager.planning.plan import DIRECT
from stager.planning.shape import Shape


@dataclass(slots=True)
class Held:
    """One file: `since_s` by node index, in the order of arrival; `arrivals_s` the same times, ascending, and when each copy that was put
    down began.
    """

    since_s: dict[int, float] = field(default_factory=dict)
    arrivals_s: list[float] = field(default_factory=list)
    begun_s: list[float] = field(default_factory=list)

    def put(self, node: int, since_s: float) -> None:
        if node not in self.since_s:
            self.since_s[node] = since_s
            insort(self.arrivals_s, since_s)

    def clients_and_holders(self, at_s: float) -> tuple[int, int]:
        """(those that copy it at this time, one more included; nodes that hold it by then): n and m of the contention formula."""
        holders = max(1, bisect_right(self.arrivals_s, at_s))
        made_here = len(self.arrivals_s) - len(self.begun_s)
        ended = max(0, holders - made_here)
        return 1 + max(0, bisect_right(self.begun_s, at_s) - ended), holders


class Copying(NamedTuple):
    """The copies that a node would make for a job: each (file, begin, arrival), and all their bytes."""

    copies: tuple[tuple[int, float, float], ...]
    size_bytes: int


NOTHING = Copying((), 0)


class OnlyHolder:
    """Of all files where there is one node: nothing is ever copied, and once all jobs are placed all that they hold and make is there."""

    __slots__ = ("_shape",)

    def __init__(self, shape: Shape) -> None:
        self._shape = shape

    def nodes(self) -> list[list[int]]:
        shape = self._shape
        # The same two lists for all files.
        here, nowhere = [0], list[int]()
        held = [here if reads and access is not DIRECT else nowhere for reads, access in zip(shape.readers, shape.access, strict=True)]
        return [here if producer >= 0 else where for producer, where in zip(shape.producer, held, strict=True)]

    def seconds_s(self) -> list[float]:
        return [inf] * len(self._shape.files)

    def come(self, files: list[int], node: int, since_s: list[float]) -> None:
        """All of them are on the one node."""

    def made(self, files: list[int], node: int, since_s: float) -> None:
        """And these."""

    def brought(self, files: list[int], node: int) -> tuple[Copying, float]:
        return NOTHING, 0.0

    def take(self, copying: Copying, node: int) -> None:
        """There is no copy."""


class Holders:
    """Of all files. `rates`: bytes per second that each node gives or takes alone."""

    __slots__ = ("_held", "_latency_s", "_likely", "_rates", "_told")

    def __init__(self, likely_bytes: list[int], topology: Topology) -> None:
        self._likely = likely_bytes
        self._rates = [min(node.network_bytes_per_s, node.disk_bytes_per_s) for node in topology.nodes]
        self._latency_s = [node.copy_latency_s for node in topology.nodes]
        self._held: dict[int, Held] = {}
        # Until something is put down all nodes that are as fast, and have it not, get the same answer.
        self._told: dict[tuple[int, float, float], tuple[float, float]] = {}

    def nodes(self) -> list[list[int]]:
        """By file, in the order in which it gets there."""
        return [self.nodes_of(file) for file in range(len(self._likely))]

    def nodes_of(self, file: int) -> list[int]:
        since = self._held[file].since_s if file in self._held else {}
        return sorted(since, key=since.__getitem__)

    def seconds_s(self) -> list[float]:
        """By file, from when on two nodes hold it; never, as a rule."""
        return [self.second_s(file) for file in range(len(self._likely))]

    def second_s(self, file: int) -> float:
        held = self._held.get(file)
        return held.arrivals_s[1] if held is not None and len(held.arrivals_s) > 1 else inf

    def come(self, files: list[int], node: int, since_s: list[float]) -> None:
        """`since_s`: by file, of all there are."""
        for file in files:
            self.put(file, node, since_s[file])

    def made(self, files: list[int], node: int, since_s: float) -> None:
        for file in files:
            self.put(file, node, since_s)

    def put(self, file: int, node: int, since_s: float) -> None:
        self._told.clear()
        self._held.setdefault(file, Held()).put(node, since_s)

    def brought(self, files: list[int], node: int) -> tuple[Copying, float]:
        """(what of these another node has and this one not, when all of them that anybody has are here): one after the other into this
        node, each as soon as there is one to copy. All are asked for at once, so what a copy takes beside its bytes is waited for once.
        """
        there_s, away = 0.0, []
        for file in files:
            held = self._held.get(file)
            if held is None:
                continue
            since_s = held.since_s.get(node)
            if since_s is None:
                away.append((held.arrivals_s[0], file))
            elif since_s > there_s:
                there_s = since_s
        if not away:
            return NOTHING, there_s
        at_s, copies = 0.0, []
        for exists_s, file in sorted(away):
            asked = (file, self._rates[node], max(at_s, exists_s))
            begin_s, end_s = self._told.get(asked) or self._told.setdefault(asked, self.soonest(file, node, asked[2]))
            copies.append((file, begin_s, end_s))
            at_s = end_s
        return Copying(tuple(copies), sum([self._likely[file] for _, file in away])), max(there_s, at_s + self._latency_s[node])

    def soonest(self, file: int, node: int, ready_s: float) -> tuple[float, float]:
        """(when it is best begun, when it is then there): at once, or when a copy that is under way has become one more holder.

        A client gets of the holders as much as the contention formula says (iomodel.client_throughput), and never more than it can take.
        """
        held, size = self._held[file], self._likely[file]
        source = self._rates[next(iter(held.since_s))]
        begin_s, best = ready_s, (ready_s, ready_s + size / self.rate(held, source, node, ready_s))
        for later_s in held.arrivals_s[bisect_right(held.arrivals_s, ready_s) :]:
            if later_s + size / min(source, self._rates[node]) >= best[1]:
                break
            begin_s = later_s
            best = min(best, (begin_s, begin_s + size / self.rate(held, source, node, begin_s)), key=lambda pair: pair[1])
        return best

    def rate(self, held: Held, source_bytes_per_s: float, node: int, at_s: float) -> float:
        clients, holders = held.clients_and_holders(at_s)
        return min(self._rates[node], client_throughput(source_bytes_per_s, clients, holders))

    def take(self, copying: Copying, node: int) -> None:
        """These copies will be made."""
        self._told.clear()
        for file, begin_s, end_s in copying.copies:
            held = self._held[file]
            insort(held.begun_s, begin_s)
            held.put(node, end_s)
