"""Questions that need not wait for each other: each in a thread of its own.

May know: the standard library, and as little of it as that takes, since each submit begins with it. One rule: who asked several has all
the answers, or the first error of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

R = TypeVar("R")


def side_by_side(calls: Sequence[Callable[[], R]]) -> list[R]:
    """What they return, in order. Raises the error of the first that failed, once all have ended. Whoever is interrupted meanwhile waits
    for none of them.
    """
    if len(calls) == 1:
        return [calls[0]()]
    found: dict[int, R] = {}
    failed: dict[int, BaseException] = {}

    def run(number: int) -> None:
        try:
            found[number] = calls[number]()
        except BaseException as error:
            failed[number] = error

    threads = [threading.Thread(target=run, args=(number,), daemon=True, name="stager-beside") for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[min(failed)]
    return [found[number] for number in range(len(calls))]
