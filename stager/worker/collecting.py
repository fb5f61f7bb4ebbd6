"""What goes of the images and environments of a host when somebody asks for room.

May know: what is kept, what it was made of. One rule: nothing that an attempt or a kept sandbox uses, nor what was made of a file that is
still needed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Set
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec

from stager.worker.made_of_inputs import MadeOfInputs

if TYPE_CHECKING:
    from stager.worker.worker import Worker

log = logging.getLogger(__name__)
# As a host may tell them that is somebody else's.
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
PROBLEM_MAX = 1000


class Needed(NamedTuple):
    """Ids of the files that images and environments are made of, for jobs that have not ended."""

    images: Set[str]
    environments: Set[str]


NOTHING_NEEDED = Needed(frozenset(), frozenset())


class Collected(msgspec.Struct, frozen=True, kw_only=True):
    """How many went, or would. `left_bytes`: of those that stay. `problem`: why they could not be looked through; empty: they could."""

    images: Count = 0
    environments: Count = 0
    freed_bytes: Count = 0
    left_bytes: Count = 0
    problem: Annotated[str, msgspec.Meta(max_length=PROBLEM_MAX)] = ""


async def collected(worker: Worker, needed: Needed | None, *, dry_run: bool) -> Collected:
    """`needed` None: only what is damaged goes."""
    try:
        images, images_left = await gone_from(worker.images.made, None if needed is None else needed.images, dry_run=dry_run)
        others, others_left = await gone_from(worker.environments.made, None if needed is None else needed.environments, dry_run=dry_run)
    except OSError as problem:
        return Collected(problem=str(problem)[:PROBLEM_MAX])
    freed_bytes = sum(images + others)
    left_bytes = images_left + others_left - (freed_bytes if dry_run else 0)
    return Collected(images=len(images), environments=len(others), freed_bytes=freed_bytes, left_bytes=left_bytes)


async def give_way(worker: Worker) -> None:
    """A job found the disk full."""
    gone = await collected(worker, NOTHING_NEEDED, dry_run=False)
    if gone.freed_bytes or gone.problem:
        log.warning("a job found the disk full: %d bytes of images and environments went. %s", gone.freed_bytes, gone.problem)


async def gone_from(made: MadeOfInputs, needed: Set[str] | None, *, dry_run: bool) -> tuple[list[int], int]:
    """The sizes of those that went, and the bytes of all that are there now."""
    gone = await made.kept.collect(staying(made, needed), dry_run=dry_run)
    left = await made.kept.found()
    return [entry.size_bytes for entry in gone], left.size_bytes


def staying(made: MadeOfInputs, needed: Set[str] | None) -> Callable[[str], bool]:
    # Of one that is needed and was not met since this process began, nobody knows which directory it is.
    wanted = None if needed is None else made.names(needed)
    return (lambda name: True) if wanted is None else wanted.__contains__
