"""Cases whose nodes, all but the first, are on other hosts than the scheduler, with origins that are directories beside the workflow.

May know: the other cases. One rule: everything follows from the seed.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

# What comes through another node waits for its room and its line.
SLACK_S = 300.0


def set_apart(case: Any, seed: int) -> Any:
    """Each origin that nothing is spilled to may be such a directory. In every other case the first node has more room; else a run may be
    refused.
    """
    random = Random(f"apart/{seed}")
    spills = {plan.spill_origin for plan in case.plans}
    beside = [name for name in ("home", "archive") if name not in spills and random.random() < 0.8]
    workflows = []
    for workflow in case.workflows:
        origins = {name: replace(origin, beside_workflow=name in beside) for name, origin in workflow.origins.items()}
        workflows.append(replace(workflow, origins=origins))
    nodes, roomy = case.topology.nodes, random.random() < 0.5
    if roomy:
        everything = sum(file.size_bytes or 0 for workflow in workflows for file in workflow.files.values())
        nodes = (replace(nodes[0], capacity_bytes=nodes[0].capacity_bytes + everything), *nodes[1:])
    topology, apart = replace(case.topology, nodes=nodes), tuple(node.id for node in nodes[1:])
    facts = {"workflows": workflows, "topology": topology, "apart": apart, "must_succeed": case.must_succeed and roomy}
    return replace(case, slack_s=case.slack_s + SLACK_S, **facts)
