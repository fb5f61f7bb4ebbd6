"""Plans that name nodes which are not here: they were made for other nodes, or a node went away since.

May know: plans, the state's nodes. One rule: jobs of one missing node stay together, so what they read is still at one place.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from msgspec import structs

from stager.planning.plan import FilePlan, Plan
from stager.scheduler.node_entry import NodeEntry

log = logging.getLogger(__name__)


def placed_here(plan: Plan, nodes: Mapping[str, NodeEntry]) -> Plan:
    """The plan with each missing node's jobs on a node that is here: the largest, and the next larger for the next. As it is where none is
    missing, or none here.
    """
    here = sorted((node for node in nodes.values() if node.reachable), key=lambda node: (-node.capacity_bytes, node.id))
    missing = sorted({job.node for job in plan.jobs} - {node.id for node in here})
    if not missing or not here:
        return plan
    instead = {node: here[at % len(here)].id for at, node in enumerate(missing)}
    log.warning("the plan names nodes that are not here; their jobs go elsewhere: %s", ", ".join(f"{a} to {b}" for a, b in instead.items()))
    jobs = (structs.replace(job, node=instead.get(job.node, job.node), other_node="", other_finish_s=None) for job in plan.jobs)
    return replace(plan, jobs=tuple(jobs), files=tuple(moved(file, instead) for file in plan.files))


def moved(file: FilePlan, instead: Mapping[str, str]) -> FilePlan:
    nodes = tuple(dict.fromkeys(instead.get(node, node) for node in file.nodes))
    return structs.replace(file, node=instead.get(file.node, file.node), nodes=nodes)
