"""Cases in which jobs that were edited may make what they made before: what follows from them was made before then.

One rule: everything follows from the seed of the case, so that a failure is reproduced by it.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from stager.model.files import Destination, Location, OnExists
from stager.model.ids import produced_file_id
from stager.model.results import KeptOutput, MadeOutput, Result, SeenAt
from stager.model.scatter import standing_jobs, unknown
from stager.model.workflow import Job, Workflow, graph_of
from stager.planning.guess import guess
from stager.planning.job_key import key_of
from stager.planning.make_plan import make_plan
from stager.planning.plan import Plan, ReusedJob, Sharing
from stager.planning.residual import residual, widened
from stager.planning.reuse import Known, decide
from stager.service.guessing import as_told
from stager.service.reusing import Remembered, reused_jobs
from stager.sim.origin import expected_contents
from tests.sim.beside_cases import with_more_between
from tests.sim.kept_cases import MUCH, distinct

if TYPE_CHECKING:
    from tests.sim.cases import Case


def cut_off(case: Case) -> Case:
    """The first workflow of the case, and one or two edits of it: comments in scripts, which change nothing that is made, and now and then
    something that does. Some finals are where they were left.
    """
    random = Random(f"cut off/{case.seed}")
    first, spill, topology = distinct(with_more_between(random, case.workflows[0])), case.plans[0].spill_origin, case.topology
    edits = [commented(random, first, number) for number in range(1, random.choice((2, 3)))]
    sized, is_roomy = [make_plan(edit, topology, spill_origin=spill) for edit in (first, *edits)], random.random() < 0.8
    least = max(plan.smallest_capacity_bytes for plan in sized)
    least = 1 + sum(file.size_bytes for plan in sized for file in plan.files) if is_roomy else least
    topology = replace(topology, nodes=tuple(replace(node, capacity_bytes=max(least, node.capacity_bytes)) for node in topology.nodes))
    case = replace(case, topology=topology)
    parts = [guessed_part(random, case, first, edit, spill, f"e{number}") for number, edit in enumerate(edits, 1)]
    plan = make_plan(first, topology, spill_origin=spill)
    span = plan.makespan_s + 1
    starts = (0.0, *(random.choice((0.3, 1.0, 1.5, 2.5)) * span + (number + 1) / 100 for number in range(len(edits))))
    return replace(
        case,
        workflows=[first, *edits],
        plans=[plan, *(each for each, _, _ in parts)],
        reused=((), *(jobs for _, jobs, _ in parts)),
        sharing=(None, *(sharing for _, _, sharing in parts)),
        starts_s=starts,
        policy=replace(case.policy, keep_results_bytes=random.choice((0, MUCH, MUCH)), keep_results_s=1e9),
        interrupts=tuple(each for each in case.interrupts if each[1] == 0),
        tenants=(),
        must_succeed=case.must_succeed and case.spread.sizes == 1.0,
    )


def commented(random: Random, workflow: Workflow, number: int) -> Workflow:
    """With another key of some jobs; and of a few with another name, so that they make something else. Its finals have places of their
    own, and replace what is there.
    """
    share, really = random.choice((0.1, 0.3)), random.choice((0.0, 0.0, 0.1))
    names = {job_id: f"{job_id}e{number}" if random.random() < really else job_id for job_id in workflow.jobs}

    def again(job: Job) -> Job:
        env = (*job.env, ("COMMENT", str(number))) if random.random() < share or names[job.id] != job.id else job.env
        return replace(job, id=names[job.id], after=tuple(names[other] for other in job.after), env=env)

    files = dict(workflow.files)
    for lfn, file in files.items():
        if file.destination is not None:
            where = file.destination.location
            files[lfn] = replace(file, destination=Destination(Location(where.origin, f"cut{number}/{where.path}"), OnExists.REPLACE))
    return replace(workflow, jobs={names[job_id]: again(job) for job_id, job in workflow.jobs.items()}, files=files)


def guessed_part(
    random: Random, case: Case, first: Workflow, edit: Workflow, spill: str | None, mark: str
) -> tuple[Plan, tuple[ReusedJob, ...], Sharing]:
    """As if the first run were over, and most of its finals at the places of this one. What nodes keep they may have dropped meanwhile.
    `mark`: ends the names of jobs that make something else.
    """
    made = expected_contents(first, graph_of(first))
    sizes = {lfn: case.spread.size_bytes(file.size_bytes or 0, "r0", lfn) for lfn, file in first.files.items()}
    results: dict[str, Result] = {}
    last: dict[str, Result] = {}
    kept: dict[tuple[str, str], KeptOutput] = {}
    for job in first.jobs.values():
        key = key_of(first, job, made, {})
        outputs = tuple(MadeOutput(output.path, sizes[output.lfn], made[output.lfn]) for output in job.outputs)
        last[job.id] = results[key.digest] = Result(key.digest, "r0", job.id, "work", "w", key.parts, outputs, 0.0, 1.0)
        for output in job.outputs:
            if not first.files[output.lfn].is_final:
                file = produced_file_id("r0", output.lfn)
                kept[key.digest, output.path] = KeptOutput(file, sizes[output.lfn], made[output.lfn])
    held = {
        lfn: SeenAt("", file.destination.location.path, f"earlier {lfn}", sizes[lfn], made[lfn], 0.0, "readback")
        for lfn, file in edit.files.items()
        if file.destination is not None and lfn in made and random.random() < 0.8
    }
    contents = {lfn: made[lfn] for lfn, file in edit.files.items() if file.is_external}
    known = Known(contents, held, results.get, kept=kept)
    makers, standing = {each.maker for each in unknown(edit.scatters)}, standing_jobs(edit.scatters)
    reuse = decide(edit, known, makers | standing)
    plan = make_plan(edit, case.topology, spill_origin=spill)
    if reuse.reused:
        whole = widened(make_plan(residual(edit, reuse), case.topology, spill_origin=spill), edit, reuse, case.topology.nodes[0].id)
        if reuse.kept and sum(file.size_bytes for file in whole.files) > whole.capacity_bytes:
            known = replace(known, kept={})
            reuse = decide(edit, known, makers | standing)
            whole = widened(make_plan(residual(edit, reuse), case.topology, spill_origin=spill), edit, reuse, case.topology.nodes[0].id)
        plan = whole if reuse.reused else plan
    found = Remembered(reuse, known)
    guesses = guess(edit, known, reuse, (), lambda job_id: last.get(job_id.removesuffix(mark)))
    told = [as_told(edit, found, job_id, each) for job_id, each in guesses.items()]
    jobs = reused_jobs(edit, reuse) if reuse.reused else ()
    return plan, jobs, Sharing(guessed=tuple(each for each in told if each is not None))
