"""The trail of a run's time, span by span, from its end back to its submit.

May know: when the run was being ended, or had ended. One rule: every moment gets one cause, and keeps it; no moment is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from stager.scheduler.run_times import Closed


class Cause(StrEnum):
    """The cause that a span of a run's time has.

    COMPUTING: programs run. CORES: a job waits for cores, or memory. FETCHES: for inputs from an origin. COPIES: for inputs from another
    node. ROOM: for space. STARTS: between the start of an attempt and that of its program. COMMITS: between the end of its program and the
    word that its outputs are there. UPLOADS: a final is on its way home. RETRIES: tries that failed, pauses after them, what does not
    answer. ENGINE: an engine has not called the job, or not ended its run. OTHERS: another run was making what the job reads. DRAINED: the
    run was being ended. INTERRUPTED: it had ended, and was resumed later. SCHEDULER: everything was there, and it had not been begun.
    """

    COMPUTING = "computing"
    CORES = "cores"
    FETCHES = "fetches"
    COPIES = "copies"
    ROOM = "room"
    STARTS = "starts"
    COMMITS = "commits"
    UPLOADS = "uploads"
    RETRIES = "retries"
    ENGINE = "engine"
    OTHERS = "others"
    DRAINED = "drained"
    INTERRUPTED = "interrupted"
    SCHEDULER = "scheduler"


# Of a job that has not begun.
WAITS = frozenset({Cause.CORES, Cause.FETCHES, Cause.COPIES, Cause.ROOM, Cause.ENGINE, Cause.OTHERS, Cause.SCHEDULER})
# What a run that is being ended has no part in any more.
CLOSED_TO = frozenset({Cause.CORES, Cause.ROOM, Cause.SCHEDULER})


@dataclass(frozen=True, slots=True)
class Span:
    """`about`: an origin, or a node. `job` and `lfn`: whose wait it was."""

    begun_at: float
    ended_at: float
    cause: Cause
    about: str = ""
    job: str = ""
    lfn: str = ""


class Trail:
    """`cursor`: all after it has its cause. `spans`: the last first."""

    def __init__(
        self, submitted_at: float, finished_at: float, closings: list[Closed], failed: Mapping[str, list[tuple[float, float]]]
    ) -> None:
        """`failed`: by job, from when on it had, and until when."""
        self.submitted_at, self.cursor, self.closings, self.failed = submitted_at, finished_at, closings, failed
        self.spans: list[Span] = []

    def back(self, since: float, cause: Cause, about: str = "", job: str = "", lfn: str = "") -> None:
        """Until then it was that. A span that has a cause already keeps it."""
        since = max(since, self.submitted_at)
        while self.cursor > since:
            begun_at, shown = self.shown(*self.unless_failed(since, cause, job))
            self.put(Span(begun_at, self.cursor, shown, about, job, lfn))
            self.cursor = begun_at

    def put(self, span: Span) -> None:
        later = self.spans[-1] if self.spans else None
        if later is not None and (later.cause, later.about, later.job, later.lfn) == (span.cause, span.about, span.job, span.lfn):
            self.spans[-1] = Span(span.begun_at, later.ended_at, span.cause, span.about, span.job, span.lfn)
        else:
            self.spans.append(span)

    def unless_failed(self, since: float, cause: Cause, job: str) -> tuple[float, Cause]:
        """(from when on, what it was) right before the cursor: a job that has failed waits for who resumes the run."""
        for failed_at, until in reversed(self.failed.get(job, [])) if cause in WAITS else ():
            if until < self.cursor:
                return max(since, until), cause
            if failed_at < self.cursor:
                return max(since, failed_at), Cause.RETRIES
        return since, cause

    def shown(self, since: float, cause: Cause) -> tuple[float, Cause]:
        """(from when on, what it was) right before the cursor: a run that had ended waited for nobody but who resumes it."""
        for closed in reversed(self.closings):
            if closed.asked_at >= self.cursor:
                continue
            if closed.over_at < self.cursor <= closed.until:
                return max(since, closed.over_at), Cause.INTERRUPTED
            if closed.until < self.cursor:
                return max(since, closed.until), cause
            return max(since, closed.asked_at), Cause.DRAINED if cause in CLOSED_TO else cause
        return since, cause

    def back_in_pieces(
        self, since: float, marks: list[float], why: Callable[[float], tuple[Cause, str]], job: str = "", lfn: str = ""
    ) -> None:
        """`marks`: when the answer may change."""
        if since >= self.cursor:
            return
        between = [mark for mark in sorted(marks) if since < mark < self.cursor]
        for begun_at, ended_at in reversed(list(pairwise([since, *between, self.cursor]))):
            cause, about = why((begun_at + ended_at) / 2)
            self.back(begun_at, cause, about, job, lfn)
