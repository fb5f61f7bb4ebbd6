"""The effect of the commands about jobs that need not run themselves.

One rule: the same as for all commands: what changes, and nothing that is decided.
"""

from __future__ import annotations

from stager.planning.plan import ReusedOutput
from stager.scheduler import commands as cmd
from stager.scheduler.accounting import inputs_of, move_job, recount_live, resize, settle
from stager.scheduler.apply_events import tell_children
from stager.scheduler.awaiting import begin_wait
from stager.scheduler.going_home import lend
from stager.scheduler.linking import link, stop_awaiting
from stager.scheduler.peers import offer_for_prefetch
from stager.scheduler.profiles import adjust_profile, begin_early_span
from stager.scheduler.state import FileEntry, HeldAt, JobEntry, RunEntry, State
from stager.scheduler.states import JobState


def await_job(state: State, command: cmd.AwaitJob) -> None:
    """It holds nothing and is in no queue: what stands for it in one is out of date."""
    job = state.job(command.run, command.job)
    if job.state is not JobState.WAITING:
        move_job(state, job, JobState.WAITING)
    begin_wait(state, job, command.other_run, command.other_job)


def end_wait(state: State, command: cmd.StopAwaiting) -> None:
    run = state.runs[command.run]
    stop_awaiting(state, run, run.jobs[command.job])


def take_over_job(state: State, command: cmd.TakeOver) -> None:
    """It is done. The files that nodes hold are the run's as well, and a final that is at its destination is home."""
    run = state.runs[command.run]
    job = run.jobs[command.job]
    for made in command.outputs:
        take_over_output(state, run, job, made)
    if job.order > run.head and (run.safety is not None or run.ahead is not None):
        begin_early_span(run, job, sum(made.size_bytes for made in command.outputs if made.kept))
    move_job(state, job, JobState.DONE)
    job.reused_from = command.made_by
    tell_children(state, run, job)
    for file in inputs_of(state, run, job.id):
        # Its next use is another now.
        for node_id in file.copies:
            settle(state, file, node_id)


def take_over_output(state: State, run: RunEntry, job: JobEntry, made: ReusedOutput) -> None:
    own = state.files[run.file_ids[made.lfn]]
    adjust_profile(run, job, own, made.size_bytes - own.size_bytes)
    own.executable = made.executable
    resize(state, own, made.size_bytes)
    if made.kept and own.destination is not None:
        lend(state, run, own, state.files[made.kept])
        return
    if made.kept:
        take_over_file(state, run, own, state.files[made.kept])
        return
    own.blake3 = made.blake3
    if own.destination is not None and made.token:
        where = own.destination.location
        own.durable = HeldAt(where.origin, where.path, made.token, made.verified, made.synced)
        for node in state.nodes.values():
            offer_for_prefetch(state, own, node.id)


def take_over_file(state: State, run: RunEntry, own: FileEntry, file: FileEntry) -> None:
    """Its readers read that one from now on."""
    file.uses, file.use_at = sorted([*file.uses, *(use for use in own.uses if use[1] == run.id)]), 0
    own.uses, own.use_at = [use for use in own.uses if use[1] != run.id], 0
    lfn = own.lfn
    link(state, run, lfn, file)
    for job_id in run.graph.readers[lfn]:
        if run.inputs.pop(job_id, None) is not None:
            inputs_of(state, run, job_id)
    recount_live(state, file)
    for node_id in file.copies:
        settle(state, file, node_id)
    for node_id in dict.fromkeys([run.jobs[job_id].node for job_id in run.graph.readers[lfn]]):
        if node_id not in file.copies:
            offer_for_prefetch(state, file, node_id)
