"""A value over time. One rule: it is set in the order of time, and asked about any of it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Any


class Steps:
    """A value that changes now and then: it is set in the order of time."""

    __slots__ = ("_times", "_values")

    def __init__(self) -> None:
        self._times: list[float] = []
        self._values: list[Any] = []

    def set(self, at: float, value: Any) -> None:
        self._times.append(at)
        self._values.append(value)

    def newest(self, default: Any) -> Any:
        return self._values[-1] if self._values else default

    def at(self, time: float, default: Any) -> Any:
        found = bisect_right(self._times, time)
        return self._values[found - 1] if found else default

    def forget_past(self) -> None:
        """All but what is so now."""
        del self._times[:-1], self._values[:-1]

    def changes(self, since: float, until: float) -> list[float]:
        """When, between the two."""
        return self._times[bisect_right(self._times, since) : bisect_left(self._times, until)]
