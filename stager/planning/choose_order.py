"""The order of the jobs of a plan: the candidates of `order` and `by_lines`, measured by the space that they need.

May know: planning's shape and orders, the topology. One rule: of what fits the quickest; of what does not fit what needs least.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from heapq import nlargest

from stager.model.topology import Topology
from stager.model.workflow import Workflow
from stager.planning import order as ordering
from stager.planning.by_lines import is_clearly_quicker, order_by_lines, slots_of
from stager.planning.plan import DIRECT
from stager.planning.shape import Shape
from stager.planning.space import share_bytes

BY_LINES = "lines"


@dataclass(frozen=True, slots=True)
class Chosen:
    """One serial order with what it needs: `held` per position without help from outside, of which the most is `smallest`; `peak` when
    nothing is ever given up. `twice`: what may be on two nodes then, and `needs`, how large each node must be; one alone: as `held`.
    `footprint`: of the largest job. `largest`: of the files that are made, where all nodes hold together what is needed; None: one does.
    """

    order: list[int]
    held: list[int]
    twice: list[int]
    needs: list[int]
    smallest: int
    peak: int
    footprint: int = 0
    largest: int | None = None

    @property
    def each(self) -> int:
        return max(self.needs, default=0)

    def least(self, topology: Topology) -> int:
        """How large the smallest node must be, where the others are as large as they are."""
        capacities = sorted([node.capacity_bytes for node in topology.nodes])
        if capacities[0] == capacities[-1] or self.footprint > capacities[-1]:
            return self.each
        if self.largest is None:
            return 0
        others = sum(capacities[1:]) - (len(capacities) - 1) * self.largest
        needs = zip(self.held, self.twice, strict=True)
        return max([held + twice - others for held, twice in needs if held > capacities[-1]], default=0)


@dataclass(frozen=True, slots=True)
class Orders:
    """`chosen`: the one to run in; `smallest`: the one of smallest need; `others`: by name, those that could be run in as well; `made`: by
    name, all there are.
    """

    chosen: Chosen
    smallest: Chosen
    others: dict[str, Chosen]
    made: dict[str, Chosen]


def made_orders(workflow: Workflow, shape: Shape, ranks: list[float], topology: Topology, can_spill: bool) -> dict[str, Chosen]:
    """By name. The last is by what waits for the lines out, where that matters. How much room there is changes none of them; where none
    fits there are more, which do not know how slow the lines are: else a slow line would make what a run needs at least larger.
    """
    measure = Measure(shape, can_spill, len(topology.nodes))
    made = measured_orders(measure, shape, ranks, topology)
    if all(order.least(topology) > topology.node_bytes for order in made.values()):
        none = [0.0] * len(shape.jobs)
        others = measured_orders(measure, shape, ordering.upward_ranks(replace(shape, fetch_s=none, upload_s=none)), topology)
        made |= {f"{name}, lines aside": order for name, order in others.items()}
    by_lines = order_by_lines(workflow, shape, ranks, topology)
    return made | ({BY_LINES: measure.of(by_lines)} if by_lines is not None else {})


def measured_orders(measure: Measure, shape: Shape, ranks: list[float], topology: Topology) -> dict[str, Chosen]:
    ranked = ordering.rank_order(ordering.sooner_first(shape, ranks, slots_of(topology)))
    deep = ordering.deep_order(shape, ranks)
    orders = {
        "rank": ranked,
        "eager": ordering.eager_order(shape, deep, greedy=False),
        "deep": deep,
        "greedy": ordering.eager_order(shape, ranked, greedy=True),
    }
    return {name: measure.of(order) for name, order in orders.items()}


def choose_order(workflow: Workflow, shape: Shape, topology: Topology, made: dict[str, Chosen]) -> Orders:
    """By rank where all that is live fits beside one job per core; else, of the orders that fit at all, the one that holds least. By what
    waits for the lines out, where all that is live fits then and that is clearly quicker.
    """
    candidates = {name: order for name, order in made.items() if name != BY_LINES}
    smallest = min(candidates.values(), key=lambda chosen: (chosen.each, chosen.smallest, chosen.peak))
    fitting = {name: chosen for name, chosen in candidates.items() if chosen.least(topology) <= topology.node_bytes}
    roomy_bytes = topology.capacity_bytes - beside_bytes(shape.footprint, topology)
    chosen = min(fitting.values(), key=lambda chosen: chosen.peak) if fitting else smallest
    if "rank" in fitting and fitting["rank"].peak <= roomy_bytes:
        chosen = fitting["rank"]
    other = made.get(BY_LINES)
    if other is not None and other.least(topology) <= topology.node_bytes:
        fitting[BY_LINES] = other
        if other.peak <= roomy_bytes and is_clearly_quicker(workflow, shape, other.order, chosen.order, topology):
            chosen = other
    return Orders(chosen, smallest, distinct(fitting, chosen), made)


def distinct(orders: dict[str, Chosen], chosen: Chosen) -> dict[str, Chosen]:
    """Those that are neither the chosen one nor one before."""
    others: dict[str, Chosen] = {}
    for name, other in orders.items():
        if all(other.order != known.order for known in (chosen, *others.values())):
            others[name] = other
    return others


def beside_bytes(footprint: Sequence[int], topology: Topology) -> int:
    """The bytes that the other cores' jobs may hold beside the one in turn: one large job does not make all of them large."""
    return sum(nlargest(max(0, slots_of(topology) - 1), footprint))


class Measure:
    """The needs of orders of one shape."""

    __slots__ = ("_everything", "_kept", "_nodes", "_shape", "_unspillable")

    def __init__(self, shape: Shape, can_spill: bool, nodes: int) -> None:
        self._shape, self._nodes, self._unspillable = shape, nodes, ordering.unspillable(shape)
        self._everything = ordering.Usage(shape, [access is not DIRECT for access in shape.access])
        self._kept = None if can_spill else ordering.Usage(shape, self._unspillable)

    def of(self, order: list[int]) -> Chosen:
        shape, kept, nodes = self._shape, self._kept, self._nodes
        held = [shape.footprint[job] for job in order] if kept is None else kept.along(order)
        twice, needs, largest = [0] * len(order), held, None
        if nodes > 1 and kept is not None:
            largest = largest_made(shape)
            twice = [sum([shape.size[file] for file in shape.held[job] if self._unspillable[file]]) for job in order]
            shares = [share_bytes(nodes, now, largest, again) for now, again in zip(held, twice, strict=True)]
            needs = [max(share, shape.footprint[job]) for job, share in zip(order, shares, strict=True)]
        peak = max(self._everything.along(order), default=0)
        return Chosen(order, held, twice, needs, max(held, default=0), peak, max(shape.footprint, default=0), largest)


def largest_made(shape: Shape) -> int:
    return max((size for size, external in zip(shape.size, shape.external, strict=True) if not external), default=0)
