"""Several plans for a run, each simulated, and the one that ends first: with more room or more nodes a list schedule may take longer.

May know: planning, the Machine, the sim. One rule: the plan by the rules of `make_plan` stands unless another ends clearly earlier in the
simulation and moves no more bytes over the wide area; and the same arguments give the same plan, however long it takes to find.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import inf
from typing import Any, NamedTuple

from stager.model.profile import NO_PROFILES, Profiles
from stager.model.topology import Topology
from stager.model.workflow import Workflow, bandwidths_of
from stager.planning.bounds import lower_bound
from stager.planning.choose_order import Chosen
from stager.planning.make_plan import Layout, lay_out, plan_in
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
TOO_LATE = 1.2
# About what planning and simulating once takes for each job and each file; on many nodes more by so much for each of them.
REHEARSED_S, REHEARSED_NODE_SHARE = 0.00015, 0.02
# All simulations of one plan may take so long, and at most that share of what there is to win.
REHEARSING_S_MAX = 1.0
REHEARSING_SHARE = 0.5
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
) -> Plan:
    """As `make_plan`. Alternatives are other orders of the jobs, fewer of the nodes, and fewer jobs that wait ahead. None are looked for
    where a foreign engine has its own order, where nothing fits, where most times are guesses, and where simulating takes too long for
    what there is to win.
    """
    topology = topology.bounded_by(bandwidths_of(workflow))
    with rare_collections():
        layout = lay_out(workflow, topology, profiles, policy, limits, spill_origin, ignore_profiles=ignore_profiles)
        first = Way(layout, layout.orders.chosen)
        plan, rehearsals = first.plan(with_range), Rehearsals(workflow, topology, policy, limits)
        in_vain = bool(workflow.engine) or plan.smallest_node_bytes > plan.node_bytes or is_guesswork(plan)
        if in_vain or not rehearsals.begin(first, plan):
            return plan
        layouts = [layout]
        for few in fewer_nodes(len(topology.nodes))[: rehearsals.left]:
            less = lay_out(workflow, topology, profiles, policy, limits, spill_origin, layout.graph, ignore_profiles, nodes=few)
            if less.orders.smallest.each <= topology.node_bytes:
                layouts.append(less)
        for way in alternatives(layouts, rehearsals):
            if not rehearsals.hear(way):
                break
        return plan if rehearsals.best is first else told_why(rehearsals, plan, rehearsals.best.plan(with_range))


class Way(NamedTuple):
    """To run the workflow."""

    layout: Layout
    order: Chosen
    ahead_max: int = 0

    def plan(self, with_range: bool = False) -> Plan:
        return replace(plan_in(self.layout, self.order, with_range), ahead_max=self.ahead_max)


def is_guesswork(plan: Plan) -> bool:
    return 2 * sum([job.compute_basis is Basis.DEFAULT for job in plan.jobs]) > len(plan.jobs)


def told_why(rehearsals: Rehearsals, first: Plan, plan: Plan) -> Plan:
    ways = [f"on {len(plan.keeps_to)} of the {first.nodes} nodes"] if plan.keeps_to else []
    ways += [f"with no more than {plan.ahead_max} ahead on a node"] if plan.ahead_max else []
    ways += ["in another order"] if [job.job for job in plan.jobs] != [job.job for job in first.jobs] else []
    took = f"simulated, it takes {rehearsals.best_s:,.1f} s, and {rehearsals.first_s:,.1f} s without that"
    return replace(plan, notes=(*plan.notes, f"the run goes {' and '.join(ways)}: {took}"))


def fewer_nodes(count: int) -> list[int]:
    """One less, and by halves."""
    return sorted({fewer for fewer in (count - 1, *(count >> shift for shift in range(1, count.bit_length()))) if fewer}, reverse=True)


def alternatives(layouts: list[Layout], rehearsals: Rehearsals) -> Iterator[Way]:
    """First on fewer nodes, then with fewer jobs ahead, then both in other orders; what went well first. `layouts`: the first is for all
    nodes.
    """
    # By the number of nodes: what the best way took, and how many jobs it had ahead.
    best = {len(layouts[0].topology.nodes): (rehearsals.best_s, 0)}

    def heard(way: Way) -> Iterator[Way]:
        yield way
        nodes = len(way.layout.topology.nodes)
        best[nodes] = min(best.get(nodes, (inf, 0)), (rehearsals.heard_s, way.ahead_max))

    def well_first() -> list[Layout]:
        return sorted(layouts, key=lambda layout: best[len(layout.topology.nodes)][0])

    for layout in layouts[1:]:
        yield from heard(Way(layout, layout.orders.chosen))
    for layout in well_first():
        yield from heard(Way(layout, layout.orders.chosen, FEW_AHEAD))
    for layout in well_first():
        went_well = best[len(layout.topology.nodes)][1]
        for ahead_max in sorted((0, FEW_AHEAD), key=lambda ahead_max: ahead_max != went_well):
            for order in layout.orders.others.values():
                yield from heard(Way(layout, order, ahead_max))


class TooLate(Exception):
    """Much later than the best plan: how much does not matter."""


class Rehearsals:
    """`best`: the way by the rules, or the one that ended first; of two about alike the one that was heard first. `heard_s`: what the last
    one took, at most TOO_LATE times as long, and infinite where it moved more; `left`: how many more may be heard.
    """

    best: Way

    def __init__(self, workflow: Workflow, topology: Topology, policy: Policy | None, limits: Limits | None) -> None:
        self._workflow, self._topology, self._policy, self._limits = workflow, topology, policy, limits
        self.left, self.heard_s, self.best_s, self.first_s = 0, inf, inf, inf
        self._moved_bytes_max = inf

    def begin(self, first: Way, plan: Plan) -> bool:
        """Whether there may be a better one, and time to find it."""
        each_s = REHEARSED_S * (len(plan.jobs) + len(plan.files)) * (1 + REHEARSED_NODE_SHARE * plan.nodes)
        if each_s > REHEARSING_S_MAX or each_s > REHEARSING_SHARE * plan.makespan_s:
            return False
        self.best = first
        self.first_s, self._moved_bytes_max = self.simulated(plan)
        self.best_s = self.first_s
        to_win_s = self.best_s - lower_bound(self._workflow, self._topology, plan).least_s
        if self.best_s == inf or to_win_s <= (1 - CLEARLY_EARLIER) * self.best_s:
            return False
        self.left = int(min(REHEARSING_S_MAX, REHEARSING_SHARE * to_win_s) / each_s)
        return self.left > 0

    def hear(self, way: Way) -> bool:
        """Whether more may be heard."""
        simulated_s, moved_bytes = self.simulated(way.plan())
        self.heard_s = simulated_s if moved_bytes <= self._moved_bytes_max else inf
        if self.heard_s <= CLEARLY_EARLIER * self.best_s:
            self.best, self.best_s = way, self.heard_s
        self.left -= 1
        return self.left > 0

    def simulated(self, plan: Plan) -> tuple[float, float]:
        """(until the run has ended well, bytes over the wide area); infinite where it does not. One that is too late is given up."""
        world = SimWorld(self._topology, self._policy, self._limits)
        world.submit(RUN, self._workflow, plan)
        try:
            simulate(world, self._give_up)
        except TooLate:
            return TOO_LATE * self.best_s, 0.0
        entry, desk = world.runs[RUN], world.desk
        if entry.outcome is not RunOutcome.SUCCEEDED:
            return inf, inf
        in_place_bytes = sum(world.executor.in_place_bytes.values())
        return entry.finished_at, desk.fetched_bytes + desk.uploaded_bytes + desk.readback_bytes + in_place_bytes

    def _give_up(self, machine: Machine, events: Sequence[Any], commands: Sequence[Any]) -> None:
        if machine.state.now > TOO_LATE * self.best_s:
            raise TooLate
