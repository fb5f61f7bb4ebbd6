"""Exit codes, the same for every command; docs/operating/exit-codes.md lists them. One rule: a program can tell who must act without
reading text.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from stager.model.errors import AWAY_CODE, ErrorClass

if TYPE_CHECKING:
    # Not when it runs: a Ctrl-C that breaks into this import is told of with what stands here.
    from stager.wire import ErrorBody


class Exit(IntEnum):
    """130 is what a shell calls an interrupted program: here a run that was interrupted and can be resumed."""

    OK = 0
    JOB_FAILED = 1
    INVALID_INPUT = 2
    REFUSED = 3
    NOT_DURABLE = 4
    TRANSIENT = 5
    CORRUPT = 6
    DENIED = 7
    CANCELLED = 8
    NOT_YET = 9
    INTERRUPTED = 130


BY_CLASS = {
    ErrorClass.INVALID_INPUT: Exit.INVALID_INPUT,
    ErrorClass.REFUSED: Exit.REFUSED,
    ErrorClass.TRANSIENT: Exit.TRANSIENT,
    ErrorClass.CORRUPT: Exit.CORRUPT,
    ErrorClass.DENIED: Exit.DENIED,
}
BY_STATE = {
    "succeeded": Exit.OK,
    "failed": Exit.JOB_FAILED,
    "not_durable": Exit.NOT_DURABLE,
    "refused": Exit.REFUSED,
    "interrupted": Exit.INTERRUPTED,
    "cancelled": Exit.CANCELLED,
}
BY_REASON = {AWAY_CODE: Exit.TRANSIENT, "no_space_node": Exit.REFUSED}


def exit_of(state: str, fault: ErrorBody | None = None) -> Exit:
    """Of a run's state, and of what it ended for: no author can mend an origin that was away or a node that is too small. One that goes on
    is NOT_YET.
    """
    if state == "failed" and fault is not None and fault.code in BY_REASON:
        return BY_REASON[fault.code]
    return BY_STATE.get(state, Exit.NOT_YET)
