"""How runs begin, are resumed and are asked to end. One rule: the same as for all events: what changes, and nothing that is decided."""

from __future__ import annotations

from collections.abc import Iterator

from stager.model.scatter import assumed_jobs
from stager.model.workflow import graph_of
from stager.scheduler import events as ev
from stager.scheduler.accounting import count_parents, make_ready_or_wait, move_job, move_run, recount_live, settle
from stager.scheduler.amend import amend
from stager.scheduler.amendment import conflicts_of
from stager.scheduler.entering import direct_access, enter_file, enter_reused, enter_uses, planned_files, serial_order
from stager.scheduler.going_home import due_upload
from stager.scheduler.linking import answer_for
from stager.scheduler.peers import offer_for_prefetch
from stager.scheduler.profiles import profile_if_tight
from stager.scheduler.shares import begin_sharing
from stager.scheduler.spending import begin_budget, raise_budget
from stager.scheduler.state import FileEntry, JobEntry, RunEntry, State
from stager.scheduler.states import CopyState, JobState, RunState


def run_submitted(state: State, event: ev.RunSubmitted) -> None:
    workflow, plan = event.workflow, event.plan
    graph = graph_of(workflow)
    state.runs_seen += 1
    planned = planned_files(plan)
    jobs = {p.job: JobEntry(p.job, event.run, p.order, p.node, p.reserve_bytes) for p in plan.jobs}
    by_order = serial_order(plan)
    run = RunEntry(
        event.run, state.runs_seen, workflow, plan, graph, event.at, {}, jobs, by_order, planned, direct_access(plan), unended=len(jobs)
    )
    run.ids, run.is_engines, run.assumed = event.ids, workflow.engine != "", assumed_jobs(workflow.scatters)
    run.tenant, run.priority, run.passed = event.tenant, event.priority, event.passed
    begin_sharing(state, run)
    if event.sharing is not None:
        run.guessed = {each.reused.job: each for each in event.sharing.guessed}
    if event.budget is not None:
        begin_budget(state, run, event.budget)
    run.largest_bytes = max((planned[lfn].size_bytes for lfn in graph.producer), default=0)
    run.largest_footprint_bytes = max((entry.footprint_bytes for entry in plan.jobs), default=0)
    state.runs[event.run] = run
    for entry in plan.jobs:
        state.enter_node(entry.node)
    state.active[event.run] = None
    state.reopen_origins(run)
    profile_if_tight(state, plan.capacity_bytes)
    for lfn in workflow.files:
        run.file_ids[lfn] = enter_file(state, run, lfn, planned[lfn].size_bytes if lfn in planned else 0)
    enter_reused(state, run, event.reused)
    enter_uses(state, run)
    for job in jobs.values():
        if job.state is JobState.DONE:
            continue
        job.waits_for = count_parents(state, run, job.id)
        if not job.waits_for:
            make_ready_or_wait(state, job, event.at)
    state.finish_checks[run.id] = None


def run_resumed(state: State, event: ev.RunResumed) -> None:
    """Failed and skipped jobs wait again, given-up transfers are due again, the run's paused origins are open again. One that had ended
    goes on with another definition, where the event brings it.
    """
    run = state.runs.get(event.run)
    if run is None or run.state in (RunState.CANCELLING, RunState.STOPPING) or run.outcome in ("succeeded", "cancelled"):
        state.stale += 1
        return
    if run.state is RunState.FINISHED:
        begin_sharing(state, run)
        if event.workflow is not None and event.plan is not None and not conflicts_of(state, run, event.workflow):
            amend(state, run, event.workflow, event.plan)
        queue_last(state, run)
        # What was looked at when it was submitted may be another by now.
        run.guessed = {}
        run.interrupted_s += max(0.0, state.now - run.finished_at)
    # Of a variable with another value nobody knows any more which job began with which.
    run.passed = {name: digest for name, digest in event.passed.items() if run.passed.get(name) == digest}
    move_run(state, run, RunState.ACTIVE)
    run.outcome, run.fault, run.interrupted_by = None, None, ""
    raise_budget(state, run, event.budget)
    if run.engine_outcome is ev.EngineOutcome.FAILED or (run.engine_outcome is not None and any(lost_finals(state, run))):
        # It may call jobs again. Else what it said had succeeded only wants its finals to go home.
        run.engine_outcome = None
    state.reopen_origins(run)
    for job in run.jobs.values() if run.engine_outcome is None else ():
        if job.state in (JobState.FAILED, JobState.SKIPPED):
            move_job(state, job, JobState.WAITING)
            job.failures, job.fault = 0, None
    for job_id in run.by_order:
        job = run.jobs[job_id]
        if job.state in (JobState.WAITING, JobState.READY):
            job.waits_for = count_parents(state, run, job_id)
            make_ready_or_wait(state, job, state.now)
    run.finals_given_up.clear()
    run.finals_superseded.clear()
    run.finals_open.clear()
    for file_id in run.file_ids.values():
        file = state.files[file_id]
        if file.links and file.run != run.id and file.run not in state.active:
            answer_for(state, file, run)
        if file.run == run.id:
            reset_retries(state, file)
        if file.is_external:
            for node in state.nodes.values():
                if node.id not in file.copies:
                    offer_for_prefetch(state, file, node.id)
        elif file.destination is None:
            file.upload = None
            for node_id in file.copies:
                settle(state, file, node_id)
        elif (file.copies or run.jobs[file.producer].state is JobState.DONE) and file.durable is None:
            due_upload(state, run, file)
        if run.is_engines:
            recount_live(state, file)
    profile_if_tight(state, run.plan.capacity_bytes)
    state.finish_checks[run.id] = None
    for node in state.nodes.values():
        node.dirty = node.dirty or node.kept_bytes > 0


def lost_finals(state: State, run: RunEntry) -> Iterator[FileEntry]:
    """Made, not at their destination, and on no node any more."""
    for file in (state.files[file_id] for file_id in run.file_ids.values()):
        if file.destination is not None and file.durable is None and file.blake3 and not file.copies and file.spilled is None:
            yield file


def reset_retries(state: State, file: FileEntry) -> None:
    """A user who resumes a run that waits for an origin may know that it is back."""
    if file.fetch is not None and file.fetch.transfer not in state.transfers:
        file.fetch = None
        for node in [node for node, copy in file.copies.items() if copy.state is CopyState.WANTED]:
            state.want(node, file)
    file.source_at = 0


def queue_last(state: State, run: RunEntry) -> None:
    """A run that comes back stands behind those that went on: they may have taken the room it had."""
    state.active[run.id] = None
    state.runs_seen += 1
    run.sequence = state.runs_seen
    for file_id in run.file_ids.values():
        file = state.files[file_id]
        file.uses = sorted((run.key(run.jobs[use[2]].order), *use[1:]) if use[1] == run.id else use for use in file.uses)
        file.use_at = 0
        for node_id in file.copies:
            settle(state, file, node_id)


def run_drained(state: State, event: ev.RunDrained) -> None:
    leave(state, event.run, RunState.DRAINING, event.by)


def run_stopped(state: State, event: ev.RunStopped) -> None:
    leave(state, event.run, RunState.STOPPING, event.by)


def run_cancelled(state: State, event: ev.RunCancelled) -> None:
    run = state.runs.get(event.run)
    if run is not None and run.state is RunState.FINISHED and run.outcome not in ("succeeded", "cancelled"):
        run.outcome, run.interrupted_by = None, ""
        state.active[run.id] = None
        move_run(state, run, RunState.CANCELLING)
        state.finish_checks[run.id] = None
        return
    leave(state, event.run, RunState.CANCELLING)


def leave(state: State, run_id: str, new: RunState, by: str = "") -> None:
    """From ACTIVE towards an end; a stronger wish wins, a weaker one is stale. A state that was asked for stays when the service ends."""
    run = state.runs.get(run_id)
    strength = [RunState.ACTIVE, RunState.DRAINING, RunState.STOPPING, RunState.CANCELLING]
    if run is None or run.state is RunState.FINISHED or strength.index(new) <= strength.index(run.state):
        state.stale += 1
        return
    move_run(state, run, new)
    run.interrupted_by = run.interrupted_by if by == ev.BY_SERVICE and run.interrupted_by else by
    state.finish_checks[run.id] = None
