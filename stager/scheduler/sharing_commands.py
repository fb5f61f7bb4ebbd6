"""The commands about jobs that need not run, since what they would make is made, or is being made, elsewhere.

One rule: the same as for all commands (`commands.py`).
"""

from __future__ import annotations

from stager.model.record import Record
from stager.planning.plan import ReusedOutput


class AwaitJob(Record, kw_only=True):
    """Recorded decision: the job does not run while the same job of an earlier run goes on. It takes over what that one makes."""

    id: str
    at: float
    cause: str
    run: str
    job: str
    other_run: str
    other_job: str


class StopAwaiting(Record, kw_only=True):
    """Recorded decision: the job, and all below it that wait so, run themselves after all."""

    id: str
    at: float
    cause: str
    run: str
    job: str
    why: str


class TakeOver(Record, kw_only=True):
    """Recorded decision: the job need not run. `made_by` made what it would make, of the same inputs."""

    id: str
    at: float
    cause: str
    run: str
    job: str
    made_by: str
    outputs: tuple[ReusedOutput, ...]
