"""Virtual time: what is to happen, in order. One rule: things due at the same instant happen in the order they were asked for."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from math import inf
from typing import Any


class Clock:
    __slots__ = ("_count", "_due", "now")

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self._due: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0

    def at(self, time: float, call: Callable[..., None], *args: Any) -> None:
        """Never in the past: what is asked for earlier happens now."""
        self._count += 1
        heappush(self._due, (max(time, self.now), self._count, call, args))

    def after(self, delay_s: float, call: Callable[..., None], *args: Any) -> None:
        self._count += 1
        heappush(self._due, (self.now + delay_s if delay_s > 0 else self.now, self._count, call, args))

    def next_at(self) -> float:
        return self._due[0][0] if self._due else inf

    def run_due(self) -> None:
        """All that is due by now, and what that makes due by now."""
        due, now = self._due, self.now
        while due and due[0][0] <= now:
            _, _, call, args = heappop(due)
            call(*args)
