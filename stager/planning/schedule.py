"""When things are likely to happen: a list schedule over cores, nodes and WAN links, in the plan's order.

May know: planning's shape and the topology. One rule: what comes out are predictions; nothing that must hold rests on them.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from dataclasses import dataclass, field
from typing import NamedTuple

from stager.model.topology import Topology
from stager.model.workflow import Workflow
from stager.planning.holders import NOTHING, Copying, Holders
from stager.planning.shape import Shape


class Offer(NamedTuple):
    """What one node offers a job; the least is the best. `copying`: of its inputs, what is at another node."""

    finish_s: float
    node: int
    start_s: float
    copying: Copying


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
    """Each job in turn goes to the node where it would finish first, bytes already there included; external files come through their
    origin's link one after the other.
    """
    count = len(order)
    arrival = arrivals(workflow, shape, order, topology)
    free = [[0.0] * max(1, node.cores) for node in topology.nodes]
    holders = Holders(shape.likely, topology)
    plan = Schedule([0] * count, [0.0] * count, [0.0] * count, [], 0.0, [None] * count)
    for job in order:
        ready = 0.0
        for parent in shape.parents[job]:
            if plan.finish_s[parent] > ready:
                ready = plan.finish_s[parent]
        for file in shape.inputs[job]:
            if arrival[file] > ready:
                ready = arrival[file]
        work_s = shape.compute_s[job] + shape.local_s[job]
        offers = []
        for index, cores in enumerate(free):
            copying, there = holders.brought(shape.inputs[job], index) if len(free) > 1 else (NOTHING, 0.0)
            start = earliest(cores, min(shape.cores[job], len(cores)), max(ready, there))
            offers.append(Offer(start + work_s + topology.nodes[index].overhead_s, index, start, copying))
        best = min(offers)
        index = best.node
        plan.other[job] = min((offer for offer in offers if offer is not best), default=None)
        occupy(free[index], min(shape.cores[job], len(free[index])), best.start_s, best.finish_s)
        plan.node[job], plan.start_s[job], plan.finish_s[job] = index, best.start_s, best.finish_s
        holders.take(best.copying, index)
        for file in shape.inputs[job]:
            holders.put(file, index, arrival[file])
        for file in shape.outputs[job]:
            holders.put(file, index, best.finish_s)
    plan.nodes = [holders.nodes_of(file) for file in range(len(shape.files))]
    plan.second_s = [holders.second_s(file) for file in range(len(shape.files))]
    plan.makespan_s = max([*plan.finish_s, upload_end(workflow, shape, plan.finish_s, topology)], default=0.0)
    return plan


def earliest(free: list[float], cores: int, ready: float) -> float:
    """When this many of the cores (free times ascending) are free together, not before `ready`."""
    return max(ready, free[cores - 1])


def occupy(free: list[float], cores: int, start: float, finish: float) -> None:
    """Takes the cores that became free last, so that those idle for longer stay for jobs that could have begun earlier."""
    until = bisect_right(free, start)
    del free[until - cores : until]
    for _ in range(cores):
        insort(free, finish)


def arrivals(workflow: Workflow, shape: Shape, order: list[int], topology: Topology) -> list[float]:
    """When each external file will be there, if the lines of all nodes to its origin together serve one file after the other in order
    of first use, and each file as fast as the way goes that it takes.
    """
    clock: dict[str, float] = {}
    arrival = [0.0] * len(shape.files)
    for job in order:
        for file in shape.inputs[job]:
            if not shape.external[file] or arrival[file]:
                continue
            origin = workflow.files[shape.files[file]].sources[0].location.origin
            link = topology.link(origin)
            begun = clock.get(origin, link.latency_s)
            clock[origin] = begun + shape.likely[file] / link.fetch_by(len(topology.nodes))
            arrival[file] = begun + shape.likely[file] / shape.fetch_rate[file]
    return arrival


def upload_end(workflow: Workflow, shape: Shape, finish_s: list[float], topology: Topology) -> float:
    """When the last final is at its origin, and read back where that is how it is verified; each link takes them as they are made."""
    clock: dict[str, float] = {}
    back: dict[str, float] = {}
    ends: list[float] = []
    nodes = len(topology.nodes)
    finals = [(finish_s[shape.producer[file]], file) for file, final in enumerate(shape.final) if final and shape.producer[file] >= 0]
    for made, file in sorted(finals):
        destination = workflow.files[shape.files[file]].destination
        assert destination is not None, "finals have a destination"
        origin = destination.location.origin
        link = topology.link(origin)
        begun, size = max(clock.get(origin, 0.0), made + link.before_upload_s), shape.likely[file]
        clock[origin] = begun + size / link.upload_by(nodes)
        there = begun + size / link.upload_by(1)
        ends.append(there)
        if workflow.origins[origin].is_read_back:
            begun = max(back.get(origin, 0.0), there)
            back[origin] = begun + size / link.fetch_by(nodes)
            ends.append(begun + size / link.fetch_by(1))
    return max(ends, default=0.0)
