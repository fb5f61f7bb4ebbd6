"""Cases in which an earlier run made a part of what is asked for: other cases, with that drawn for each workflow.

One rule: everything follows from the seed of the case, so that a failure is reproduced by it.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from stager.model.results import MadeOutput, Result, SeenAt
from stager.model.workflow import Workflow, graph_of
from stager.planning.job_key import key_of
from stager.planning.make_plan import make_plan
from stager.planning.plan import Plan, ReusedJob
from stager.planning.residual import residual, widened
from stager.planning.reuse import Known, decide
from stager.service.reusing import reused_jobs
from stager.sim.origin import expected_contents

if TYPE_CHECKING:
    from tests.sim.cases import Case


def reused(case: Case) -> Case:
    """Each job was made before or was not, and each final is still there or is not. What was made is as large as it would be made."""
    random = Random(f"reuse/{case.seed}")
    pairs = zip(case.workflows, case.plans, strict=True)
    found = [reused_part(random, case, f"r{number}", workflow, plan) for number, (workflow, plan) in enumerate(pairs)]
    return replace(case, plans=[plan for plan, _ in found], reused=tuple(jobs for _, jobs in found))


def reused_part(random: Random, case: Case, run: str, workflow: Workflow, plan: Plan) -> tuple[Plan, tuple[ReusedJob, ...]]:
    contents = expected_contents(workflow, graph_of(workflow))
    share, results = random.choice((0.5, 0.9, 1.0)), dict[str, Result]()
    sizes = {lfn: case.spread.size_bytes(file.size_bytes or 0, run, lfn) for lfn, file in workflow.files.items()}
    named = {job.id: replace(job, env=(("JOB", job.id),)) for job in workflow.jobs.values()}
    told = Known(
        {lfn: contents[lfn] for lfn, file in workflow.files.items() if file.is_external},
        {
            lfn: SeenAt("", file.destination.location.path, f"earlier {lfn}", sizes[lfn], contents[lfn], 0.0, "readback")
            for lfn, file in workflow.files.items()
            if file.destination is not None and random.random() < 0.9
        },
        results.get,
    )
    # Jobs of drawn workflows are all the same program.
    distinct = replace(workflow, jobs=named)
    keys = {job.id: key_of(distinct, job, contents, {}).digest for job in named.values()}
    for job in named.values():
        made = tuple(MadeOutput(output.path, sizes[output.lfn], contents[output.lfn]) for output in job.outputs)
        if random.random() < share:
            results[keys[job.id]] = Result("", "earlier", job.id, "work", "w", {}, made, 0.0, 1.0)
    found = decide(distinct, told, ())
    if not found.reused:
        return plan, ()
    part = make_plan(residual(workflow, found), case.topology, spill_origin=plan.spill_origin)
    return widened(part, workflow, found, case.topology.nodes[0].id), reused_jobs(workflow, found)
