"""Cases in which nodes keep what jobs made, and later runs take it over: a workflow, and the same with some of its jobs edited.

One rule: everything follows from the seed of the case, so that a failure is reproduced by it.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from stager.model.files import Destination, File, Location
from stager.model.ids import produced_file_id
from stager.model.results import KeptOutput, MadeOutput, Result
from stager.model.workflow import Job, Workflow, graph_of
from stager.planning.job_key import key_of
from stager.planning.make_plan import make_plan
from stager.planning.plan import Plan, ReusedJob
from stager.planning.residual import residual, widened
from stager.planning.reuse import Known, decide
from stager.service.reusing import reused_jobs
from stager.sim.origin import expected_contents

if TYPE_CHECKING:
    from tests.sim.cases import Case

MUCH = 1 << 40


def kept(case: Case) -> Case:
    """The first workflow of the case, and one or two edits of it, begun while it runs or after it. Nodes keep all, some or little of it,
    for long or not. What is not there any more when an edit begins, the scheduler has to see by itself.
    """
    random = Random(f"kept/{case.seed}")
    first, plan = case.workflows[0], case.plans[0]
    edits = [edited(random, first, number) for number in range(1, random.choice((2, 3)))]
    parts = [reused_part(case, first, edit, plan.spill_origin) for edit in edits]
    span = plan.makespan_s + 1
    # Never two at one instant: a checker hears of both before it sees what went for the first.
    starts = (0.0, *(random.choice((0.3, 0.8, 1.5, 2.5)) * span + number / 100 for number in range(len(edits))))
    least = min(node.capacity_bytes for node in case.topology.nodes)
    if random.random() < 0.7:
        nodes, rooms = case.topology.nodes, sum(file.size_bytes for part in (plan, *(each for each, _ in parts)) for file in part.files)
        case = replace(case, topology=replace(case.topology, nodes=tuple(replace(node, capacity_bytes=rooms + 1) for node in nodes)))
        plan = make_plan(first, case.topology, spill_origin=plan.spill_origin)
        parts = [reused_part(case, first, edit, plan.spill_origin) for edit in edits]
    keeps = {"keep_results_bytes": random.choice((MUCH, MUCH, least // 4 + 1, 1)), "keep_results_s": random.choice((1e9, 1e9, 0.5))}
    return replace(
        case,
        workflows=[first, *edits],
        plans=[plan, *(each for each, _ in parts)],
        reused=((), *(jobs for _, jobs in parts)),
        starts_s=starts,
        policy=replace(case.policy, **keeps),
        interrupts=tuple(each for each in case.interrupts if each[1] == 0),
        tenants=(),
        must_succeed=case.must_succeed and case.spread.sizes == 1.0,
    )


def edited(random: Random, workflow: Workflow, number: int, shares: tuple[float, ...] = (0.1, 0.3, 0.6)) -> Workflow:
    """With other scripts in some of its jobs, which have other names then, and its finals beside those of before."""
    share = random.choice(shares)
    names = {job_id: f"{job_id}e{number}" if random.random() < share else job_id for job_id in workflow.jobs}

    def again(job: Job) -> Job:
        return replace(job, id=names[job.id], after=tuple(names[other] for other in job.after))

    def moved(file: File) -> File:
        if file.destination is None:
            return file
        where = file.destination.location
        return replace(file, destination=Destination(Location(where.origin, f"again{number}/{where.path}")))

    jobs = {names[job_id]: again(job) for job_id, job in workflow.jobs.items()}
    return replace(workflow, jobs=jobs, files={lfn: moved(file) for lfn, file in workflow.files.items()})


def distinct(workflow: Workflow) -> Workflow:
    """Jobs of drawn workflows are all the same program."""
    return replace(workflow, jobs={job.id: replace(job, env=(("JOB", job.id),)) for job in workflow.jobs.values()})


def reused_part(case: Case, first: Workflow, edit: Workflow, spill: str | None) -> tuple[Plan, tuple[ReusedJob, ...]]:
    """As if the first run were over, and all that it made were on a node still."""
    made, told = expected_contents(first, graph_of(first)), expected_contents(edit, graph_of(edit))
    results: dict[str, Result] = {}
    held: dict[tuple[str, str], KeptOutput] = {}
    for job in distinct(first).jobs.values():
        key = key_of(distinct(first), job, made, {})
        sizes = {output.lfn: case.spread.size_bytes(first.files[output.lfn].size_bytes or 0, "r0", output.lfn) for output in job.outputs}
        outputs = tuple(MadeOutput(output.path, sizes[output.lfn], made[output.lfn]) for output in job.outputs)
        results[key.digest] = Result(key.digest, "r0", job.id, "work", "w", key.parts, outputs, 0.0, 1.0)
        for output in job.outputs:
            file = produced_file_id("r0", output.lfn)
            held[key.digest, output.path] = KeptOutput(file, sizes[output.lfn], made[output.lfn])
    known = Known({lfn: told[lfn] for lfn, file in edit.files.items() if file.is_external}, {}, results.get, kept=held)
    found = decide(distinct(edit), known, ())
    if not found.reused:
        return make_plan(edit, case.topology, spill_origin=spill), ()
    part = make_plan(residual(edit, found), case.topology, spill_origin=spill)
    whole = widened(part, edit, found, case.topology.nodes[0].id)
    if sum(file.size_bytes for file in whole.files) > whole.capacity_bytes:
        # As service/prepare.py has it.
        return make_plan(edit, case.topology, spill_origin=spill), ()
    return whole, reused_jobs(edit, found)
