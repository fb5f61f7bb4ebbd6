"""Plans as profiles would make them, for cases that have none."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from msgspec import structs

from stager.model.workflow import Workflow
from stager.planning.plan import Basis, Plan


def modest(plan: Plan, part: int) -> Plan:
    """With files that are made likely to be so much smaller than what is set aside for them."""
    files = tuple(
        file if file.size_basis is Basis.MEASURED else structs.replace(file, likely_bytes=file.size_bytes // part) for file in plan.files
    )
    return replace(plan, files=files)


def with_deterministic(workflow: Workflow, random: Random) -> Workflow:
    share = random.choice((0.0, 0.5, 1.0))
    jobs = {name: replace(job, deterministic=random.random() < share) for name, job in workflow.jobs.items()}
    return replace(workflow, jobs=jobs)
