"""What was made for jobs beside their outputs and that no unfinished run needs: unpacked images, environments of packages, and archives of
images that were pulled from registries.

May know: the Machine's state (read only), the worker of this machine. One rule: an archive is an input at its origin, so it stays for every
run that may go on.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Container, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from stager.scheduler.state import OVER, State
from stager.scheduler.states import JobState
from stager.service.inquiry import Inquiry
from stager.service.known_runs import KnownRuns
from stager.worker import Worker
from stager.worker.collecting import Collected, Needed, collected
from stager.worker.images import ASKED, PULLED

# Whoever submits pulls first; and who asks again is about to submit.
PULLED_LATELY_S = 86_400.0
ENDED = frozenset((JobState.DONE, JobState.FAILED, JobState.SKIPPED))


class Wanted(NamedTuple):
    """`archives`: names of those that a run may read that can go on."""

    needed: Needed
    archives: frozenset[str]


class Gone(NamedTuple):
    """`here`: on this machine, archives among the images."""

    here: Collected


NOTHING_GONE = Gone(Collected())


class MadeForJobs:
    """On the event loop's thread."""

    def __init__(self, inquiry: Inquiry, runs: KnownRuns, worker: Worker) -> None:
        self.inquiry, self.runs, self.worker = inquiry, runs, worker

    async def collect(self, *, cache: bool, dry_run: bool) -> Gone:
        """`cache` False: only what is damaged."""
        wanted = await self.inquiry.ask(lambda: wanted_of(self.runs.state)) if cache else None
        return Gone(await self._here(wanted, dry_run=dry_run))

    async def _here(self, wanted: Wanted | None, *, dry_run: bool) -> Collected:
        gone = await collected(self.worker, None if wanted is None else wanted.needed, dry_run=dry_run)
        if wanted is None:
            return gone
        archives = await asyncio.to_thread(lambda: idle_archives(self.worker.images.directory / PULLED, wanted.archives))
        sizes = await asyncio.to_thread(lambda: archive_sizes(archives) if dry_run else [removed(path) for path in archives])
        return msgspec.structs.replace(gone, images=gone.images + len(sizes), freed_bytes=gone.freed_bytes + sum(sizes))


def wanted_of(state: State) -> Wanted:
    """On the driving thread."""
    images: set[str] = set()
    environments: set[str] = set()
    archives: set[str] = set()
    for run in state.runs.values():
        for job in run.workflow.jobs.values() if run.outcome not in OVER else ():
            goes_on = run.id in state.active and run.jobs[job.id].state not in ENDED
            if job.image is not None:
                archives |= {os.path.basename(source.location.path) for source in run.workflow.files[job.image].sources}
                images |= {run.file_ids[job.image]} if goes_on else set()
            if goes_on:
                environments |= {run.file_ids[lfn] for lfn in (job.venv, job.conda) if lfn is not None}
    return Wanted(Needed(frozenset(images), frozenset(environments)), frozenset(archives))


def idle_archives(pulled: Path, needed: Container[str]) -> list[Path]:
    """In a thread."""
    lately = time.time() - PULLED_LATELY_S
    found = pulled.glob("[!.]*") if pulled.is_dir() else ()
    return sorted(path for path in found if path.name not in needed and asked_at(path) < lately)


def asked_at(path: Path) -> float:
    """When it was pulled, or asked for since."""
    times = [each.stat().st_mtime for each in (path, asked_note(path)) if each.exists()]
    return max(times, default=0.0)


def asked_note(path: Path) -> Path:
    return path.parent.parent / f"{ASKED}{path.name}"


def archive_sizes(archives: Sequence[Path]) -> list[int]:
    return [path.stat().st_size for path in archives if path.exists()]


def removed(path: Path) -> int:
    """Its bytes."""
    try:
        size_bytes = path.stat().st_size
        path.unlink()
        asked_note(path).unlink(missing_ok=True)
    except FileNotFoundError:
        return 0
    return size_bytes
