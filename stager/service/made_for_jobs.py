"""What was made for jobs beside their outputs and that no unfinished run needs: unpacked images, environments of packages, and archives of
images that were pulled from registries.

May know: the Machine's state (read only), the worker of this machine, those of hosts. One rule: an archive is an input at its origin, so it
stays for every run that may go on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Container, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from stager import wire
from stager.service.inquiry import Inquiry
from stager.service.known_runs import KnownRuns
from stager.service.made_on_hosts import MadeOnHosts
from stager.service.needed_inputs import needed_of, wanted_archives
from stager.worker import Worker
from stager.worker.collecting import Collected, collected
from stager.worker.images import ASKED, PULLED

# Whoever submits pulls first; and who asks again is about to submit.
PULLED_LATELY_S = 86_400.0


class Gone(NamedTuple):
    """`here`: on this machine, archives among the images."""

    here: Collected = Collected()
    hosts: list[wire.GcOnHost] = []


NOTHING_GONE = Gone()


class MadeForJobs:
    """On the event loop's thread."""

    def __init__(self, inquiry: Inquiry, runs: KnownRuns, worker: Worker, on_hosts: MadeOnHosts) -> None:
        self.inquiry, self.runs, self.worker, self.on_hosts = inquiry, runs, worker, on_hosts

    async def collect(self, *, cache: bool, dry_run: bool) -> Gone:
        """`cache` False: only what is damaged."""
        here, hosts = await asyncio.gather(self._here(cache=cache, dry_run=dry_run), self.on_hosts.collect(cache=cache, dry_run=dry_run))
        return Gone(here, hosts)

    async def _here(self, *, cache: bool, dry_run: bool) -> Collected:
        if not cache:
            return await collected(self.worker, None, dry_run=dry_run)
        needed, wanted = await self.inquiry.ask(lambda: (needed_of(self.runs.state), wanted_archives(self.runs.state)))
        gone = await collected(self.worker, needed, dry_run=dry_run)
        archives = await asyncio.to_thread(lambda: idle_archives(self.worker.images.directory / PULLED, wanted))
        sizes = await asyncio.to_thread(lambda: archive_sizes(archives) if dry_run else [removed(path) for path in archives])
        return msgspec.structs.replace(gone, images=gone.images + len(sizes), freed_bytes=gone.freed_bytes + sum(sizes))


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
