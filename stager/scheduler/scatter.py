"""Jobs that are decided while their run goes on: the members that a job named, and the definition that follows from them.

May know: the state, accounting. One rule: what has begun stays as it is and is found where it was; all else is entered as if it had been
there from the start.
"""

from __future__ import annotations

from heapq import heappush

from stager.model.errors import ErrorClass, Fault
from stager.model.scatter import Scatter, assumed_jobs, unknown
from stager.model.workflow import Workflow, graph_of
from stager.planning.plan import Plan
from stager.planning.reordered import reordered
from stager.scheduler import events as ev
from stager.scheduler.accounting import (
    FAILED_STATES,
    count_parents,
    make_ready_or_wait,
    queue_start,
    recount_live,
    settle,
    skip_with_descendants,
)
from stager.scheduler.amend import forget_queued, largest, let_go
from stager.scheduler.entering import direct_access, enter_file, enter_uses, planned_files, serial_order
from stager.scheduler.profiles import begin_profiles, profile_if_tight
from stager.scheduler.state import JobEntry, RunEntry, State
from stager.scheduler.states import BEGUN, ENDED, JobState, RunState

GOES_ON = (RunState.ACTIVE, RunState.DRAINING)


def note_members(run: RunEntry, event: ev.AttemptEnded) -> None:
    for each in unknown(run.workflow.scatters):
        if each.name in event.members:
            run.members[each.name] = event.members[each.name]


def other_members(run: RunEntry, job: str, event: ev.AttemptEnded) -> Fault | None:
    """Of a job that ran again: jobs were made of what it named before."""
    for each in run.workflow.scatters if event.members else ():
        if each.rows is not None and each.maker == job and event.members.get(each.name, each.rows) != each.rows:
            text = f"job {job!r} had to run again and names other members in {each.what}, after jobs were made of the first ones"
            return Fault(ErrorClass.CORRUPT, "remade_differs", f"{text}; start a new run", each.over)
    return None


def lacks_members(run: RunEntry, job: str, event: ev.AttemptEnded) -> bool:
    """Whoever told its end has not read what others scatter over."""
    return any(each.maker == job and each.rows is None and each.name not in event.members for each in run.workflow.scatters)


def is_told(run: RunEntry, job: str, event: ev.AttemptEnded) -> bool:
    """What its outputs name is known with them, and fits what was made of it before."""
    return not run.workflow.scatters or (other_members(run, job, event) is None and not lacks_members(run, job, event))


def pending(run: RunEntry) -> list[Scatter]:
    """Those whose members are known and whose jobs have not been made of them."""
    if not run.members or run.state not in GOES_ON:
        return []
    return [
        each
        for each in unknown(run.workflow.scatters)
        if each.name in run.members
        and run.jobs[each.maker].state is JobState.DONE
        and any(run.jobs[job].state is JobState.WAITING for job in each.jobs)
    ]


def run_scattered(state: State, event: ev.RunScattered) -> None:
    run = state.runs.get(event.run)
    found = told(run, event) if run is not None else []
    if run is None or not found or (event.workflow is not None and why_not(run, event.workflow)):
        state.stale += 1
        return
    if event.workflow is not None and event.plan is not None:
        grow(state, run, event.workflow, event.plan)
        for each in found:
            del run.members[each.name]
            if run.guessed:
                # What is below it is known now.
                state.done_of_guess.append((run.id, each.maker))
        return
    # The first of those that can still fail does, by a command.
    for job_id in standing_for(run, found[0])[1:]:
        if run.jobs[job_id].state is JobState.WAITING:
            skip_with_descendants(state, run, run.jobs[job_id])


def told(run: RunEntry, event: ev.RunScattered) -> list[Scatter]:
    """All that the event speaks of, that before the others which it names first; none where one of them is not pending."""
    by_name = {each.name: each for each in pending(run)}
    names = (event.scatter, *event.also)
    return [by_name[name] for name in names] if by_name.keys() >= set(names) else []


def standing_for(run: RunEntry, scatter: Scatter) -> list[str]:
    return [job_id for job_id in scatter.jobs if run.jobs[job_id].state is JobState.WAITING]


def why_not(run: RunEntry, workflow: Workflow) -> str:
    """Why the definition does not fit what has begun and what was known by now. Empty: it does."""
    known = {each.name: each.rows for each in workflow.scatters}
    for each in run.workflow.scatters:
        if each.rows is not None and known.get(each.name) != each.rows:
            return f"the members of {each.name!r} are others"
    asked = {each.name for each in run.workflow.scatters}
    for each in unknown(workflow.scatters):
        maker = run.jobs.get(each.maker)
        if each.name not in asked and maker is not None and maker.state in (JobState.RUNNING, JobState.DONE):
            return f"job {each.maker!r} began before it was known that {each.entry!r} scatters over {each.over!r}"
    for job in run.jobs.values():
        if job.state is not JobState.WAITING and job.state is not JobState.SKIPPED:
            if workflow.jobs.get(job.id) != run.workflow.jobs[job.id]:
                return f"job {job.id!r} is {job.state.value}, and would be another one"
    return ""


def continued(run: RunEntry, workflow: Workflow, plan: Plan) -> Plan:
    """The plan behind what has begun, which stands in its order; and files are read in the way that they have been so far."""
    begun = dict.fromkeys([job_id for job_id in run.by_order if run.jobs[job_id].state in BEGUN])
    order = [*begun, *[entry.job for entry in plan.jobs if entry.job not in begun]]
    return reordered(workflow, plan, order, run.planned)


def grow(state: State, run: RunEntry, workflow: Workflow, plan: Plan) -> None:
    """Of a run that goes on: what is held, moves and runs of it is left alone."""
    old, before, jobs_before, was_tight = run.workflow, run.file_ids, run.jobs, run.ahead is not None
    forget_queued(state, run)
    run.workflow, run.plan, run.graph = workflow, plan, graph_of(workflow)
    run.by_order, run.planned, run.direct = serial_order(plan), planned_files(plan), direct_access(plan)
    run.assumed = assumed_jobs(workflow.scatters)
    run.inputs, run.footprints_bytes, run.stays_from, run.safety, run.ahead = {}, [], {}, None, None
    for entry in plan.jobs:
        state.enter_node(entry.node)
    run.guessed = {name: each for name, each in run.guessed.items() if workflow.jobs.get(name) == old.jobs.get(name)}
    run.jobs = {}
    for entry in plan.jobs:
        job = jobs_before.get(entry.job)
        if job is None or (job.state not in BEGUN and old.jobs[job.id] != workflow.jobs[job.id]):
            job = JobEntry(entry.job, run.id, entry.order, entry.node, entry.reserve_bytes)
        job.order = entry.order
        run.jobs[job.id] = job
    enter_files(state, run, before)
    enter_uses(state, run)
    count(state, run)
    if was_tight:
        begin_profiles(state, run)
    profile_if_tight(state, plan.capacity_bytes)
    queue_again(state, run)
    for file_id in dict.fromkeys([*before.values(), *run.file_ids.values()]):
        if file_id in state.files:
            recount_live(state, state.files[file_id])
            for node_id in state.files[file_id].copies:
                settle(state, state.files[file_id], node_id)
    if run.spent is not None:
        run.spent.ends_s = []
    state.finish_checks[run.id] = None


def enter_files(state: State, run: RunEntry, before: dict[str, str]) -> None:
    """What was there keeps its entry; of what nobody makes any more nothing was made."""
    run.file_ids = {}
    for lfn, declared in run.workflow.files.items():
        size_bytes = run.planned[lfn].size_bytes
        if lfn not in before:
            run.file_ids[lfn] = enter_file(state, run, lfn, size_bytes)
            continue
        file = state.files[before[lfn]]
        run.file_ids[lfn] = file.id
        if not declared.is_external and file.run == run.id:
            file.producer, file.destination = run.graph.producer[lfn], declared.destination
            if not file.blake3 and not file.copies:
                file.size_bytes = size_bytes
    let_go(state, run, before)
    kept = set(run.file_ids.values())
    for file_id in before.values():
        if file_id not in kept and not state.files[file_id].is_external and not state.files[file_id].copies:
            del state.files[file_id]


def count(state: State, run: RunEntry) -> None:
    made_here = [state.files[run.file_ids[lfn]] for lfn in run.graph.producer]
    run.largest_bytes = max((largest(run, file) for file in made_here), default=0)
    run.largest_footprint_bytes = max((entry.footprint_bytes for entry in run.plan.jobs), default=0)
    run.unended = sum(job.state not in ENDED for job in run.jobs.values())
    run.failed = sum(job.state in FAILED_STATES for job in run.jobs.values())
    run.head = next((at for at, job_id in enumerate(run.by_order) if run.jobs[job_id].state not in ENDED), len(run.by_order))


def queue_again(state: State, run: RunEntry) -> None:
    parked = {entry for entries in state.parked.values() for entry in entries}
    for job_id in run.by_order:
        job = run.jobs[job_id]
        if job.state is JobState.WAITING:
            job.waits_for = count_parents(state, run, job_id)
            make_ready_or_wait(state, job, state.now)
        elif job.state is JobState.READY and (run.id, job_id) not in parked:
            make_ready_or_wait(state, job, state.now)
        elif job.state is JobState.BACKOFF:
            heappush(state.timers, (job.not_before, "job", run.id, job_id))
        elif job.state is JobState.ADMITTED and job.inputs_missing == 0:
            queue_start(state, run, job)
