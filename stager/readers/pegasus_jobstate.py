"""jobstate.log, which monitord writes while DAGMan runs a workflow: how far each job is, and whether the workflow is over.

May know: its lines, and that it is rotated when a workflow is started again. One rule: each line counts once; read from the beginning it
says the same, so whoever lost his place begins again.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

STARTED = ("DAGMAN_STARTED", "SHELL_SCRIPT_STARTED")
FINISHED = ("DAGMAN_FINISHED", "SHELL_SCRIPT_FINISHED")


class TryState(StrEnum):
    SUBMITTED = "submitted"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


# A job with a script after it is judged by that: its word comes later and counts.
STATES = {
    "SUBMIT": TryState.SUBMITTED,
    "EXECUTE": TryState.RUNNING,
    "JOB_SUCCESS": TryState.SUCCEEDED,
    "JOB_FAILURE": TryState.FAILED,
    "SUBMIT_FAILED": TryState.FAILED,
    "PRE_SCRIPT_FAILURE": TryState.FAILED,
    "POST_SCRIPT_SUCCESS": TryState.SUCCEEDED,
    "POST_SCRIPT_FAILURE": TryState.FAILED,
}


@dataclass(frozen=True, slots=True)
class Try:
    """The newest try of a job."""

    number: int
    state: TryState


@dataclass(slots=True)
class Progress:
    """`exit_code`: of the workflow, once it is over; started again, it is not over."""

    tries: dict[str, Try] = field(default_factory=dict)
    exit_code: int | None = None
    begun: bool = False

    def past(self) -> frozenset[str]:
        """Jobs that have their files, or get them now."""
        return frozenset(job for job, newest in self.tries.items() if newest.state in (TryState.RUNNING, TryState.SUCCEEDED))

    def take(self, line: str) -> str:
        """The job that the line is about, if it changes anything."""
        words = line.split()
        if "***" in words:
            return self.take_internal(words)
        if len(words) < 3 or words[2] not in STATES:
            return ""
        job, state = words[1], STATES[words[2]]
        before = self.tries.get(job, Try(0, TryState.FAILED))
        over = before.state in (TryState.SUCCEEDED, TryState.FAILED)
        fresh = state is TryState.SUBMITTED or (state is TryState.RUNNING and over)
        self.tries[job] = Try(max(1, before.number + fresh), state)
        return job

    def take_internal(self, words: list[str]) -> str:
        """`INTERNAL *** DAGMAN_FINISHED 0 ***`; a time stands before it, but not in shell mode."""
        said = words[words.index("***") + 1 :]
        if said and said[0] in STARTED:
            self.begun, self.exit_code = True, None
        elif said and said[0] in FINISHED:
            self.exit_code = int(said[1]) if len(said) > 1 and said[1].lstrip("-").isdigit() else 1
        return ""


class JobstateLog:
    """Read on from where the last look ended, by file and not by name: a rotated one is read to its end under its new name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.progress = Progress()
        self.read_to: dict[int, int] = {}

    def read_new(self) -> list[str]:
        """The jobs of which something new is known, in the order of the lines."""
        changed: dict[str, None] = {}
        for path in [*rotated(self.path), self.path]:
            for line in self.lines(path):
                if job := self.progress.take(line):
                    changed[job] = None
        return list(changed)

    def lines(self, path: Path) -> list[str]:
        """Whole lines only: the last one may still be written."""
        try:
            with path.open("rb") as file:
                seen = os.fstat(file.fileno())
                begin = self.read_to.get(seen.st_ino, 0)
                begin = begin if begin <= seen.st_size else 0
                file.seek(begin)
                text = file.read()
        except FileNotFoundError:
            return []
        whole = text[: text.rfind(b"\n") + 1]
        self.read_to[seen.st_ino] = begin + len(whole)
        return whole.decode(errors="replace").split("\n")[:-1]


def rotated(path: Path) -> list[Path]:
    """jobstate.log.000, the oldest, and so on."""
    return sorted(other for other in path.parent.glob(f"{path.name}.*") if other.suffix[1:].isdigit())
