"""When things are likely to happen: a list schedule over cores, nodes and WAN links, in the plan's order.

May know: planning's shape and the topology. One rule: what comes out are predictions; nothing that must hold rests on them.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from dataclasses import dataclass, field
from heapq import heappop
from typing import NamedTuple

from stager.model.topology import OriginLink, Topology
from stager.model.workflow import Workflow
from stager.planning.fitting import Fitting
from stager.planning.holders import Copying, Holders, OnlyHolder
from stager.planning.links import comes_behind, is_read_back
from stager.planning.order import places
from stager.planning.plan import DIRECT
from stager.planning.ready_queue import ReadyQueue, spaces_of
from stager.planning.shape import Shape


class Offer(NamedTuple):
    """The offer of one host beside a node for a job; the least is the best. `carried_bytes`: what the lines of the node have to carry for
    others, where that counts. `copying`: of its inputs, what is at another node. `needed_bytes`: room that it takes there beside what
    others hold, where room counts. `site`: the host.
    """

    finish_s: float
    carried_bytes: int
    node: int
    start_s: float
    copying: Copying
    needed_bytes: int = 0
    site: int = 0


@dataclass(slots=True)
class Schedule:
    """By job index: node index, start and finish, and the best node that was not chosen; by file index: the nodes where it
    will be, the first first, and from when on two of them hold it.
    """

    node: list[int]
    start_s: list[float]
    finish_s: list[float]
    nodes: list[list[int]]
    makespan_s: float
    other: list[Offer | None]
    second_s: list[float] = field(default_factory=list)


def predict(workflow: Workflow, shape: Shape, order: list[int], topology: Topology) -> Schedule:
    """Each job goes to the node where it would finish first, bytes already there included, as soon as its inputs are there and a core is
    free; of nodes where it would finish at once to the one whose lines have least to carry, where lines carry more for it than others
    read. Of those that could begin then, the first in the plan's order goes first, and nobody overtakes one that waits for room. External
    files come through their origin's link one after the other.
    """
    count, now_s = len(order), 0.0
    arrival = arrivals(shape, order, topology)
    line = ReadyQueue(shape, places(order), arrival)
    sites = Sites(workflow, shape, topology)
    free_s = sites.next_free_s()
    plan = Schedule([0] * count, [0.0] * count, [0.0] * count, [], 0.0, [None] * count)
    while line.coming or line.ready:
        line.move_up(now_s)
        if not line.ready:
            now_s = line.coming[0][0]
            continue
        if free_s > now_s:
            now_s = min(free_s, line.coming[0][0]) if line.coming else free_s
            continue
        job = order[line.ready[0]]
        offers = sites.offers(job, now_s)
        best = min(offers)
        if sites.wait_for_space(best, now_s):
            # Who comes meanwhile and is in front of it in the plan's order goes first.
            now_s = min(best.start_s, line.coming[0][0]) if line.coming else best.start_s
            continue
        heappop(line.ready)
        if len(offers) > 1:
            plan.other[job] = min([offer for offer in offers if offer.node != best.node], default=None)
        plan.node[job], plan.start_s[job], plan.finish_s[job] = best.node, best.start_s, best.finish_s
        sites.take(job, best, arrival)
        free_s = sites.next_free_s()
        line.ended(job, best.finish_s)
    plan.nodes, plan.second_s = sites.holders.nodes(), sites.holders.seconds_s()
    plan.makespan_s = max([*plan.finish_s, upload_end(workflow, shape, plan.finish_s, topology)], default=0.0)
    return plan


class Sites:
    """The nodes and their hosts while a schedule is made: when their cores and their room are free, and what they hold."""

    __slots__ = ("_carried_bytes", "_cores", "_fitting", "_line_bytes", "_nodes", "_spaces", "_shape", "holders")

    def __init__(self, workflow: Workflow, shape: Shape, topology: Topology) -> None:
        self._shape, self._nodes = shape, topology.nodes
        self._cores = [[0.0] * cores for cores in topology.host_cores]
        self._fitting = Fitting(workflow, shape, topology)
        self._spaces = spaces_of(shape, [node.capacity_bytes for node in topology.nodes])
        self.holders = Holders(shape.likely, topology) if len(topology.nodes) > 1 else OnlyHolder(shape)
        self._line_bytes = line_bytes(shape) if len(topology.nodes) > 1 else []
        self._carried_bytes = [0] * len(topology.nodes)

    def next_free_s(self) -> float:
        """When the next job could be given to one of them."""
        return min([cores[0] for cores in self._cores])

    def wait_for_space(self, offer: Offer, now_s: float) -> bool:
        """Whether nobody knows yet who will have the room that it needs there."""
        if not self._spaces or offer.start_s <= now_s:
            return False
        return self._spaces[offer.node].earliest_s(offer.needed_bytes, now_s) > now_s

    def offers(self, job: int, now_s: float) -> list[Offer]:
        shape, offers = self._shape, []
        work_s, inputs = shape.compute_s[job] + shape.local_s[job] + shape.direct_s[job], shape.held[job]
        nodes = self._fitting.nodes
        spreads = bool(self._line_bytes) and self._line_bytes[job] > shape.lasting[job]
        for site in self._fitting.sites(job):
            index, cores = nodes[site], self._cores[site]
            copying, there = self.holders.brought(inputs, index)
            ready, needed = max(now_s, there), 0
            if self._spaces:
                room = self._spaces[index]
                needed = room.needed(shape, job, now_s)
                ready = max(ready, room.earliest_s(needed, now_s))
            start = earliest(cores, min(shape.cores[job], len(cores)), ready)
            carried = self._carried_bytes[index] if spreads else 0
            offers.append(Offer(start + work_s + self._nodes[index].overhead_s, carried, index, start, copying, needed, site))
        return offers

    def take(self, job: int, offer: Offer, arrival_s: list[float]) -> None:
        shape, index = self._shape, offer.node
        cores = self._cores[offer.site]
        occupy(cores, min(shape.cores[job], len(cores)), offer.start_s, offer.finish_s)
        if self._spaces:
            self._spaces[index].take(shape, job, offer.needed_bytes, offer.finish_s)
        if self._line_bytes:
            self._carried_bytes[index] += self._line_bytes[job]
        self.holders.take(offer.copying, index)
        self.holders.come(shape.held[job], index, arrival_s)
        self.holders.made(shape.outputs[job], index, offer.finish_s)


def line_bytes(shape: Shape) -> list[int]:
    """By job: what comes from origins for it first, and what goes to them from it."""
    found, seen = [], [False] * len(shape.files)
    for reads, makes in zip(shape.held, shape.outputs, strict=True):
        moved = sum([shape.likely[file] for file in makes if shape.sent_to[file] is not None])
        for file in reads:
            if shape.external[file] and not seen[file]:
                seen[file] = True
                moved += shape.likely[file]
        found.append(moved)
    return found


def earliest(free: list[float], cores: int, ready: float) -> float:
    """When this many of the cores (free times ascending) are free together, not before `ready`."""
    return max(ready, free[cores - 1])


def occupy(free: list[float], cores: int, start: float, finish: float) -> None:
    """Takes the cores that became free last, so that those idle for longer stay for jobs that could have begun earlier."""
    until = bisect_right(free, start)
    del free[until - cores : until]
    for _ in range(cores):
        insort(free, finish)


def arrivals(shape: Shape, order: list[int], topology: Topology) -> list[float]:
    """When each external file will be there, if the lines of all nodes to its origin together serve one file after the other in order of
    first use, and each file as fast as the way goes that it takes. The cost of a file on the line is part of its time there.
    """
    lines: dict[str, LineIn] = {}
    arrival = [0.0] * len(shape.files)
    fetched_from, likely, fetch_rate = shape.fetched_from, shape.likely, shape.fetch_rate
    for job in order:
        for file in shape.held[job]:
            origin = fetched_from[file]
            if origin is None or arrival[file]:
                continue
            line = lines.get(origin) or lines.setdefault(origin, line_in(topology.link(origin), len(topology.nodes)))
            arrival[file] = line.free_s + likely[file] / fetch_rate[file] + line.file_s
            line.free_s += (likely[file] + line.file_bytes) / line.bytes_per_s
    return arrival


@dataclass(slots=True)
class LineIn:
    """From one origin to all nodes together. `free_s`: from when on it can take one more file, each of which costs it `file_bytes` beside
    its own, and takes `file_s` longer.
    """

    free_s: float
    bytes_per_s: float
    file_bytes: float
    file_s: float


def line_in(link: OriginLink, nodes: int) -> LineIn:
    free_s = (link.dispatch_s or 0.0) + link.latency_s + (link.login_s or 0.0)
    return LineIn(free_s, link.fetch_by(nodes), link.fetch_weighs(0), link.fetch_file_s or 0.0)


def upload_end(workflow: Workflow, shape: Shape, finish_s: list[float], topology: Topology) -> float:
    """When the last final is at its origin, and read back where that is how it is verified; each link takes them as they are made."""
    clock: dict[str, float] = {}
    back: dict[str, float] = {}
    ends: list[float] = []
    nodes = len(topology.nodes)
    not_open = logins(workflow, shape, topology)
    links = {name: topology.link(name) for name in workflow.origins}
    comes_back = {name: is_read_back(origin, links[name]) for name, origin in workflow.origins.items()}
    finals = [
        (finish_s[shape.producer[file]], file, origin)
        for file, origin in enumerate(shape.sent_to)
        if origin is not None and shape.producer[file] >= 0
    ]
    for made, file, origin in sorted(finals):
        link = links[origin]
        ready_s = made + (link.dispatch_s or 0.0) + not_open.pop(origin, 0.0) + link.before_upload_s
        begun, size = max(clock.get(origin, 0.0), ready_s), shape.likely[file]
        weighs = link.upload_weighs(size)
        clock[origin] = begun + weighs / link.upload_by(nodes)
        there = begun + weighs / link.upload_by(1)
        ends.append(there)
        if comes_back[origin]:
            begun = max(back.get(origin, 0.0), begun if comes_behind(workflow.origins[origin], link, size) else there)
            back[origin] = begun + size / link.fetch_by(nodes)
            ends.append(begun + size / link.fetch_by(1))
    return max(ends, default=0.0)


def logins(workflow: Workflow, shape: Shape, topology: Topology) -> dict[str, float]:
    """By origin that nothing is fetched from, what the first upload waits for besides."""
    found = {name: login_s for name in workflow.origins if (login_s := topology.link(name).login_s)}
    for file, origin in enumerate(shape.fetched_from) if found else ():
        if origin is not None and shape.readers[file] and shape.access[file] is not DIRECT:
            found.pop(origin, None)
    return found
