"""Cases in which runs that want the same jobs go on at once: a workflow, and the same with some of its jobs edited, begun while it runs.

One rule: everything follows from the seed of the case, so that a failure is reproduced by it.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from stager.model.workflow import Workflow, graph_of
from stager.planning.make_plan import make_plan
from stager.planning.plan import Sharing
from tests.sim.kept_cases import MUCH, distinct, edited

if TYPE_CHECKING:
    from tests.sim.cases import Case


def with_more_between(random: Random, workflow: Workflow) -> Workflow:
    """Most of its finals that jobs read are none."""
    graph, files = graph_of(workflow), dict(workflow.files)
    for lfn, file in files.items():
        if file.destination is not None and graph.readers[lfn] and random.random() < 0.8:
            files[lfn] = replace(file, destination=None)
    return replace(workflow, files=files)


def beside(case: Case) -> Case:
    """One to three edits of the first workflow of the case, begun while it runs, or when it is just over. Some of them run all by
    themselves, some force a few jobs, some have another priority.
    """
    random = Random(f"beside/{case.seed}")
    first, spill = distinct(with_more_between(random, case.workflows[0])), case.plans[0].spill_origin
    edits = [edited(random, first, number, (0.0, 0.1, 0.3)) for number in range(1, random.choice((2, 2, 3, 4)))]
    workflows = [first, *(distinct(edit) for edit in edits)]
    topology, sized = case.topology, [make_plan(workflow, case.topology, spill_origin=spill) for workflow in workflows]
    if random.random() < 0.7:
        least = 1 + sum(file.size_bytes for plan in sized for file in plan.files)
    else:
        # With more between its jobs it needs more room than it was drawn with.
        least = max(plan.smallest_capacity_bytes for plan in sized)
    nodes = (replace(node, capacity_bytes=max(least, node.capacity_bytes)) for node in topology.nodes)
    topology = replace(topology, nodes=tuple(nodes))
    plans = [make_plan(workflow, topology, spill_origin=spill) for workflow in workflows]
    span = plans[0].makespan_s + 1
    # Never two at one instant: a checker hears of both before it sees what went for the first.
    starts = (0.0, *(random.choice((0.0, 0.0, 0.1, 0.3, 0.6, 1.1)) * span + (number + 1) / 100 for number in range(len(edits))))

    def sharing() -> Sharing | None:
        forced = tuple(job_id for job_id in first.jobs if random.random() < 0.1) if random.random() < 0.2 else ()
        return Sharing(joins=True, forced=forced) if random.random() < 0.9 else None

    priorities = tuple(("", random.choice((0, 0, 0, 1, -1))) for _ in workflows)
    keeps = {"keep_results_bytes": random.choice((0, MUCH)), "keep_results_s": 1e9}
    return replace(
        case,
        workflows=workflows,
        plans=plans,
        topology=topology,
        reused=(),
        starts_s=starts,
        sharing=tuple(sharing() for _ in workflows),
        policy=replace(case.policy, **keeps),
        interrupts=tuple(each for each in case.interrupts if each[1] == 0),
        tenants=priorities,
        must_succeed=case.must_succeed and case.spread.sizes == 1.0,
    )
