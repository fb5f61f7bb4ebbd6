"""When a client called last, so that a scheduler nobody needs can end. One rule: a call that is still open is activity."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Activity:
    def __init__(self) -> None:
        self.open_calls = 0
        self.last_at = time.monotonic()

    @contextmanager
    def call(self) -> Iterator[None]:
        self.open_calls += 1
        try:
            yield
        finally:
            self.open_calls -= 1
            self.last_at = time.monotonic()

    def idle_s(self) -> float:
        return 0.0 if self.open_calls else time.monotonic() - self.last_at
