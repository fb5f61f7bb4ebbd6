"""The scheduler's clock: the wall clock as it was at the start, counted on by time that really passes.

May know: clocks. One rule: nobody who sets the wall clock moves it, and so no timer fires early, late or never because of that.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from stager.worker.ticks import since_boot_s


class SteadyClock:
    def __init__(self, wall: Callable[[], float] = time.time, ticks: Callable[[], float] = since_boot_s) -> None:
        self.wall, self.ticks = wall, ticks
        self.offset = wall() - ticks()

    def __call__(self) -> float:
        """Seconds since 1970, as far as the wall clock was right at the start."""
        return self.ticks() + self.offset

    def go_on_from(self, at: float) -> None:
        """After a journal that ends then. Where that is a time to come, since a clock was set, it goes on from there: what is due in a
        second is due in a second, and not when the wall clock comes by.
        """
        self.offset = max(self.offset, at - self.ticks())

    def of_wall(self, moment: float) -> float:
        """A moment that a process stamped by the wall clock."""
        return self() - (self.wall() - moment)

    def ahead_s(self) -> float:
        """Of the wall clock as it is now; less than 0 where that was set forward."""
        return self() - self.wall()
