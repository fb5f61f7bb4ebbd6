"""Images that no unfinished run needs: unpacked ones, and archives that were pulled from registries.

May know: the Machine's state (read only), the images of this machine. One rule: an archive is an input at its origin, so it stays for every
run that may go on.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from stager.scheduler.state import OVER, State
from stager.scheduler.states import JobState
from stager.worker.images import ASKED, PULLED, Images
from stager.worker.kept_directories import KeptDirectory

# Whoever submits pulls first; and who asks again is about to submit.
PULLED_LATELY_S = 86_400.0
ENDED = frozenset((JobState.DONE, JobState.FAILED, JobState.SKIPPED))


class Needed(NamedTuple):
    """`files`: ids of images whose jobs have not ended. `archives`: names of those that a run may read that can go on."""

    files: frozenset[str]
    archives: frozenset[str]


@dataclass(frozen=True, slots=True)
class Unneeded:
    """`since`: of the monotonic clock, when it was looked."""

    unpacked: Sequence[KeptDirectory] = ()
    archives: Sequence[Path] = ()
    archives_bytes: int = 0
    since: float = 0.0

    @property
    def count(self) -> int:
        return len(self.unpacked) + len(self.archives)

    @property
    def size_bytes(self) -> int:
        return sum(entry.size_bytes for entry in self.unpacked) + self.archives_bytes


NO_IMAGES = Unneeded()


class UnneededImages:
    """On the event loop's thread."""

    def __init__(self, images: Images) -> None:
        self.images = images

    async def found(self, needed: Needed) -> Unneeded:
        found = await self.images.kept.found()
        known = self.images.directories()
        wanted = {known[file] for file in needed.files if file in known}
        # Of an image that is needed and was not unpacked since this scheduler began, nobody knows which it is.
        unpacked = [entry for entry in found.idle if entry.name not in wanted] if needed.files <= known.keys() else []
        archives = await asyncio.to_thread(lambda: idle_archives(self.images.directory / PULLED, needed.archives))
        return Unneeded(unpacked, archives, await asyncio.to_thread(archive_bytes, archives), found.since)

    async def drop(self, unneeded: Unneeded) -> Unneeded:
        """Those that went: not one that a job began to use meanwhile."""
        unpacked = await self.images.kept.drop(unneeded.unpacked, unneeded.since)
        freed = await asyncio.to_thread(lambda: [removed(path) for path in unneeded.archives])
        return Unneeded(unpacked, unneeded.archives, sum(freed), unneeded.since)


def needed_images(state: State) -> Needed:
    """On the driving thread."""
    files: set[str] = set()
    archives: set[str] = set()
    for run in state.runs.values():
        for job in run.workflow.jobs.values() if run.outcome not in OVER else ():
            if job.image is None:
                continue
            archives |= {os.path.basename(source.location.path) for source in run.workflow.files[job.image].sources}
            if run.id in state.active and run.jobs[job.id].state not in ENDED:
                files.add(run.file_ids[job.image])
    return Needed(frozenset(files), frozenset(archives))


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


def archive_bytes(archives: Sequence[Path]) -> int:
    return sum(path.stat().st_size for path in archives if path.exists())


def removed(path: Path) -> int:
    """Its bytes."""
    try:
        size_bytes = path.stat().st_size
        path.unlink()
        asked_note(path).unlink(missing_ok=True)
    except FileNotFoundError:
        return 0
    return size_bytes
