"""Cases whose plans hold less than nodes have room for: other cases, with that drawn for each plan.

One rule: everything follows from the seed of the case, so that a failure is reproduced by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from msgspec import structs

from stager.planning.plan import Plan

if TYPE_CHECKING:
    from tests.sim.cases import Case


def held(case: Case) -> Case:
    """From less than any job needs to all there is; and at times few ahead, too, and only some of the nodes."""
    random, few = Random(f"held/{case.seed}"), Random(f"few/{case.seed}")
    names = [node.id for node in case.topology.nodes]
    return replace(case, plans=[on_few(few, names, held_plan(random, plan)) for plan in case.plans])


def held_plan(random: Random, plan: Plan) -> Plan:
    largest = max([job.footprint_bytes for job in plan.jobs], default=1)
    most = random.choice((1, largest // 2, largest, 2 * largest, plan.node_bytes // 2))
    return replace(plan, holds_max_bytes=max(1, most), ahead_max=random.choice((0, 0, 2)))


def on_few(random: Random, names: Sequence[str], plan: Plan) -> Plan:
    """On the first of the nodes, whether they have the room that it needs or not."""
    kept = tuple(names[: random.randint(1, len(names))])
    if len(kept) == len(names):
        return plan
    jobs = tuple([structs.replace(job, node=job.node if job.node in kept else random.choice(kept)) for job in plan.jobs])
    return replace(plan, jobs=jobs, keeps_to=kept)
