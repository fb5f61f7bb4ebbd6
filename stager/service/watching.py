"""The watch over things that may be pulled from under a running scheduler: its state directory, and the wall clock of its machine.

One rule: it checks and tells; a state directory that is gone ends the scheduler, since nothing that it would still do could be kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass

from stager.model.errors import STATE_DIR_GONE_CODE, Refused
from stager.model.units import format_duration
from stager.service.state_dir import StateDir

log = logging.getLogger(__name__)
POLL_S = 1.0
# Less is how clocks are: it is set right by so much now and then.
CLOCK_TOLD_S = 60.0


@dataclass(frozen=True, slots=True)
class Holding:
    """The state directory that a scheduler holds, and which file its lock was then."""

    state_dir: StateDir
    held_lock: tuple[int, int] | None


async def watch(holding: Holding, ahead_s: Callable[[], float]) -> None:
    """For ever. Raises Refused when the state directory is not the one any more that this scheduler holds. `ahead_s`: so far is the
    scheduler's clock ahead of the wall clock.
    """
    told_s, told_failure = 0.0, ""
    while True:
        told_s = tell_clock(ahead_s(), told_s)
        await asyncio.sleep(POLL_S)
        told_failure = check(holding, told_failure)


def check(holding: Holding, told: str) -> str:
    """Raises as `watch`. Why the check itself failed, which is told once: a disk that fails is not a directory that is gone."""
    try:
        gone = gone_of(holding)
    except OSError as problem:
        if str(problem) != told:
            log.warning("whether the state directory is still there cannot be told: %s", problem)
        return str(problem)
    if gone is not None:
        raise gone
    return ""


def state_dir_gone(holding: Holding) -> Refused | None:
    """None also where that cannot be told."""
    with contextlib.suppress(OSError):
        return gone_of(holding)
    return None


def gone_of(holding: Holding) -> Refused | None:
    """None while it is the one that this scheduler holds. Raises OSError."""
    state_dir = holding.state_dir
    if state_dir.lock_file() == holding.held_lock:
        return None
    text = f"the state directory {state_dir.root} was removed or replaced while its scheduler was running"
    text += "; the scheduler, its I/O node and its jobs end, and what was not durable by then is lost"
    return Refused(text, code=STATE_DIR_GONE_CODE, subject=str(state_dir.root))


def tell_clock(ahead_s: float, told_s: float) -> float:
    """Once for each time that somebody sets the wall clock. Returns the value that was told last."""
    if abs(ahead_s - told_s) < CLOCK_TOLD_S:
        return told_s
    how = f"{format_duration(abs(ahead_s))} {'behind' if ahead_s > 0 else 'ahead of'} the scheduler's time"
    log.warning("the clock of this machine is %s: it was set. Timers keep to time that passes, and so do the times that are shown", how)
    return ahead_s
