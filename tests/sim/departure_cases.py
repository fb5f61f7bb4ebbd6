"""Cases in which nodes leave for good, come back as strangers, drain, and come late.

May know: the other cases. One rule: everything follows from the seed.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from stager.planning.make_plan import make_plan

WITH_COPIES = ("restart", "outage", "crash", "kill", "gone", "gone", "drains", "joins")


def joined_late(case: Any) -> Any:
    """Every other plan does not know of the nodes that come late, nor of any but the first."""
    if case.seed % 2 or not any(trouble.what == "joins" for trouble in case.faults.troubles):
        return case
    first = replace(case.topology, nodes=case.topology.nodes[:1])
    plans = [make_plan(workflow, first, spill_origin=plan.spill_origin) for workflow, plan in zip(case.workflows, case.plans, strict=True)]
    return replace(case, plans=plans)


def copied(case: Any) -> Any:
    """What is made is to be on two nodes, or three."""
    return replace(case, policy=replace(case.policy, copies=Random(f"copies/{case.seed}").choice((2, 2, 2, 3))))
