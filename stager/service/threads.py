"""Threads beside the event loop, where it has done what would hold it up. One rule: it is known what has not ended."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


class Threads(ThreadPoolExecutor):
    """`under_way`: what has not ended, nor been given up."""

    def __init__(self, name: str, most: int | None = None) -> None:
        super().__init__(most, thread_name_prefix=name)
        self.under_way: set[Future[Any]] = set()

    def submit(self, fn: Callable[..., Any], /, *words: Any, **named: Any) -> Future[Any]:
        future = super().submit(fn, *words, **named)
        self.under_way.add(future)
        future.add_done_callback(self.under_way.discard)
        return future
