"""Waiting for something to become true. One rule: a deadline and a reason, never a sleep that hopes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(condition: Callable[[], T], what: str, deadline_s: float = 120.0, pause_s: float = 0.02) -> T:
    """The first true answer of `condition`. Raises AssertionError that names what was waited for."""
    end = time.monotonic() + deadline_s
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() >= end:
            raise AssertionError(f"waited {deadline_s:g} s for {what}")
        time.sleep(pause_s)
