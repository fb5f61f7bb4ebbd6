"""What is worth telling of an attempt that is no failure: that its job was not isolated, and what it read that nobody gave it.

May know: workflows, results of attempts. One rule: a path is told by its origin's name, since tenants read it too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from urllib.parse import unquote, urlsplit

import msgspec

from stager.model.workflow import Job, OriginKind, Workflow
from stager.scheduler import events as ev
from stager.worker import AttemptResult

NAMED = 5
NOT_ISOLATED = "it was not isolated: this host gives this user neither a mount namespace nor Landlock"


class Watches:
    """Which attempts are watched for what they read: the first of each job type of a run. The kernel takes 10 ms to end a watch, and the
    jobs of one type mostly do the same.
    """

    def __init__(self) -> None:
        self.begun: set[tuple[str, str]] = set()

    def begins(self, run: str, job_type: str) -> bool:
        if (run, job_type) in self.begun:
            return False
        self.begun.add((run, job_type))
        return True


def directories_of(workflow: Workflow) -> dict[str, str]:
    """Of each file origin."""
    files = [origin for origin in workflow.origins.values() if origin.kind is OriginKind.FILE]
    return {origin.name: unquote(urlsplit(origin.url).path).rstrip("/") for origin in files if origin.url.startswith("file:///")}


def notes_of(ended: AttemptResult, job: Job, workflow: Workflow) -> tuple[str, ...]:
    notes = [NOT_ISOLATED] if ended.isolation == "none" else []
    read = list(undeclared_reads(ended, job, workflow)) if ended.opened else []
    if read:
        more = len(read) - NAMED + max(0, ended.opened_count - len(ended.opened))
        shown = ", ".join(read[:NAMED]) + (f" and {more} more" if more > 0 else "")
        notes.append(f"it read what it does not declare, and stager neither fetched nor checked: {shown}")
    return tuple(notes)


def told_once(event: ev.AttemptEnded, told: set[str]) -> ev.AttemptEnded:
    """That a host isolates nothing is told of the first job of a run."""
    if event.run not in told:
        told.add(event.run)
        return event
    return msgspec.structs.replace(event, notes=tuple([note for note in event.notes if note != NOT_ISOLATED]))


def undeclared_reads(ended: AttemptResult, job: Job, workflow: Workflow) -> Iterator[str]:
    """`origin:path`, each once."""
    bases = {name: os.path.realpath(base) for name, base in directories_of(workflow).items()}
    declared = set()
    for lfn in job.lfns:
        file = workflow.files[lfn]
        places = [source.location for source in file.sources] + ([file.destination.location] if file.destination else [])
        declared |= {f"{bases[place.origin]}/{place.path}".rstrip("/") for place in places if place.origin in bases}
    for path in ended.opened:
        inside = [(base, name) for name, base in bases.items() if path.startswith(f"{base}/")]
        if inside and not any(path == one or path.startswith(f"{one}/") for one in declared):
            base, name = max(inside)
            yield f"{name}:{path[len(base) + 1 :]}"
