"""States and the tables of their transitions. One rule: a transition that is not in its table is a bug. scripts/state_diagrams.py draws the
diagrams of docs/architecture.md from here.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class JobState(StrEnum):
    """WAITING: a parent is not done, or the same job of another run goes on. READY: could be admitted. BACKOFF: will be ready at a time.
    ADMITTED: space is set aside, inputs pinned, some still on their way.

    RUNNING: an attempt is under way (stage-in to commit). DONE: outputs committed. FAILED: no more tries. SKIPPED: something above it
    failed.
    """

    WAITING = "waiting"
    READY = "ready"
    BACKOFF = "backoff"
    ADMITTED = "admitted"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"


class CopyState(StrEnum):
    """One file on one node. Every state holds its space. WANTED: pinned, its fetch is tried again later. FETCHING, PRESENT, DELETING as
    named; CANCELLING: a fetch being called off.
    """

    WANTED = "wanted"
    FETCHING = "fetching"
    CANCELLING = "cancelling"
    PRESENT = "present"
    DELETING = "deleting"


class TransferState(StrEnum):
    """UNDER_WAY: its node was asked for it. CANCELLING: its node was asked to end it, and has not answered yet."""

    UNDER_WAY = "under_way"
    CANCELLING = "cancelling"


class RunState(StrEnum):
    """ACTIVE: starts jobs. DRAINING: starts none, lets attempts and uploads end. STOPPING: ends attempts and transfers. CANCELLING: the
    same, for good. FINISHED: has an outcome.
    """

    ACTIVE = "active"
    DRAINING = "draining"
    STOPPING = "stopping"
    CANCELLING = "cancelling"
    FINISHED = "finished"


# By names of their own: looked up in its class a member takes ten times as long (Python 3.11), and these are asked for at every event.
WANTED: Final = CopyState.WANTED
FETCHING: Final = CopyState.FETCHING
CANCELLING: Final = CopyState.CANCELLING
PRESENT: Final = CopyState.PRESENT
DELETING: Final = CopyState.DELETING
WAITING: Final = JobState.WAITING
READY: Final = JobState.READY
BACKOFF: Final = JobState.BACKOFF
ADMITTED: Final = JobState.ADMITTED
RUNNING: Final = JobState.RUNNING
DONE: Final = JobState.DONE
ACTIVE: Final = RunState.ACTIVE

JOB_TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    JobState.WAITING: frozenset({JobState.READY, JobState.DONE, JobState.FAILED, JobState.SKIPPED}),
    JobState.READY: frozenset({JobState.WAITING, JobState.ADMITTED, JobState.BACKOFF, JobState.DONE, JobState.FAILED, JobState.SKIPPED}),
    JobState.BACKOFF: frozenset({JobState.READY, JobState.WAITING, JobState.FAILED, JobState.SKIPPED}),
    JobState.ADMITTED: frozenset({JobState.RUNNING, JobState.READY, JobState.WAITING, JobState.BACKOFF, JobState.FAILED, JobState.SKIPPED}),
    JobState.RUNNING: frozenset({JobState.DONE, JobState.READY, JobState.WAITING, JobState.BACKOFF, JobState.FAILED}),
    JobState.DONE: frozenset({JobState.WAITING}),
    JobState.FAILED: frozenset({JobState.WAITING}),
    JobState.SKIPPED: frozenset({JobState.WAITING}),
}
# None: there is none, before it began or after it ended. Any copy and any transfer may be gone at any time: its node says so.
COPY_TRANSITIONS: dict[CopyState | None, frozenset[CopyState | None]] = {
    None: frozenset({CopyState.WANTED, CopyState.FETCHING, CopyState.PRESENT}),
    CopyState.WANTED: frozenset({CopyState.FETCHING, None}),
    CopyState.FETCHING: frozenset({CopyState.PRESENT, CopyState.CANCELLING, CopyState.WANTED, None}),
    CopyState.CANCELLING: frozenset({CopyState.PRESENT, CopyState.WANTED, None}),
    CopyState.PRESENT: frozenset({CopyState.DELETING, None}),
    CopyState.DELETING: frozenset({CopyState.PRESENT, None}),
}
TRANSFER_TRANSITIONS: dict[TransferState | None, frozenset[TransferState | None]] = {
    None: frozenset({TransferState.UNDER_WAY}),
    TransferState.UNDER_WAY: frozenset({TransferState.CANCELLING, None}),
    TransferState.CANCELLING: frozenset({None}),
}
RUN_TRANSITIONS: dict[RunState | None, frozenset[RunState]] = {
    None: frozenset({RunState.ACTIVE}),
    RunState.ACTIVE: frozenset({RunState.DRAINING, RunState.STOPPING, RunState.CANCELLING, RunState.FINISHED}),
    RunState.DRAINING: frozenset({RunState.ACTIVE, RunState.STOPPING, RunState.CANCELLING, RunState.FINISHED}),
    RunState.STOPPING: frozenset({RunState.CANCELLING, RunState.FINISHED}),
    RunState.CANCELLING: frozenset({RunState.FINISHED}),
    RunState.FINISHED: frozenset({RunState.ACTIVE, RunState.CANCELLING}),
}
BEGUN = frozenset({JobState.ADMITTED, JobState.RUNNING, JobState.DONE})
ENDED = frozenset({JobState.DONE, JobState.FAILED, JobState.SKIPPED})
