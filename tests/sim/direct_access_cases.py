"""Cases whose plans have some inputs read directly.

One rule: everything follows from the seed of the case.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from msgspec import structs

from stager.model.workflow import Workflow
from stager.planning.plan import Access, DirectAccess, DirectRead, FilePlan

if TYPE_CHECKING:
    from tests.sim.cases import Case


def direct_access(case: Case) -> Case:
    """Some of the inputs that have one source are read directly by all their readers, each a part of them; on some nodes none can be."""
    random = Random(f"direct/{case.seed}")
    plans = [
        replace(plan, files=tuple(sampled_direct_access(random, workflow, file) for file in plan.files))
        for workflow, plan in zip(case.workflows, case.plans, strict=True)
    ]
    can_link = random.random() > 0.2
    topology = replace(case.topology, nodes=tuple(replace(node, can_link=can_link) for node in case.topology.nodes))
    return replace(case, plans=plans, topology=topology)


def sampled_direct_access(random: Random, workflow: Workflow, file: FilePlan) -> FilePlan:
    if len(workflow.files[file.lfn].sources) != 1 or random.random() < 0.4:
        return file
    part, pace = random.random(), random.choice((100.0, 1000.0, 10_000.0))
    read = DirectRead("work", int(part * file.size_bytes), part * file.size_bytes / pace)
    return structs.replace(
        file, access=Access.DIRECT, direct_access=DirectAccess(0.0, file.size_bytes, 0.0, read.size_bytes, (read,), "drawn")
    )
