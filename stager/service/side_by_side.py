"""Questions that need not wait for each other: each in a thread of its own.

May know: the standard library, and as little of it as that takes, since each submit begins with it. One rule: who asked several has all
the answers, or the first error of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, TypeVar

R = TypeVar("R")


def side_by_side(calls: Sequence[Callable[[], R]]) -> list[R]:
    """What they return, in order. Raises the error of the first that failed, once all have ended. Whoever is interrupted meanwhile waits
    for none of them.
    """
    if len(calls) == 1:
        return [calls[0]()]
    ends: SimpleQueue[tuple[int, R | BaseException, bool]] = SimpleQueue()

    def run(number: int) -> None:
        try:
            ends.put((number, calls[number](), True))
        except BaseException as error:
            ends.put((number, error, False))

    for number in range(len(calls)):
        threading.Thread(target=run, args=(number,), daemon=True, name="stager-beside").start()
    found: dict[int, Any] = {}
    failed: dict[int, BaseException] = {}
    for _ in calls:
        number, value, is_well = ends.get()
        if is_well:
            found[number] = value
        else:
            assert isinstance(value, BaseException)
            failed[number] = value
    if failed:
        raise failed[min(failed)]
    return [found[number] for number in range(len(calls))]
