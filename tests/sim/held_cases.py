"""Cases whose plans hold less than nodes have room for: other cases, with that drawn for each plan.

One rule: everything follows from the seed of the case, so that a failure is reproduced by it.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from stager.planning.plan import Plan

if TYPE_CHECKING:
    from tests.sim.cases import Case


def held(case: Case) -> Case:
    """From less than any job needs to all there is; and at times few ahead, too."""
    random = Random(f"held/{case.seed}")
    return replace(case, plans=[held_plan(random, plan) for plan in case.plans])


def held_plan(random: Random, plan: Plan) -> Plan:
    largest = max([job.footprint_bytes for job in plan.jobs], default=1)
    most = random.choice((1, largest // 2, largest, 2 * largest, plan.node_bytes // 2))
    return replace(plan, holds_max_bytes=max(1, most), ahead_max=random.choice((0, 0, 2)))
