"""Who waits for the job of another run: the accounts of it.

May know: the state. One rule: a job and the table of those that are awaited always say the same.
"""

from __future__ import annotations

from stager.scheduler.state import JobEntry, State


def begin_wait(state: State, job: JobEntry, other_run: str, other_job: str) -> None:
    job.awaits = (other_run, other_job)
    state.awaited.setdefault(other_run, {}).setdefault(other_job, []).append((job.run, job.id))


def forget_wait(state: State, job: JobEntry) -> None:
    if job.awaits is None:
        return
    other_run, other_job = job.awaits
    job.awaits = None
    waiting = state.awaited[other_run]
    waiting[other_job].remove((job.run, job.id))
    if not waiting[other_job]:
        del waiting[other_job]
    if not waiting:
        del state.awaited[other_run]
