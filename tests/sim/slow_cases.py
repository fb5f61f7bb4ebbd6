"""Cases in which nodes are slow for a while, or for good: other cases, with that drawn.

One rule: everything follows from the seed of the case, so that a failure is reproduced by it.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from stager.sim.faults import Trouble

if TYPE_CHECKING:
    from tests.sim.cases import Case


def slowed(case: Case) -> Case:
    """One or two nodes, from the start or later, with narrow lines: much is on its way then."""
    random = Random(f"slow/{case.seed}")
    span_s = sum(plan.makespan_s for plan in case.plans)
    links = tuple(replace(link, node_fetch_bytes_per_s=link.fetch_bytes_per_s / random.choice((1, 2, 10))) for link in case.topology.links)
    troubles = [
        Trouble(random.choice((0.0, random.random() * span_s)), "slow", random.choice((0.5, 20.0)) * span_s, random.random())
        for _ in range(random.randint(1, 2))
    ]
    fast_again_s = max(trouble.at + trouble.lasts_s for trouble in troubles)
    faults = replace(case.faults, troubles=tuple(sorted((*case.faults.troubles, *troubles), key=lambda each: each.at)))
    topology = replace(case.topology, links=links)
    return replace(case, topology=topology, faults=faults, slack_s=case.slack_s + fast_again_s)
