"""Hands in what tasks of a DagRun made while the service was away: a later task reads that together with what only the service has.

May know: the graph, what is loose, stager's client. One rule: a file in the fallback directory stays there; the service gets a copy of it,
as made by the task that made it.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from airflow.providers.stager.loose import laid

if TYPE_CHECKING:
    from airflow.providers.stager.loose import Loose
    from airflow.providers.stager.runs import PartRun

log = logging.getLogger("airflow.task")
NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._:+@~-]")
WAIT_S, HAND_IN_S = 20.0, 600.0
LOCK_POLL_S = 0.2
NOT_MADE = "not_made"
# How its calls begin, unlike those of tries.
HAND_IN = "hand-in."


def hand_in(part: PartRun, job: str, loose: Loose) -> None:
    """Inputs of this job that lie in the fallback directory and that the service lacks. It never raises: the call says what is missing."""
    from stager.model.errors import StagerError

    try:
        for name, uri in part.part.reads(job).items():
            if lacks(part, name, uri, loose):
                for maker in [each for each in part.part.jobs if name in part.part.makes(each)]:
                    hand_in(part, maker, loose)
                    hand_in_outputs(part, maker, loose)
    except (StagerError, OSError) as problem:
        log.warning("files that were made while the service was away could not be handed in to it: %s", problem)


def lacks(part: PartRun, name: str, uri: str, loose: Loose) -> bool:
    return loose.is_held(uri) and part.run.where(name).standing == NOT_MADE


def hand_in_outputs(part: PartRun, maker: str, loose: Loose) -> None:
    """All that this job makes, since a call ends with all of it. A product is at its place already, and is not written once more."""
    from stager import wire

    made = part.part.makes(maker)
    if not all(loose.is_held(uri) for uri in made.values()):
        log.warning("%s made some of its outlets while the service was away, and not all are in the fallback directory: clear it", maker)
        return
    held = {name: loose.held_at(uri) for name, uri in made.items()}
    call, end = call_of(maker, held.values()), time.monotonic() + HAND_IN_S
    view = part.run.call(maker, call, pins=True)
    while view.state is wire.CallState.WAITING and time.monotonic() < end:
        view = part.run.staged(maker, call, wait_s=WAIT_S)
    if view.state is wire.CallState.STAGED:
        with alone(Path(view.directory), end) as is_alone:
            if not is_alone:
                log.warning("another task still hands in the files that %s made while the service was away", maker)
                return
            # That task may be done by now: nothing of its may change, and its directory may be gone.
            view = part.run.staged(maker, call, wait_s=0.0)
            if view.state is wire.CallState.STAGED:
                for each in view.outputs:
                    laid(held[each.lfn], Path(each.path))
                view = part.run.finish(maker, call)
            while view.state in (wire.CallState.PUBLISHING, wire.CallState.WAITING) and time.monotonic() < end:
                view = part.run.finish(maker, call)
    if view.state is wire.CallState.DONE:
        log.info("%s made %s while the service was away; the service has it now", maker, ", ".join(made.values()))
        return
    part.run.fail(maker, call, "the files that it made could not be handed in")
    log.warning(
        "the service did not take the files that %s made while it was away: %s",
        maker,
        view.fault.message if view.fault else view.state.value,
    )


@contextmanager
def alone(directory: Path, end: float) -> Iterator[bool]:
    """Of all tasks that hand in the same: whether this one is the only one there. The lock ends with its process, however that ends."""
    try:
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        # The call is over.
        yield True
        return
    try:
        yield locked(handle, end)
    finally:
        os.close(handle)


def locked(handle: int, end: float) -> bool:
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                return False
            time.sleep(LOCK_POLL_S)
        else:
            return True


def call_of(maker: str, held: Iterable[Path]) -> str:
    """The same for all who hand in the same files."""
    words = "\0".join(f"{path} {path.stat().st_mtime_ns}" for path in held)
    return f"{HAND_IN}{NOT_IN_NAMES.sub('_', maker)[:120]}.{hashlib.sha256(words.encode()).hexdigest()[:12]}"
