"""The images and lock files of jobs that have not ended: what was made of them is not given away.

May know: the Machine's state (read only). On the driving thread.
"""

from __future__ import annotations

import os

from stager.scheduler.shares import pool_of
from stager.scheduler.state import OVER, State
from stager.scheduler.states import JobState
from stager.worker.collecting import Needed

ENDED = frozenset((JobState.DONE, JobState.FAILED, JobState.SKIPPED))


def needed_of(state: State, pool: str | None = None) -> Needed:
    """`pool`: only of runs whose jobs run on hosts of this tenant, or (empty) of nobody in particular."""
    images: set[str] = set()
    environments: set[str] = set()
    for name in state.active:
        run = state.runs[name]
        for job in run.workflow.jobs.values() if pool is None or pool_of(state, run) == pool else ():
            if run.jobs[job.id].state not in ENDED:
                images |= {run.file_ids[job.image]} if job.image is not None else set()
                environments |= {run.file_ids[lfn] for lfn in (job.venv, job.conda) if lfn is not None}
    return Needed(frozenset(images), frozenset(environments))


def wanted_archives(state: State) -> frozenset[str]:
    """Names of those that a run may read that can go on."""
    return frozenset(
        os.path.basename(source.location.path)
        for run in state.runs.values()
        if run.outcome not in OVER
        for job in run.workflow.jobs.values()
        if job.image is not None
        for source in run.workflow.files[job.image].sources
    )
