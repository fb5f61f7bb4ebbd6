"""The state of a run whose definition was changed while it had ended. One rule: what was made is taken over as it is, all the rest is as if
it had just been submitted; tries are counted on, so that no attempt's id comes twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify

from stager.model.ids import produced_file_id
from stager.model.scatter import assumed_jobs
from stager.model.workflow import Workflow, graph_of
from stager.planning.plan import Plan
from stager.scheduler.accounting import count_parents, end_span, recount_live, settle, take_over
from stager.scheduler.amendment import is_made
from stager.scheduler.entering import direct_access, enter_file, enter_uses, planned_files, serial_order
from stager.scheduler.going_home import give_back
from stager.scheduler.linking import leave, part
from stager.scheduler.state import FileEntry, JobEntry, RunEntry, State
from stager.scheduler.states import ENDED, CopyState, JobState


def amend(state: State, run: RunEntry, workflow: Workflow, plan: Plan) -> None:
    """Only of a run that has ended, so that nothing of it is admitted, runs or goes home."""
    made = {job_id for job_id in run.jobs if is_made(state, run, job_id)}
    made_files = {output.lfn for job_id in made for output in run.workflow.jobs[job_id].outputs}
    before, jobs_before = run.file_ids, run.jobs
    forget_queued(state, run)
    state.reopen_origins(run)
    run.workflow, run.plan, run.graph = workflow, plan, graph_of(workflow)
    run.assumed = assumed_jobs(workflow.scatters)
    run.by_order, run.planned, run.direct = serial_order(plan), planned_files(plan), direct_access(plan)
    for entry in plan.jobs:
        state.enter_node(entry.node)
    run.attempts_before |= {job_id: job.attempts for job_id, job in jobs_before.items() if job.attempts}
    run.jobs = {entry.job: JobEntry(entry.job, run.id, entry.order, entry.node, entry.reserve_bytes) for entry in plan.jobs}
    for job in run.jobs.values():
        job.attempts = run.attempts_before.get(job.id, 0)
        if job.id in jobs_before and jobs_before[job.id].state is JobState.DONE:
            job.state, job.reused_from = JobState.DONE, jobs_before[job.id].reused_from
    run.file_ids, run.inputs, run.footprints_bytes, run.stays_from, run.shared = {}, {}, [], {}, {}
    for lfn in workflow.files:
        size_bytes = run.planned[lfn].size_bytes if lfn in run.planned else 0
        run.file_ids[lfn] = reenter_file(state, run, lfn, size_bytes, lfn in made_files and lfn in before, before.get(lfn, ""))
    let_go(state, run, before)
    run.fell_back = {lfn: why for lfn, why in run.fell_back.items() if lfn in run.direct}
    enter_uses(state, run)
    recount(state, run)
    for file_id in dict.fromkeys([*before.values(), *run.file_ids.values()]):
        recount_live(state, state.files[file_id])
        for node_id in state.files[file_id].copies:
            settle(state, state.files[file_id], node_id)


def forget_queued(state: State, run: RunEntry) -> None:
    """Its readers of files, and what was due of its jobs: they are entered anew."""
    for file_id in run.file_ids.values():
        file = state.files[file_id]
        file.uses, file.use_at = [use for use in file.uses if use[1] != run.id], 0
        for copy in file.copies.values():
            if copy.span is not None and copy.span[0] == run.id:
                end_span(state, copy)
    for node in state.nodes.values():
        for lanes in (node.ready, node.startable):
            lanes.keep(lambda entry: entry[1] != run.id)
        node.calls_startable[:] = [entry for entry in node.calls_startable if entry[1] != run.id]
        heapify(node.calls_startable)
        node.dirty = True
    state.timers[:] = [timer for timer in state.timers if not (timer[1] == "job" and timer[2] == run.id)]
    heapify(state.timers)


def reenter_file(state: State, run: RunEntry, lfn: str, size_bytes: int, was_made: bool, file_id: str) -> str:
    """`file_id`: what it had under this name, if that was made."""
    declared = run.workflow.files[lfn]
    if declared.is_external:
        file_id = enter_file(state, run, lfn, size_bytes)
        file = state.files[file_id]
        if file.run == run.id:
            file.lfn, file.sources, file.source_at = lfn, declared.sources, 0
        return file_id
    if not was_made:
        if (before := state.files.get(produced_file_id(run.id, lfn))) is not None and before.links:
            part(state, before)
        return enter_file(state, run, lfn, size_bytes)
    file = state.files[file_id]
    if file.run == run.id:
        file.producer, file.destination = run.graph.producer[lfn], declared.destination
    return file_id


def let_go(state: State, run: RunEntry, before: Mapping[str, str]) -> None:
    """Files that are no more of this run. A file that another run reads, too, is fetched for that one from now on."""
    kept = set(run.file_ids.values())
    for file_id in before.values():
        file = state.files[file_id]
        if file_id in kept:
            continue
        if run.id in file.links and produced_file_id(run.id, file.links[run.id]) != file_id:
            leave(state, run, file)
            continue
        if file.run != run.id:
            continue
        if not file.is_external:
            file.destination = None
            give_back(state, file)
            continue
        other = next((reader for _, reader, _ in file.uses if reader in state.active), None)
        if other is not None:
            take_over(state, file, state.runs[other])
            run.shared.pop(file_id, None)
        elif all(copy.state is CopyState.PRESENT for copy in file.copies.values()):
            # Whoever wants this content next says where it is.
            file.sources = ()


def recount(state: State, run: RunEntry) -> None:
    made_here = [state.files[run.file_ids[lfn]] for lfn in run.graph.producer]
    run.largest_bytes = max((largest(run, file) for file in made_here), default=0)
    run.largest_footprint_bytes = max((entry.footprint_bytes for entry in run.plan.jobs), default=0)
    run.unended = sum(job.state not in ENDED for job in run.jobs.values())
    run.failed = 0
    run.head = next((at for at, job_id in enumerate(run.by_order) if run.jobs[job_id].state not in ENDED), len(run.by_order))
    for job in run.jobs.values():
        job.waits_for = count_parents(state, run, job.id) if job.state not in ENDED else 0


def largest(run: RunEntry, file: FileEntry) -> int:
    return max(file.size_bytes, run.planned[file.lfn].size_bytes if file.lfn in run.planned else 0)
