"""The order of jobs where the lines to the origins of finals count: finals stand in line there, so each has those behind it as its tail.

May know: planning's shape, the topology and the forecasts of `schedule`. One rule: what comes out only ranks orders; every order stays
topological and a function of its arguments.

A line out takes one final after the other. The final that goes first must be made early enough for all that follow, and the last one needs
only the time of its own upload. So the rank of a job counts what waits behind its finals on their lines, not their own upload alone. Where
the lines out have little to carry that is the upward rank again.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from stager.model.topology import Topology
from stager.model.workflow import Workflow
from stager.planning.order import places, rank_order
from stager.planning.schedule import arrivals, upload_end
from stager.planning.shape import Shape

# An order is changed for the sake of a line that is busy for at least this part of the time that cores or the longest chain take.
LINE_SHARE_MIN = 0.02
# Of the time of one order: what another may take at most to be preferred. What a rehearsal leaves out may be as much as the rest.
CLEARLY_QUICKER = 0.98


def order_by_lines(workflow: Workflow, shape: Shape, ranks: list[float], topology: Topology) -> list[int] | None:
    """By what is needed after the start of a job, the wait of its finals for their lines included. None: no line has much to carry."""
    finals = line_seconds(workflow, shape, topology)
    return rank_order(line_ranks(shape, finals, topology)) if lines_matter(shape, ranks, finals, topology) else None


def is_clearly_quicker(workflow: Workflow, shape: Shape, order: list[int], than: list[int], topology: Topology) -> bool:
    least_s = CLEARLY_QUICKER * rehearsal_s(workflow, shape, than, topology)
    return rehearsal_s(workflow, shape, order, topology) <= least_s


def line_seconds(workflow: Workflow, shape: Shape, topology: Topology) -> dict[int, tuple[str, float]]:
    """By final: its origin, and for how long it takes the whole line there."""
    nodes, found = len(topology.nodes), {}
    links = {name: topology.link(name) for name in workflow.origins}
    rate = {name: link.upload_by(nodes) for name, link in links.items()}
    for file, origin in enumerate(shape.sent_to):
        if origin is not None and shape.producer[file] >= 0:
            found[file] = (origin, links[origin].upload_weighs(shape.likely[file]) / rate[origin])
    return found


def lines_matter(shape: Shape, ranks: list[float], finals: dict[int, tuple[str, float]], topology: Topology) -> bool:
    """Whether some line out is busy for long enough to be worth another order."""
    busy_s: dict[str, float] = {}
    for origin, seconds in finals.values():
        busy_s[origin] = busy_s.get(origin, 0.0) + seconds
    computing = sum([cores * seconds for cores, seconds in zip(shape.cores, shape.compute_s, strict=True)]) / slots_of(topology)
    return max(busy_s.values(), default=0.0) > LINE_SHARE_MIN * max([computing, *ranks])


def slots_of(topology: Topology) -> int:
    return sum(topology.host_cores)


def line_ranks(shape: Shape, finals: dict[int, tuple[str, float]], topology: Topology) -> list[float]:
    """Seconds that are needed after the start of a job: its own, then those of its longest child or of the finals that wait behind its own.

    Not those of its fetches: they come ahead of it, beside others' computing.
    """
    tails = line_tails(shape, finals, topology)
    ranks = [0.0] * len(shape.jobs)
    for job in range(len(ranks) - 1, -1, -1):
        below = 0.0
        for file in shape.outputs[job]:
            if tails[file] > below:
                below = tails[file]
        for child in shape.children[job]:
            if ranks[child] > below:
                below = ranks[child]
        ranks[job] = shape.compute_s[job] + shape.local_s[job] + below
    return ranks


def line_tails(shape: Shape, finals: dict[int, tuple[str, float]], topology: Topology) -> list[float]:
    """By file: for how long its line is busy with it and with all that go after it; 0 of what is no final.

    First goes what costs the cores least for each second of line that it fills, as in Johnson's rule for two machines in a row: the line
    begins early and does not run dry.
    """
    work, slots = shared_work(shape, topology), slots_of(topology)
    cost = {file: work[shape.producer[file]] / slots / seconds if seconds else 0.0 for file, (_, seconds) in finals.items()}
    busy_s: dict[str, float] = {}
    tails = [0.0] * len(shape.files)
    for file in sorted(finals, key=lambda file: (cost[file], file), reverse=True):
        origin, seconds = finals[file]
        tails[file] = busy_s[origin] = busy_s.get(origin, 0.0) + seconds
    return tails


def shared_work(shape: Shape, topology: Topology) -> list[float]:
    """By job: core seconds until it has ended, where its children share those of a job in equal parts."""
    overhead_s = max(node.overhead_s for node in topology.nodes)
    work = [0.0] * len(shape.jobs)
    for job, above in enumerate(shape.parents):
        own = shape.cores[job] * (shape.compute_s[job] + shape.local_s[job] + overhead_s)
        work[job] = own + sum([work[parent] / len(shape.children[parent]) for parent in above]) if above else own
    return work


def rehearsal_s(workflow: Workflow, shape: Shape, order: list[int], topology: Topology) -> float:
    """The time that a run in this order would take if all cores were on one node with room for everything: a list schedule between the
    lines in and out. It costs a fraction of `predict`, and tells orders apart as well.
    """
    position, arrival = places(order), arrivals(shape, order, topology)
    there_s = [max([arrival[file] for file in reads]) if reads else 0.0 for reads in shape.inputs]
    waits = [len(above) for above in shape.parents]
    widest, overhead_s = max(topology.host_cores), max(node.overhead_s for node in topology.nodes)
    free, now_s, finish_s = slots_of(topology), 0.0, [0.0] * len(order)
    coming = [(there_s[job], position[job]) for job, count in enumerate(waits) if not count]
    heapify(coming)
    ready: list[int] = []
    running: list[tuple[float, int]] = []
    while coming or running:
        now_s = min(coming[0][0] if coming else running[0][0], running[0][0] if running else coming[0][0])
        while running and running[0][0] <= now_s:
            job = order[heappop(running)[1]]
            free += min(shape.cores[job], widest)
            for child in shape.children[job]:
                waits[child] -= 1
                if not waits[child]:
                    heappush(coming, (max(now_s, there_s[child]), position[child]))
        while coming and coming[0][0] <= now_s:
            heappush(ready, heappop(coming)[1])
        while ready and min(shape.cores[order[ready[0]]], widest) <= free:
            place = heappop(ready)
            job = order[place]
            free -= min(shape.cores[job], widest)
            finish_s[job] = now_s + shape.compute_s[job] + shape.local_s[job] + shape.direct_s[job] + overhead_s
            heappush(running, (finish_s[job], place))
    return max([*finish_s, upload_end(workflow, shape, finish_s, topology)], default=0.0)
