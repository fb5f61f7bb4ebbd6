"""States and the table of their transitions. One rule: a transition that is not in the table is a bug; docs/architecture.md draws its
diagrams from here.
"""

from __future__ import annotations

from enum import StrEnum


class JobState(StrEnum):
    """WAITING: a parent is not done. READY: could be admitted. BACKOFF: will be ready at a time. ADMITTED: space is set aside, inputs
    pinned, some still on their way.

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


class RunState(StrEnum):
    """ACTIVE: starts jobs. DRAINING: starts none, lets attempts and uploads end. STOPPING: ends attempts and transfers. CANCELLING: the
    same, for good. FINISHED: has an outcome.
    """

    ACTIVE = "active"
    DRAINING = "draining"
    STOPPING = "stopping"
    CANCELLING = "cancelling"
    FINISHED = "finished"


JOB_TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    JobState.WAITING: frozenset({JobState.READY, JobState.FAILED, JobState.SKIPPED}),
    JobState.READY: frozenset({JobState.WAITING, JobState.ADMITTED, JobState.BACKOFF, JobState.FAILED, JobState.SKIPPED}),
    JobState.BACKOFF: frozenset({JobState.READY, JobState.WAITING, JobState.FAILED, JobState.SKIPPED}),
    JobState.ADMITTED: frozenset({JobState.RUNNING, JobState.READY, JobState.WAITING, JobState.BACKOFF, JobState.FAILED, JobState.SKIPPED}),
    JobState.RUNNING: frozenset({JobState.DONE, JobState.READY, JobState.WAITING, JobState.BACKOFF, JobState.FAILED}),
    JobState.DONE: frozenset({JobState.WAITING}),
    JobState.FAILED: frozenset({JobState.WAITING}),
    JobState.SKIPPED: frozenset({JobState.WAITING}),
}
BEGUN = frozenset({JobState.ADMITTED, JobState.RUNNING, JobState.DONE})
ENDED = frozenset({JobState.DONE, JobState.FAILED, JobState.SKIPPED})
