"""SIGINT and SIGTERM while programs are started: a program that runs already is not known yet to whoever would end it.

One rule: what is being started becomes known before the end; who asks for the end twice does not wait for that.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable


class Ending:
    """Entered by whoever starts a program, one at a time."""

    __slots__ = ("act", "asked", "starting")

    def __init__(self) -> None:
        self.act: Callable[[int], None] | None = None
        self.asked = 0
        self.starting = False

    def hear(self, act: Callable[[int], None]) -> None:
        """From now on."""
        self.act = act
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self.heard)

    def heard(self, number: int, frame: object) -> None:
        again, self.asked = self.asked, number
        if self.act is not None and (again or not self.starting):
            self.act(number)

    def __enter__(self) -> None:
        self.starting = True

    def __exit__(self, *problem: object) -> None:
        self.starting = False
        if self.asked:
            # Once more, for whatever thread this is, signals are heard in the first one.
            os.kill(os.getpid(), self.asked)
