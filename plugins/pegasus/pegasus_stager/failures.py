"""Errors of a list, or of one entry of it.

May know: errno. One rule: a message says what happened to which file and what to do; a failure says whether waiting can mend it.
"""

from __future__ import annotations

import errno

# No waiting mends these. A file that is not there may come: on a shared file system others see it late.
LASTING = frozenset(
    (
        errno.EACCES,
        errno.EEXIST,
        errno.EPERM,
        errno.EROFS,
        errno.EISDIR,
        errno.ENOTDIR,
        errno.ENAMETOOLONG,
        errno.ELOOP,
        errno.EFBIG,
        errno.EINVAL,
    )
)


class ListRefused(Exception):
    """The list, or how it was asked for, is wrong. Nothing was started."""


class Failed(Exception):
    """One entry could not be done. `lasting`: trying again later gives the same."""

    def __init__(self, text: str, lasting: bool = False) -> None:
        super().__init__(text)
        self.lasting = lasting


def failed(what: str, problem: OSError) -> Failed:
    """`what` says what was tried with which file."""
    reason = problem.strerror or str(problem)
    return Failed(f"{what}: {reason}", lasting=problem.errno in LASTING)
