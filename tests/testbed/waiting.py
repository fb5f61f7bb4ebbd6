"""Waiting for something to become true. One rule: a deadline and a reason, never a sleep that hopes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
# Who asks fifty times a second for seconds on end keeps a server, or this process, at nothing but answers.
PAUSE_S, PAUSE_MAX_S, PAUSE_PART = 0.02, 0.2, 0.05


def wait_until(condition: Callable[[], T], what: str, deadline_s: float = 120.0, pause_s: float | None = None) -> T:
    """The first true answer of `condition`. Raises AssertionError that names what was waited for.

    `pause_s`: between two questions, for who looks for something that passes; otherwise pauses become longer with the wait.
    """
    begun = time.monotonic()
    while True:
        answer = condition()
        if answer:
            return answer
        waited_s = time.monotonic() - begun
        if waited_s >= deadline_s:
            raise AssertionError(f"waited {deadline_s:g} s for {what}")
        time.sleep(min(max(PAUSE_S, PAUSE_PART * waited_s), PAUSE_MAX_S) if pause_s is None else pause_s)
