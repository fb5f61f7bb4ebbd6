"""Several plans for a run, each simulated, and the one that ends first: with more room or more nodes a list schedule may take longer.

May know: planning, the Machine, the sim. One rule: the plan by the rules of `make_plan` stands unless another ends clearly earlier in the
simulation and moves no more bytes over the wide area; and the same arguments give the same plan, however long it takes to find.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count, takewhile
from math import inf, sqrt
from typing import Any, NamedTuple

from stager.model.profile import NO_PROFILES, Profiles
from stager.model.topology import Topology
from stager.model.units import format_size
from stager.model.workflow import Workflow, as_assumed, bandwidths_of
from stager.planning.bounds import lower_bound
from stager.planning.make_plan import Layout, lay_out, narrowed, plan_in
from stager.planning.plan import Basis, Plan
from stager.planning.policy import Limits, Policy
from stager.scheduler.commands import RunOutcome
from stager.scheduler.machine import Machine
from stager.sim.simulate import rare_collections, simulate
from stager.sim.world import SimWorld

RUN = "estimate"
# Of the time of the best plan so far: what another may take at most to be preferred.
CLEARLY_EARLIER = 0.99
# A simulation that takes so much longer than the best one is given up.
TOO_LATE = 1.02
# About what planning once takes: for each job and file, and on each node for each that a job reads or makes.
PLANNED_S, PLANNED_USE_S = 0.000005, 0.0000015
# About what simulating takes for each event and command, and how much more of that for each node; and how many of these there are for each
# job and file.
STEPPED_S, STEPPED_NODE_SHARE = 0.000023, 0.12
STEPS = 3
# All simulations of one plan may take so long, and at most that share of what there is to win, or that share of the run where it is more:
# by so much, no run may be slower with more room or more nodes. For a long run they may take a part of its time, up to so long; one whose
# first two simulations take longer than the first of these has none.
REHEARSING_S_MAX = 1.0
REHEARSING_SHARE, REHEARSING_LEAST_SHARE = 0.5, 0.02
REHEARSING_RUN_SHARE, REHEARSING_LONG_S_MAX = 0.01, 3.0
# So few jobs of a node wait, and so few files come ahead: what is next has the lines in to itself.
FEW_AHEAD = 2


def best_plan(
    workflow: Workflow,
    topology: Topology,
    profiles: Profiles = NO_PROFILES,
    policy: Policy | None = None,
    limits: Limits | None = None,
    spill_origin: str | None = None,
    ignore_profiles: bool = False,
    with_range: bool = False,
    nodes: int | None = None,
) -> Plan:
    """As `make_plan`, on all nodes or on the first so many. Alternatives are other orders of the jobs, fewer of the nodes, a part of their
    room, and fewer jobs that wait ahead.
    None are looked for where a foreign engine has its own order, where nothing fits, where most times are guesses, and where simulating
    takes too long for what there is to win.
    """
    topology = topology.bounded_by(bandwidths_of(workflow))

    def on(nodes: int) -> Layout:
        return lay_out(workflow, topology, profiles, policy, limits, spill_origin, layout.graph, ignore_profiles, nodes=nodes)

    with rare_collections():
        layout = lay_out(workflow, topology, profiles, policy, limits, spill_origin, ignore_profiles=ignore_profiles, nodes=nodes)
        plan = plan_in(layout, layout.orders.chosen, with_range)
        if workflow.engine or plan.smallest_node_bytes > plan.node_bytes or is_guesswork(plan):
            return plan
        ways, rehearsals = Ways(layout, on, may_be_fewer=nodes is None), Rehearsals(workflow, topology, policy, limits)
        if not rehearsals.begin(ways.first, plan):
            return plan
        for way in alternatives(ways, rehearsals):
            if not rehearsals.hear(way, ways.plan(way)):
                break
        earliest = rehearsals.earliest
        return plan if earliest is ways.first else told_why(rehearsals, plan, ways.plan(earliest, with_range))


class Way(NamedTuple):
    """To run the workflow: on how many nodes, holding how much of each at most (0: all), with how many ahead, in which order."""

    nodes: int
    holds_max_bytes: int
    ahead_max: int
    order: str


class Ways:
    """All there are. Layouts are made when they are asked for, and kept."""

    def __init__(self, layout: Layout, on: Callable[[int], Layout], *, may_be_fewer: bool = True) -> None:
        self._on = on
        self._layouts: dict[tuple[int, int], Layout] = {(len(layout.topology.nodes), 0): layout}
        self._node_bytes = layout.topology.node_bytes
        self._all_bytes = sum(layout.shape.size)
        nodes = len(layout.topology.nodes)
        # Of nodes that are not alike no number says which: all of them, then.
        self.nodes = [nodes, *(fewer_nodes(nodes) if layout.topology.is_uniform and may_be_fewer else ())]
        self.first = self.ruled(self.nodes[0], 0, 0)

    def plan(self, way: Way, with_range: bool = False) -> Plan:
        layout = self._layout(way.nodes, way.holds_max_bytes)
        return replace(plan_in(layout, layout.orders.made[way.order], with_range), ahead_max=way.ahead_max)

    def ruled(self, nodes: int, holds_max_bytes: int, ahead_max: int) -> Way:
        """In the order that the rules choose."""
        return Way(nodes, holds_max_bytes, ahead_max, self.orders(nodes, holds_max_bytes)[0])

    def orders(self, nodes: int, holds_max_bytes: int) -> list[str]:
        """Those that fit; none: nothing does. The first by the rules."""
        layout = self._layout(nodes, holds_max_bytes)
        if layout.orders.smallest.least(layout.topology) > layout.topology.node_bytes:
            return []
        return [name for name, order in layout.orders.made.items() if order is layout.orders.chosen] + list(layout.orders.others)

    def parts(self, nodes: int) -> list[int]:
        """Of the room of each node: all, then from what holds everything down by halves, and the least: the same whatever room there is.
        On fewer nodes all comes twice, with and without the room of the others.
        """
        alone = [self._node_bytes] if nodes < self.nodes[0] else []
        return [0, *alone, *self._halves(nodes, self._all_bytes), *self._halves(nodes, self._least_bytes(nodes))[:1]]

    def parts_between(self, nodes: int) -> list[int]:
        return self._halves(nodes, int(self._all_bytes / sqrt(2)))

    def _least_bytes(self, nodes: int) -> int:
        return max(1, self._layout(nodes, 0).orders.smallest.each)

    def _halves(self, nodes: int, part_bytes: int) -> list[int]:
        least_bytes = self._least_bytes(nodes)
        halves = takewhile(lambda part_bytes: part_bytes >= least_bytes, (part_bytes >> shift for shift in count()))
        return [part_bytes for part_bytes in halves if part_bytes < self._node_bytes]

    def _layout(self, nodes: int, holds_max_bytes: int) -> Layout:
        found = self._layouts.get((nodes, holds_max_bytes))
        if found is None:
            found = narrowed(self._layout(nodes, 0), holds_max_bytes) if holds_max_bytes else self._on(nodes)
            self._layouts[nodes, holds_max_bytes] = found
        return found


def is_guesswork(plan: Plan) -> bool:
    return 2 * sum([job.compute_basis is Basis.DEFAULT for job in plan.jobs]) > len(plan.jobs)


def told_why(rehearsals: Rehearsals, first: Plan, plan: Plan) -> Plan:
    ways = [f"on {len(plan.keeps_to)} of the {first.nodes} nodes"] if plan.keeps_to else []
    ways += [f"with no more than {format_size(plan.holds_max_bytes)} of a node held at once"] if plan.holds_max_bytes else []
    ways += [f"with no more than {plan.ahead_max} ahead on a node"] if plan.ahead_max else []
    ways += ["in another order"] if [job.job for job in plan.jobs] != [job.job for job in first.jobs] else []
    took = f"simulated, it takes {rehearsals.earliest_s:,.1f} s, and {rehearsals.first_s:,.1f} s without that"
    return replace(plan, notes=(*plan.notes, f"the run goes {' and '.join(ways)}: {took}"))


def fewer_nodes(count: int) -> list[int]:
    """One less, and by halves."""
    return sorted({fewer for fewer in (count - 1, *(count >> shift for shift in range(1, count.bit_length()))) if fewer}, reverse=True)


def alternatives(ways: Ways, rehearsals: Rehearsals) -> Iterator[Way]:
    """One thing changed of the best way so far, as long as that helps; then all the others, those like the best first."""
    heard, before = {ways.first: rehearsals.best_s}, None
    while before is not rehearsals.best:
        before = rehearsals.best
        for change in (other_nodes, other_ahead, other_orders, other_parts):
            best, near_s = rehearsals.best, TOO_LATE * rehearsals.best_s
            near = [way for way in heard if heard[way] < near_s and way[1:3] == best[1:3] and way.nodes != best.nodes]
            for way in change(ways, best, sorted([best, *near], key=heard.__getitem__)):
                if way not in heard:
                    yield way
                    heard[way] = rehearsals.heard_s
    for way in everything(ways, rehearsals.best):
        if way not in heard:
            heard[way] = inf
            yield way


def other_nodes(ways: Ways, best: Way, near: Sequence[Way]) -> list[Way]:
    return [like(ways, best, best._replace(nodes=nodes)) for nodes in ways.nodes if ways.orders(nodes, best.holds_max_bytes)]


def other_ahead(ways: Ways, best: Way, near: Sequence[Way]) -> list[Way]:
    """On other nodes, too, where that is about as good, what went well first: which are the best depends on it most."""
    return [way._replace(ahead_max=ahead_max) for way in near for ahead_max in (0, FEW_AHEAD)]


def other_orders(ways: Ways, best: Way, near: Sequence[Way]) -> list[Way]:
    return [best._replace(order=order) for order in ways.orders(best.nodes, best.holds_max_bytes)]


def other_parts(ways: Ways, best: Way, near: Sequence[Way]) -> list[Way]:
    return [like(ways, best, best._replace(holds_max_bytes=part_bytes)) for part_bytes in ways.parts(best.nodes)]


def like(ways: Ways, way: Way, other: Way) -> Way:
    """The other in the same order as this way if it fits; by the rules where this one is."""
    orders = ways.orders(other.nodes, other.holds_max_bytes)
    is_ruled = way.order == ways.orders(way.nodes, way.holds_max_bytes)[0]
    return other._replace(order=orders[0] if is_ruled or way.order not in orders else way.order)


def everything(ways: Ways, best: Way) -> Iterator[Way]:
    """Each part of the room before other orders there; parts between them last."""
    for nodes in sorted(ways.nodes, key=lambda nodes: nodes != best.nodes):
        for ahead_max in sorted((0, FEW_AHEAD), key=lambda ahead_max: ahead_max != best.ahead_max):
            for part_bytes in ways.parts(nodes):
                yield from [Way(nodes, part_bytes, ahead_max, order) for order in ways.orders(nodes, part_bytes)[:1]]
    for nodes in sorted(ways.nodes, key=lambda nodes: nodes != best.nodes):
        for part_bytes in ways.parts(nodes):
            for ahead_max in sorted((0, FEW_AHEAD), key=lambda ahead_max: ahead_max != best.ahead_max):
                yield from [Way(nodes, part_bytes, ahead_max, order) for order in ways.orders(nodes, part_bytes)]
    for nodes in sorted(ways.nodes, key=lambda nodes: nodes != best.nodes):
        for part_bytes in ways.parts_between(nodes):
            for ahead_max in sorted((0, FEW_AHEAD), key=lambda ahead_max: ahead_max != best.ahead_max):
                yield from [Way(nodes, part_bytes, ahead_max, order) for order in ways.orders(nodes, part_bytes)[:1]]


class TooLate(Exception):
    """Much later than the best plan: how much does not matter."""


class Rehearsals:
    """`best`: the way by the rules, or the one that ended first; of two about alike the one that was heard first: what is tried next is
    like it. `earliest`: the way by the rules, or of those that end clearly earlier the first to end, by however little. `heard_s`: what the
    last one took, at most TOO_LATE times as long as the best, and infinite where it moved more.
    """

    best: Way
    earliest: Way

    def __init__(self, workflow: Workflow, topology: Topology, policy: Policy | None, limits: Limits | None) -> None:
        self._workflow, self._topology, self._policy, self._limits = workflow, topology, policy, limits
        self._uses = sum([len(job.inputs) + len(job.outputs) for job in workflow.jobs.values()])
        self.best_s = self.earliest_s = self.first_s = self.heard_s = self._moved_bytes_max = inf
        self._least_s, self._took_s, self._steps = 0.0, 0.0, 0

    def begin(self, first: Way, plan: Plan) -> bool:
        """Whether there may be a better one, and time to find it."""
        two_s = 2 * self._takes_s(plan, STEPS * (len(plan.jobs) + len(plan.files)))
        if two_s > REHEARSING_S_MAX or two_s > REHEARSING_SHARE * plan.makespan_s:
            return False
        self.best = self.earliest = first
        self.first_s, self._moved_bytes_max = self.simulated(plan)
        self.best_s = self.earliest_s = self.first_s
        self._took_s = self._takes_s(plan, self._steps)
        self._least_s = lower_bound(self._workflow, self._topology, plan).least_s
        return self.best_s != inf and self._least_s < CLEARLY_EARLIER * self.best_s and self._has_time()

    def hear(self, way: Way, plan: Plan) -> bool:
        """Whether more may be heard."""
        self._steps = 0
        simulated_s, moved_bytes = self.simulated(plan)
        self.heard_s = simulated_s if moved_bytes <= self._moved_bytes_max else inf
        if self.heard_s <= CLEARLY_EARLIER * self.best_s:
            self.best, self.best_s = way, self.heard_s
        if self.heard_s < min(self.earliest_s, CLEARLY_EARLIER * self.first_s):
            self.earliest, self.earliest_s = way, self.heard_s
        self._took_s += self._takes_s(plan, self._steps)
        return self._has_time()

    def _has_time(self) -> bool:
        most_s = min(max(REHEARSING_S_MAX, REHEARSING_RUN_SHARE * self.best_s), REHEARSING_LONG_S_MAX)
        worth_s = max(REHEARSING_SHARE * (self.best_s - self._least_s), REHEARSING_LEAST_SHARE * self.best_s)
        return self._took_s < min(most_s, worth_s)

    def _takes_s(self, plan: Plan, steps: int) -> float:
        """Planning and simulating, whatever it really takes: the same arguments have to give the same."""
        planned_s = PLANNED_S * (len(plan.jobs) + len(plan.files)) + PLANNED_USE_S * self._uses * plan.nodes
        return planned_s + STEPPED_S * (1 + STEPPED_NODE_SHARE * plan.nodes) * steps

    def simulated(self, plan: Plan) -> tuple[float, float]:
        """(until the run has ended well, bytes over the wide area); infinite where it does not. One that is too late is given up."""
        world = SimWorld(self._topology, self._policy, self._limits)
        world.submit(RUN, as_assumed(self._workflow), plan)
        try:
            simulate(world, self._watch)
        except TooLate:
            return TOO_LATE * self.best_s, 0.0
        entry, transfers = world.runs[RUN], world.transfers
        if entry.outcome is not RunOutcome.SUCCEEDED:
            return inf, inf
        direct_bytes = sum(world.executor.direct_bytes.values())
        return entry.finished_at, transfers.fetched_bytes + transfers.uploaded_bytes + transfers.read_backs.moved_bytes + direct_bytes

    def _watch(self, machine: Machine, events: Sequence[Any], commands: Sequence[Any]) -> None:
        self._steps += len(events) + len(commands)
        if machine.state.now > TOO_LATE * self.best_s:
            raise TooLate
